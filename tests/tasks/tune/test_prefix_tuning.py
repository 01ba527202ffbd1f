"""Prefix-Tuning and P-Tuning v2 from the stage: results, artifacts, predictions; what does not fit is refused."""

import shutil

import pytest
import torch

from model.tuning.classifier import PromptedClassifier
from model.tuning.tuner import Tuner
from storage import paths
from storage.atomic import remove
from storage.errors import InputError
from storage.prompts.prefix_artifact import is_prefixes, prefixes_hash, read_prefixes
from storage.prompts.prompt_artifact import read_prompt
from support.meta_examples import bart
from support.training_room import save_backbone
from support.tuned_methods import (
    assert_predicts_as_the_stage,
    assert_resumed_to_the_same_bytes,
    die_in_training,
    rooms,
)
from support.tuning_room import run_tune as run
from support.vector_corpus import contents
from tasks.params.learning_schema import PLACES
from tasks.peft.exchange import export_adapter
from tasks.tune import stage as tune

pytestmark = pytest.mark.usefixtures("one_core")

METHODS = ["prefix-tuning", "p-tuning-v2"]
SMALL = {
    "methods": METHODS,
    "prefix_tuning": {"length": 3, "hidden_size": 5, "learning_rates": [0.001, 0.01]},
    "p_tuning_v2": {"length": 2, "places": ["encoder", "cross"], "learning_rates": [0.1]},
}


furniture, corpus = rooms(SMALL)


def test_both_methods_are_tuned_tested_and_kept(corpus):
    record = run(corpus)
    assert set(record["scores"]["first, 4 shots"]) == {*METHODS}
    network, direct = (read_prefixes(corpus.root / paths.TUNED_PROMPTS / "first" / name) for name in METHODS)
    assert {name: value.shape for name, value in network.tensors.items()} == {
        f"{place}.{part}": (2, 3, 4, 4) for place in PLACES for part in ("keys", "values")
    }
    assert {name: value.shape for name, value in direct.tensors.items()} == {
        f"{place}.{part}": (2, 2, 4, 4) for place in ("cross", "encoder") for part in ("keys", "values")
    }
    card = (corpus.root / paths.TUNED_PROMPTS / "first/prefix-tuning/README.md").read_text()
    assert "3 positions" in card
    assert "supmer predict" in card
    assert network.about["downstream"]["method"] == "prefix-tuning"


def test_the_same_inputs_give_the_same_bytes_and_one_more_seed_only_its_own_work(corpus):
    run(corpus)
    before = contents(corpus.root / paths.TUNED_PROMPTS), contents(corpus.root / paths.PREDICTIONS)
    run(corpus, seeds=[10, 20, 30], methods=["p-tuning-v2"])
    assert [name for name in corpus.done if "seed" not in name] == [
        "tune-tune/first/p-tuning-v2-4",
        "tune-test/first/p-tuning-v2-4-30-on-first",
    ]
    remove(corpus.root / ".supmer")
    run(corpus, seeds=[10, 20], methods=METHODS)
    assert (contents(corpus.root / paths.TUNED_PROMPTS), contents(corpus.root / paths.PREDICTIONS)) == before


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("method", METHODS)
def test_a_classifier_gives_the_predictions_of_the_stage(corpus, furniture, method, precision):
    run(corpus, methods=[method], precision=precision)
    folder = corpus.root / paths.TUNED_PROMPTS / "first" / method
    assert is_prefixes(folder)
    tuned_hash = prefixes_hash(read_prefixes(folder).tensors)
    assert_predicts_as_the_stage(corpus, furniture, folder, tuned_hash, precision)


def test_prefixes_of_another_backbone_are_refused_in_one_line(corpus, tmp_path):
    run(corpus, methods=["p-tuning-v2"])
    folder = corpus.root / paths.TUNED_PROMPTS / "first" / "p-tuning-v2"
    save_backbone(tmp_path / "deeper", num_layers=3)
    with pytest.raises(
        InputError, match=r"cross.keys has the shape 2 × 2 × 4 × 4, and the backbone takes 3 × 2 × 4 × 4"
    ):
        PromptedClassifier.from_pretrained(folder, tmp_path / "deeper", any_backbone=True)


def test_a_damaged_folder_is_refused(corpus):
    run(corpus, methods=["p-tuning-v2"], seeds=[10])
    folder = corpus.root / "copy"
    shutil.copytree(corpus.root / paths.TUNED_PROMPTS / "first" / "p-tuning-v2", folder)
    content = (folder / "prefixes.safetensors").read_bytes()
    (folder / "prefixes.safetensors").chmod(0o644)
    (folder / "prefixes.safetensors").write_bytes(content[:100])
    with pytest.raises(InputError, match=r"prefixes\.safetensors: cannot be read"):
        read_prefixes(folder)
    with pytest.raises(InputError, match="describes prefixes, not a prompt"):
        read_prompt(folder)


def test_export_to_peft_says_why_not(corpus):
    run(corpus, methods=["p-tuning-v2"], seeds=[10])
    folder = corpus.root / paths.TUNED_PROMPTS / "first" / "p-tuning-v2"
    with pytest.raises(InputError, match="holds prefixes, which PEFT cannot express for T5"):
        export_adapter(folder, corpus.root / "adapter", None)
    assert not (corpus.root / "adapter").exists()


def test_another_kind_of_backbone_is_refused_by_name(corpus, monkeypatch):
    from model.t5.backbone import backbone_of
    from tasks.tune import shards

    monkeypatch.setattr(shards, "_backbone", lambda *_arguments, **_form: backbone_of(bart(torch.float32)))
    with pytest.raises(InputError, match=r"tune: p-tuning-v2: prefixes need a backbone of the T5 family .*bart"):
        run(corpus, methods=["p-tuning-v2"])


def test_after_a_kill_the_same_bits(corpus):
    assert_resumed_to_the_same_bytes(corpus, 3, Tuner)


def test_checkpoints_of_one_precision_are_not_continued_in_the_other(corpus):
    chosen = {"methods": ["p-tuning-v2"]}
    die_in_training(corpus, 3, Tuner, precision="float32", **chosen)
    assert list((corpus.root / tune.WORK).rglob("step-*"))
    run(corpus, precision="bfloat16", **chosen)
    assert not any("continuing from step" in line for line in corpus.said)


def test_the_places_of_the_parameters_are_those_of_the_model():
    from model.t5.prefix_attention import PLACES as IN_MODEL

    assert PLACES == IN_MODEL
