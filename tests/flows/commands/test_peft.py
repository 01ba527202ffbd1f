"""Prompts leave for Hugging Face PEFT and come from it; the real package loads them, and gives the same numbers."""

import json
import os
import pickle
import string

import numpy as np
import pytest
import torch
from peft import LoraConfig, PeftConfig, PeftModel, PromptTuningConfig, TaskType, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

from model.prompt.rows import encoder_inputs
from model.t5.backbone import backbone_of
from model.text.tokenized_tasks import Example
from storage.prompts.prompt_artifact import read_prompt
from supmer import PromptedClassifier
from support.tuned_prompts import PAIR, TEXTS, WIDTH, acquire_backbone, change_config, save_backbone, save_prompt

pytestmark = pytest.mark.usefixtures("one_thread")

ODD = PAIR | {"fields": ["a.b", "2"], "template": "{{yes}} {a.b} 'no' {2} Answer: <X>"}


@pytest.fixture
def tuned(tmp_path, backbone):
    return save_prompt(tmp_path / "tuned", backbone)


@pytest.fixture
def supmer(tmp_path, monkeypatch, command_line):
    """Run the command line in an empty folder; its exit code, and what it said."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments):
        code, out, err = command_line(*arguments)
        return code, out + err

    return run


def snippet(card):
    """The program of a card."""
    return card.partition("```python\n")[2].partition("```")[0]


def saved_by_peft(backbone, folder, **settings):
    """An adapter that PEFT made and saved itself."""
    named = {"task_type": TaskType.SEQ_2_SEQ_LM, "num_virtual_tokens": 5, "num_transformer_submodules": 1} | settings
    model = get_peft_model(AutoModelForSeq2SeqLM.from_pretrained(backbone), PromptTuningConfig(**named))
    model.save_pretrained(folder)
    return model.eval()


class TestExport:
    @pytest.mark.parametrize("fast", [True, False])
    def test_peft_gives_the_logits_that_our_forward_gives_for_a_padded_batch(self, supmer, tuned, backbone, fast):
        code, said = supmer("export", "--to", "peft", "out", "--prompt", tuned, "--backbone", backbone)
        assert (code, said) == (
            0,
            f"out: a PEFT adapter of 4 tokens, width 16, for {os.path.relpath(backbone, 'out')}\n",
        )
        model = PeftModel.from_pretrained(AutoModelForSeq2SeqLM.from_pretrained(backbone), "out").eval()
        tokenizer = AutoTokenizer.from_pretrained(backbone)
        given = tokenizer(TEXTS, padding=True, return_tensors="pt")
        assert not given.attention_mask.all()  # there is padding
        labels = torch.tensor([[5, 6, 7]] * len(TEXTS))
        with torch.no_grad():
            theirs = model(**given, labels=labels).logits
        ours = backbone_of(AutoModelForSeq2SeqLM.from_pretrained(backbone), fast=fast)
        examples = [Example("", 0, np.array(tokenizer(text).input_ids, np.int32), np.array([5])) for text in TEXTS]
        prompts = torch.from_numpy(np.array(read_prompt(tuned).prompt))[None]
        inputs = encoder_inputs(ours, prompts, torch.zeros(len(TEXTS), dtype=torch.long), examples, None)
        with torch.no_grad():
            hidden = ours.encode(inputs.embeddings, inputs.mask)
            found = ours.decode(hidden, inputs.mask, torch.tensor([[0, 5, 6]] * len(TEXTS)))
        torch.testing.assert_close(found, theirs, rtol=1e-4, atol=1e-4)

    @pytest.mark.parametrize("downstream", [None, PAIR, ODD], ids=["one text", "two texts", "odd names"])
    def test_the_program_of_the_card_works_word_for_word(
        self, supmer, tuned, backbone, tmp_path, monkeypatch, capsys, downstream
    ):
        prompt = save_prompt(tmp_path / "pair", backbone, downstream) if downstream else tuned
        supmer("export", "--to", "peft", "out", "--prompt", prompt, "--backbone", backbone)
        monkeypatch.chdir("out")
        held = {}
        exec(snippet((tmp_path / "out/README.md").read_text()), held)  # noqa: S102 - what a reader of the card would do
        classifier = PromptedClassifier.from_pretrained(prompt, backbone, precision="float32")
        (expected,) = classifier.predict([[f"A {name} to label." for name in classifier.fields]])
        printed = eval(capsys.readouterr().out)  # noqa: S307 - a dictionary that the program printed
        assert printed == pytest.approx(expected.probabilities, abs=1e-4)
        names = string.Formatter().parse(held["template"])
        fields = [name for _, name, _, _ in names if name]
        found = held["probabilities"]([dict.fromkeys(fields, text) for text in TEXTS])
        wanted = classifier.predict([[text] * len(classifier.fields) for text in TEXTS])
        wanted = [list(one.probabilities.values()) for one in wanted]
        np.testing.assert_allclose(found, wanted, atol=1e-4)

    def test_a_start_for_tuning_is_loaded_as_such_by_its_card(self, supmer, backbone, tmp_path, monkeypatch):
        start = save_prompt(tmp_path / "start", backbone, downstream=None)
        supmer("export", "--to", "peft", "out", "--prompt", start, "--backbone", backbone)
        monkeypatch.chdir("out")
        held = {}
        exec(snippet((tmp_path / "out/README.md").read_text()), held)  # noqa: S102 - what a reader of the card would do
        trainable = {name: one for name, one in held["model"].named_parameters() if one.requires_grad}
        assert [*trainable] == ["prompt_encoder.default.embedding.weight"]
        np.testing.assert_array_equal(*(one.detach().numpy() for one in trainable.values()), read_prompt(start).prompt)

    def test_peft_finds_the_model_by_the_adapter_alone(self, supmer, tuned, backbone, monkeypatch):
        supmer("export", "--to", "peft", "out", "--prompt", tuned, "--backbone", backbone)
        monkeypatch.chdir("out")
        base = PeftConfig.from_pretrained(".").base_model_name_or_path
        assert AutoModelForSeq2SeqLM.from_pretrained(base).config.d_model == WIDTH

    def test_no_file_of_an_adapter_has_a_path_of_this_machine(self, supmer, backbone, tmp_path):
        prompt = save_prompt(tmp_path / "local", backbone, source=f"path:{backbone}")
        supmer("export", "--to", "peft", "out", "--prompt", prompt, "--backbone", backbone)
        for file in (tmp_path / "out").iterdir():
            assert str(backbone).encode() not in file.read_bytes(), file
            assert str(tmp_path).encode() not in file.read_bytes(), file
        assert json.loads((tmp_path / "out/supmer.json").read_text())["downstream"]["backbone"]["source"] == (
            f"path:{backbone.name}"
        )

    def test_a_model_of_the_hub_is_named_as_there(self, supmer, tuned, tmp_path):
        assert supmer("export", "--to", "peft", "out", "--prompt", tuned)[0] == 0
        config = json.loads((tmp_path / "out/adapter_config.json").read_text())
        assert (config["base_model_name_or_path"], config["revision"]) == ("org/tiny-t5", "abc")
        assert "AutoTokenizer.from_pretrained(base, revision='abc')" in (tmp_path / "out/README.md").read_text()
        assert supmer("export", "--to", "peft", "other", "--prompt", tuned, "--backbone", "org/copy")[0] == 0
        config = json.loads((tmp_path / "other/adapter_config.json").read_text())
        assert (config["base_model_name_or_path"], config["revision"]) == ("org/copy", None)

    def test_in_a_workspace_its_only_prompt_and_its_backbone_are_taken(self, supmer, tmp_path, backbone):
        acquire_backbone(tmp_path, backbone)
        save_prompt(tmp_path / "artifacts/tuned/movies/supmer", backbone, source=f"path:{backbone}")
        assert supmer("export", "--to", "peft", "out") == (
            0,
            f"out: a PEFT adapter of 4 tokens, width 16, for {os.path.relpath(backbone, 'out')}\n",
        )
        save_prompt(tmp_path / "artifacts/tuned/movies/pt", backbone)
        code, said = supmer("export", "--to", "peft", "other")
        assert code == 2
        assert "artifacts has artifacts/tuned/movies/pt, artifacts/tuned/movies/supmer: give the folder of one" in said

    def test_what_cannot_be_exported_is_one_line_and_leaves_nothing(self, supmer, tuned, tmp_path):
        wide, other = save_backbone(tmp_path / "wide", width=8), save_backbone(tmp_path / "other", seed=1)
        named = ["export", "--to", "peft", "out", "--prompt"]
        for arguments, message in [
            ([tuned, "--backbone", other], "not the backbone that"),
            ([tuned, "--backbone", wide, "--any-backbone"], "has the width 8, and"),
            ([tmp_path / "nothing"], "no config.json in it"),
            ([tuned, "--backbone", "no such place"], "is not org/name"),
        ]:
            code, said = supmer(*named, *arguments)
            assert (code, said.count("\n")) == (2, 1)
            assert message in said
        assert sorted(path.name for path in tmp_path.iterdir()) == ["other", "tuned", "wide"]
        assert supmer(*named[:3], "tuned", "--prompt", tuned)[1].startswith("supmer: tuned: already exists")


class TestImport:
    def test_what_was_exported_comes_back_as_it_was(self, supmer, tuned, backbone, tmp_path):
        supmer("export", "--to", "peft", "out", "--prompt", tuned, "--backbone", backbone)
        assert supmer("import", "--from", "peft", "out", "back") == (0, "back: a prompt of 4 tokens, width 16\n")
        before, after = read_prompt(tuned), read_prompt(tmp_path / "back")
        np.testing.assert_array_equal(after.prompt, before.prompt)
        assert after.about["downstream"] == before.about["downstream"]
        found = PromptedClassifier.from_pretrained(tmp_path / "back", backbone).predict(TEXTS)
        assert found == PromptedClassifier.from_pretrained(tuned, backbone).predict(TEXTS)

    def test_an_adapter_of_peft_s_own_predicts_as_it_does_there(self, supmer, backbone, tmp_path):
        model = saved_by_peft(backbone, tmp_path / "adapter")
        task = ["--template", "{text} Answer: <X>.", "--label", "bad=no", "--label", "good=yes"]
        assert supmer("import", "--from", "peft", "adapter", "ours", *task)[0] == 0
        classifier = PromptedClassifier.from_pretrained(tmp_path / "ours", backbone, precision="float32")
        tokenizer = AutoTokenizer.from_pretrained(backbone)
        rendered = [f"{text} Answer: <extra_id_0>." for text in TEXTS]
        scores = []
        for target in ("<extra_id_0> no", "<extra_id_0> yes"):
            ids = tokenizer(target, add_special_tokens=False, return_tensors="pt").input_ids.repeat(len(TEXTS), 1)
            with torch.no_grad():
                logits = model(**tokenizer(rendered, padding=True, return_tensors="pt"), labels=ids).logits
            scores.append(logits.log_softmax(-1).gather(2, ids.unsqueeze(2)).sum((1, 2)))
        found = [list(one.probabilities.values()) for one in classifier.predict(TEXTS)]
        np.testing.assert_allclose(found, torch.stack(scores, 1).softmax(1), atol=1e-4)
        assert classifier.labels == ("bad", "good")

    def test_without_a_task_it_is_a_start_for_tuning(self, supmer, backbone, tmp_path):
        saved_by_peft(backbone, tmp_path / "adapter")
        code, said = supmer("import", "--from", "peft", "adapter", "ours")
        assert (code, said) == (0, "ours: a prompt of 5 tokens, width 16, without a task\n")
        held = read_prompt(tmp_path / "ours")
        weights = load_file(tmp_path / "adapter/adapter_model.safetensors")["prompt_embeddings"]
        np.testing.assert_array_equal(held.prompt, weights.numpy())
        assert held.about["backbone"] == {"source": f"path:{backbone}", "hash": ""}
        assert str(backbone) in (tmp_path / "ours/README.md").read_text()

    @pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
    def test_other_precisions_are_taken(self, supmer, backbone, tmp_path, dtype):
        saved_by_peft(backbone, tmp_path / "adapter")
        values = torch.arange(5 * WIDTH).reshape(5, WIDTH) / 8  # exact in all of them
        save_file({"prompt_embeddings": values.to(dtype)}, tmp_path / "adapter/adapter_model.safetensors")
        assert supmer("import", "--from", "peft", "adapter", "ours")[0] == 0
        np.testing.assert_array_equal(read_prompt(tmp_path / "ours").prompt, values.numpy())


class Code:
    def __reduce__(self):
        return (print, ("code was run",))


class TestRefusals:
    def refused(self, supmer, tmp_path, message, *arguments):
        code, said = supmer("import", "--from", "peft", "adapter", "ours", *arguments)
        assert (code, said.count("\n")) == (2, 1)
        assert message in said
        assert "code was run" not in said
        assert not (tmp_path / "ours").exists()

    def test_an_adapter_that_prompts_the_decoder_too(self, supmer, backbone, tmp_path):
        saved_by_peft(backbone, tmp_path / "adapter", num_transformer_submodules=None)  # PEFT's default
        self.refused(supmer, tmp_path, "num_transformer_submodules is 2, which prompts the decoder too")

    def test_an_adapter_of_another_kind(self, supmer, backbone, tmp_path):
        settings = LoraConfig(task_type=TaskType.SEQ_2_SEQ_LM, r=2, target_modules=["q"])
        get_peft_model(AutoModelForSeq2SeqLM.from_pretrained(backbone), settings).save_pretrained(tmp_path / "adapter")
        self.refused(supmer, tmp_path, "an adapter of type LORA")

    def test_a_pickled_adapter_which_is_not_opened(self, supmer, backbone, tmp_path):
        saved_by_peft(backbone, tmp_path / "adapter")
        (tmp_path / "adapter/adapter_model.safetensors").unlink()
        (tmp_path / "adapter/adapter_model.bin").write_bytes(pickle.dumps(Code()))
        self.refused(supmer, tmp_path, "pickled files may hold programs and are not opened")

    @pytest.mark.parametrize(
        ("tensors", "message"),
        [
            ({"prompt_embeddings": torch.zeros(4, WIDTH)}, "is 4 × 16, but adapter_config.json says 5 × 16"),
            ({"prompt_embeddings": torch.full((5, WIDTH), float("nan"))}, "should hold finite numbers"),
            ({"prompt_embeddings": torch.full((5, WIDTH), 1e300, dtype=torch.float64)}, "should hold finite numbers"),
            ({"prompt_embeddings": torch.zeros(5, WIDTH, dtype=torch.int64)}, "is I64 of shape [5, 16]"),
            ({"prompt_embeddings": torch.zeros(5 * WIDTH)}, "is F32 of shape [80]"),
            ({"other": torch.zeros(5, WIDTH)}, "holds other, where a prompt has prompt_embeddings alone"),
        ],
    )
    def test_tensors_that_are_no_prompt(self, supmer, backbone, tmp_path, tensors, message):
        saved_by_peft(backbone, tmp_path / "adapter")
        save_file(tensors, tmp_path / "adapter/adapter_model.safetensors")
        self.refused(supmer, tmp_path, message)

    def test_files_that_are_damaged_or_missing(self, supmer, backbone, tmp_path):
        self.refused(supmer, tmp_path, "adapter: no adapter_config.json in it")
        saved_by_peft(backbone, tmp_path / "adapter")
        tensors, config = tmp_path / "adapter/adapter_model.safetensors", tmp_path / "adapter/adapter_config.json"
        tensors.write_bytes(tensors.read_bytes()[:-5])
        self.refused(supmer, tmp_path, "adapter_model.safetensors: cannot be read")
        tensors.unlink()
        self.refused(supmer, tmp_path, "adapter_model.safetensors: cannot be read")
        config.write_text(json.dumps(json.loads(config.read_text()) | {"task_type": "CAUSAL_LM"}))
        self.refused(supmer, tmp_path, "an adapter for the task CAUSAL_LM")
        config.write_text("[]")
        self.refused(supmer, tmp_path, "adapter_config.json: not a JSON object")
        config.write_text("{")
        self.refused(supmer, tmp_path, "adapter_config.json: cannot be read")

    def test_a_task_that_is_not_whole(self, supmer, backbone, tmp_path):
        saved_by_peft(backbone, tmp_path / "adapter")
        template = ["--template", "{text} <X>"]
        self.refused(supmer, tmp_path, "belong together", *template)
        self.refused(supmer, tmp_path, "belong together", "--label", "a=b", "--label", "b=c")
        self.refused(supmer, tmp_path, "--label a: write NAME=WORD", *template, "--label", "a", "--label", "b=c")
        self.refused(supmer, tmp_path, "--template '{': ", "--template", "{", "--label", "a=b", "--label", "b=c")
        self.refused(supmer, tmp_path, "word of its own", *template, "--label", "a=b", "--label", "c=b")

    def test_our_own_file_beside_it_that_is_not_ours(self, supmer, tuned, tmp_path):
        supmer("export", "--to", "peft", "adapter", "--prompt", tuned)
        ours = tmp_path / "adapter/supmer.json"
        ours.write_text(ours.read_text().replace("supmer-prompt", "other"))
        self.refused(supmer, tmp_path, "supmer.json: does not describe a supmer prompt")

    def test_a_damaged_task(self, supmer, tuned):
        change_config(tuned, lambda config: config["downstream"].update(words=3))
        code, said = supmer("export", "--to", "peft", "adapter", "--prompt", tuned)
        assert (code, said.count("\n")) == (2, 1)
        assert "downstream.words" in said
