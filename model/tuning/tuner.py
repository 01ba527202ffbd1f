"""Few-shot prompt tuning (ALGORITHM §6): many runs go through the frozen backbone together, a prompt for each row.

A run is a start, a learning rate and a seed with its examples. Runs share passes and nothing else: each has its own
gradient, its own ψφ*, its own AdamW state and its own best checkpoint, so that the result of a run does not depend on
the runs beside it.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from model.prompt.memory import halved, within_memory
from model.prompt.passes import Pass, Passes
from model.prompt.prediction import LabelScores, label_scores
from model.prompt.rows import Row
from model.text.tokenized_tasks import Ids
from model.tuning.runs import Point, Regularizer, Status, Tuned, TuneForm, TuneRun

Arrays = dict[str, NDArray[Any]]

GROUP_BYTES = 1 << 29  # what the prompts of a group and all that is kept for each may take
_BETAS = (0.9, 0.999)
_COPIES = 9  # of a prompt: itself, its gradient twice, Adam's two means, the best, what a pass makes of it


@dataclass
class _Course:
    """A run under way."""

    run: TuneRun
    parameter: torch.nn.Parameter
    best_prompt: Tensor
    best: Point | None = None
    points: list[Point] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)  # since the last evaluation
    step: int = 0
    is_finite: bool = True

    def status(self) -> Status:
        """`collapsed`: its best checkpoint, and so every one, is no better than a constant answer, which it gives."""
        if not self.is_finite:
            return "nan"
        return "collapsed" if self.best is not None and self.best.labels == 1 else "ok"


class Tuner:
    """Runs of one dataset and one prompt shape, all at the same step; `label_ids` are the targets of its labels."""

    def __init__(
        self,
        passes: Passes,
        runs: Sequence[TuneRun],
        label_ids: Sequence[Ids],
        form: TuneForm,
        told: Callable[[str], None] = lambda _line: None,
    ) -> None:
        self.passes, self.label_ids, self.form, self.told = passes, label_ids, form, told
        self.step = 0
        self._courses = [
            _Course(run, torch.nn.Parameter(run.prompt.detach().clone()), run.prompt.detach().clone()) for run in runs
        ]
        for one in self._courses:
            one.is_finite = _can_step(one)
        groups = [{"params": [one.parameter], "lr": one.run.learning_rate} for one in self._courses]
        self._adam = torch.optim.AdamW(groups, betas=_BETAS, weight_decay=form.weight_decay, foreach=False)
        self.steps = max((run.steps(form) for run in runs), default=0)

    @property
    def ended(self) -> bool:
        """Whether no run has a step left."""
        return not self._under_way()

    def tune(self, after_step: Callable[[], None] = lambda: None) -> None:
        """Evaluate the starts, then step and evaluate until the end; `after_step` is called where all is consistent."""
        if self.step == 0:
            self.evaluate()
        while not self.ended:
            self.advance()
            after_step()

    def advance(self) -> None:
        """One step of every run under way, and the evaluation where one is due."""
        moved = self.descend()
        due = self.step % self.form.evaluate_every == 0
        self.evaluate([one for one in moved if due or self.step == one.run.steps(self.form)])

    def _under_way(self) -> list[_Course]:
        return [one for one in self._courses if one.is_finite and self.step < one.run.steps(self.form)]

    def descend(self) -> list[_Course]:
        """Raw gradient → ψφ* with the gates of this batch's own H̄ → AdamW; a run that is not finite stops here."""
        moving = self._under_way()
        prompts = torch.stack([one.parameter.detach() for one in moving])
        rows = []
        for number, one in enumerate(moving):
            batch = one.run.batch(self.step, self.form)
            rows += [Row(example, number, 1 / len(batch)) for example in batch]
        found = within_memory(lambda: self.passes.run(prompts, rows), lambda: halved(self.passes, self.told))
        gradients = _regulated(found, [one.run.regularizer for one in moving])
        finite = torch.isfinite(gradients).flatten(1).all(1) & torch.isfinite(found.losses)
        for one, gradient, loss, is_finite in zip(
            moving, gradients, found.losses.tolist(), finite.tolist(), strict=True
        ):
            one.is_finite = is_finite
            if is_finite:
                one.parameter.grad = gradient
                one.losses.append(loss)
        self._adam.step()
        self._adam.zero_grad(set_to_none=True)
        self.step += 1
        moved = [one for one in moving if one.is_finite]
        for one in moved:
            one.step = self.step
        return moved

    def losses(self) -> list[list[float]]:
        """The training losses of each run since its last evaluation."""
        return [one.losses for one in self._courses]

    def evaluate(self, courses: Sequence[_Course] | None = None) -> None:
        """Validation score and loss, of all runs or some; the best checkpoint is kept, the start never is one."""
        courses = [one for one in self._courses if one.is_finite] if courses is None else courses
        if not courses:
            return
        prompts = torch.stack([one.parameter.detach() for one in courses])
        owners = [number for number, one in enumerate(courses) for _ in one.run.validation]
        inputs = [example.input_ids for one in courses for example in one.run.validation]
        scores = within_memory(
            lambda: label_scores(self.passes, prompts, owners, inputs, self.label_ids),
            lambda: halved(self.passes, self.told),
        )
        end = 0
        for one in courses:
            start, end = end, end + len(one.run.validation)
            self._note(one, _point(one, scores, slice(start, end)))

    def _note(self, one: _Course, point: Point) -> None:
        if not np.isfinite(point.validation_loss):
            one.is_finite = False
            return
        one.points.append(point)
        one.losses = []
        if self.step > 0 and point.beats(one.best):
            one.best, one.best_prompt = point, one.parameter.detach().clone()

    def results(self) -> list[Tuned]:
        """What came of the runs, in their order."""
        return [
            Tuned(
                one.best_prompt,
                one.best or (one.points[0] if one.points else Point(0, None, float("nan"), 0.0, 0)),
                tuple(one.points),
                one.step,
                one.status(),
            )
            for one in self._courses
        ]

    def state(self) -> tuple[Arrays, dict[str, Any]]:
        """All that a later process needs to go on as if nothing had happened: arrays, and the rest as JSON."""
        arrays: Arrays = {}
        for number, one in enumerate(self._courses):
            arrays |= {f"{number}.now": _array(one.parameter), f"{number}.best": _array(one.best_prompt)}
            adam = self._adam.state.get(one.parameter, {})
            arrays |= {f"{number}.adam.{part}": _array(value) for part, value in adam.items()}
        courses = [
            {
                "points": [asdict(point) for point in one.points],
                "best": asdict(one.best) if one.best else None,
                "losses": one.losses,
                "step": one.step,
                "is_finite": one.is_finite,
            }
            for one in self._courses
        ]
        return arrays, {"step": self.step, "courses": courses, "chunk_tokens": self.passes.chunk_tokens}

    def resume(self, arrays: Arrays, rest: dict[str, Any]) -> None:
        """Go back to a state."""
        self.step, self.passes.chunk_tokens = rest["step"], rest["chunk_tokens"]
        for number, (one, held) in enumerate(zip(self._courses, rest["courses"], strict=True)):
            one.points = [Point(**point) for point in held["points"]]
            one.best = Point(**held["best"]) if held["best"] else None
            one.losses, one.step, one.is_finite = held["losses"], held["step"], held["is_finite"]
            with torch.no_grad():
                one.parameter.copy_(torch.from_numpy(arrays[f"{number}.now"]))
                one.best_prompt.copy_(torch.from_numpy(arrays[f"{number}.best"]))
            prefix = f"{number}.adam."
            parts = {name.removeprefix(prefix): value for name, value in arrays.items() if name.startswith(prefix)}
            if parts:
                self._adam.state[one.parameter] = {
                    part: torch.from_numpy(value.copy()).to("cpu" if part == "step" else one.parameter.device)
                    for part, value in parts.items()
                }


