"""The parameters of meta-training, tuning and the report. Defaults are the paper's (appendix B)."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from model.t5.precision import WantedPrecision
from model.text.templates import Form
from storage.task_formats import ANCHOR_KINDS, FORMATS
from tasks.methods import META_TRAINED, METHODS
from tasks.params.schema_base import Count, Distinct, Impossible, Name, ParamGroup, Rate, defaults, impossible, shown

SEEDS = 2**31  # tuning seeds are below this
PLACES = ("encoder", "decoder", "cross")  # as in model.t5.prefix_attention, which needs torch
if TYPE_CHECKING:
    Format = str
    Kind = str
    Method = str
    Place = str
    Variant = str
else:  # choices defined by tables elsewhere, which a type checker cannot see
    Format, Kind = Literal[FORMATS], Literal[tuple(ANCHOR_KINDS)]
    Place = Literal[PLACES]
    Method, Variant = Literal[tuple(METHODS)], Literal[tuple(META_TRAINED)]


class InnerParams(ParamGroup):
    """The inner step θ' = θ − α1·ψφ(g) on the support set."""

    learning_rate: Rate = Field(0.1, description="α1, the size of the inner step")
    form: Literal["sgd", "rms", "adam"] = Field(
        "sgd", description="sgd: α1·ψ(g), the paper's; rms: α1·ψ(g)/rms(ψ(g)); adam: Adam's steps, as in tuning"
    )
    steps: Count = Field(1, description="Inner steps; the derivative passes through the gradient of the last one")
    batch_size: Count | None = Field(None, description="Support examples of an inner step, in turn; null: all")


class AugmentationParams(ParamGroup):
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


class RegularizerParams(ParamGroup):
    """ψφ(g) = z·h(g) + (1−z)·g, the learned regularization of gradients."""

    enabled: bool = Field(True, description="false: ψ is the identity and φ is empty (w/o mgr)")
    learning_rate: Rate = Field(1e-4, description="Learning rate of φ")
    rank: int = Field(64, ge=1, le=4096, description="Rank of the affine map h; at most the backbone's width")
    gate: Literal["vector", "scalar"] = Field(
        "vector", description="z as one gate per dimension (paper) or one gate (released code)"
    )
    weight: float = Field(1.0, ge=0, description="λ, the weight of the gate loss (z − b)²")
    warmup_steps: int | None = Field(
        None, ge=0, description="Steps of linear warm-up of φ's rate; null: as metatrain.warmup_steps"
    )


class PptParams(ParamGroup):
    """Plain self-supervised training of a prompt: the PPT and Unified-PPT baselines."""

    learning_rate: Rate = Field(0.1, description="Peak learning rate")
    scheduler: Literal["inverse-square-root", "linear"] = Field(
        "inverse-square-root", description="Decay of the learning rate"
    )
    warmup_steps: int = Field(0, ge=0, description="Steps of linear warm-up")
    batch_size: Count = Field(256, description="Examples per step")
    steps: Count = Field(200_000, description="Most steps")
    validate_every: Count = Field(2_000, description="Steps between validations; the lowest loss is kept")
    max_length: Count = Field(512, description="Longest input in tokens, without the prompt")

    def problems(self) -> Iterator[Impossible]:
        """Yield numbers of steps that end before the first validation."""
        if self.validate_every > self.steps:
            text = f"is above metatrain.ppt.steps = {self.steps}: nothing would ever be validated"
            yield impossible("metatrain.ppt.validate_every", self.validate_every, text, "metatrain.ppt.steps")


class MetaptParams(ParamGroup):
    """MAML on labeled tasks without ψ and mixing: the MetaPT baseline."""

    inner_learning_rate: Rate = Field(0.08, description="Size of the inner step")
    outer_learning_rate: Rate = Field(0.025, description="Learning rate of θ")
    patience: Count = Field(6, description="Validations without gain before it stops")


