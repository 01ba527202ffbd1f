"""Losses of mixed query sets and H̄, against computations by hand with transformers' own encoder and decoder."""

import numpy as np
import pytest
import torch

from model.prompt.passes import Passes
from model.prompt.rows import Centroids, Row
from model.t5.backbone import backbone_of
from model.text.tokenized_tasks import CentroidSlot, Example
from support.meta_examples import bart, example, hidden_of, loss_of, t5

pytestmark = pytest.mark.usefixtures("one_thread")

PROMPT_TOKENS = 3


def mixed_loss(model, prompt, row):
    """ALGORITHM §3 word by word: zero-pad to one length, unite the masks, mix hidden states and losses by w."""
    own, other = (hidden_of(model, prompt, one) for one in (row.example, row.partner))
    longest = max(len(own), len(other))
    own, other = (torch.cat([one, one.new_zeros(longest - len(one), one.shape[1])]) for one in (own, other))
    blend = row.share * own + (1 - row.share) * other
    loss, partner_loss = (loss_of(model, blend, one.target_ids) for one in (row.example, row.partner))
    return row.share * loss + (1 - row.share) * partner_loss


@pytest.fixture(scope="module", params=["fast", "generic", "bart"])
def prompted(request):
    """A model, its backbone, and two prompts."""
    torch.manual_seed(4)
    model = bart() if request.param == "bart" else t5(gated=True)
    backbone = backbone_of(model, fast=request.param == "fast")
    return model, backbone, torch.randn(2, PROMPT_TOKENS, backbone.width, dtype=torch.float64)


@pytest.mark.parametrize(
    ("lengths", "targets"),
    [
        ((4, 9), [(5, 6), (5, 7)]),
        ((9, 4), [(5, 6), (5, 7)]),
        ((4, 9), [(5, 6), (8, 7)]),  # decoder inputs differ
        ((6, 6), [(5,), (8, 9, 10)]),  # target lengths differ
        ((5, 3), [(8, 9, 10), (5, 6)]),
    ],
)
def test_a_mixed_loss_is_that_computed_by_hand(prompted, lengths, targets):
    model, backbone, prompts = prompted
    chance = np.random.default_rng(1)
    own, other = (example(chance, length=n, target=target) for n, target in zip(lengths, targets, strict=True))
    row = Row(own, 1, 1.0, other, 0.3)
    beside = Row(example(chance, length=12, target=(5, 6)), 0, 1.0)  # pads the others, is not mixed itself
    with torch.no_grad():
        expected = mixed_loss(model, prompts[1], row)
        alone = loss_of(model, hidden_of(model, prompts[0], beside.example), beside.example.target_ids)
    found = Passes(backbone, chunk_tokens=1000).losses_of(prompts, [row, beside])
    torch.testing.assert_close(found, torch.stack([alone, expected]))


def test_the_gradient_of_a_mixed_loss_is_that_of_the_hand_computation(prompted):
    model, backbone, prompts = prompted
    chance = np.random.default_rng(2)
    row = Row(example(chance, length=4), 0, 0.5, example(chance, length=7, target=(8, 9)), 0.6)
    leaf = prompts[:1].clone().requires_grad_()
    (expected,) = torch.autograd.grad(0.5 * mixed_loss(model, leaf[0], row), leaf)
    torch.testing.assert_close(Passes(backbone).run(prompts[:1], [row]).gradients, expected)


def test_a_share_of_one_or_nothing_is_the_loss_under_the_united_mask(prompted):
    model, backbone, prompts = prompted
    chance = np.random.default_rng(3)
    own, other = example(chance, length=4), example(chance, length=7, target=(8, 9))
    with torch.no_grad():
        for share in (1.0, 0.0):
            row = Row(own, 0, 1.0, other, share)
            found = Passes(backbone).losses_of(prompts[:1], [row])[0]
            torch.testing.assert_close(found, mixed_loss(model, prompts[0], row))
        unmixed = loss_of(model, hidden_of(model, prompts[0], other), other.target_ids)
        torch.testing.assert_close(found, unmixed)  # the partner is the longer: nothing but its own positions counts


def test_h_bar_is_the_mean_over_examples_and_their_positions_prompt_included_padding_and_partners_not(prompted):
    model, backbone, prompts = prompted
    chance = np.random.default_rng(4)
    rows = [Row(example(chance, length=n), n % 2, 0.25) for n in (3, 4, 7, 10)]
    rows[0] = Row(rows[0].example, 1, 0.25, example(chance, length=11), 0.5)
    found = Passes(backbone, chunk_tokens=30).run(prompts, rows).hidden_mean
    for number in range(2):
        with torch.no_grad():
            states = [hidden_of(model, prompts[number], row.example) for row in rows if row.prompt == number]
        torch.testing.assert_close(found[number], torch.cat(states).mean(0))
    assert not found.requires_grad


@pytest.mark.parametrize("chunk_tokens", [1, 40, 100_000])
def test_chunks_change_nothing(prompted, chunk_tokens):
    _, backbone, prompts = prompted
    chance = np.random.default_rng(5)
    rows = [
        Row(example(chance), n % 2, 0.2, example(chance, target=(8,)) if n % 3 else None, 0.4 if n % 3 else 1.0)
        for n in range(7)
    ]
    reference = Passes(backbone, chunk_tokens=300).run(prompts, rows)
    found = Passes(backbone, chunk_tokens=chunk_tokens).run(prompts, rows)
    torch.testing.assert_close(found.losses, reference.losses)
    torch.testing.assert_close(found.gradients, reference.gradients)
    torch.testing.assert_close(found.hidden_mean, reference.hidden_mean)
    torch.testing.assert_close(Passes(backbone, chunk_tokens=chunk_tokens).losses_of(prompts, rows), reference.losses)


def test_a_partner_of_another_format_brings_its_centroids_and_label_words(prompted):
    model, backbone, prompts = prompted
    chance = np.random.default_rng(6)
    own, other = example(chance, length=5), example(chance, length=8, target=(11, 12, 13))
    ids = other.input_ids.copy()
    ids[2] = 0  # a placeholder where the centroid goes, which is the embedding of the token that stood there
    slotted = Example("e", 0, ids, other.target_ids, (CentroidSlot(2, "ss", 6),))
    with torch.no_grad():
        vectors = backbone.embed(torch.tensor([int(other.input_ids[2])]))
    passes = Passes(backbone, Centroids(vectors, {("ss", 6): 0}))
    with torch.no_grad():
        expected = mixed_loss(model, prompts[0], Row(own, 0, 1.0, other, 0.3))
    torch.testing.assert_close(passes.losses_of(prompts[:1], [Row(own, 0, 1.0, slotted, 0.3)])[0], expected)


@pytest.mark.parametrize("make", [lambda: t5(gated=True), bart], ids=["t5", "bart"])
def test_the_hessian_product_is_the_derivative_of_the_gradient(make):
    backbone, chance = backbone_of(make()), np.random.default_rng(7)
    partners = [None, None, None, example(chance)]
    rows = [Row(example(chance), n % 2, 0.5, one, 0.5 if one else 1.0) for n, one in enumerate(partners)]
    prompts, direction = (torch.from_numpy(chance.normal(size=(2, 3, backbone.width))) for _ in range(2))
    passes = Passes(backbone, chunk_tokens=40)
    found = passes.hessian_product(prompts, rows, direction)
    ahead, behind = (passes.run(prompts + sign * 1e-5 * direction, rows).gradients for sign in (1, -1))
    torch.testing.assert_close(found, (ahead - behind) / 2e-5, rtol=1e-5, atol=1e-8)
