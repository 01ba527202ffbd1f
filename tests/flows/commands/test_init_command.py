"""`supmer init` makes a workspace outside the source tree; `supmer doctor` checks the machine."""

import json

import pytest

from flows.diagnosis import checks
from storage.lockfile import file_md5
from support.workspaces import REPOSITORY

pytestmark = pytest.mark.filterwarnings("ignore:_NoneStep.value:DeprecationWarning")  # DVC uses pygtrie


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_workspace_outside_the_source_tree_is_whole_and_its_code_is_the_program_s(
    command_line, elsewhere, monkeypatch
):
    code, out, _ = command_line("init", "mine", "--profile", "offline-tiny")
    assert (code, out) == (0, "mine: a workspace with the profile offline-tiny: cd mine && supmer run\n")
    root = elsewhere / "mine"
    assert (root / "params.yaml").read_bytes() == (REPOSITORY / "profiles/offline-tiny.yaml").read_bytes()
    assert (root / "storage").resolve() == REPOSITORY / "storage"
    monkeypatch.chdir(root)
    code, out, _ = command_line("status", "--json")
    assert code == 1
    assert {stage["action"] for stage in json.loads(out)} == {"run"}
    from flows.dvc_state.dag import Pipeline

    [module] = [dep for dep in Pipeline(root).stage("sample").deps if str(dep) == "storage/hashing.py"]
    assert module.get_hash().value == file_md5(REPOSITORY / "storage/hashing.py")


def test_called_again_it_renews_the_links_alone(command_line, elsewhere):
    command_line("init", "mine")
    params = elsewhere / "mine/params.yaml"
    params.write_text(f"{params.read_text()}# mine\n")
    (elsewhere / "mine/tasks").unlink()
    code, out, _ = command_line("init", "mine")
    assert (code, out) == (0, "mine: links renewed: cd mine && supmer run\n")
    assert (elsewhere / "mine/tasks/methods.py").is_file()
    assert params.read_text().endswith("# mine\n")


def test_other_places_and_profiles_are_refused_in_one_line(command_line, elsewhere):
    (elsewhere / "full").mkdir()
    (elsewhere / "full/file").touch()
    for arguments, message in (
        (("full",), "full: is not empty"),
        ((REPOSITORY / "docs/new",), "lies in the source tree"),
        (("new", "--profile", "quikstart"), "did you mean 'quickstart'?"),
    ):
        code, _, err = command_line("init", *arguments)
        assert (code, err.count("\n")) == (2, 1)
        assert message in err
    assert not (elsewhere / "new").exists()


def test_the_doctor_names_what_it_found_and_what_to_do(command_line, elsewhere, monkeypatch):
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    code, out, _ = command_line("doctor", "--json")
    found = {check["name"]: check for check in json.loads(out)}
    assert code == 0
    assert {"python", "packages", "git", "disk", "memory", "torch", "hub", "ports", "workspace"} <= found.keys()
    assert found["hub"]["state"] == "warning"
    assert "set HF_ENDPOINT" in found["hub"]["advice"]
    assert found["workspace"]["advice"] == "cd into one, or make one with `supmer init DIR`"


def test_a_broken_workspace_and_a_full_disk_are_problems(command_line, elsewhere, monkeypatch):
    command_line("init", "mine")
    root = elsewhere / "mine"
    states = {check.name: check.state for check in checks(root, offline=True)}
    assert (states["workspace"], states["hub"]) == ("ok", "ok")
    (root / "params.yaml").write_text("seed: x\n")
    monkeypatch.setattr("flows.diagnosis.NO_DISK", 1 << 62)
    monkeypatch.chdir(root)
    code, out, _ = command_line("doctor", "--offline")
    assert code == 1
    assert "problem  workspace: params.yaml:" in out
    assert "problem  disk: " in out
