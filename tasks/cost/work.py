"""The work of each stage: operations, tokens, memory and disk, whatever machine does it."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from tasks.cost.data import Data, labeled_tokens, test_size
from tasks.cost.shapes import Shape
from tasks.metatrain.variants import Training, trainings
from tasks.methods import METHODS
from tasks.params.schema import Params
from tasks.tune.plan import Planned, planned

FORWARD, PASS, TWICE = "forward", "pass", "twice"
"""Kinds of operations, each with its own speed: passes without a gradient, with one, and with a second derivative."""
HESSIAN = 3  # forward passes that a product with the Hessian costs: measured, second order takes 1.5 × first order

# Seconds of a core of the reference machine, measured with benchmarks/bench_scale.py and bench_cluster.py.
SAMPLE_START, SAMPLE_READ, SAMPLE_DRAW = 2.5, 0.055, 0.045  # once, for a MB that is read, and for one that is drawn
CLUSTER_SENTENCE = 12e-6
POOL_SENTENCE, DRAW_EXAMPLE = 4e-6, 9e-6
KMEANS_RATE = 35e9  # operations per second in float32 of faiss on a core
REPORT_SECONDS = 0.4
MADE_SECONDS = 1.2  # for a tiny model that the program makes
CONVERTED = 1e-8  # for a number of a quantized model
CLUSTER_START, MATERIALIZE_START = 3.0, 0.6  # for what workers load before their first shard


@dataclass(frozen=True)
class Work:
    """The work of a stage.

    Attributes:
        tokens: positions that a model's encoder reads, prompts included, over all passes.
        operations: of a model, by kind.
        model: `backbone` or `embedder`.
        core_seconds: other work, in seconds of a core of the reference machine.
        processes: processes that compute at once, at most; 0 if the stage starts no workers.
        uses_torch: True if these load torch, which takes seconds and memory.
        disk: bytes of its outputs.
        download: bytes that are fetched.
        assumptions: a line for each number that is not known.
    """

    stage: str
    tokens: float = 0
    operations: dict[str, float] = field(default_factory=dict)
    model: str = "backbone"
    core_seconds: float = 0
    processes: float = math.inf
    uses_torch: bool = False
    disk: float = 0
    download: float = 0
    assumptions: tuple[str, ...] = ()

    @property
    def all_operations(self) -> float:
        """The operations of all kinds together."""
        return sum(self.operations.values())


@dataclass(frozen=True)
class Plan:
    """The basis of an estimate: parameters, data and shapes of the models."""

    params: Params
    data: Data
    backbone: Shape
    embedder: Shape

    @property
    def encoder(self) -> Shape:
        """The model that embeds sentences."""
        return self.backbone if self.params.embed.model == "backbone" else self.embedder


def acquire(plan: Plan) -> Work:
    """Return the work of fetching and hashing the sources."""
    specs = (plan.params.acquire.backbone, plan.params.acquire.embedder)
    models = plan.backbone.parameters * 4.0 + plan.embedder.parameters * 4.0
    made = sum(spec.startswith("made:") for spec in specs)
    fetched = plan.data.source_bytes + (0 if made else models)
    converted = plan.backbone.parameters if specs[0].startswith("wheel:") else 0
    seconds = MADE_SECONDS * made + CONVERTED * converted + (models + plan.data.source_bytes) / 400e6
    disk = models + plan.data.source_bytes
    lines = ("hashed at 400 MB/s; a quantized ONNX model is converted; a made model is trained for some seconds",)
    return Work(
        "acquire", core_seconds=seconds, processes=1, uses_torch=True, disk=disk, download=fetched, assumptions=lines
    )


def sample(plan: Plan) -> Work:
    """Return the work of filtering, deduplicating and splitting the corpus."""
    data = plan.data
    seconds = SAMPLE_START + SAMPLE_READ * data.corpus_mb + SAMPLE_DRAW * data.drawn_mb
    lines = (*(line for name, line in data.origins.items() if name != "tokens"),)
    return Work("sample", core_seconds=seconds, disk=0.6 * data.drawn_mb * 1e6 + 60 * data.sentences, assumptions=lines)


def embed(plan: Plan) -> Work:
    """Return the work of embedding every sentence."""
    data, shape = plan.data, plan.encoder
    tokens = data.sentences * (data.sentence_tokens + 1) * 1.08  # batches are padded to their longest row
    operations = shape.encoder_operations(tokens, data.sentence_tokens)
    size = 2 if plan.params.embed.dtype == "float16" else 4
    disk = data.sentences * (shape.width * size + 25)
    lines = (data.origins["tokens"], f"model: {shape.name}, {shape.parameters / 1e6:,.0f} M parameters")
    model = plan.params.embed.model
    return Work(
        "embed",
        tokens,
        {FORWARD: operations},
        model,
        30e-6 * data.sentences,
        uses_torch=True,
        disk=disk,
        assumptions=lines,
    )


def cluster(plan: Plan) -> Work:
    """Return the work of k-means, of assignment, and of the centroids in the backbone's space."""
    params, data, width = plan.params.cluster, plan.data, plan.encoder.width
    points = min(params.clusters * params.points_per_cluster, data.sentences)
    kmeans = 3 * 2 * points * params.clusters * width * params.iterations
    assigned = 3 * 2 * data.sentences * params.clusters * width
    seconds = CLUSTER_START + CLUSTER_SENTENCE * data.sentences + (kmeans + assigned) / KMEANS_RATE
    lines = [f"k-means at {KMEANS_RATE / 1e9:.0f} GFLOP/s a core"]
    tokens = operations = 0.0
    if plan.params.embed.model != "backbone":
        picked = min(3 * params.clusters * params.backbone_sentences * 0.42, data.sentences)
        tokens = picked * data.sentence_tokens
        operations = plan.backbone.encoder_operations(tokens, data.sentence_tokens)
        lines.append(f"{picked:,.0f} sentences through the backbone's encoder")
    embeds = {FORWARD: operations} if operations else {}
    return Work(
        "cluster",
        tokens,
        embeds,
        core_seconds=seconds,
        uses_torch=bool(embeds),
        disk=60 * data.sentences,
        assumptions=tuple(lines),
    )


