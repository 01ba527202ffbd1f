"""A shipped prompt starts tunings: what README and pages tell a person to type works, on a small prompt and model."""

import re
import shutil

import numpy as np
import pyarrow as pa
import pytest
from ruamel.yaml import YAML

from storage.prompts.prompt_artifact import PromptArtifact, read_prompt, write_prompt
from storage.prompts.shipped_prompt import write_documents, write_hashes
from support.documented import mentions
from support.tuned_prompts import WIDTH, acquire_backbone, folder_hash, save_backbone
from support.workspaces import REPOSITORY

pytestmark = pytest.mark.usefixtures("one_thread")

NAME = "t5-77m-news-reviews"  # of the prompt that the pages name
PAGES = ("README.md", "docs/using-a-prompt.md", "prompts/README.md")
COMMANDS = [
    [word.replace("prompts/NAME", f"prompts/{NAME}") for word in words]
    for page in PAGES
    for _, words in mentions((REPOSITORY / page).read_text())
    if words[:1] in (["tune"], ["lineage"]) and any(word.startswith("prompts/") for word in words)
]
PROGRAM = re.findall(r"```python\n(.*?)```", (REPOSITORY / "README.md").read_text(), re.DOTALL)[0]
QUICK = {"epochs": 2, "learning_rates": [1.0], "seeds": [10], "shots": 4, "max_length": 40}


def write_shipped(folder, backbone):
    """Write a prompt as `supmer ship` does, learned for a backbone from one document."""
    source = {"role": "corpus", "name": "news", "spec": "wheel:news==1.0", "licence": "MIT", "files": []}
    record = {"documents": 1, "learned": {"time": "2026-11-18T12:00:00"}, "sources": [source], "variant": "supmer"}
    about = {
        "backbone": {"source": f"path:{backbone}", "hash": folder_hash(backbone)},
        "training": {"template": "instruction"},
        "shipped": record,
    }
    prompt = np.random.default_rng(1).normal(size=(4, WIDTH)).astype(np.float32)
    write_prompt(folder, PromptArtifact(prompt, {}, about), "# a card\n")
    row = {"document_id": "0" * 32, "source": "news", "file": "news.csv", "row": 1, "split": "train"}
    write_documents(folder, pa.Table.from_pylist([row]))
    write_hashes(folder)


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    return save_backbone(folder / "t5"), save_backbone(folder / "other", seed=1)


@pytest.fixture
def room(tmp_path, models, monkeypatch):
    """A workspace with a backbone, the prompt that was shipped for it, and a person's own examples."""
    root = acquire_backbone(tmp_path / "room", models[0])
    write_shipped(root / "prompts" / NAME, models[0])
    params = YAML().load(REPOSITORY / "params.yaml")
    params["tune"] |= QUICK
    YAML().dump(params, root / "params.yaml")
    shutil.copyfile(REPOSITORY / "dvc.yaml", root / "dvc.yaml")
    for name in (".dvc", ".git"):
        (root / name).mkdir()
    texts = [(f"a {word} of the {place} {number}", word) for number in range(36) for word, place in PLACES.items()]
    (root / "my.csv").write_text("text,label\n" + "".join(f"{text},{label}\n" for text, label in texts))
    lines = [f'{{"review": "{text}", "stars": "{label}"}}\n' for text, label in texts]
    (root / "my.jsonl").write_text("\n".join(lines))  # with blank lines between
    monkeypatch.chdir(root)
    return root


PLACES = {"river": "city", "winter": "garden"}


def test_every_command_that_names_a_shipped_prompt_works(room, command_line):
    assert sorted({words[0] for words in COMMANDS}) == ["lineage", "tune"]
    for words in COMMANDS:
        shutil.rmtree(room / "my-prompt", ignore_errors=True)
        code, out, err = command_line(*words)
        assert code == 0, f"{words}: {err}"
        if words[0] == "lineage":
            assert "corpus news: wheel:news==1.0, licence MIT" in out
            continue
        assert f"1 run from {room / 'prompts' / NAME}, instruction template" in out
        tuned = read_prompt(room / "my-prompt").about["downstream"]
        assert (tuned["method"], tuned["form"], tuned["labels"]) == (NAME, "instruction", ["river", "winter"])
        code, out, err = command_line("predict", "--prompt", "my-prompt", "--data", "my.jsonl", "--text", "review")
        assert (code, len(out.splitlines())) == (0, 72), err


@pytest.mark.usefixtures("room")
def test_the_readme_starts_from_it_in_ten_lines_of_python(capsys):
    assert len(PROGRAM.splitlines()) == 10
    exec(PROGRAM, {})  # noqa: S102 - what a reader of the page would do
    score, predictions = capsys.readouterr().out.splitlines()
    assert 0 <= float(score) <= 1
    assert predictions.count("Prediction(label='") == 2


def test_without_its_backbone_it_is_refused_in_one_line_before_torch_is_needed(room, models, monkeypatch, command_line):
    monkeypatch.setattr("flows.commands.tune._own", None)  # where torch is imported
    command = ("tune", "--prompt", f"prompts/{NAME}", "--data", "my.csv", "--output", "mine")
    shutil.rmtree(room / "data")
    code, _, err = command_line(*command)
    assert (code, err.count("\n"), "run `supmer run acquire`" in err) == (2, 1, True), err
    acquire_backbone(room, models[1])
    code, _, err = command_line(*command)
    assert (code, err.count("\n")) == (2, 1), err
    assert f"was learned for path:{models[0]} (" in err
    assert f"the backbone here is path:{models[1]} (" in err
