"""What docs/using-a-prompt.md tells a person to type works, in the order in which it stands there."""

import json
import re
import shlex
from pathlib import Path

import pytest
import torch
from peft import PromptTuningConfig, TaskType, get_peft_model
from transformers import AutoModelForSeq2SeqLM

from support.tuned_prompts import acquire_backbone, save_backbone, save_prompt

pytestmark = pytest.mark.usefixtures("one_thread")

PAGE = (Path(__file__).parents[3] / "docs/using-a-prompt.md").read_text()
COMMANDS = [
    command
    for command in re.findall(r"^    ((?:echo|supmer) .*)$", PAGE, re.MULTILINE)
    if "prompts/" not in command and "--push" not in command  # test_ship_command.py; --push wants a hub
]
PROGRAMS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
ELSEWHERE = "/models/t5-base"


@pytest.fixture
def room(tmp_path, monkeypatch):
    """A workspace with a backbone and a tuned prompt, the data that the page names, and an adapter of PEFT's own."""
    backbone = save_backbone(tmp_path / "elsewhere/t5")
    root = acquire_backbone(tmp_path / "room", backbone)
    save_prompt(root / "artifacts/tuned/movies/supmer", backbone, source=f"path:{backbone}")
    (root / "new.jsonl").write_text(json.dumps({"text": "a river"}) + "\n" + json.dumps({"text": "winter"}) + "\n")
    (root / "new.csv").write_text("id,review\n7,a river\n8,winter\n")
    (root / "labeled.csv").write_text("text,label,review,opinion\na river,0,winter,1\nwinter,1,a river,0\n")
    (root / "new.txt").write_text("a river\nwinter\n")
    settings = {"num_virtual_tokens": 5, "num_transformer_submodules": 1}
    settings = PromptTuningConfig(task_type=TaskType.SEQ_2_SEQ_LM, **settings)
    get_peft_model(AutoModelForSeq2SeqLM.from_pretrained(backbone), settings).save_pretrained(root / "their-adapter")
    save_prompt(tmp_path / "elsewhere/my-prompt", backbone)
    released = {f"mlp.layers.0.{part}": torch.ones(shape) for part, shape in released_shapes().items()}
    released |= {"mlp.linear_1.weight": torch.ones(5, 16), "mlp.linear_1.bias": torch.ones(5)}
    released |= {"mlp.linear_2.weight": torch.ones(1, 5), "mlp.linear_2.bias": torch.ones(1)}
    torch.save(torch.ones(4, 16), root / "prompt_t5base.pt")
    torch.save(released, root / "gradient_edit_t5base.pt")
    monkeypatch.chdir(root)
    return root


def released_shapes():
    return {"u": (16, 3), "v": (3, 16), "bias": (16,)}


def run(command, command_line):
    before, _, after = command.rpartition(" | ")
    words = shlex.split(after)
    given = " ".join(shlex.split(before)[1:])
    return command_line(*words[1:], stdin=given.encode() + b"\n")


def test_every_command_works(room, monkeypatch, command_line):
    assert len(COMMANDS) >= 9
    for command in COMMANDS:
        here = room
        if ELSEWHERE in command:  # a prompt in a folder that is no workspace
            here = room.parent / "elsewhere"
            (here / "new.jsonl").write_text((room / "new.jsonl").read_text())
        monkeypatch.chdir(here)
        code, out, err = run(command.replace(ELSEWHERE, "t5"), command_line)
        assert code == 0, f"{command}: {err}"
        if "predict" in command and "--output" not in command:
            lines = [json.loads(line) for line in out.splitlines()]
            assert len(lines) == (1 if command.startswith("echo") else 2)
            assert all(line.keys() == {"predicted", "probabilities"} for line in lines)
    kept = [json.loads(line) for line in (room / "labels.jsonl").read_text().splitlines()]
    assert [line["id"] for line in kept] == ["7", "8"]
    assert {"my-adapter", "my-prompt", "their-prompt", "official-t5-base"} <= {path.name for path in room.iterdir()}


@pytest.mark.usefixtures("room")
def test_every_program_works(capsys):
    assert len(PROGRAMS) == 1
    for program in PROGRAMS:
        exec(program, {})  # noqa: S102 - what a reader of the page would do
    assert len(capsys.readouterr().out.splitlines()) == 2
