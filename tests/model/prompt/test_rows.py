"""Rows go into chunks whole, longest first; decoder inputs and centroids are where they belong."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from model.prompt.rows import Centroids, Row, chunked, decoder_inputs, encoder_inputs
from model.t5.backbone import backbone_of
from model.text.tokenized_tasks import NO_LOSS, CentroidSlot, Example
from storage.errors import InputError
from support.meta_examples import bart, example, t5


def plain(length):
    return Example("e", 0, np.zeros(length, np.int32), np.zeros(1, np.int32))


LENGTHS = st.lists(st.tuples(st.integers(1, 40), st.none() | st.integers(1, 40)), max_size=40)


@given(LENGTHS, st.integers(0, 10), st.integers(1, 300))
def test_chunks_hold_every_row_once_longest_first_and_bounded(lengths, prompt_tokens, chunk_tokens):
    rows = [Row(plain(own), 0, 1.0, None if other is None else plain(other), 0.5) for own, other in lengths]
    chunks = list(chunked(rows, prompt_tokens, chunk_tokens))
    flat = [row for chunk in chunks for row in chunk]
    assert sorted(map(id, flat)) == sorted(map(id, rows))
    order = [row.length for row in flat]
    assert order == sorted(order, reverse=True)
    for chunk in chunks:
        positions = sum(len(row.examples) for row in chunk) * (prompt_tokens + max(row.length for row in chunk))
        assert positions <= chunk_tokens or len(chunk) == 1
        assert chunk


def test_a_chunk_takes_as_many_rows_as_fit():
    rows = [Row(plain(6), 0, 1.0) for _ in range(7)]
    assert [len(chunk) for chunk in chunked(rows, 4, 30)] == [3, 3, 1]
    assert [len(chunk) for chunk in chunked(rows, 4, 5)] == [1] * 7


def test_the_length_of_a_row_is_that_of_its_longer_example():
    assert Row(plain(3), 0, 1.0, plain(8), 0.5).length == 8
    assert Row(plain(9), 0, 1.0, plain(8), 0.5).length == 9


def test_decoder_inputs_are_the_targets_moved_behind_the_start():
    backbone = SimpleNamespace(start_id=2, pad_id=1)
    targets = torch.tensor([[5, 6, 7], [5, NO_LOSS, NO_LOSS]])
    before = targets.clone()
    assert decoder_inputs(backbone, targets).tolist() == [[2, 5, 6], [2, 5, 1]]
    assert torch.equal(targets, before)


def test_the_start_and_the_pad_are_the_models_own():
    model = bart()
    backbone = backbone_of(model)
    assert (backbone.start_id, backbone.pad_id) == (model.config.decoder_start_token_id, model.config.pad_token_id)
    assert backbone.start_id != backbone.pad_id


def test_each_row_stands_behind_its_own_prompt_and_only_tokens_and_prompts_are_attended_to():
    chance = np.random.default_rng(0)
    backbone = backbone_of(t5())
    prompts = torch.randn(2, 3, 16, dtype=torch.float64)
    rows = [example(chance, length=4), example(chance, length=6)]
    inputs = encoder_inputs(backbone, prompts, torch.tensor([1, 0]), rows, None)
    assert inputs.embeddings.shape == (2, 9, 16)
    assert torch.equal(inputs.embeddings[0, :3], prompts[1])
    assert torch.equal(inputs.embeddings[1, :3], prompts[0])
    ids = torch.from_numpy(rows[1].input_ids).long()
    assert torch.equal(inputs.embeddings[1, 3:], backbone.embed(ids))
    assert inputs.mask.sum(dim=1).tolist() == [7, 9]
    assert inputs.mask[0].tolist() == [True] * 7 + [False] * 2


def test_centroids_take_the_place_of_the_token_in_their_slot_alone():
    chance = np.random.default_rng(0)
    backbone = backbone_of(t5())
    vectors = torch.randn(2, 16, dtype=torch.float64)
    centroids = Centroids(vectors, {("ss", 7): 1, ("ss", 4): 0})
    slotted = example(chance, length=5, slots=[CentroidSlot(1, "ss", 4), CentroidSlot(3, "ss", 7)])
    plainer = example(chance, length=6)
    prompts = torch.zeros(1, 2, 16, dtype=torch.float64)
    inputs = encoder_inputs(backbone, prompts, torch.tensor([0, 0]), [plainer, slotted], centroids)
    assert torch.equal(inputs.embeddings[1, [3, 5]], vectors)
    ids = torch.from_numpy(slotted.input_ids).long()
    assert torch.equal(inputs.embeddings[1, [2, 4, 6]], backbone.embed(ids)[[0, 2, 4]])
    assert torch.equal(inputs.embeddings[0, 2:], backbone.embed(torch.from_numpy(plainer.input_ids).long()))


def test_a_missing_centroid_is_refused():
    chance = np.random.default_rng(0)
    slotted = example(chance, slots=[CentroidSlot(1, "ss", 9)])
    arguments = (backbone_of(t5()), torch.zeros(1, 2, 16).double(), torch.tensor([0]), [slotted])
    with pytest.raises(InputError, match="none for cluster 9 of ss: run cluster again"):
        encoder_inputs(*arguments, Centroids(torch.zeros(1, 16), {("ss", 1): 0}))
    with pytest.raises(InputError, match="no centroids were given"):
        encoder_inputs(*arguments, None)
