"""Paired differences between a method and the others, with intervals, and what they say in words."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt

import numpy as np

from storage.queries.report_queries import Query, Row
from tasks.methods import METHODS, in_order, label, most_telling
from tasks.report.page.colours import style_of
from tasks.report.page.parts import NONE, Cell, Column, Origin, Table, words

_COUNTED = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
_ALLOWS = (
    "The interval allows for other seeds and for other test examples; with one seed, for other test examples alone."
)


@dataclass(frozen=True)
class Difference:
    """A difference of accuracies in points, paired by seed and test example.

    Attributes:
        error: its standard error, from the variation over seeds and over test examples.
        freedom: the degrees of freedom of the error.
        seeds: the number of seeds; with one, the error is that of the test examples alone.
    """

    mean: float
    error: float
    freedom: float
    seeds: int
    examples: int

    @property
    def margin(self) -> float:
        """Half the width of the 95 % interval."""
        return self.error * t_quantile(self.freedom)

    @property
    def is_clear(self) -> bool:
        """True if the interval does not hold zero."""
        return abs(self.mean) > self.margin

    @property
    def interval(self) -> str:
        """The interval in words."""
        return f"{_signed(self.mean - self.margin)} to {_signed(self.mean + self.margin)}"


def t_quantile(freedom: float) -> float:
    """Return how many standard errors 95 % of Student's t distribution lie within, on either side of zero.

    With x = √freedom · tan(angle), the density is a power of the cosine, which is integrated on a grid.
    """
    freedom = min(freedom, 10_000.0)
    angles = np.linspace(0, np.pi / 2, 20_001)
    density = np.cos(angles) ** (freedom - 1)
    mass = np.concatenate([[0.0], np.cumsum(density[1:] + density[:-1])])
    return float(sqrt(freedom) * np.tan(np.interp(0.95, mass / mass[-1], angles)))


def difference(row: Row) -> Difference:
    """Return the difference in a row of the query `paired`.

    Seeds and test examples are crossed, so the variances of both means add up (the part that both hold is counted
    twice, which makes the interval a little wide rather than narrow); the degrees of freedom follow Satterthwaite.
    """
    parts = [
        (row["seed_variance"] / row["seeds"] if row["seeds"] > 1 else 0.0, row["seeds"] - 1),
        (row["example_variance"] / row["examples"] if row["examples"] > 1 else 0.0, row["examples"] - 1),
    ]
    return Difference(row["difference"], *_added(parts), row["seeds"], row["examples"])


def averaged(differences: Sequence[Difference]) -> Difference:
    """Return the mean of the differences on several sets, whose draws do not depend on each other."""
    count = len(differences)
    error, freedom = _added([((one.error / count) ** 2, one.freedom) for one in differences])
    mean = sum(one.mean for one in differences) / count
    return Difference(mean, error, freedom, min(one.seeds for one in differences), sum(o.examples for o in differences))


def _added(parts: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Return the root of the summed variances, and the degrees of freedom of the sum."""
    total = sum(variance for variance, _ in parts)
    weight = sum(variance**2 / freedom for variance, freedom in parts if variance)
    return sqrt(total), total**2 / weight if weight else 1.0


def compared_in_words(ours: str, our_figure: str, theirs: str, their_figure: str, found: Difference | None) -> str:
    """Return one sentence of two accuracies and of whether their difference could be chance."""
    said = f"{ours} reached {our_figure} %, {theirs} {their_figure} %"
    if our_figure == their_figure:
        return f"{said}: no difference."
    if found is None:
        return f"{said}."
    if found.is_clear:
        return f"{said}; that difference is more than chance (95 % interval {found.interval} points)."
    number = _COUNTED[found.seeds] if found.seeds < len(_COUNTED) else str(found.seeds)
    seeds = f"{number} {'seed' if found.seeds == 1 else 'seeds'}"
    return f"{said}; with {seeds} that difference could be chance."


def also_compared(theirs: str, their_figure: str, found: Difference | None) -> str:
    """Return a short clause on a further method: its accuracy, and what the difference is worth."""
    if found is None:
        return f"{theirs} {their_figure} %"
    if not found.mean:
        return f"{theirs} {their_figure} % (no difference)"
    verdict = "more than chance" if found.is_clear else "could be chance"
    return f"{theirs} {their_figure} % (a difference of {_signed(found.mean)} points, {verdict})"


Place = tuple[str, str]
"""The dataset that a prompt was tuned on, and the one it was tested on."""


def difference_table(
    rows: Sequence[Row], reference: str, query: Query, places: Sequence[Place], shots: int
) -> Table | None:
    """Return the table of the differences between the reference and every other method, by test set."""
    found = {
        (row["method"], (row["dataset"], row["tested_on"])): difference(row) for row in rows if row["shots"] == shots
    }
    methods = in_order({method for method, place in found if place in places})
    shown = [place for place in dict.fromkeys(places) if any((method, place) in found for method in methods)]
    if not methods:
        return None
    title = label(reference).title
    columns = [
        Column(tested, numeric=True, group="" if tested == source else f"tuned on {source}") for source, tested in shown
    ]
    lines = tuple(
        (words(label(method).title, style=style_of(method)), *(_cell(found.get((method, place))) for place in shown))
        for method in methods
    )
    seeds = {one.seeds for one in found.values()}
    examples = {one.examples for one in found.values()}
    above = f"Above zero: {title} is better. Below each difference is its 95 % interval; bold if zero is outside of it."
    paired = f"Paired by seed ({_range(seeds)}), few-shot draw and test example ({_range(examples)})."
    groups = [label(method).group for method in methods]
    breaks = frozenset(place for place in range(1, len(groups)) if groups[place] != groups[place - 1])
    caption = f"How much better is {title}? Its accuracy minus that of each other method, in points."
    return Table(
        "differences", caption, (Column("method"), *columns), lines, Origin((query,)), breaks, (above, paired, _ALLOWS)
    )


def _cell(found: Difference | None) -> Cell:
    if found is None:
        return Cell(NONE)
    return Cell(_signed(found.mean), found.mean, best=found.is_clear, below=found.interval)


def _range(counts: set[int]) -> str:
    low, high = min(counts), max(counts)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def _signed(value: float) -> str:
    shown = f"{value:+.1f}"
    return "0.0" if shown in {"+0.0", "-0.0"} else shown.replace("-", "−")


def reference_of(methods: Sequence[str]) -> str | None:
    """Return the method that the others are compared with: SUPMER if it is there, else the most telling."""
    known = [name for name in methods if name in METHODS]
    return most_telling(known)[0] if known else None
