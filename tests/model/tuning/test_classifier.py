"""A tuned prompt as a classifier: its answers are those of transformers' own model, and it takes no other backbone."""

import numpy as np
import pytest
import torch
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

from storage.errors import InputError
from storage.prompts.prompt_artifact import read_prompt
from supmer import PromptedClassifier
from support.tuned_prompts import PAIR, SENTIMENT, TEXTS, acquire_backbone, change_config, save_backbone, save_prompt

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def backbone(tmp_path_factory):
    return save_backbone(tmp_path_factory.mktemp("backbone") / "t5")


@pytest.fixture
def tuned(tmp_path, backbone):
    return save_prompt(tmp_path / "tuned", backbone)


def by_hand(folder, backbone, rendered, targets):
    """Probabilities of the targets by transformers alone, one text and one target at a time."""
    model, tokenizer = AutoModelForSeq2SeqLM.from_pretrained(backbone).eval(), AutoTokenizer.from_pretrained(backbone)
    prompt = torch.from_numpy(np.array(read_prompt(folder).prompt))
    rows = []
    for text in rendered:
        embedded = model.get_input_embeddings()(tokenizer(text, return_tensors="pt").input_ids)
        inputs = torch.cat([prompt[None], embedded], 1)
        scores = []
        for target in targets:
            ids = tokenizer(target, add_special_tokens=False, return_tensors="pt").input_ids
            with torch.no_grad():
                logits = model(inputs_embeds=inputs, labels=ids).logits[0].double()
            scores.append(logits.log_softmax(-1).gather(1, ids.T).sum())
        rows.append(torch.stack(scores).softmax(0).tolist())
    return rows


def test_its_probabilities_are_those_of_the_labels_under_transformers(tuned, backbone):
    found = PromptedClassifier.from_pretrained(tuned, backbone, precision="float32").predict(TEXTS)
    rendered = [f"{text} Answer: <extra_id_0>." for text in TEXTS]
    expected = by_hand(tuned, backbone, rendered, ["<extra_id_0> no", "<extra_id_0> yes"])
    np.testing.assert_allclose([list(one.probabilities.values()) for one in found], expected, rtol=1e-4)
    assert [one.label for one in found] == [("negative", "positive")[int(np.argmax(row))] for row in expected]
    assert len({one.probabilities["positive"] for one in found}) == len(TEXTS), "not every text is the same to it"


def test_several_fields_are_given_in_order_or_by_name(tmp_path, backbone):
    folder = save_prompt(tmp_path / "pair", backbone, PAIR)
    classifier = PromptedClassifier.from_pretrained(folder, backbone, precision="float32")
    assert classifier.labels == ("entailment", "neutral", "contradiction")
    by_order = classifier.predict([("the river", "the city")])
    assert classifier.predict([{"sentence2": "the city", "sentence1": "the river"}]) == by_order
    expected = by_hand(folder, backbone, ["the river Which question? the city Answer:"], PAIR["words"])
    np.testing.assert_allclose([*by_order[0].probabilities.values()], expected[0], rtol=1e-4)


def test_a_long_text_is_cut_and_the_template_is_not(tuned, backbone):
    classifier = PromptedClassifier.from_pretrained(tuned, backbone)
    long, longer = (" ".join(["river"] * count) for count in (60, 90))
    assert classifier.predict([long]) == classifier.predict([longer])


@pytest.mark.parametrize("example", ["", "  ", 3, ["a", "b"], {"other": "a"}, None])
def test_what_is_no_example_is_refused(tuned, backbone, example):
    classifier = PromptedClassifier.from_pretrained(tuned, backbone)
    with pytest.raises(InputError, match=r"texts\[1\]: should be text"):
        classifier.predict(["fine", example])


def test_one_text_instead_of_a_list_is_refused(tuned, backbone):
    with pytest.raises(InputError, match="takes a list"):
        PromptedClassifier.from_pretrained(tuned, backbone).predict("great film")


def test_no_examples_have_no_predictions(tuned, backbone):
    assert PromptedClassifier.from_pretrained(tuned, backbone).predict([]) == []


