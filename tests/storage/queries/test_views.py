import subprocess
import sys

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from storage.errors import InputError
from storage.queries.views import Result, connect, datasets, one_line_errors, run_query, summaries

PIPELINE = """\
stages:
  sample:
    cmd: "true"
    outs: [data/corpus/documents, data/corpus/excluded, data/model]
  embed:
    cmd: "true"
    outs: [data/embeddings]
"""


@pytest.fixture
def root(tmp_path):
    (tmp_path / "dvc.yaml").write_text(PIPELINE)
    folder = tmp_path / "data/corpus/documents"
    (folder / "deep").mkdir(parents=True)
    pq.write_table(pa.table({"n": [1, 2], "text": ["a", None]}), folder / "0.parquet")
    pq.write_table(pa.table({"n": [3], "text": ["c"]}), folder / "deep/1.parquet")
    (tmp_path / "data/corpus/excluded").mkdir()
    pq.write_table(pa.table({"reason": ["short"]}), tmp_path / "data/corpus/excluded/0.parquet")
    (tmp_path / "data/model").mkdir()
    (tmp_path / "data/model/weights").touch()
    return tmp_path


def ask(root, query, **settings) -> list[tuple[object, ...]]:
    with connect(root, **settings) as connection:
        return [row for batch in run_query(root, connection, query).batches for row in batch]


def refusal(root, query) -> str:
    with pytest.raises(InputError) as caught:
        ask(root, query)
    return str(caught.value)


def test_every_folder_of_shards_is_a_view_also_with_subfolders(root):
    assert ask(root, "SELECT sum(n) FROM documents") == [(6,)]
    assert ask(root, "SELECT reason FROM excluded") == [("short",)]
    assert [dataset.name for dataset in datasets(root)] == ["documents", "excluded", "embeddings"]


def test_outputs_of_the_same_name_are_told_apart_by_their_folder(tmp_path):
    (tmp_path / "dvc.yaml").write_text("stages: {a: {cmd: x, outs: [data/train/tasks, data/test/tasks]}}")
    assert [dataset.name for dataset in datasets(tmp_path)] == ["train_tasks", "test_tasks"]


def test_a_workspace_may_have_any_name(root, tmp_path):
    strange = tmp_path / "it's [a] *strange* name?"
    (strange / "data").mkdir(parents=True)
    (strange / "dvc.yaml").write_text(PIPELINE)
    (root / "data/corpus").rename(strange / "data/corpus")
    assert ask(strange, "SELECT sum(n) FROM documents") == [(6,)]


def test_duckdb_prints_no_progress_among_the_rows(root):
    assert ask(root, "SELECT current_setting('enable_progress_bar')") == [(False,)]


def test_listing_tells_columns_rows_and_shards(root):
    with connect(root) as connection:
        documents, _, embeddings = summaries(root, connection)
    assert (documents.rows, documents.shards) == (3, 2)
    assert documents.columns == {"n": "BIGINT", "text": "VARCHAR"}
    assert (embeddings.rows, embeddings.shards, embeddings.stage) == (None, 0, "embed")


@pytest.mark.parametrize(
    "query",
    [
        "WITH one AS (SELECT 1 AS x) SELECT x FROM one",
        "DESCRIBE documents",
        "SHOW TABLES",
        "SUMMARIZE documents",
        "EXPLAIN SELECT 1",
        "explain /* why */ analyze\n-- so\nSELECT * FROM documents",
        "EXPLAIN (FORMAT json) SELECT 1",
        "FROM documents",
        "VALUES (1);",
        "SELECT 'copy' AS copy -- COPY",
        "PIVOT documents ON n IN (1, 2) USING count(*)",
    ],
)
def test_reading_statements_run(root, query):
    assert ask(root, query)


@pytest.mark.parametrize(
    "query",
    [
        "COPY documents TO '{root}/data/corpus/documents/2.csv'",
        "WITH t AS (COPY documents TO '{root}/data/corpus/documents/2.csv') SELECT * FROM t",
        "EXPLAIN ANALYZE COPY documents TO '{root}/data/corpus/documents/2.csv'",
        "EXPLAIN ANALYZE WITH t AS (COPY documents TO '{root}/data/corpus/documents/2.csv') SELECT * FROM t",
        "EXPLAIN (ANALYZE) COPY documents TO '{root}/data/corpus/documents/2.csv'",
        "COPY (PIVOT documents ON n USING count(*)) TO '{root}/data/corpus/documents/2.csv'",
        "CREATE TABLE t AS SELECT 1",
        "ATTACH '{root}/x.db'",
        "INSTALL httpfs",
        "LOAD httpfs",
        "SET memory_limit = '1TB'",
        "PRAGMA enable_profiling",
        "DROP VIEW documents",
        "CALL enable_logging(storage = 'file', storage_path = '{root}/log')",
        "SELECT * FROM enable_logging(storage = 'file', storage_path = '{root}/log')",
        "SELECT 1; SELECT 2",
        "",
    ],
)
def test_statements_that_could_write_are_refused_and_write_nothing(root, query):
    before = sorted(root.rglob("*"))
    message = refusal(root, query.replace("{root}", str(root)))
    assert message.startswith("sql: ")
    assert [path for path in sorted(root.rglob("*")) if ".supmer" not in path.parts] == before


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM read_text('/etc/passwd')",
        "SELECT * FROM read_text('{root}/data/corpus/documents/../../../dvc.yaml')",
        "SELECT * FROM read_blob('{root}/data/corpus/documents/../../../*')",
        "SELECT * FROM '/etc/passwd.csv'",
        "SELECT * FROM glob('/etc/*')",
        "SELECT * FROM read_csv('http://127.0.0.1:9/a.csv')",
        "SELECT * FROM sniff_csv('/etc/passwd')",
    ],
)
def test_files_outside_the_datasets_are_out_of_reach(root, query):
    assert "Cannot access" in refusal(root, query.replace("{root}", str(root)))


