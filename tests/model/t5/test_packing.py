"""Packing leaves out padding and puts zeros there again; each way is the other's derivative."""

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

from model.t5.packing import FINE_GRAIN, GRAIN, Packing

RAGGED = torch.tensor([[True, True, True, True], [True, True, False, False], [True, False, False, False]])


def rows_of(mask, width=3):
    torch.manual_seed(0)
    return torch.randn(*mask.shape, width, dtype=torch.float64)


def test_packed_rows_are_their_positions_in_order_and_come_back_with_zeros_at_padding():
    rows, packing = rows_of(RAGGED), Packing(RAGGED)
    packed = packing.packed(rows)
    assert torch.equal(packed[: RAGGED.sum()], rows[RAGGED])
    assert torch.equal(packing.padded(packed), rows * RAGGED.unsqueeze(-1))


@pytest.mark.parametrize("mask", [torch.ones(2, 4, dtype=torch.bool), torch.arange(96).view(2, 48) < 94])
def test_where_padding_is_little_or_none_nothing_moves(mask):
    rows, packing = rows_of(mask), Packing(mask)
    assert packing.packed(rows).data_ptr() == rows.data_ptr()
    assert torch.equal(packing.padded(packing.packed(rows)), rows)


def test_a_mask_that_begins_with_padding_is_kept_too():
    mask = RAGGED.flip(1)
    rows, packing = rows_of(mask), Packing(mask)
    assert torch.equal(packing.padded(packing.packed(rows)), rows * mask.unsqueeze(-1))


def test_both_ways_have_first_and_second_derivatives():
    packing = Packing(RAGGED)
    rows = rows_of(RAGGED).requires_grad_()
    positions = packing.packed(rows).detach().requires_grad_()
    for function, values in ((packing.packed, rows), (packing.padded, positions)):
        assert gradcheck(lambda x, f=function: f(x).square(), values)
        assert gradgradcheck(lambda x, f=function: f(x).square(), values)


@pytest.mark.parametrize("share", [0.5, 1.0], ids=["packed", "left as they are"])
@pytest.mark.parametrize(("length", "grain"), [(7, FINE_GRAIN), (99, GRAIN)])
def test_lists_are_filled_up_to_a_round_length_with_zeros(length, grain, share):
    mask = torch.arange(3 * length).view(3, length) % length < share * length
    rows, packing = rows_of(mask, width=1), Packing(mask)
    packed, held = packing.packed(rows), int(mask.sum())
    assert len(packed) % grain == 0
    assert 0 < len(packed) - held < grain
    assert torch.equal(packed[held:], torch.zeros_like(packed[held:]))
    assert torch.equal(packing.padded(packed), rows * mask.unsqueeze(-1))
