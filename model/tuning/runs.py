"""What a tuning run is, and what comes of it (ALGORITHM §6)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from torch import Tensor

from model.prompt.regularizer import GradientRegularizer
from model.text.tokenized_tasks import Example
from model.tuning.official import ReleasedRegularizer

Regularizer = GradientRegularizer | ReleasedRegularizer
Status = Literal["ok", "nan", "collapsed"]

_ORDER = 3  # keeps the draws of the order apart from other draws by the same seed


@dataclass(frozen=True)
class TuneForm:
    """What all runs of a group have in common; the defaults are the paper's, AdamW's are torch's."""

    batch_size: int = 32
    epochs: int = 200
    evaluate_every: int = 10
    weight_decay: float = 0.01


@dataclass(frozen=True)
class TuneRun:
    """One run: where it starts, what it learns from.

    Attributes:
        prompt: θ at the start, [P, d].
        seed: decides the order of the examples.
        regularizer: ψφ*, which stays as it is; None: the raw gradient.
    """

    prompt: Tensor
    learning_rate: float
    seed: int
    train: Sequence[Example]
    validation: Sequence[Example]
    regularizer: Regularizer | None = None

    def steps(self, form: TuneForm) -> int:
        """Steps of all epochs; the last batch of an epoch may be smaller."""
        return form.epochs * self._batches(form)

    def batch(self, step: int, form: TuneForm) -> list[Example]:
        """The examples of a step, counted from 0; each epoch is a shuffle that follows from the seed."""
        epoch, place = divmod(step, self._batches(form))
        order = np.random.default_rng([self.seed % 2**64, _ORDER, epoch]).permutation(len(self.train))
        return [self.train[number] for number in order[place * form.batch_size : (place + 1) * form.batch_size]]

    def _batches(self, form: TuneForm) -> int:
        return -(-len(self.train) // form.batch_size)


@dataclass(frozen=True)
class Point:
    """One evaluation; the training loss is the mean over the steps since the one before."""

    step: int
    train_loss: float | None
    validation_loss: float
    validation_score: float
    labels: int  # how many different labels were predicted

    def beats(self, other: "Point | None") -> bool:
        """A higher score, or the same score with a lower loss."""
        mine = (self.validation_score, -self.validation_loss)
        return other is None or mine > (other.validation_score, -other.validation_loss)


@dataclass(frozen=True)
class Tuned:
    """What came of a run: θ at its best evaluation [P, d] (the start's, where there was none), and its course."""

    prompt: Tensor
    best: Point
    curve: tuple[Point, ...]
    steps: int
    status: Status


def best_rate(results: Sequence[Tuned]) -> int:
    """Which of the runs of one seed is taken: by validation score, then loss; the first of equals, NaN last."""
    chosen = 0
    for number, one in enumerate(results):
        held = results[chosen]
        if (one.status != "nan", one.best.validation_score, -one.best.validation_loss) > (
            held.status != "nan",
            held.best.validation_score,
            -held.best.validation_loss,
        ):
            chosen = number
    return chosen
