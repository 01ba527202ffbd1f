"""The order of tasks: a shuffle by seed and epoch, the shares of ranks, partners for mixing. Nothing is read here."""

import math
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from storage.errors import InputError
from storage.tables.task_shards import TaskIndex

Partner = Literal["same-format", "any-format"]
_ORDER, _PARTNER, MIXING, LABEL_WORDS = 0, 1, 2, 4  # separate the random streams of different draws


@dataclass(frozen=True)
class Place:
    """A point in the endless sequence of tasks, after `position` tasks of `epoch`."""

    epoch: int = 0
    position: int = 0

    def to_json(self) -> dict[str, int]:
        """Return the place as a checkpoint keeps it."""
        return asdict(self)

    @classmethod
    def from_json(cls, state: dict[str, Any], tasks: int) -> "Place":
        """Return the place of a checkpoint; raise InputError if it lies outside a sequence of `tasks` an epoch."""
        epoch, position = (state.get(name) for name in ("epoch", "position"))
        for name, value, limit in (("epoch", epoch, math.inf), ("position", position, tasks)):
            if type(value) is not int or not 0 <= value < limit:
                bound = "" if limit == math.inf else f" below {limit}"
                shown = "is missing" if value is None else f"is {value!r}"
                raise InputError(f"the state to resume from: {name} {shown}, not a number from 0{bound}: start anew")
        return cls(epoch, position)  # type: ignore[arg-type]  # both were checked to be numbers


@dataclass(frozen=True)
class Share:
    """One rank's part of every batch: whole tasks, dealt out in turn.

    The batches are those of a single process, so a run can resume with another number of ranks.
    """

    rank: int = 0
    world: int = 1

    def __post_init__(self) -> None:
        if not 0 <= self.rank < self.world:
            raise ValueError(f"rank {self.rank} of {self.world}")

    def of(self, size: int) -> range:
        """Return the positions of this rank's tasks in a batch of `size`; none if there are more ranks than tasks."""
        return range(self.rank, size, self.world)


class TaskOrder:
    """The sequence of tasks for a seed: every task once in an epoch, in an exact shuffle of all tasks."""

    def __init__(self, index: TaskIndex, seed: int) -> None:
        self.index = index
        self.seed = seed
        # 8 bytes for each task and epoch. Two epochs, because a batch may begin in one and end in the next.
        self._shuffled = lru_cache(maxsize=2)(self._shuffle)
        self._candidates = lru_cache(maxsize=None)(index.of_formats)

    def task_at(self, place: Place) -> int:
        """Return the number, in the index, of the task at a place."""
        return int(self._shuffled(place.epoch)[place.position])

    def _shuffle(self, epoch: int) -> NDArray[np.int64]:
        return np.random.default_rng([self.seed, _ORDER, epoch]).permutation(len(self.index))

    def batch(self, start: Place, size: int) -> tuple[list[Place], Place]:
        """Return the places of `size` tasks from `start` on, and the next start; epochs follow without a gap."""
        tasks = len(self.index)
        first = start.epoch * tasks + start.position
        places = [Place(*divmod(number, tasks)) for number in range(first, first + size + 1)]
        return places[:-1], places[-1]

    def partner_at(self, place: Place, partner: Partner) -> int:
        """Return a task other than the one at `place`, drawn for each place: task j of the mixing (ALGORITHM §3)."""
        task = self.task_at(place)
        form = self.index.format_of(task)
        every = frozenset(name for _, name in self.index.kinds)
        candidates = self._candidates(frozenset({form}) if partner == "same-format" else every)
        if len(candidates) < 2:
            raise InputError(
                f"the only task of format {form} has no other to be mixed with: raise materialize.train_tasks, or set "
                "metatrain.augmentation.partner to any-format"
            )
        draw = np.random.default_rng([self.seed, _PARTNER, place.epoch, place.position])
        chosen = int(draw.integers(len(candidates) - 1))
        return int(candidates[chosen + (chosen >= np.searchsorted(candidates, task))])  # skips the task itself