def tune(
    passes: Passes,
    runs: Sequence[TuneRun],
    label_ids: Sequence[Ids],
    form: TuneForm | None = None,
    group_bytes: int = GROUP_BYTES,
) -> list[Tuned]:
    """Tune all runs of a dataset, as many together as `group_bytes` allow; results in the order of the runs."""
    found: list[Tuned] = []
    for group in grouped(runs, group_bytes):
        tuner = Tuner(passes, group, label_ids, form or TuneForm())
        tuner.tune()
        found += tuner.results()
    return found


def grouped(runs: Sequence[TuneRun], group_bytes: int = GROUP_BYTES) -> list[Sequence[TuneRun]]:
    """Runs in groups whose prompts, and what is kept for each, fit into `group_bytes`; passes are chunked anyway."""
    if not runs:
        return []
    each = _COPIES * max(run.prompt.numel() * run.prompt.element_size() for run in runs)
    most = max(group_bytes // each, 1)
    count = -(-len(runs) // most)
    size = -(-len(runs) // count)  # groups of like size: none is left with a single run
    return [runs[start : start + size] for start in range(0, len(runs), size)]


def _can_step(one: _Course) -> bool:
    """Whether AdamW's first step, the rate over 1 − β1, is a number of the prompt's type; torch refuses one beyond."""
    return one.run.learning_rate / (1 - _BETAS[0]) <= torch.finfo(one.parameter.dtype).max


def _regulated(found: Pass, regularizers: Sequence[Regularizer | None]) -> Tensor:
    """ψφ* of each run's gradient, [K, P, d]; runs with the same φ* go through it together."""
    gradients = found.gradients.clone()
    with torch.no_grad():
        for regularizer in {id(one): one for one in regularizers if one is not None}.values():
            own = [number for number, one in enumerate(regularizers) if one is regularizer]
            gradients[own] = regularizer(found.gradients[own], regularizer.gates(found.hidden_mean[own]))
    return gradients


def _point(one: _Course, scores: LabelScores, own: slice) -> Point:
    labels = np.array([example.label for example in one.run.validation])
    likely, predicted = scores.log_probabilities[own], scores.predicted[own]
    return Point(
        one.step,
        float(np.mean(one.losses)) if one.losses else None,
        float(-likely[np.arange(len(labels)), labels].mean()),
        float((predicted == labels).mean()),
        len(set(predicted.tolist())),
    )


def _array(tensor: Tensor) -> NDArray[Any]:
    array: NDArray[Any] = tensor.detach().cpu().numpy().copy()
    return array
