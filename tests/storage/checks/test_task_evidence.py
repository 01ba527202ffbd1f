"""Tasks against what lies beside the datasets: the order of their rows, their number, the files of datasets."""

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from storage import paths
from storage.checks.verification import verify_invariants
from support.anchor_corpus import run_stage, write_corpus

PIPELINE = """
stages:
  sample: {cmd: x, outs: [data/corpus/documents, data/corpus/sentences]}
  cluster: {cmd: x, outs: [data/clusters/assignments]}
  materialize: {cmd: x, outs: [data/tasks], metrics: [data/metrics/materialize.json]}
"""


@pytest.fixture
def made(tmp_path):
    write_corpus(tmp_path)
    run_stage(tmp_path)
    (tmp_path / "dvc.yaml").write_text(PIPELINE)
    return tmp_path


def findings(root):
    return [(one.detail, one.remedy) for one in verify_invariants(root, 256)]


def test_what_the_stage_writes_stands_every_check(made):
    assert findings(made) == []


def test_a_whole_shard_that_is_missing_is_noticed(made):
    (made / paths.TASKS / "mc-validation-00000.parquet").unlink()
    [(detail, remedy)] = findings(made)
    assert "mc-validation (0 of 4)" in detail
    assert remedy.startswith("`supmer run --force materialize`")


@pytest.mark.parametrize("damage", ["torn apart", "query first", "out of order", "over two files"])
def test_rows_of_a_task_that_do_not_lie_together_are_noticed(made, damage):
    path = made / paths.TASKS / "sp-train-00000.parquet"
    table = pq.read_table(path)
    rows = list(range(table.num_rows))  # tasks of 6 + 5
    if damage == "torn apart":
        rows[10], rows[11] = rows[11], rows[10]
    elif damage == "query first":
        rows[:11] = [*range(6, 11), *range(6)]
    elif damage == "out of order":
        rows[7], rows[8] = rows[8], rows[7]
    else:
        pq.write_table(table.slice(0, 4), path.with_name("sp-train-00001.parquet"))
        rows = rows[4:]
    pq.write_table(table.take(pa.array(rows)), path)
    found = [detail for detail, _ in findings(made)]
    assert any("tasks do not lie together" in detail and "sp-train-000000" in detail for detail in found)


def test_a_damaged_count_is_left_to_its_hash(made):
    (made / paths.MATERIALIZE_METRICS).write_bytes(b"{}")
    assert findings(made) == []
    (made / paths.MATERIALIZE_METRICS).write_bytes(orjson.dumps({"by_format": {"train": {"sp": 1}}}))
    assert "sp-train (10 of 1)" in findings(made)[0][0]
