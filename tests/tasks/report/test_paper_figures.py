"""The paper's figures: a few read off the print, and every row against the average printed beside it."""

from statistics import mean

import pytest

from tasks.report.paper_figures import AVERAGE, paper_figures

PRINTED = [
    ("t5-base", "few-shot", "supmer", "sst-2", 87.3, 0.5),
    ("t5-base", "few-shot", "ft", "subj", 80.0, 1.4),
    ("t5-base", "few-shot", "pt", "average", 62.0, 4.0),
    ("t5-base", "few-shot", "ppt", "cb", 60.7, 7.7),
    ("t5-base", "few-shot", "without-curriculum", "qnli", 62.6, 1.4),
    ("t5-base", "few-shot", "only-ss", "average", 67.4, None),
    ("t5-base", "few-shot", "supmer-mixed", "trec", 83.4, None),
    ("t5-base", "few-shot", "supmer-labeled", "average", 70.0, None),
    ("t5-base", "domains", "supmer", "restaurants", 90.4, 0.4),
    ("t5-base", "domains", "metapt", "average", 86.9, 0.7),
    ("t5-base", "domains", "without-mgr", "kitchen", 89.2, 0.8),
    ("t5-base", "domains", "supmer-mixed", "electronics", 92.7, None),
    ("flan-t5-xl", "few-shot", "zero-shot", "wic", 50.5, None),
    ("flan-t5-xl", "few-shot", "few-shot", "mrpc", 79.9, None),
    ("flan-t5-xl", "few-shot", "supmer", "qqp", 85.1, 0.4),
    ("flan-t5-xl", "domains", "p-tuning-v2", "dvds", 86.8, 1.8),
    ("flan-t5-xl", "domains", "metapt", "airlines", 87.1, 0.6),
]


@pytest.mark.parametrize(("backbone", "experiment", "method", "dataset", "figure", "deviation"), PRINTED)
def test_a_figure_is_the_one_in_print(backbone, experiment, method, dataset, figure, deviation):
    found = paper_figures(backbone, experiment)[method, dataset]
    assert (found.mean, found.deviation) == (figure, deviation)


@pytest.mark.parametrize("backbone", ["t5-base", "flan-t5-xl"])
@pytest.mark.parametrize(("experiment", "columns"), [("few-shot", 12), ("domains", 6)])
def test_every_row_has_the_average_that_is_printed_beside_it(backbone, experiment, columns):
    figures = paper_figures(backbone, experiment)
    methods = {method for method, _ in figures}
    assert {"prefix-tuning", "p-tuning-v2", "ft", "pt", "ppt", "unified-ppt", "metapt", "supmer"} <= methods
    for method in methods:
        row = [figure for (name, column), figure in figures.items() if name == method and column != AVERAGE]
        assert len(row) == columns or (experiment == "domains" and len(row) == 5)
        printed = figures[method, AVERAGE]
        assert mean(figure.mean for figure in row) == pytest.approx(printed.mean, abs=0.0501)
        if printed.deviation is not None:
            assert mean(figure.deviation for figure in row) == pytest.approx(printed.deviation, abs=0.0501)


def test_what_the_paper_leaves_empty_has_no_figure():
    assert ("metapt", "restaurants") not in paper_figures("t5-base", "domains")
    assert ("only-sp", "sst-2") not in paper_figures("flan-t5-xl", "few-shot")
