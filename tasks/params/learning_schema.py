"""The knobs of learning and measuring: meta-training, tuning, the report. Defaults are the paper's (appendix B)."""

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from tasks.params.schema_base import Count, Distinct, Impossible, Name, Rate, Section, defaults, impossible

Format = Literal["sp", "mc", "ss"]
Kind = Literal["sp-next", "sp-cluster", "mc-next", "mc-cluster", "ss"]
Variant = Literal[
    "supmer", "only-sp", "only-mc", "only-ss", "without-ta", "without-curriculum", "without-mgr",
    "supmer-labeled", "supmer-mixed", "ppt", "unified-ppt", "metapt",
]  # fmt: skip
Method = Literal[
    "supmer", "only-sp", "only-mc", "only-ss", "without-ta", "without-curriculum", "without-mgr",
    "supmer-labeled", "supmer-mixed", "ppt", "unified-ppt", "metapt",
    "pt", "pt-vocabulary", "prefix-tuning", "p-tuning-v2", "ft", "zero-shot", "few-shot",
]  # fmt: skip
LABELED_VARIANTS = ("supmer-labeled", "supmer-mixed", "metapt")
NOT_BUILT = ("prefix-tuning", "p-tuning-v2", "ft")  # methods of the paper's tables that tune does not have


class InnerParams(Section):
    """The inner step θ' = θ − α1·ψφ(g) on the support set."""

    learning_rate: Rate = Field(0.1, description="α1, the size of the inner step")
    form: Literal["sgd", "rms"] = Field(
        "sgd", description="sgd: α1·ψ(g), the paper's; rms: α1·ψ(g)/rms(ψ(g)), the first step Adam would take"
    )
    steps: Count = Field(1, description="Inner steps; the derivative passes through the gradient of the last one")


class AugmentationParams(Section):
    """Mixing a task's query set with another task's, more as the gradients come to agree."""

    mode: Literal["curriculum", "vanilla", "none"] = Field(
        "curriculum", description="curriculum; vanilla: b = 1 (w/o curriculum); none: no mixing (w/o ta)"
    )
    alpha: Rate = Field(1.0, description="α of the mixing weight w ~ Beta(α, b·α)")
    m: float = Field(2.0, gt=1, description="Curve of the curriculum: b = (m^((1+s)/2) − 1)/(m − 1)")
    partner: Literal["same-format", "any-format"] = Field(
        "same-format", description="Which tasks a task may be mixed with"
    )
    similarity_at: Literal["theta", "theta_prime"] = Field(
        "theta",
        description="Where the query gradient of s is taken: theta (Algorithm 1) or theta_prime (released code)",
    )
    similarity_smoothing: float = Field(
        0.0, ge=0, lt=1, description="Weight of the former s in the running s (released code: 0.5)"
    )


class RegularizerParams(Section):
    """ψφ(g) = z·h(g) + (1−z)·g, the learned regularization of gradients."""

    enabled: bool = Field(True, description="false: ψ is the identity and φ is empty (w/o mgr)")
    learning_rate: Rate = Field(1e-4, description="Learning rate of φ")
    rank: int = Field(64, ge=1, le=4096, description="Rank of the affine map h; at most the backbone's width")
    gate: Literal["vector", "scalar"] = Field(
        "vector", description="z as one gate a dimension (paper) or one in all (released code)"
    )
    weight: float = Field(1.0, ge=0, description="λ, the weight of the gate loss (z − b)²")
    warmup_steps: int | None = Field(
        None, ge=0, description="Steps of linear warm-up of φ's rate; null: as metatrain.warmup_steps"
    )


class PptParams(Section):
    """Plain self-supervised training of a prompt: the PPT and Unified-PPT baselines."""

    learning_rate: Rate = Field(0.1, description="Peak learning rate")
    scheduler: Literal["inverse-square-root", "linear"] = Field(
        "inverse-square-root", description="Decay of the learning rate"
    )
    warmup_steps: int = Field(0, ge=0, description="Steps of linear warm-up")
    batch_size: Count = Field(256, description="Examples a step")
    steps: Count = Field(200_000, description="Most steps")
    validate_every: Count = Field(2_000, description="Steps between validations; the lowest loss is kept")
    max_length: Count = Field(512, description="Longest input in tokens, without the prompt")

    def problems(self) -> Iterator[Impossible]:
        """Steps that end before the first validation."""
        if self.validate_every > self.steps:
            text = f"is above metatrain.ppt.steps = {self.steps}: nothing would ever be validated"
            yield impossible("metatrain.ppt.validate_every", self.validate_every, text, "metatrain.ppt.steps")


