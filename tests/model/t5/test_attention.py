"""Attention by kept weights: the numbers of torch's own kernel; where two derivatives are wanted, torch's is taken."""

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from model.t5 import attention
from model.t5.attention import attended

ROWS, LENGTH, HEADS, SIZE = 3, 5, 2, 4


def given(dtype=torch.float64, biases=1):
    torch.manual_seed(0)
    projected = torch.randn(ROWS, LENGTH, 3, HEADS, SIZE, dtype=dtype, requires_grad=True)
    return projected, torch.randn(biases, HEADS, LENGTH, LENGTH, dtype=dtype)


def by_torch(projected, bias):
    query, key, value = projected.permute(2, 0, 3, 1, 4)
    pooled = scaled_dot_product_attention(query, key, value, attn_mask=bias, scale=1.0)
    return pooled.transpose(1, 2).flatten(2)


@pytest.mark.parametrize("biases", [1, ROWS])
def test_values_and_gradient_are_those_of_torchs_kernel(biases):
    projected, bias = given(torch.float32, biases)
    ours, theirs = (function(projected, bias) for function in (attended, by_torch))
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)
    gradients = [torch.autograd.grad(one.pow(3).sum(), projected)[0] for one in (ours, theirs)]
    torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-5)


def test_the_gradient_passes_the_check_by_finite_differences():
    projected, bias = given()
    assert gradcheck(lambda values: attended(values, bias).pow(2), projected)


def test_there_are_two_derivatives_by_either_kernel(monkeypatch):
    projected, bias = given()
    assert gradgradcheck(lambda values: attended(values, bias).pow(2), projected)
    monkeypatch.setattr(attention, "_SHORT", 0)
    with sdpa_kernel(SDPBackend.MATH):
        assert gradgradcheck(lambda values: attended(values, bias).pow(2), projected)


def test_bfloat16_is_close_to_float32_in_both_derivatives():
    projected, bias = given(torch.float32)

    def derivatives(kind):
        values = projected.detach().to(kind).requires_grad_()
        (first,) = torch.autograd.grad(attended(values, bias).float().pow(2).sum(), values, create_graph=True)
        (second,) = torch.autograd.grad(first.float().pow(2).sum(), values)
        return first.detach().float().flatten(), second.float().flatten()

    for exact, rounded in zip(derivatives(torch.float32), derivatives(torch.bfloat16), strict=True):
        assert torch.cosine_similarity(exact, rounded, dim=0) > 0.999


@pytest.mark.parametrize(("short", "keeps"), [(LENGTH, True), (LENGTH - 1, False)])
def test_only_short_rows_keep_their_weights(monkeypatch, short, keeps):
    projected, bias = given(torch.float32)
    monkeypatch.setattr(attention, "_SHORT", short)
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda one: kept.append(one.numel()) or one, lambda one: one):
        attended(projected, bias)
    assert (ROWS * HEADS * LENGTH * LENGTH in kept) is keeps
