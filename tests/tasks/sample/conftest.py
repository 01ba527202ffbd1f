"""Corpora for the stage `sample`."""

import gzip

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from support.sample_room import SampleRoom, lines, story


@pytest.fixture
def workspace(tmp_path):
    return SampleRoom(tmp_path)


@pytest.fixture
def mixed(workspace):
    """Every form of file, with duplicates, near duplicates and documents to be left out."""
    texts = [story(seed) for seed in range(60)]
    workspace.add("a.jsonl", lines([*texts[:20], texts[3], "too short", "", None]))
    workspace.add("b.jsonl.gz", gzip.compress(lines([*texts[20:30], texts[21] + " One more word here."])))
    table = pa.table({"text": texts[30:45]})
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, row_group_size=4)
    workspace.add("c.parquet", sink.getvalue().to_pybytes(), "other")
    workspace.add("d.csv", ("id,text\n" + "".join(f'1,"{text}"\n' for text in texts[45:50])).encode(), "other")
    for number, text in enumerate(texts[50:]):
        workspace.add(f"texts/{number}.txt", text.encode(), "other")
    workspace.add("README.md", b"about", "other")
    return workspace
