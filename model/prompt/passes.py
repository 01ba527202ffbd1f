"""Passes through the frozen backbone: the losses of rows, and their gradients with respect to the prompts.

A pass costs time for every token. Rows are therefore padded only to the longest of their chunk, and chunks are small:
the activations of a few hundred tokens stay in a CPU's cache. The loss is a sum over rows, so the size of the chunks
changes the cost of a pass but not its result.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, Self, TypeVar

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from model.prompt.parallel_chunks import side_by_side
from model.prompt.rows import Centroids, EncoderInputs, Row, chunked, decoder_inputs, encoder_inputs
from model.prompt.sizes import CHUNK_TOKENS, LOW_CHUNK_TOKENS, TUNING_TOKENS
from model.t5.backbone import Backbone, attention_kernel, computing
from model.text.tokenized_tasks import NO_LOSS, Example

Piece = TypeVar("Piece")
Result = TypeVar("Result")


class Reader(Protocol):
    """The two functions of a backbone that read a chunk of rows; see `model.t5.backbone.Backbone`."""

    def encode(self, inputs: Tensor, mask: Tensor) -> Tensor:
        """Return the hidden states of the encoder."""

    def decode(self, hidden: Tensor, mask: Tensor, ids: Tensor) -> Tensor:
        """Return the logits of the decoder."""


@dataclass(frozen=True)
class Pass:
    """The result of a pass over rows with K prompts.

    Attributes:
        losses: the weighted sum of the losses of each prompt's rows, [K].
        gradients: the gradient of each prompt's loss with respect to that prompt, [K, P, d].
        hidden_mean: H̄, the mean of the encoder's hidden states over a prompt's examples and their positions, with the
            prompt's positions and without padding, [K, d]; no gradient passes through it.
        graphs: one for each chunk; empty unless `run` was asked to keep them.
    """

    losses: Tensor
    gradients: Tensor
    hidden_mean: Tensor
    graphs: tuple["Graph", ...] = ()


@dataclass(frozen=True)
class Graph:
    """The gradient of one chunk's losses, [K, P, d], with its autograd graph; `leaf` are the prompts it depends on."""

    leaf: Tensor
    gradient: Tensor


@dataclass(frozen=True)
class _ChunkPass:
    """The result of one chunk: for each row its prompt, its weighted loss, and the sum and number of its H."""

    owners: Tensor
    losses: Tensor
    hidden_sums: Tensor
    positions: Tensor
    graph: Graph


