"""The table of methods: one entry for every row of the paper's tables (ALGORITHM §7).

`tune.methods`, `metatrain.variants`, the report and the model cards are made from this table. To add a method, add a
row here, the module that tunes and evaluates it (`tasks.tune.method_module` says what it must define), and a test. The
keys of its own parameters, if it has any, go into `settings` and into the schema (`tasks.params`).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from importlib.util import find_spec
from types import MappingProxyType
from typing import Any, Literal

from storage.errors import InputError
from storage.task_formats import FORMATS, LABELED

SUPMER = "supmer"
ZERO_SHOT = "zero-shot"
PAIRS, SINGLES = "sp", "ss"  # formats like sets of two texts and of one text; PPT has a prompt for each
PROMPT_TUNING, _PREFIX_TUNING = "tasks.tune.prompt_tuning", "tasks.tune.prefix_tuning"
_INFERENCE, _FINE_TUNING = "tasks.tune.inference", "tasks.weights.fine_tuning"
_STRENGTHS = "tune.logistic_regression.strengths"
KEEP = "tune.fine_tuning.keep"  # the key that says whether trained weights are kept


class Group(StrEnum):
    """The groups of rows, in the paper's order, which a line of the table separates."""

    INFERENCE = "inference"
    CLASSIFIERS = "classifiers"
    MORE_PARAMETERS = "more parameters"
    SAME_PARAMETERS = "same parameters"
    OURS = "ours"
    ABLATIONS = "ablations"
    DATA = "data"


class Drawn(IntEnum):
    """Ranks of methods for plots with more lines than can be told apart: lower ranks are drawn first."""

    FIRST = 0
    EARLY = 1
    NEXT = 2
    LATE = 3


@dataclass(frozen=True)
class MetaTraining:
    """The way in which `metatrain` learns a method's initial prompt, as a difference from SUPMER.

    Attributes:
        recipe: `supmer`, or a name in `tasks.metatrain.variants.RECIPES`, which changes many settings together.
        changes: single fields of `tasks.metatrain.variants.Training` that differ.
        formats: formats of the anchor tasks; None for those of `metatrain.formats`.
        unlabeled: True if it learns from anchor tasks.
        labeled: True if it learns from tasks made of datasets.
        each_format: True if it learns a prompt for each format of anchor tasks, named METHOD-FORMAT.
        takes_out: the key of `metatrain` whose effect an ablation removes, and the values of the key with which SUPMER
            itself lacks that effect.
    """

    recipe: str = SUPMER
    changes: dict[str, Any] = field(default_factory=dict)
    formats: tuple[str, ...] | None = None
    unlabeled: bool = True
    labeled: bool = False
    each_format: bool = False
    takes_out: tuple[str, tuple[object, ...]] | None = None

    def task_formats(self, usual: Iterable[str]) -> tuple[str, ...]:
        """Return the formats of all its tasks; `usual` are those of `metatrain.formats`."""
        anchors = (tuple(usual) if self.formats is None else self.formats) if self.unlabeled else ()
        return (*anchors, LABELED) if self.labeled else anchors

    def prompt_formats(self, name: str, usual: Iterable[str]) -> dict[str, tuple[str, ...]]:
        """Return the formats that each prompt of the method `name` is learned from; labeled tasks count for each."""
        formats = self.task_formats(usual)
        if not self.each_format:
            return {name: formats}
        labeled = (LABELED,) if self.labeled else ()
        return {f"{name}-{one}": (one, *labeled) for one in formats if one != LABELED}