class MetaptParams(Section):
    """MAML on labeled tasks without ψ and mixing: the MetaPT baseline."""

    inner_learning_rate: Rate = Field(0.08, description="Size of the inner step")
    outer_learning_rate: Rate = Field(0.025, description="Learning rate of θ")
    patience: Count = Field(6, description="Validations without gain before it stops")


class MetatrainParams(Section):
    """Learning (θ*, φ*) from the materialized tasks."""

    template: Literal["sentinel", "instruction"] = Field(
        "sentinel", description="Form of every template, here and in tune: sentinel for plain T5, instruction for tuned"
    )
    prompt_tokens: Count = Field(100, description="P, the rows of θ; all methods of tune that have a prompt use it")
    initialization: Literal["normal", "vocabulary"] = Field(
        "normal", description="Where θ starts: normal noise, or embeddings of random words of the vocabulary"
    )
    variants: Annotated[list[Variant], Distinct] = Field(
        ["supmer"], min_length=1, description="What is trained: supmer, its ablations, the trained baselines"
    )
    formats: Annotated[list[Format], Distinct] = Field(
        ["sp", "mc", "ss"], min_length=1, description="Anchor task formats that supmer sees"
    )
    kinds: Annotated[list[Kind], Distinct] = Field(
        [], description="Kinds of anchor tasks that are trained on, of the formats above; empty: all of them"
    )
    varied_label_words: Annotated[list[Format], Distinct] = Field(
        [], description="Formats whose label words are drawn anew for each task; empty: fixed words, the paper's"
    )
    tasks_per_batch: Count = Field(4, description="Tasks a meta step")
    order: int = Field(
        2, ge=1, le=2, description="2: the derivative passes through the inner gradient; 1: it stops there"
    )
    inner: InnerParams = defaults(InnerParams)
    optimizer: Literal["adam"] = Field("adam", description="Optimizer of θ and φ")
    outer_learning_rate: Rate = Field(0.1, description="Learning rate of θ")
    scheduler: Literal["linear"] = Field("linear", description="Decay of both learning rates")
    warmup_steps: int = Field(0, ge=0, description="Steps of linear warm-up")
    clip_norm: Rate = Field(1.0, description="Norm to which the gradients of θ and of φ are clipped")
    steps: Count = Field(100_000, description="Most meta steps")
    plain_steps: int = Field(0, ge=0, description="First steps that descend the plain loss, as PPT does")
    precision: Literal["auto", "float32", "bfloat16"] = Field(
        "auto", description="Of the backbone's products; auto: bfloat16 on GPUs that have it, float32 elsewhere"
    )
    validate_every: Count = Field(2_000, description="Meta steps between validations; the lowest loss is kept")
    patience: Count | None = Field(None, description="Validations without gain before it stops; null: never")
    max_length: Count = Field(512, description="Longest input in tokens, without the prompt")
    augmentation: AugmentationParams = defaults(AugmentationParams)
    regularizer: RegularizerParams = defaults(RegularizerParams)
    ppt: PptParams = defaults(PptParams)
    metapt: MetaptParams = defaults(MetaptParams)
    checkpoint_steps: Count = Field(500, description="Meta steps between checkpoints to resume from")
    checkpoint_seconds: Rate = Field(300.0, description="Seconds after which a checkpoint is due anyway")
    chunk_tokens: Count | None = Field(None, description="Tokens a forward pass; null: found by itself")
    gradient_checkpointing: bool = Field(False, description="Recompute activations to save memory (large backbones)")

    def problems(self) -> Iterator[Impossible]:
        """Steps that are too few, and ablations of what is not there."""
        counts = {"validate_every": self.validate_every, "warmup_steps": self.warmup_steps}
        counts |= {"plain_steps": self.plain_steps, "regularizer.warmup_steps": self.regularizer.warmup_steps or 0}
        for key, value in counts.items():
            if value > self.steps:
                text = f"is above metatrain.steps = {self.steps}"
                yield impossible(f"metatrain.{key}", value, text, "metatrain.steps")
        for kind in self.kinds:
            if kind.partition("-")[0] not in self.formats:
                text = f"names {kind}, but metatrain.formats leaves {kind.partition('-')[0]} out"
                yield impossible("metatrain.kinds", self.kinds, text, "metatrain.formats")
        if self.kinds and "supmer-mixed" in self.variants:
            text = "leaves out the labeled tasks of supmer-mixed"
            yield impossible("metatrain.kinds", self.kinds, text, "metatrain.variants")
        for only in sorted(self.formats_of_ablations() - set(self.formats)):
            text = f"names only-{only}, but metatrain.formats leaves {only} out"
            yield impossible("metatrain.variants", self.variants, text, "metatrain.formats")
        for variant, key, setting in self._switched_off():
            if variant in self.variants:
                text = f"names {variant}, but metatrain.{key} = {setting} takes that out of supmer itself"
                yield impossible("metatrain.variants", self.variants, text, f"metatrain.{key}")

    def _switched_off(self) -> Iterator[tuple[Variant, str, str]]:
        """The ablations that would equal supmer as it is set, and the key that makes them so."""
        mode = self.augmentation.mode
        if not self.regularizer.enabled:
            yield "without-mgr", "regularizer.enabled", "false"
        if mode == "none":
            yield "without-ta", "augmentation.mode", mode
        if mode != "curriculum":
            yield "without-curriculum", "augmentation.mode", mode

    def formats_of_ablations(self) -> set[Format]:
        """The formats that an `only-…` variant is asked for."""
        every: tuple[Format, ...] = ("sp", "mc", "ss")
        return {kind for kind in every if f"only-{kind}" in self.variants}


