"""Bytes overwritten in place, in a file that output, DVC's cache and the shard store share, are made good again."""

import os

import pytest

from storage.lockfile import cache_folder
from support.workspaces import Workspace

SENTENCES, METRICS = "data/corpus/sentences/*.parquet", "data/metrics/sample.json"
BYTES = b"\0damage\0"


def damage(path, *, dated):
    """Overwrite eight bytes in the middle, as a broken disk or a careless program would; `dated`: the date tells."""
    before = path.stat()
    path.chmod(0o644)
    with path.open("r+b") as file:
        file.seek(before.st_size // 2)
        file.write(BYTES)
    path.chmod(before.st_mode)
    if not dated:
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def chosen(root, pattern):
    return min(root.glob(pattern))


@pytest.mark.parametrize(
    ("pattern", "dated"),
    [(SENTENCES, False), (METRICS, True)],
    ids=["undated", "dated"],
)
def test_what_verify_advises_makes_a_damaged_file_good_again(served: Workspace, pattern, dated):
    path = chosen(served.root, pattern)
    before, lock = path.read_bytes(), (served.root / "dvc.lock").read_bytes()
    served.status()  # DVC now knows the file by its date
    damage(path, dated=dated)
    told = served.run("verify", expect=1)
    [line] = [line for line in told.splitlines() if line.startswith("changed") and str(path.name) in line]
    assert "delete it, then `supmer run`" in line
    path.unlink()
    served.run("run")
    assert path.read_bytes() == before
    assert (served.root / "dvc.lock").read_bytes() == lock
    assert "verified:" in served.run("verify", "--cache")


def test_a_forced_stage_does_not_build_on_a_damaged_cache(served: Workspace):
    path = chosen(served.root, SENTENCES)
    before, lock = path.read_bytes(), (served.root / "dvc.lock").read_bytes()
    served.status()
    damage(path, dated=False)
    served.run("run", "--force", "sample")
    assert path.read_bytes() == before
    assert (served.root / "dvc.lock").read_bytes() == lock
    assert "verified:" in served.run("verify", "--cache")


def test_a_damaged_file_with_a_new_date_is_not_restored_from_its_damaged_object(served: Workspace):
    path = chosen(served.root, SENTENCES)
    before = path.read_bytes()
    damage(path, dated=True)
    output = served.run("run")
    assert "its copy in DVC's cache was damaged" in output
    assert path.read_bytes() == before


def test_entries_that_a_kill_left_empty_in_the_cache_of_runs_do_not_stop_the_next_run(served: Workspace):
    path = chosen(served.root, SENTENCES)
    before = path.read_bytes()
    entries = list((cache_folder(served.root).parents[1] / "runs").glob("*/*/*"))
    assert entries
    for entry in entries:
        entry.unlink()
    (served.root / "dvc.lock").unlink()
    served.run("run", "sample")
    assert path.read_bytes() == before
