"""The section that compares this run with the one before it: scores and parameters that differ."""

from typing import Any

from tasks.methods import in_order, label
from tasks.report.data import ReportData
from tasks.report.page.colours import style_of
from tasks.report.page.parts import HASH, NONE, Cell, Column, Note, Origin, Part, Section, Table, words

_SHOWN = 0.05  # points: less is not seen in a printed figure


def previous_section(data: ReportData) -> list[Section]:
    """Return the section; none if this is the first report of the workspace."""
    previous = data.previous
    if previous is None:
        return []
    commit = f", git commit {previous.git_commit.rstrip('+')[:HASH]}" if previous.git_commit else ""
    made = f"The report before this one was made at {previous.time[:19].replace('T', ' ')} UTC{commit}."
    lead = f"{made} `supmer compare` shows the differences of any two runs."
    parts: list[Part] = []
    if previous.metrics is None:
        parts.append(Note("Its scores are no longer in DVC's cache: `supmer gc` removed them."))
    else:
        table = _figures(previous.metrics, data.metrics)
        parts.append(table or Note("All its scores are the same."))
    parts.append(_parameters(data) or Note("No parameter has changed since."))
    return [Section("previous", "Since the previous run", lead, tuple(parts))]


def _figures(before: dict[str, Any], now: dict[str, Any]) -> Table | None:
    """Return the table of the means that differ, and of those that only one of the two runs has."""
    rows, same = [], 0
    for experiment in sorted(
        {*before, *now}, key=lambda name: (name not in now, list(now).index(name) if name in now else 0)
    ):
        old, new = before.get(experiment, {}), now.get(experiment, {})
        for dataset in dict.fromkeys([*new, *old]):
            then, here = old.get(dataset, {}), new.get(dataset, {})
            for method in in_order({*then, *here}):
                line = _line(experiment, dataset, method, _mean(then, method), _mean(here, method))
                same += line is None
                rows += [line] if line else []
    if not rows:
        return None
    columns = (
        Column("experiment"), Column("tested on"), Column("method"), Column("before, %", numeric=True),
        Column("now, %", numeric=True), Column("change, points", numeric=True),
    )  # fmt: skip
    note = (f"{same:,} further scores are the same.",) if same else ()
    caption = "Accuracies that differ from those of the previous run."
    return Table("previous-figures", caption, columns, tuple(rows), Origin(command="supmer runs"), notes=note)


def _mean(figures: dict[str, Any], method: str) -> float | None:
    mean = figures.get(method, {}).get("mean")
    return float(mean) if mean is not None else None


def _line(
    experiment: str, dataset: str, method: str, then: float | None, here: float | None
) -> tuple[Cell, ...] | None:
    if then is not None and here is not None and abs(here - then) < _SHOWN:
        return None
    change = None if then is None or here is None else here - then
    return (
        words(experiment),
        words(dataset),
        words(label(method).title, style=style_of(method)),
        Cell(NONE) if then is None else Cell(f"{then:.1f}", then),
        Cell(NONE) if here is None else Cell(f"{here:.1f}", here),
        Cell(NONE) if change is None else Cell(f"{change:+.1f}".replace("-", "−"), change),
    )


def _parameters(data: ReportData) -> Table | None:
    changes = data.previous.changes if data.previous else ()
    if not changes:
        return None
    rows = tuple(
        (words(stage), words(key, code=True), words(then, code=True), words(now, code=True))
        for stage, key, then, now in changes
    )
    columns = (Column("stage"), Column("parameter"), Column("before"), Column("now"))
    caption = "Parameters that have changed since the previous run."
    return Table("previous-parameters", caption, columns, rows, Origin(command="supmer runs"))
