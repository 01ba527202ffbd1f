"""Rows without their padding: all positions of a chunk as one list, and back to rows where attention wants them.

Matrix products and norms take positions one by one, so that padding in them is work for nothing. Only attention needs
rows of one length. Moving costs about as much as a twentieth of a layer; below that share of padding it stays.

The list is filled up to a multiple of a few positions, so that products meet few different numbers of rows
(`model.products` says why). What fills it up is computed with and never seen: all but attention takes positions one by
one, and rows have no place for it.
"""

from typing import Any

from torch import Tensor
from torch.autograd import Function
from torch.nn.functional import pad

WORTH = 0.05  # share of padding from which on rows are packed
GRAIN = 32  # a list of this many positions or more is filled up to a multiple of it


class Packing:
    """The places of a mask [rows, n] that hold input; all of them, where padding is too little to be worth a move."""

    def __init__(self, mask: Tensor) -> None:
        self.rows, self.length = mask.shape
        flat = mask.flatten()
        held = flat.nonzero().squeeze(1)
        self._places = len(flat)
        self._moves: tuple[Tensor, Tensor, Tensor] | None = None
        if len(held) < (1 - WORTH) * len(flat):
            origin, pads = (flat.cumsum(0) - 1).clamp(min=0), (~flat).nonzero().squeeze(1)
            self._moves = pad(held, (0, _missing(len(held)))), origin, pads

    def packed(self, rows: Tensor) -> Tensor:
        """[rows, n, …] → [positions, …]."""
        flat = rows.flatten(0, 1)
        if self._moves is None:
            missing = _missing(len(flat))
            return pad(flat, (0, 0) * (flat.dim() - 1) + (0, missing)) if missing else flat
        positions: Tensor = _Packed.apply(flat, *self._moves)  # type: ignore[no-untyped-call]  # torch has no type for it
        return positions

    def padded(self, positions: Tensor) -> Tensor:
        """[positions, …] → [rows, n, …], zeros at padding."""
        if self._moves is None:
            return positions[: self._places].view(self.rows, self.length, *positions.shape[1:])
        flat: Tensor = _Padded.apply(positions, *self._moves)  # type: ignore[no-untyped-call]
        return flat.view(self.rows, self.length, *flat.shape[1:])


def _missing(positions: int) -> int:
    """How many positions a list is short of the next multiple."""
    return -positions % GRAIN if positions > GRAIN else 0


class _Packed(Function):
    """Takes the positions `held`; its derivative is to put them back, and that one's is to take them again.

    Behind them `held` names the first place a few times more: a list of a round length, whose end nobody reads.
    """

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