class DomainParams(Section):
    """Domain generalization: one prompt tuned on the source, tested on the source and every target."""

    source: Name | None = Field(None, description="Dataset the prompt is tuned on; null: no such experiment")
    targets: Annotated[list[Name], Distinct] = Field([], description="Datasets it is tested on beside the source")

    def problems(self) -> Iterator[Impossible]:
        """Targets without a source, or the source among them."""
        if self.targets and self.source is None:
            text = "needs a domain to tune on, but tune.domains.source = null"
            yield impossible("tune.domains.targets", self.targets, text, "tune.domains.source")
        if self.source in self.targets:
            text = f"names tune.domains.source = {self.source}, which is tested anyway"
            yield impossible("tune.domains.targets", self.targets, text, "tune.domains.source")


class FineTuningParams(Section):
    """Full-model tuning, the FT baseline."""

    learning_rates: Annotated[list[Rate], Distinct] = Field(
        [1e-5, 2e-5, 3e-5], min_length=1, description="Learning rates tried; the best on validation is kept"
    )
    zero_stage: int = Field(0, ge=0, le=3, description="DeepSpeed ZeRO stage; 0: without DeepSpeed")


class TuneParams(Section):
    """Few-shot tuning from each initialization, and domain generalization."""

    datasets: Annotated[list[Name], Distinct] = Field([], description="Few-shot datasets, by their name in acquire")
    domains: DomainParams = defaults(DomainParams)
    methods: Annotated[list[Method], Distinct] = Field(
        ["pt", "supmer"], min_length=1, description="Rows of the result table: initializations, baselines, inference"
    )
    shots: Count = Field(16, description="K, examples a label for training and again for validation")
    shot_sweep: Annotated[list[Count], Distinct] = Field([], description="Further K to measure; empty: none")
    seeds: Annotated[list[Annotated[int, Field(ge=0, lt=2**31)]], Distinct] = Field(
        [10, 20, 30, 40, 50], min_length=1, description="One draw of the examples and one run for each"
    )
    optimizer: Literal["adamw"] = Field("adamw", description="Optimizer of every method that is tuned")
    learning_rates: Annotated[list[Rate], Distinct] = Field(
        [0.1, 0.2, 0.3], min_length=1, description="Learning rates of prompts; the best on validation is kept"
    )
    batch_size: Count = Field(32, description="Examples a step")
    epochs: Count = Field(200, description="Passes over the few training examples")
    evaluate_every: Count = Field(10, description="Steps between evaluations; the best checkpoint is kept")
    max_length: Count | None = Field(
        None, description="Longest input in tokens, without the prompt; null: each dataset's own (docs/datasets.md)"
    )
    max_lengths: dict[Name, Count] = Field({}, description="Datasets whose longest input differs, in tokens")
    test_examples: Count | None = Field(None, description="Test examples a dataset, drawn by seed; null: all")
    fine_tuning: FineTuningParams = defaults(FineTuningParams)
    checkpoint_seconds: Rate = Field(60.0, description="Seconds between checkpoints to resume from")

    def problems(self) -> Iterator[Impossible]:
        """Methods that are not there."""
        for method in self.methods:
            if method in NOT_BUILT:
                yield impossible("tune.methods", self.methods, f"names {method}, which is not built yet: leave it out")


class ReportParams(Section):
    """What the report shows."""

    datasets: Annotated[list[Name], Distinct] = Field(
        [], description="Columns of the table, in order; empty: all of tune"
    )
    paper_figures: Literal["t5-base", "flan-t5-xl"] | None = Field(
        None, description="Backbone whose figures of the paper stand beside ours; null: none"
    )
    task_samples: Count = Field(3, description="Anchor tasks shown for each kind")
    cluster_samples: Count = Field(12, description="Clusters shown with their nearest sentences")
