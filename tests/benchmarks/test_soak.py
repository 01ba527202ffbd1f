"""The soak itself: the same seed makes the same cases, the judge tells good ends from bad ones, the page shows it."""

import random
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(autouse=True)
def importable(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))


def test_the_same_seed_and_number_make_the_same_damage():
    from soak.mutations import damaged_bytes, replaced_value

    content, tree = b"seed: 1\nacquire: {corpus: {a: 'path:x'}}\n" * 9, {"a": [1, {"b": 2}], "c": "d"}
    for number in range(200):
        first, second = (damaged_bytes(content, random.Random(f"1/{number}")) for _ in range(2))
        assert first == second
        assert repr(replaced_value(tree, random.Random(number))) == repr(replaced_value(tree, random.Random(number)))
    assert tree == {"a": [1, {"b": 2}], "c": "d"}


@pytest.mark.parametrize(
    ("verb", "code", "said", "wrong"),
    [
        ("predict", 0, "", []),
        ("predict", 2, "supmer: a.csv: row 3: no text\n", []),
        ("verify", 1, "1 file is damaged\n", []),
        ("predict", 1, "", ["tracebacks"]),
        ("predict", 2, "", ["tracebacks"]),
        ("verify", 1, "Traceback (most recent call last):\n", ["tracebacks"]),
        ("predict", -11, "", ["tracebacks"]),
        ("predict", None, "", ["hangs"]),
    ],
)
def test_an_end_is_judged_by_exit_code_and_words(verb, code, said, wrong):
    from soak.fuzz import judged
    from soak.inputs import Case

    assert [kind for kind, _ in judged(Case((verb,)), code, said)] == wrong


def test_the_page_shows_what_went_wrong_and_where_it_was_killed(monkeypatch):
    import results_page

    wrong = {"lost": 0, "redone": 1, "tracebacks": 0, "hangs": 0, "left running": 0}
    groups = {"main process | embed": 2, "worker | embed": 1, "worker | tune": 4}
    row = {"part": "kills", "number": 7, "groups": groups, "wrong": wrong, "minutes": [1.0], "problems": []}
    about = {"machine": {"processor": "x", "usable_cores": 1, "cores": 2}, "load": [1, 2], "date": "2026-01-01"}
    record = about | {"commit": "c", "command": "python benchmarks/bench_soak.py", "rows": [row]}
    monkeypatch.setattr(results_page, "read", lambda _name: [record])
    shown = results_page.soak()
    assert "| kills | 7 | 0 | 1 | 0 | 0 | 0 |" in shown
    assert "| killed in | main process | worker |" in shown
    assert "| tune | 0 | 4 |" in shown
