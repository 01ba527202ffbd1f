"""Examples of many tasks as one stream of rows, each behind a prompt of its own; rows of like length share a chunk."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from model.t5.backbone import Backbone
from model.text.tokenized_tasks import NO_LOSS, Example, pad
from storage.errors import InputError


@dataclass(frozen=True, slots=True)
class Row:
    """An example behind a prompt; with a partner, their hidden states and losses are mixed (ALGORITHM §3).

    Attributes:
        prompt: number of the prompt.
        weight: of its loss in that prompt's loss.
        share: w, the example's own share; 1 − w is its partner's.
    """

    example: Example
    prompt: int
    weight: float
    partner: Example | None = None
    share: float = 1.0

    @property
    def examples(self) -> tuple[Example, ...]:
        """What the encoder reads for it."""
        return (self.example,) if self.partner is None else (self.example, self.partner)

    @property
    def length(self) -> int:
        """Input tokens of the longest of them, without the prompt."""
        return max(len(example.input_ids) for example in self.examples)


@dataclass(frozen=True)
class Centroids:
    """The vectors that stand in centroid slots, by format and cluster, in the backbone's space [clusters, d]."""

    vectors: Tensor
    numbers: Mapping[tuple[str, int], int]

    def of(self, places: Sequence[tuple[str, int]]) -> Tensor:
        """The vectors of some clusters, [places, d]."""
        missing = [place for place in places if place not in self.numbers]
        if missing:
            form, cluster = missing[0]
            raise InputError(f"data/clusters/centroids: none for cluster {cluster} of {form}: run cluster again")
        return self.vectors[[self.numbers[place] for place in places]]


@dataclass(frozen=True)
class EncoderInputs:
    """What the encoder takes.

    Attributes:
        embeddings: [θ; embed(x)], [rows, P + n, d].
        mask: True at the prompt and at tokens, [rows, P + n].
        targets: NO_LOSS beyond a row's end, [rows, t].
    """

    embeddings: Tensor
    mask: Tensor
    targets: Tensor


def encoder_inputs(
    backbone: Backbone, prompts: Tensor, owners: Tensor, examples: Sequence[Example], centroids: Centroids | None
) -> EncoderInputs:
    """Examples behind their prompts: `owners` [rows] says which of `prompts` [prompts, P, d] is whose."""
    padded = pad(examples, backbone.pad_id)
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


def decoder_inputs(backbone: Backbone, targets: Tensor) -> Tensor:
    """What the decoder has read when it gives each target: its start, then the targets before, [rows, t]."""
    moved = targets.roll(1, dims=1)
    moved[:, 0] = backbone.start_id
    return moved.masked_fill(moved == NO_LOSS, backbone.pad_id)


def chunked(rows: Sequence[Row], prompt_tokens: int, chunk_tokens: int) -> Iterator[list[Row]]:
    """The rows, longest first, in chunks of at most `chunk_tokens` positions, padding and prompts counted.

    Sorted, hardly any position is padding. The longest comes first, so that what does not fit fails at once.
    """
    chunk: list[Row] = []
    each = taken = 0
    for row in sorted(rows, key=lambda row: -row.length):
        wide = len(row.examples)
        if chunk and (taken + wide) * each > chunk_tokens:
            yield chunk
            chunk, taken = [], 0
        if not chunk:
            each = prompt_tokens + row.length
        chunk.append(row)
        taken += wide
    if chunk:
        yield chunk
