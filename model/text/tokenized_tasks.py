"""Tokenized tasks, each a support and a query set without padding, and the padding of rows to arrays."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from model.text.templates import Template
from model.text.tokenization import Encoded, TemplateTokenizer
from storage.errors import InputError
from storage.tables.task_shards import StoredExample, StoredTask

Ids = NDArray[np.int32]
NO_LOSS = -100  # the target that torch's cross-entropy ignores


@dataclass(frozen=True, slots=True)
class CentroidSlot:
    """A position of an input where a cluster's centroid replaces the embedding of the placeholder."""

    position: int
    format: str
    cluster: int


@dataclass(frozen=True, slots=True)
class Example:
    """One tokenized example.

    Attributes:
        input_ids: the template with its texts, [n].
        target_ids: the ids that the decoder should give, [t].
        slots: the centroids in the input (format ss).
    """

    example_id: str
    label: int
    input_ids: Ids
    target_ids: Ids
    slots: tuple[CentroidSlot, ...] = ()


@dataclass(frozen=True, slots=True)
class Task:
    """A tokenized task; `label_ids` are the target ids of each of its labels, for prediction."""

    task_id: str
    format: str
    kind: str
    label_ids: tuple[Ids, ...]
    support: tuple[Example, ...]
    query: tuple[Example, ...]


@dataclass(frozen=True, slots=True)
class Padded:
    """Rows as arrays, padded to the longest of them.

    Attributes:
        input_ids: [rows, longest input].
        mask: True where there is input, [rows, longest input]. The ids alone do not tell: a slot may have the pad id.
        target_ids: NO_LOSS after a row's end, [rows, longest target].
        slot_rows: the row of each centroid, [slots].
        slot_positions: the position of each centroid in its row, [slots].
        slots: the centroids in the same order.
    """

    input_ids: NDArray[np.int64]
    mask: NDArray[np.bool_]
    target_ids: NDArray[np.int64]
    slot_rows: NDArray[np.int64]
    slot_positions: NDArray[np.int64]
    slots: tuple[CentroidSlot, ...]


def tokenized(
    stored: StoredTask, template: Template, tokenizer: TemplateTokenizer, roles: Sequence[str] = ("support", "query")
) -> Task:
    """Tokenize a stored task; the sets that are not in `roles` are empty.

    Raise InputError if an example does not fit the template.
    """
    wanted = [example for example in stored.examples if example.role in roles]
    label_ids = tuple(
        np.array(tokenizer.target(template, label), dtype=np.int32) for label in range(len(template.verbalizer))
    )
    for example in wanted:
        if not 0 <= example.label < len(label_ids) or len(example.choices) != template.slots:
            words, choices = ", ".join(template.verbalizer), len(example.choices)
            raise InputError(
                f"{example.example_id}: label {example.label} and {choices} centroids do not fit the template of "
                f"{stored.kind}, which has the labels {words} and {template.slots} centroids"
            )
    encoded = tokenizer.encode(template, [example.texts for example in wanted])
    rows = [
        _example(example, tokens, stored.format, label_ids) for example, tokens in zip(wanted, encoded, strict=True)
    ]
    by_role = {
        role: tuple(row for row, example in zip(rows, wanted, strict=True) if example.role == role)
        for role in ("support", "query")
    }
    return Task(stored.task_id, stored.format, stored.kind, label_ids, by_role["support"], by_role["query"])


def _example(stored: StoredExample, encoded: Encoded, form: str, label_ids: Sequence[Ids]) -> Example:
    slots = tuple(
        CentroidSlot(position, form, cluster) for position, cluster in zip(encoded.slots, stored.choices, strict=True)
    )
    ids = np.array(encoded.ids, dtype=np.int32)
    return Example(stored.example_id, stored.label, ids, label_ids[stored.label], slots)


def pad(rows: Sequence[Example], pad_id: int = 0) -> Padded:
    """Return the rows as arrays, in their order; padding has the id `pad_id`."""
    input_ids, mask = _rectangle([row.input_ids for row in rows], pad_id)
    target_ids, _ = _rectangle([row.target_ids for row in rows], NO_LOSS)
    placed = [(number, slot) for number, row in enumerate(rows) for slot in row.slots]
    return Padded(
        input_ids,
        mask,
        target_ids,
        np.array([number for number, _ in placed], dtype=np.int64),
        np.array([slot.position for _, slot in placed], dtype=np.int64),
        tuple(slot for _, slot in placed),
    )


def _rectangle(rows: Sequence[Ids], filler: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    lengths = np.array([len(row) for row in rows], dtype=np.int64)
    mask = np.arange(lengths.max(initial=0)) < lengths[:, None]
    filled = np.full(mask.shape, filler, dtype=np.int64)
    if len(rows):
        filled[mask] = np.concatenate(rows)
    return filled, mask
