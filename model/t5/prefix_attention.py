"""Keys and values put before those of attention layers (Prefix-Tuning and P-Tuning v2, ALGORITHM §7).

A prefix has no position, so its scores get no relative position bias. Rows with the same prefix are neighbours: their
queries meet its keys in one matrix product, and keys and values are never copied for each row.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

Place = Literal["encoder", "decoder", "cross"]
PLACES: tuple[Place, ...] = ("encoder", "decoder", "cross")
"""Self-attention of the encoder, self-attention of the decoder, and the decoder's attention to the encoder."""


@dataclass(frozen=True)
class AttentionShape:
    """The attention layers of an encoder-decoder, with `heads` heads of `size` dimensions each."""

    encoder_layers: int
    decoder_layers: int
    heads: int
    size: int

    def layers(self, place: Place) -> int:
        """Return the number of layers of one of the places."""
        return self.encoder_layers if place == "encoder" else self.decoder_layers


@dataclass(frozen=True)
class LayerPrefix:
    """The prefixes of one layer.

    Attributes:
        keys: of each prefix, [prefixes, h, P, k].
        values: of each prefix, [prefixes, h, P, k].
        rows: the number of rows that have each prefix; the rows of a prefix are neighbours.
    """

    keys: Tensor
    values: Tensor
    rows: Sequence[int]

    def scores(self, query: Tensor) -> Tensor:
        """Return the scores of the prefix positions, [rows, h, n, P], for queries [rows, h, n, k]."""
        return self._products(query, self.keys.transpose(-1, -2))

    def pooled(self, weights: Tensor) -> Tensor:
        """Return the weighted sums of the values, [rows, h, n, k], for weights [rows, h, n, P]."""
        return self._products(weights, self.values)

    def _products(self, rows: Tensor, matrices: Tensor) -> Tensor:
        """Return the product of each row, [h, n, a], with the matrices of its prefix, [h, a, b]."""
        parts = []
        for part, matrix in zip(torch.split(rows, [*self.rows]), matrices, strict=True):
            count, heads, length, size = part.shape
            together = part.transpose(0, 1).reshape(heads, count * length, size)
            product = torch.bmm(together, matrix.to(together.dtype))
            parts.append(product.view(heads, count, length, -1).transpose(0, 1))
        return torch.cat(parts)


@dataclass(frozen=True)
class Prefixes:
    """The prefixes of all layers.

    Attributes:
        layers: keys and values of the layers of each place that has prefixes, [prefixes, P, layers, 2, h, k].
        rows: the number of rows that have each prefix; the rows of a prefix are neighbours.
    """

    layers: dict[Place, Tensor]
    rows: Sequence[int]

    def at(self, place: Place, layer: int) -> LayerPrefix | None:
        """Return the prefixes of a layer; None if the place has none."""
        if place not in self.layers:
            return None
        keys, values = self.layers[place][:, :, layer].permute(2, 0, 3, 1, 4)
        return LayerPrefix(keys, values, self.rows)


def attended_after(prefix: LayerPrefix, projected: Tensor, bias: Tensor) -> Tensor:
    """Return, for each position, the weighted mean of the values of its row and of the prefix, [rows, n, h·k].

    Args:
        prefix: the prefixes of the rows.
        projected: queries, keys and values of h heads, [rows, n, 3, h, k].
        bias: added to the scores of the row's own positions; it gets no gradient, [1 or rows, h, n, n].
    """
    query, key, value = projected.permute(2, 0, 3, 1, 4)
    before, own = weights_after(prefix, query, query @ key.transpose(-1, -2) + bias)
    pooled: Tensor = prefix.pooled(before) + own @ value
    return pooled.transpose(1, 2).flatten(2)


def weights_after(prefix: LayerPrefix, query: Tensor, scores: Tensor) -> tuple[Tensor, Tensor]:
    """Return the attention weights of prefix positions, [rows, h, n, P], and of other positions, as `scores`.

    Args:
        prefix: the prefixes of the rows.
        query: [rows, h, n, k].
        scores: of the other positions, with all that is added to them, [rows, h, n, positions].
    """
    before = prefix.scores(query)
    together = torch.cat([before.to(scores.dtype), scores], -1)
    wide = torch.promote_types(together.dtype, torch.float32)
    weights = together.to(wide).softmax(-1).to(query.dtype)
    return weights[..., : before.shape[-1]], weights[..., before.shape[-1] :]
