"""What is trained under which name: SUPMER, its ablations, the baselines that need training (ALGORITHM §7)."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tasks.params.learning_schema import MetatrainParams, Variant

LABELED = "labeled"  # the format of tasks made from labeled sets


@dataclass(frozen=True)
class Training:
    """All that decides a variant's result besides its data; plain values, so that it travels as JSON.

    Attributes:
        formats: formats of the tasks it sees.
        plain: the plain loss of PPT instead of the bi-level objective.
        unified: every format written as multi choice.
        augmentation: curriculum, vanilla or none.
        partner: which tasks may be mixed in.
        rank: of the regularizer's affine map; None without a regularizer.
        kinds: kinds of the tasks it sees; () for all of its formats.
        varied_label_words: formats whose label words are drawn anew for each task.
        plain_steps: first steps that descend the plain loss.
        clip_norm: None: gradients are not clipped.
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
    inner_steps: int
    plain_steps: int
    precision: str

    def to_json(self) -> dict[str, Any]:
        """As a shard's payload holds it."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> "Training":
        """Back from a payload."""
        lists = {name: tuple(values[name]) for name in ("formats", "kinds", "varied_label_words")}
        return cls(**values | lists)


def trainings(params: MetatrainParams, examples_a_task: int) -> list[Training]:
    """All that `metatrain.variants` asks for; a task holds `examples_a_task`, support and query sets together."""
    wanted: list[dict[str, Any]] = []
    for variant in params.variants:
        chosen = _supmer(params) | _changes(params, variant, examples_a_task) | {"variant": variant}
        if variant == "ppt":  # one prompt for each format: ppt-sp, ppt-mc, ppt-ss
            wanted += [chosen | {"variant": f"ppt-{name}", "formats": (name,)} for name in params.formats]
        else:
            wanted.append(chosen)
    return [Training(**chosen | {"kinds": _of_formats(chosen["kinds"], chosen["formats"])}) for chosen in wanted]


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
        "inner_steps": params.inner.steps,
        "plain_steps": params.plain_steps,
        "precision": params.precision,
    }


def _changes(params: MetatrainParams, variant: Variant, examples_a_task: int) -> dict[str, Any]:
    """What sets a variant apart from SUPMER."""
    ppt, metapt = params.ppt, params.metapt
    plain = {
        "plain": True,
        "unified": variant == "unified-ppt",
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
        "plain_steps": 0,
    }
    maml = {
        "formats": (LABELED,),
        "rank": None,
        "augmentation": "none",
        "inner_rate": metapt.inner_learning_rate,
        "learning_rate": metapt.outer_learning_rate,
        "patience": metapt.patience,
        "kinds": (),
        "inner_steps": 1,
        "plain_steps": 0,
    }
    changes: dict[Variant, dict[str, Any]] = {
        "supmer": {},
        "only-sp": {"formats": ("sp",)},
        "only-mc": {"formats": ("mc",)},
        "only-ss": {"formats": ("ss",)},
        "without-ta": {"augmentation": "none"},
        "without-curriculum": {"augmentation": "vanilla"},
        "without-mgr": {"rank": None},
        "supmer-labeled": {"formats": (LABELED,)},
        "supmer-mixed": {"formats": (*params.formats, LABELED)},
        "ppt": plain,
        "unified-ppt": plain,
        "metapt": maml,
    }
    return changes[variant]
