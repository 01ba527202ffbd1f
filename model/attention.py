"""Self-attention with T5's unscaled scores, by the kernel that suits the rows and what their passes are for.

Torch's fused kernel never writes the weights down, and so computes them again in the backward pass. Short rows on a
processor do better without it: their weights stay in its cache, and plain products of kept weights are faster.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.nn.functional import scaled_dot_product_attention

_SHORT = 256  # positions of a row up to which kept weights are faster, and small


def attended(projected: Tensor, bias: Tensor) -> Tensor:
    """Each position's mean of the values of its row, [rows, n, h·k].

    Args:
        projected: queries, keys and values of h heads, [rows, n, 3, h, k].
        bias: added to the scores, without a gradient, [1 or rows, h, n, n].
    """
    wide = projected.dtype in (torch.float32, torch.float64)  # narrower scores want torch's kernel, which widens them
    short = projected.shape[1] <= _SHORT and projected.device.type == "cpu"
    if wide and short and not is_plain_kernel_asked_for():
        kept: Tensor = _KeptWeights.apply(projected, bias)  # type: ignore[no-untyped-call]  # torch has no type for it
        return kept
    query, key, value = projected.permute(2, 0, 3, 1, 4)
    pooled = scaled_dot_product_attention(query, key, value, attn_mask=bias, scale=1.0)
    return pooled.transpose(1, 2).flatten(2)


def is_plain_kernel_asked_for() -> bool:
    """Whether `sdpa_kernel(MATH)` is in force, as it is where a pass will be differentiated twice."""
    flash: bool = torch.backends.cuda.flash_sdp_enabled()  # type: ignore[no-untyped-call]  # it speaks for all devices
    return not flash


class _KeptWeights(Function):
    """P = softmax(Q·Kᵀ + bias), O = P·V; the batch is rows times heads."""

    @staticmethod
    def forward(ctx: Any, projected: Tensor, bias: Tensor) -> Tensor:
        rows, length, _, heads, size = projected.shape
        query, key, value = projected.permute(2, 0, 3, 1, 4).reshape(3, rows * heads, length, size)
        scores = torch.bmm(query, key.transpose(1, 2)).view(rows, heads, length, length).add_(bias)
        weights = scores.softmax(-1).flatten(0, 1)
        ctx.save_for_backward(query, key, value, weights)
        return torch.bmm(weights, value).view(rows, heads, length, size).transpose(1, 2).flatten(2)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Any:
        """With S the scores: ∂V = Pᵀ·∂O, ∂S = P∘(∂P − ⟨∂P, P⟩) for ∂P = ∂O·Vᵀ, ∂Q = ∂S·K, ∂K = ∂Sᵀ·Q."""
        query, key, value, weights = ctx.saved_tensors
        batch, length, size = query.shape
        rows, heads = len(gradient), batch // len(gradient)
        given = gradient.view(rows, length, heads, size).transpose(1, 2).reshape(batch, length, size)
        of_weights = torch.bmm(given, value.transpose(1, 2))
        of_scores = torch.ops.aten._softmax_backward_data(of_weights, weights, -1, weights.dtype)  # noqa: SLF001 - its only name
        found = query.new_empty(3, batch, length, size)
        torch.bmm(of_scores, key, out=found[0])
        torch.bmm(of_scores.transpose(1, 2), query, out=found[1])
        torch.bmm(weights.transpose(1, 2), given, out=found[2])
        return found.view(3, rows, heads, length, size).permute(1, 3, 0, 2, 4), None
