"""The derivatives written out by hand are those of the plain formulas, to the second order."""

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck
from transformers.activations import NewGELUActivation

from model.t5.derivatives import gated_tanh_gelu, relu, rms_normed, tanh_gelu

pytestmark = pytest.mark.usefixtures("one_thread")


def normed(values):
    return rms_normed(values, 1e-6)


@pytest.mark.parametrize("function", [normed, tanh_gelu, gated_tanh_gelu, relu], ids=["norm", "gelu", "gated", "relu"])
def test_first_and_second_derivatives_are_finite_differences(function):
    torch.manual_seed(0)
    values = torch.randn(3, 2, 8, dtype=torch.float64, requires_grad=True)
    assert gradcheck(function, values)
    assert gradgradcheck(function, values)


def test_the_norm_is_the_division_by_the_root_mean_square():
    values = torch.randn(4, 9, dtype=torch.float64)
    expected = values / (values.square().mean(-1, keepdim=True) + 1e-6).sqrt()
    torch.testing.assert_close(normed(values), expected)


def test_a_vector_of_zeros_stays_zero_and_has_finite_derivatives():
    values = torch.zeros(2, 5, requires_grad=True)
    (first,) = torch.autograd.grad(normed(values), values, torch.ones(2, 5), create_graph=True)
    (second,) = torch.autograd.grad(first, values, torch.ones(2, 5))
    assert (normed(values) == 0).all()
    assert torch.isfinite(first).all()
    assert torch.isfinite(second).all()


def test_the_activation_is_transformers_own_far_from_zero_too():
    values = torch.linspace(-30, 30, 601, requires_grad=True)
    theirs, ours = NewGELUActivation()(values), tanh_gelu(values)
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)
    both = [
        torch.autograd.grad(value, values, torch.ones_like(values), create_graph=True)[0] for value in (theirs, ours)
    ]
    torch.testing.assert_close(both[1], both[0], rtol=1e-4, atol=1e-5)
    second = [torch.autograd.grad(value, values, torch.ones_like(values))[0] for value in both]
    assert torch.isfinite(second[1]).all()
    torch.testing.assert_close(second[1], second[0], rtol=1e-3, atol=1e-4)


def test_the_gated_activation_is_that_of_the_first_half_times_the_second():
    values = torch.randn(5, 12)
    gate, through = values.chunk(2, dim=-1)
    torch.testing.assert_close(gated_tanh_gelu(values), tanh_gelu(gate) * through)


@pytest.mark.parametrize("function", [tanh_gelu, gated_tanh_gelu], ids=["gelu", "gated"])
def test_in_bfloat16_only_the_results_are_rounded(function):
    torch.manual_seed(0)
    low = (torch.randn(4, 16) * 3).bfloat16().requires_grad_()
    wide = low.detach().float().requires_grad_()
    first = [torch.autograd.grad(function(one).sum(), one, create_graph=True)[0] for one in (low, wide)]
    second = [torch.autograd.grad(gradient.sum(), one)[0] for gradient, one in zip(first, (low, wide), strict=True)]
    for narrow, exact in ((function(low), function(wide)), first, second):
        assert narrow.dtype == torch.bfloat16
        torch.testing.assert_close(narrow.float(), exact, rtol=2**-7, atol=2**-7)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
def test_relu_is_torchs_own_at_zero_too_and_keeps_a_byte_a_number(dtype):
    values = torch.tensor([-2.0, -0.0, 0.0, 3.0, 1e-30], dtype=dtype, requires_grad=True)
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda one: kept.append(one) or one, lambda one: one):
        ours = relu(values)
    given = torch.arange(1.0, 6.0, dtype=dtype)
    theirs = values.relu()
    assert torch.equal(ours, theirs)
    assert torch.equal(torch.autograd.grad(ours, values, given)[0], torch.autograd.grad(theirs, values, given)[0])
    assert sum(one.untyped_storage().nbytes() for one in kept) == values.numel()
    kept.clear()
    with torch.autograd.graph.saved_tensors_hooks(lambda one: kept.append(one) or one, lambda one: one):
        torch.autograd.grad(relu(values), values, given.requires_grad_(), create_graph=True)
    assert sum(one.untyped_storage().nbytes() for one in {one.data_ptr(): one for one in kept}.values()) == len(values)