def test_a_dataset_not_made_yet_is_named_with_its_stage(root):
    assert refusal(root, "SELECT * FROM embeddings") == (
        "sql: embeddings is not made yet, stage embed makes it: `supmer run embed` (views: documents, excluded)"
    )


def test_an_unknown_view_gets_the_nearest_name(root):
    assert refusal(root, "SELECT * FROM docments") == (
        "sql: no view docments, did you mean documents? (views: documents, excluded)"
    )


def test_wrong_sql_is_one_line_and_a_caret_on_the_line_as_written(root):
    lines = refusal(root, "SELECT\n  wrong\nFROM documents").splitlines()
    assert lines[0].startswith('sql: Binder Error: Referenced column "wrong"')
    assert lines[1] == "LINE 2:   wrong"
    assert lines[2] == "          ^^^^^"


def test_an_error_among_the_rows_is_one_line_too(root):
    lines = refusal(root, "SELECT text::DATE FROM documents").splitlines()
    assert "Conversion Error" in lines[0]
    assert lines[1].startswith("LINE 1:")


@pytest.mark.parametrize("shard", ["0.parquet", "deep/1.parquet"])
def test_a_truncated_shard_is_named_and_spoils_no_other_view(root, shard):
    path = root / "data/corpus/documents" / shard
    path.write_bytes(path.read_bytes()[:-30])
    message = refusal(root, "SELECT sum(n) FROM documents")
    assert message.startswith(f"data/corpus/documents/{shard}: damaged, cut short or gone")
    assert "\n" not in message
    assert ask(root, "SELECT count(*) FROM excluded") == [(1,)]


def test_a_flipped_byte_in_a_page_is_named(root):
    path = root / "data/corpus/excluded/0.parquet"
    content = bytearray(path.read_bytes())
    content[5:25] = bytes(255 - byte for byte in content[5:25])
    path.write_bytes(content)
    assert refusal(root, "SELECT * FROM excluded").startswith("data/corpus/excluded/0.parquet: damaged")


SPILLING_SORT = """
import re, sys
from pathlib import Path
from storage.queries.views import connect, run_query
root = Path(sys.argv[1])
with connect(root, memory_mb=64, threads=1) as connection:
    last, rows = -1, 0
    for batch in run_query(root, connection, "SELECT n, text FROM documents ORDER BY n").batches:
        assert batch[0][0] >= last and batch == sorted(batch, key=lambda row: row[0])
        last, rows = batch[-1][0], rows + len(batch)
# The peak of this program: getrusage would count that of the process which started it, too.
print(rows, int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) // 1024)
"""


def test_a_sort_larger_than_memory_spills_and_ends(root):
    folder = root / "data/corpus/documents"
    (folder / "deep/1.parquet").unlink()
    for shard in range(4):
        numbers = np.random.default_rng(shard).integers(0, 1 << 60, 250_000)
        text = pa.array([f"{number:020d}" * 6 for number in numbers])  # 30 MB a shard, 120 MB in all
        pq.write_table(pa.table({"n": numbers, "text": text}), folder / f"{shard}.parquet")

    done = subprocess.run([sys.executable, "-c", SPILLING_SORT, str(root)], capture_output=True, text=True, check=True)

    rows, peak_mb = map(int, done.stdout.split())
    assert rows == 1_000_000
    assert peak_mb < 400
    assert list((root / ".supmer/tmp").iterdir()) == []


def test_rows_stream_without_being_held(root):
    with connect(root, memory_mb=64) as connection:
        result: Result = run_query(root, connection, "SELECT range, repeat('x', 100) FROM range(1_000_000_000)")
        first = next(result.batches)
    assert first[0] == (0, "x" * 100)


def test_spill_folders_of_dead_processes_are_removed(root):
    left = root / ".supmer/tmp/duckdb-999999999-0"
    left.mkdir(parents=True)
    (left / "duckdb_temp_storage-0.tmp").touch()
    connect(root).close()
    assert not left.exists()


def test_numbers_are_told_from_text(root):
    with connect(root) as connection:
        result = run_query(root, connection, "SELECT n, text, sum(n), 1.5, n::DOUBLE, [n] FROM documents GROUP BY ALL")
        assert result.numeric == (True, False, True, True, True, False)
        assert len(next(result.batches)) == 3


@pytest.mark.parametrize("interrupted", [duckdb.InterruptException("INTERRUPT"), RuntimeError("Query interrupted")])
def test_both_forms_in_which_duckdb_reports_ctrl_c_become_an_interrupt(tmp_path, interrupted):
    with pytest.raises(KeyboardInterrupt), one_line_errors(tmp_path):
        raise interrupted


def test_another_runtime_error_is_left_as_it_is(tmp_path):
    with pytest.raises(RuntimeError, match="something else"), one_line_errors(tmp_path):
        raise RuntimeError("something else")
