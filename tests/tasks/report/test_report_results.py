"""The tables of results and their metrics: means over seeds, the best of a column, the paper's figures beside."""

import json
import re

import pytest

from storage import paths
from support import report_room
from support.report_page import Page, html, markdown, markdown_table
from support.report_room import run, score_rows, write_tuning


def test_results_are_means_with_deviation_over_the_chosen_runs_and_the_best_is_bold(made):
    root, _ = made
    rows = score_rows()
    table = markdown_table(markdown(root), "Domain generalization")
    assert table[0] == [
        "method",
        "movies (source)",
        "products (target)",
        "editorials (target)",
        "tweets (target)",
        "average",
    ]
    supmer = next(row for row in table if row[0] == "SUPMER")
    scores = [
        100 * row["score"]
        for row in rows
        if row["method"] == "supmer" and row["tested_on"] == "movies" and row["chosen"]
    ]
    mean = sum(scores) / 3
    deviation = (sum((score - mean) ** 2 for score in scores) / 2) ** 0.5
    assert supmer[1] == f"**{mean:.1f} ± {deviation:.1f}**"
    assert [cell.startswith("**") for cell in supmer[1:]] == [True] * 5
    zero = next(row for row in table if row[0] == "Zero-shot inference")
    assert all(re.fullmatch(r"\d+\.\d", cell) for cell in zero[1:])


def test_metrics_hold_the_same_figures(made):
    root, _ = made
    metrics = json.loads((root / paths.REPORT_METRICS).read_text())
    table = markdown_table(markdown(root), "Few-shot learning")
    assert set(metrics) == {"few-shot", "domains"}
    figure = metrics["few-shot"]["movies"]["supmer"]
    assert figure["seeds"] == 3
    assert (
        next(row for row in table if row[0] == "SUPMER")[1] == f"**{figure['mean']:.1f} ± {figure['deviation']:.1f}**"
    )
    average = metrics["domains"]["average"]["supmer"]["mean"]
    means = [metrics["domains"][name]["supmer"]["mean"] for name in report_room.DOMAINS]
    assert average == pytest.approx(sum(means) / 4, abs=1e-3)


def test_methods_that_print_alike_share_the_best_and_an_incomplete_average_is_in_brackets(root):
    rows = score_rows({"supmer": 0.8, "pt": 0.8, "metapt": 0.7}, seeds=(10,))
    for row in rows:
        row["score"] = {"pt": 0.8001, "supmer": 0.8, "metapt": 0.8 if row["tested_on"] == "products" else 0.7}[
            row["method"]
        ]
    kept = [row for row in rows if not (row["method"] == "pt" and row["tested_on"] == "tweets")]
    write_tuning(root, kept)
    run(root)
    table = markdown_table(markdown(root), "Domain generalization")
    pt, metapt, supmer = table[2:]
    assert (pt[1], metapt[1], supmer[1]) == ("**80.0**", "70.0", "**80.0**")
    assert (pt[2], metapt[2], supmer[2]) == ("80.0", "80.0", "80.0")  # nobody is better than the others
    assert (pt[4], pt[5]) == ("–", "(80.0)")
    assert supmer[5] == "**80.0**"


def test_runs_that_broke_are_told_and_do_not_break_the_report(root):
    rows = score_rows()
    for row in rows:
        if row["method"] == "pt-vocabulary" and row["seed"] == 10:
            row |= {"status": "nan", "score": None, "validation_score": float("nan")}
    write_tuning(root, rows)
    run(root)
    text = markdown(root)
    assert "PT (vocabulary start) on movies (2 of 3 runs)" in text
    assert "not finite: PT (vocabulary start) on movies (1 of 3)." in text
    assert "not finite: PT (vocabulary start) (1 of 3)." in text  # one prompt, tested everywhere
    plots = " ".join(one["attrs"]["data-plot"] for one in Page(html(root)).of("svg") if "data-plot" in one["attrs"])
    assert "nan" not in plots.lower()
    assert "nan" not in " ".join(re.findall(r'points="([^"]*)"', html(root)))


def test_the_papers_figures_stand_beside_ours_where_dataset_and_method_match(root):
    rows = score_rows({"pt": 0.7, "supmer": 0.85, "ft": 0.8}, tuned=("sst-2",), tested=("sst-2",))
    rows += score_rows({"pt": 0.7, "supmer": 0.85, "ft": 0.8}, tuned=("cr",), tested=("cr",))
    rows += score_rows({"supmer": 0.85}, tuned=("airlines",), tested=("airlines", "books"))
    write_tuning(root, rows)
    tune = {
        "datasets": ["sst-2", "cr"],
        "domains": {"source": "airlines", "targets": ["books"]},
        "methods": ["pt", "supmer"],
    }
    run(root, tune=tune, report={"datasets": [], "paper_figures": "t5-base"})
    table = markdown_table(markdown(root), "Few-shot learning")
    assert [row[0] for row in table[2:]] == ["Fine-tuning of all weights", "PT (normal start)", "SUPMER"]
    assert table[-1][1].endswith("(paper 87.3 ± 0.5)")
    assert table[-1][3].endswith("(paper 88.3 ± 0.4)")  # of these two datasets, not of the paper's twelve
    domains = markdown_table(markdown(root), "Domain generalization")
    assert domains[-1][2].endswith("(paper 85.3 ± 0.6)")
    assert "for T5-base" in markdown(root)


def test_without_a_matching_backbone_the_absence_of_the_papers_figures_is_said(made):
    root, _ = made
    assert "report.paper_figures" in markdown(root)
    assert "paper 8" not in markdown(root)


def test_a_run_without_tuning_says_so(root):
    write_tuning(root, [])
    run(root, tune={"datasets": [], "domains": {"source": None, "targets": []}}, report={"datasets": []})
    assert "there is no result table" in html(root)
    assert "No curve of tuning" in html(root)
    assert json.loads((root / paths.REPORT_METRICS).read_text()) == {}


def test_methods_of_all_groups_stand_in_the_papers_order_with_what_they_take(root):
    methods = ["zero-shot", "prefix-tuning", "p-tuning-v2", "pt", "unified-ppt", "metapt", "supmer", "only-sp"]
    write_tuning(root, score_rows(dict.fromkeys(methods, 0.7), tested=("movies",)))
    run(root, tune={"methods": [*reversed(methods[:4])], "domains": {}}, report={"datasets": ["movies"]})
    table = markdown_table(markdown(root), "Few-shot learning")
    assert table[0] == ["method", "movies", "tuned parameters (cost)", "time per seed (cost)", "peak memory (cost)"]
    assert [row[0].strip("*") for row in table[2:] if row[0]] == [
        "Zero-shot inference",
        "Prefix-Tuning",
        "P-Tuning v2",
        "PT (normal start)",
        "Unified-PPT",
        "MetaPT",
        "SUPMER",
        "SUPMER (only sp)",
    ]
    costs = {row[0].strip("*"): row[2:] for row in table[2:] if row[0]}
    assert costs["Zero-shot inference"] == ["0", "–", "–"]
    assert costs["P-Tuning v2"] == ["1,600", "90.0 s", "1.50 GB"]


def test_prompts_listed_are_those_that_were_tuned(made):
    table = markdown_table(markdown(made[0]), "Prompts: the start")
    assert {row[2] for row in table[2:]} == {"16"}
    assert {row[1] for row in table[2:]} == {"PT (vocabulary start)", "SUPMER", "SUPMER w/o gradient regularizer"}
