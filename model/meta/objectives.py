"""The objectives of training: SUPMER's bi-level objective, and the plain loss of the PPT baselines.

Both compute the gradients of a batch of tasks, and the held-out loss that decides which checkpoint is the best. If
memory runs out, they try again in smaller pieces; this changes the cost of a step but not its result.
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
from model.prompt.sizes import GRAPH_SHARE
from model.text.tokenized_tasks import Example, Task

Result = TypeVar("Result")


@dataclass(frozen=True)
class Gradients:
    """Gradients of θ and φ by name, summed over some tasks, and the measurements of those tasks by name."""

    parameters: dict[str, Tensor]
    measures: dict[str, Tensor]


class Objective(Protocol):
    """A loss to descend; `measured` are the names of the measurements of a step."""

    passes: Passes
    regularizer: GradientRegularizer | None
    measured: tuple[str, ...]

    def gradients(self, prompt: Tensor, tasks: Sequence[MixedTask], b: float, batch: int) -> Gradients:
        """Return the gradients of these tasks, which are part of a batch of `batch` tasks; b is the gates' target."""

    def held_out(self, prompt: Tensor, tasks: Sequence[Task]) -> HeldOutTasks:
        """Return the scores of held-out tasks."""

    def settings(self) -> dict[str, int | bool]:
        """Return how the work is divided; a resumed run that divides it in the same way gives the same bits."""

    def cut_up(self, settings: dict[str, int | bool]) -> None:
        """Divide the work as `settings` say."""


@dataclass
class MetaObjective:
    """SUPMER: the query loss after inner steps on the support set (ALGORITHM §5).

    `say` is called with messages for the user. `graph_share` is the share of the device's memory for kept graphs.
    """

    passes: Passes
    regularizer: GradientRegularizer | None
    form: StepForm
    measured: tuple[str, ...] = tuple(measure.name for measure in fields(TaskMeasures))
    say: Callable[[str], None] = field(default=lambda _message: None)
    graph_share: float = GRAPH_SHARE
    _decided: bool = False

    def gradients(self, prompt: Tensor, tasks: Sequence[MixedTask], b: float, batch: int) -> Gradients:
        """Return the gradients of Σ L_query + weight·mean L_reg."""
        if not self._decided:
            self._decide(prompt, [mixed.task for mixed in tasks])

        def work() -> MetaGradients:
            return meta_gradients(self.passes, prompt, self.regularizer, tasks, self.form, b, batch)

        result = self._within_memory(work)
        measures = {name: getattr(result.measures, name) for name in self.measured}
        return Gradients({"prompt": result.prompt} | result.regularizer, measures)

    def held_out(self, prompt: Tensor, tasks: Sequence[Task]) -> HeldOutTasks:
        """Return the scores of the query sets, without mixing, before and after the inner steps."""
        queries = [task.query for task in tasks]

        def work() -> HeldOutTasks:
            adapted = adapted_prompts(self.passes, prompt, self.regularizer, tasks, self.form)
            before = asked(self.passes, _one_each(prompt, tasks), tasks, queries)
            return HeldOutTasks(_counts(queries), before, asked(self.passes, adapted, tasks, queries))

        return within_memory(work, lambda: halved(self.passes, self.say))

    def settings(self) -> dict[str, int | bool]:
        """Return the tokens of a chunk, and whether graphs are kept."""
        return {"chunk_tokens": self.passes.chunk_tokens, "keep_graph": self.form.keep_graph}

    def cut_up(self, settings: dict[str, int | bool]) -> None:
        """Use these settings."""
        self.passes.chunk_tokens = int(settings["chunk_tokens"])
        self.form = replace(self.form, keep_graph=bool(settings["keep_graph"]))
        self._decided = True

    def _decide(self, prompt: Tensor, tasks: Sequence[Task]) -> None:
        """Keep the graphs of the support sets only if they need at most `graph_share` of the device's memory."""
        self._decided = True
        if self.form.order == 1 or not self.form.keep_graph:
            return
        prompts, rows = prompt.repeat(len(tasks), 1, 1), support_rows(tasks)
        needed = within_memory(lambda: graph_bytes(self.passes, prompts, rows), lambda: halved(self.passes, self.say))
        if needed > self.graph_share * total_memory(self.passes.backbone.device):
            self.form = replace(self.form, keep_graph=False)
            self.say(f"graphs of {needed / 1e9:.1f} GB would not fit in memory: support sets are read twice")

    def _within_memory(self, work: Callable[[], Result]) -> Result:
        def smaller() -> bool:
            if self.form.order == 2 and self.form.keep_graph:
                self.form = replace(self.form, keep_graph=False)
                self.say("memory ran out: support sets are read twice instead of keeping their graphs")
                return True
            return halved(self.passes, self.say)

        return within_memory(work, smaller)


@dataclass
class PlainObjective:
    """PPT: the mean loss with θ of all examples of a batch, of support and query sets alike (ALGORITHM §7).

    `say` is called with messages for the user.
    """

    passes: Passes
    regularizer: GradientRegularizer | None = None
    measured: tuple[str, ...] = ("query_loss",)
    say: Callable[[str], None] = field(default=lambda _message: None)

    def gradients(self, prompt: Tensor, tasks: Sequence[MixedTask], b: float, batch: int) -> Gradients:  # noqa: ARG002 - no gates
        """Return the gradient of the mean loss over the batch."""
        rows = _every_row([mixed.task for mixed in tasks])
        result = within_memory(
            lambda: self.passes.run(_one_each(prompt, [mixed.task for mixed in tasks]), rows),
            lambda: halved(self.passes, self.say),
        )
        return Gradients({"prompt": result.gradients.sum(0) / batch}, {"query_loss": result.losses})

    def held_out(self, prompt: Tensor, tasks: Sequence[Task]) -> HeldOutTasks:
        """Return the scores of both sets of each task."""
        examples = [(*task.support, *task.query) for task in tasks]
        return within_memory(
            lambda: HeldOutTasks(_counts(examples), asked(self.passes, _one_each(prompt, tasks), tasks, examples)),
            lambda: halved(self.passes, self.say),
        )

    def settings(self) -> dict[str, int | bool]:
        """Return the tokens of a chunk."""
        return {"chunk_tokens": self.passes.chunk_tokens}

    def cut_up(self, settings: dict[str, int | bool]) -> None:
        """Use these settings."""
        self.passes.chunk_tokens = int(settings["chunk_tokens"])


def _every_row(tasks: Sequence[Task]) -> list[Row]:
    """Return the rows of the support and query sets, as one set per task."""
    return support_rows([replace(task, support=(*task.support, *task.query)) for task in tasks])


def _one_each(prompt: Tensor, tasks: Sequence[Task]) -> Tensor:
    return prompt.detach().repeat(len(tasks), 1, 1)


def _counts(examples: Sequence[Sequence[Example]]) -> Tensor:
    return torch.tensor([float(len(each)) for each in examples], dtype=torch.float64)