class MetatrainParams(ParamGroup):
    """Learning (θ*, φ*) from the materialized tasks."""

    template: Form = Field(
        "sentinel", description="Form of every template, here and in tune: sentinel for plain T5, instruction for tuned"
    )
    prompt_tokens: Count = Field(100, description="P, the rows of θ; all methods of tune that have a prompt use it")
    initialization: Literal["normal", "vocabulary"] = Field(
        "normal", description="Where θ starts: normal noise, or embeddings of random words of the vocabulary"
    )
    variants: Annotated[list[Variant], Distinct] = Field(
        ["supmer"], min_length=1, description="Prompts to train: supmer, its ablations, the trained baselines"
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
    rewritten_formats: Annotated[list[Literal["sp", "ss"]], Distinct] = Field(
        [],
        description="Formats rewritten as they are read: sp, a sentence and an edited copy; ss, clusters named by "
        "words of their own; empty: the paper's",
    )
    tasks_per_batch: Count = Field(4, description="Tasks per meta step")
    order: int = Field(
        2, ge=1, le=2, description="2: the derivative passes through the inner gradient; 1: it stops there"
    )
    inner: InnerParams = defaults(InnerParams)
    outer_direction: Literal["gradient", "displacement"] = Field(
        "gradient",
        description="Where θ goes: gradient of the query loss, the paper's; displacement: Σ θ − θ' (Reptile)",
    )
    support_weight: float = Field(
        0.0, ge=0, description="Weight of the support loss before the inner steps in the outer loss; 0: the paper's"
    )
    outer_learning_rate: Rate = Field(0.1, description="Learning rate of θ")
    scheduler: Literal["linear"] = Field("linear", description="Decay of both learning rates")
    warmup_steps: int = Field(0, ge=0, description="Steps of linear warm-up")
    clip_norm: Rate = Field(1.0, description="Norm to which the gradients of θ and of φ are clipped")
    steps: Count = Field(100_000, description="Most meta steps")
    plain_steps: int = Field(0, ge=0, description="First steps that descend the plain loss, as PPT does")
    precision: WantedPrecision | None = Field(
        None, description="Of the backbone's products in meta-training; null: as the top-level precision"
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
    chunk_tokens: Count | None = Field(None, description="Tokens per forward pass; null: chosen automatically")
    gradient_checkpointing: bool = Field(False, description="Recompute activations to save memory (large backbones)")

    def problems(self) -> Iterator[Impossible]:
        """Yield values above `steps`, kinds whose format is left out, and variants that cannot be trained."""
        counts = {"validate_every": self.validate_every, "warmup_steps": self.warmup_steps}
        counts |= {"plain_steps": self.plain_steps, "regularizer.warmup_steps": self.regularizer.warmup_steps or 0}
        for key, value in counts.items():
            if value > self.steps:
                text = f"is above metatrain.steps = {self.steps}"
                yield impossible(f"metatrain.{key}", value, text, "metatrain.steps")
        if self.outer_direction == "displacement" and self.order == 2:
            text = "takes no derivative through the inner step: set metatrain.order to 1"
            yield impossible("metatrain.outer_direction", self.outer_direction, text, "metatrain.order")
        if self.outer_direction == "displacement" and self.support_weight:
            text = "weighs a gradient, which does not add to a displacement: set metatrain.outer_direction to gradient"
            yield impossible("metatrain.support_weight", self.support_weight, text, "metatrain.outer_direction")
        for kind in self.kinds:
            if kind.partition("-")[0] not in self.formats:
                text = f"names {kind}, but metatrain.formats leaves {kind.partition('-')[0]} out"
                yield impossible("metatrain.kinds", self.kinds, text, "metatrain.formats")
        for variant in self.variants:
            yield from self._variant_problems(variant)

    def _variant_problems(self, variant: str) -> Iterator[Impossible]:
        """Yield the reasons why a variant cannot be trained, or would not differ from supmer."""
        learned = META_TRAINED[variant]
        if self.kinds and learned.labeled and learned.unlabeled:
            text = f"leaves out the labeled tasks of {variant}"
            yield impossible("metatrain.kinds", self.kinds, text, "metatrain.variants")
        for name in learned.formats or ():
            if name not in self.formats:
                text = f"names {variant}, but metatrain.formats leaves {name} out"
                yield impossible("metatrain.variants", self.variants, text, "metatrain.formats")
        if learned.takes_out:
            key, values = learned.takes_out
            group, name = key.split(".")
            value = getattr(getattr(self, group), name)
            if value in values:
                setting = f"metatrain.{key} = {shown(value)}".replace('"', "")
                text = f"names {variant}, but {setting} takes that out of supmer itself"
                yield impossible("metatrain.variants", self.variants, text, f"metatrain.{key}")


class DomainParams(ParamGroup):
    """Domain generalization: one prompt tuned on the source, tested on the source and every target."""

    source: Name | None = Field(None, description="Dataset the prompt is tuned on; null: no such experiment")
    targets: Annotated[list[Name], Distinct] = Field([], description="Datasets it is tested on beside the source")

    def problems(self) -> Iterator[Impossible]:
        """Yield targets without a source, and a source that is among the targets."""
        if self.targets and self.source is None:
            text = "needs a domain to tune on, but tune.domains.source = null"
            yield impossible("tune.domains.targets", self.targets, text, "tune.domains.source")
        if self.source in self.targets:
            text = f"names tune.domains.source = {self.source}, which is tested anyway"
            yield impossible("tune.domains.targets", self.targets, text, "tune.domains.source")


class PrefixParams(ParamGroup):
    """Keys and values before those of every attention layer."""

    length: Count = Field(100, description="P, the prefix positions")
    places: Annotated[list[Place], Distinct] = Field(
        list(PLACES),
        min_length=1,
        description="Attention with prefixes: of the encoder, of the decoder, of the decoder to the encoder (cross)",
    )


class PrefixTuningParams(PrefixParams):
    """Prefix-Tuning: keys and values before those of every attention layer, learned through a small network."""

    hidden_size: Count = Field(512, description="Width of the network's embedding and hidden layer")
    learning_rates: Annotated[list[Rate], Distinct] = Field(
        [1e-4, 3e-4, 1e-3], min_length=1, description="Learning rates; the best on validation is kept"
    )


class PTuningV2Params(PrefixParams):
    """P-Tuning v2: keys and values before those of every attention layer, learned directly."""

    learning_rates: Annotated[list[Rate], Distinct] = Field(
        [5e-3, 1e-2, 3e-2], min_length=1, description="Learning rates; the best on validation is kept"
    )


class FineTuningParams(ParamGroup):
    """Fine-tuning of all weights (the method `ft`)."""

    learning_rates: Annotated[list[Rate], Distinct] = Field(
        [1e-5, 2e-5, 3e-5], min_length=1, description="Learning rates; the best on validation is kept"
    )
    keep: bool = Field(
        False, description="Keep the weights of the best checkpoint of every seed, as transformers folders"
    )
    micro_batch: Count | None = Field(
        None, description="Examples in one pass on one device; gradients of a step are summed; null: all of a batch"
    )
    gradient_checkpointing: bool = Field(
        False, description="Compute the activations of a layer again in the backward pass, instead of keeping them"
    )
    reshard_after_forward: bool = Field(
        False, description="On several devices, shard weights between passes too (as ZeRO-3), not only what is trained"
    )


class LogisticRegressionParams(ParamGroup):
    """Logistic regression on TF–IDF (the method `tfidf`) or on sentence vectors (`embedding`), by scikit-learn."""

    strengths: Annotated[list[Rate], Distinct] = Field(
        [0.1, 1.0, 10.0, 100.0],
        min_length=1,
        description="C, the inverse of the penalty's weight; the best on validation is kept",
    )


class LoraParams(ParamGroup):
    """LoRA (the method `lora`): small matrices beside those of the attention layers, by the library PEFT."""

    rank: Count = Field(8, description="r, the inner size of the products")
    alpha: Count = Field(16, description="The products are multiplied by alpha / rank")
    learning_rates: Annotated[list[Rate], Distinct] = Field(
        [1e-4, 3e-4, 1e-3], min_length=1, description="Learning rates; the best on validation is kept"
    )
    micro_batch: Count | None = Field(
        None, description="Examples in one pass; gradients of a step are summed; null: all of a batch"
    )


class TuneParams(ParamGroup):
    """Few-shot tuning from each initialization, and domain generalization."""

    datasets: Annotated[list[Name], Distinct] = Field([], description="Few-shot datasets, by their name in acquire")
    domains: DomainParams = defaults(DomainParams)
    methods: Annotated[list[Method], Distinct] = Field(
        ["pt", "supmer"], min_length=1, description="Rows of the result table: initializations, baselines, inference"
    )
    shipped_prompt: Name | None = Field(
        None, description="Folder in prompts/ from which the method supmer-shipped starts; null: none"
    )
    shots: Count = Field(16, description="K, examples per label for training, and as many for validation")
    shot_sweep: Annotated[list[Count], Distinct] = Field([], description="Further K to measure; empty: none")
    seeds: Annotated[list[Annotated[int, Field(ge=0, lt=SEEDS)]], Distinct] = Field(
        [10, 20, 30, 40, 50], min_length=1, description="One draw of the examples and one run for each"
    )
    learning_rates: Annotated[list[Rate], Distinct] = Field(
        [0.1, 0.2, 0.3], min_length=1, description="Learning rates of prompts; the best on validation is kept"
    )
    logistic_regression: LogisticRegressionParams = defaults(LogisticRegressionParams)
    prefix_tuning: PrefixTuningParams = defaults(PrefixTuningParams)
    p_tuning_v2: PTuningV2Params = defaults(PTuningV2Params)
    fine_tuning: FineTuningParams = defaults(FineTuningParams)
    lora: LoraParams = defaults(LoraParams)
    batch_size: Count = Field(32, description="Examples per step")
    epochs: Count = Field(200, description="Passes over the few training examples")
    evaluate_every: Count = Field(10, description="Steps between evaluations; the best checkpoint is kept")
    max_length: Count | None = Field(
        None, description="Longest input in tokens, without the prompt; null: each dataset's own (docs/datasets.md)"
    )
    max_lengths: dict[Name, Count] = Field({}, description="Datasets whose longest input differs, in tokens")
    test_examples: Count | None = Field(None, description="Test examples per dataset, drawn by seed; null: all")
    checkpoint_seconds: Rate = Field(60.0, description="Seconds between checkpoints to resume from")
    precision: WantedPrecision | None = Field(
        None, description="Of the backbone's products in tuning and tests; null: as the top-level precision"
    )

    def problems(self) -> Iterator[Impossible]:
        """Yield the methods that are not built, and one whose prompt is not named."""
        for method in self.methods:
            if METHODS[method].start == "shipped" and self.shipped_prompt is None:
                text = f"names {method}, which needs a folder of prompts/, but tune.shipped_prompt = null"
                yield impossible("tune.methods", self.methods, text, "tune.shipped_prompt")
            if not METHODS[method].is_built:
                yield impossible("tune.methods", self.methods, f"names {method}, which is not built yet: leave it out")


class ReportParams(ParamGroup):
    """Contents of the report."""

    datasets: Annotated[list[Name], Distinct] = Field(
        [], description="Columns of the table, in order; empty: all of tune"
    )
    paper_figures: Literal["t5-base", "flan-t5-xl"] | None = Field(
        None, description="Backbone whose scores in the paper are shown beside ours; null: none"
    )
    task_samples: Count = Field(3, description="Anchor tasks shown for each kind")
    cluster_samples: Count = Field(12, description="Clusters shown with their nearest sentences")