@dataclass
class Passes:
    """Runs rows through a backbone, at most `chunk_tokens` encoder positions at a time.

    `tokens` counts the positions that the encoder has read, with prompts and without padding.
    """

    backbone: Backbone
    centroids: Centroids | None = None
    chunk_tokens: int = 0
    tokens: int = 0

    def __post_init__(self) -> None:
        usual = LOW_CHUNK_TOKENS if self.backbone.dtype == torch.bfloat16 else CHUNK_TOKENS
        self.chunk_tokens = self.chunk_tokens or usual[self.backbone.device.type]

    @classmethod
    def for_tuning(cls, backbone: Backbone) -> Self:
        """Return passes for tuning and prediction."""
        return cls(backbone, chunk_tokens=TUNING_TOKENS[backbone.device.type])

    def run(self, prompts: Tensor, rows: Sequence[Row], *, graph: bool = False) -> Pass:
        """Return the losses and gradients of prompts [K, P, d].

        Args:
            prompts: one for each set of rows.
            rows: in any order; `Row.prompt` is the number of a row's prompt.
            graph: keep the graphs of the gradients, for `hessian_product`.
        """
        losses, counts = prompts.new_zeros(len(prompts)), prompts.new_zeros(len(prompts))
        sums = prompts.new_zeros(len(prompts), self.backbone.width)
        total = torch.zeros_like(prompts, requires_grad=False)
        graphs: list[Graph] = []
        with attention_kernel(twice=graph):
            for result in self.each_chunk(
                lambda chunk: self._chunk(prompts, chunk, graph=graph), rows, prompts.shape[1]
            ):
                total += result.graph.gradient.detach()
                losses.index_add_(0, result.owners, result.losses.to(losses.dtype))
                sums.index_add_(0, result.owners, result.hidden_sums.to(sums.dtype))
                counts.index_add_(0, result.owners, result.positions.to(counts.dtype))
                graphs += [result.graph] if graph else []
        return Pass(losses, total, sums / counts.clamp(min=1).unsqueeze(1), tuple(graphs))

    def _chunk(self, prompts: Tensor, chunk: Sequence[Row], *, graph: bool) -> _ChunkPass:
        leaf = prompts.detach().requires_grad_()
        with computing(self.backbone):
            each, hidden, mask = self.losses(leaf, chunk)
        weighted = each * each.new_tensor([row.weight for row in chunk])
        (gradient,) = torch.autograd.grad(weighted.sum(), leaf, create_graph=graph)
        with torch.no_grad():
            hidden_sums = (hidden * mask.unsqueeze(-1)).sum(1)
        return _ChunkPass(self._owners(chunk), weighted.detach(), hidden_sums, mask.sum(1), Graph(leaf, gradient))

    def hessian_product(
        self, prompts: Tensor, rows: Sequence[Row], direction: Tensor, graphs: Sequence[Graph] = ()
    ) -> Tensor:
        """Return ∇²L·u for the loss of each prompt [K, P, d] and its direction u [K, P, d], one chunk at a time.

        `graphs` are those that `run` kept for the same rows; they can be used only once. Without them the rows go
        through the backbone again.
        """

        def product(graph: Graph) -> Tensor:
            return torch.autograd.grad(graph.gradient, graph.leaf, direction)[0]

        def again(chunk: Sequence[Row]) -> Tensor:
            return product(self._chunk(prompts, chunk, graph=True).graph)

        total = torch.zeros_like(prompts, requires_grad=False)
        with attention_kernel(twice=True):
            for term in self._each(product, graphs) if graphs else self.each_chunk(again, rows, prompts.shape[1]):
                total += term
        return total

    def losses_of(self, prompts: Tensor, rows: Sequence[Row]) -> Tensor:
        """Return the loss of each prompt [K], without gradients."""

        def losses(chunk: Sequence[Row]) -> tuple[Tensor, Tensor]:
            with torch.no_grad(), computing(self.backbone):
                each, _, _ = self.losses(prompts, chunk)
                return self._owners(chunk), each * each.new_tensor([row.weight for row in chunk])

        total = prompts.new_zeros(len(prompts))
        for owners, each in self.each_chunk(losses, rows, prompts.shape[1]):
            total.index_add_(0, owners, each.to(total.dtype))
        return total

    def each_chunk(
        self, work: Callable[[Sequence[Row]], Result], rows: Sequence[Row], prompt_tokens: int
    ) -> Iterator[Result]:
        """Yield `work(chunk)` for each chunk of the rows, in order; `work` may be called in other threads."""
        self.tokens += sum(prompt_tokens + len(example.input_ids) for row in rows for example in row.examples)
        return self._each(work, list(chunked(rows, prompt_tokens, self.chunk_tokens)))

    def _each(self, work: Callable[[Piece], Result], pieces: Sequence[Piece]) -> Iterator[Result]:
        return side_by_side(work, pieces) if self.backbone.side_by_side else map(work, pieces)

    def losses(self, prompts: Tensor, rows: Sequence[Row]) -> tuple[Tensor, Tensor, Tensor]:
        """Return the losses of a chunk [rows], the rows' own hidden states [rows, n, d] and their mask [rows, n]."""
        mixed = [place for place, row in enumerate(rows) if row.partner is not None]
        examples = [row.example for row in rows] + [row.partner for row in rows if row.partner is not None]
        owners = self._owners([*rows, *(rows[place] for place in mixed)])
        inputs, reader = self.reading(prompts, owners, examples)
        hidden = reader.encode(inputs.embeddings, inputs.mask)
        own, seen = hidden[: len(rows)], inputs.mask[: len(rows)]
        if not mixed:
            return self._cross_entropy(reader, own, seen, inputs.targets)[0], own, seen
        places = torch.tensor(mixed, device=own.device)
        share = torch.tensor([row.share for row in rows], dtype=prompts.dtype, device=own.device)
        blend, union = _blended(hidden, inputs.mask, places, share)
        targets, theirs = inputs.targets[: len(rows)], inputs.targets.clone()[: len(rows)]
        theirs[places] = inputs.targets[len(rows) :]
        loss, partner_loss = self._cross_entropy(reader, blend, union, targets, theirs)
        return share * loss + (1 - share) * partner_loss, own, seen

    def reading(self, prompts: Tensor, owners: Tensor, examples: Sequence[Example]) -> tuple[EncoderInputs, Reader]:
        """Return the encoder's input for the rows of a chunk, and the backbone that reads them."""
        return encoder_inputs(self.backbone, prompts, owners, examples, self.centroids), self.backbone

    def _cross_entropy(self, reader: Reader, hidden: Tensor, mask: Tensor, *targets: Tensor) -> list[Tensor]:
        """Return the cross-entropy [rows] of each of the targets [rows, t], summed over the positions of a row."""
        losses: list[Tensor] = []
        previous: Tensor | None = None
        for wanted in targets:
            ids = decoder_inputs(self.backbone, wanted)
            if previous is None or not torch.equal(previous, ids):  # labels of one token have the same decoder inputs
                logits = reader.decode(hidden, mask, ids)
                previous = ids
            each = cross_entropy(logits.flatten(0, 1), wanted.flatten(), ignore_index=NO_LOSS, reduction="none")
            losses.append(each.view_as(wanted).sum(1))
        return losses

    def _owners(self, rows: Sequence[Row]) -> Tensor:
        return torch.tensor([row.prompt for row in rows], device=self.backbone.device)


def _blended(hidden: Tensor, mask: Tensor, places: Tensor, share: Tensor) -> tuple[Tensor, Tensor]:
    """Return w·H_i + (1 − w)·H_j over zero-padded hidden states, and the union of their masks (ALGORITHM §3).

    Args:
        hidden: hidden states of the rows, followed by those of their partners, [rows + partners, n, d].
        mask: the masks in the same order, [rows + partners, n].
        places: the row that each partner belongs to, [partners].
        share: w of each row, 1 if it has no partner, [rows].
    """
    rows = len(share)
    padded = hidden * mask.unsqueeze(-1)
    theirs = padded[rows:] * (1 - share[places])[:, None, None].to(padded.dtype)
    blend = (padded[:rows] * share[:, None, None].to(padded.dtype)).index_add(0, places, theirs)
    union = mask[:rows].clone()
    union[places] |= mask[rows:]
    return blend, union
