"""What is tuned and what it is tested on: every dataset by every method, the source domain on its targets as well."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from model.text.datasets import SHORT, dataset_form
from tasks.methods import FEW_SHOT, ZERO_SHOT
from tasks.params.schema import Params


@dataclass(frozen=True)
class Tuning:
    """What decides the runs of a dataset and a method besides data and start; plain values, so that it travels as JSON.

    Attributes:
        form: of the templates, sentinel or instruction.
        max_length: longest input in tokens, without the prompt.
    """

    dataset: str
    method: str
    shots: int
    form: str
    prompt_tokens: int
    max_length: int
    learning_rates: tuple[float, ...]
    batch_size: int
    epochs: int
    evaluate_every: int

    def to_json(self) -> dict[str, Any]:
        """As a shard's payload holds it."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> "Tuning":
        """Back from a payload."""
        return cls(**values | {"learning_rates": tuple(values["learning_rates"])})


@dataclass(frozen=True)
class Planned:
    """A dataset and a method: the seeds of its runs (None: no draw at all), and what each is tested on."""

    tuning: Tuning
    seeds: tuple[int | None, ...]
    tested_on: tuple[str, ...]

    @property
    def name(self) -> str:
        """For people and files."""
        return f"{self.tuning.dataset}/{self.tuning.method}-{self.tuning.shots}"


def planned(params: Params) -> list[Planned]:
    """All that params.yaml asks for, in its order."""
    tune, domains = params.tune, params.tune.domains
    names = dict.fromkeys([*tune.datasets, *([domains.source] if domains.source else [])])
    found = []
    for dataset in names:
        targets = domains.targets if dataset == domains.source else []
        for method in tune.methods:
            for shots in _shots(params, dataset, method):
                tuning = _tuning(params, dataset, method, shots)
                seeds = (None,) if method == ZERO_SHOT else tuple(tune.seeds)
                tested_on = (dataset, *(targets if shots == tune.shots else ()))
                found.append(Planned(tuning, seeds, tested_on))
    return found


def _shots(params: Params, dataset: str, method: str) -> Iterator[int]:
    """K, then the others of the sweep; nothing of zero-shot inference depends on it."""
    tune = params.tune
    yield tune.shots
    if method != ZERO_SHOT and dataset in tune.datasets:
        yield from (shots for shots in tune.shot_sweep if shots != tune.shots)


def _tuning(params: Params, dataset: str, method: str, shots: int) -> Tuning:
    tune = params.tune
    return Tuning(
        dataset=dataset,
        method=method,
        shots=shots,
        form=params.metatrain.template,
        prompt_tokens=params.metatrain.prompt_tokens,
        max_length=longest(params, dataset),
        learning_rates=tuple(tune.learning_rates),
        batch_size=tune.batch_size,
        epochs=tune.epochs,
        evaluate_every=tune.evaluate_every,
    )


def longest(params: Params, dataset: str) -> int:
    """The longest input of a dataset in tokens: as params.yaml says, or else as the registry does."""
    form = dataset_form(dataset)
    usual = params.tune.max_length or (form.max_length if form else SHORT)
    return params.tune.max_lengths.get(dataset, usual)


def decides_test(tuning: Tuning) -> dict[str, Any]:
    """What of a tuning decides a test besides the prompt that is tested."""
    values = tuning.to_json()
    names = ["dataset", "method", "shots", "form"] + (["prompt_tokens"] if tuning.method == FEW_SHOT else [])
    return {name: values[name] for name in names}
