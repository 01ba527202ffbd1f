"""The plan of tuning: every dataset by every method, and the test sets of each; a source domain has its targets."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from model.t5.precision import Precision
from model.text.datasets import SHORT, dataset_form
from tasks.methods import METHODS
from tasks.params.schema import Params


@dataclass(frozen=True)
class Tuning:
    """Everything that decides the runs of a dataset and a method besides data and start; plain values for JSON.

    Attributes:
        form: form of the templates, sentinel or instruction.
        max_length: longest input in tokens, without the prompt.
        precision: of the backbone's products.
        settings: further parameters of the method, by key.
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
    precision: Precision
    settings: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return the values as a shard's payload holds them."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> "Tuning":
        """Return the tuning that a payload holds."""
        return cls(**values | {"learning_rates": tuple(values["learning_rates"])})


@dataclass(frozen=True)
class Planned:
    """A dataset and a method, with the seeds of its runs (None: nothing is drawn) and the datasets it is tested on."""

    tuning: Tuning
    seeds: tuple[int | None, ...]
    tested_on: tuple[str, ...]

    @property
    def name(self) -> str:
        """The name in messages and files."""
        return f"{self.tuning.dataset}/{self.tuning.method}-{self.tuning.shots}"


def planned(params: Params, precision: Precision) -> list[Planned]:
    """Return everything that params.yaml asks for, in its order."""
    tune, domains = params.tune, params.tune.domains
    names = dict.fromkeys([*tune.datasets, *([domains.source] if domains.source else [])])
    plan = []
    for dataset in names:
        targets = domains.targets if dataset == domains.source else []
        for method in tune.methods:
            for shots in _shots(params, dataset, method):
                tuning = _tuning(params, dataset, method, shots, precision)
                seeds = tuple(tune.seeds) if METHODS[method].examples != "none" else (None,)
                tested_on = (dataset, *(targets if shots == tune.shots else ()))
                plan.append(Planned(tuning, seeds, tested_on))
    return plan


def _shots(params: Params, dataset: str, method: str) -> Iterator[int]:
    """Yield K, then the other numbers of the sweep, unless the method uses no examples."""
    tune = params.tune
    yield tune.shots
    if METHODS[method].examples != "none" and dataset in tune.datasets:
        yield from (shots for shots in tune.shot_sweep if shots != tune.shots)


def _tuning(params: Params, dataset: str, method: str, shots: int, precision: Precision) -> Tuning:
    tune, row = params.tune, METHODS[method]
    return Tuning(
        dataset=dataset,
        method=method,
        shots=shots,
        form=params.metatrain.template,
        prompt_tokens=params.metatrain.prompt_tokens,
        max_length=longest(params, dataset),
        learning_rates=tuple(params.at(row.learning_rates)),
        batch_size=tune.batch_size,
        epochs=tune.epochs,
        evaluate_every=tune.evaluate_every,
        precision=precision,
        settings={key: params.at(key) for key in row.settings},
    )


def longest(params: Params, dataset: str) -> int:
    """Return the longest input of a dataset in tokens: from params.yaml, or else from the registry."""
    form = dataset_form(dataset)
    usual = params.tune.max_length or (form.max_length if form else SHORT)
    return params.tune.max_lengths.get(dataset, usual)


def decides_test(tuning: Tuning) -> dict[str, Any]:
    """Return the values of a tuning that decide a test besides the tested prompt."""
    values = tuning.to_json()
    names = ["dataset", "method", "shots", "form", "precision"]
    if METHODS[tuning.method].examples == "demonstrations":  # demonstrations take the positions of a prompt
        names.append("prompt_tokens")
    return {name: values[name] for name in names}