@dataclass(frozen=True)
class Method:
    """A row of the tables.

    Attributes:
        name: its name in `tune.methods` and `metatrain.variants`.
        title: its name in tables and sentences.
        short: its name in plots.
        group: the group of rows that it belongs to.
        start: the start of training: drawn from a normal distribution or from the vocabulary, a prompt that
            `metatrain` learned, one that is shipped in prompts/, or the backbone alone.
        trains: the parameters that tuning changes; a `classifier` takes features of texts, without the backbone.
        examples: the use of the few labeled examples: to train, as demonstrations in the input, or none.
        asks: the form of downstream questions: the set's own template, or multiple choice with letters.
        module: the module that tunes and evaluates the method; empty while it is not built.
        meta_training: the training of its initial prompt; None if it has none.
        card: the sentence about its training in the model card of its prompt.
        learning_rates: the key of the learning rates that tuning tries.
        settings: keys of further parameters that its tuning depends on.
        embeds: True if it uses the sentence embedder.
        package: a package that it needs, which the extra with the method's name installs; empty if none.
        paper_name: the name of its row in paper_figures.txt, if that differs.
        drawn: its rank among the lines of a plot.
        summarized: True if the summary of the report states its score.
        meaning: for an ablation, what its short name means.
    """

    name: str
    title: str
    short: str
    group: Group
    start: Literal["normal", "vocabulary", "learned", "shipped", "nothing"]
    trains: Literal["nothing", "classifier", "prompt", "prefixes", "weights", "adapter"] = "prompt"
    examples: Literal["training", "demonstrations", "none"] = "training"
    asks: Literal["template", "choice"] = "template"
    module: str = PROMPT_TUNING
    meta_training: MetaTraining | None = None
    card: str = "Learned once from unlabeled text by SUPMER (self-supervised meta-prompt learning)"
    learning_rates: str = "tune.learning_rates"
    settings: tuple[str, ...] = ()
    embeds: bool = False
    package: str = ""
    paper_name: str = ""
    drawn: Drawn = Drawn.LATE
    summarized: bool = False
    meaning: str = ""

    @property
    def is_built(self) -> bool:
        """True if it can be tuned or evaluated."""
        return bool(self.module)

    @property
    def keeps_result(self) -> bool:
        """True if what it trains is worth keeping for new texts; a classifier is there to compare with."""
        return self.trains not in ("nothing", "classifier")

    @property
    def is_ours(self) -> bool:
        """True if it is SUPMER, an ablation of it, or SUPMER on other data."""
        learned = self.meta_training
        return self.group is Group.OURS or (learned is not None and learned.recipe == SUPMER)

    @property
    def prompts(self) -> tuple[str, ...]:
        """The prompts in artifacts/prompt that it may start from."""
        if self.meta_training is None:
            return ()
        return (self.prompt_for(2), self.prompt_for(1)) if self.meta_training.each_format else (self.name,)

    def prompt_for(self, fields: int) -> str:
        """Return the prompt that it starts from on a set with `fields` text fields."""
        if self.meta_training is None or not self.meta_training.each_format:
            return self.name
        return f"{self.name}-{SINGLES if fields == 1 else PAIRS}"


def _ablation(
    name: str, title: str, short: str, meaning: str, meta_training: MetaTraining, *, summarized: bool = False
) -> Method:
    return Method(
        name, title, short, Group.ABLATIONS, "learned", meta_training=meta_training, summarized=summarized,
        meaning=meaning,
    )  # fmt: skip


