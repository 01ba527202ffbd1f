"""Axes: round ticks, a scale from values to positions, labels that do not overlap."""

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Scale:
    """A mapping of values from `low` to `high` to positions from `start` to `end`."""

    low: float
    high: float
    start: float
    end: float
    ticks: tuple[float, ...]

    def __call__(self, value: float) -> float:
        """Return the position of a value."""
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)


def scale(values: Sequence[float], start: float, end: float, count: int = 5, *, tight: bool = False) -> Scale:
    """Return a scale for all values: from tick to tick, or, if `tight`, from the lowest to the highest value."""
    low, high = min(values), max(values)
    if high - low < 1e-9 * max(abs(low), abs(high), 1e-9):
        room = max(abs(low) * 0.05, 0.5)
        low, high = low - room, high + room
    step = round_step((high - low) / max(count - 1, 1))
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    every = [round(number * step, 10) for number in range(first, last + 1)]
    if tight:
        inside = tuple(tick for tick in every if low - 1e-9 <= tick <= high + 1e-9)
        return Scale(low, high, start, end, inside)
    return Scale(every[0], every[-1], start, end, tuple(every))


def at_values(values: Sequence[float], start: float, end: float, gap: float = 24.0) -> Scale:
    """Return a scale from the lowest to the highest of the values, with a tick at each that has `gap` to the last."""
    axis = Scale(values[0], values[-1], start, end, ())
    ticks = [values[-1]]  # both ends are named, and between them as many as there is room for
    for value in reversed(values[:-1]):
        is_end = value == values[0]
        if axis(ticks[-1]) - axis(value) >= gap:
            ticks.append(value)
        elif is_end and len(ticks) > 1:
            ticks[-1] = value
    return Scale(axis.low, axis.high, start, end, tuple(reversed(ticks)))


def round_step(least: float) -> float:
    """Return the smallest of 1, 2, 2.5 and 5 times a power of ten that is not below `least`."""
    power = 10.0 ** math.floor(math.log10(least))
    return next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= least * (1 - 1e-9))


def shown(value: float) -> str:
    """Return the number of a tick, as short as possible."""
    if abs(value) >= 10_000:
        return f"{value / 1000:g}k"
    return f"{value:.6g}".replace("-", "−")


def spread(places: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Return the positions of labels, moved apart until neighbours are `gap` apart, within the bounds if they fit."""
    order = sorted(range(len(places)), key=lambda number: places[number])
    moved = [places[number] for number in order]
    for _ in range(100):
        shifted = False
        for upper in range(1, len(moved)):
            short = gap - (moved[upper] - moved[upper - 1])
            if short > 1e-6:
                moved[upper - 1] -= short / 2
                moved[upper] += short / 2
                shifted = True
        if moved and moved[0] < low:
            moved[0], shifted = low, shifted or low - moved[0] > 1e-6
        if moved and moved[-1] > high:
            moved[-1], shifted = high, shifted or moved[-1] - high > 1e-6
        if not shifted:
            break
    result = [0.0] * len(places)
    for number, place in zip(order, moved, strict=True):
        result[number] = place
    return result
