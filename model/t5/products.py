"""Products with a frozen matrix, by the faster of torch's two libraries.

In float32 torch multiplies with MKL, which reads the matrix in its plain layout each time. oneDNN, which is also part
of torch, converts the matrix once to a layout of its own. Measured on an AVX-512 CPU not made by Intel, this is a fifth
faster for many rows, and three times as fast for few rows and the output matrix of a vocabulary.

Torch's operator for it has no derivatives. The derivatives of a product with a constant are products with that
constant, which takes two lines here. oneDNN makes a kernel for every number of rows, which takes a millisecond and half
a megabyte: callers with many different numbers of rows should round them up (see `model.t5.packing`).
"""

from threading import Lock
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.nn.functional import linear

from model.t5.precision import bfloat16_units

_OPERATORS: Any = torch.ops.mkldnn
_HAS_ONEDNN: bool = torch.backends.mkldnn.is_available() and hasattr(_OPERATORS, "_linear_pointwise")  # type: ignore[no-untyped-call]  # torch has no type for it
_WIDE = _HAS_ONEDNN and "AVX512" in torch.backends.cpu.get_cpu_capability()
_PACKED = (torch.float32, torch.bfloat16) if bfloat16_units(torch.device("cpu")) else (torch.float32,)
NO_KERNEL = "could not create a primitive"  # oneDNN's only message when memory has run out
_ROWS = 1024  # rows that a layout is made for; it can be used for any number
_MAKING = Lock()  # held while a layout is made, so that other threads wait for it


class FrozenMatrix:
    """A constant matrix [e, d]; calling it multiplies by its transpose: [..., d] → [..., e].

    Args:
        matrix: in any layout; it is not copied.
        packs: also keep it in oneDNN's layout if that is faster, and its transpose if derivatives are computed.
    """

    def __init__(self, matrix: Tensor, *, packs: bool = False) -> None:
        self._matrix = matrix.detach()
        self.dtype = matrix.dtype
        self._packs = packs and _WIDE and matrix.device.type == "cpu" and matrix.dtype in _PACKED
        self._layouts: dict[bool, Tensor] = {}  # of the matrix, and (True) of its transpose

    def __call__(self, values: Tensor) -> Tensor:
        """Return values [..., d], of the matrix's type, times its transpose; differentiable any number of times."""
        if not self._packs:
            return linear(values, self._matrix)
        product: Tensor = _Product.apply(values, self, False)  # type: ignore[no-untyped-call]  # torch has no type for it
        return product

    def product(self, values: Tensor, *, transposed: bool) -> Tensor:
        """Return the product without derivatives: [..., d] → [..., e], or [..., e] → [..., d] with the transpose.

        After it has once had no memory for a kernel, oneDNN makes no more of them in this process; torch's other
        library then computes the products.
        """
        matrix = self._matrix.t() if transposed else self._matrix
        if self._packs:
            try:
                result: Tensor = _OPERATORS._linear_pointwise(values, self._layout(transposed), None, "none", [], "")  # noqa: SLF001 - its only name
            except RuntimeError as error:
                if str(error) != NO_KERNEL:
                    raise
                self._packs = False
                self._layouts.clear()
            else:
                return result
        return linear(values, matrix)

    def _layout(self, transposed: bool) -> Tensor:
        layout = self._layouts.get(transposed)
        if layout is None:
            with _MAKING:
                layout = self._layouts.get(transposed)
                if layout is None:
                    matrix = self._matrix.t() if transposed else self._matrix
                    layout = _OPERATORS._reorder_linear_weight(matrix.contiguous(), _ROWS)  # noqa: SLF001 - its only name
                    self._layouts[transposed] = layout
        return layout


class _Product(Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, matrix: FrozenMatrix, transposed: bool) -> Tensor:
        ctx.matrix, ctx.transposed = matrix, transposed
        return matrix.product(values, transposed=transposed)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        return _Product.apply(gradient, ctx.matrix, not ctx.transposed), None, None  # type: ignore[no-untyped-call]
