"""The result tables in the paper's form: mean with deviation, best in bold, average, and the paper's score beside."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import sqrt
from statistics import mean
from typing import Any

from storage.counts import counted
from storage.queries.report_queries import COSTS, RESULTS, Row
from tasks.methods import in_order, label
from tasks.params.learning_schema import ReportParams, TuneParams
from tasks.report.page.colours import style_of
from tasks.report.page.parts import NONE, Cell, Column, Origin, Table
from tasks.report.paper_figures import AVERAGE, Figures, PaperFigure, paper_figures

FEW_SHOT, DOMAINS = "few-shot", "domains"
PAPER_NAMES = {"t5-base": "T5-base", "flan-t5-xl": "Flan-T5-XL"}
_AS = "as in the paper"
_DIGITS = 4  # digits of a figure in metrics.json


@dataclass(frozen=True)
class Score:
    """The score of a method on a dataset, in percent; with one seed there is no deviation."""

    mean: float
    deviation: float | None
    seeds: int
    runs: int
    examples: int | None
    troubled: int


Scores = dict[tuple[str, str], Score]
"""By method and dataset."""


def few_shot_scores(rows: Sequence[Row], tune: TuneParams) -> Scores:
    """Return the scores of methods on the dataset that they were tuned on, for the datasets of `tune.datasets`."""
    chosen = [row for row in rows if row["dataset"] == row["tested_on"] and row["dataset"] in tune.datasets]
    return _scores(chosen, tune.shots)


def domain_scores(rows: Sequence[Row], tune: TuneParams) -> Scores:
    """Return the scores of prompts that were tuned on the source domain, on every domain."""
    domains = {tune.domains.source, *tune.domains.targets}
    chosen = [row for row in rows if row["dataset"] == tune.domains.source and row["tested_on"] in domains]
    return _scores(chosen, tune.shots)


def _scores(rows: Sequence[Row], shots: int) -> Scores:
    """Return the scores with `shots` examples, and those of methods that use none, whose number may be 0."""
    scores: Scores = {}
    for row in rows:
        if row["mean"] is not None and row["shots"] in {shots, 0, None}:
            names = ("mean", "deviation", "seeds", "runs", "examples", "troubled")
            scores[row["method"], row["tested_on"]] = Score(*(row[name] for name in names))
    return scores


def result_tables(rows: Sequence[Row], tune: TuneParams, report: ReportParams) -> list[Table]:
    """Return the few-shot table and the domain table, each only if it has something to show."""
    tables = []
    few_shot, domains = few_shot_scores(rows, tune), domain_scores(rows, tune)
    if few_shot:
        columns = _columns(few_shot, tune.datasets, report)
        caption = (
            f"Few-shot learning: accuracy in percent, tuned on {_shots(tune)} per label and tested on its test set."
        )
        tables.append(_table("few-shot", caption, few_shot, [Column(name, numeric=True) for name in columns], report))
    if len({dataset for _, dataset in domains}) > 1:
        source, targets = tune.domains.source, tune.domains.targets
        columns = _columns(domains, [str(source), *targets], report)
        caption = f"Domain generalization: tuned on {source} alone ({_shots(tune)} per label), tested on every domain."
        titled = [Column(name, numeric=True, group="source" if name == source else "target") for name in columns]
        tables.append(_table("domains", caption, domains, titled, report))
    return tables


def _shots(tune: TuneParams) -> str:
    return counted(tune.shots, "example")


def _columns(scores: Scores, every: Sequence[str], report: ReportParams) -> list[str]:
    measured = {dataset for _, dataset in scores}
    wanted = [name for name in report.datasets if name in every] or list(every)
    return [name for name in wanted if name in measured]


def _table(key: str, caption: str, scores: Scores, columns: Sequence[Column], report: ReportParams) -> Table:
    names = [column.title for column in columns]
    methods = in_order({method for method, dataset in scores if dataset in names})
    paper = paper_figures(report.paper_figures, key) if report.paper_figures else {}
    rows = [_row(method, names, scores, paper) for method in methods]
    groups = [label(method).group for method in methods]
    breaks = frozenset(place for place in range(1, len(groups)) if groups[place] != groups[place - 1])
    averaged = (Column("average", numeric=True),) if len(names) > 1 else ()
    return Table(
        key,
        caption,
        (Column("method"), *columns, *averaged),
        tuple(tuple(row) for row in _with_best(rows)),
        Origin((RESULTS,)),
        breaks,
        tuple(_notes(key, scores, names, methods, paper, report)),
    )


def with_costs(table: Table, costs: Sequence[Row]) -> Table:
    """Return a result table with three more columns: parameters, time and memory of each method, if any was tuned."""
    if not costs:
        return table
    by_title = {label(row["method"]).title: row for row in costs}
    titles = ("tuned parameters", "time per seed", "peak memory")
    added = tuple(Column(title, numeric=True, group="cost") for title in titles)
    note = (
        "Time: one seed with all its learning rates, tuned together with the other seeds. Peak memory: of everything "
        "that is tuned together, with the backbone."
    )
    return replace(
        table,
        columns=(*table.columns, *added),
        rows=tuple((*row, *_cost_cells(by_title.get(row[0].text))) for row in table.rows),
        origin=Origin((RESULTS, COSTS)),
        notes=(*table.notes, note),
    )


def _cost_cells(cost: Row | None) -> tuple[Cell, ...]:
    if cost is None:
        return (Cell("0", 0.0), Cell(NONE), Cell(NONE))
    seconds, memory = cost["seconds"], cost["memory_bytes"]
    shown = f"{seconds:.1f} s" if seconds < 120 else f"{seconds / 60:.1f} min"
    return (
        Cell(f"{cost['parameters']:,}", float(cost["parameters"])),
        Cell(shown, float(seconds)),
        Cell(NONE) if memory is None else Cell(f"{memory / 1e9:.2f} GB", float(memory)),
    )


def _row(method: str, names: Sequence[str], scores: Scores, paper: Figures) -> list[Cell]:
    title = label(method).title
    ours = [scores.get((method, name)) for name in names]
    printed = label(method).paper_name
    beside = [paper.get((printed, name)) for name in names]
    cells = [_cell(score, figure) for score, figure in zip(ours, beside, strict=True)]
    if len(names) > 1:
        cells.append(_average(ours, _paper_average(paper, printed, names)))
    return [Cell(title, title, style=style_of(method)), *cells]


def _cell(score: Score | None, figure: PaperFigure | None) -> Cell:
    if score is None:
        return Cell(NONE, None, beside=_printed(figure))
    deviation = "" if score.deviation is None else f"{score.deviation:.1f}"
    return Cell(f"{score.mean:.1f}", score.mean, deviation, beside=_printed(figure))


def _average(scores: Sequence[Score | None], figure: PaperFigure | None) -> Cell:
    """Return the means of means and of deviations, as in the paper; in brackets if a dataset is missing."""
    there = [score for score in scores if score is not None]
    if not there:
        return Cell(NONE, None, beside=_printed(figure))
    average = mean(score.mean for score in there)
    known = [score.deviation for score in there if score.deviation is not None]
    deviation = f"{mean(known):.1f}" if len(known) == len(there) else ""
    if len(there) < len(scores):  # not ranked among averages over all datasets
        return Cell(f"({average:.1f})", None, deviation, beside=_printed(figure))
    return Cell(f"{average:.1f}", average, deviation, beside=_printed(figure))


def _paper_average(paper: Figures, method: str, names: Sequence[str]) -> PaperFigure | None:
    """Return the printed average if the columns are the paper's, else the average over the columns there are."""
    every = {dataset for _, dataset in paper} - {AVERAGE}
    if set(names) == every:
        return paper.get((method, AVERAGE))
    figures = [paper[method, name] for name in names if (method, name) in paper]
    if not figures or len(figures) < len(names):
        return None
    deviations = [figure.deviation for figure in figures if figure.deviation is not None]
    return PaperFigure(
        mean(figure.mean for figure in figures), mean(deviations) if len(deviations) == len(figures) else None
    )