_ROWS = (
    Method(
        ZERO_SHOT, "Zero-shot inference", "Zero-shot", Group.INFERENCE, "nothing", "nothing", "none",
        module=_INFERENCE, summarized=True,
    ),
    Method(
        "few-shot", "Few-shot inference", "Few-shot", Group.INFERENCE, "nothing", "nothing", "demonstrations",
        module=_INFERENCE,
    ),
    # No methods of the paper: what a practical person would try first.
    Method(
        "tfidf", "TF–IDF + logistic regression", "TF–IDF", Group.CLASSIFIERS, "nothing", "classifier",
        module="tasks.classifiers.tfidf", learning_rates=_STRENGTHS,
    ),
    Method(
        "embedding", "Sentence embedding + logistic regression", "Embedding", Group.CLASSIFIERS, "nothing",
        "classifier", module="tasks.classifiers.embedding", learning_rates=_STRENGTHS, embeds=True,
    ),
    Method(
        "prefix-tuning", "Prefix-Tuning", "Prefix", Group.MORE_PARAMETERS, "normal", "prefixes", module=_PREFIX_TUNING,
        learning_rates="tune.prefix_tuning.learning_rates",
        settings=("tune.prefix_tuning.length", "tune.prefix_tuning.places", "tune.prefix_tuning.hidden_size"),
    ),
    Method(
        "p-tuning-v2", "P-Tuning v2", "P-Tuning v2", Group.MORE_PARAMETERS, "normal", "prefixes", module=_PREFIX_TUNING,
        learning_rates="tune.p_tuning_v2.learning_rates",
        settings=("tune.p_tuning_v2.length", "tune.p_tuning_v2.places"),
    ),
    Method(
        "ft", "Fine-tuning of all weights", "FT", Group.MORE_PARAMETERS, "nothing", "weights", module=_FINE_TUNING,
        learning_rates="tune.fine_tuning.learning_rates",
        settings=(
            KEEP, "tune.fine_tuning.micro_batch", "tune.fine_tuning.gradient_checkpointing",
            "tune.fine_tuning.reshard_after_forward",
        ),
        drawn=Drawn.NEXT,
    ),
    Method(
        "lora", "LoRA", "LoRA", Group.MORE_PARAMETERS, "normal", "adapter", module="tasks.weights.lora",
        learning_rates="tune.lora.learning_rates",
        settings=("tune.lora.rank", "tune.lora.alpha", "tune.lora.micro_batch"), package="peft",
    ),
    Method(
        "pt", "PT (normal start)", "PT", Group.SAME_PARAMETERS, "normal", drawn=Drawn.EARLY, summarized=True,
    ),
    # The paper does not say how its PT starts, so its figure is shown beside both.
    Method(
        "pt-vocabulary", "PT (vocabulary start)", "PT (vocab.)", Group.SAME_PARAMETERS, "vocabulary", paper_name="pt",
        drawn=Drawn.EARLY, summarized=True,
    ),
    Method(
        "ppt", "PPT", "PPT", Group.SAME_PARAMETERS, "learned", drawn=Drawn.EARLY,
        meta_training=MetaTraining("ppt", each_format=True),
        card="Pre-trained by PPT: plain self-supervised training on the same tasks",
    ),
    Method(
        "unified-ppt", "Unified-PPT", "Unified-PPT", Group.SAME_PARAMETERS, "learned", drawn=Drawn.EARLY,
        meta_training=MetaTraining("ppt", {"unified": True}), asks="choice",
        card="Pre-trained by Unified-PPT: plain self-supervised training, every task as multi choice",
    ),
    Method(
        "metapt", "MetaPT", "MetaPT", Group.SAME_PARAMETERS, "learned", drawn=Drawn.EARLY,
        meta_training=MetaTraining("metapt", unlabeled=False, labeled=True),
        card="Meta-trained by MetaPT: MAML on labeled tasks, without gradient regularizer and mixing",
    ),
    Method(
        SUPMER, "SUPMER", "SUPMER", Group.OURS, "learned", drawn=Drawn.FIRST, meta_training=MetaTraining(),
        summarized=True,
    ),
    Method(
        "supmer-shipped", "SUPMER (shipped prompt)", "shipped", Group.OURS, "shipped", drawn=Drawn.FIRST,
        settings=("tune.shipped_prompt",), summarized=True,
    ),
    _ablation(
        "only-sp", "SUPMER (only sp)", "only sp", "meta-trained on sentence pairs alone",
        MetaTraining(formats=("sp",)),
    ),
    _ablation(
        "only-mc", "SUPMER (only mc)", "only mc", "meta-trained on multiple choice alone",
        MetaTraining(formats=("mc",)),
    ),
    _ablation(
        "only-ss", "SUPMER (only ss)", "only ss", "meta-trained on single sentences alone",
        MetaTraining(formats=("ss",)),
    ),
    _ablation(
        "without-ta", "SUPMER w/o task augmentation", "w/o ta", "without task augmentation: tasks are not mixed",
        MetaTraining(changes={"augmentation": "none"}, takes_out=("augmentation.mode", ("none",))),
    ),
    _ablation(
        "without-curriculum", "SUPMER w/o curriculum", "w/o curriculum",
        "without curriculum: tasks are mixed as strongly at the first step as at the last",
        MetaTraining(changes={"augmentation": "vanilla"}, takes_out=("augmentation.mode", ("vanilla", "none"))),
    ),
    _ablation(
        "without-mgr", "SUPMER w/o gradient regularizer", "w/o mgr",
        "without meta-gradient regularizer: gradients pass unchanged",
        MetaTraining(changes={"rank": None}, takes_out=("regularizer.enabled", (False,))), summarized=True,
    ),
    Method(
        "supmer-labeled", "SUPMER (only labeled)", "labeled", Group.DATA, "learned",
        meta_training=MetaTraining(unlabeled=False, labeled=True),
    ),
    Method(
        "ppt-mixed", "PPT (labeled + unlabeled)", "PPT mixed", Group.DATA, "learned",
        meta_training=MetaTraining("ppt", labeled=True, each_format=True),
        card="Pre-trained by PPT on anchor tasks and labeled tasks together",
    ),
    Method(
        "metapt-mixed", "MetaPT (labeled + unlabeled)", "MetaPT mixed", Group.DATA, "learned",
        meta_training=MetaTraining("metapt", labeled=True),
        card="Meta-trained by MetaPT on anchor tasks and labeled tasks together",
    ),
    Method(
        "supmer-mixed", "SUPMER (labeled + unlabeled)", "mixed", Group.DATA, "learned",
        meta_training=MetaTraining(labeled=True),
    ),
)  # fmt: skip

