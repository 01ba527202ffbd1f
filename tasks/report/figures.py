"""The figures of the report, made from the rows of their queries: tuning, sensitivity, meta-training."""

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any

from storage.queries.report_queries import HELD_OUT, KINDS, SHOTS, STEPS, Query, Row
from tasks.methods import in_order, label, most_telling
from tasks.report.page.colours import OTHER, style_of
from tasks.report.page.parts import (
    Cell,
    Column,
    Dot,
    Figure,
    Lines,
    Origin,
    Point,
    Series,
    Strips,
    Table,
    number,
    words,
)

MOST_LINES = 7  # lines of a panel: more cannot be told apart
MOST_DOTS = 40  # points of a line, at most, if they are drawn as dots
MOST_TOLD = 24  # lines of a figure that its alternative text describes
MOST_ROWS = 300  # rows of the data table below a figure
AT_CHANCE = "ended at chance on every kind of held-out task"
Levels = dict[str, list[tuple[str, int, float]]]
"""Horizontal lines by dataset."""


def untuned_levels(rows: Sequence[Row], method: str) -> Levels:
    """Return the test accuracy of a method that is not tuned, by dataset, as lines for the figures over steps."""
    return {
        row["dataset"]: [(label(method).short, style_of(method), row["mean"])]
        for row in rows
        if row["method"] == method and row["tested_on"] == row["dataset"] and row["mean"] is not None
    }


def accuracy_over_steps(rows: Sequence[Row], query: Query, shots: int, levels: Levels) -> Figure | None:
    """Return the figure of the validation accuracy during tuning, with a panel for each dataset."""
    panels = _panels(rows, "validation accuracy, %", lambda row: _banded(row["step"], row), levels=levels)
    if not panels:
        return None
    return Figure(
        "accuracy-over-steps",
        f"Accuracy over training steps: {shots} examples per label, mean over seeds with one standard deviation.",
        _told(rows, "Validation accuracy by training step", "mean", "%"),
        panels,
        Origin((query,)),
        data_table("accuracy-over-steps", rows, ("dataset", "method", "step", "seeds", "mean", "deviation")),
        (
            "Measured on the validation set, at the learning rate that it chose for each seed.",
            *(("Zero-shot, dotted, is not tuned: the line is its accuracy on the test set.",) if levels else ()),
            *_left_out(rows),
        ),
    )


def tuning_losses(rows: Sequence[Row], query: Query) -> Figure | None:
    """Return the figure of the losses during tuning: on the few training examples (dotted), on validation (solid)."""
    panels = []
    for dataset, group in grouped(rows, "dataset"):
        series = []
        for method, curve in grouped(group, "method"):
            if method in _kept(rows):
                name, style = label(method).short, style_of(method)
                solid = _points(curve, "step", "validation_loss")
                dotted = _points(curve, "step", "train_loss")
                series.append(Series(name, style, solid))
                series.append(Series(f"{name}, training", style, dotted, dotted=True, labelled=False))
        drawn = tuple(line for line in series if line.points)
        if drawn:
            panels.append(Lines(dataset, "step", "loss: validation solid, training dotted", drawn))
    if not panels:
        return None
    return Figure(
        "tuning-losses",
        "Loss while tuning: dotted falling and solid rising means that the few examples are learned by heart.",
        _told(rows, "Validation loss by training step", "validation_loss", ""),
        tuple(panels),
        Origin((query,)),
        data_table("tuning-losses", rows, ("dataset", "method", "step", "train_loss", "validation_loss")),
    )


def accuracy_over_shots(rows: Sequence[Row], levels: Levels) -> Figure | None:
    """Return the figure of the test accuracy over the number of examples for each label, if a sweep was run."""
    panels = _panels(
        rows, "test accuracy, %", lambda row: _banded(row["shots"], row), "examples per label",
        levels=levels, dots=True,
    )  # fmt: skip
    if not panels:
        return None
    return Figure(
        "accuracy-over-shots",
        "Accuracy over the number of examples per label: mean over seeds with one standard deviation.",
        _told(rows, "Test accuracy by examples per label", "mean", "%", "shots"),
        panels,
        Origin((SHOTS,)),
        data_table("accuracy-over-shots", rows, ("dataset", "method", "shots", "seeds", "mean", "deviation")),
        (*(("Zero-shot, dotted, sees no labeled example.",) if levels else ()), *_left_out(rows)),
    )


