"""A workspace without forgotten.csv gets an empty one; a list that was lost is never taken as an empty one."""

import pytest

from flows.dvc_state.forgotten_list import require_list
from storage.errors import InputError
from storage.lockfile import file_md5
from storage.records.forgotten import Forgotten, read_forgotten, write_forgotten

PIPELINE = "stages: {sample: {cmd: supmer stage sample, deps: [forgotten.csv], outs: [data]}}\n"


@pytest.fixture
def recorded(tmp_path):
    """Write a list and record it in dvc.lock, as a run of `sample` would; return the workspace and the list."""

    def record(entries):
        path = tmp_path / "forgotten.csv"
        write_forgotten(path, entries)
        (tmp_path / "dvc.yaml").write_text(PIPELINE)
        deps = f"[{{path: forgotten.csv, hash: md5, md5: '{file_md5(path)}', size: 1}}]"
        (tmp_path / "dvc.lock").write_text(f"schema: '2.0'\nstages: {{sample: {{cmd: x, deps: {deps}}}}}\n")
        return tmp_path, path

    return record


def test_a_workspace_without_a_list_gets_an_empty_one(recorded):
    root, path = recorded([])
    content = path.read_bytes()
    for lock in ("other", "dvc.lock"):
        path.unlink()
        (root / lock).unlink(missing_ok=True)
        require_list(root)
        assert path.read_bytes() == content


def test_a_list_that_was_lost_is_asked_for(recorded):
    root, path = recorded([Forgotten("a" * 32, "2026-01-02", "a takedown")])
    require_list(root)
    assert len(read_forgotten(path)) == 1
    path.unlink()
    with pytest.raises(InputError, match=r"forgotten\.csv: is missing, and sample used one: restore it from git"):
        require_list(root)
