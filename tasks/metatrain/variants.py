"""The training settings of each variant: SUPMER, its ablations, and the baselines that need training (ALGORITHM §7)."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from model.t5.precision import Precision
from tasks.methods import META_TRAINED, SUPMER
from tasks.params.learning_schema import MetatrainParams


@dataclass(frozen=True)
class Training:
    """Everything that decides a variant's result besides its data; plain values that can be stored as JSON.

    Attributes:
        formats: formats of the tasks that it learns from.
        plain: True for the plain loss of PPT instead of the bi-level objective.
        unified: True if every format is written as multiple choice.
        augmentation: curriculum, vanilla or none.
        partner: the tasks that may be mixed in.
        rank: rank of the regularizer's affine map; None without a regularizer.
        kinds: kinds of the tasks that it learns from; () for all kinds of its formats.
        varied_label_words: formats whose label words are drawn anew for each task.
        rewritten_formats: formats whose tasks are rewritten as they are read.
        plain_steps: number of first steps that descend the plain loss.
        clip_norm: largest norm of a gradient; None if gradients are not clipped.
        precision: of the backbone's products.
    """

    variant: str
    formats: tuple[str, ...]
    template: str
    prompt_tokens: int
    initialization: str
    tasks_per_batch: int
    steps: int
    validate_every: int
    patience: int | None
    max_length: int
    learning_rate: float
    schedule: str
    warmup_steps: int
    clip_norm: float | None
    plain: bool
    unified: bool
    order: int
    inner_rate: float
    inner_form: str
    augmentation: str
    alpha: float
    m: float
    partner: str
    similarity_at: str
    similarity_smoothing: float
    rank: int | None
    gate: str
    gate_weight: float
    regularizer_rate: float
    regularizer_warmup_steps: int | None
    kinds: tuple[str, ...]
    varied_label_words: tuple[str, ...]
    rewritten_formats: tuple[str, ...]
    inner_steps: int
    inner_batch: int
    outer_direction: str
    support_weight: float
    plain_steps: int
    precision: Precision

    def to_json(self) -> dict[str, Any]:
        """Return the values as a shard's payload holds them."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> "Training":
        """Return the training that a payload holds."""
        names = ("formats", "kinds", "varied_label_words", "rewritten_formats")
        lists = {name: tuple(values[name]) for name in names}
        return cls(**values | lists)


def trainings(params: MetatrainParams, examples_a_task: int, precision: Precision) -> list[Training]:
    """Return the trainings of `metatrain.variants`; a task has `examples_a_task` examples in both sets together."""
    wanted: list[dict[str, Any]] = []
    for variant in params.variants:
        learned = META_TRAINED[variant]
        settings = _supmer(params) | RECIPES[learned.recipe](params, examples_a_task) | learned.changes
        prompts = learned.prompt_formats(variant, params.formats)
        wanted += [settings | {"variant": name, "formats": formats} for name, formats in prompts.items()]
    return [
        Training(**settings | {"kinds": _of_formats(settings["kinds"], settings["formats"]), "precision": precision})
        for settings in wanted
    ]


def _of_formats(kinds: Sequence[str], formats: Sequence[str]) -> tuple[str, ...]:
    return tuple(kind for kind in kinds if kind.partition("-")[0] in formats)


def _supmer(params: MetatrainParams) -> dict[str, Any]:
    augmentation, regularizer = params.augmentation, params.regularizer
    return {
        "formats": tuple(params.formats),
        "template": params.template,
        "prompt_tokens": params.prompt_tokens,
        "initialization": params.initialization,
        "tasks_per_batch": params.tasks_per_batch,
        "steps": params.steps,
        "validate_every": params.validate_every,
        "patience": params.patience,
        "max_length": params.max_length,
        "learning_rate": params.outer_learning_rate,
        "schedule": params.scheduler,
        "warmup_steps": params.warmup_steps,
        "clip_norm": params.clip_norm,
        "plain": False,
        "unified": False,
        "order": params.order,
        "inner_rate": params.inner.learning_rate,
        "inner_form": params.inner.form,
        "augmentation": augmentation.mode,
        "alpha": augmentation.alpha,
        "m": augmentation.m,
        "partner": augmentation.partner,
        "similarity_at": augmentation.similarity_at,
        "similarity_smoothing": augmentation.similarity_smoothing,
        "rank": regularizer.rank if regularizer.enabled else None,
        "gate": regularizer.gate,
        "gate_weight": regularizer.weight,
        "regularizer_rate": regularizer.learning_rate,
        "regularizer_warmup_steps": regularizer.warmup_steps,
        "kinds": tuple(params.kinds),
        "varied_label_words": tuple(params.varied_label_words),
        "rewritten_formats": tuple(params.rewritten_formats),
        "inner_steps": params.inner.steps,
        "inner_batch": params.inner.batch_size or 0,
        "outer_direction": params.outer_direction,
        "support_weight": params.support_weight,
        "plain_steps": params.plain_steps,
    }


def _ppt(params: MetatrainParams, examples_a_task: int) -> dict[str, Any]:
    """Return the settings of PPT: the plain loss, and the values of `metatrain.ppt`."""
    ppt = params.ppt
    return {
        "plain": True,
        "rank": None,
        "augmentation": "none",
        "clip_norm": None,
        "learning_rate": ppt.learning_rate,
        "schedule": ppt.scheduler,
        "warmup_steps": ppt.warmup_steps,
        "tasks_per_batch": max(round(ppt.batch_size / examples_a_task), 1),
        "steps": ppt.steps,
        "validate_every": ppt.validate_every,
        "patience": None,
        "max_length": ppt.max_length,
        "varied_label_words": (),
        "rewritten_formats": (),
        "plain_steps": 0,
    }


def _metapt(params: MetatrainParams, _examples_a_task: int) -> dict[str, Any]:
    """Return the settings of MetaPT: MAML without regularizer and mixing, and the values of `metatrain.metapt`."""
    metapt = params.metapt
    return {
        "rank": None,
        "augmentation": "none",
        "inner_rate": metapt.inner_learning_rate,
        "learning_rate": metapt.outer_learning_rate,
        "patience": metapt.patience,
        "kinds": (),
        "inner_steps": 1,
        "inner_batch": 0,
        "outer_direction": "gradient",
        "support_weight": 0.0,
        "plain_steps": 0,
    }


Recipe = Callable[[MetatrainParams, int], dict[str, Any]]
RECIPES: dict[str, Recipe] = {SUPMER: lambda _params, _examples_a_task: {}, "ppt": _ppt, "metapt": _metapt}
"""Settings that differ from SUPMER's together; the table of methods says which method takes which."""
