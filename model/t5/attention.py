"""Self-attention with T5's unscaled scores, by the kernel that is fastest for the rows and the device.

Torch's fused kernel never stores the attention weights, and computes them again in the backward pass. For short rows on
a CPU it is faster to keep the weights, which stay in the cache, and to use plain matrix products. The first and second
derivatives are written out here; in bfloat16, products are computed in bfloat16 and softmax in float32.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.nn.functional import scaled_dot_product_attention

_SHORT = 256  # positions of a row up to which kept weights are faster and take little memory


def attended(projected: Tensor, bias: Tensor) -> Tensor:
    """Return, for each position, the weighted mean of the values of its row, [rows, n, h·k].

    Args:
        projected: queries, keys and values of h heads, [rows, n, 3, h, k].
        bias: added to the scores; it gets no gradient, [1 or rows, h, n, n].
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
    """Return True if `sdpa_kernel(MATH)` is active, as it is for a pass that will be differentiated twice."""
    flash: bool = torch.backends.cuda.flash_sdp_enabled()  # type: ignore[no-untyped-call]  # valid for all devices
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
        gradients = torch.empty_like(parts)
        torch.bmm(of_scores, key, out=gradients[0])
        torch.bmm(of_scores.transpose(1, 2), query, out=gradients[1])
        torch.bmm(weights.transpose(1, 2), gradient, out=gradients[2])
        return gradients

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, cotangents: Tensor) -> Any:
        """Return the cotangents of ∂O, Q, K and V for the cotangents A, B and C of ∂Q, ∂K and ∂V.

        With X = A·Kᵀ + Q·Bᵀ, the cotangent of ∂S, and for each row the means D = ⟨∂P, P⟩ and E = ⟨X, P⟩:

            of ∂P: Y = P∘(X − E)      of P: W = X∘(∂P − D) − E·∂P + ∂O·Cᵀ      of S: Z = P∘(W − ⟨W, P⟩)
            of ∂O: P·C + Y·V      of Q: ∂S·B + Z·K      of K: ∂Sᵀ·A + Zᵀ·Q      of V: Yᵀ·∂O
        """
        gradient, parts, weights, of_weights, of_scores = ctx.saved_tensors
        (query, key, value), (a, b, c) = parts, cotangents
        wide_weights, of_wide_weights = _wide(weights), _wide(of_weights)
        crossed = _wide(torch.baddbmm(torch.bmm(a, key.transpose(1, 2)), query, b.transpose(1, 2)))
        mean = (crossed * wide_weights).sum(-1, keepdim=True)
        y = ((crossed - mean) * wide_weights).to(parts.dtype)
        w = crossed.mul_(of_wide_weights - (of_wide_weights * wide_weights).sum(-1, keepdim=True)).addcmul_(
            mean, of_wide_weights, value=-1
        )
        w += _wide(torch.bmm(gradient, c.transpose(1, 2)))  # a sum in place of two types is slow
        z = _through_softmax(w, wide_weights).to(parts.dtype)
        cotangents_of_parts = torch.empty_like(parts)
        torch.baddbmm(torch.bmm(of_scores, b), z, key, out=cotangents_of_parts[0])
        torch.baddbmm(torch.bmm(of_scores.transpose(1, 2), a), z.transpose(1, 2), query, out=cotangents_of_parts[1])
        torch.bmm(y.transpose(1, 2), gradient, out=cotangents_of_parts[2])
        return torch.baddbmm(torch.bmm(weights, c), y, value), cotangents_of_parts, None


def _wide(values: Tensor) -> Tensor:
    """Return the values in float32, or in their own type if it is wider."""
    return values.to(torch.promote_types(values.dtype, torch.float32))


def _through_softmax(gradient: Tensor, weights: Tensor) -> Tensor:
    """Return P∘(G − ⟨G, P⟩), the gradient of the input of softmax."""
    of_input: Tensor = torch.ops.aten._softmax_backward_data(gradient, weights, -1, weights.dtype)  # noqa: SLF001 - its only name
    return of_input
