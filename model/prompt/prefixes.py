"""Prefixes: trained keys and values before those of every attention layer of a frozen T5 (ALGORITHM §7).

P-Tuning v2 trains the keys and values themselves. Prefix-Tuning trains a small network that gives them, and drops it
afterwards. Either way the backbone gets a matrix [P, W], whose rows hold the keys and values of one prefix position:
W = 2·h·k·(number of attention layers with a prefix).
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Self, cast

import numpy as np
import torch
from torch import Tensor

from model.prompt.passes import Passes, Reader, Result
from model.prompt.rows import EncoderInputs, Row, encoder_inputs
from model.prompt.sizes import TUNING_TOKENS
from model.t5.backbone import Backbone
from model.t5.fast_t5 import FAMILY, FastT5
from model.t5.prefix_attention import PLACES, AttentionShape, Place, Prefixes
from model.text.tokenized_tasks import Example
from storage.errors import InputError
from storage.prompts.prefix_artifact import PARTS, PrefixArtifact
from storage.prompts.prompt_artifact import Array


@dataclass(frozen=True)
class PrefixShape:
    """The attention layers of a backbone, and the places of them that have prefixes."""

    attention: AttentionShape
    places: tuple[Place, ...] = PLACES

    @classmethod
    def of(cls, backbone: Backbone, places: Sequence[str], where: str) -> Self:
        """Return the shape for a backbone; raise InputError, which begins with `where`, if it cannot have prefixes."""
        if not isinstance(backbone, FastT5):
            name = getattr(backbone, "family", type(backbone).__name__)
            raise InputError(
                f"{where}: prefixes need a backbone of the T5 family ({', '.join(FAMILY)}), and this one is {name}: "
                "take another backbone, or a method that trains a prompt"
            )
        return cls(backbone.attention, tuple(place for place in PLACES if place in places))

    @property
    def width(self) -> int:
        """W, the numbers of one prefix position."""
        return sum(self._numbers(place) for place in self.places)

    def _numbers(self, place: Place) -> int:
        return 2 * self.attention.heads * self.attention.size * self.attention.layers(place)

    def layers(self, prefixes: Tensor) -> dict[Place, Tensor]:
        """Return prefixes [..., P, W] as keys and values of each place, [..., P, layers, 2, h, k]."""
        parts = torch.split(prefixes, [self._numbers(place) for place in self.places], -1)
        shape = self.attention
        return {
            place: part.reshape(*part.shape[:-1], shape.layers(place), 2, shape.heads, shape.size)
            for place, part in zip(self.places, parts, strict=True)
        }

    def tensors(self, prefixes: Tensor) -> dict[str, Array]:
        """Return prefixes [P, W] as keys and values of each place, [layers, P, h, k], as they are stored."""
        parts = {place: part.permute(2, 1, 0, 3, 4) for place, part in self.layers(prefixes).items()}
        return {
            f"{place}.{name}": value.to("cpu", torch.float32).numpy()
            for place, part in parts.items()
            for name, value in zip(PARTS, part, strict=True)
        }

    @classmethod
    def fitting(cls, artifact: PrefixArtifact, backbone: Backbone, where: str) -> Self:
        """Return the shape of stored prefixes; raise InputError, which begins with `where`, if they do not fit."""
        shape = cls.of(backbone, artifact.places, where)
        nothing = torch.zeros(artifact.tokens, shape.width)
        wanted = {name: value.shape for name, value in shape.tensors(nothing).items()}
        for name, value in sorted(artifact.tensors.items()):  # a file's order varies
            if value.shape != wanted.get(name):
                raise InputError(
                    f"{where}: {name} has the shape {_shown(value.shape)}, and the backbone takes "
                    f"{_shown(wanted.get(name, ()))}: give the backbone that it was tuned for"
                )
        return shape

    def joined(self, artifact: PrefixArtifact) -> Tensor:
        """Return stored prefixes as a matrix [P, W]."""
        parts = [
            torch.stack([torch.from_numpy(np.array(artifact.tensors[f"{place}.{name}"])) for name in PARTS])
            for place in self.places
        ]
        return torch.cat([part.permute(2, 1, 0, 3, 4).flatten(1) for part in parts], 1)


def _shown(shape: Sequence[int]) -> str:
    return " × ".join(map(str, shape)) or "nothing"


@dataclass(frozen=True)
class PrefixNetwork:
    """embedding [P, h] → linear → tanh → linear: prefixes [P, W] from one vector of all its numbers.

    Attributes:
        tokens: P, the prefix positions.
        hidden: h, the width of the embedding and of the hidden layer.
        width: W, the numbers of one prefix position.
    """

    tokens: int
    hidden: int
    width: int

    def _shapes(self) -> tuple[tuple[int, ...], ...]:
        return (
            (self.tokens, self.hidden),
            (self.hidden, self.hidden),
            (self.hidden,),
            (self.width, self.hidden),
            (self.width,),
        )

    @property
    def size(self) -> int:
        """The number of its numbers."""
        return sum(map(math.prod, self._shapes()))

    def initial(self, seed: int) -> Tensor:
        """Return random numbers at the scales of torch's own embeddings and linear layers, [size]."""
        chance = torch.Generator().manual_seed(seed)
        embedding, *layers = self._shapes()
        bound = self.hidden**-0.5
        parts = [torch.randn(embedding, generator=chance)]
        parts += [torch.empty(shape).uniform_(-bound, bound, generator=chance) for shape in layers]
        return torch.cat([part.flatten() for part in parts])

    def __call__(self, numbers: Tensor) -> Tensor:
        """Return the prefixes [P, W] of a vector [size]; differentiable."""
        shapes = self._shapes()
        parts = torch.split(numbers, [math.prod(shape) for shape in shapes])
        embedding, inner, shift, outer, last = (part.view(shape) for part, shape in zip(parts, shapes, strict=True))
        return torch.tanh(embedding @ inner.T + shift) @ outer.T + last