def initialization_sensitivity(rows: Sequence[Row], query: Query) -> Figure | None:
    """Return the figure of the validation accuracy of every run, with a dot for each seed and learning rate."""
    panels = []
    for dataset, group in grouped(rows, "dataset"):
        strips = []
        order = in_order({row["method"] for row in group})
        for row in sorted(group, key=lambda row: order.index(row["method"])):
            name = label(row["method"])
            dots = tuple(
                Dot(
                    run["score"],
                    bool(run["chosen"]),
                    f"{run['score']:.1f} %, seed {run['seed']}, rate {run['learning_rate']:g}",
                )
                for run in row["each"]
            )
            strips.append((name.short, style_of(row["method"]), dots, row["middle"]))
        panels.append(Strips(dataset, "validation accuracy, %", tuple(strips)))
    if not panels:
        return None
    columns = ("dataset", "method", "seed", "learning_rate", "chosen", "score")
    runs = [{"dataset": row["dataset"], "method": row["method"], **run} for row in rows for run in row["each"]]
    spread = "; ".join(
        f"{label(row['method']).title} on {row['dataset']}: {row['lowest']:.1f} to {row['highest']:.1f} %"
        for row in rows[:MOST_TOLD]
    )
    return Figure(
        "sensitivity",
        "Sensitivity: every run of every seed and learning rate, by method.",
        f"Lowest and highest validation accuracy over all runs. {spread}.",
        tuple(panels),
        Origin((query,)),
        data_table("sensitivity", runs, columns),
        (
            "Filled: the learning rate that validation chose for the seed. The upright mark is the median.",
            "A seed draws the examples and their order; where the start is drawn, too, the start as well.",
        ),
    )


def gradient_alignment(rows: Sequence[Row]) -> tuple[Figure | None, list[str]]:
    """Return the figure of the normalized inner product of regulated support and query gradients.

    It also shows the values that follow the inner product. The second item is a list of notes, which name the variants
    that do not measure it.
    """
    # A gate is above 0: 0 stands for a variant without one.
    measured = [{**row, "gate": row["gate"] or None} for row in rows if row["similarity"] is not None]
    silent = in_order({row["variant"] for row in rows} - {row["variant"] for row in measured})
    titles = {
        "similarity": ("Normalized inner product", "cosine of support and query gradient"),
        "mixed_in": ("Mixing λ", "mean share of the other task"),
        "b": ("Curriculum b", "b of Beta(α, b·α)"),
        "gate": ("Gate z", "mean gate of the regularizer"),
    }
    panels = []
    for column, (title, axis) in titles.items():
        series = _variant_series(measured, column)
        if series:
            panels.append(Lines(title, "meta step", axis, series))
    notes = [f"Not measured by {', '.join(label(variant).title for variant in silent)}: trained without an inner step."]
    if not panels:
        return None, notes if silent else []
    ends = _ends(measured, "variant", "similarity")
    figure = Figure(
        "alignment",
        "Gradients over meta-training: their normalized inner product; mixing and curriculum, which follow it; gates.",
        f"Normalized inner product of support and query gradients, first and last point. {ends}.",
        tuple(panels),
        Origin((STEPS,)),
        data_table("alignment", measured, ("variant", "step", *titles)),
        _left_out(measured, "variant"),
    )
    return figure, notes if silent else []


def training_losses(rows: Sequence[Row], held_out: Sequence[Row]) -> Figure | None:
    """Return the figure of the support, query and held-out loss over meta-training."""
    panels = []
    for column, title, axis in (
        ("query_loss", "Training: query loss", "after the inner step, mixed"),
        ("support_loss", "Training: support loss", "before the inner step"),
    ):
        series = _variant_series(rows, column)
        if series:
            panels.append(Lines(title, "meta step", axis, series))
    checks = _variant_series(held_out, "held_out_loss", dots=True)
    if checks:
        panels.append(Lines("Held out", "meta step", "after one inner step, not mixed", checks))
    if not panels:
        return None
    best = "; ".join(
        f"{label(row['variant']).title}: {row['held_out_loss']:.4f} after step {row['step']:,}"
        for row in held_out
        if row["best"]
    )
    return Figure(
        "losses",
        "Loss over meta-training, on the tasks it learns from and on held-out tasks.",
        f"Lowest held-out loss. {best}." if best else "Loss by meta step.",
        tuple(panels),
        Origin((STEPS, HELD_OUT)),
        data_table(
            "losses", _joined(rows, held_out), ("variant", "step", "query_loss", "support_loss", "held_out_loss")
        ),
        (
            *((f"Lowest held-out loss: {best}. Step 0 is the initial prompt.",) if best else ()),
            *_left_out(rows, "variant"),
        ),
    )


