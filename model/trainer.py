"""Training of θ and φ (ALGORITHM §5): Adam, decaying rates, clipped gradients, the best held-out prompt kept."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.utils import clip_grad_norm_

from model.curriculum import Curriculum
from model.meta_step import MixedTask
from model.objectives import Gradients, Objective
from model.ranks import Ranks
from model.task_batch import Task

Arrays = dict[str, NDArray[Any]]
Schedule = Literal["linear", "inverse-square-root"]


class NotFiniteError(Exception):
    """A loss or gradient became NaN or infinite; says at which step and in which tasks."""

    def __init__(self, step: int, tasks: Sequence[str]) -> None:
        super().__init__(f"step {step}: the loss or its gradient is NaN or infinite, in {', '.join(tasks)}")
        self.step = step


@dataclass(frozen=True)
class Rates:
    """Learning rates of θ and φ and their course: linear warm-up, then decay."""

    prompt: float
    regularizer: float
    steps: int
    warmup_steps: int = 0
    clip_norm: float | None = 1.0
    schedule: Schedule = "linear"

    def factor(self, step: int) -> float:
        """What both rates are multiplied with at a step, counted from 0."""
        if step < self.warmup_steps:
            return (step + 1) / self.warmup_steps
        if self.schedule == "inverse-square-root":
            return float((max(self.warmup_steps, 1) / (step + 1)) ** 0.5)
        return (self.steps - step) / max(self.steps - self.warmup_steps, 1)


@dataclass(frozen=True)
class Best:
    """The lowest held-out loss so far, and the step after which it was measured."""

    loss: float
    step: int


class Trainer:
    """θ, φ and all that changes while they are learned."""

    def __init__(
        self, objective: Objective, prompt: Tensor, curriculum: Curriculum, rates: Rates, ranks: Ranks
    ) -> None:
        self.objective, self.curriculum, self.rates, self.ranks = objective, curriculum, rates, ranks
        self.step = 0
        self.best: Best | None = None
        self.without_gain = 0
        self.best_arrays: Arrays = {}
        self._groups: dict[str, dict[str, torch.nn.Parameter]] = {"prompt": {"prompt": torch.nn.Parameter(prompt)}}
        if objective.regularizer is not None:
            self._groups["regularizer"] = dict(objective.regularizer.named_parameters())
        self._optimizers = {
            name: torch.optim.Adam(held.values(), lr=getattr(rates, name), foreach=False)
            for name, held in self._groups.items()
        }

    @property
    def prompt(self) -> Tensor:
        """θ as it is, [P, d]."""
        return self._groups["prompt"]["prompt"].detach()

    def train(self, tasks: Sequence[MixedTask], batch: int) -> dict[str, float]:
        """One step on this rank's tasks of a batch of `batch`; what it measured is the same on all ranks."""
        b = self.curriculum.b
        own = self.objective.gradients(self.prompt, tasks, b, batch) if tasks else None
        means, gradients = self._over_ranks(own, tasks)
        record = {"step": self.step + 1, "s": self.curriculum.similarity, "b": b} | means
        record |= self._descend(gradients)
        if "similarity" in means:
            self.curriculum.follow(means["similarity"])
        self.step += 1
        return record

    def _descend(self, gradients: dict[str, Tensor]) -> dict[str, float]:
        """Clip θ's and φ's gradients each for itself, and let Adam take its step."""
        factor = self.rates.factor(self.step)
        record = {"learning_rate": self.rates.prompt * factor}
        for name, optimizer in self._optimizers.items():
            parameters = self._groups[name]
            for key, parameter in parameters.items():
                parameter.grad = gradients[key].view_as(parameter)
            limit = self.rates.clip_norm if self.rates.clip_norm is not None else float("inf")
            record[f"{name}_gradient_norm"] = float(clip_grad_norm_(list(parameters.values()), limit))
            optimizer.param_groups[0]["lr"] = getattr(self.rates, name) * factor
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        return record | {"prompt_norm": float(self.prompt.norm())}

    def _over_ranks(
        self, own: Gradients | None, tasks: Sequence[MixedTask]
    ) -> tuple[dict[str, float], dict[str, Tensor]]:
        """Means of the measures over the batch, and sums of the gradients, from all ranks in one exchange."""
        names = (*self.objective.measured, "lambda", "tasks")
        parameters = {key: parameter for held in self._groups.values() for key, parameter in held.items()}
        sizes = [len(names), *(parameter.numel() for parameter in parameters.values())]
        if own is None:  # more ranks than tasks
            mine = self.prompt.new_zeros(sum(sizes))
        else:
            counted = self.prompt.new_tensor([sum(1 - one.share for one in tasks), len(tasks)])
            measures = torch.stack([own.measures[name].sum() for name in self.objective.measured])
            mine = torch.cat([measures, counted, *(own.parameters[key].flatten() for key in parameters)])
        total = self.ranks.summed(mine.detach().clone())
        if not bool(torch.isfinite(total).all()):
            self._refuse(own, tasks, finite=bool(torch.isfinite(mine).all()))
        measured, *pieces = torch.split(total, sizes)
        sums = dict(zip(names, measured.tolist(), strict=True))
        count = sums.pop("tasks")
        return {name: value / count for name, value in sums.items()}, dict(zip(parameters, pieces, strict=True))

    def _refuse(self, own: Gradients | None, tasks: Sequence[MixedTask], *, finite: bool) -> None:
        """Stop on all ranks, naming the tasks whose measures went wrong (all of a rank's, if only the gradient did)."""
        bad: list[str] = []
        if own is not None and not finite:
            wrong = ~torch.isfinite(torch.stack(list(own.measures.values()))).all(0)
            bad = [one.task.task_id for one, is_bad in zip(tasks, wrong.tolist(), strict=True) if is_bad]
            bad = bad or [one.task.task_id for one in tasks]
        raise NotFiniteError(self.step + 1, [name for names in self.ranks.gathered(bad) for name in names])

    def held_out_loss(self, batches: Iterable[Sequence[Task]]) -> float:
        """The mean loss over held-out tasks, of which `batches` are this rank's."""
        total = torch.zeros(2, dtype=torch.float64, device=self.prompt.device)
        bad: list[str] = []
        for tasks in batches:
            if tasks:
                losses = self.objective.held_out(self.prompt, tasks).double()
                total += torch.stack([losses.sum(), losses.new_tensor(float(len(tasks)))])
                finite = torch.isfinite(losses).tolist()
                bad += [task.task_id for task, is_good in zip(tasks, finite, strict=True) if not is_good]
        summed, count = self.ranks.summed(total).tolist()
        if not math.isfinite(summed):
            raise NotFiniteError(self.step, [name for names in self.ranks.gathered(bad) for name in names])
        return float(summed / count)

    def consider(self, loss: float) -> bool:
        """Remember θ and φ as the best if the held-out loss is the lowest so far; return whether it is."""
        if self.best is not None and not loss < self.best.loss:
            self.without_gain += 1
            return False
        self.best, self.without_gain, self.best_arrays = Best(loss, self.step), 0, self.arrays()
        return True

    def arrays(self) -> Arrays:
        """θ and φ as they are, by name."""
        return {key: _array(parameter) for held in self._groups.values() for key, parameter in held.items()}

    def state(self) -> tuple[Arrays, dict[str, Any]]:
        """All that a later process needs to go on as if nothing had happened: arrays, and the rest as JSON.

        No random state is among it: every draw follows from the seed and the place of its task.
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
        """Go back to a state."""
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
