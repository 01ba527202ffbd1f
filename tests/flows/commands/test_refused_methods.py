"""Methods that the backbone or the machine cannot do, and prefixes of another backbone: one line, exit code 2."""

import json
import shutil

import pytest
import torch

from support.meta_examples import bart
from support.tiny_tokenizers import unigram
from support.training_room import save_backbone
from support.tuning_room import write_rows
from support.workspaces import REPOSITORY

QUICK = ("--data", "mine.jsonl", "--shots", "3", "--seeds", "1", "--epochs", "1", "-S", "metatrain.template=sentinel",
         "-S", "tune.max_length=40", "-S", "tune.p_tuning_v2.length=2", "-S", "metatrain.prompt_tokens=3")  # fmt: skip

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def workspace(tmp_path, monkeypatch):
    shutil.copyfile(REPOSITORY / "params.yaml", tmp_path / "params.yaml")
    (tmp_path / "dvc.yaml").write_text("stages: {}\n")
    for name in (".dvc", ".git"):
        (tmp_path / name).mkdir()
    write_rows(tmp_path / "mine.jsonl", 20, "mine")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def save_bart(folder):
    bart(torch.float32).save_pretrained(folder)
    unigram().save_pretrained(folder)
    return folder


def refused(answer):
    """Return the last line of a refusal; remarks about label words may stand before it."""
    code, _, err = answer
    assert (code, "Traceback" in err) == (2, False), err
    return err.splitlines()[-1]


@pytest.mark.parametrize("method", ["prefix-tuning", "p-tuning-v2"])
def test_prefixes_for_another_family_of_backbones(workspace, command_line, method):
    folder = save_bart(workspace / "bart")
    line = refused(command_line("tune", "--method", method, "--backbone", str(folder), *QUICK))
    assert f"{method}: prefixes need a backbone of the T5 family" in line
    assert "bart" in line


def test_prefixes_of_a_backbone_with_another_number_of_layers(workspace, command_line):
    own, deeper = save_backbone(workspace / "own"), save_backbone(workspace / "deeper", num_layers=3)
    code, _, err = command_line("tune", "--method", "p-tuning-v2", "--backbone", str(own), "--output", "p", *QUICK)
    assert code == 0, err
    asked = ("predict", "--prompt", "p", "--data", "mine.jsonl", "--backbone", str(deeper))
    assert "not the backbone that p was made for" in refused(command_line(*asked))
    line = refused(command_line(*asked, "--any-backbone"))
    assert "has the shape 2 × 2 × 4 × 4, and the backbone takes 3 × 2 × 4 × 4" in line


def test_weights_that_do_not_fit_into_memory_are_not_loaded(workspace, command_line):
    folder = save_backbone(workspace / "huge")
    config = json.loads((folder / "config.json").read_bytes()) | {"d_ff": 10**9}
    (folder / "config.json").write_text(json.dumps(config))
    line = refused(command_line("tune", "--method", "ft", "--backbone", str(folder), *QUICK))
    assert "GB with gradients and AdamW, and this machine has" in line
    assert "leave ft out" in line


@pytest.mark.parametrize("method", ["ft", "lora"])
def test_weights_that_cannot_be_read(workspace, command_line, method):
    folder = save_backbone(workspace / "damaged")
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    line = refused(command_line("tune", "--method", method, "--backbone", str(folder), *QUICK))
    assert "damaged: cannot be loaded as a backbone" in line


def test_a_configuration_that_makes_no_model(workspace, command_line):
    folder = save_backbone(workspace / "odd")
    config = json.loads((folder / "config.json").read_bytes()) | {"num_layers": "x"}
    (folder / "config.json").write_text(json.dumps(config))
    assert "odd: cannot be" in refused(command_line("tune", "--method", "ft", "--backbone", str(folder), *QUICK))


@pytest.mark.parametrize("method", ["pt", "ft", "lora"])
def test_a_tokenizer_of_another_model(workspace, command_line, method):
    folder = save_bart(workspace / "bart")  # it knows fewer tokens
    line = refused(command_line("tune", "--method", method, "--backbone", str(folder), *QUICK))
    assert "the backbone knows 50 tokens, and its tokenizer gives the id" in line
