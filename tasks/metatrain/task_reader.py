"""A reader of tasks for training: shuffled by seed and epoch, exactly resumable, tokenized ahead in the background."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from model.text.label_words import asked_cluster, drawn_words, named_clusters, reworded, word_bank
from model.text.rewritten_tasks import asked_meaning, cluster_words, edited_pairs, own_words, without_words
from model.text.templates import Form, Template, anchor_template
from model.text.tokenization import TemplateTokenizer
from model.text.tokenized_tasks import Task, tokenized
from storage.errors import InputError
from storage.tables.task_shards import CACHE_BYTES, TaskIndex, TaskShards, read_index
from tasks.metatrain.prefetch import Prefetched
from tasks.metatrain.task_order import LABEL_WORDS, Partner, Place, Share, TaskOrder

NAMING_TASKS = 4_000  # tasks whose sentences name the clusters
State = dict[str, Any]
"""Where a stream stands, as a checkpoint keeps it: epoch, position, and the seed and tasks they refer to."""


@dataclass(frozen=True)
class TaskBatch:
    """One rank's tasks of one step.

    Attributes:
        tasks: the tasks, with support and query sets.
        partners: for each task, the one that its query set is mixed with (query set only); empty if none was asked for.
        places: for each task, its place in the sequence, from which the random draws of a step should follow.
        size: number of tasks of the step in all ranks together.
        state: the start of the next batch; pass it to `TaskReader.stream` to continue from there.
    """

    tasks: tuple[Task, ...]
    partners: tuple[Task, ...]
    places: tuple[Place, ...]
    size: int
    state: State


@dataclass
class TaskReader:
    """Stream tokenized tasks of a folder of shards (storage.tables.task_shards).

    Attributes:
        folder: the folder data/tasks.
        tokenizer: tokenizer of the backbone, with the longest input.
        form: form of the templates.
        split: train or validation.
        formats: formats wanted; None for all.
        kinds: kinds wanted; None for all.
        seed: seed of the order and of the partners.
        batch_size: number of tasks of a step, in all ranks together.
        share: the part of each batch that is this rank's.
        partner: the tasks that may be partners for mixing; None for no partners.
        prefetch: number of steps tokenized ahead.
        templates: templates of kinds that have their own (labeled sets).
        varied: formats whose label words are drawn anew for each task and epoch.
        rewritten: formats whose tasks are rewritten as they are read (model.text.rewritten_tasks).
        cache_bytes: bytes of decoded row groups that are kept.
    """

    folder: Path
    tokenizer: TemplateTokenizer
    form: Form
    split: str = "train"
    formats: Collection[str] | None = None
    kinds: Collection[str] | None = None
    seed: int = 0
    batch_size: int = 4
    share: Share = field(default_factory=Share)
    partner: Partner | None = None
    prefetch: int = 4
    templates: Mapping[str, Template] = field(default_factory=dict)
    varied: Collection[str] = ()
    rewritten: Collection[str] = ()
    cache_bytes: int = CACHE_BYTES

    def __post_init__(self) -> None:
        if self.batch_size < 1 or self.prefetch < 1:
            raise ValueError(f"batch_size {self.batch_size} and prefetch {self.prefetch} must be at least 1")
        self.tokenizer.require(self.form)
        self.index: TaskIndex = read_index(self.folder, self.split, self.formats, self.kinds)
        self.order = TaskOrder(self.index, self.seed)
        self._bank = word_bank(self.tokenizer) if self.varied else ()
        self._identity = {"seed": self.seed, "tasks": self.index.fingerprint()}

    def __len__(self) -> int:
        """Return the number of tasks of an epoch."""
        return len(self.index)

    def stream(self, state: State | None = None) -> Prefetched[TaskBatch]:
        """Return batches without end, from the beginning or from a state; leave the stream by `with` or `close()`."""
        return Prefetched(self._batches(self._place(state)), self.prefetch)

    def once(self) -> Prefetched[TaskBatch]:
        """Return a stream of every task once in the order of the shards, for validation.

        The last batch may be short. There are no partners.
        """
        return Prefetched(self._pass(), self.prefetch)

    def _place(self, state: State | None) -> Place:
        if state is None:
            return Place()
        other = [name for name, value in self._identity.items() if state.get(name) != value]
        if other:
            raise InputError(
                f"{self.folder}: the state to resume from is of another {' and other '.join(other)}: start anew"
            )
        return Place.from_json(state, len(self))

    def _batches(self, place: Place) -> Iterator[TaskBatch]:
        with closing(TaskShards(self.index, self.cache_bytes)) as shards:
            while True:
                places, place = self.order.batch(place, self.batch_size)
                own = tuple(places[position] for position in self.share.of(len(places)))
                tasks = tuple(self._read(shards, self.order.task_at(one), one.epoch) for one in own)
                partners: tuple[Task, ...] = ()
                if self.partner is not None:
                    numbers = [self.order.partner_at(one, self.partner) for one in own]
                    partners = tuple(
                        self._read(shards, number, one.epoch, roles=("query",))
                        for number, one in zip(numbers, own, strict=True)
                    )
                yield TaskBatch(tasks, partners, own, len(places), self._identity | place.to_json())

    def _pass(self) -> Iterator[TaskBatch]:
        with closing(TaskShards(self.index, self.cache_bytes)) as shards:
            for start in range(0, len(self.index), self.batch_size):
                size = min(self.batch_size, len(self.index) - start)
                own = [start + position for position in self.share.of(size)]
                places = tuple(Place(0, number) for number in own)
                yield TaskBatch(tuple(self._read(shards, number, 0) for number in own), (), places, size, {})

    def _read(self, shards: TaskShards, number: int, epoch: int, roles: tuple[str, ...] = ("support", "query")) -> Task:
        stored = shards.read(number)
        draw = np.random.default_rng([self.seed, LABEL_WORDS, epoch, number])
        if stored.format == "ss" and "ss" in {*self.varied, *self.rewritten}:
            stored, clusters = named_clusters(stored, draw)
            words = self._words(clusters, draw)
            shown = stored if "ss" in self.varied else without_words(stored, words)
            return tokenized(shown, asked_cluster(self.form, words, draw), self.tokenizer, roles)
        if stored.format == "sp" and "sp" in self.rewritten:
            stored, question = edited_pairs(stored, draw)
            words = drawn_words(self._bank, stored.labels, draw) if "sp" in self.varied else question.words
            return tokenized(stored, asked_meaning(self.form, question, words, draw), self.tokenizer, roles)
        template = self.templates.get(stored.kind) or anchor_template(
            stored.kind, self.form, len(stored.examples[0].texts), stored.labels
        )
        if stored.format in self.varied:
            template = reworded(template, stored.kind, self._bank, draw)
        return tokenized(stored, template, self.tokenizer, roles)

    def _words(self, clusters: Sequence[int], draw: np.random.Generator) -> tuple[str, ...]:
        """Return the label words of a task of named clusters."""
        if "ss" in self.varied:
            return drawn_words(self._bank, len(clusters), draw)
        return own_words(clusters, self._cluster_words, draw)

    @cached_property
    def _cluster_words(self) -> dict[int, tuple[str, ...]]:
        """The words that clusters are named by, from the first training tasks, for validation too."""
        index = read_index(self.folder, "train", ("ss",))
        with closing(TaskShards(index, self.cache_bytes)) as shards:
            tasks = (shards.read(number) for number in range(min(len(index), NAMING_TASKS)))
            return cluster_words(tasks, lambda word: self.tokenizer.length(word) == 1)
