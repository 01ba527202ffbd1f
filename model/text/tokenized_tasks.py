"""Tokenized tasks, ragged: a support and a query set each, without padding; and the padding of any rows to arrays."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from model.text.templates import Template
from model.text.tokenization import Encoded, TemplateTokenizer
from storage.errors import InputError
from storage.tables.task_shards import StoredExample, StoredTask

Ids = NDArray[np.int32]
NO_LOSS = -100  # what torch's cross-entropy leaves out


@dataclass(frozen=True, slots=True)
class CentroidSlot:
    """A position of an input where the model puts a cluster's centroid instead of the placeholder's embedding."""

    position: int
    format: str
    cluster: int


@dataclass(frozen=True, slots=True)
class Example:
    """One example in tokens.

    Attributes:
        input_ids: the template with its texts, [n].
        target_ids: what the decoder should give, [t].
        slots: centroids among the inputs (format ss).
    """

    example_id: str
    label: int
    input_ids: Ids
    target_ids: Ids
    slots: tuple[CentroidSlot, ...] = ()


@dataclass(frozen=True, slots=True)
class Task:
    """A task in tokens; `label_ids` are the target ids of each of its labels, for prediction."""

    task_id: str
    format: str
    kind: str
    label_ids: tuple[Ids, ...]
    support: tuple[Example, ...]
    query: tuple[Example, ...]


@dataclass(frozen=True, slots=True)
class Padded:
    """Rows as arrays, padded to the longest among them and no further.

    Attributes:
        input_ids: [rows, longest input].
        mask: True where there is input, [rows, longest input]. Not to be had from the ids: a slot may hold the pad id.
        target_ids: NO_LOSS beyond a row's end, [rows, longest target].
        slot_rows: the row of each centroid, [slots].
        slot_positions: its position in that row, [slots].
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
    """A stored task in tokens; sets of other roles are left empty."""
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
    rows = [_example(example, one, stored.format, label_ids) for example, one in zip(wanted, encoded, strict=True)]
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
    """Arrays of the rows, in their order; masked positions hold `pad_id`."""
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
