"""What a trainer descends: SUPMER's bi-level objective, or the plain loss of the PPT baselines.

Both give gradients of a batch of tasks and the held-out loss that checkpoints are chosen by. Where memory runs out they
take smaller pieces and try again: pieces change what a step costs, not what it computes.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Protocol, TypeVar

import torch
from torch import Tensor

from model.device import total_memory
from model.meta.held_out import HeldOutTasks, asked
from model.meta.meta_step import (
    MetaGradients,
    MixedTask,
    StepForm,
    TaskMeasures,
    adapted_prompts,
    meta_gradients,
    support_rows,
)
from model.prompt.memory import graph_bytes, halved, within_memory
from model.prompt.passes import Passes
from model.prompt.regularizer import GradientRegularizer
from model.prompt.rows import Row
from model.text.tokenized_tasks import Example, Task

GRAPH_SHARE = 0.25  # of the memory there is, for kept graphs
Result = TypeVar("Result")


@dataclass(frozen=True)
class Gradients:
    """Of θ and φ by name, summed over some tasks; and sums of what was measured."""

    parameters: dict[str, Tensor]
    measures: dict[str, Tensor]


class Objective(Protocol):
    """What is descended; `measured` names what a step measures."""

    passes: Passes
    regularizer: GradientRegularizer | None
    measured: tuple[str, ...]

    def gradients(self, prompt: Tensor, tasks: Sequence[MixedTask], b: float, batch: int) -> Gradients:
        """Of these tasks, which are some of a batch of `batch`; b is what the gates aim at."""

    def held_out(self, prompt: Tensor, tasks: Sequence[Task]) -> HeldOutTasks:
        """Scores of held-out tasks."""

    def settings(self) -> dict[str, int | bool]:
        """How the work is cut up: a resumed run that cuts it up alike gives the same bits."""

    def cut_up(self, settings: dict[str, int | bool]) -> None:
        """Cut the work up as `settings` say."""


@dataclass
class MetaObjective:
    """SUPMER: the query loss after an inner step on the support set (ALGORITHM §5).

    `graph_share` is the part of the device's memory that kept graphs may take.
    """

    passes: Passes
    regularizer: GradientRegularizer | None
    form: StepForm
    measured: tuple[str, ...] = tuple(measure.name for measure in fields(TaskMeasures))
    told: Callable[[str], None] = field(default=lambda _message: None)
    graph_share: float = GRAPH_SHARE
    _decided: bool = False

    def gradients(self, prompt: Tensor, tasks: Sequence[MixedTask], b: float, batch: int) -> Gradients:
        """Gradients of Σ L_query + weight·mean L_reg."""
        if not self._decided:
            self._decide(prompt, [one.task for one in tasks])

        def work() -> MetaGradients:
            return meta_gradients(self.passes, prompt, self.regularizer, tasks, self.form, b, batch)

        found = self._within_memory(work)
        measures = {name: getattr(found.measures, name) for name in self.measured}
        return Gradients({"prompt": found.prompt} | found.regularizer, measures)

    def held_out(self, prompt: Tensor, tasks: Sequence[Task]) -> HeldOutTasks:
        """Scores of the query sets before and after the inner steps, without mixing."""
        queries = [task.query for task in tasks]

        def work() -> HeldOutTasks:
            adapted = adapted_prompts(self.passes, prompt, self.regularizer, tasks, self.form)
            before = asked(self.passes, _one_each(prompt, tasks), tasks, queries)
            return HeldOutTasks(_counts(queries), before, asked(self.passes, adapted, tasks, queries))

        return within_memory(work, lambda: halved(self.passes, self.told))

    def settings(self) -> dict[str, int | bool]:
        """Tokens of a chunk, and whether graphs are kept."""
        return {"chunk_tokens": self.passes.chunk_tokens, "keep_graph": self.form.keep_graph}

    def cut_up(self, settings: dict[str, int | bool]) -> None:
        """Take over both."""
        self.passes.chunk_tokens = int(settings["chunk_tokens"])
        self.form = replace(self.form, keep_graph=bool(settings["keep_graph"]))
        self._decided = True

    def _decide(self, prompt: Tensor, tasks: Sequence[Task]) -> None:
        """Keep the graphs of the support sets only if they take a modest part of the memory there is."""
        self._decided = True
        if self.form.order == 1 or not self.form.keep_graph:
            return
        prompts, rows = prompt.repeat(len(tasks), 1, 1), support_rows(tasks)
        wanted = within_memory(lambda: graph_bytes(self.passes, prompts, rows), lambda: halved(self.passes, self.told))
        if wanted > self.graph_share * total_memory(self.passes.backbone.device):
            self.form = replace(self.form, keep_graph=False)
            self.told(f"graphs of {wanted / 1e9:.1f} GB would not fit: support sets are read twice")

    def _within_memory(self, work: Callable[[], Result]) -> Result:
        def smaller() -> bool:
            if self.form.order == 2 and self.form.keep_graph:
                self.form = replace(self.form, keep_graph=False)
                self.told("memory ran out: support sets are read twice instead of keeping their graphs")
                return True
            return halved(self.passes, self.told)

        return within_memory(work, smaller)


@dataclass
class PlainObjective:
    """PPT: the mean loss of a batch's examples under θ itself, support and query sets alike (ALGORITHM §7)."""

    passes: Passes
    regularizer: GradientRegularizer | None = None
    measured: tuple[str, ...] = ("query_loss",)
    told: Callable[[str], None] = field(default=lambda _message: None)

    def gradients(self, prompt: Tensor, tasks: Sequence[MixedTask], b: float, batch: int) -> Gradients:  # noqa: ARG002 - no gates
        """Gradient of the mean loss over the batch."""
        rows = _every_row([one.task for one in tasks])
        found = within_memory(
            lambda: self.passes.run(_one_each(prompt, [one.task for one in tasks]), rows),
            lambda: halved(self.passes, self.told),
        )
        return Gradients({"prompt": found.gradients.sum(0) / batch}, {"query_loss": found.losses})

    def held_out(self, prompt: Tensor, tasks: Sequence[Task]) -> HeldOutTasks:
        """Scores of both sets of each task."""
        examples = [(*task.support, *task.query) for task in tasks]
        return within_memory(
            lambda: HeldOutTasks(_counts(examples), asked(self.passes, _one_each(prompt, tasks), tasks, examples)),
            lambda: halved(self.passes, self.told),
        )

    def settings(self) -> dict[str, int | bool]:
        """Tokens of a chunk."""
        return {"chunk_tokens": self.passes.chunk_tokens}

    def cut_up(self, settings: dict[str, int | bool]) -> None:
        """Take them over."""
        self.passes.chunk_tokens = int(settings["chunk_tokens"])


def _every_row(tasks: Sequence[Task]) -> list[Row]:
    """Rows of the support and query sets as one set a task."""
    return support_rows([replace(task, support=(*task.support, *task.query)) for task in tasks])


def _one_each(prompt: Tensor, tasks: Sequence[Task]) -> Tensor:
    return prompt.detach().repeat(len(tasks), 1, 1)


def _counts(examples: Sequence[Sequence[Example]]) -> Tensor:
    return torch.tensor([float(len(each)) for each in examples], dtype=torch.float64)
