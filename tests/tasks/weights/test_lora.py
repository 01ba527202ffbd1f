"""LoRA from the stage: results, the adapter, predictions, resumption, refusals."""

import shutil

import orjson
import pytest
import torch

from model.tuning.classifier import PromptedClassifier
from model.tuning.fine_tuner import FineTuner
from storage import paths
from storage.errors import InputError
from support.tuned_methods import assert_predicts_as_the_stage, assert_resumed_to_the_same_bytes, rooms
from support.tuning_room import run_tune as run
from tasks.peft.exchange import export_adapter

pytestmark = pytest.mark.usefixtures("one_core")

SMALL = {
    "methods": ["lora"],
    "lora": {"rank": 2, "alpha": 4, "learning_rates": [0.01, 0.03], "micro_batch": 3},
}


furniture, corpus = rooms(SMALL)


def test_the_adapter_is_kept_and_peft_gives_the_numbers_of_our_classifier(corpus, furniture):
    from peft import PeftModel
    from transformers import T5ForConditionalGeneration

    record = run(corpus)
    assert set(record["scores"]["first, 4 shots"]) == {"lora"}
    folder, backbone = corpus.root / paths.TUNED_PROMPTS / "first/lora", furniture / "models/backbone"
    assert "rank 2" in (folder / "README.md").read_text()
    adapted = PeftModel.from_pretrained(T5ForConditionalGeneration.from_pretrained(backbone), folder).eval()
    plain = T5ForConditionalGeneration.from_pretrained(backbone).eval()
    ids, start = torch.tensor([[5, 6, 7, 1]]), torch.tensor([[0]])
    with torch.no_grad():
        ours, theirs = (model(input_ids=ids, decoder_input_ids=start).logits for model in (adapted, plain))
    assert not torch.allclose(ours, theirs)
    classifier = PromptedClassifier.from_pretrained(folder, backbone, any_backbone=True, precision="float32")
    with torch.no_grad():
        fast = classifier._passes.backbone
        mask = torch.ones(1, 4, dtype=torch.bool)
        logits = fast.decode(fast.encode(fast.embed(ids), mask), mask, start)
    torch.testing.assert_close(logits, ours, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_classifier_gives_the_predictions_of_the_stage(corpus, furniture, precision):
    run(corpus, precision=precision)
    folder = corpus.root / paths.TUNED_PROMPTS / "first/lora"
    kept = orjson.loads((folder / "supmer.json").read_bytes())
    assert kept["downstream"]["precision"] == precision
    assert_predicts_as_the_stage(corpus, furniture, folder, kept["tuned_hash"], precision)


def test_an_interrupted_run_goes_on_and_gives_the_same_bits(corpus):
    assert_resumed_to_the_same_bytes(corpus, 3, FineTuner)


def test_without_peft_it_is_refused_in_one_line(corpus, monkeypatch):
    monkeypatch.setattr("tasks.methods.find_spec", lambda _name: None)
    with pytest.raises(InputError, match=r"^method lora: needs the package peft: pip install 'supmer\[lora\]'"):
        run(corpus)


def test_export_says_that_it_is_an_adapter_already(corpus):
    run(corpus, seeds=[10])
    with pytest.raises(InputError, match=r"is a PEFT adapter: peft\.PeftModel\.from_pretrained loads it as it is"):
        export_adapter(corpus.root / paths.TUNED_PROMPTS / "first/lora", corpus.root / "exported", None)
    assert not (corpus.root / "exported").exists()


def test_when_memory_runs_out_its_own_parameter_is_named(corpus, monkeypatch):
    def full(_tuner):
        raise MemoryError("no more")

    monkeypatch.setattr(FineTuner, "descend", full)
    with pytest.raises(InputError, match=r"^first/lora: memory ran out \(no more\): lower tune\.lora\.micro_batch, or"):
        run(corpus)


def test_a_damaged_adapter_is_refused_in_one_line(corpus, furniture, tmp_path):
    run(corpus, seeds=[10])
    folder = tmp_path / "damaged"
    shutil.copytree(corpus.root / paths.TUNED_PROMPTS / "first/lora", folder)
    weights = folder / "adapter_model.safetensors"
    content = weights.read_bytes()
    weights.unlink()
    weights.write_bytes(content[:100])
    with pytest.raises(InputError, match="damaged: cannot be added to"):
        PromptedClassifier.from_pretrained(folder, furniture / "models/backbone", any_backbone=True)
