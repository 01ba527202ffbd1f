"""Products with a frozen matrix: the numbers and derivatives of torch's own linear layer."""

import gc
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck
from torch.nn.functional import linear

from model.t5 import products
from model.t5.products import FrozenMatrix

needs_onednn = pytest.mark.skipif(not products._WIDE, reason="oneDNN's layouts are for processors with AVX-512")


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
    ours = first_and_second(FrozenMatrix(matrix, packs=True), values)
    theirs = first_and_second(lambda given: linear(given, matrix), values)
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


def test_a_matrix_and_the_values_may_be_views_of_others():
    torch.manual_seed(0)
    view, values = torch.randn(5, 12)[:, ::2].t(), torch.randn(5, 4).t()
    torch.testing.assert_close(FrozenMatrix(view, packs=True)(values), linear(values, view), rtol=1e-5, atol=1e-5)


def test_half_precision_is_left_to_torch():
    values, matrix = torch.randn(3, 5, dtype=torch.bfloat16), torch.randn(6, 5, dtype=torch.bfloat16)
    assert torch.equal(FrozenMatrix(matrix, packs=True)(values), linear(values, matrix))


def test_doubles_pass_the_check_by_finite_differences():
    torch.manual_seed(0)
    values = torch.randn(3, 5, dtype=torch.float64, requires_grad=True)
    frozen = FrozenMatrix(torch.randn(4, 5, dtype=torch.float64), packs=True)
    assert gradcheck(lambda given: frozen(given).pow(2), values)
    assert gradgradcheck(lambda given: frozen(given).pow(2), values)


def test_nothing_of_the_input_is_kept_for_the_backward_pass():
    kept = []
    values = torch.randn(64, 5, requires_grad=True)
    frozen = FrozenMatrix(torch.randn(6, 5), packs=True)
    with torch.autograd.graph.saved_tensors_hooks(lambda one: kept.append(one.shape) or one, lambda one: one):
        frozen(values)
    assert values.shape not in kept


@needs_onednn
def test_where_onednn_has_no_memory_for_a_kernel_the_plain_layer_does(monkeypatch):
    values, matrix, asked = torch.randn(3, 5), torch.randn(6, 5), []
    frozen = FrozenMatrix(matrix, packs=True)

    class Fails:
        _reorder_linear_weight = products._OPERATORS._reorder_linear_weight

        def _linear_pointwise(self, *arguments):
            asked.append(arguments)
            raise RuntimeError(products.NO_KERNEL)

    monkeypatch.setattr(products, "_OPERATORS", Fails())
    assert torch.equal(frozen(values), linear(values, matrix))
    assert torch.equal(frozen(values), linear(values, matrix))
    assert len(asked) == 1  # it is not asked again


@needs_onednn
def test_threads_that_want_a_layout_at_once_make_it_once(monkeypatch):
    made, both = [], threading.Barrier(2, timeout=20)
    theirs = products._OPERATORS

    class Slow:
        _linear_pointwise = theirs._linear_pointwise

        def _reorder_linear_weight(self, *arguments):
            made.append(arguments)
            time.sleep(0.1)
            return theirs._reorder_linear_weight(*arguments)

    monkeypatch.setattr(products, "_OPERATORS", Slow())
    values, matrix = torch.randn(3, 5), torch.randn(6, 5)
    frozen = FrozenMatrix(matrix, packs=True)

    def work(_number):
        both.wait()
        return frozen(values)

    with ThreadPoolExecutor(2) as pool:
        for found in pool.map(work, range(2)):
            torch.testing.assert_close(found, linear(values, matrix))
    assert len(made) == 1


@needs_onednn
def test_any_other_trouble_of_onednn_is_told(monkeypatch):
    class Fails:
        _reorder_linear_weight = products._OPERATORS._reorder_linear_weight

        def _linear_pointwise(self, *_arguments):
            raise RuntimeError("could not create a primitive descriptor")

    frozen = FrozenMatrix(torch.randn(6, 5), packs=True)
    monkeypatch.setattr(products, "_OPERATORS", Fails())
    with pytest.raises(RuntimeError, match="descriptor"):
        frozen(torch.randn(3, 5))


def test_a_matrix_that_nobody_holds_is_gone_at_once():
    frozen, values = FrozenMatrix(torch.randn(6, 5), packs=True), torch.randn(3, 5, requires_grad=True)
    frozen(values).sum().backward()
    held = weakref.ref(frozen)
    gc.disable()
    try:
        del frozen
        assert held() is None
    finally:
        gc.enable()


def test_a_matrix_is_not_copied_where_no_layout_is_wanted():
    matrix = torch.randn(6, 5)
    frozen = FrozenMatrix(matrix)
    frozen(torch.randn(3, 5, requires_grad=True)).sum().backward()
    assert frozen._matrix.data_ptr() == matrix.data_ptr()
    assert not frozen._layouts
