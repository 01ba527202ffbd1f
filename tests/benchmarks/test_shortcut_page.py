"""The README's table beside its first example is made from the scores of a workspace, not by hand."""

import sys
from pathlib import Path

import duckdb
import pytest

from storage import paths

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture
def shortcut_page(monkeypatch):
    monkeypatch.setattr(sys, "path", [str(REPOSITORY / "benchmarks"), *sys.path])
    import shortcut_page

    return shortcut_page


def test_the_table_is_what_the_kept_scores_give(shortcut_page):
    page = (REPOSITORY / "README.md").read_text("utf-8")
    assert shortcut_page.filled(page) == page, "run: python benchmarks/shortcut_page.py"


def test_scores_and_times_of_a_workspace_become_rows(shortcut_page, monkeypatch, tmp_path):
    for table, rows in {
        paths.SCORES: "(VALUES ('pt', 'movies', 'movies', 0.8, 300, true), ('pt', 'movies', 'movies', 0.9, 300, true), "
        "('pt', 'movies', 'tweets', 0.7, 300, true), ('tfidf', 'movies', 'movies', 0.6, 300, true), "
        "('pt', 'movies', 'movies', 0.1, NULL, false)) t(method, dataset, tested_on, score, examples, chosen)",
        paths.COSTS: "(VALUES ('pt', 'movies', 4.0), ('pt', 'movies', 6.0)) t(method, dataset, seconds)",
    }.items():
        (tmp_path / table).mkdir(parents=True)
        duckdb.sql(f"COPY (FROM {rows}) TO '{tmp_path / table}/0.parquet'")
    monkeypatch.setattr(shortcut_page, "KEPT", tmp_path / "kept.csv")
    shortcut_page.keep(tmp_path)
    assert shortcut_page.content().splitlines() == [
        "| accuracy in percent | movie reviews | kinds of questions | movies → tweets | time of a tuning |",
        "|---|---|---|---|---|",
        "| TF–IDF + logistic regression | 60.0 | – | – | – |",
        "| PT (normal start) | 85.0 ± 7.1 | – | 70.0 | 5.0 s |",
    ]
