"""Self-attention with T5's unscaled scores, by the kernel that suits the rows and the device.

Torch's fused kernel never writes the weights down, and computes them again in the backward pass. Short rows on a
processor do better without it: their weights stay in its cache, and plain products of kept weights are faster. The
first and second derivatives are written out here; in bfloat16, products take bfloat16 and softmax takes float32.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.nn.functional import scaled_dot_product_attention

_SHORT = 256  # positions of a row up to which kept weights are faster, and small


def attended(projected: Tensor, bias: Tensor) -> Tensor:
    """Return each position's mean of the values of its row, [rows, n, h·k].

    Args:
        projected: queries, keys and values of h heads, [rows, n, 3, h, k].
        bias: added to the scores, without a gradient, [1 or rows, h, n, n].
    """
    rows, length, _, heads, size = projected.shape
    if length <= _SHORT and projected.device.type == "cpu":
        parts = projected.permute(2, 0, 3, 1, 4).reshape(3, rows * heads, length, size)
        kept: Tensor = _KeptWeights.apply(parts, bias)  # type: ignore[no-untyped-call]  # torch has no type for it
        return kept.view(rows, heads, length, size).transpose(1, 2).flatten(2)
    query, key, value = projected.permute(2, 0, 3, 1, 4)
    pooled = scaled_dot_product_attention(query, key, value, attn_mask=bias.to(projected.dtype), scale=1.0)
    return pooled.transpose(1, 2).flatten(2)


def is_plain_kernel_asked_for() -> bool:
    """Return True if `sdpa_kernel(MATH)` is in force, as it is where a pass will be differentiated twice."""
    flash: bool = torch.backends.cuda.flash_sdp_enabled()  # type: ignore[no-untyped-call]  # it speaks for all devices
    return not flash


class _KeptWeights(Function):
    """P = softmax(Q·Kᵀ + bias), O = P·V; `parts` are Q, K and V, [3, rows·h, n, k], the result is [rows·h, n, k]."""

    @staticmethod
    def forward(ctx: Any, parts: Tensor, bias: Tensor) -> Tensor:
        query, key, value = parts
        scores = _wide(torch.bmm(query, key.transpose(1, 2)))
        heads = bias.shape[1]
        scores.view(-1, heads, *scores.shape[1:]).add_(bias)
        weights = scores.softmax(-1).to(parts.dtype)
        ctx.save_for_backward(parts, weights)
        return torch.bmm(weights, value)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        return _KeptWeightsGradient.apply(gradient, *ctx.saved_tensors), None  # type: ignore[no-untyped-call]


class _KeptWeightsGradient(Function):
    """With S the scores: ∂V = Pᵀ·∂O, ∂P = ∂O·Vᵀ, ∂S = P∘(∂P − ⟨∂P, P⟩), ∂Q = ∂S·K, ∂K = ∂Sᵀ·Q."""

    @staticmethod
    def forward(ctx: Any, gradient: Tensor, parts: Tensor, weights: Tensor) -> Tensor:
        query, key, value = parts
        of_weights = torch.bmm(gradient, value.transpose(1, 2))
        of_scores = _through_softmax(_wide(of_weights), _wide(weights)).to(parts.dtype)
        ctx.save_for_backward(gradient, parts, weights, of_weights, of_scores)
        found = torch.empty_like(parts)
        torch.bmm(of_scores, key, out=found[0])
        torch.bmm(of_scores.transpose(1, 2), query, out=found[1])
        torch.bmm(weights.transpose(1, 2), gradient, out=found[2])
        return found

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, given: Tensor) -> Any:
        """Take cotangents A, B and C of ∂Q, ∂K and ∂V back to ∂O, Q, K and V.

        With X = A·Kᵀ + Q·Bᵀ, the cotangent of ∂S, and of each row the means D = ⟨∂P, P⟩ and E = ⟨X, P⟩:

            of ∂P: Y = P∘(X − E)      of P: W = X∘(∂P − D) − E·∂P + ∂O·Cᵀ      of S: Z = P∘(W − ⟨W, P⟩)
            of ∂O: P·C + Y·V      of Q: ∂S·B + Z·K      of K: ∂Sᵀ·A + Zᵀ·Q      of V: Yᵀ·∂O
        """
        gradient, parts, weights, of_weights, of_scores = ctx.saved_tensors
        (query, key, value), (a, b, c) = parts, given
        likely, of_likely = _wide(weights), _wide(of_weights)
        crossed = _wide(torch.baddbmm(torch.bmm(a, key.transpose(1, 2)), query, b.transpose(1, 2)))
        mean = (crossed * likely).sum(-1, keepdim=True)
        y = ((crossed - mean) * likely).to(parts.dtype)
        w = crossed.mul_(of_likely - (of_likely * likely).sum(-1, keepdim=True)).addcmul_(mean, of_likely, value=-1)
        w += torch.bmm(gradient, c.transpose(1, 2))
        z = _through_softmax(w, likely).to(parts.dtype)
        found = torch.empty_like(parts)
        torch.baddbmm(torch.bmm(of_scores, b), z, key, out=found[0])
        torch.baddbmm(torch.bmm(of_scores.transpose(1, 2), a), z.transpose(1, 2), query, out=found[1])
        torch.bmm(y.transpose(1, 2), gradient, out=found[2])
        return torch.baddbmm(torch.bmm(weights, c), y, value), found, None


def _wide(values: Tensor) -> Tensor:
    """Return values in float32, or as they are where they are wider."""
    return values.to(torch.promote_types(values.dtype, torch.float32))


def _through_softmax(gradient: Tensor, weights: Tensor) -> Tensor:
    """Return P∘(G − ⟨G, P⟩), the gradient of softmax's input."""
    found: Tensor = torch.ops.aten._softmax_backward_data(gradient, weights, -1, weights.dtype)  # noqa: SLF001 - its only name
    return found
