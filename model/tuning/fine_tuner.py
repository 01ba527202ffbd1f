"""Training of a model's own weights on a few labeled examples, one run at a time (ALGORITHM §7, FT)."""

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import torch
from torch import Tensor

from model.meta.ranks import Ranks
from model.prompt.memory import halved, within_memory
from model.prompt.passes import Passes
from model.prompt.prediction import LabelScores, label_scores
from model.prompt.rows import Row
from model.t5.backbone import computing
from model.text.tokenized_tasks import Example, Ids
from model.tuning.runs import Point, Status, Tuned, TuneForm, TuneRun
from model.tuning.trainee import Trainee

_BETAS = (0.9, 0.999)
_MEANS = ("exp_avg", "exp_avg_sq")  # AdamW's names


class FineTuner:
    """Trains the weights of one run with AdamW; the weights of the best evaluation are kept beside them.

    All ranks hold the same batch. Each passes its share of the rows; evaluations are the same on every rank.

    Args:
        trainee: the model, with the weights of the start.
        run: examples, seed and rate; its prompt has no rows.
        label_ids: the target ids of the labels.
        form: settings of the protocol.
        micro_batch: most rows in one pass, on one rank; the gradients of the passes of a step are summed.
        ranks: the processes that train together.
    """

    def __init__(
        self,
        trainee: Trainee,
        run: TuneRun,
        label_ids: Sequence[Ids],
        form: TuneForm,
        micro_batch: int,
        ranks: Ranks,
    ) -> None:
        self.trainee, self.run, self.label_ids, self.form = trainee, run, label_ids, form
        self.micro_batch, self.ranks = micro_batch, ranks
        self.step, self.steps = 0, run.steps(form)
        self.is_finite = True
        self._points: list[Point] = []
        self._losses: list[float] = []
        self._best: Point | None = None
        self._weights = trainee.trained()
        self.best_weights = {name: weight.detach().clone() for name, weight in self._weights.items()}
        self._passes = Passes.for_tuning(trainee)
        self._adam = torch.optim.AdamW(
            self._weights.values(), lr=run.learning_rate, betas=_BETAS, weight_decay=form.weight_decay, fused=True
        )

    @property
    def ended(self) -> bool:
        """True if no step is left."""
        return not self.is_finite or self.step >= self.steps

    @property
    def parameters(self) -> int:
        """The number of trained numbers."""
        return sum(weight.numel() for weight in self._weights.values())

    def tune(self, after_step: Callable[[], None] = lambda: None) -> None:
        """Evaluate the start, then step and evaluate until the end; `after_step` is called after each step."""
        if self.step == 0:
            self.evaluate()
        while not self.ended:
            self.advance()
            after_step()

    def advance(self) -> None:
        """Take a step, and evaluate every `evaluate_every` steps and at the end."""
        self.descend()
        if self.is_finite and (self.step % self.form.evaluate_every == 0 or self.step == self.steps):
            self.evaluate()

    def descend(self) -> None:
        """Take a step of AdamW with the gradient of the batch; a run that is not finite stops."""
        batch = self.run.batch(self.step, self.form)
        total = torch.zeros((), device=self.trainee.device)
        for rows in self._micro_batches(batch):
            loss = self.trainee.run(lambda rows=rows: self._loss(rows))  # type: ignore[misc]
            (loss * self.ranks.count).backward()  # type: ignore[no-untyped-call] # FSDP takes the mean over ranks
            total += loss.detach()
        loss_value = float(self.ranks.summed(total))
        gradients = [weight.grad for weight in self._weights.values() if weight.grad is not None]
        norm = float(_whole_norm(torch.nn.utils.get_total_norm(gradients)))
        self.step += 1
        self.is_finite = bool(np.isfinite(loss_value) and np.isfinite(norm))
        if self.is_finite:
            self._adam.step()
            self._losses.append(loss_value)
        self._adam.zero_grad(set_to_none=True)

    def _micro_batches(self, batch: Sequence[Example]) -> list[list[Row]]:
        """Return this rank's rows in as many passes as every other rank has; a row beyond the batch weighs nothing."""
        own = -(-len(batch) // self.ranks.count)
        rows = [Row(example, 0, 1 / len(batch)) for example in batch]
        rows += [Row(batch[0], 0, 0.0)] * (own * self.ranks.count - len(batch))
        mine = rows[self.ranks.rank :: self.ranks.count]
        return [mine[start : start + self.micro_batch] for start in range(0, own, self.micro_batch)]

    def _loss(self, rows: Sequence[Row]) -> Tensor:
        with computing(self.trainee):
            each, _, _ = self._passes.losses(self._no_prompt(), rows)
        return (each * each.new_tensor([row.weight for row in rows])).sum()

    def _no_prompt(self) -> Tensor:
        return torch.zeros(1, 0, self.trainee.width, device=self.trainee.device)

    def scores(self, inputs: Sequence[Ids], label_ids: Sequence[Ids]) -> LabelScores:
        """Return the log-probabilities of labels for inputs, with the present weights; the same on every rank."""
        owners = [0] * len(inputs)

        def scored() -> LabelScores:
            return self.trainee.run(lambda: label_scores(self._passes, self._no_prompt(), owners, inputs, label_ids))

        with torch.no_grad():
            if self.ranks.count > 1:  # a rank that tried again alone would wait for the others for ever
                outcome = scored()
                self.trainee.let_go()
                return outcome
            return within_memory(scored, lambda: halved(self._passes, lambda _line: None))

    def evaluate(self) -> None:
        """Evaluate on the validation set; keep the weights if they are the best, but never those of the start."""
        examples = self.run.validation
        scores = self.scores([example.input_ids for example in examples], self.label_ids)
        labels = np.array([example.label for example in examples])
        point = Point(
            self.step,
            float(np.mean(self._losses)) if self._losses else None,
            float(-scores.log_probabilities[np.arange(len(labels)), labels].mean()),
            float((scores.predicted == labels).mean()),
            len(set(scores.predicted.tolist())),
        )
        if not np.isfinite(point.validation_loss):
            self.is_finite = False
            return
        self._points.append(point)
        self._losses = []
        if self.step > 0 and point.beats(self._best):
            self._best = point
            self._copy(self.best_weights, self._weights)

    def take_best(self) -> None:
        """Replace the present weights by the best ones."""
        self._copy(self._weights, self.best_weights)

    @staticmethod
    def _copy(to: dict[str, Any], source: dict[str, Any]) -> None:
        with torch.no_grad():
            for name, weight in to.items():
                weight.copy_(source[name])

    def result(self) -> Tuned:
        """Return the result without the weights."""
        first = self._points[0] if self._points else Point(0, None, float("nan"), 0.0, 0)
        return Tuned(torch.empty(0), self._best or first, tuple(self._points), self.step, self._status())

    def _status(self) -> Status:
        if not self.is_finite:
            return "nan"
        return "collapsed" if self._best is not None and self._best.labels == 1 else "ok"

    def tensors(self) -> dict[str, Tensor]:
        """Return the tensors that a later process needs to continue: present and best weights, and AdamW's means.

        Tensors that are written into what this returns, for example by a checkpoint, are those of the run.
        """
        tensors: dict[str, Tensor] = {}
        for name, weight in self._weights.items():
            state = self._adam.state[weight]
            if not state:
                state["step"] = self._steps_taken(weight)
                state |= {mean: torch.zeros_like(weight, requires_grad=False) for mean in _MEANS}
            tensors |= {f"{mean}.{name}": state[mean] for mean in _MEANS}
            tensors |= {f"now.{name}": weight.detach(), f"best.{name}": self.best_weights[name]}
        return tensors

    def state(self) -> dict[str, Any]:
        """Return the rest of the state as JSON."""
        return {
            "step": self.step,
            "points": [asdict(point) for point in self._points],
            "best": asdict(self._best) if self._best else None,
            "losses": self._losses,
            "is_finite": self.is_finite,
            "chunk_tokens": self._passes.chunk_tokens,
        }

    def resume(self, state: dict[str, Any]) -> None:
        """Restore a state that `state` returned; the checkpoint has filled `tensors` before."""
        self.step, self._losses, self.is_finite = state["step"], state["losses"], state["is_finite"]
        self._points = [Point(**point) for point in state["points"]]
        self._best = Point(**state["best"]) if state["best"] else None
        self._passes.chunk_tokens = state["chunk_tokens"]
        for weight in self._weights.values():
            self._adam.state[weight]["step"] = self._steps_taken(weight)

    def _steps_taken(self, weight: Tensor) -> Tensor:
        return torch.tensor(float(self.step), device=weight.device)  # where AdamW's kernel looks for it


def _whole_norm(norm: Tensor) -> Tensor:
    from torch.distributed.tensor import DTensor

    return norm.full_tensor() if isinstance(norm, DTensor) else norm
