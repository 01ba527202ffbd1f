"""Training of θ and φ (ALGORITHM §5): Adam, decaying rates, clipped gradients; the best held-out prompt is kept."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.utils import clip_grad_norm_

from model.meta.curriculum import Curriculum
from model.meta.held_out import KindScores, KindSums
from model.meta.meta_step import MixedTask
from model.meta.objectives import Gradients, Objective
from model.meta.ranks import Ranks
from model.text.tokenized_tasks import Task

Arrays = dict[str, NDArray[Any]]
Schedule = Literal["linear", "inverse-square-root"]


class NotFiniteError(Exception):
    """A loss or gradient became NaN or infinite; the message names the step and the tasks."""

    def __init__(self, step: int, tasks: Sequence[str]) -> None:
        super().__init__(f"step {step}: the loss or its gradient is NaN or infinite, in {', '.join(tasks)}")
        self.step = step


@dataclass(frozen=True)
class Rates:
    """Learning rates of θ and φ with their schedule: linear warm-up, then decay."""

    prompt: float
    regularizer: float
    steps: int
    warmup_steps: int = 0
    clip_norm: float | None = 1.0
    schedule: Schedule = "linear"
    regularizer_warmup_steps: int | None = None

    def at(self, group: str, step: int) -> float:
        """Return the rate of `prompt` or `regularizer` at a step, counted from 0."""
        own = self.regularizer_warmup_steps if group == "regularizer" else None
        return float(getattr(self, group)) * self._factor(step, self.warmup_steps if own is None else own)

    def _factor(self, step: int, warmup_steps: int) -> float:
        if step < warmup_steps:
            return (step + 1) / warmup_steps
        if self.schedule == "inverse-square-root":
            return float((max(warmup_steps, 1) / (step + 1)) ** 0.5)
        return (self.steps - step) / max(self.steps - warmup_steps, 1)


@dataclass(frozen=True)
class HeldOut:
    """The mean loss over held-out tasks, and their scores by kind."""

    loss: float
    kinds: tuple[KindScores, ...]


@dataclass(frozen=True)
class PlainStart:
    """The first `steps` steps descend the plain loss, as PPT does, without inner steps and gates."""

    objective: Objective
    steps: int


@dataclass(frozen=True)
class Best:
    """The lowest held-out loss so far, and the step after which it was measured."""

    loss: float
    step: int


class Trainer:
    """θ, φ and everything else that changes during training."""

    def __init__(
        self,
        objective: Objective,
        prompt: Tensor,
        curriculum: Curriculum,
        rates: Rates,
        ranks: Ranks,
        plain_start: PlainStart | None = None,
    ) -> None:
        self.objective, self.curriculum, self.rates, self.ranks = objective, curriculum, rates, ranks
        self._plain_start = plain_start
        self.step = 0
        self.best: Best | None = None
        self.without_gain = 0
        self.best_arrays: Arrays = {}
        self._groups: dict[str, dict[str, torch.nn.Parameter]] = {"prompt": {"prompt": torch.nn.Parameter(prompt)}}
        if objective.regularizer is not None:
            self._groups["regularizer"] = dict(objective.regularizer.named_parameters())
        self._optimizers = {
            name: torch.optim.Adam(group.values(), lr=getattr(rates, name), foreach=False)
            for name, group in self._groups.items()
        }

    @property
    def prompt(self) -> Tensor:
        """The current θ, [P, d]."""
        return self._groups["prompt"]["prompt"].detach()

    def train(self, tasks: Sequence[MixedTask], batch: int) -> dict[str, float]:
        """Take one step on this rank's tasks of a batch of `batch` tasks; return its record, the same on all ranks."""
        b = self.curriculum.b
        start = self._plain_start
        objective = start.objective if start is not None and self.step < start.steps else self.objective
        read = objective.passes.tokens
        own = objective.gradients(self.prompt, tasks, b, batch) if tasks else None
        means, gradients = self._over_ranks(objective, own, tasks, objective.passes.tokens - read)
        record = {"step": self.step + 1, "s": self.curriculum.similarity, "b": b} | means
        record |= self._descend(gradients)
        if "similarity" in means:
            self.curriculum.follow(means["similarity"])
        self.step += 1
        return record

    def _descend(self, gradients: dict[str, Tensor]) -> dict[str, float]:
        """Clip the gradients of θ and of φ separately, and take a step with Adam."""
        record = {"learning_rate": self.rates.at("prompt", self.step)}
        for name, optimizer in self._optimizers.items():
            parameters = self._groups[name]
            for key, parameter in parameters.items():
                parameter.grad = gradients[key].view_as(parameter)
            limit = self.rates.clip_norm if self.rates.clip_norm is not None else float("inf")
            record[f"{name}_gradient_norm"] = float(clip_grad_norm_(list(parameters.values()), limit))
            optimizer.param_groups[0]["lr"] = self.rates.at(name, self.step)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        return record | {"prompt_norm": float(self.prompt.norm())}

    def _over_ranks(
        self, objective: Objective, own: Gradients | None, tasks: Sequence[MixedTask], tokens: int
    ) -> tuple[dict[str, float], dict[str, Tensor]]:
        """Return the means of the measures over the batch, with the sum of tokens, and the sums of the gradients.

        All ranks take part, in one exchange.
        """
        names = (*objective.measured, "lambda", "tasks", "tokens")
        parameters = {key: parameter for group in self._groups.values() for key, parameter in group.items()}
        sizes = [len(names), *(parameter.numel() for parameter in parameters.values())]
        if own is None:  # more ranks than tasks
            mine = self.prompt.new_zeros(sum(sizes))
        else:
            counted = self.prompt.new_tensor([sum(1 - mixed.share for mixed in tasks), len(tasks), tokens])
            measures = torch.stack([own.measures[name].sum() for name in objective.measured])
            gradients = [own.parameters.get(key, torch.zeros_like(value)) for key, value in parameters.items()]
            mine = torch.cat([measures, counted, *(gradient.flatten() for gradient in gradients)])
        total = self.ranks.summed(mine.detach().clone())
        if not bool(torch.isfinite(total).all()):
            self._refuse(own, tasks, finite=bool(torch.isfinite(mine).all()))
        measured, *pieces = torch.split(total, sizes)
        sums = dict(zip(names, measured.tolist(), strict=True))
        count, read = sums.pop("tasks"), sums.pop("tokens")
        means = {name: value / count for name, value in sums.items()} | {"tokens": read}
        return means, dict(zip(parameters, pieces, strict=True))

    def _refuse(self, own: Gradients | None, tasks: Sequence[MixedTask], *, finite: bool) -> None:
        """Raise NotFiniteError on all ranks, with the tasks whose measures are not finite.

        If only the gradient of a rank is not finite, all its tasks are named.
        """
        bad: list[str] = []
        if own is not None and not finite:
            wrong = ~torch.isfinite(torch.stack(list(own.measures.values()))).all(0)
            bad = [mixed.task.task_id for mixed, is_bad in zip(tasks, wrong.tolist(), strict=True) if is_bad]
            bad = bad or [mixed.task.task_id for mixed in tasks]
        raise NotFiniteError(self.step + 1, [name for names in self.ranks.gathered(bad) for name in names])

    def held_out(self, batches: Iterable[Sequence[Task]], kinds: Sequence[str]) -> HeldOut:
        """Return the scores of the held-out tasks of `kinds` on all ranks; `batches` are this rank's tasks."""
        total, sums = torch.zeros(2, dtype=torch.float64), KindSums.of(kinds)
        bad: list[str] = []
        for tasks in batches:
            if tasks:
                scores = self.objective.held_out(self.prompt, tasks)
                total += torch.stack([scores.losses.sum(), torch.tensor(float(len(tasks)), dtype=torch.float64)])
                sums.add(tasks, scores)
                finite = torch.isfinite(scores.losses).tolist()
                bad += [task.task_id for task, is_good in zip(tasks, finite, strict=True) if not is_good]
        summed, count = self.ranks.summed(total.to(self.prompt.device)).tolist()
        if not math.isfinite(summed):
            raise NotFiniteError(self.step, [name for names in self.ranks.gathered(bad) for name in names])
        sums.sums = self.ranks.summed(sums.sums.to(self.prompt.device)).cpu()
        return HeldOut(float(summed / count), tuple(sums.means()))

    def consider(self, loss: float) -> bool:
        """Keep θ and φ as the best and return True if the held-out loss is the lowest so far."""
        if self.best is not None and not loss < self.best.loss:
            self.without_gain += 1
            return False
        self.best, self.without_gain, self.best_arrays = Best(loss, self.step), 0, self.arrays()
        return True

    def arrays(self) -> Arrays:
        """Return the current θ and φ by name."""
        return {key: _array(parameter) for group in self._groups.values() for key, parameter in group.items()}

    def state(self) -> tuple[Arrays, dict[str, Any]]:
        """Return everything that a later process needs to continue exactly: arrays, and the rest as JSON.

        There is no random state: every draw depends only on the seed and the position of its task.
        """
        arrays = {f"now.{key}": value for key, value in self.arrays().items()}
        arrays |= {f"best.{key}": value for key, value in self.best_arrays.items()}
        for name, optimizer in self._optimizers.items():
            for key, parameter in self._groups[name].items():
                arrays |= {f"adam.{key}.{part}": _array(value) for part, value in optimizer.state[parameter].items()}
        best = asdict(self.best) if self.best else None
        rest = {"step": self.step, "similarity": self.curriculum.similarity, "without_gain": self.without_gain}
        return arrays, rest | {"best": best, "settings": self.objective.settings()}

    def resume(self, arrays: Arrays, rest: dict[str, Any]) -> None:
        """Restore a state that `state` returned."""
        self.step, self.without_gain = rest["step"], rest["without_gain"]
        self.curriculum.similarity = rest["similarity"]
        self.best = Best(**rest["best"]) if rest["best"] else None
        self.best_arrays = _under("best.", arrays)
        self.objective.cut_up(rest["settings"])
        for name, optimizer in self._optimizers.items():
            for key, parameter in self._groups[name].items():
                with torch.no_grad():
                    parameter.copy_(torch.from_numpy(arrays[f"now.{key}"]))
                parts = _under(f"adam.{key}.", arrays)
                optimizer.state[parameter] = {
                    part: torch.from_numpy(value.copy()).to("cpu" if part == "step" else parameter.device)
                    for part, value in parts.items()
                }


def _array(tensor: Tensor) -> NDArray[Any]:
    array: NDArray[Any] = tensor.detach().cpu().numpy().copy()
    return array


def _under(prefix: str, arrays: Arrays) -> Arrays:
    return {key.removeprefix(prefix): np.asarray(value) for key, value in arrays.items() if key.startswith(prefix)}
