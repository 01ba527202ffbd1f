"""Prefixes: transformers' own layers with keys and values concatenated, finite differences, and PEFT's numbers."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from model.prompt.passes import Passes
from model.prompt.prediction import label_scores
from model.prompt.prefixes import PrefixNetwork, PrefixPasses, PrefixShape, chunked_by_prefix, initial_prefixes
from model.prompt.rows import Row
from model.t5.backbone import backbone_of
from model.t5.prefix_attention import PLACES
from storage.errors import InputError
from support.meta_examples import bart, example, t5
from support.prefixed_t5 import prefixed

pytestmark = pytest.mark.usefixtures("one_thread")

TOKENS = 3
LABELS = (np.array([5, 6], np.int32), np.array([5, 7, 9], np.int32), np.array([8], np.int32))
MODELS = {
    "v1.0": t5,
    "gated": lambda: t5(gated=True, tied=False),
    "unequal depths": lambda: t5(num_layers=1, num_decoder_layers=3),
    "heads narrower than the width": lambda: t5(d_kv=2, num_heads=3),
}


def passes_of(model, places=PLACES, chunk_tokens=60, **form):
    backbone = backbone_of(model, **form)
    return PrefixPasses(backbone, chunk_tokens=chunk_tokens, shape=PrefixShape.of(backbone, places, "test"))


def prefixes_of(passes, count, tokens=TOKENS, seed=0):
    return torch.stack([initial_prefixes(tokens, passes.shape.width, seed + one).double() for one in range(count)])


def rows_of(count, prefixes, seed=0):
    chance = np.random.default_rng(seed)
    return [Row(example(chance, target=LABELS[one % 3]), one % prefixes, 0.2 + 0.1 * one) for one in range(count)]


def loss_by_hand(model, shape, prefix, one, target):
    """The loss of an example alone through transformers' own T5 with patched attention."""
    ids, target = (torch.from_numpy(part).long()[None] for part in (one.input_ids, target))
    with prefixed(model, shape.layers(prefix)):
        logits = model(input_ids=ids, labels=target).logits
    return cross_entropy(logits[0], target[0], reduction="sum")


