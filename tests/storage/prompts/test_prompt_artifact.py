"""A prompt folder comes back as it was written; every kind of damage is one line that names the file."""

import json

import numpy as np
import pytest
from safetensors.numpy import save

from storage.errors import InputError
from storage.prompts.prompt_artifact import (
    CARD,
    CONFIG,
    PROMPT,
    REGULARIZER,
    PromptArtifact,
    prompt_hash,
    read_prompt,
    write_prompt,
)


def artifact(gate=4, **about):
    chance = np.random.default_rng(0)
    shapes = {"up": (4, 2), "down": (2, 4), "shift": (4,), "gate.weight": (gate, 4), "gate.bias": (gate,)}
    regularizer = {name: chance.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    return PromptArtifact(chance.normal(size=(3, 4)).astype(np.float32), regularizer, {"backbone": "tiny θ", **about})


@pytest.fixture
def folder(tmp_path):
    write_prompt(tmp_path / "prompt", artifact(), "# A card\n")
    return tmp_path / "prompt"


def test_what_was_written_comes_back_exactly(folder):
    found = read_prompt(folder)
    np.testing.assert_array_equal(found.prompt, artifact().prompt)
    assert found.regularizer.keys() == artifact().regularizer.keys()
    for name, value in artifact().regularizer.items():
        np.testing.assert_array_equal(found.regularizer[name], value)
    assert found.about["backbone"] == "tiny θ"
    assert (found.about["prompt_tokens"], found.about["width"]) == (3, 4)
    assert (folder / CARD).read_text() == "# A card\n"


def test_without_a_regularizer_there_is_none(tmp_path):
    write_prompt(tmp_path, PromptArtifact(artifact().prompt), "")
    assert not (tmp_path / REGULARIZER).exists()
    assert read_prompt(tmp_path).regularizer == {}


@pytest.mark.parametrize(("gate", "form"), [(4, "vector"), (1, "scalar")])
def test_the_form_of_the_gate_shows(tmp_path, gate, form):
    write_prompt(tmp_path, artifact(gate), "")
    assert read_prompt(tmp_path).gate == form


def test_the_same_content_gives_the_same_bytes_whatever_the_order_and_layout(folder, tmp_path):
    held = artifact()
    shuffled = dict(reversed(held.regularizer.items()))
    again = PromptArtifact(np.asfortranarray(held.prompt), shuffled, dict(reversed(held.about.items())))
    write_prompt(tmp_path / "again", again, "# A card\n")
    for name in (PROMPT, REGULARIZER, CONFIG, CARD):
        assert (folder / name).read_bytes() == (tmp_path / "again" / name).read_bytes()


def test_the_hash_is_that_of_the_prompt_alone(folder, tmp_path):
    write_prompt(tmp_path / "again", PromptArtifact(artifact().prompt, {}, {"backbone": "other"}), "")
    assert prompt_hash(folder) == prompt_hash(tmp_path / "again")
    write_prompt(tmp_path / "other", PromptArtifact(artifact().prompt + 1), "")
    assert prompt_hash(folder) != prompt_hash(tmp_path / "other")


def changed(**values):
    """The config with other values; None takes a key out."""

    def change(path):
        config = json.loads(path.read_text()) | values
        path.write_text(json.dumps({key: value for key, value in config.items() if value is not None}))

    return change


def written(content):
    return lambda path: path.write_bytes(content)


def cut(path):
    path.write_bytes(path.read_bytes()[:-3])


def prompt(**tensors):
    return written(save(tensors))


ONES = np.ones((3, 4), np.float32)


@pytest.mark.parametrize(
    ("name", "damage", "message"),
    [
        (CONFIG, lambda path: path.unlink(), "no config.json in it: give the folder of a prompt"),
        (CONFIG, written(b"{"), "config.json: cannot be read"),
        (CONFIG, written(b"[" * 100_000 + b"]" * 100_000), "config.json: cannot be read"),
        (CONFIG, written(b"\xff\xfe"), "config.json: cannot be read"),
        (CONFIG, written(b"[]"), "does not describe a supmer prompt"),
        (CONFIG, changed(kind="other"), "does not describe a supmer prompt"),
        (CONFIG, changed(version=2), "does not describe a supmer prompt of version 1"),
        (CONFIG, changed(width=5), "is 3 × 4, but config.json says 3 × 5"),
        (CONFIG, changed(prompt_tokens=None), "is 3 × 4, but config.json says None × 4"),
        (PROMPT, lambda path: path.unlink(), "prompt.safetensors: cannot be read"),
        (PROMPT, cut, "prompt.safetensors: cannot be read"),
        (PROMPT, written(b""), "prompt.safetensors: cannot be read"),
        (PROMPT, prompt(prompt=ONES, other=ONES), "should hold one matrix called prompt"),
        (PROMPT, prompt(weight=ONES), "should hold one matrix called prompt"),
        (PROMPT, prompt(prompt=ONES[0]), "should hold one matrix called prompt"),
        (PROMPT, prompt(prompt=ONES * np.float32("nan")), "prompt should hold finite float32 numbers"),
        (PROMPT, prompt(prompt=ONES.astype(np.float64)), "prompt should hold finite float32 numbers"),
        (REGULARIZER, cut, "regularizer.safetensors: cannot be read"),
        (REGULARIZER, prompt(up=ONES * np.float32("inf")), "up should hold finite float32 numbers"),
    ],
)
def test_every_damage_is_one_clear_line(folder, name, damage, message):
    damage(folder / name)
    with pytest.raises(InputError, match=message) as refused:
        read_prompt(folder)
    assert "\n" not in str(refused.value)
    assert str(folder) in str(refused.value)


def test_a_folder_that_is_not_there_is_one_clear_line(tmp_path):
    with pytest.raises(InputError, match="give the folder of a prompt"):
        read_prompt(tmp_path / "absent")


def test_writing_over_a_prompt_with_a_regularizer_leaves_none_of_it(folder):
    write_prompt(folder, PromptArtifact(artifact().prompt), "")
    assert read_prompt(folder).regularizer == {}


def test_numbers_of_a_kind_that_is_not_read_are_one_line(tmp_path):
    import torch
    from safetensors.torch import save_file

    from storage.prompts.prompt_artifact import read_tensors

    save_file({"prompt": torch.zeros(2, 3, dtype=torch.bfloat16)}, tmp_path / "prompt.safetensors")
    with pytest.raises(InputError, match=r"prompt\.safetensors: "):
        read_tensors(tmp_path / "prompt.safetensors")
