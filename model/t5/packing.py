"""Pack rows without their padding: all positions of a chunk become one list, and rows again for attention.

Matrix products and norms treat each position separately, so computing them for padding is wasted work. Only attention
needs rows of equal length. Packing costs about a twentieth of a layer; rows with less padding than that stay as they
are.

The list is filled up with zeros to a round length, so that products see few different numbers of rows
(`model.t5.products` says why). The results for these extra positions are dropped.
"""

from typing import Any

from torch import Tensor
from torch.autograd import Function
from torch.nn.functional import pad

WORTH = 0.05  # rows are packed if more than this share of the positions is padding
GRAIN, FINE_GRAIN = 32, 8  # the length of a list is a multiple of GRAIN, or of FINE_GRAIN if it is short
SHORT = 128  # positions up to which a list is short


class Packing:
    """Packs the positions of rows that are True in a mask [rows, n]; all positions if there is little padding."""

    def __init__(self, mask: Tensor) -> None:
        self.rows, self.length = mask.shape
        flat = mask.flatten()
        inputs = flat.nonzero().squeeze(1)
        self._moves: tuple[Tensor, Tensor, Tensor] | None = None
        if len(inputs) < (1 - WORTH) * len(flat):
            self._moves = inputs, (flat.cumsum(0) - 1).clamp(min=0), (~flat).nonzero().squeeze(1)
        self._positions = len(flat) if self._moves is None else len(inputs)
        self._filling = -self._positions % (GRAIN if self._positions > SHORT else FINE_GRAIN)

    def packed(self, rows: Tensor) -> Tensor:
        """Return rows [rows, n, …] as [positions, …], with zeros at the end."""
        flat = rows.flatten(0, 1)
        positions: Tensor = flat if self._moves is None else _Packed.apply(flat, *self._moves)  # type: ignore[no-untyped-call]  # torch has no type for it
        return pad(positions, (0, 0) * (flat.dim() - 1) + (0, self._filling)) if self._filling else positions

    def padded(self, positions: Tensor) -> Tensor:
        """Return positions [positions, …] as rows [rows, n, …], with zeros at padding."""
        flat = positions[: self._positions]
        if self._moves is not None:
            flat = _Padded.apply(flat, *self._moves)  # type: ignore[no-untyped-call]
        return flat.view(self.rows, self.length, *flat.shape[1:])


class _Packed(Function):
    """Selects the positions `inputs`; the derivative puts them back, and the second derivative selects them again."""

    @staticmethod
    def forward(ctx: Any, flat: Tensor, inputs: Tensor, origin: Tensor, pads: Tensor) -> Tensor:
        ctx.moves = inputs, origin, pads
        return flat.index_select(0, inputs)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        return _Padded.apply(gradient, *ctx.moves), None, None, None  # type: ignore[no-untyped-call]


class _Padded(Function):
    """Puts each position back: every place gets the position that `origin` names, then the places `pads` are zeroed."""

    @staticmethod
    def forward(ctx: Any, positions: Tensor, inputs: Tensor, origin: Tensor, pads: Tensor) -> Tensor:
        ctx.moves = inputs, origin, pads
        return positions.index_select(0, origin).index_fill_(0, pads, 0)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        return _Packed.apply(gradient, *ctx.moves), None, None, None  # type: ignore[no-untyped-call]
