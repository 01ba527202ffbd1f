"""Rows without their padding: all positions of a chunk as one list, and back to rows where attention wants them.

Matrix products and norms take positions one by one, so that padding in them is work for nothing. Only attention needs
rows of one length. Moving costs about as much as a twentieth of a layer; below that share of padding it stays.
"""

from typing import Any

from torch import Tensor
from torch.autograd import Function

WORTH = 0.05  # share of padding from which on rows are packed


class Packing:
    """The places of a mask [rows, n] that hold input; all of them, where padding is too little to be worth a move."""

    def __init__(self, mask: Tensor) -> None:
        self.rows, self.length = mask.shape
        flat = mask.flatten()
        held = flat.nonzero().squeeze(1)
        self._moves: tuple[Tensor, Tensor, Tensor] | None = None
        if len(held) < (1 - WORTH) * len(flat):
            self._moves = held, (flat.cumsum(0) - 1).clamp(min=0), (~flat).nonzero().squeeze(1)

    def packed(self, rows: Tensor) -> Tensor:
        """[rows, n, …] → [positions, …]."""
        flat = rows.flatten(0, 1)
        positions: Tensor = flat if self._moves is None else _Packed.apply(flat, *self._moves)  # type: ignore[no-untyped-call]  # torch has no type for it
        return positions

    def padded(self, positions: Tensor) -> Tensor:
        """[positions, …] → [rows, n, …], zeros at padding."""
        flat: Tensor = positions if self._moves is None else _Padded.apply(positions, *self._moves)  # type: ignore[no-untyped-call]
        return flat.view(self.rows, self.length, *flat.shape[1:])


class _Packed(Function):
    """Takes the positions `held`; its derivative is to put them back, and that one's is to take them again."""

    @staticmethod
    def forward(ctx: Any, flat: Tensor, held: Tensor, origin: Tensor, pads: Tensor) -> Tensor:
        ctx.moves = held, origin, pads
        return flat.index_select(0, held)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        return _Padded.apply(gradient, *ctx.moves), None, None, None  # type: ignore[no-untyped-call]


class _Padded(Function):
    """Puts each position where it was; `origin` says for every place which position it gets, `pads` are zeroed then."""

    @staticmethod
    def forward(ctx: Any, positions: Tensor, held: Tensor, origin: Tensor, pads: Tensor) -> Tensor:
        ctx.moves = held, origin, pads
        return positions.index_select(0, origin).index_fill_(0, pads, 0)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        return _Packed.apply(gradient, *ctx.moves), None, None, None  # type: ignore[no-untyped-call]
