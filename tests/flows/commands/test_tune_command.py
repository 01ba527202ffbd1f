"""`supmer tune`: a user's own file becomes a prompt, with no registry entry; what is wrong is said in one line."""

import re
import shutil
from dataclasses import replace

import orjson
import pytest

from storage import paths
from storage.prompts.prefix_artifact import read_prefixes
from storage.prompts.prompt_artifact import read_prompt
from support.training_room import save_models
from support.tuning_room import write_learned, write_rows
from support.vector_corpus import Corpus
from support.workspaces import REPOSITORY

QUICK = ("--shots", "3", "--seeds", "1,2", "--learning-rates", "0.1,1.0", "--epochs", "3")
SETTINGS = ("-S", "metatrain.prompt_tokens=3", "-S", "metatrain.template=sentinel", "-S", "tune.max_length=40")


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    return save_models(tmp_path_factory.mktemp("models"))


@pytest.fixture
def supmer(tmp_path, models, monkeypatch, command_line):
    """The command in a small workspace: arguments to exit code, output and errors."""
    shutil.copyfile(REPOSITORY / "params.yaml", tmp_path / "params.yaml")
    (tmp_path / "dvc.yaml").write_text("stages: {}\n")
    for name in (".dvc", ".git", "elsewhere"):
        (tmp_path / name).mkdir()
    Corpus(tmp_path, {}).link_models(models)
    monkeypatch.chdir(tmp_path / "elsewhere")
    write_rows(tmp_path / "elsewhere" / "mine.jsonl", 20, "mine")

    def call(*arguments):
        monkeypatch.chdir(tmp_path / "elsewhere")  # the command goes to the workspace's root
        return command_line("tune", *arguments)

    return call


@pytest.mark.usefixtures("one_thread")
def test_a_file_becomes_a_prompt_and_a_table_of_results(supmer, tmp_path):
    code, out, err = supmer("--data", "mine.jsonl", "--text", "text", "--output", "mine", *QUICK, *SETTINGS)
    assert code == 0, err
    assert "4 runs together from pt-vocabulary" in out
    assert re.search(r"template, (float32|bfloat16) \(auto: this ", out)
    assert "accuracy on the rest: " in out
    assert "over 2 seeds" in out
    folder = tmp_path / "elsewhere" / "mine"
    downstream = read_prompt(folder).about["downstream"]
    assert downstream["fields"] == ["text"]
    assert (downstream["dataset"], downstream["shots"]) == ("mine", 3)
    rows = orjson.loads((folder / "results.json").read_bytes())
    assert [row["seed"] for row in rows] == [1, 2]
    assert [row["examples"] for row in rows] == [8, 8]  # what two times three of two labels leave of twenty
    assert downstream["validation_score"] == max(row["validation_score"] for row in rows)
    assert not list((tmp_path / ".supmer/own-tuning").glob("*"))


