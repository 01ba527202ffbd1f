"""Counts have their noun in the right number."""

import pytest

from storage.counts import counted, listed, remaining, singular, speed


@pytest.mark.parametrize(
    ("count", "noun", "said"),
    [(0, "seed", "0 seeds"), (1, "seed", "1 seed"), (1234, "entry", "1,234 entries"), (2, "day", "2 days"),
     (2, "batch", "2 batches")],
)  # fmt: skip
def test_only_one_is_singular(count, noun, said):
    assert counted(count, noun) == said


def test_names_with_commas_are_told_apart_by_quotes():
    assert listed(["bad", "good"]) == "bad, good"
    assert listed(["bad, really", "good"]) == "'bad, really', 'good'"


@pytest.mark.parametrize(("unit", "single"), [("steps", "step"), ("kB", "kB"), ("loss", "loss")])
def test_units_of_progress_have_a_singular(unit, single):
    assert singular(unit) == single


@pytest.mark.parametrize(
    ("rate", "said"), [(250, "250.0 steps per second"), (1, "1.0 steps per second"), (0.05, "20.0 s per step")]
)
def test_slow_work_is_measured_in_seconds_per_unit(rate, said):
    assert speed(rate, "steps") == said


@pytest.mark.parametrize(
    ("seconds", "said"), [(42, "about 42 s left"), (600, "about 10 min left"), (9000, "about 2.5 h left")]
)
def test_time_left_has_the_unit_of_a_person(seconds, said):
    assert remaining(seconds) == said
