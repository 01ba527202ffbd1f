"""A shard of minutes says how far it is and what there is to tell; nothing of it is left behind."""

import time

from tasks.stage.progress import INTERVAL, following, say, tell


class Shown:
    def __init__(self):
        self.done, self.notes, self.lines = 0, [], []

    def advance(self, amount):
        self.done += amount

    def note(self, text):
        self.notes.append(text)


def test_progress_and_lines_appear_while_the_shard_works(tmp_path):
    shown = Shown()
    folder = tmp_path / "key"
    with following(shown, shown.lines.append, {folder: 10}, live=True) as followed:
        tell(tmp_path / "key.partial-1", 4, "loss 2")
        say(tmp_path / "key.partial-1", "continuing from step 3")
        deadline = time.monotonic() + 20 * INTERVAL
        while shown.done < 4 and time.monotonic() < deadline:
            time.sleep(0.05)
        assert (shown.done, shown.notes[-1], shown.lines) == (4, "loss 2", ["continuing from step 3"])
        followed.finished(folder)
        assert shown.done == 10
    assert list(tmp_path.iterdir()) == []


def test_a_line_said_just_before_the_end_is_printed_once(tmp_path):
    shown = Shown()
    with following(shown, shown.lines.append, {tmp_path / "key": 1}, live=True) as followed:
        say(tmp_path / "key.partial-1", "one")
        say(tmp_path / "key.partial-1", "two")
        followed.finished(tmp_path / "key")
    assert shown.lines == ["one", "two"]


def test_what_a_dead_run_left_is_not_counted(tmp_path):
    tell(tmp_path / "key", 9, "old")
    say(tmp_path / "key", "old")
    shown = Shown()
    with following(shown, shown.lines.append, {tmp_path / "key": 10}, live=True):
        pass
    assert (shown.done, shown.lines) == (0, [])


def test_more_than_there_is_counts_as_all(tmp_path):
    shown = Shown()
    with following(shown, shown.lines.append, {tmp_path / "key": 3}, live=True):
        tell(tmp_path / "key", 7, "")
    assert shown.done == 3


def test_a_folder_that_cannot_be_written_fails_nothing(tmp_path):
    tell(tmp_path / "none" / "key", 1, "")
    say(tmp_path / "none" / "key", "line")