@pytest.mark.usefixtures("one_thread")
def test_it_starts_from_a_prompt_with_words_and_a_template_of_ones_own(supmer, tmp_path):
    write_learned(tmp_path / "elsewhere" / "learned", 4, 1, regularized=True)
    own = ("--template", "{text} It was <X>.", "--verbalizer", "0=river,1=city")
    code, _, err = supmer("--data", "mine.jsonl", "--prompt", "learned", "--output", "mine", *own, *QUICK, *SETTINGS)
    assert code == 0, err
    artifact = read_prompt(tmp_path / "elsewhere" / "mine")
    assert artifact.prompt.shape == (4, 16)
    downstream = artifact.about["downstream"]
    assert (downstream["template"], downstream["words"]) == ("{text} It was <X>.", ["river", "city"])
    assert downstream["method"] == "learned"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--data", "none.jsonl"), "none.jsonl: not there"),
        (("--data", "mine.jsonl", "--text", "review"), "review"),
        (("--data", "mine.jsonl", "--shots", "15"), "has 10 examples to learn from"),
        (("--data", "mine.jsonl", "--verbalizer", "0,1"), "write LABEL=WORD"),
        (("--data", "mine.jsonl", "--verbalizer", "0=yes,7=no"), "no word for 1"),
        (("--data", "mine.jsonl", "--verbalizer", "0=yes,1=no,0=maybe"), "names a label twice"),
        (("--data", "mine.jsonl", "--seeds", "ten"), "--seeds ten: write numbers"),
        (("--data", "mine.jsonl", "--learning-rates", "0"), "--learning-rates 0: rates must be above 0"),
        (
            ("--data", "mine.jsonl", "--seeds", "3000000000"),
            "--seeds 3000000000: seeds must be from 0 to 2,147,483,647",
        ),
        (("--data", "mine.jsonl", "--seeds", "1,1"), "--seeds 1,1: name each value once"),
        (("--data", "mine.jsonl", "--output", "mine.jsonl/x"), "mine.jsonl: name another place"),
        (("--data", "mine.jsonl", "--prompt", "no-such"), "no config.json in it"),
        (("--data", "mine.jsonl", "--prompt", "wide", "--init", "normal"), "the one or the other"),
        (("--data", "mine.jsonl", "--method", "pt", "--init", "normal"), "--method and --init: a tuning starts from"),
        (("--data", "mine.jsonl", "--method", "bitfit"), "'bitfit' is not one of"),
        (("--data", "mine.jsonl", "--backbone", "no-such"), "give the folder of a model"),
        (("--data", "mine.jsonl", "--template", "{text} {other}"), "other"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(supmer, tmp_path, arguments, said):
    code, _, err = supmer("--output", "mine", *arguments, *SETTINGS)
    assert code == 2
    assert said in err
    assert len(err.strip().splitlines()) == 1
    assert not (tmp_path / "elsewhere" / "mine").exists()


def test_a_prompt_of_another_backbone_is_refused(supmer, tmp_path):
    import numpy as np

    from storage.prompts.prompt_artifact import PromptArtifact, write_prompt

    here = tmp_path / "elsewhere"
    write_prompt(here / "wide", PromptArtifact(np.zeros((3, 20), np.float32)), "")
    code, _, err = supmer("--data", "mine.jsonl", "--prompt", "wide", "--output", "mine", *QUICK, *SETTINGS)
    assert (code, "its rows have 20 numbers, the backbone path:x takes 16" in err) == (2, True)
    about = {"backbone": {"source": "hf:other/model", "hash": "0" * 64}}
    write_prompt(here / "foreign", PromptArtifact(np.zeros((3, 16), np.float32), {}, about), "")
    code, _, err = supmer("--data", "mine.jsonl", "--prompt", "foreign", "--output", "mine", *QUICK, *SETTINGS)
    assert (code, "was learned for hf:other/model (000000000000)" in err) == (2, True)


@pytest.mark.usefixtures("one_thread")
def test_a_prompt_that_does_not_know_the_files_of_its_backbone_may_start(supmer, tmp_path):
    import numpy as np

    from storage.prompts.prompt_artifact import PromptArtifact, write_prompt

    about = {"backbone": {"source": "hf:org/model", "hash": ""}}
    write_prompt(tmp_path / "elsewhere/foreign", PromptArtifact(np.ones((3, 16), np.float32), {}, about), "")
    code, _, err = supmer("--data", "mine.jsonl", "--prompt", "foreign", "--text", "text", *QUICK, *SETTINGS)
    assert code == 0, err
    assert read_prompt(tmp_path / "elsewhere" / "mine-prompt").about["downstream"]["method"] == "foreign"


@pytest.mark.usefixtures("one_thread")
def test_a_seed_that_died_is_not_taken_for_the_best(supmer, tmp_path, monkeypatch):
    from tasks.tune import tuned_seeds

    def dying(setup, seeds, *rest):
        first, second = tuned(setup, seeds, *rest)
        dead = [replace(one, status="nan", best=replace(one.best, validation_score=1.0)) for one in first.results]
        return [replace(first, results=tuple(dead)), second]

    tuned = tuned_seeds.tune_seeds
    monkeypatch.setattr(tuned_seeds, "tune_seeds", dying)
    code, out, err = supmer("--data", "mine.jsonl", "--text", "text", "--output", "mine", *QUICK, *SETTINGS)
    assert code == 0, err
    assert "nan" in out
    assert read_prompt(tmp_path / "elsewhere" / "mine").about["downstream"]["seed"] == 2


@pytest.mark.usefixtures("one_thread")
def test_after_ctrl_c_the_same_command_goes_on_unless_the_regularizer_is_another(supmer, tmp_path, monkeypatch):
    from model.tuning.tuner import Tuner

    def interrupted(self):
        if self.step == 2:
            raise KeyboardInterrupt
        plain(self)

    plain, here = Tuner.advance, tmp_path / "elsewhere"
    command = ("--data", "mine.jsonl", "--prompt", "learned", "--text", "text", *QUICK, *SETTINGS)
    command += ("-S", "tune.checkpoint_seconds=0.000001")
    write_learned(here / "learned", 3, 1, regularized=True)
    monkeypatch.setattr(Tuner, "advance", interrupted)
    code, _, err = supmer(*command)
    assert (code, "interrupted: the same command continues" in err) == (130, True)
    monkeypatch.setattr(Tuner, "advance", plain)
    assert "continuing from step 2" in supmer(*command)[1]
    monkeypatch.setattr(Tuner, "advance", interrupted)
    assert supmer(*command, "--output", "other")[0] == 130
    monkeypatch.setattr(Tuner, "advance", plain)
    theta = (here / "learned" / "prompt.safetensors").read_bytes()
    write_learned(here / "learned", 3, 2, regularized=True)
    (here / "learned" / "prompt.safetensors").write_bytes(theta)
    code, out, err = supmer(*command, "--output", "other")
    assert (code, "continuing" in out) == (0, False), err


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("method", ["prefix-tuning", "p-tuning-v2"])
def test_prefixes_are_tuned_on_a_file_and_resumed_after_ctrl_c(supmer, tmp_path, monkeypatch, method):
    from model.tuning.tuner import Tuner

    def interrupted(self):
        if self.step == 2:
            raise KeyboardInterrupt
        plain(self)

    plain, group = Tuner.advance, method.replace("-", "_")
    command = ("--data", "mine.jsonl", "--method", method, "--output", "mine", *QUICK, *SETTINGS)
    command += ("-S", f"tune.{group}.length=3", "-S", "tune.checkpoint_seconds=0.000001")
    monkeypatch.setattr(Tuner, "advance", interrupted)
    assert supmer(*command)[0] == 130
    monkeypatch.setattr(Tuner, "advance", plain)
    code, out, err = supmer(*command)
    assert code == 0, err
    assert "continuing from step 2" in out
    assert "the prefixes of the seed with the best validation score" in out
    artifact = read_prefixes(tmp_path / "elsewhere" / "mine")
    assert artifact.tokens == 3
    assert artifact.about["downstream"]["method"] == method
    assert sorted(path.name for path in (tmp_path / "elsewhere" / "mine").iterdir()) == [
        "README.md", "config.json", "curves.parquet", "prefixes.safetensors", "results.json",
    ]  # fmt: skip


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("method", ["ppt", "unified-ppt", "metapt", "supmer-labeled", "supmer-mixed"])
def test_a_method_that_starts_from_a_learned_prompt_finds_it_in_the_workspace(supmer, tmp_path, method):
    folder = tmp_path / paths.PROMPTS / ("ppt-ss" if method == "ppt" else method)
    command = ("--data", "mine.jsonl", "--method", method, "--output", "mine", *QUICK, *SETTINGS)
    code, _, err = supmer(*command)
    assert (code, f"method {method}: no prompt in {folder}: `supmer run metatrain` makes it" in err) == (2, True)
    write_learned(folder, 4, 1, regularized=False)
    code, _, err = supmer(*command)
    assert code == 0, err
    downstream = read_prompt(tmp_path / "elsewhere" / "mine").about["downstream"]
    assert downstream["method"] == method
    if method == "unified-ppt":
        assert downstream["template"] == "{text}? A.0 B.1. Answer: <X>"
        assert (downstream["words"], downstream["labels"]) == (["A", "B"], ["0", "1"])


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("method", ["zero-shot", "few-shot"])
def test_a_method_that_trains_nothing_is_only_tested(supmer, tmp_path, method):
    code, out, err = supmer("--data", "mine.jsonl", "--method", method, "--output", "mine", *QUICK, *SETTINGS)
    assert code == 0, err
    assert "accuracy on the rest: " in out
    assert f"{method} trains nothing" in out
    assert not (tmp_path / "elsewhere" / "mine").exists()


def test_an_output_that_is_there_is_left_alone(supmer, tmp_path):
    (tmp_path / "elsewhere" / "mine").mkdir()
    code, _, err = supmer("--data", "mine.jsonl", "--output", "mine")
    assert (code, "already exists" in err) == (2, True)


def test_a_classifier_to_compare_with_is_tested_and_not_written(supmer, tmp_path):
    code, out, err = supmer("--data", "mine.jsonl", "--text", "text", "--method", "tfidf", *QUICK, *SETTINGS)
    assert code == 0, err
    assert "4 fits of tfidf" in out
    assert "accuracy on the rest: " in out
    assert "tfidf is there to compare with" in out
    assert not (tmp_path / "elsewhere" / "mine-prompt").exists()


def test_a_shipped_prompt_is_named_by_its_folder(supmer):
    code, out, err = supmer("--data", "mine.jsonl", "--text", "text", "--method", "supmer-shipped")
    assert (code, out) == (2, "")
    assert err == "supmer: method supmer-shipped: name the prompt itself: --prompt prompts/NAME\n"
