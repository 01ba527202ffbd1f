"""The newest whole checkpoint wins; what was cut or changed is passed over and named."""

from pathlib import Path

import numpy as np
import pytest

from storage.prompts import checkpoints
from storage.prompts.checkpoints import KEPT, Checkpoint, last_checkpoint, write_checkpoint


def checkpoint(step):
    arrays = {
        "prompt": np.full((3, 4), step, np.float32),
        "moments/exp_avg": np.arange(5, dtype=np.float64) * step,
        "random": np.arange(256, dtype=np.uint8),
        "empty": np.zeros((0, 2), np.float32),
        "steps": np.array(step, np.float32),
    }
    return Checkpoint(step, arrays, {"similarity": -1 + 1e-17 + step / 3, "reader": {"epoch": step}, "name": "θ"})


def assert_same(found, expected):
    assert found is not None
    assert (found.step, found.state) == (expected.step, expected.state)
    assert found.arrays.keys() == expected.arrays.keys()
    for name, array in expected.arrays.items():
        assert found.arrays[name].dtype == array.dtype
        assert found.arrays[name].shape == array.shape
        np.testing.assert_array_equal(found.arrays[name], array)


def test_what_was_written_comes_back_exactly(tmp_path):
    write_checkpoint(tmp_path, checkpoint(7))
    found, damaged = last_checkpoint(tmp_path)
    assert_same(found, checkpoint(7))
    assert damaged == []


def test_a_transposed_array_comes_back_as_it_looked(tmp_path):
    array = np.arange(6, dtype=np.float32).reshape(2, 3).T
    write_checkpoint(tmp_path, Checkpoint(1, {"prompt": array}, {}))
    np.testing.assert_array_equal(last_checkpoint(tmp_path)[0].arrays["prompt"], array)


def test_the_same_content_gives_the_same_file(tmp_path):
    one, other = (write_checkpoint(tmp_path / name, checkpoint(3)) for name in "ab")
    assert one.name == other.name
    assert one.read_bytes() == other.read_bytes()


def test_no_folder_and_an_empty_one_hold_none(tmp_path):
    assert last_checkpoint(tmp_path / "absent") == (None, [])
    assert last_checkpoint(tmp_path) == (None, [])


def test_the_highest_step_wins_whatever_was_written_last(tmp_path):
    for step in (20, 100, 99):
        write_checkpoint(tmp_path, checkpoint(step))
    assert last_checkpoint(tmp_path)[0].step == 100


def test_only_the_last_few_are_kept(tmp_path):
    for step in range(1, KEPT + 4):
        write_checkpoint(tmp_path, checkpoint(step))
    kept = sorted(path.name[:14] for path in tmp_path.iterdir())
    assert kept == [f"step-{step:09d}" for step in range(4, KEPT + 4)]


DAMAGE = {
    "cut": lambda content: content[:-1],
    "cut to nothing": lambda content: content[:0],
    "cut in the header": lambda content: content[:20],
    "one bit flipped at the end": lambda content: content[:-1] + bytes([content[-1] ^ 1]),
    "one bit flipped in the header": lambda content: content[:30] + bytes([content[30] ^ 1]) + content[31:],
    "longer": lambda content: content + b"\0",
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_newest_one_is_passed_over_and_named(tmp_path, damage):
    write_checkpoint(tmp_path, checkpoint(1))
    newest = write_checkpoint(tmp_path, checkpoint(2))
    newest.write_bytes(DAMAGE[damage](newest.read_bytes()))
    found, damaged = last_checkpoint(tmp_path)
    assert_same(found, checkpoint(1))
    assert damaged == [newest]


def test_where_all_are_damaged_there_is_none_and_all_are_named(tmp_path):
    paths = [write_checkpoint(tmp_path, checkpoint(step)) for step in (1, 2)]
    for path in paths:
        path.write_bytes(b"")
    assert last_checkpoint(tmp_path) == (None, paths[::-1])


def test_the_same_step_written_again_after_damage_is_found(tmp_path):
    path = write_checkpoint(tmp_path, checkpoint(2))
    path.write_bytes(b"cut")
    write_checkpoint(tmp_path, checkpoint(2))
    found, damaged = last_checkpoint(tmp_path)
    assert_same(found, checkpoint(2))
    assert damaged == []


def test_other_files_are_no_checkpoints(tmp_path):
    write_checkpoint(tmp_path, checkpoint(1))
    for name in ("step-000000009.safetensors", ".step-000000009-0123456789abcdef.safetensors.partial-1", "notes.txt"):
        (tmp_path / name).write_bytes(b"other")
    found, damaged = last_checkpoint(tmp_path)
    assert (found.step, damaged) == (1, [])
    for step in range(2, 6):
        write_checkpoint(tmp_path, checkpoint(step))
    assert (tmp_path / "notes.txt").exists()


def test_a_write_that_fails_leaves_the_earlier_ones_and_nothing_of_itself(tmp_path, monkeypatch):
    write_checkpoint(tmp_path, checkpoint(1))

    def full(path, content):
        raise OSError("No space left on device")

    monkeypatch.setattr(checkpoints, "write_bytes", full)
    with pytest.raises(OSError, match="No space"):
        write_checkpoint(tmp_path, checkpoint(2))
    assert len(list(tmp_path.iterdir())) == 1
    assert last_checkpoint(tmp_path)[0].step == 1


def test_a_write_is_seen_whole_or_not_at_all(tmp_path, monkeypatch):
    write_checkpoint(tmp_path, checkpoint(1))

    def killed(self, target):  # the bytes are there, the rename is not done
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "replace", killed)
    with pytest.raises(KeyboardInterrupt):
        write_checkpoint(tmp_path, checkpoint(2))
    found, damaged = last_checkpoint(tmp_path)
    assert (found.step, damaged) == (1, [])
