"""Scores of labels, against a loop that runs transformers' own model once for each example and label."""

import numpy as np
import pytest
import torch

from model.prompt.passes import Passes
from model.prompt.prediction import LabelScores, label_scores, label_tokens
from model.t5.backbone import backbone_of
from model.text.templates import parse_template
from model.text.tokenization import TemplateTokenizer
from storage.errors import InputError
from support.meta_examples import bart, t5
from support.tiny_tokenizers import unigram, word_level

pytestmark = pytest.mark.usefixtures("one_thread")

ONE_TOKEN = [(5, 6), (5, 7), (5, 8)]
LABELS = [ONE_TOKEN, [(6,), (7,)], [(5, 6, 9), (5, 7), (5, 6), (8, 6, 9, 4)], [(6,), (6, 7), (6, 7, 8)]]


def arrays(labels):
    return [np.array(ids, np.int32) for ids in labels]


def by_hand(model, prompt, ids, label):
    """One example and one label alone: no padding, no sharing."""
    embedded = model.get_input_embeddings()(torch.from_numpy(ids).long())
    given = torch.tensor([[model.config.decoder_start_token_id, *label[:-1]]])
    with torch.no_grad():
        logits = model(inputs_embeds=torch.cat([prompt, embedded])[None], decoder_input_ids=given).logits[0]
    return sum(float(row[token]) for row, token in zip(logits.log_softmax(-1), label, strict=True))


@pytest.fixture(scope="module", params=["fast", "generic", "bart"])
def prompted(request):
    """A model and its backbone."""
    model = bart() if request.param == "bart" else t5(gated=True, tied=False)
    return model, backbone_of(model, fast=request.param == "fast")


@pytest.fixture
def inputs():
    chance = np.random.default_rng(3)
    return [chance.integers(3, 50, size).astype(np.int32) for size in (5, 11, 2, 7, 7, 3)]


OWNERS = [1, 0, 1, 2, 2, 0]


@pytest.mark.parametrize("labels", LABELS)
@pytest.mark.parametrize("tokens", [4, 0])
@pytest.mark.parametrize("chunk_tokens", [1, 30, 10_000])
def test_every_label_scores_as_it_does_alone(prompted, inputs, labels, tokens, chunk_tokens):
    model, backbone = prompted
    torch.manual_seed(1)
    prompts = torch.randn(3, tokens, backbone.width, dtype=torch.float64)
    found = label_scores(Passes(backbone, chunk_tokens=chunk_tokens), prompts, OWNERS, inputs, arrays(labels))
    expected = [
        [by_hand(model, prompts[owner], ids, label) for label in labels]
        for owner, ids in zip(OWNERS, inputs, strict=True)
    ]
    np.testing.assert_allclose(found.log_probabilities, expected, rtol=1e-6)
    assert found.predicted.tolist() == np.argmax(expected, axis=1).tolist()


class Counting:
    """A backbone that counts what it is asked."""

    def __init__(self, backbone):
        self._backbone = backbone
        self.encoded = 0
        self.decoded = []

    def __getattr__(self, name):
        return getattr(self._backbone, name)

    def encode(self, inputs, mask):
        self.encoded += len(inputs)
        return self._backbone.encode(inputs, mask)

    def decode(self, hidden, mask, ids):
        self.decoded.append(ids[0].tolist())
        return self._backbone.decode(hidden, mask, ids)


@pytest.mark.parametrize(
    ("labels", "decoded"),
    [
        (ONE_TOKEN, [[0, 5]]),
        ([(6,), (6, 7), (6, 7, 8)], [[0, 6, 7]]),
        ([(5, 6, 9), (5, 7), (5, 8, 9, 4)], [[0, 5, 8, 9], [0, 5, 6]]),
    ],
)
def test_the_encoder_runs_once_an_example_and_the_decoder_as_rarely_as_it_can(inputs, labels, decoded):
    counting = Counting(backbone_of(t5()))
    prompts = torch.zeros(3, 2, counting.width, dtype=torch.float64)
    label_scores(Passes(counting, chunk_tokens=10_000), prompts, OWNERS, inputs, arrays(labels))
    assert counting.encoded == len(inputs)
    assert counting.decoded == decoded


