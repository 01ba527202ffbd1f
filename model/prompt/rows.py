"""The examples of many tasks as rows, each behind its task's prompt; rows of similar length share a chunk."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from model.t5.backbone import Backbone
from model.text.tokenized_tasks import NO_LOSS, Example, pad
from storage import paths
from storage.errors import InputError


@dataclass(frozen=True, slots=True)
class Row:
    """An example behind a prompt; if it has a partner, their hidden states and losses are mixed (ALGORITHM §3).

    Attributes:
        prompt: the number of the prompt.
        weight: the weight of the row's loss in the prompt's loss.
        share: w, the example's own share; its partner's is 1 − w.
    """

    example: Example
    prompt: int
    weight: float
    partner: Example | None = None
    share: float = 1.0

    @property
    def examples(self) -> tuple[Example, ...]:
        """The examples that the encoder reads: the row's own, and its partner if there is one."""
        return (self.example,) if self.partner is None else (self.example, self.partner)

    @property
    def length(self) -> int:
        """The number of input tokens of the longest of these examples, without the prompt."""
        return max(len(example.input_ids) for example in self.examples)


@dataclass(frozen=True)
class Centroids:
    """The vectors for centroid slots, in the backbone's space.

    Attributes:
        vectors: [clusters, d].
        numbers: the row of each (format, cluster) in `vectors`.
    """

    vectors: Tensor
    numbers: Mapping[tuple[str, int], int]

    def of(self, places: Sequence[tuple[str, int]]) -> Tensor:
        """Return the vectors of some (format, cluster) pairs, [places, d]; raise InputError if one is missing."""
        missing = [place for place in places if place not in self.numbers]
        if missing:
            form, cluster = missing[0]
            raise InputError(f"{paths.CENTROIDS}: none for cluster {cluster} of {form}: run cluster again")
        return self.vectors[[self.numbers[place] for place in places]]


@dataclass(frozen=True)
class EncoderInputs:
    """The input of the encoder, with the targets of the decoder.

    Attributes:
        embeddings: [θ; embed(x)], [rows, P + n, d].
        mask: True for prompt and text tokens, False for padding, [rows, P + n].
        targets: target ids, NO_LOSS after a row's end, [rows, t].
    """

    embeddings: Tensor
    mask: Tensor
    targets: Tensor


def encoder_inputs(
    backbone: Backbone, prompts: Tensor, owners: Tensor, examples: Sequence[Example], centroids: Centroids | None
) -> EncoderInputs:
    """Return the examples behind their prompts; `owners` [rows] are their numbers in `prompts` [prompts, P, d]."""
    padded = pad(examples, backbone.pad_id)
    refuse_unknown_ids(backbone, padded.input_ids, padded.target_ids)
    ids, mask, targets, rows, positions = (
        torch.from_numpy(array).to(backbone.device)
        for array in (padded.input_ids, padded.mask, padded.target_ids, padded.slot_rows, padded.slot_positions)
    )
    tokens = backbone.embed(ids).to(prompts.dtype)
    if padded.slots:
        if centroids is None:
            raise InputError("these examples have centroid slots, but no centroids were given")
        vectors = centroids.of([(slot.format, slot.cluster) for slot in padded.slots])
        tokens = tokens.index_put((rows, positions), vectors.to(tokens.dtype))
    always = mask.new_ones(len(examples), prompts.shape[1])  # prompt positions are always attended to
    return EncoderInputs(torch.cat([prompts[owners], tokens], 1), torch.cat([always, mask], 1), targets)


def refuse_unknown_ids(backbone: Backbone, *ids: NDArray[Any]) -> None:
    """Raise InputError if a token id is beyond the backbone's vocabulary."""
    largest = max((int(part.max()) for part in ids if part.size), default=0)
    if largest >= backbone.vocabulary:
        raise InputError(
            f"the backbone knows {backbone.vocabulary:,} tokens, and its tokenizer gives the id {largest:,}: the "
            "tokenizer is that of another model"
        )


def decoder_inputs(backbone: Backbone, targets: Tensor) -> Tensor:
    """Return the decoder's input ids for some targets: the start id, then all targets but the last, [rows, t]."""
    moved = targets.roll(1, dims=1)
    moved[:, 0] = backbone.start_id
    return moved.masked_fill(moved == NO_LOSS, backbone.pad_id)


def chunked(rows: Sequence[Row], prompt_tokens: int, chunk_tokens: int) -> Iterator[list[Row]]:
    """Yield the rows, longest first, in chunks of at most `chunk_tokens` positions, including padding and prompts.

    In this order hardly any position is padding, and a row that is too long for the memory fails at once.
    """
    chunk: list[Row] = []
    length = taken = 0
    for row in sorted(rows, key=lambda row: -row.length):
        count = len(row.examples)
        if chunk and (taken + count) * length > chunk_tokens:
            yield chunk
            chunk, taken = [], 0
        if not chunk:
            length = prompt_tokens + row.length
        chunk.append(row)
        taken += count
    if chunk:
        yield chunk
