"""Prediction: the label whose tokens have the highest teacher-forced log-probability (ALGORITHM §1).

The encoder reads an example once, for any number of labels. The decoder reads from left to right, so its output after a
few tokens is the same in every longer input that begins with them: labels of one token share one pass, and the sentinel
is read once.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from model.prompt.passes import Passes
from model.prompt.rows import Row, refuse_unknown_ids
from model.t5.backbone import computing
from model.text.templates import Template
from model.text.tokenization import TemplateTokenizer
from model.text.tokenized_tasks import Example, Ids
from storage.errors import InputError

_NO_TARGET = np.empty(0, np.int32)


@dataclass(frozen=True)
class LabelScores:
    """The log-probability of each label.

    Attributes:
        log_probabilities: the sum over the tokens of a label, [examples, labels].
        predicted: the number of the most likely label, [examples].
    """

    log_probabilities: NDArray[np.float64]
    predicted: NDArray[np.int64]

    @property
    def probabilities(self) -> NDArray[np.float64]:
        """The probabilities normalized over the labels, so that those of an example sum to 1, [examples, labels]."""
        likely = np.exp(self.log_probabilities - self.log_probabilities.max(axis=1, keepdims=True, initial=-np.inf))
        shares: NDArray[np.float64] = likely / likely.sum(axis=1, keepdims=True)
        return shares


@dataclass(frozen=True)
class _Reading:
    """One decoder input, and the label tokens it scores: for each the label, the position and the token."""

    ids: tuple[int, ...]
    labels: list[int]
    positions: list[int]
    tokens: list[int]


def label_tokens(tokenizer: TemplateTokenizer, template: Template) -> tuple[Ids, ...]:
    """Return the target ids of each label.

    Raise InputError if two labels have the same ids, or the tokenizer lacks the sentinel that the template needs.
    """
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
    """Return the log-probabilities of every label for every example, in the order of `inputs`.

    Args:
        passes: passes through the backbone.
        prompts: [K, P, d]; P = 0 uses the backbone without a prompt.
        owners: the number of each example's prompt, [examples].
        inputs: the token ids of each example.
        label_ids: the target ids of each label, including the sentinel if there is one.
    """
    if not label_ids or not all(len(ids) for ids in label_ids):
        raise InputError("each label needs at least one token: choose other label words")
    refuse_unknown_ids(passes.backbone, *label_ids)
    rows = [
        Row(Example(str(number), 0, ids, _NO_TARGET), owner, 1.0)
        for number, (ids, owner) in enumerate(zip(inputs, owners, strict=True))
    ]
    return row_scores(passes, prompts, rows, label_ids)


def row_scores(passes: Passes, prompts: Tensor, rows: Sequence[Row], label_ids: Sequence[Ids]) -> LabelScores:
    """Return the same for rows, whose examples may have centroid slots; targets and partners are ignored."""
    scores = np.empty((len(rows), len(label_ids)))
    places = {id(row): place for place, row in enumerate(rows)}

    def fill(chunk: Sequence[Row]) -> None:
        with torch.no_grad(), computing(passes.backbone):
            chunk_scores = _scores_of(passes, prompts, chunk, label_ids)
        scores[[places[id(row)] for row in chunk]] = chunk_scores.cpu().numpy()

    for _ in passes.each_chunk(fill, rows, prompts.shape[1]):
        pass
    return LabelScores(scores, scores.argmax(axis=1))


def _scores_of(passes: Passes, prompts: Tensor, rows: Sequence[Row], label_ids: Sequence[Ids]) -> Tensor:
    """Return the log-probabilities of one chunk, [rows, labels]."""
    backbone = passes.backbone
    owners = torch.tensor([row.prompt for row in rows], device=backbone.device)
    encoder, reader = passes.reading(prompts, owners, [row.example for row in rows])
    hidden = reader.encode(encoder.embeddings, encoder.mask)
    scores = torch.zeros(len(rows), len(label_ids), dtype=torch.float64, device=backbone.device)
    for reading in _readings(label_ids, backbone.start_id):
        ids = torch.tensor(reading.ids, device=backbone.device).expand(len(rows), -1)
        logits = reader.decode(hidden, encoder.mask, ids)
        each = logits[:, reading.positions, reading.tokens] - logits.logsumexp(-1)[:, reading.positions]
        scores.index_add_(1, torch.tensor(reading.labels, device=backbone.device), each.double())
    return scores


def _readings(label_ids: Sequence[Ids], start_id: int) -> Iterator[_Reading]:
    """Yield the fewest decoder inputs that score all labels: those that are not the beginning of a longer one."""
    inputs = [(start_id, *ids[:-1].tolist()) for ids in label_ids]
    left = set(range(len(inputs)))
    for ids in sorted(set(inputs), key=lambda ids: -len(ids)):
        covered = [label for label in sorted(left) if ids[: len(inputs[label])] == inputs[label]]
        if covered:
            left -= {*covered}
            places = [(label, place, int(id_)) for label in covered for place, id_ in enumerate(label_ids[label])]
            labels, positions, tokens = (list(column) for column in zip(*places, strict=True))
            yield _Reading(ids, labels, positions, tokens)
