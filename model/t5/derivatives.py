"""Functions of T5's layers with their first and second derivatives written out.

Autograd would pass over memory once for each of their many small steps. Written out, the norm takes two fifths of
autograd's time in the first order and a third in the second; the activation of gated T5 takes a third and a half. The
activation of plain T5 is kept in a quarter of the memory.
"""

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.nn.functional import gelu

_K, _A = math.sqrt(2 / math.pi), 0.044715
_gelu_gradient = torch.ops.aten.gelu_backward


def rms_normed(values: Tensor, epsilon: float) -> Tensor:
    """Return T5's layer norm without its scale: each vector of `values` [..., d] divided by its root mean square."""
    normed: Tensor = _RmsNorm.apply(values, epsilon)  # type: ignore[no-untyped-call]  # torch has no type for it
    return normed


def tanh_gelu(values: Tensor) -> Tensor:
    """Return x/2·(1 + tanh u) with u = k·(x + a·x³), gated T5's approximation of GELU."""
    active: Tensor = _Gelu.apply(values)  # type: ignore[no-untyped-call]
    return active


def relu(values: Tensor) -> Tensor:
    """Return max(x, 0); the derivatives keep one byte per number, which says whether it is above 0."""
    active: Tensor = _Relu.apply(values)  # type: ignore[no-untyped-call]
    return active


class _Relu(Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor) -> Tensor:
        active = values.relu()
        ctx.save_for_backward(active.bool())
        return active

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        return _Masked.apply(gradient, *ctx.saved_tensors)  # type: ignore[no-untyped-call]


class _Masked(Function):
    """The values with zeros where `above` is false; `above` is kept for the next derivative as bytes, not as floats."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, above: Tensor) -> Tensor:
        ctx.save_for_backward(above)
        return values * above.view(torch.uint8).to(values.dtype)  # torch is very slow at multiplying by booleans

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        return _Masked.apply(gradient, *ctx.saved_tensors), None  # type: ignore[no-untyped-call]


class _RmsNorm(Function):
    """y = x·r with r = (mean x² + ε)^(−1/2)."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, epsilon: float) -> Tensor:
        inverse = torch.rsqrt(values.square().mean(-1, keepdim=True) + epsilon)
        ctx.save_for_backward(values, inverse)
        return values * inverse

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        return _RmsNormGradient.apply(gradient, *ctx.saved_tensors), None  # type: ignore[no-untyped-call]


class _RmsNormGradient(Function):
    """f(g, x) = r·g − r³·mean(g·x)·x, with r of `_RmsNorm`."""

    @staticmethod
    def forward(ctx: Any, gradient: Tensor, values: Tensor, inverse: Tensor) -> Tensor:
        along = (gradient * values).mean(-1, keepdim=True)
        ctx.save_for_backward(gradient, values, inverse, along)
        return (gradient * inverse).addcmul_(values, along * inverse**3, value=-1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, cotangent: Tensor) -> Any:
        gradient, values, inverse, along = ctx.saved_tensors
        cube = inverse**3
        with_values = (cotangent * values).mean(-1, keepdim=True)
        with_gradient = (cotangent * gradient).mean(-1, keepdim=True)
        of_gradient = (cotangent * inverse).addcmul_(values, with_values * cube, value=-1)
        of_values = (cotangent * (-along * cube)).addcmul_(gradient, -with_values * cube)
        of_values.addcmul_(values, 3 * with_values * along * inverse**5 - with_gradient * cube)
        return of_gradient, of_values, None


class _Gelu(Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor) -> Tensor:
        ctx.save_for_backward(values)
        return gelu(values, approximate="tanh")

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        return _GeluGradient.apply(gradient, *ctx.saved_tensors)  # type: ignore[no-untyped-call]


class _GeluGradient(Function):
    """g·f′(x); its derivative needs f″(x) = (1 − t²)·(u′ + x/2·(u″ − 2·t·u′²)) with t = tanh u."""

    @staticmethod
    def forward(ctx: Any, gradient: Tensor, values: Tensor) -> Tensor:
        ctx.save_for_backward(gradient, values)
        product: Tensor = _gelu_gradient(gradient, values, approximate="tanh")
        return product

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, cotangent: Tensor) -> Any:
        gradient, x = ctx.saved_tensors
        squared = x * x
        t = torch.tanh((squared * (_K * _A)).add_(_K).mul_(x))
        slope = (squared * (3 * _K * _A)).add_(_K)
        rest = (t * t).neg_().add_(1)
        second = t.mul_(slope).mul_(slope).mul_(-2).add_(x, alpha=6 * _K * _A).mul_(x).mul_(0.5).add_(slope).mul_(rest)
        return _gelu_gradient(cotangent, x, approximate="tanh"), second.mul_(gradient).mul_(cotangent)
