"""Products with a frozen matrix, by the faster of torch's two libraries.

In float32 torch multiplies by MKL, which reads a matrix as it lies, each time. oneDNN, which torch brings, too, has
a layout of its own for it, made once. Measured on a processor with AVX-512 that is not Intel's: a fifth faster on many
rows, three times as fast for few rows and a vocabulary.

Torch has an operator for it, without derivatives; those of a product with a constant are products with that constant,
so that here they are two lines. oneDNN makes a kernel for every number of rows, which takes a millisecond and half a
megabyte: who has many numbers of rows rounds them up (see `model.t5.packing`).
"""

from threading import Lock
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.nn.functional import linear

_OPERATORS: Any = torch.ops.mkldnn
_HAS_ONEDNN: bool = torch.backends.mkldnn.is_available() and hasattr(_OPERATORS, "_linear_pointwise")  # type: ignore[no-untyped-call]  # torch has no type for it
_WIDE = _HAS_ONEDNN and "AVX512" in torch.backends.cpu.get_cpu_capability()
_PACKED = (torch.float32, torch.bfloat16) if torch.cpu._is_avx512_bf16_supported() else (torch.float32,)  # noqa: SLF001 - its only name
NO_KERNEL = "could not create a primitive"  # all that oneDNN says when memory has run out
_ROWS = 1024  # that a layout is made for; it serves any number
_MAKING = Lock()  # of a layout: threads that want the same one wait for it


class FrozenMatrix:
    """A constant matrix [e, d]; calling it multiplies by its transpose: [..., d] → [..., e].

    Args:
        matrix: in any layout; it is not copied.
        packs: hold it once more in oneDNN's layout where that is faster, and its transpose where derivatives are taken.
    """

    def __init__(self, matrix: Tensor, *, packs: bool = False) -> None:
        self._matrix = matrix.detach()
        self.dtype = matrix.dtype
        self._packs = packs and _WIDE and matrix.device.type == "cpu" and matrix.dtype in _PACKED
        self._layouts: dict[bool, Tensor] = {}  # of the matrix, and (True) of its transpose

    def __call__(self, values: Tensor) -> Tensor:
        """Values [..., d], of the matrix's type, times its transpose; differentiable any number of times."""
        if not self._packs:
            return linear(values, self._matrix)
        found: Tensor = _Product.apply(values, self, False)  # type: ignore[no-untyped-call]  # torch has no type for it
        return found

    def product(self, values: Tensor, *, transposed: bool) -> Tensor:
        """Without derivatives: values [..., d] → [..., e], or as the derivative has it [..., e] → [..., d].

        Once there was no memory for a kernel oneDNN makes none in this process: torch's other library does the rest.
        """
        matrix = self._matrix.t() if transposed else self._matrix
        if self._packs:
            try:
                found: Tensor = _OPERATORS._linear_pointwise(values, self._layout(transposed), None, "none", [], "")  # noqa: SLF001 - its only name
            except RuntimeError as error:
                if str(error) != NO_KERNEL:
                    raise
                self._packs = False
                self._layouts.clear()
            else:
                return found
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
