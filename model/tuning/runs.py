"""Tuning runs and their results (ALGORITHM §6)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from model.prompt.regularizer import GradientRegularizer
from model.text.tokenized_tasks import Example
from model.tuning.official import ReleasedRegularizer

Regularizer = GradientRegularizer | ReleasedRegularizer
Network = Callable[[Tensor], Tensor]
"""Gives the prompt or prefixes that the backbone gets for the numbers that are trained; differentiable."""
Status = Literal["ok", "nan", "collapsed"]

_ORDER = 3  # separates the draws of the order from other draws with the same seed


@dataclass(frozen=True)
class TuneForm:
    """The settings that all runs of a group share; defaults are the paper's, and torch's for AdamW."""

    batch_size: int = 32
    epochs: int = 200
    evaluate_every: int = 10
    weight_decay: float = 0.01


@dataclass(frozen=True)
class TuneRun:
    """One run: its initial prompt, learning rate, seed and examples.

    Attributes:
        prompt: the initial θ, [P, d]; prefixes [P, W], or the numbers of the network that gives them.
        seed: decides the order of the examples.
        regularizer: ψφ*, which is not trained; None means the raw gradient.
        network: None if the backbone gets what is trained.
    """

    prompt: Tensor
    learning_rate: float
    seed: int
    train: Sequence[Example]
    validation: Sequence[Example]
    regularizer: Regularizer | None = None
    network: Network | None = None

    def given(self, trained: Tensor) -> Tensor:
        """Return what the backbone gets for the numbers that are trained, without gradients."""
        with torch.no_grad():
            return trained.detach() if self.network is None else self.network(trained)

    def pulled_back(self, trained: Tensor, gradient: Tensor) -> Tensor:
        """Return the gradient of the trained numbers from that of what the backbone gets."""
        if self.network is None:
            return gradient
        leaf = trained.detach().requires_grad_()
        return torch.autograd.grad(self.network(leaf), leaf, gradient)[0]

    def steps(self, form: TuneForm) -> int:
        """Return the number of steps of all epochs; the last batch of an epoch may be smaller."""
        return form.epochs * self._batches(form)

    def batch(self, step: int, form: TuneForm) -> list[Example]:
        """Return the examples of a step, counted from 0; the seed and the epoch decide how they are shuffled."""
        epoch, place = divmod(step, self._batches(form))
        order = np.random.default_rng([self.seed % 2**64, _ORDER, epoch]).permutation(len(self.train))
        return [self.train[number] for number in order[place * form.batch_size : (place + 1) * form.batch_size]]

    def _batches(self, form: TuneForm) -> int:
        return -(-len(self.train) // form.batch_size)


@dataclass(frozen=True)
class Point:
    """One evaluation; the training loss is the mean over the steps since the previous one."""

    step: int
    train_loss: float | None
    validation_loss: float
    validation_score: float
    labels: int  # how many different labels were predicted

    def beats(self, other: "Point | None") -> bool:
        """Return True if the score is higher, or the score is the same and the loss lower; always True for None."""
        mine = (self.validation_score, -self.validation_loss)
        return other is None or mine > (other.validation_score, -other.validation_loss)


@dataclass(frozen=True)
class Tuned:
    """The result of a run: θ at its best evaluation, or the initial θ if there was none, and its curve.

    θ is what the backbone gets: a prompt [P, d] or prefixes [P, W]. A network that gave it is dropped.
    """

    prompt: Tensor
    best: Point
    curve: tuple[Point, ...]
    steps: int
    status: Status


def best_rate(results: Sequence[Tuned]) -> int:
    """Return the number of the best run of one seed, by validation score, then loss; a run with NaN comes last.

    Of equal runs the first is the best.
    """
    chosen = 0
    for number, result in enumerate(results):
        best = results[chosen]
        if (result.status != "nan", result.best.validation_score, -result.best.validation_loss) > (
            best.status != "nan",
            best.best.validation_score,
            -best.best.validation_loss,
        ):
            chosen = number
    return chosen