def materialize(plan: Plan) -> Work:
    """Return the work of drawing the tasks."""
    params, data = plan.params.materialize, plan.data
    tasks = params.train_tasks + params.validation_tasks
    examples = tasks * (params.support_size + params.query_size)
    seconds = MATERIALIZE_START + POOL_SENTENCE * data.sentences + DRAW_EXAMPLE * examples
    texts = sum(_mix(plan.params).get(name, 0) * count for name, count in (("sp", 2), ("mc", 5), ("ss", 1)))
    disk = examples * texts * SENTENCE_DISK
    lines = (f"{tasks:,} tasks, {examples:,} examples of {texts:.1f} sentences",)
    return Work("materialize", core_seconds=seconds, disk=disk, assumptions=lines)


SENTENCE_DISK = 80  # bytes of a sentence in the table of tasks, with its id, compressed


def _mix(params: Params) -> dict[str, float]:
    mix = params.materialize.format_mix
    total = mix.sp + mix.mc + mix.ss
    return {name: getattr(mix, name) / total for name in ("sp", "mc", "ss")} if total else {}


def row_length(plan: Plan, training: Training) -> float:
    """Return the mean positions of a row of a training, with the prompt."""
    mix = _mix(plan.params)
    weights = {name: mix.get(name, 1.0) for name in training.formats}
    form, longest = training.template, training.max_length
    lengths = {name: plan.data.example_tokens("mc" if training.unified else name, form, longest) for name in weights}
    mean = sum(lengths[name] * weights[name] for name in weights) / max(sum(weights.values()), 1e-9)
    return training.prompt_tokens + mean


def trained(params: Params) -> list[Training]:
    """Return the trainings of a run."""
    sizes = params.materialize
    return trainings(params.metatrain, sizes.support_size + sizes.query_size, "float32")  # its work is the same in both


def metatrain(plan: Plan, *, keeps_graph: bool = True) -> Work:
    """Return the work of all trainings; `keeps_graph` is False if support sets are read twice to save memory."""
    operations = {FORWARD: 0.0, PASS: 0.0, TWICE: 0.0}
    tokens, lines = 0.0, []
    every = trained(plan.params)
    for training in every:
        length = row_length(plan, training)
        read, spent = _steps(plan, training, length, keeps_graph=keeps_graph)
        lines.append(_line(training, read, sum(spent.values()), length))
        validations = 1 + math.ceil(training.steps / training.validate_every)
        tasks = plan.params.materialize.validation_tasks * validations
        asked = tasks * plan.params.materialize.query_size * (1 if training.plain else 2)
        inner = 0 if training.plain else tasks * _inner_rows(plan, training)
        spent[FORWARD] = spent.get(FORWARD, 0) + plan.backbone.operations(asked, length)
        spent[PASS] = spent.get(PASS, 0) + 2 * plan.backbone.operations(inner, length)
        operations = {kind: operations[kind] + spent.get(kind, 0) for kind in operations}
        tokens += read + (asked + inner) * length
    lines.append("a backward pass as many operations as a forward pass (weights are frozen), the Hessian three times")
    disk = len(every) * (plan.params.metatrain.prompt_tokens * plan.backbone.width * 4 * 5 + 2e6)
    return Work(
        "metatrain", tokens, operations, processes=len(every), uses_torch=True, disk=disk, assumptions=tuple(lines)
    )


def _line(training: Training, read: float, operations: float, length: float) -> str:
    """Return what is assumed of a training: the size of a step on average, and of a row."""
    first = 0 if training.plain else min(training.plain_steps, training.steps)
    plain = f", the first {first:,} of them plain," if first else ""
    size = f"{read / training.steps:,.0f} tokens and {operations / training.steps / 1e12:,.2f} TFLOP"
    return f"{training.variant}: {training.steps:,} steps{plain} of {size}, rows of {length:.0f}"


def _inner_rows(plan: Plan, training: Training) -> int:
    """Return the rows of a support set that the inner steps of a task read, one after the other."""
    support = plan.params.materialize.support_size
    return training.inner_steps * (min(support, training.inner_batch) if training.inner_batch else support)