@pytest.mark.parametrize("places", [PLACES, ("encoder",), ("decoder",), ("cross",), ("encoder", "cross")])
@pytest.mark.parametrize("name", MODELS)
def test_losses_and_gradients_are_those_of_transformers_with_keys_and_values_concatenated(name, places):
    model = MODELS[name]()
    passes, rows = passes_of(model, places), rows_of(7, 3)
    prefixes = prefixes_of(passes, 3)
    found = passes.run(prefixes, rows)
    leaf = prefixes.clone().requires_grad_()
    losses = torch.zeros(3, dtype=torch.float64)
    for row in rows:
        own = row.weight * loss_by_hand(model, passes.shape, leaf[row.prompt], row.example, row.example.target_ids)
        losses = losses.index_add(0, torch.tensor([row.prompt]), own[None])
    (gradient,) = torch.autograd.grad(losses.sum(), leaf)
    torch.testing.assert_close(found.losses, losses.detach(), rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(found.gradients, gradient, rtol=1e-5, atol=1e-6)
    assert float(gradient.abs().max()) > 1e-4


def test_gradients_are_finite_differences():
    passes, rows = passes_of(t5(gated=True)), rows_of(5, 2)
    prefixes = prefixes_of(passes, 2)
    gradients = passes.run(prefixes, rows).gradients
    chance, step = torch.Generator().manual_seed(1), 1e-5
    for _ in range(6):
        direction = torch.randn(prefixes.shape, generator=chance, dtype=torch.float64)
        ahead, behind = (passes.losses_of(prefixes + sign * step * direction, rows).sum() for sign in (1, -1))
        slope = (ahead - behind) / (2 * step)
        torch.testing.assert_close((gradients * direction).sum(), slope, rtol=1e-6, atol=1e-8)


def test_a_network_has_the_gradients_of_finite_differences_and_of_torchs_layers():
    network = PrefixNetwork(TOKENS, 4, 10)
    numbers = network.initial(3).double().requires_grad_()
    assert torch.autograd.gradcheck(network, (numbers,))
    parts = torch.split(numbers, [12, 16, 4, 40, 10])
    hidden = torch.nn.functional.linear(parts[0].view(3, 4), parts[1].view(4, 4), parts[2]).tanh()
    expected = torch.nn.functional.linear(hidden, parts[3].view(10, 4), parts[4])
    torch.testing.assert_close(network(numbers), expected)
    assert torch.equal(network.initial(3), network.initial(3))
    assert not torch.equal(network.initial(3), network.initial(4))


@pytest.mark.parametrize("name", MODELS)
def test_prefixes_of_length_0_give_the_bare_model(name):
    model, rows = MODELS[name](), rows_of(6, 1)
    passes = passes_of(model)
    bare = Passes(passes.backbone).losses_of(torch.zeros(1, 0, passes.backbone.width, dtype=torch.float64), rows)
    found = passes.losses_of(prefixes_of(passes, 1, tokens=0), rows)
    torch.testing.assert_close(found, bare, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("chunk_tokens", [1, 30, 10_000])
def test_chunks_change_nothing_and_every_row_has_its_own_prefix(chunk_tokens):
    model, rows = t5(), rows_of(11, 4)
    alone, together = passes_of(model, chunk_tokens=1), passes_of(model, chunk_tokens=chunk_tokens)
    prefixes = prefixes_of(alone, 4)
    expected = torch.stack(
        [
            alone.run(prefixes[[one]], [replace(row, prompt=0) for row in rows if row.prompt == one]).gradients[0]
            for one in range(4)
        ]
    )
    torch.testing.assert_close(together.run(prefixes, rows).gradients, expected, rtol=1e-9, atol=1e-12)


def test_recomputed_activations_give_the_same_gradients():
    rows = rows_of(5, 2)
    plain, again = passes_of(t5()), passes_of(t5(), recompute=True)
    prefixes = prefixes_of(plain, 2)
    torch.testing.assert_close(again.run(prefixes, rows).gradients, plain.run(prefixes, rows).gradients)


def test_predictions_are_those_of_transformers():
    model = t5(gated=True)
    passes, chance = passes_of(model), np.random.default_rng(5)
    prefixes, examples = prefixes_of(passes, 2), [example(chance) for _ in range(6)]
    owners = [1, 0, 0, 1, 0, 1]
    scores = label_scores(passes, prefixes, owners, [one.input_ids for one in examples], LABELS)
    expected = [
        [-float(loss_by_hand(model, passes.shape, prefixes[owner], one, ids)) for ids in LABELS]
        for owner, one in zip(owners, examples, strict=True)
    ]
    np.testing.assert_allclose(scores.log_probabilities, expected, rtol=1e-5)


@pytest.mark.parametrize("depth", [2, 3, 4])
def test_the_decoder_only_form_gives_the_numbers_of_peft(depth):
    """PEFT gives decoder layer i the prefix 2·i mod L, and prefix positions a position bias, which is 0 here."""
    from peft import PrefixTuningConfig, TaskType, get_peft_model

    model = t5(gated=True, num_decoder_layers=depth)
    with torch.no_grad():
        model.decoder.block[0].layer[0].SelfAttention.relative_attention_bias.weight.zero_()
    passes, rows = passes_of(model, ("decoder",)), rows_of(6, 1)
    config = PrefixTuningConfig(
        task_type=TaskType.SEQ_2_SEQ_LM,
        num_virtual_tokens=TOKENS,
        num_layers=depth,
        token_dim=16,
        num_attention_heads=4,
    )
    adapted = get_peft_model(model, config)
    numbers = adapted.prompt_encoder["default"].embedding.weight.data.double()
    adapted.prompt_encoder["default"].double()
    order = [2 * layer % depth for layer in range(depth)]
    prefix = numbers.view(TOKENS, depth, -1)[:, order].reshape(1, TOKENS, -1)
    for row in rows:
        ids, target = (torch.from_numpy(part).long()[None] for part in (row.example.input_ids, row.example.target_ids))
        with torch.no_grad():
            logits = adapted(input_ids=ids, attention_mask=torch.ones_like(ids), labels=target).logits[0]
        found = passes.losses_of(prefix, [replace(row, weight=1.0)])
        torch.testing.assert_close(found[0], cross_entropy(logits, target[0], reduction="sum"), rtol=1e-6, atol=1e-6)


def test_chunks_hold_the_rows_of_a_prefix_together_and_respect_the_tokens():
    rows = rows_of(40, 5)
    chunks = list(chunked_by_prefix(rows, 50))
    assert [row for chunk in chunks for row in chunk] == sorted(rows, key=lambda row: (row.prompt, -row.length))
    assert all(len(chunk) * max(row.length for row in chunk) <= 50 for chunk in chunks)


def test_another_backbone_is_refused_by_name():
    with pytest.raises(
        InputError, match=r"prefix-tuning: prefixes need a backbone of the T5 family .* this one is bart"
    ):
        PrefixShape.of(backbone_of(bart()), PLACES, "prefix-tuning")


def test_bfloat16_stays_close_to_float32():
    rows = rows_of(6, 2)
    wide, narrow = (passes_of(t5(gated=True, dtype=dtype)) for dtype in (torch.float32, torch.bfloat16))
    prefixes = prefixes_of(wide, 2).float()
    expected, found = wide.run(prefixes, rows), narrow.run(prefixes, rows)
    assert found.gradients.dtype == torch.float32
    torch.testing.assert_close(found.losses, expected.losses, rtol=0.02, atol=0.02)
    assert (
        float(torch.nn.functional.cosine_similarity(found.gradients.flatten(), expected.gradients.flatten(), 0)) > 0.95
    )
