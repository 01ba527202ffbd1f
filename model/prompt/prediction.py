"""Prediction: the label whose tokens have the highest teacher-forced log-probability (ALGORITHM §1).

The encoder reads an example once, whatever the number of labels. The decoder reads from left to right, so what it gives
after a few tokens is the same in every longer input: labels of one token share one pass, the sentinel is read once.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from model.prompt.passes import Passes
from model.prompt.rows import Row, encoder_inputs
from model.t5.backbone import precision
from model.text.templates import Template
from model.text.tokenization import TemplateTokenizer
from model.text.tokenized_tasks import Example, Ids
from storage.errors import InputError

_NO_TARGET = np.empty(0, np.int32)


@dataclass(frozen=True)
class LabelScores:
    """How likely each label is.

    Attributes:
        log_probabilities: of all tokens of a label together, [examples, labels].
        predicted: the number of the best label, [examples].
    """

    log_probabilities: NDArray[np.float64]
    predicted: NDArray[np.int64]

    @property
    def probabilities(self) -> NDArray[np.float64]:
        """The same with each example's labels as all there is: they add up to 1, [examples, labels]."""
        likely = np.exp(self.log_probabilities - self.log_probabilities.max(axis=1, keepdims=True, initial=-np.inf))
        shares: NDArray[np.float64] = likely / likely.sum(axis=1, keepdims=True)
        return shares


@dataclass(frozen=True)
class _Reading:
    """A decoder input that covers some labels: for each of their tokens the label, the position, the token."""

    ids: tuple[int, ...]
    labels: list[int]
    positions: list[int]
    tokens: list[int]


def label_tokens(tokenizer: TemplateTokenizer, template: Template) -> tuple[Ids, ...]:
    """The target ids of each label; labels that the tokenizer cannot tell apart are refused."""
    tokenizer.require(template.form)
    seen: dict[tuple[int, ...], str] = {}
    for label, word in enumerate(template.verbalizer):
        ids = tuple(tokenizer.target(template, label))
        if ids in seen:
            raise InputError(
                f"the backbone's tokenizer writes the label words {seen[ids]!r} and {word!r} alike: choose others"
            )
        seen[ids] = word
    return tuple(np.array(ids, np.int32) for ids in seen)


def label_scores(
    passes: Passes, prompts: Tensor, owners: Sequence[int], inputs: Sequence[Ids], label_ids: Sequence[Ids]
) -> LabelScores:
    """Log-probabilities of every label for every example, in the order of `inputs`.

    Args:
        passes: the backbone, and how much of it runs at once.
        prompts: [K, P, d]; P = 0 asks the backbone alone.
        owners: which prompt each example stands behind, [examples].
        inputs: token ids of each example.
        label_ids: target ids of each label, the sentinel's included where there is one.
    """
    if not label_ids or not all(len(ids) for ids in label_ids):
        raise InputError("each label needs at least one token: choose other label words")
    rows = [
        Row(Example(str(number), 0, ids, _NO_TARGET), owner, 1.0)
        for number, (ids, owner) in enumerate(zip(inputs, owners, strict=True))
    ]
    return row_scores(passes, prompts, rows, label_ids)


def row_scores(passes: Passes, prompts: Tensor, rows: Sequence[Row], label_ids: Sequence[Ids]) -> LabelScores:
    """Return the same for rows, whose examples may hold centroids; their targets and partners do not matter."""
    scores = np.empty((len(rows), len(label_ids)))
    places = {id(row): place for place, row in enumerate(rows)}

    def fill(chunk: Sequence[Row]) -> None:
        with torch.no_grad(), precision(passes.backbone):
            found = _scores_of(passes, prompts, chunk, label_ids)
        scores[[places[id(row)] for row in chunk]] = found.cpu().numpy()

    for _ in passes.each_chunk(fill, rows, prompts.shape[1]):
        pass
    return LabelScores(scores, scores.argmax(axis=1))


def _scores_of(passes: Passes, prompts: Tensor, rows: Sequence[Row], label_ids: Sequence[Ids]) -> Tensor:
    """The log-probabilities of one chunk, [rows, labels]."""
    backbone = passes.backbone
    owners = torch.tensor([row.prompt for row in rows], device=backbone.device)
    given = encoder_inputs(backbone, prompts, owners, [row.example for row in rows], passes.centroids)
    hidden = backbone.encode(given.embeddings, given.mask)
    scores = torch.zeros(len(rows), len(label_ids), dtype=torch.float64, device=backbone.device)
    for reading in _readings(label_ids, backbone.start_id):
        ids = torch.tensor(reading.ids, device=backbone.device).expand(len(rows), -1)
        logits = backbone.decode(hidden, given.mask, ids)
        each = logits[:, reading.positions, reading.tokens] - logits.logsumexp(-1)[:, reading.positions]
        scores.index_add_(1, torch.tensor(reading.labels, device=backbone.device), each.double())
    return scores


def _readings(label_ids: Sequence[Ids], start_id: int) -> Iterator[_Reading]:
    """The fewest decoder inputs that give all labels: those that no longer one begins with."""
    wanted = [(start_id, *ids[:-1].tolist()) for ids in label_ids]
    left = set(range(len(wanted)))
    for ids in sorted(set(wanted), key=lambda ids: -len(ids)):
        covered = [label for label in sorted(left) if ids[: len(wanted[label])] == wanted[label]]
        if covered:
            left -= {*covered}
            places = [(label, place, int(id_)) for label in covered for place, id_ in enumerate(label_ids[label])]
            labels, positions, tokens = (list(one) for one in zip(*places, strict=True))
            yield _Reading(ids, labels, positions, tokens)