def _printed(figure: PaperFigure | None) -> str:
    if figure is None:
        return ""
    return f"{figure.mean:.1f}" + (f" ± {figure.deviation:.1f}" if figure.deviation is not None else "")


def _with_best(rows: Sequence[list[Cell]]) -> list[list[Cell]]:
    """Mark the highest figures of each column, as printed; mark none if all are equal."""
    marked = [list(row) for row in rows]
    for place in range(1, len(rows[0]) if rows else 0):
        values = [row[place].value for row in rows]
        numbers = [value for value in values if isinstance(value, float)]
        if len({f"{value:.1f}" for value in numbers}) < 2:
            continue  # no method is better than the others
        for row in marked:
            cell = row[place]
            if isinstance(cell.value, float) and f"{cell.value:.1f}" == f"{max(numbers):.1f}":
                row[place] = replace(cell, best=True)
    return marked


def _notes(
    key: str, scores: Scores, names: Sequence[str], methods: Sequence[str], paper: Figures, report: ReportParams
) -> list[str]:
    shown = [score for (_, dataset), score in scores.items() if dataset in names]
    seeds = max(score.seeds for score in shown)
    over = counted(seeds, "seed")
    notes = [
        f"Mean over {over}, with the sample standard deviation as subscript (in the average column its mean, {_AS})."
    ]
    notes.append("Bold: the best mean of a column.")
    groups = list(dict.fromkeys(str(label(method).group) for method in methods))
    if len(groups) > 1:
        notes.append(f"The lines divide the rows into the paper's groups: {', '.join(groups)}.")
    notes.extend(_tested_on(names, scores))
    if report.paper_figures:
        notes.append(
            f"Small: the paper's scores, for {PAPER_NAMES[report.paper_figures]}, where it has the dataset and method."
            if any((label(method).paper_name, name) in paper for method in methods for name in names)
            else f"The paper has none of these datasets for {PAPER_NAMES[report.paper_figures]}."
        )
    fewer = [
        f"{label(method).title} on {dataset} ({score.seeds} of {score.runs} runs)"
        for (method, dataset), score in scores.items()
        if dataset in names and score.seeds < score.runs
    ]
    if fewer:
        notes.append(f"Without a score for every seed: {', '.join(fewer)}.")
    tuned_once = key == DOMAINS  # every column has the same runs
    troubled = {
        f"{label(method).title}{'' if tuned_once else f' on {dataset}'} ({score.troubled} of {score.runs})"
        for (method, dataset), score in scores.items()
        if dataset in names and score.troubled
    }
    if troubled:
        notes.append(f"Runs that collapsed or met a number that is not finite: {', '.join(sorted(troubled))}.")
    return notes


