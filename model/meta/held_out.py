"""Scores of held-out tasks by kind: loss and accuracy before and after the inner steps, compared with chance.

A falling loss alone proves little: it falls from 2.5 to 1.2 when a prompt has learned only which words are labels.
The accuracy compared with chance, and the total probability of the label words, show whether it has learned more.
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

CERTAINTY = 2.33  # standard errors above chance: a one-sided test at 1 %


@dataclass(frozen=True)
class Answers:
    """Scores of a prompt's answers to the examples of each task, [tasks] each.

    Attributes:
        loss: the mean negative log-probability of the right label's tokens.
        right: the share of examples whose right label is the most likely.
        mass: the mean total probability of all labels.
    """

    loss: Tensor
    right: Tensor
    mass: Tensor


def asked(passes: Passes, prompts: Tensor, tasks: Sequence[Task], examples: Sequence[Sequence[Example]]) -> Answers:
    """Return the scores of each task's examples behind the task's own prompt; `prompts` are [tasks, P, d]."""
    sums = torch.zeros(3, len(tasks), dtype=torch.float64)
    for label_ids, numbers in _by_labels(tasks):
        rows = [Row(example, number, 1.0) for number in numbers for example in examples[number]]
        scores = row_scores(passes, prompts, rows, label_ids)
        log_probabilities = torch.from_numpy(scores.log_probabilities)
        labels = torch.tensor([row.example.label for row in rows])
        owners = torch.tensor([row.prompt for row in rows])
        weights = torch.tensor([1 / len(examples[row.prompt]) for row in rows], dtype=torch.float64)
        each = torch.stack(
            [
                -log_probabilities[torch.arange(len(rows)), labels],
                (torch.from_numpy(scores.predicted) == labels).double(),
                log_probabilities.exp().sum(1),
            ]
        )
        sums.index_add_(1, owners, each * weights)
    return Answers(*sums)


def _by_labels(tasks: Sequence[Task]) -> Iterator[tuple[tuple[Any, ...], list[int]]]:
    """Yield the label tokens that occur, each with the numbers of the tasks that have them."""
    groups: dict[tuple[bytes, ...], list[int]] = {}
    for number, task in enumerate(tasks):
        groups.setdefault(tuple(ids.tobytes() for ids in task.label_ids), []).append(number)
    for numbers in groups.values():
        yield tasks[numbers[0]].label_ids, numbers


@dataclass(frozen=True)
class HeldOutTasks:
    """Scores of held-out tasks.

    Attributes:
        examples: the number of examples scored in each task, [tasks].
        before: scores with θ.
        after: scores after the inner steps; None if the objective has no inner steps.
    """

    examples: Tensor
    before: Answers
    after: Answers | None = None

    @property
    def losses(self) -> Tensor:
        """The losses that decide which checkpoint is the best, [tasks]."""
        return (self.after or self.before).loss


@dataclass(frozen=True)
class KindScores:
    """Means over the held-out tasks of one kind; shares are between 0 and 1, `…_after` is None without inner steps.

    Attributes:
        chance: the share of answers that are right by chance: 1 / number of labels, because labels are balanced.
        chance_loss: the loss of a prompt that gives all labels the same probability and no other word any.
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
        """The share of right answers, after the inner steps if there are any."""
        return self.right_before if self.right_after is None else self.right_after

    @property
    def is_above_chance(self) -> bool:
        """True if chance alone would give this many right answers in fewer than 1 % of cases."""
        error = math.sqrt(self.chance * (1 - self.chance) / max(self.examples, 1))
        return self.right > self.chance + CERTAINTY * error

    def to_json(self) -> dict[str, Any]:
        """Return the values as the training log stores them."""
        return asdict(self) | {"learned": self.is_above_chance}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> "KindScores":
        """Return the scores that `to_json` wrote."""
        return cls(**{field.name: values[field.name] for field in fields(cls)})

    def in_words(self) -> str:
        """Return the text for the training log, such as `mc-next 27 → 31 % (chance 25 %)`."""
        before = "" if self.right_after is None else f"{100 * self.right_before:.0f} → "
        return f"{self.kind} {before}{100 * self.right:.0f} % (chance {100 * self.chance:.0f} %)"


@dataclass
class KindSums:
    """Sums over the tasks of each kind, which can be added over ranks.

    `sums` has a row for each of `kinds`. Its columns are the number of tasks, the number of examples, chance and its
    loss, whether there were inner steps, and the six scores.
    """

    kinds: Sequence[str]
    sums: Tensor

    @classmethod
    def of(cls, kinds: Sequence[str]) -> "KindSums":
        """Return sums of zero for some kinds."""
        return cls(kinds, torch.zeros(len(kinds), 11, dtype=torch.float64))

    def add(self, tasks: Sequence[Task], scores: HeldOutTasks) -> None:
        """Add the scores of some tasks."""
        after = scores.after or scores.before
        values = [scores.before.loss, scores.before.right, scores.before.mass, after.loss, after.right, after.mass]
        ones = torch.ones_like(scores.examples)
        labels = ones.new_tensor([len(task.label_ids) for task in tasks])
        adapted = torch.full_like(ones, float(scores.after is not None))
        columns = torch.stack([ones, scores.examples, 1 / labels, labels.log(), adapted, *values], 1)
        self.sums.index_add_(0, torch.tensor([self.kinds.index(task.kind) for task in tasks]), columns)

    def means(self) -> Iterable[KindScores]:
        """Yield the means of each kind that has tasks."""
        for kind, row in zip(self.kinds, self.sums.tolist(), strict=True):
            tasks, examples, *shares = row
            if tasks:
                chance, chance_loss, adapted, loss, right, mass, *after = (share / tasks for share in shares)
                later = after if adapted else [None] * 3
                yield KindScores(kind, int(tasks), int(examples), chance, chance_loss, loss, right, mass, *later)


def chance_warning(variant: str, kinds: Sequence[KindScores]) -> str | None:
    """Return a one-line warning if no kind of task is above chance, otherwise None."""
    if not kinds or any(kind.is_above_chance for kind in kinds):
        return None
    each = ", ".join(kind.in_words() for kind in kinds)
    return (
        f"{variant}: training ended at chance on every kind of held-out task: {each}. It has learned at most which "
        "words are labels, not the tasks: raise metatrain.steps or metatrain.outer_learning_rate"
    )