def test_no_examples_have_no_scores():
    backbone = backbone_of(t5())
    prompts = torch.zeros(1, 2, backbone.width, dtype=torch.float64)
    found = label_scores(Passes(backbone), prompts, [], [], arrays(ONE_TOKEN))
    assert found.log_probabilities.shape == (0, 3)
    assert found.predicted.shape == (0,)
    assert found.probabilities.shape == (0, 3)


def test_probabilities_add_up_to_one_however_unlikely_the_labels_are():
    found = LabelScores(np.array([[-1000.0, -1000.0 + np.log(3)]]), np.array([1]))
    np.testing.assert_allclose(found.probabilities, [[0.25, 0.75]])


def test_a_label_without_tokens_is_refused(inputs):
    backbone = backbone_of(t5())
    prompts = torch.zeros(3, 2, backbone.width, dtype=torch.float64)
    with pytest.raises(InputError, match="at least one token"):
        label_scores(Passes(backbone), prompts, OWNERS, inputs, arrays([(5,), ()]))


class TestLabelTokens:
    def test_they_are_the_targets_of_the_template(self):
        tokenizer = TemplateTokenizer.of(unigram(), 32)
        template = parse_template("{text} <X>", ["text"], ["yes", "no"])
        found = label_tokens(tokenizer, template)
        assert [ids.tolist() for ids in found] == [tokenizer.target(template, label) for label in range(2)]
        assert found[0][0] == found[1][0]  # the sentinel

    def test_words_that_the_tokenizer_writes_alike_are_refused(self):
        template = parse_template("{text}", ["text"], ["yes", "zebra", "quagga"])
        with pytest.raises(InputError, match="writes the label words 'zebra' and 'quagga' alike"):
            label_tokens(TemplateTokenizer.of(word_level(), 32), template)


def test_in_bfloat16_few_predictions_differ_and_only_where_the_margin_is_small():
    chance = np.random.default_rng(11)
    inputs = [chance.integers(3, 50, chance.integers(3, 30)).astype(np.int32) for _ in range(400)]
    labels = [np.array(label, np.int32) for label in ((5,), (6,), (7, 8))]
    prompts = torch.from_numpy(chance.normal(size=(1, 6, 64)).astype(np.float32))
    shape = {"d_model": 64, "d_kv": 16, "d_ff": 128}
    scores = []
    for dtype in (torch.float32, torch.bfloat16):
        model = t5(gated=True, tied=False, dtype=torch.float32, **shape)
        with torch.no_grad():
            for block in model.decoder.block:
                block.layer[1].EncDecAttention.o.weight.mul_(8)  # the decoder looks at the input
        passes = Passes(backbone_of(model.to(dtype)))
        scores.append(label_scores(passes, prompts, [0] * len(inputs), inputs, labels))
    wide, low = scores
    first, second = np.sort(wide.log_probabilities, axis=1)[:, [-1, -2]].T
    assert len({*wide.predicted.tolist()}) > 1
    differ = wide.predicted != low.predicted
    assert differ.mean() <= 0.01
    assert ((first - second)[differ] < 0.1).all()


@pytest.mark.parametrize("labels", [[(5,), (9,), (17,)], [(20,), (30,)]])
def test_bfloat16_changes_at_most_one_label_in_a_hundred_and_only_where_the_margin_is_small(labels):
    shape = {"vocab_size": 50, "d_model": 64, "d_kv": 16, "d_ff": 128, "num_heads": 4, "num_layers": 2}
    both = [t5(gated=True, tied=False, dtype=dtype, **shape) for dtype in (torch.float32, torch.bfloat16)]
    chance = np.random.default_rng(0)
    inputs = [chance.integers(3, 50, chance.integers(5, 30), dtype=np.int32) for _ in range(1000)]
    prompts, owners = (
        torch.from_numpy(chance.standard_normal((50, 8, 64), np.float32)),
        [row % 50 for row in range(1000)],
    )
    wide, low = (
        label_scores(Passes.for_tuning(backbone_of(model)), prompts, owners, inputs, arrays(labels)) for model in both
    )
    second, first = np.sort(wide.log_probabilities, axis=1)[:, -2:].T
    differs = low.predicted != wide.predicted
    assert np.bincount(wide.predicted, minlength=len(labels)).min() > 50  # every label is predicted
    assert differs.mean() <= 0.01
    assert (first - second)[differs].max(initial=0) < 0.05 * np.median(first - second)
