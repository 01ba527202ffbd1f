"""The meta-gradient regularizer ψφ(g) = z·h(g) + (1 − z)·g, for each row of a prompt's gradient (ALGORITHM §4)."""

from typing import Literal

import torch
from torch import Tensor, nn

GateForm = Literal["vector", "scalar"]
_TINY = 1e-30  # added to a squared norm, so that a row of zeros has a derivative


class GradientRegularizer(nn.Module):
    """φ: a low-rank affine map h, which starts as the identity, and gates z computed from hidden states.

    Attributes:
        up: U [d, rank], initially zero.
        down: V [rank, d].
        shift: c [d], initially zero.
        gate: z = σ(W·H̄ + b), with d gates in the paper and one in the released code.
    """

    def __init__(self, width: int, rank: int, gate: GateForm = "vector") -> None:
        super().__init__()
        self.up = nn.Parameter(torch.zeros(width, rank))
        self.down = nn.Parameter(torch.randn(rank, width) * width**-0.5)
        self.shift = nn.Parameter(torch.zeros(width))
        self.gate = nn.Linear(width, width if gate == "vector" else 1)

    def gates(self, hidden_mean: Tensor) -> Tensor:
        """Return the gates z in (0, 1), [K, d] or [K, 1], for H̄ [K, d]; no gradient passes to H̄."""
        return torch.sigmoid(self.gate(hidden_mean.detach()))

    def forward(self, gradient: Tensor, gates: Tensor) -> Tensor:
        """Return ψφ of prompt gradients [K, P, d] with gates [K, d] or [K, 1]."""
        moved = gradient + (gradient @ self.down.T) @ self.up.T + self.shift
        turned = moved * (_norm(gradient) / _norm(moved))  # h turns a row but keeps its norm
        z = gates.unsqueeze(1)
        return z * turned + (1 - z) * gradient


def gate_loss(gates: Tensor, b: float) -> Tensor:
    """Return L_reg of each task: the mean of (z − b)² over its gates, [K]."""
    return (gates - b).square().mean(-1)


def _norm(rows: Tensor) -> Tensor:
    return (rows.square().sum(-1, keepdim=True) + _TINY).sqrt()
