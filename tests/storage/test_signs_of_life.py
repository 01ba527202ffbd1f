"""Signs of life: silent work says what it does, work that prints does not."""

import pytest

from storage.signs_of_life import LONGEST_PAUSE, QUIET_SECONDS, SILENCE, SignsOfLife, doing


@pytest.fixture(autouse=True)
def usual_silence(monkeypatch):
    monkeypatch.delenv(SILENCE)


def signs_and_lines(what="run: hashing"):
    lines = []
    return SignsOfLife(what, lines.append), lines


def beginning(signs):
    return signs._spoken


def test_two_seconds_of_silence_give_a_line_and_more_silence_the_time():
    signs, lines = signs_and_lines()
    start = beginning(signs)
    signs.look(start + QUIET_SECONDS - 0.1)
    assert lines == []
    signs.look(start + QUIET_SECONDS + 0.1)
    assert lines == ["run: hashing"]
    signs.look(start + QUIET_SECONDS + 1)
    assert len(lines) == 1
    signs.look(start + 10)
    assert lines[1:] == ["run: hashing: 10 s so far"]


def test_hours_of_silence_give_a_line_a_minute():
    signs, lines = signs_and_lines()
    start = beginning(signs)
    for second in range(3600):
        signs.look(start + second)
    assert 3600 / LONGEST_PAUSE <= len(lines) <= 3600 / LONGEST_PAUSE + 5


def test_a_printed_line_ends_the_silence():
    signs, lines = signs_and_lines()
    signs._spoken -= 10
    signs.spoke()
    signs.look(beginning(signs) + QUIET_SECONDS - 0.1)
    assert lines == []


def test_the_work_is_named_by_what_is_done_now_and_nothing_is_said_beside_a_bar():
    signs, lines = signs_and_lines("tune: at work")
    with signs.named("tune: 3 of 10 epochs"):
        signs.look(beginning(signs) + 2.1)
    with signs.hushed():
        signs.look(beginning(signs) + 100)
    signs.look(beginning(signs) + 2.1)
    assert lines == ["tune: 3 of 10 epochs", "tune: at work"]


def test_the_environment_sets_another_silence(monkeypatch):
    monkeypatch.setenv(SILENCE, "30")
    signs, lines = signs_and_lines()
    signs.look(beginning(signs) + 29)
    assert lines == []
    signs.look(beginning(signs) + 31)
    assert lines == ["run: hashing"]


def test_short_work_says_nothing(capfd):
    with doing("loading"):
        pass
    assert capfd.readouterr() == ("", "")