def tasks_learned(rows: Sequence[Row]) -> Figure | None:
    """Return the figure of the held-out accuracy of each kind of task over meta-training.

    It shows the accuracy before and after the inner step, beside chance.
    """
    panels = []
    for kind, group in grouped(rows, "kind"):
        series = []
        for variant, curve in grouped(group, "variant"):
            if variant in _kept(rows, "variant"):
                name, style = label(variant).short, style_of(variant)
                before, after = _points(curve, "step", "right_before"), _points(curve, "step", "right_after")
                series.append(Series(name, style, after or before, dots=len(curve) <= MOST_DOTS))
                if after:
                    series.append(Series(f"{name}, before", style, before, dotted=True, labelled=False))
        steps, chance = [row["step"] for row in group], group[0]["chance"]
        ends = (Point(min(steps), chance), Point(max(steps), chance))
        panels.append(Lines(kind, "meta step", "right, %", (*series, Series("chance", OTHER, ends, dotted=True))))
    if not panels:
        return None
    best = [row for row in rows if row["best"]]
    results = "; ".join(f"{label(row['variant']).title} on {row['kind']}: {_right(row)}" for row in best[:MOST_TOLD])
    columns = ("variant", "kind", "step", "right_before", "right_after", "chance", "loss", "chance_loss", "mass")
    return Figure(
        "tasks-learned",
        "What is learned: held-out examples that are right, by kind of task, beside chance.",
        f"Right after meta-training. {results}.",
        tuple(panels),
        Origin((KINDS,)),
        data_table("tasks-learned", rows, columns),
        (
            "Solid: after the inner step on the task's own support set; dotted in the same colour: before it.",
            "Mass: probability of all label words together. At chance with a mass near 100 %, only they are learned.",
            *_left_out(rows, "variant"),
        ),
    )


def _right(row: Row) -> str:
    after = row["right_before"] if row["right_after"] is None else row["right_after"]
    return f"{after:.0f} % (chance {row['chance']:.0f} %)"


def learned_in_words(rows: Sequence[Row], variant: str) -> str:
    """Return one sentence on whether a variant's best prompt solves held-out tasks, or "" if nothing is known."""
    best = [row for row in rows if row["best"] and row["variant"] == variant]
    learned = [f"{row['kind']} {_right(row)}" for row in best if row["learned"]]
    if not best:
        return ""
    title = label(variant).title
    if not learned:
        every = ", ".join(f"{row['kind']} {_right(row)}" for row in best)
        return f"{title} {AT_CHANCE}, so its prompt has not learned the tasks: {every}."
    rest = [row["kind"] for row in best if not row["learned"]]
    at_chance = f"; at chance on {', '.join(rest)}" if rest else ""
    return f"{title} learned {len(learned)} of {len(best)} kinds of tasks: {', '.join(learned)} right{at_chance}."


def _joined(rows: Sequence[Row], held_out: Sequence[Row]) -> list[Row]:
    """Return the losses of training and on held-out tasks, joined by variant and step."""
    empty = {"query_loss": None, "support_loss": None, "held_out_loss": None}
    joined: dict[tuple[str, int], Row] = {}
    for row in (*rows, *held_out):
        place = row["variant"], row["step"]
        joined[place] = joined.get(place, empty) | row
    return [joined[place] for place in sorted(joined)]


def grouped(rows: Sequence[Row], column: str) -> list[tuple[str, list[Row]]]:
    """Return the runs of neighbouring rows with the same value of a column."""
    return [(str(key), list(group)) for key, group in groupby(rows, key=lambda row: row[column])]


def _kept(rows: Sequence[Row], column: str = "method") -> list[str]:
    """Return the methods or variants to draw as lines, as many as can be told apart, in the order of a table."""
    return in_order(set(most_telling({row[column] for row in rows})[:MOST_LINES]))


def _left_out(rows: Sequence[Row], column: str = "method") -> tuple[str, ...]:
    kept = _kept(rows, column)
    gone = [label(name).title for name in in_order({row[column] for row in rows}) if name not in kept]
    return (f"In the data below, but not drawn: {', '.join(gone)}.",) if gone else ()


