"""Few-shot prompt tuning (ALGORITHM §6): many runs pass through the frozen backbone together, each row with its prompt.

A run is an initial prompt, a learning rate and a seed with its examples. Runs share only the passes: each has its own
gradient, ψφ*, AdamW state and best checkpoint, so the result of a run does not depend on the other runs.
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

GROUP_BYTES = 1 << 29  # memory for the prompts of a group and everything that is kept for each of them
_BETAS = (0.9, 0.999)
_COPIES = 9  # of a prompt: itself, its gradient twice, Adam's two means, the best, the copies of a pass


@dataclass
class _Course:
    """The state of a run."""

    run: TuneRun
    parameter: torch.nn.Parameter
    best_prompt: Tensor
    best: Point | None = None
    points: list[Point] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)  # since the last evaluation
    step: int = 0
    is_finite: bool = True

    def given(self) -> Tensor:
        """Return the prompt or prefixes that the backbone gets."""
        return self.run.given(self.parameter)

    def status(self) -> Status:
        """Return `nan`, `collapsed` or `ok`; a run has collapsed if its best checkpoint always gives the same label."""
        if not self.is_finite:
            return "nan"
        return "collapsed" if self.best is not None and self.best.labels == 1 else "ok"


class Tuner:
    """Tunes runs of one dataset and one prompt shape, all at the same step.

    `label_ids` are the target ids of the labels. `say` is called with messages for the user.
    """

    def __init__(
        self,
        passes: Passes,
        runs: Sequence[TuneRun],
        label_ids: Sequence[Ids],
        form: TuneForm,
        say: Callable[[str], None] = lambda _line: None,
    ) -> None:
        self.passes, self.label_ids, self.form, self.say = passes, label_ids, form, say
        self.step = 0
        self._courses = [
            _Course(run, torch.nn.Parameter(run.prompt.detach().clone()), run.given(run.prompt).clone()) for run in runs
        ]
        for course in self._courses:
            course.is_finite = _can_step(course)
        groups = [{"params": [course.parameter], "lr": course.run.learning_rate} for course in self._courses]
        self._adam = torch.optim.AdamW(groups, betas=_BETAS, weight_decay=form.weight_decay, foreach=False)
        self.steps = max((run.steps(form) for run in runs), default=0)

    @property
    def ended(self) -> bool:
        """True if no run has a step left."""
        return not self._under_way()

    def tune(self, after_step: Callable[[], None] = lambda: None) -> None:
        """Evaluate the initial prompts, then step and evaluate until the end.

        `after_step` is called after each step, when the state is consistent.
        """
        if self.step == 0:
            self.evaluate()
        while not self.ended:
            self.advance()
            after_step()

    def advance(self) -> None:
        """Take one step of every active run, and evaluate every `evaluate_every` steps and at the end of a run."""
        moved = self.descend()
        due = self.step % self.form.evaluate_every == 0
        self.evaluate([course for course in moved if due or self.step == course.run.steps(self.form)])

    def _under_way(self) -> list[_Course]:
        return [course for course in self._courses if course.is_finite and self.step < course.run.steps(self.form)]

    def descend(self) -> list[_Course]:
        """Take a step of every active run, and return those that are still finite; a run that is not finite stops.

        Raw gradient → ψφ* with the gates of this batch's own H̄ → AdamW.
        """
        moving = self._under_way()
        prompts = torch.stack([course.given() for course in moving])
        rows = []
        for number, course in enumerate(moving):
            batch = course.run.batch(self.step, self.form)
            rows += [Row(example, number, 1 / len(batch)) for example in batch]
        result = within_memory(lambda: self.passes.run(prompts, rows), lambda: halved(self.passes, self.say))
        gradients = _regulated(result, [course.run.regularizer for course in moving])
        finite = torch.isfinite(gradients).flatten(1).all(1) & torch.isfinite(result.losses)
        for course, gradient, loss, is_finite in zip(
            moving, gradients, result.losses.tolist(), finite.tolist(), strict=True
        ):
            course.is_finite = is_finite
            if is_finite:
                course.parameter.grad = course.run.pulled_back(course.parameter, gradient)
                course.losses.append(loss)
        self._adam.step()
        self._adam.zero_grad(set_to_none=True)
        self.step += 1
        moved = [course for course in moving if course.is_finite]
        for course in moved:
            course.step = self.step
        return moved

    def losses(self) -> list[list[float]]:
        """Return the training losses of each run since its last evaluation."""
        return [course.losses for course in self._courses]

    def evaluate(self, courses: Sequence[_Course] | None = None) -> None:
        """Evaluate all runs, or some, on their validation sets; the best prompt is kept, but never the initial one."""
        courses = [course for course in self._courses if course.is_finite] if courses is None else courses
        if not courses:
            return
        prompts = torch.stack([course.given() for course in courses])
        owners = [number for number, course in enumerate(courses) for _ in course.run.validation]
        inputs = [example.input_ids for course in courses for example in course.run.validation]
        scores = within_memory(
            lambda: label_scores(self.passes, prompts, owners, inputs, self.label_ids),
            lambda: halved(self.passes, self.say),
        )
        end = 0
        for course in courses:
            start, end = end, end + len(course.run.validation)
            self._note(course, _point(course, scores, slice(start, end)))

    def _note(self, course: _Course, point: Point) -> None:
        if not np.isfinite(point.validation_loss):
            course.is_finite = False
            return
        course.points.append(point)
        course.losses = []
        if self.step > 0 and point.beats(course.best):
            course.best, course.best_prompt = point, course.given().clone()

    def results(self) -> list[Tuned]:
        """Return the results of the runs, in their order."""
        return [
            Tuned(
                course.best_prompt,
                course.best or (course.points[0] if course.points else Point(0, None, float("nan"), 0.0, 0)),
                tuple(course.points),
                course.step,
                course.status(),
            )
            for course in self._courses
        ]

    def state(self) -> tuple[Arrays, dict[str, Any]]:
        """Return everything that a later process needs to continue exactly: arrays, and the rest as JSON."""
        arrays: Arrays = {}
        for number, course in enumerate(self._courses):
            arrays |= {f"{number}.now": _array(course.parameter), f"{number}.best": _array(course.best_prompt)}
            adam = self._adam.state.get(course.parameter, {})
            arrays |= {f"{number}.adam.{part}": _array(value) for part, value in adam.items()}
        courses = [
            {
                "points": [asdict(point) for point in course.points],
                "best": asdict(course.best) if course.best else None,
                "losses": course.losses,
                "step": course.step,
                "is_finite": course.is_finite,
            }
            for course in self._courses
        ]
        return arrays, {"step": self.step, "courses": courses, "chunk_tokens": self.passes.chunk_tokens}

    def resume(self, arrays: Arrays, rest: dict[str, Any]) -> None:
        """Restore a state that `state` returned."""
        self.step, self.passes.chunk_tokens = rest["step"], rest["chunk_tokens"]
        for number, (course, saved) in enumerate(zip(self._courses, rest["courses"], strict=True)):
            course.points = [Point(**point) for point in saved["points"]]
            course.best = Point(**saved["best"]) if saved["best"] else None
            course.losses, course.step, course.is_finite = saved["losses"], saved["step"], saved["is_finite"]
            with torch.no_grad():
                course.parameter.copy_(torch.from_numpy(arrays[f"{number}.now"]))
                course.best_prompt.copy_(torch.from_numpy(arrays[f"{number}.best"]))
            prefix = f"{number}.adam."
            parts = {name.removeprefix(prefix): value for name, value in arrays.items() if name.startswith(prefix)}
            if parts:
                self._adam.state[course.parameter] = {
                    part: torch.from_numpy(value.copy()).to("cpu" if part == "step" else course.parameter.device)
                    for part, value in parts.items()
                }


def tune(
    passes: Passes,
    runs: Sequence[TuneRun],
    label_ids: Sequence[Ids],
    form: TuneForm | None = None,
    group_bytes: int = GROUP_BYTES,
) -> list[Tuned]:
    """Tune all runs of a dataset, as many together as `group_bytes` allows; return the results in their order."""
    results: list[Tuned] = []
    for group in grouped(runs, group_bytes):
        tuner = Tuner(passes, group, label_ids, form or TuneForm())
        tuner.tune()
        results += tuner.results()
    return results


def grouped(runs: Sequence[TuneRun], group_bytes: int = GROUP_BYTES) -> list[Sequence[TuneRun]]:
    """Return runs in groups that fit into `group_bytes` with all that is kept for each prompt; passes use chunks."""
    if not runs:
        return []
    each = _COPIES * max(run.prompt.numel() * run.prompt.element_size() for run in runs)
    most = max(group_bytes // each, 1)
    count = -(-len(runs) // most)
    size = -(-len(runs) // count)  # groups of similar size, so that no group is left with a single run
    return [runs[start : start + size] for start in range(0, len(runs), size)]


def _can_step(course: _Course) -> bool:
    """Return True if AdamW's first step, rate / (1 − β1), fits the type of the prompt; torch refuses a larger one."""
    return course.run.learning_rate / (1 - _BETAS[0]) <= torch.finfo(course.parameter.dtype).max


def _regulated(result: Pass, regularizers: Sequence[Regularizer | None]) -> Tensor:
    """Return ψφ* of each run's gradient, [K, P, d]; runs with the same φ* are computed together."""
    gradients = result.gradients.clone()
    with torch.no_grad():
        for regularizer in {id(other): other for other in regularizers if other is not None}.values():
            own = [number for number, other in enumerate(regularizers) if other is regularizer]
            gradients[own] = regularizer(result.gradients[own], regularizer.gates(result.hidden_mean[own]))
    return gradients


def _point(course: _Course, scores: LabelScores, own: slice) -> Point:
    labels = np.array([example.label for example in course.run.validation])
    log_probabilities, predicted = scores.log_probabilities[own], scores.predicted[own]
    return Point(
        course.step,
        float(np.mean(course.losses)) if course.losses else None,
        float(-log_probabilities[np.arange(len(labels)), labels].mean()),
        float((predicted == labels).mean()),
        len(set(predicted.tolist())),
    )


def _array(tensor: Tensor) -> NDArray[Any]:
    array: NDArray[Any] = tensor.detach().cpu().numpy().copy()
    return array
