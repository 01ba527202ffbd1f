"""Functions of T5's layers with their first and second derivatives written out.

Autograd would pass over memory once for each of their many small steps. Written out, the norm takes two fifths of
autograd's time in the first order and a third in the second; the activation of gated T5 takes two fifths of the time of
torch's GELU, which computes a tanh, and its derivative three quarters. The activation of plain T5 is kept in a quarter
of the memory.
"""

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

_K, _A = math.sqrt(2 / math.pi), 0.044715


def rms_normed(values: Tensor, epsilon: float) -> Tensor:
    """Return T5's layer norm without its scale: each vector of `values` [..., d] divided by its root mean square."""
    normed: Tensor = _RmsNorm.apply(values, epsilon)  # type: ignore[no-untyped-call]  # torch has no type for it
    return normed


def tanh_gelu(values: Tensor) -> Tensor:
    """Return x/2·(1 + tanh u) with u = k·(x + a·x³), gated T5's approximation of GELU."""
    active: Tensor = _Gelu.apply(values)  # type: ignore[no-untyped-call]
    return active


def gated_tanh_gelu(values: Tensor) -> Tensor:
    """Return GELU, as above, of the first half of `values` [..., 2·e], times their second half, [..., e]."""
    active: Tensor = _GatedGelu.apply(values)  # type: ignore[no-untyped-call]
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
        wide = _wide(values)
        return _sigmoid(wide).mul_(wide).to(values.dtype)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        return _GeluGradient.apply(gradient, *ctx.saved_tensors)  # type: ignore[no-untyped-call]


class _GeluGradient(Function):
    """g·f′(x)."""

    @staticmethod
    def forward(ctx: Any, gradient: Tensor, values: Tensor) -> Tensor:
        ctx.save_for_backward(gradient, values)
        wide = _wide(values)
        return _slope(wide, _sigmoid(wide)).mul_(_wide(gradient)).to(gradient.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, cotangent: Tensor) -> Any:
        gradient, values = ctx.saved_tensors
        wide, towards = _wide(values), _wide(cotangent)
        s = _sigmoid(wide)
        of_values = _curvature(wide, s).mul_(_wide(gradient)).mul_(towards).to(values.dtype)
        return _slope(wide, s).mul_(towards).to(gradient.dtype), of_values


class _GatedGelu(Function):
    """f(x)·y for values (x, y), [..., 2·e] → [..., e]."""

    @staticmethod
    def forward(ctx: Any, values: Tensor) -> Tensor:
        ctx.save_for_backward(values)
        gate, through = (_wide(half) for half in values.chunk(2, dim=-1))
        return _sigmoid(gate).mul_(gate).mul_(through).to(values.dtype)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        return _GatedGeluGradient.apply(gradient, *ctx.saved_tensors)  # type: ignore[no-untyped-call]


class _GatedGeluGradient(Function):
    """(g·y·f′(x), g·f(x))."""

    @staticmethod
    def forward(ctx: Any, gradient: Tensor, values: Tensor) -> Tensor:
        ctx.save_for_backward(gradient, values)
        gate, through = (_wide(half) for half in values.chunk(2, dim=-1))
        g, s = _wide(gradient), _sigmoid(gate)
        result = torch.empty_like(values)
        of_gate, of_through = result.chunk(2, dim=-1)
        of_gate.copy_(_slope(gate, s).mul_(through).mul_(g))
        of_through.copy_(s.mul_(gate).mul_(g))
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, cotangents: Tensor) -> Any:
        """Return, for the cotangents A and B of the halves, those of g, x and y.

        They are A·y·f′ + B·f, A·g·y·f″ + B·g·f′ and A·g·f′.
        """
        gradient, values = ctx.saved_tensors
        gate, through = (_wide(half) for half in values.chunk(2, dim=-1))
        a, b = (_wide(half) for half in cotangents.chunk(2, dim=-1))
        g, s = _wide(gradient), _sigmoid(gate)
        slope, with_through = _slope(gate, s), a * through
        result = torch.empty_like(values)
        of_gate, of_through = result.chunk(2, dim=-1)
        of_gate.copy_(_curvature(gate, s).mul_(with_through).addcmul_(b, slope).mul_(g))
        of_gradient = s.mul_(gate).mul_(b).addcmul_(with_through, slope)
        of_through.copy_(slope.mul_(a).mul_(g))
        return of_gradient.to(gradient.dtype), result


# f(x) = x·s with s = σ(v) and v = 2·k·(x + a·x³): as tanh's, since (1 + tanh u)/2 = σ(2·u), but σ takes a tenth of the
# time of tanh.


def _wide(values: Tensor) -> Tensor:
    """Return the values in float32, or in their own type if it is wider: in-place steps of two types are slow."""
    return values.to(torch.promote_types(values.dtype, torch.float32))


def _sigmoid(x: Tensor) -> Tensor:
    """Return s."""
    return (x * x).mul_(2 * _K * _A).add_(2 * _K).mul_(x).sigmoid_()


def _slope(x: Tensor, s: Tensor) -> Tensor:
    """Return f′(x) = s + x·s·(1 − s)·v′ with v′ = 2·k·(1 + 3·a·x²)."""
    with_v = (x * x).mul_(6 * _K * _A).add_(2 * _K).mul_(x)
    return with_v.addcmul_(with_v, s, value=-1).add_(1).mul_(s)


def _curvature(x: Tensor, s: Tensor) -> Tensor:
    """Return f″(x) = s·(1 − s)·(2·v′ + x·((1 − 2·s)·v′² + v″)) with v″ = 12·k·a·x."""
    v = (x * x).mul_(6 * _K * _A).add_(2 * _K)
    inner = (v * v).mul_(1 - 2 * s).add_(x, alpha=12 * _K * _A).mul_(x).add_(v, alpha=2)
    return inner.mul_(s).mul_(1 - s)
