"""Products with a frozen matrix, by the faster of torch's two libraries.

In float32 torch multiplies by MKL, which leaves the wide vector units of processors by others than its maker unused.
oneDNN, which torch brings as well, uses them: a tenth faster on one core, up to a third on two, and twice as fast for
few rows and a vocabulary. Torch calls it for a linear layer through an operator of its own, without derivatives; those
of a product with a constant are products with that constant, so that here they are two lines.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.nn.functional import linear

_ONEDNN: Any = getattr(torch.ops.mkldnn, "_linear_pointwise", None)
_HAS_ONEDNN: bool = _ONEDNN is not None and torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
_WIDE = _HAS_ONEDNN and "AVX512" in torch.backends.cpu.get_cpu_capability()


def product(values: Tensor, matrix: Tensor) -> Tensor:
    """`values` [..., d] times the transpose of a constant `matrix` [e, d], [..., e]."""
    if _WIDE and values.device.type == "cpu" and values.dtype == matrix.dtype == torch.float32 and values.numel():
        found: Tensor = _Product.apply(values, matrix)  # type: ignore[no-untyped-call]  # torch has no type for it
        return found
    return linear(values, matrix)


class _Product(Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, matrix: Tensor) -> Tensor:
        ctx.matrix = matrix
        try:
            found: Tensor = _ONEDNN(values, matrix, None, "none", [], "")
        except (
            RuntimeError
        ):  # out of memory it says only that it could not be created; MKL may do with less, or says it
            return linear(values, matrix)
        return found

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        return _Product.apply(gradient, ctx.matrix.t()), None  # type: ignore[no-untyped-call]
