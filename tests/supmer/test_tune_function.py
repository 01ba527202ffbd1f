"""`supmer.tune`: lists become a prompt; what is wrong is said before a model is loaded."""

import numpy as np
import pytest

from storage.errors import InputError
from storage.prompts.prefix_artifact import read_prefixes
from supmer import load_prompt, tune
from support.training_room import save_backbone
from support.tuned_prompts import acquire_backbone
from support.tuning_room import write_learned

TEXTS = [f"the {kind} of number {number}" for number in range(10) for kind in ("river", "city")]
LABELS = ["0", "1"] * 10
QUICK = {"shots": 3, "seeds": [1, 2], "learning_rates": [0.1, 1.0], "epochs": 2, "prompt_tokens": 3, "max_length": 40}


@pytest.fixture(scope="module")
def backbone(tmp_path_factory):
    return save_backbone(tmp_path_factory.mktemp("models") / "t5")


@pytest.fixture
def room(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.usefixtures("one_thread")
def test_the_backbone_is_a_model_or_that_of_a_workspace_given_or_around(room, backbone):
    told = []
    given = tune(
        TEXTS, LABELS, "given", backbone=backbone, progress=lambda share, note: told.append((share, note)), **QUICK
    )
    assert told
    assert [seed.examples for seed in given.seeds] == [8, 8]
    acquire_backbone(room / "workspace", backbone)
    named = tune(TEXTS, LABELS, "named", backbone="workspace", **QUICK)
    (room / "workspace" / "below").mkdir()
    around_room = room / "workspace" / "below"
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(around_room)
        around = tune(TEXTS, LABELS, "around", **QUICK)
    assert given.seeds == named.seeds == around.seeds
    prompts = [load_prompt(result.folder).prompt for result in (given, named, around)]
    assert np.array_equal(prompts[0], prompts[1])
    assert np.array_equal(prompts[0], prompts[2])
    assert around.folder == around_room / "around"
    assert around.classifier().labels == ("0", "1")
    assert around.left_out == ""


@pytest.mark.usefixtures("one_thread")
def test_it_starts_from_a_prompt_and_tests_on_what_is_given(room, backbone):
    write_learned(room / "learned", 4, 1, regularized=True)
    numbers = np.array([0, 1] * 10)  # of numpy's integers
    result = tune(TEXTS, numbers, "tuned", backbone=backbone, start="learned", test=(TEXTS[:4], [0, 1, 0, 1]), **QUICK)
    prompt = load_prompt(result.folder)
    assert prompt.prompt.shape == (4, 16)
    assert prompt.about["downstream"]["method"] == "learned"
    assert [seed.examples for seed in result.seeds] == [4, 4]
    assert result.left_out == "4 rows left out: 4 with texts that are in the test set"
    assert result.score == pytest.approx(np.mean([seed.score for seed in result.seeds]))


@pytest.mark.usefixtures("one_thread")
def test_an_interrupted_call_goes_on_from_its_checkpoints(room, backbone, monkeypatch):
    from supmer import tuning

    plain = tuning.tune_own
    lines = []
    monkeypatch.setattr(
        tuning, "tune_own", lambda own, output, progress, _say: plain(own, output, progress, lines.append)
    )
    monkeypatch.setattr(tuning, "_CHECKPOINT_SECONDS", 1e-6)

    def interrupt(_share, _note):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tune(TEXTS, LABELS, "tuned", backbone=backbone, work="work", progress=interrupt, **QUICK)
    result = tune(TEXTS, LABELS, "tuned", backbone=backbone, work="work", **QUICK)
    assert any("continuing from step" in line for line in lines)
    assert not list((room / "work").iterdir())
    assert result.seeds == tune(TEXTS, LABELS, "again", backbone=backbone, **QUICK).seeds


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"texts": TEXTS[:-1]}, "texts: 19 examples, but 20 labels"),
        ({"texts": "text"}, "give a list of texts"),
        ({"texts": [*TEXTS[:-1], " "]}, "texts[19]: should be text, texts that are not empty"),
        ({"texts": [("a", "b", "c"), *TEXTS[1:]]}, "texts[0]: has 3 texts: give a template"),
        ({"labels": [*LABELS[:-1], None]}, "texts[19]: the label is None"),
        ({"labels": [*LABELS[:-1], 0.5]}, "the label is 0.5"),
        ({"labels": ["0"] * 20}, "every row to learn from has the label '0'"),
        ({"texts": [], "labels": []}, "no examples to learn from"),
        ({"words": {"0": "no"}}, "no word for 1"),
        ({"template": "{text} {other}"}, "texts[0]: should be text and other"),
        ({"shots": 11}, "has 10 examples to learn from"),
        ({"shots": 0}, "shots: 0 should be a whole number"),
        ({"epochs": 1.5}, "epochs: 1.5 should be a whole number"),
        ({"seeds": [1, 1]}, "seeds: [1, 1] should be distinct"),
        ({"seeds": []}, "seeds: [] should be"),
        ({"learning_rates": [0.0]}, "learning_rates: [0.0] should be"),
        ({"form": "question"}, "form: 'question' should be sentinel or instruction"),
        ({"start": "no-such"}, "no-such: no config.json in it"),
        ({"backbone": "no-such"}, "no-such: not there"),
        ({"backbone": None}, "backbone: no workspace with a backbone around"),
        ({"output": "."}, "already exists"),
    ],
)
def test_what_is_wrong_is_said_before_a_model_is_loaded(room, monkeypatch, change, said):
    from tasks.own_examples import tuning as own_tuning

    (room / "model").mkdir()
    monkeypatch.setattr(own_tuning, "load_backbone", None)
    arguments = {"texts": TEXTS, "labels": LABELS, "output": "tuned", "backbone": room / "model"} | QUICK | change
    with pytest.raises(InputError) as caught:
        tune(arguments.pop("texts"), arguments.pop("labels"), arguments.pop("output"), **arguments)
    assert said in str(caught.value)
    assert not (room / "tuned").exists()


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("method", ["prefix-tuning", "p-tuning-v2"])
def test_prefixes_are_tuned_with_the_rates_of_their_method_and_predict(room, backbone, method):
    form = QUICK | {"learning_rates": None}
    result = tune(TEXTS, LABELS, "prefixes", backbone=backbone, method=method, **form)
    assert read_prefixes(room / "prefixes").tokens == 3
    assert all(seed.learning_rate < 0.1 for seed in result.seeds)
    (prediction,) = result.classifier().predict(["the river"])
    assert sum(prediction.probabilities.values()) == pytest.approx(1)


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("method", ["ft", "lora"])
def test_trained_weights_and_adapters_predict_from_the_result(room, backbone, method):
    result = tune(TEXTS, LABELS, "trained", backbone=backbone, method=method, **QUICK)
    assert result.score is not None
    (prediction,) = result.classifier().predict(["the river"])
    assert sum(prediction.probabilities.values()) == pytest.approx(1)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"method": "bitfit"}, "method bitfit: not built: there are "),
        ({"method": "zero-shot"}, "method zero-shot: trains nothing"),
        ({"method": "tfidf"}, "method tfidf: is there to compare with"),
        ({"prompt": "prompts/x", "start": "normal"}, "start and prompt: a tuning starts from the one or the other"),
        ({"method": "supmer"}, "method supmer: no prompt in "),
        ({"method": "pt", "start": "normal"}, "start and method: "),
    ],
)
def test_a_method_that_cannot_be_tuned_is_refused(room, backbone, arguments, said):
    with pytest.raises(InputError, match=said):
        tune(TEXTS, LABELS, "out", backbone=backbone, **arguments, **QUICK)
    assert not (room / "out").exists()