def _panels(
    rows: Sequence[Row],
    axis: str,
    point: Callable[[Row], Point | None],
    x_title: str = "step",
    *,
    levels: Levels,
    dots: bool = False,
) -> tuple[Lines, ...]:
    """Return a panel for each dataset, with a line for each method."""
    panels, kept = [], _kept(rows)
    for dataset, group in grouped(rows, "dataset"):
        curves = {method: [dot for row in curve if (dot := point(row))] for method, curve in grouped(group, "method")}
        series = tuple(
            Series(label(method).short, style_of(method), tuple(curves[method]), dots=dots)
            for method in kept
            if curves.get(method)
        )
        if series:
            panels.append(Lines(dataset, x_title, axis, series, tuple(levels.get(dataset, ()))))
    return tuple(panels)


def _banded(x: float, row: Row) -> Point | None:
    if row["mean"] is None:
        return None
    deviation = row["deviation"]
    if deviation is None:
        return Point(x, row["mean"])
    return Point(x, row["mean"], row["mean"] - deviation, row["mean"] + deviation)


def _points(rows: Sequence[Row], x: str, y: str) -> tuple[Point, ...]:
    return tuple(Point(row[x], row[y]) for row in rows if row[y] is not None)


def _variant_series(rows: Sequence[Row], column: str, *, dots: bool = False) -> tuple[Series, ...]:
    curves = {variant: _points(group, "step", column) for variant, group in grouped(rows, "variant")}
    return tuple(
        Series(
            label(variant).short,
            style_of(variant),
            curves[variant],
            dots=dots and len(curves[variant]) <= MOST_DOTS,
        )
        for variant in _kept(rows, "variant")
        if curves[variant]
    )


def _told(rows: Sequence[Row], what: str, column: str, unit: str, x: str = "step") -> str:
    """Return a figure in words: the end of each of its lines."""
    ends = []
    for dataset, group in grouped(rows, "dataset"):
        for method, curve in grouped(group, "method"):
            last = curve[-1]
            if last[column] is not None:
                value = f"{last[column]:.1f} {unit}" if unit else f"{last[column]:.3f}"
                ends.append(f"{label(method).title} on {dataset} ends at {value} ({x} {last[x]:,})")
    more = f"; {len(ends) - MOST_TOLD} more in the data below" if len(ends) > MOST_TOLD else ""
    return f"{what}. {'; '.join(ends[:MOST_TOLD])}{more}."


def _ends(rows: Sequence[Row], by: str, column: str) -> str:
    return "; ".join(
        f"{label(name).title}: {group[0][column]:.3f} to {group[-1][column]:.3f}" for name, group in grouped(rows, by)
    )


_TITLES = {
    "mixed_in": "λ", "gate": "z", "mean": "mean, %", "lowest": "lowest, %", "middle": "median, %",
    "highest": "highest, %", "train_loss": "training loss", "validation_loss": "validation loss",
    "held_out_loss": "held-out loss", "similarity": "inner product", "place": "by size",
    "score": "validation accuracy, %", "right_before": "right before, %", "right_after": "right after, %",
    "chance": "chance, %", "mass": "mass, %", "label_name": "true label", "predicted_name": "predicted label",
}  # fmt: skip
_TEXT = {"dataset", "method", "variant", "format", "kind", "text", "label_name", "predicted_name"}


def data_table(key: str, rows: Sequence[Row], columns: Sequence[str]) -> Table:
    """Return the table of the rows behind a figure, at most MOST_ROWS of them."""
    shown = rows[:MOST_ROWS]
    cut = (f"The first {MOST_ROWS} of {len(rows):,} rows; the query gives all.",) if len(rows) > MOST_ROWS else ()
    return Table(
        f"{key}-data",
        "",
        tuple(Column(_TITLES.get(name, name.replace("_", " ")), numeric=name not in _TEXT) for name in columns),
        tuple(tuple(_value(name, row[name]) for name in columns) for row in shown),
        Origin(),
        notes=cut,
    )


def _value(column: str, value: Any) -> Cell:
    if column in {"method", "variant"}:
        return words(label(value).title)
    if column in _TEXT:
        return words(value)
    return number(value, ".4g" if isinstance(value, float) else ",")
