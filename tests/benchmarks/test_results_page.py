"""docs/results.md shows what the records give, and nothing that was typed by hand."""

import ast
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import orjson
import pytest

REPOSITORY = Path(__file__).parents[2]
FOLDER = REPOSITORY / "benchmarks"
PAGE = REPOSITORY / "docs" / "results.md"
BENCHMARKS = sorted(FOLDER.glob("bench_*.py"))
RECORDS = sorted((FOLDER / "records").glob("*.json"))
KEYS = {"benchmark", "command", "arguments", "date", "commit", "machine", "load", "versions", "rows"}
MACHINE = {"processor", "cores", "usable_cores", "memory_gb", "instruction_sets"}


@pytest.fixture
def results_page(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    import results_page

    return results_page


def test_the_tables_are_what_the_records_give(results_page):
    page = PAGE.read_text("utf-8")
    assert results_page.filled(page) == page, "run: python benchmarks/results_page.py"


def test_no_figure_is_typed_by_hand(results_page):
    assert results_page.typed_figures(PAGE.read_text("utf-8")) == []


@pytest.mark.parametrize(
    "typed",
    [
        "Sampling takes 4.1 s on two cores.",
        "It is 1.3 × as fast.",
        "| sample | 4.1 |",
        "The peak is 415 MB.",
        "at 12 GFLOP/s",
        "It took 7 seconds.",
        "The lowest cosine is 0.9998.",
        "SUPMER is 3 points better.",
    ],
)
def test_a_figure_typed_by_hand_is_found(results_page, typed):
    page = PAGE.read_text("utf-8")
    beside = page.replace("## Sampling\n", f"## Sampling\n\n{typed}\n", 1)
    assert len(results_page.typed_figures(beside)) == 1


def test_a_figure_changed_within_a_table_is_found(results_page):
    page = PAGE.read_text("utf-8")
    head, mark, tail = page.partition("<!-- end of scale -->")
    number = re.findall(r"\d+", head)[-1]
    changed = (
        number.join([*head.rsplit(number, 1)][:1]) + str(int(number) + 1) + head.rsplit(number, 1)[1] + mark + tail
    )
    assert changed != page
    assert results_page.filled(changed) == page


def test_older_figures_name_their_commands():
    older = PAGE.read_text("utf-8").partition("## Older figures")[2]
    for section in re.split(r"(?m)^### ", older)[1:]:
        assert re.search(r"`(python |make |supmer |bench_)|^    supmer ", section, re.MULTILINE), section[:60]


@pytest.mark.parametrize("script", BENCHMARKS, ids=lambda path: path.stem)
def test_every_benchmark_leaves_a_record(script):
    calls = [node.func for node in ast.walk(ast.parse(script.read_text("utf-8"))) if isinstance(node, ast.Call)]
    names = {call.id for call in calls if isinstance(call, ast.Name)}
    methods = {call.attr for call in calls if isinstance(call, ast.Attribute)}
    assert "Record" in names
    assert "write" in methods


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.stem)
def test_a_record_is_complete_and_names_no_machine(path):
    text = path.read_text("utf-8")
    record = orjson.loads(text)
    assert record.keys() == KEYS
    assert record["machine"].keys() == MACHINE
    assert (FOLDER / f"bench_{record['benchmark']}.py").is_file()
    assert record["rows"]
    assert any(isinstance(value, list) for row in record["rows"] for value in row.values()), "no samples"
    assert not re.search(r'"/|/(home|root|tmp|work|Users)/|https?://', text)
    assert len(name := socket.gethostname()) < 4 or name not in text
    assert len(text) < 50_000


def test_a_benchmark_writes_a_record_that_the_page_can_show(tmp_path):
    for name in ("records.py", "bench_minhash.py", "pages.py", "results_page.py", "tables.py", "precision_tables.py"):
        (tmp_path / "benchmarks").mkdir(exist_ok=True)
        shutil.copy(FOLDER / name, tmp_path / "benchmarks" / name)
    for name in ("tasks", "storage", "model"):
        (tmp_path / name).symlink_to(REPOSITORY / name)
    command = [sys.executable, "benchmarks/bench_minhash.py", "--documents", "40", "--runs", "2"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    (path,) = (tmp_path / "benchmarks" / "records").glob("*.json")
    record = orjson.loads(path.read_bytes())
    assert path.name == "minhash--documents-40--runs-2.json"
    assert record["command"] == "python benchmarks/bench_minhash.py --documents 40 --runs 2"
    assert len(record["rows"][0]["cpu_seconds"]) == 2
    show = [sys.executable, "-c", "import results_page; print(results_page.minhash())"]
    shown = subprocess.run(show, cwd=tmp_path / "benchmarks", check=True, capture_output=True, text=True).stdout
    assert "| ours |" in shown


MADE = {
    "step_precision": [
        {"step": f"{order} order", "precision": precision, "seconds": [spent], "cpu_seconds": [spent], "cosine": 0.999}
        for order in ("first", "second")
        for precision, spent in (("float32", 2.0), ("bfloat16", 1.0))
    ],
    "embed": [
        {"way": way, "sentences": 64, "precision": way.split()[-1], "seconds": [1.0], "cpu_seconds": [1.0]}
        for way in ("backbone, transformers", "backbone, float32", "embedder, float32", "embedder, bfloat16")
    ],
    "precision": [
        *(
            {"what": "gradients", "form": "sentinel", "kind": "ss", "order": order, "theta": [0.99991], "phi": [0.9995]}
            for order in (1, 2)
        ),
        {"what": "predictions", "set": "subj", "prompt": "a", "rows": 200, "margins": [0.01], "median_margin": 1.5},
    ],
    "prefixes": [{"way": "PEFT", "runs": 15, "tokens": 20, "cpu_seconds": [3.0]}],
    "fine_tuning": [
        {"way": "plain loop", "shape": "d256", "batch": 4, "threads": 1, "precision": "float32", "seconds": [1.0],
         "cpu_seconds": [1.0], "largest_difference": 0.0}
    ],
    "profile": [{"profile": "quickstart", "stage": "embed", "cpu_seconds": [9.0], "parts": [["model/x:f", 0.5]]}],
}  # fmt: skip
SHOWN = {
    "bfloat16": "| meta step of the quickstart's shape, second order | 2.00 × | 2.00 × | 1.7 | 0.99900 |",
    "embed": "No record yet.",
    "agreement": "| all |  | 200 | 1 | 0.50 % | 0.010 |  |",
    "headline": "shape, first order, against float32 | 2.00 × by processor time |",
    "prefixes": "| PEFT | 15 | 20 | 3.00 s | 1.00 × |  |",
    "fine_tuning": "| d256 | 4 | 1 | float32 | plain loop | 1.00 s | 1.00 × | 1.00 × | 0e+00 |",
    "profile": "| quickstart | embed | 9.0 s | 50 % `model/x:f` |",
}


@pytest.mark.parametrize("name", SHOWN)
def test_records_of_precision_methods_and_profiles_become_tables(results_page, tmp_path, monkeypatch, name):
    import records

    monkeypatch.setattr(records, "FOLDER", tmp_path)
    about = orjson.loads(RECORDS[0].read_bytes()) | {"arguments": {"quick": True}}
    for benchmark, rows in MADE.items():
        (tmp_path / f"{benchmark}.json").write_bytes(orjson.dumps(about | {"benchmark": benchmark, "rows": rows}))
    assert SHOWN[name] in results_page.TABLES[name]()
