"""Lines of progress: counts in the right number, the better unit, and no estimate from one sample."""

import pytest

from flows.run import console
from flows.run.console import Bar, ConsoleReporter
from storage.signs_of_life import SILENCE


class Clock:
    """A clock that stands still until it is moved."""

    def __init__(self):
        self.now = 1000.0

    def monotonic(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(console, "time", clock)
    return clock


def lines_of(clock, total, unit, seconds):
    """Return the lines of a bar that advances by one after each of these pauses."""
    lines = []
    bar = Bar("tune: tune", total, unit, None, lines.append, _line=clock.now)
    for pause in seconds:
        clock.now += pause
        bar.advance(1)
    return lines


def test_one_sample_gives_no_estimate(clock, capsys):
    assert lines_of(clock, 140, "epochs", [12.5]) == ["tune: tune: 1 of 140 epochs"]
    assert capsys.readouterr().out == "  tune: tune: 1 of 140 epochs\n"


def test_slow_steps_are_told_in_seconds_per_step_and_the_start_is_not_counted(clock):
    lines = lines_of(clock, 12, "steps", [60, 10, 10])  # loading takes a minute
    assert lines[-1] == "tune: tune: 3 of 12 steps, 10.0 s per step, about 90 s left".replace("90 s", "2 min")


def test_fast_steps_are_told_per_second(clock):
    lines = lines_of(clock, 1000, "steps", [0.5] * 12)
    assert lines[-1].endswith("steps, 2.0 steps per second, about 8 min left")


def test_one_unit_is_singular(clock):
    assert lines_of(clock, 1, "seeds", [6]) == ["tune: tune: 1 of 1 seed"]


def test_silent_work_names_its_progress_and_what_is_loading(capsys, monkeypatch):
    monkeypatch.delenv(SILENCE)
    with ConsoleReporter().alive("tune: at work") as reporter, reporter.progress("tune: tune", 10, "epochs") as bar:
        bar.note("movies/pt: loading torch and the backbone")
        reporter.signs.look(reporter.signs._spoken + 2.1)
    assert capsys.readouterr().out == "  tune: tune: 0 of 10 epochs (movies/pt: loading torch and the backbone)\n"
