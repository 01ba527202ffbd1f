"""Held-out tasks, asked kind by kind: how many examples a prompt gets right before and after the inner step, by chance.

A falling loss alone proves little: it falls from 2.5 to 1.2 when a prompt has learned nothing but which words are
labels. Accuracy beside chance, and the probability of the label words together, tell that apart from learning.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

import torch
from torch import Tensor

from model.prompt.passes import Passes
from model.prompt.prediction import row_scores
from model.prompt.rows import Row
from model.text.tokenized_tasks import Example, Task

CERTAINTY = 2.33  # standard errors above chance: the 1 % of a one-sided test


@dataclass(frozen=True)
class Answers:
    """What a prompt answers to the examples of each task, [tasks] each.

    Attributes:
        loss: mean negative log-probability of the right label's tokens.
        right: share of examples whose right label is the likeliest.
        mass: mean probability of all labels together.
    """

    loss: Tensor
    right: Tensor
    mass: Tensor


def asked(passes: Passes, prompts: Tensor, tasks: Sequence[Task], examples: Sequence[Sequence[Example]]) -> Answers:
    """Ask each task's examples behind its own prompt of `prompts` [tasks, P, d]."""
    found = torch.zeros(3, len(tasks), dtype=torch.float64)
    for label_ids, numbers in _by_labels(tasks):
        rows = [Row(example, number, 1.0) for number in numbers for example in examples[number]]
        scores = row_scores(passes, prompts, rows, label_ids)
        likely = torch.from_numpy(scores.log_probabilities)
        labels = torch.tensor([row.example.label for row in rows])
        owners = torch.tensor([row.prompt for row in rows])
        weights = torch.tensor([1 / len(examples[row.prompt]) for row in rows], dtype=torch.float64)
        each = torch.stack(
            [
                -likely[torch.arange(len(rows)), labels],
                (torch.from_numpy(scores.predicted) == labels).double(),
                likely.exp().sum(1),
            ]
        )
        found.index_add_(1, owners, each * weights)
    return Answers(*found)


def _by_labels(tasks: Sequence[Task]) -> Iterator[tuple[tuple[Any, ...], list[int]]]:
    """The numbers of the tasks that have the same label tokens."""
    groups: dict[tuple[bytes, ...], list[int]] = {}
    for number, task in enumerate(tasks):
        groups.setdefault(tuple(ids.tobytes() for ids in task.label_ids), []).append(number)
    for numbers in groups.values():
        yield tasks[numbers[0]].label_ids, numbers


@dataclass(frozen=True)
class HeldOutTasks:
    """Scores of held-out tasks: at θ, and after the inner steps; None where the objective takes none.

    `examples` are the examples asked in each task, [tasks].
    """

    examples: Tensor
    before: Answers
    after: Answers | None = None

    @property
    def losses(self) -> Tensor:
        """The losses that checkpoints are chosen by, [tasks]."""
        return (self.after or self.before).loss


@dataclass(frozen=True)
class KindScores:
    """Means over the held-out tasks of one kind; shares lie between 0 and 1, `…_after` is None without inner step.

    Attributes:
        chance: the share that is right by chance, one over the number of labels: labels are balanced.
        chance_loss: the loss of a prompt that gives every label the same probability, and other words none.
    """

    kind: str
    tasks: int
    examples: int
    chance: float
    chance_loss: float
    loss_before: float
    right_before: float
    mass_before: float
    loss_after: float | None
    right_after: float | None
    mass_after: float | None

    @property
    def right(self) -> float:
        """The share that is right, after the inner steps if there are any."""
        return self.right_before if self.right_after is None else self.right_after

    @property
    def is_above_chance(self) -> bool:
        """True if so many right answers would come by chance in fewer than one of a hundred trainings."""
        error = math.sqrt(self.chance * (1 - self.chance) / max(self.examples, 1))
        return self.right > self.chance + CERTAINTY * error

    def to_json(self) -> dict[str, Any]:
        """As the log keeps it."""
        return asdict(self) | {"learned": self.is_above_chance}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> "KindScores":
        """Back from the log."""
        return cls(**{one.name: values[one.name] for one in fields(cls)})

    def in_words(self) -> str:
        """For the training log: `mc-next 27 → 31 % (chance 25 %)`."""
        before = "" if self.right_after is None else f"{100 * self.right_before:.0f} → "
        return f"{self.kind} {before}{100 * self.right:.0f} % (chance {100 * self.chance:.0f} %)"


@dataclass
class KindSums:
    """Sums over tasks by kind, in the order of `kinds`: what ranks add up.

    Columns are the tasks, their examples, chance and its loss, whether they were adapted, then the six scores.
    """

    kinds: Sequence[str]
    sums: Tensor

    @classmethod
    def of(cls, kinds: Sequence[str]) -> "KindSums":
        """Nothing yet."""
        return cls(kinds, torch.zeros(len(kinds), 11, dtype=torch.float64))

    def add(self, tasks: Sequence[Task], scores: HeldOutTasks) -> None:
        """Add some tasks."""
        after = scores.after or scores.before
        values = [scores.before.loss, scores.before.right, scores.before.mass, after.loss, after.right, after.mass]
        ones = torch.ones_like(scores.examples)
        labels = ones.new_tensor([len(one.label_ids) for one in tasks])
        adapted = torch.full_like(ones, float(scores.after is not None))
        columns = torch.stack([ones, scores.examples, 1 / labels, labels.log(), adapted, *values], 1)
        self.sums.index_add_(0, torch.tensor([self.kinds.index(task.kind) for task in tasks]), columns)

    def means(self) -> Iterable[KindScores]:
        """The kinds that have tasks."""
        for kind, row in zip(self.kinds, self.sums.tolist(), strict=True):
            tasks, examples, *shares = row
            if tasks:
                chance, chance_loss, adapted, loss, right, mass, *after = (share / tasks for share in shares)
                later = after if adapted else [None] * 3
                yield KindScores(kind, int(tasks), int(examples), chance, chance_loss, loss, right, mass, *later)


def chance_warning(variant: str, kinds: Sequence[KindScores]) -> str | None:
    """One line for a training none of whose kinds is above chance; None otherwise."""
    if not kinds or any(one.is_above_chance for one in kinds):
        return None
    each = ", ".join(one.in_words() for one in kinds)
    return (
        f"{variant}: ends at chance on every kind of held-out task: {each}. It has learned the label words at most, "
        "not the tasks: take more meta steps or a higher metatrain.outer_learning_rate"
    )