_BY_NAME = {row.name: row for row in _ROWS}
METHODS: Mapping[str, Method] = MappingProxyType(_BY_NAME)
"""Every method by name, in the order of the paper's rows."""

META_TRAINED: Mapping[str, MetaTraining] = MappingProxyType(
    {row.name: row.meta_training for row in _ROWS if row.meta_training}
)
"""How the prompt of each method that has one is learned: what `metatrain.variants` may name."""

INITIALIZATIONS: Mapping[str, str] = MappingProxyType(
    {row.start: row.name for row in reversed(_ROWS) if row.start in ("normal", "vocabulary") and row.trains == "prompt"}
)
"""The method of prompt tuning from each start that needs no learned prompt, the usual start first."""


@dataclass(frozen=True)
class Label:
    """The names under which a method, or one of the prompts that it learns, is shown."""

    title: str
    short: str
    group: Group
    paper_name: str


def _labels() -> dict[str, Label]:
    shown = {row.name: Label(row.title, row.short, row.group, row.paper_name or row.name) for row in _ROWS}
    for row in _ROWS:
        for name in FORMATS if row.meta_training and row.meta_training.each_format else ():
            prompt = f"{row.name}-{name}"
            shown[prompt] = Label(f"{row.title} ({name})", f"{row.short} {name}", row.group, prompt)
    return shown


_LABELS = _labels()


def label(name: str) -> Label:
    """Return the names of a method, or of a prompt that `metatrain` learns; an unknown name is shown as it is."""
    return _LABELS.get(name) or Label(name, name, Group.SAME_PARAMETERS, name)


def method_of(prompt: str) -> Method:
    """Return the method that a prompt of `metatrain` is learned for."""
    for name in FORMATS:
        row = METHODS.get(prompt.removesuffix(f"-{name}"))
        if row and row.meta_training and row.meta_training.each_format:
            return row
    return METHODS[prompt]


def refuse_missing_package(name: str) -> None:
    """Raise InputError if a package that a method needs is not installed."""
    package = METHODS[name].package
    if package and find_spec(package) is None:
        raise InputError(f"method {name}: needs the package {package}: pip install 'supmer[{name}]', or leave it out")


def in_order(names: Iterable[str]) -> list[str]:
    """Return methods as rows of a table: in the paper's order, unknown methods last."""
    places = {name: place for place, name in enumerate(_LABELS)}
    return sorted(names, key=lambda name: (places.get(name, len(places)), name))


def most_telling(names: Iterable[str]) -> list[str]:
    """Return methods as lines of a plot: SUPMER, then those that it is compared with first."""
    return sorted(in_order(names), key=lambda name: METHODS[name].drawn if name in METHODS else Drawn.LATE)
