"""What Prefect is told of a stage."""

import pyarrow as pa
import pyarrow.parquet as pq

from flows.dvc_state.dag import Node
from flows.server.artifacts import DETAILS, REPORT_URL, page, report_is_served, report_link

NODE = Node("sample", "Draw documents", ("acquire",), ("data/sources/corpus",), ("data/corpus/documents",))
TOOK = {"seconds": 3.21, "peak_memory_bytes": 250_000_000, "output_bytes": 1_500_000}


def test_a_page_says_why_a_stage_ran_what_it_took_and_what_came_of_it():
    record = {"rows": 12_345, "documents": 80, "excluded": {"too short": 7}, "deviation": None} | TOOK
    text = page(NODE, ("parameter sample.min_words changed: 50 → 60", "a | b"), record)
    assert "- parameter sample.min_words changed: 50 → 60\n- a \\| b\n" in text
    for line in ("| rows | 12,345 |", "| seconds | 3.2 |", "| peak memory | 250.0 MB |", "| bytes written | 1.5 MB |"):
        assert line in text
    assert "| excluded.too short | 7 |" in text
    assert "| deviation | – |" in text
    assert NODE.description not in text, "Prefect shows it above the page"
    assert "Written: `data/corpus/documents`" in text


def test_exclusions_come_most_frequent_first(tmp_path):
    rows = DETAILS["sample"][1](tmp_path, {"excluded": {"too short": 2, "near duplicate": 5}})
    assert rows == [{"reason": "near duplicate", "documents": 5}, {"reason": "too short", "documents": 2}]


def test_trainings_are_one_row_a_variant(tmp_path):
    record = {"rows": 60, "supmer": {"steps": 30, "best": {"loss": 1.5}}, "without-mgr": {"steps": 30}} | TOOK
    assert DETAILS["metatrain"][1](tmp_path, record) == [
        {"variant": "supmer", "steps": 30, "best.loss": 1.5},
        {"variant": "without-mgr", "steps": 30},
    ]


def test_scores_are_means_over_seeds_of_the_chosen_learning_rate(tmp_path):
    folder = tmp_path / "data/tuning/scores"
    folder.mkdir(parents=True)
    common = {"dataset": "movies", "tested_on": "movies", "shots": 16}
    rows = [
        common | {"method": "supmer", "chosen": True, "score": 0.8},
        common | {"method": "supmer", "chosen": True, "score": 0.6},
        common | {"method": "supmer", "chosen": False, "score": None},
        common | {"method": "zero-shot", "chosen": True, "score": 0.5},
    ]
    pq.write_table(pa.Table.from_pylist(rows), folder / "a.parquet")
    named = {"dataset": "movies", "tested on": "movies", "shots": 16}
    assert DETAILS["tune"][1](tmp_path, {}) == [
        named | {"method": "supmer", "mean": 0.7, "deviation": 0.1414, "seeds": 2},
        named | {"method": "zero-shot", "mean": 0.5, "deviation": None, "seeds": 1},
    ]


def test_vectors_are_one_row_a_shard(tmp_path):
    folder = tmp_path / "data/embeddings"
    folder.mkdir(parents=True)
    for name, rows in (("b", 2), ("a", 3)):
        pq.write_table(pa.table({"index": list(range(rows))}), folder / f"{name}.parquet")
    about = {"model": "embedder", "dimension": 384, "dtype": "float16"}
    rows = DETAILS["embed"][1](tmp_path, about | {"rows": 5, "model_hash": "0"} | TOOK)
    assert [(row["shard"], row["sentences"]) for row in rows] == [("a", 3), ("b", 2)]
    assert all(about.items() <= row.items() for row in rows)


def test_the_report_is_linked_at_our_own_server_and_by_its_file_elsewhere(tmp_path, monkeypatch):
    monkeypatch.delenv(REPORT_URL, raising=False)
    assert report_link(tmp_path) == (tmp_path / "report/index.html").resolve().as_uri()
    monkeypatch.setenv(REPORT_URL, "")  # so that what is set below is taken back
    monkeypatch.delenv(REPORT_URL)
    report_is_served()
    assert report_link(tmp_path) == "/report/"
