"""Products with a frozen matrix: the numbers and derivatives of torch's own linear layer."""

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck
from torch.nn.functional import linear

from model import products
from model.products import FrozenMatrix


def first_and_second(function, values):
    """The result, its gradient for a curved loss, and that gradient's own."""
    values = values.clone().requires_grad_()
    result = function(values)
    (first,) = torch.autograd.grad(result.pow(3).sum(), values, create_graph=True)
    (second,) = torch.autograd.grad(first.pow(2).sum(), values)
    return result.detach(), first.detach(), second


@pytest.mark.parametrize("shape", [(7, 5), (3, 4, 5), (1, 5), (0, 5), (5,)], ids=str)
def test_values_and_derivatives_are_those_of_a_linear_layer(shape):
    torch.manual_seed(0)
    values, matrix = torch.randn(shape), torch.randn(6, 5)
    ours = first_and_second(FrozenMatrix(matrix), values)
    theirs = first_and_second(lambda given: linear(given, matrix), values)
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


def test_a_matrix_and_the_values_may_be_views_of_others():
    torch.manual_seed(0)
    view, values = torch.randn(5, 12)[:, ::2].t(), torch.randn(5, 4).t()
    torch.testing.assert_close(FrozenMatrix(view)(values), linear(values, view), rtol=1e-5, atol=1e-5)


def test_half_precision_is_left_to_torch():
    values, matrix = torch.randn(3, 5, dtype=torch.bfloat16), torch.randn(6, 5, dtype=torch.bfloat16)
    assert torch.equal(FrozenMatrix(matrix)(values), linear(values, matrix))


def test_doubles_pass_the_check_by_finite_differences():
    torch.manual_seed(0)
    values = torch.randn(3, 5, dtype=torch.float64, requires_grad=True)
    frozen = FrozenMatrix(torch.randn(4, 5, dtype=torch.float64))
    assert gradcheck(lambda given: frozen(given).pow(2), values)
    assert gradgradcheck(lambda given: frozen(given).pow(2), values)


def test_nothing_of_the_input_is_kept_for_the_backward_pass():
    kept = []
    values = torch.randn(64, 5, requires_grad=True)
    frozen = FrozenMatrix(torch.randn(6, 5))
    with torch.autograd.graph.saved_tensors_hooks(lambda one: kept.append(one.shape) or one, lambda one: one):
        frozen(values)
    assert values.shape not in kept


def test_where_onednn_has_no_memory_for_a_kernel_the_plain_layer_does(monkeypatch):
    values, matrix = torch.randn(3, 5), torch.randn(6, 5)
    frozen = FrozenMatrix(matrix)

    class Fails:
        def _linear_pointwise(self, *_arguments):
            raise RuntimeError(products._NO_KERNEL)

    monkeypatch.setattr(products, "_OPERATORS", Fails())
    assert torch.equal(frozen(values), linear(values, matrix))