class TestTheBackbone:
    def test_is_that_of_the_workspace_around_the_prompt(self, tmp_path, backbone):
        acquire_backbone(tmp_path, backbone)
        folder = save_prompt(tmp_path / "artifacts/tuned/movies/supmer", backbone)
        expected = PromptedClassifier.from_pretrained(folder, backbone).predict(TEXTS)
        assert PromptedClassifier.from_pretrained(str(folder)).predict(TEXTS) == expected
        given = tmp_path / "data/sources/backbone"  # what acquire calls the backbone may be named, too
        assert PromptedClassifier.from_pretrained(folder, given).predict(TEXTS) == expected

    def test_is_that_of_the_workspace_one_stands_in_for_a_prompt_elsewhere(
        self, tmp_path, tuned, backbone, monkeypatch
    ):
        room = acquire_backbone(tmp_path / "room", backbone)
        (room / "below").mkdir()
        monkeypatch.chdir(room / "below")
        assert PromptedClassifier.from_pretrained(tuned).predict(TEXTS)

    def test_must_be_given_where_there_is_no_workspace(self, tuned, monkeypatch, tmp_path):
        monkeypatch.chdir(tmp_path)
        with pytest.raises(InputError, match=r"give the backbone \(hf:org/tiny-t5@abc, files .* by --backbone"):
            PromptedClassifier.from_pretrained(tuned)

    def test_must_be_a_folder(self, tuned, tmp_path):
        with pytest.raises(InputError, match="no such folder"):
            PromptedClassifier.from_pretrained(tuned, tmp_path / "nowhere")
        (tmp_path / "empty").mkdir()
        with pytest.raises(InputError, match="empty: holds no safetensors"):
            PromptedClassifier.from_pretrained(tuned, tmp_path / "empty")

    def test_with_other_weights_is_refused_unless_any_is_allowed(self, tuned, tmp_path, backbone):
        other = save_backbone(tmp_path / "other", seed=1)
        with pytest.raises(InputError, match=r"other: not the backbone that .*tuned was made for \(hf:org/tiny"):
            PromptedClassifier.from_pretrained(tuned, other)
        found = PromptedClassifier.from_pretrained(tuned, other, any_backbone=True).predict(TEXTS)
        assert found != PromptedClassifier.from_pretrained(tuned, backbone).predict(TEXTS)

    def test_that_a_damaged_config_does_not_name_is_refused_unless_any_is_allowed(self, tuned, backbone):
        change_config(tuned, lambda config: config["downstream"].pop("backbone"))
        with pytest.raises(InputError, match=r"tuned: its config\.json names no backbone"):
            PromptedClassifier.from_pretrained(tuned, backbone)
        assert PromptedClassifier.from_pretrained(tuned, backbone, any_backbone=True).predict(TEXTS)

    def test_of_another_width_is_refused_whatever_is_allowed(self, tuned, tmp_path):
        other = save_backbone(tmp_path / "other", width=8)
        with pytest.raises(InputError, match=r"has the width 8, and .* was tuned for one of 16"):
            PromptedClassifier.from_pretrained(tuned, other, any_backbone=True)

    def test_is_known_among_files_that_a_model_does_not_need(self, tmp_path, backbone, tuned):
        other = tmp_path / "snapshot"
        other.mkdir()
        for path in backbone.iterdir():
            (other / path.name).symlink_to(path)
        (other / "README.md").write_text("a card")
        (other / "onnx").mkdir()
        (other / "onnx/model.onnx").write_text("the same once more")
        assert PromptedClassifier.from_pretrained(tuned, other).predict(TEXTS)


class TestTheConfig:
    def test_of_a_prompt_that_was_not_tuned_is_refused(self, tmp_path, backbone):
        folder = save_prompt(tmp_path / "start", backbone, downstream=None)
        with pytest.raises(InputError, match="names no task: it is a start for tuning"):
            PromptedClassifier.from_pretrained(folder, backbone)

    @pytest.mark.parametrize(
        ("key", "value", "message"),
        [
            ("labels", [], "downstream.labels in config.json is"),
            ("labels", "ab", "which should be a list of names"),
            ("labels", ["a", "a"], "names that differ"),
            ("words", ["yes", 3], "downstream.words in config.json"),
            ("words", ["yes"], "one for each of the labels negative, positive"),
            ("words", ["yes", "yes"], "each label needs a word of its own"),
            ("template", None, "a text with {fields}"),
            ("template", "{other} <X>", "no field other"),
            ("template", "{text} {μ0}", "without centroids"),
            ("max_length", 0, "a number of tokens"),
            ("max_length", "24", "a number of tokens"),
        ],
    )
    def test_that_is_damaged_is_refused_by_the_name_of_the_key(self, tuned, backbone, key, value, message):
        change_config(tuned, lambda config: config["downstream"].update({key: value}))
        with pytest.raises(InputError, match=message.replace("{", r"\{")) as refused:
            PromptedClassifier.from_pretrained(tuned, backbone)
        assert str(tuned) in str(refused.value)
        assert "\n" not in str(refused.value)

    def test_comes_back_from_its_own_json(self, tuned):
        from model.tuning.downstream import Downstream

        task = Downstream.of(read_prompt(tuned).about, tuned)
        assert task.to_json() == SENTIMENT
        assert Downstream.of({"downstream": task.to_json()}, tuned) == task
