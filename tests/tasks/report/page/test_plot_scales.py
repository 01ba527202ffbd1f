"""Axes: ticks are round and hold the values, labels do not overlap."""

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.report.page.plot_scales import at_values, round_step, scale, shown, spread

VALUES = st.lists(st.floats(-1e6, 1e6, allow_nan=False).map(lambda value: round(value, 4)), min_size=1, max_size=20)


@given(VALUES, st.booleans())
def test_every_value_has_a_place_within_the_axis(values, tight):
    found = scale(values, 40.0, 300.0, tight=tight)
    assert all(39.9 <= found(value) <= 300.1 for value in values)
    assert all(math.isfinite(tick) for tick in found.ticks)
    assert len(found.ticks) <= 12


@given(st.floats(1e-9, 1e9))
def test_a_step_is_round_and_not_below_what_is_asked(least):
    step = round_step(least)
    assert step >= least * (1 - 1e-6)
    assert step <= least * 2.6
    assert f"{step:.1e}"[:3] in {"1.0", "2.0", "2.5", "5.0"}


def test_ticks_of_accuracy_are_those_a_person_would_choose():
    assert scale([62.1, 79.4], 0, 100).ticks == (60.0, 65.0, 70.0, 75.0, 80.0)


@given(st.lists(st.floats(0, 200), max_size=8))
def test_labels_are_moved_apart_and_keep_their_order(places):
    moved = spread(places, 14.0, 0.0, 200.0)
    order = sorted(range(len(places)), key=lambda number: places[number])
    assert all(moved[below] - moved[above] > 13.0 for above, below in pairwise(order))
    assert all(-14 <= place <= 214 for place in moved)


@pytest.mark.parametrize(("value", "text"), [(0.5, "0.5"), (-2.0, "−2"), (20_000, "20k"), (1000, "1000")])
def test_ticks_are_printed_short(value, text):
    assert shown(value) == text


@pytest.mark.parametrize(
    ("values", "ticks"), [([4, 16], (4, 16)), ([1, 2, 4, 8, 64], (1, 8, 64)), ([0, 10, 20, 30], (0, 10, 20, 30))]
)
def test_ticks_stand_at_the_values_that_have_room(values, ticks):
    assert at_values(values, 40, 240, gap=20).ticks == ticks
