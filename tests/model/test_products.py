"""Products with a frozen matrix: the numbers and derivatives of torch's own linear layer."""

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck
from torch.nn.functional import linear

from model import products
from model.products import product


def first_and_second(function, values, matrix):
    """The result, its gradient for a curved loss, and that gradient's own."""
    values = values.clone().requires_grad_()
    result = function(values, matrix)
    (first,) = torch.autograd.grad(result.pow(3).sum(), values, create_graph=True)
    (second,) = torch.autograd.grad(first.pow(2).sum(), values)
    return result.detach(), first.detach(), second


@pytest.mark.parametrize("shape", [(7, 5), (3, 4, 5), (1, 5), (0, 5)], ids=str)
def test_values_and_derivatives_are_those_of_a_linear_layer(shape):
    torch.manual_seed(0)
    values, matrix = torch.randn(shape), torch.randn(6, 5)
    ours, theirs = (first_and_second(function, values, matrix) for function in (product, linear))
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


def test_a_matrix_may_be_a_view_of_another():
    torch.manual_seed(0)
    whole, values = torch.randn(5, 12), torch.randn(4, 5)
    view = whole[:, ::2].t()
    torch.testing.assert_close(product(values, view), linear(values, view), rtol=1e-5, atol=1e-5)


def test_doubles_pass_the_check_by_finite_differences():
    torch.manual_seed(0)
    values, matrix = torch.randn(3, 5, dtype=torch.float64, requires_grad=True), torch.randn(4, 5, dtype=torch.float64)
    assert gradcheck(lambda given: product(given, matrix).pow(2), values)
    assert gradgradcheck(lambda given: product(given, matrix).pow(2), values)


def test_nothing_of_the_input_is_kept_for_the_backward_pass():
    kept = []
    values = torch.randn(64, 5, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(lambda one: kept.append(one.shape) or one, lambda one: one):
        product(values, torch.randn(6, 5))
    assert values.shape not in kept


def test_where_onednn_cannot_the_plain_layer_does(monkeypatch):
    def fails(*_arguments):
        raise RuntimeError("could not create a primitive")

    monkeypatch.setattr(products, "_WIDE", True)
    monkeypatch.setattr(products, "_ONEDNN", fails)
    values, matrix = torch.randn(3, 5), torch.randn(6, 5)
    assert torch.equal(product(values, matrix), linear(values, matrix))
