"""Rows without their padding: all positions of a chunk as one list, and back to rows where attention wants them.

Matrix products and norms take positions one by one, so that padding in them is work for nothing. Only attention needs
rows of one length. Moving costs about as much as a twentieth of a layer; below that share of padding it stays.

The list is filled up with zeros to a round length, so that products meet few different numbers of rows
(`model.t5.products` says why). Rows have no place for what comes of them.
"""

from typing import Any

from torch import Tensor
from torch.autograd import Function
from torch.nn.functional import pad

WORTH = 0.05  # share of padding from which on rows are packed
GRAIN, FINE_GRAIN = 32, 8  # a list's length is a multiple of the first; of the second, where it is short
SHORT = 128  # positions


class Packing:
    """The places of a mask [rows, n] that hold input; all of them, where padding is too little to be worth a move."""

    def __init__(self, mask: Tensor) -> None:
        self.rows, self.length = mask.shape
        flat = mask.flatten()
        held = flat.nonzero().squeeze(1)
        self._moves: tuple[Tensor, Tensor, Tensor] | None = None
        if len(held) < (1 - WORTH) * len(flat):
            self._moves = held, (flat.cumsum(0) - 1).clamp(min=0), (~flat).nonzero().squeeze(1)
        self._positions = len(flat) if self._moves is None else len(held)
        self._filling = -self._positions % (GRAIN if self._positions > SHORT else FINE_GRAIN)

    def packed(self, rows: Tensor) -> Tensor:
        """[rows, n, …] → [positions, …], zeros at the end."""
        flat = rows.flatten(0, 1)
        positions: Tensor = flat if self._moves is None else _Packed.apply(flat, *self._moves)  # type: ignore[no-untyped-call]  # torch has no type for it
        return pad(positions, (0, 0) * (flat.dim() - 1) + (0, self._filling)) if self._filling else positions

    def padded(self, positions: Tensor) -> Tensor:
        """[positions, …] → [rows, n, …], zeros at padding."""
        flat = positions[: self._positions]
        if self._moves is not None:
            flat = _Padded.apply(flat, *self._moves)  # type: ignore[no-untyped-call]
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