def initial_prefixes(tokens: int, width: int, seed: int) -> Tensor:
    """Return prefixes drawn from a normal distribution, [P, W]."""
    return torch.randn(tokens, width, generator=torch.Generator().manual_seed(seed))


@dataclass(frozen=True)
class _PrefixedT5:
    """A T5 whose rows have prefixes."""

    backbone: FastT5
    prefixes: Prefixes

    def encode(self, inputs: Tensor, mask: Tensor) -> Tensor:
        return self.backbone.encode(inputs, mask, self.prefixes)

    def decode(self, hidden: Tensor, mask: Tensor, ids: Tensor) -> Tensor:
        return self.backbone.decode(hidden, mask, ids, self.prefixes)


@dataclass
class PrefixPasses(Passes):
    """Passes of rows that have prefixes instead of prompts: `prompts` are prefixes [K, P, W], wherever they are named.

    The rows of a chunk are ordered by their prefixes, so that those of one prefix are neighbours.
    """

    shape: PrefixShape | None = None

    @classmethod
    def after(cls, shape: PrefixShape, backbone: Backbone) -> Self:
        """Return passes for tuning and prediction with prefixes of a shape."""
        return cls(backbone, chunk_tokens=TUNING_TOKENS[backbone.device.type], shape=shape)

    def reading(self, prompts: Tensor, owners: Tensor, examples: Sequence[Example]) -> tuple[EncoderInputs, Reader]:
        """Return the encoder's input, which has no prompt, and the backbone with the prefixes of the rows."""
        assert self.shape is not None
        numbers, counts = zip(*((number, len([*same])) for number, same in groupby(owners.tolist())), strict=True)
        layers = self.shape.layers(prompts[list(numbers)])
        nothing = prompts.new_zeros(1, 0, self.backbone.width)
        inputs = encoder_inputs(self.backbone, nothing, torch.zeros_like(owners), examples, self.centroids)
        return inputs, _PrefixedT5(cast("FastT5", self.backbone), Prefixes(layers, counts))

    def each_chunk(
        self, work: Callable[[Sequence[Row]], Result], rows: Sequence[Row], prompt_tokens: int
    ) -> Iterator[Result]:
        """Yield `work(chunk)` for each chunk of the rows; prefixes take no positions of the encoder."""
        del prompt_tokens
        self.tokens += sum(row.length for row in rows)
        return self._each(work, list(chunked_by_prefix(rows, self.chunk_tokens)))


def chunked_by_prefix(rows: Sequence[Row], chunk_tokens: int) -> Iterator[list[Row]]:
    """Yield the rows by prefix, longest first, in chunks of at most `chunk_tokens` positions, including padding."""
    chunk: list[Row] = []
    length = 0
    for row in sorted(rows, key=lambda row: (row.prompt, -row.length)):
        if chunk and (len(chunk) + 1) * max(length, row.length) > chunk_tokens:
            yield chunk
            chunk, length = [], 0
        chunk.append(row)
        length = max(length, row.length)
    if chunk:
        yield chunk