def _tested_on(names: Sequence[str], scores: Scores) -> list[str]:
    """Return a note on the number of test examples, and on the standard error that follows from their choice alone."""
    tests = [
        (name, score.mean, score.examples)
        for name in names
        for (_, dataset), score in scores.items()
        if dataset == name and score.examples
    ]
    counts = {name: examples for name, _, examples in tests}
    if not counts:
        return []
    if len(set(counts.values())) == 1:
        tested = f"{next(iter(counts.values())):,} test examples" + (" of each" if len(counts) > 1 else "")
    else:
        tested = ", ".join(f"{count:,} examples of {name}" for name, count in counts.items())
    error = max(sqrt(score * (100 - score) / examples) for _, score, examples in tests)
    return [f"Tested on {tested}, whose choice alone gives a score a standard error of up to {error:.1f} points."]


def result_metrics(rows: Sequence[Row], tune: TuneParams) -> dict[str, Any]:
    """Return the figures of both tables for `dvc metrics`, by experiment, dataset and method.

    A figure has a mean, a deviation and the number of seeds.
    """
    metrics: dict[str, Any] = {}
    for key, scores in ((FEW_SHOT, few_shot_scores(rows, tune)), (DOMAINS, domain_scores(rows, tune))):
        experiment: dict[str, Any] = {}
        for (method, dataset), score in sorted(scores.items()):
            deviation = None if score.deviation is None else round(score.deviation, _DIGITS)
            figures = {"mean": round(score.mean, _DIGITS), "deviation": deviation, "seeds": score.seeds}
            experiment.setdefault(dataset, {})[method] = figures
        for method in sorted({method for method, _ in scores}):
            row = [scores.get((method, dataset)) for dataset in experiment]
            if len(experiment) > 1 and None not in row:
                average = mean(score.mean for score in row if score)
                metrics.setdefault(key, {}).setdefault(AVERAGE, {})[method] = {"mean": round(average, _DIGITS)}
        if experiment:
            metrics[key] = experiment | metrics.get(key, {})
    return metrics