def _steps(plan: Plan, training: Training, length: float, *, keeps_graph: bool) -> tuple[float, dict[str, float]]:
    """Return the tokens and the operations by kind of all steps, plain ones first."""
    first = training.steps if training.plain else min(training.plain_steps, training.steps)
    plain_read, plain = _plain_step(plan, training, length)
    read, spent = _bilevel_step(plan, training, length, keeps_graph=keeps_graph)
    later = training.steps - first
    kinds = {kind: first * plain.get(kind, 0) + later * spent.get(kind, 0) for kind in {*plain, *spent}}
    return first * plain_read + later * read, kinds


def _plain_step(plan: Plan, training: Training, length: float) -> tuple[float, dict[str, float]]:
    """Return the tokens and the operations of a step on support and query examples alike."""
    sizes = plan.params.materialize
    rows = training.tasks_per_batch * (sizes.support_size + sizes.query_size)
    return rows * length, {PASS: 2 * plan.backbone.operations(rows, length)}


def _bilevel_step(
    plan: Plan, training: Training, length: float, *, keeps_graph: bool
) -> tuple[float, dict[str, float]]:
    """Return the tokens and the operations by kind of a step of the paper's objective."""
    tasks, shape = training.tasks_per_batch, plan.backbone
    query = tasks * plan.params.materialize.query_size
    mixed = query * (2 if training.augmentation != "none" else 1)
    encoded = shape.encoder_operations(mixed * length, length) + shape.decoder_operations(query, length)
    passes = 2 if training.similarity_at == "theta" else 1
    once = 2 * encoded * passes
    support = tasks * _inner_rows(plan, training)
    read = (support + mixed * passes) * length
    inner = shape.operations(support / training.inner_steps, length)
    if training.order == 1:
        return read, {PASS: once + 2 * inner * training.inner_steps}
    once += 2 * inner * (training.inner_steps - 1)
    again = 0 if keeps_graph else 2
    return read, {PASS: once, TWICE: inner * (2 + HESSIAN + again)}


def tune(plan: Plan) -> Work:
    """Return the work of tuning and of tests."""
    operations = {FORWARD: 0.0, PASS: 0.0}
    tokens, runs = 0.0, 0
    for entry in planned(plan.params, "float32"):
        if METHODS[entry.tuning.method].trains == "classifier":  # it takes seconds
            continue
        length = _tuned_length(plan, entry)
        steps, trained_rows, asked = _rows(plan, entry)
        passes = 3 if METHODS[entry.tuning.method].trains == "weights" else 2  # weights have gradients of their own
        operations[PASS] += passes * plan.backbone.operations(trained_rows, length)
        operations[FORWARD] += plan.backbone.operations(asked, length)
        tokens += (trained_rows + asked) * length
        runs += len(entry.seeds) * len(entry.tuning.learning_rates) * bool(steps)
    lines = (
        f"{runs:,} runs; texts of 30 tokens, or 70 for two fields, besides template and prompt, assumed",
        "test sets of the sizes published, at most tune.test_examples",
    )
    disk = runs * plan.params.metatrain.prompt_tokens * plan.backbone.width * 4 + 1e6
    return Work("tune", tokens, operations, uses_torch=True, disk=disk, assumptions=lines)


def _tuned_length(plan: Plan, entry: Planned) -> float:
    """Return the mean positions of a row: with its prompt if the method has one, or full of demonstrations."""
    tuning, row = entry.tuning, METHODS[entry.tuning.method]
    if row.examples == "demonstrations":
        return float(tuning.max_length + tuning.prompt_tokens)
    text = labeled_tokens(plan.params, tuning.dataset, tuning.max_length)
    return text + (tuning.prompt_tokens if row.trains == "prompt" else 0)


def _rows(plan: Plan, entry: Planned) -> tuple[int, float, float]:
    """Return the steps of a run, and the rows that are trained on and that are only read, over all runs."""
    from model.text.datasets import dataset_form

    tuning, form = entry.tuning, dataset_form(entry.tuning.dataset)
    tests = sum(test_size(plan.params, name) for name in entry.tested_on) * len(entry.seeds)
    if METHODS[tuning.method].trains == "nothing":
        return 0, 0.0, float(tests)
    examples = tuning.shots * (len(form.labels) if form else 2)
    runs = len(entry.seeds) * len(tuning.learning_rates)
    steps = tuning.epochs * math.ceil(examples / tuning.batch_size)
    evaluations = 1 + math.ceil(steps / tuning.evaluate_every)
    return steps, float(runs * tuning.epochs * examples), float(runs * evaluations * examples + tests)


def report(plan: Plan) -> Work:  # noqa: ARG001 - the same arguments as the other stages
    """Return the work of making the report."""
    return Work("report", core_seconds=REPORT_SECONDS, processes=0, disk=2e6)


STAGES: dict[str, Callable[[Plan], Work]] = {
    "acquire": acquire,
    "sample": sample,
    "embed": embed,
    "cluster": cluster,
    "materialize": materialize,
    "metatrain": metatrain,
    "tune": tune,
    "report": report,
}
