import csv
import io
import json
import os
import signal
import subprocess
import sys
import time

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

PIPELINE = "stages: {sample: {cmd: x, outs: [data/documents]}, embed: {cmd: x, outs: [data/vectors]}}\n"


@pytest.fixture
def workspace(tmp_path, monkeypatch):
    (tmp_path / "dvc.yaml").write_text(PIPELINE)
    (tmp_path / "params.yaml").write_text("seed: 1\n")
    (tmp_path / ".dvc").mkdir()
    (tmp_path / ".dvc/config.local").write_text("[core]\nno_scm = true\n")
    (tmp_path / "data/documents").mkdir(parents=True)
    table = pa.table({"n": [1, 20, None], "text": ["short", "a\x1b[31mred\nline " + "long " * 100, None]})
    pq.write_table(table, tmp_path / "data/documents/0.parquet")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "60")
    return tmp_path


def test_a_table_in_a_pipe_aligns_numbers_leaves_text_whole_and_shows_null(supmer):
    code, out, _ = supmer("sql", "SELECT * FROM documents ORDER BY n NULLS LAST")
    header, rule, *rows, count = out.splitlines()
    assert code == 0
    assert header.split() == ["n", "text"]
    assert set(rule) == {"─", " "}
    assert rows[0].startswith("   1  short")
    assert rows[1].startswith("  20  a·[31mred↵line")
    assert rows[1].endswith("long long")
    assert rows[2].split() == ["NULL", "NULL"]
    assert count == "(3 rows)"
    assert "\x1b" not in out


def test_a_table_stops_at_the_limit_and_says_so(supmer):
    _, out, _ = supmer("sql", "SELECT * FROM range(5)", "--limit", "2")
    assert out.splitlines()[-1] == "(2 rows shown, there are more: --limit 0 or --format csv)"
    _, out, _ = supmer("sql", "SELECT * FROM range(500)", "--limit", "0")
    assert out.splitlines()[-1] == "(500 rows)"


def test_csv_is_complete(supmer):
    _, out, _ = supmer("sql", "SELECT * FROM documents ORDER BY n NULLS LAST", "--format", "csv")
    rows = list(csv.reader(io.StringIO(out)))
    assert rows[0] == ["n", "text"]
    assert rows[2][1].endswith("long ")
    assert rows[3] == ["", ""]


def test_json_holds_every_type_and_repeated_column(supmer):
    query = (
        "SELECT 1 AS a, 2 AS a, 123456789012345678901234567890::HUGEINT AS big, 'x'::BLOB AS bytes, "
        "DATE '2026-01-02' AS day, 1.50::DECIMAL(4,2) AS amount, [1, NULL] AS list, {'k': 1} AS struct, NULL AS nothing"
    )
    _, out, _ = supmer("sql", query, "--format", "json")
    (row,) = json.loads(out)
    assert row == {
        "a": 1,
        "a_1": 2,
        "big": 123456789012345678901234567890,
        "bytes": "78",
        "day": "2026-01-02",
        "amount": "1.50",
        "list": [1, None],
        "struct": {"k": 1},
        "nothing": None,
    }
    assert json.loads(supmer("sql", "SELECT 1 WHERE false", "--format", "json")[1]) == []


def test_a_query_that_is_not_utf8_is_refused_in_one_line(supmer):
    code, out, message = supmer("sql", "-", stdin=b"SELECT 7 AS \xff\n")
    assert (code, out) == (2, "")
    assert message == "supmer: sql: standard input is not UTF-8 (byte 12 is 0xff): convert the query to UTF-8\n"


@pytest.mark.parametrize(
    "query",
    [
        "SELECT count(*) FROM range(10000000) a, range(10000000) b WHERE a.range + b.range = 3",  # no row for hours
        "SELECT a.range FROM range(10000000) a, range(10000000) b",  # rows all the time
    ],
)
def test_ctrl_c_ends_a_query_with_130(workspace, query):
    program = "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); "
    program += "from flows.cli import main; sys.argv[0] = 'supmer'; main()"
    command = [sys.executable, "-c", program, "sql", query, "--format", "csv"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        deadline = time.monotonic() + 60
        while not list(workspace.glob(".supmer/tmp")) and time.monotonic() < deadline:
            time.sleep(0.05)  # DuckDB is about to begin
        time.sleep(1)
        process.send_signal(signal.SIGINT)
        _, message = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in message


def test_a_query_comes_from_standard_input(supmer):
    assert supmer("sql", "-", "--format", "csv", stdin=b"SELECT 7 AS x\n")[1] == "x\n7\n"


def test_without_a_query_the_views_are_listed(supmer):
    _, out, _ = supmer("sql")
    lines = out.splitlines()
    assert lines[0].split() == ["view", "rows", "shards", "stage", "columns"]
    assert lines[2].split()[:4] == ["documents", "3", "1", "sample"]
    assert "not made yet" in lines[3]
    listed = json.loads(supmer("sql", "--format", "json")[1])
    assert listed[0]["columns"] == {"n": "BIGINT", "text": "VARCHAR"}


@pytest.mark.parametrize(
    "query", ["SELEC 1", "SELECT * FROM vectors", "SELECT * FROM read_text('/etc/passwd')", "COPY documents TO 'x.csv'"]
)
def test_a_bad_query_is_one_line_and_exit_code_2(supmer, query):
    code, out, err = supmer("sql", query)
    assert (code, out) == (2, "")
    assert err.startswith("supmer: sql: ")
    assert "Traceback" not in err


def test_a_reader_that_goes_away_ends_it_quietly(workspace):
    query = "SELECT * FROM range(10_000_000)"
    code = "from flows.cli import main; main()"
    process = subprocess.Popen(
        [sys.executable, "-c", code, "sql", query, "--format", "csv"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stdout.readline() == b"range\n"
    process.stdout.close()
    assert process.wait(timeout=20) == 128 + signal.SIGPIPE
    assert b"Traceback" not in process.stderr.read()
    process.stderr.close()
