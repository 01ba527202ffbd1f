"""An adapter is uploaded to a hub: a local imitation of its API receives what the real client sends."""

import os
import subprocess
import sys

import numpy as np
import pytest

from storage.prompts.peft_adapter import Adapter, write_adapter
from support.hub_api import TOKEN, running_hub
from support.tuned_prompts import acquire_backbone, save_backbone, save_prompt

PUSH = "import sys, supmer; print(supmer.push_to_hub(sys.argv[1], sys.argv[2], private=True))"
COMMAND = "import sys; sys.stderr = sys.stdout; from flows.cli import main; main()"
ERROR = """import sys, supmer
try:
    supmer.push_to_hub(sys.argv[1], sys.argv[2])
except Exception as error:
    print(type(error).__name__, error)
"""


@pytest.fixture(scope="module")
def hub():
    with running_hub() as running:
        yield running


@pytest.fixture
def adapter(tmp_path):
    write_adapter(tmp_path / "adapter", Adapter(np.ones((2, 3), np.float32), "org/model"), "# A card\n")
    return tmp_path / "adapter"


@pytest.fixture
def call(hub, tmp_path):
    """Run a program in a process of its own, because the client reads its settings when it is imported."""

    def run(program, *arguments, token=TOKEN, endpoint=None):
        settings = {"HF_ENDPOINT": endpoint or hub.address, "HF_HOME": str(tmp_path / "hf"), "HF_HUB_DISABLE_XET": "1"}
        settings |= {"HF_TOKEN": token} if token else {}
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
        command = [sys.executable, "-c", program, *map(str, arguments)]
        done = subprocess.run(command, env=inherited | settings, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    return run


def test_all_files_of_an_adapter_reach_the_repository(call, hub, adapter):
    assert call(PUSH, adapter, "me/prompt") == f"{hub.address}/me/prompt/commit/{'c' * 40}"
    assert hub.private["me/prompt"]
    assert hub.files["me/prompt"] == {file.name: file.read_bytes() for file in adapter.iterdir()}


def test_the_command_exports_and_pushes_and_warns_of_a_model_that_only_this_machine_has(call, hub, tmp_path):
    root = acquire_backbone(tmp_path / "room", save_backbone(tmp_path / "t5"))
    save_prompt(root / "prompt", tmp_path / "t5", source="wheel:tiny==1.0")
    arguments = ("export", "--to", "peft", tmp_path / "out", "--prompt", root / "prompt", "--push", "me/other")
    out = call(COMMAND, *arguments)
    assert "warning: the adapter names its model by a folder of this machine, ../t5: others need --backbone NAME" in out
    assert out.endswith(f"pushed: {hub.address}/me/other/commit/{'c' * 40}")
    assert hub.files["me/other"] == {file.name: file.read_bytes() for file in (tmp_path / "out").iterdir()}
    assert b"# Soft prompt for wheel:tiny==1.0\n" in hub.files["me/other"]["README.md"]


def test_what_is_refused_is_one_line(call, adapter):
    refused = call(ERROR, adapter, "me/prompt", token=TOKEN[:-1])
    assert refused.startswith("InputError me/prompt: the hub refuses (401)")
    assert call(ERROR, adapter, "not a name").startswith("InputError not a name: not the name of a repository")
    assert call(ERROR, adapter.parent, "me/prompt").endswith("in it: give the folder of a PEFT adapter")
    gone = call(ERROR, adapter, "me/prompt", endpoint="http://127.0.0.1:9")
    assert gone.startswith("TransientError me/prompt: http://127.0.0.1:9 cannot be reached")
