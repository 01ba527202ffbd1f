"""Products with a frozen matrix, by the faster of torch's two libraries.

In float32 torch multiplies by MKL, which leaves the wide vector units of processors by others than its maker unused,
and which reads a matrix as it lies, each time. oneDNN, which torch brings as well, uses those units and takes a matrix
in a layout of its own, made once: a fifth faster on many rows, three times as fast for few rows and a vocabulary.

Torch has an operator for it, without derivatives; those of a product with a constant are products with that constant,
so that here they are two lines. oneDNN makes a kernel for every number of rows, which takes a millisecond and half a
megabyte: who has many numbers of rows rounds them up (see `model.packing`).
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.nn.functional import linear

_OPERATORS: Any = torch.ops.mkldnn
_HAS_ONEDNN: bool = torch.backends.mkldnn.is_available() and hasattr(_OPERATORS, "_linear_pointwise")  # type: ignore[no-untyped-call]  # torch has no type for it
_WIDE = _HAS_ONEDNN and "AVX512" in torch.backends.cpu.get_cpu_capability()
_NO_KERNEL = "could not create a primitive"  # what oneDNN says when memory has run out
_ROWS = 1024  # that a layout is made for; it serves any number


class FrozenMatrix:
    """A constant matrix [e, d]; calling it multiplies by its transpose: [..., d] → [..., e].

    It is held once, in the layout its products want; with derivatives once more, for those of the transpose.
    """

    def __init__(self, matrix: Tensor, transposed: "FrozenMatrix | None" = None) -> None:
        self.dtype = matrix.dtype
        self._is_packed = _WIDE and matrix.device.type == "cpu" and matrix.dtype == torch.float32
        self._matrix: Tensor = _packed(matrix.detach()) if self._is_packed else matrix.detach()
        self._transposed = transposed

    def __call__(self, values: Tensor) -> Tensor:
        """Values [..., d], of the matrix's type, times its transpose; differentiable any number of times."""
        if not self._is_packed:
            return linear(values, self._matrix)
        found: Tensor = _Product.apply(values, self)  # type: ignore[no-untyped-call]  # torch has no type for it
        return found

    def product(self, values: Tensor) -> Tensor:
        """The same by oneDNN, without derivatives; where it has no memory for a kernel, by torch's other library."""
        try:
            found: Tensor = _OPERATORS._linear_pointwise(values, self._matrix, None, "none", [], "")  # noqa: SLF001 - its only name
        except RuntimeError as error:
            if _NO_KERNEL not in str(error):
                raise
            return linear(values, self._matrix.to_dense())
        return found

    def transposed(self) -> "FrozenMatrix":
        """The transpose [d, e], which derivatives multiply by."""
        if self._transposed is None:
            self._transposed = FrozenMatrix(self._matrix.to_dense().t(), transposed=self)
        return self._transposed


def _packed(matrix: Tensor) -> Tensor:
    """The matrix in oneDNN's layout."""
    packed: Tensor = _OPERATORS._reorder_linear_weight(matrix.contiguous(), _ROWS)  # noqa: SLF001 - its only name
    return packed


class _Product(Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, matrix: FrozenMatrix) -> Tensor:
        ctx.matrix = matrix
        return matrix.product(values)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        return _Product.apply(gradient, ctx.matrix.transposed()), None  # type: ignore[no-untyped-call]
