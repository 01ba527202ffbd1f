"""Estimates of a run: for each stage tokens, operations, memory, disk and time on a machine, with the reasons."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from model.prompt.sizes import (
    CHUNK_TOKENS,
    GRAPH_SHARE,
    LOW_CHUNK_TOKENS,
    SMALLEST_CHUNK,
    TRAINED_WEIGHT_BYTES,
    TUNING_TOKENS,
)
from tasks.cost.data import acquired_folder, data_of, labeled_tokens
from tasks.cost.machine import DOWNLOAD, SCALING, Machine
from tasks.cost.shapes import Shape, shape_of
from tasks.cost.work import STAGES, Plan, Work, metatrain, row_length, trained
from tasks.metatrain.variants import Training
from tasks.methods import METHODS
from tasks.params.schema import Params
from tasks.tune.plan import planned

GB = 1e9
# Bytes of processes, measured on runs of offline-tiny and the quickstart.
FIRST_MAIN, MAIN = 0.24 * GB, 0.36 * GB  # of the main process until `sample`, and after it
PLAIN_WORKER, TORCH_WORKER = 0.09 * GB, 0.36 * GB
TRAINER = 0.24 * GB  # more in a worker that trains: autograd, the optimizer, checkpoints
TUNER, TUNER_SHARE = 0.1 * GB, 1.2  # more in one that tunes: freed memory of passes of many lengths, by the weights
KERNELS = 0.35 * GB  # of a process that runs a large model: oneDNN's kernels, freed memory that the allocator keeps
CUDA = 0.6 * GB  # CUDA's context and workspaces
TRAINED_KEPT = 2.0  # activations of a pass whose weights are trained, relative to one with frozen weights
FRAGMENTED = 1.2  # memory that a GPU needs for sharded weights, relative to their bytes
TRANSIENT, TRANSIENT_TWICE = 1.3, 1.8  # peak of a pass, relative to what autograd keeps for it
# Seconds: of a core for starting a worker, and of the run for starting and ending a stage.
PLAIN_START, TORCH_START, STAGE_START = 0.35, 5.0, 0.7
PROMPT_COPIES = 9
MOST_CHUNKS = 8  # that a process computes at once, as in `model.prompt.parallel_chunks`


@dataclass(frozen=True)
class StageCost:
    """The estimate of one stage; bytes and seconds.

    `fits` is False if the device or the host has too little memory, `devices` the number of GPUs that fine-tuning of
    all weights needs.
    """

    stage: str
    tokens: float
    operations: float
    device_memory: float
    host_memory: float
    disk: float
    seconds: float
    fits: bool = True
    devices: int = 1
    assumptions: tuple[str, ...] = field(default_factory=tuple)

    def as_json(self) -> dict[str, Any]:
        """Return the estimate as a value for JSON."""
        return asdict(self) | {"assumptions": list(self.assumptions)}


@dataclass(frozen=True)
class RunCost:
    """The estimate of a run on a machine."""

    profile: str
    machine: Machine
    stages: tuple[StageCost, ...]

    @property
    def total(self) -> StageCost:
        """The sums over stages, and the peaks of memory."""
        return StageCost(
            "together",
            tokens=sum(stage.tokens for stage in self.stages),
            operations=sum(stage.operations for stage in self.stages),
            device_memory=max((stage.device_memory for stage in self.stages), default=0.0),
            host_memory=max((stage.host_memory for stage in self.stages), default=0.0),
            disk=sum(stage.disk for stage in self.stages),
            seconds=sum(stage.seconds for stage in self.stages),
            fits=all(stage.fits for stage in self.stages),
            devices=max((stage.devices for stage in self.stages), default=1),
        )


def plan_of(params: Params, root: Path | None) -> Plan:
    """Return what the work of a run is made from; raise InputError if the shape of a model is not known."""
    shapes = {
        role: shape_of(getattr(params.acquire, role), acquired_folder(params, root, role))
        for role in ("backbone", *(("embedder",) if params.embed.model == "embedder" else ()))
    }
    return Plan(params, data_of(params, root), shapes["backbone"], shapes.get("embedder", shapes["backbone"]))


def estimate(plan: Plan, machine: Machine, profile: str, stages: Iterable[str] | None = None) -> RunCost:
    """Return the estimate of the stages named, or of all."""
    wanted = list(STAGES if stages is None else stages)
    costs = [_cost(plan, machine, STAGES[name](plan)) for name in STAGES if name in wanted]
    return RunCost(profile, machine, tuple(costs))


def precision_of(params: Params, stage: str, machine: Machine) -> str:
    """Return the precision of a stage's products on a machine: its own parameter, or else the one of all stages."""
    return machine.precision(getattr(getattr(params, stage), "precision", None) or params.precision)


def _cost(plan: Plan, machine: Machine, work: Work) -> StageCost:
    precision = precision_of(plan.params, work.stage, machine)
    memory = _memory(plan, machine, work, precision)
    if work.stage == "metatrain" and not memory.keeps_graph:
        work = metatrain(plan, keeps_graph=False)
    lines = [*work.assumptions, *memory.lines]
    if work.operations:
        lines.append(f"products in {precision}")
    return StageCost(
        work.stage,
        work.tokens,
        work.all_operations,
        memory.device,
        memory.host,
        work.disk,
        _seconds(machine, work, precision),
        memory.fits,
        memory.devices,
        tuple(lines),
    )


def _seconds(machine: Machine, work: Work, precision: str) -> float:
    """Return the time of a stage: starts, its work divided over the cores, what the GPU does, downloads and writes."""
    at_once = max(min(machine.workers, work.processes), 1)
    cores = min(machine.cores, at_once) if work.stage != "metatrain" else machine.cores
    spread = cores if cores == 1 else cores * SCALING
    starts = (TORCH_START if work.uses_torch else PLAIN_START) * (at_once if work.processes else 0)
    host = (starts + work.core_seconds) / machine.speed
    computed = sum(machine.seconds(work.model, kind, amount, precision) for kind, amount in work.operations.items())
    if machine.device is not None:
        return STAGE_START + host / spread + computed + work.download / DOWNLOAD + work.disk / machine.disk
    return STAGE_START + (host + computed) / spread + work.download / DOWNLOAD + work.disk / machine.disk


@dataclass(frozen=True)
class _Memory:
    device: float
    host: float
    fits: bool
    keeps_graph: bool = True
    lines: tuple[str, ...] = ()
    devices: int = 1


def _memory(plan: Plan, machine: Machine, work: Work, precision: str) -> _Memory:
    if work.stage in {"metatrain", "tune"}:
        passes = _of_passes(plan, machine, work, precision)
        return _with_fine_tuning(plan, machine, passes, precision) if work.stage == "tune" else passes
    at_once = min(machine.workers, work.processes)
    if work.stage == "acquire":
        spec = plan.params.acquire.backbone
        made = 0.75 * GB if spec.startswith("made:") else 0.12 * GB  # a made model is trained
        host = FIRST_MAIN + (3.4 * 4 * plan.backbone.parameters if spec.startswith("wheel:") else made)
        return _Memory(0, host, host < machine.memory)
    if work.uses_torch:
        shape = plan.encoder if work.stage == "embed" else plan.backbone
        encoder = 4.0 * (shape.encoder_parameters + shape.vocabulary * shape.width)
        batch = plan.params.embed.batch_size * 64 * 4 * (4 * shape.feed_forward + 8 * shape.width)
        each = TORCH_WORKER + min(0.2 * GB, 0.05 * GB + 2 * encoder)
        if machine.device is not None:
            return _fitting(machine, CUDA + encoder + batch, MAIN + at_once * each)
        return _fitting(machine, 0, MAIN + at_once * (each + encoder + batch))
    extra = {"sample": 0.02 * GB, "cluster": 0.12 * GB, "materialize": 0.0, "report": 0.16 * GB}[work.stage]
    bounded = {"sample": 0.1, "cluster": 0.1, "materialize": 0.2}.get(work.stage, 0) * GB
    large = bounded * min(plan.data.sentences / 1e6, 1)  # shards and DuckDB's limits bound it
    main = FIRST_MAIN if work.stage == "sample" else MAIN
    return _fitting(machine, 0, main + at_once * PLAIN_WORKER + extra + large)


def _fitting(machine: Machine, device: float, host: float) -> _Memory:
    room = machine.device.memory_gb * GB if machine.device else 0
    return _Memory(device, host, host < machine.memory and (machine.device is None or device < room))


def _with_fine_tuning(plan: Plan, machine: Machine, passes: _Memory, precision: str) -> _Memory:
    """Return the memory of `tune` if a method trains all weights, alone on a device or shared by several."""
    if not any(METHODS[name].trains == "weights" for name in plan.params.tune.methods):
        return passes
    needed, own = TRAINED_WEIGHT_BYTES * plan.backbone.parameters, _fine_tuned_rows(plan, precision)
    line = (
        f"fine-tuning: {needed / GB:.1f} GB for weights, gradients, AdamW's moments and the best weights in float32, "
        f"{own / GB:.1f} GB for activations"
    )
    if machine.device is None:
        host = max(passes.host, MAIN + TORCH_WORKER + KERNELS + needed + own)
        return replace(passes, host=host, fits=passes.fits and host < machine.memory, lines=(*passes.lines, line))
    room = machine.device.memory_gb * GB - CUDA - own
    if needed <= room:
        return replace(passes, device=max(passes.device, CUDA + own + needed), lines=(*passes.lines, line))
    if not plan.params.tune.fine_tuning.reshard_after_forward:
        room -= 4 * plan.backbone.parameters  # every GPU has all weights between the passes of a step
    if room <= 0:
        return replace(passes, fits=False, lines=(*passes.lines, f"{line}: too much for any number of these GPUs"))
    count = math.ceil(FRAGMENTED * needed / room)
    line += f", which {count} of these GPUs share (FSDP2, under torchrun)"
    device = max(passes.device, machine.device.memory_gb * GB - room + FRAGMENTED * needed / count)
    return replace(passes, device=device, devices=count, lines=(*passes.lines, line))


def _fine_tuned_rows(plan: Plan, precision: str) -> float:
    """Return the bytes of the activations of one pass of fine-tuning."""
    tune, shape = plan.params.tune, plan.backbone
    trained_on = [
        one.tuning for one in planned(plan.params, "float32") if METHODS[one.tuning.method].trains == "weights"
    ]
    length = max((labeled_tokens(plan.params, one.dataset, one.max_length) for one in trained_on), default=0.0)
    recompute = tune.fine_tuning.gradient_checkpointing
    kept = TRAINED_KEPT * shape.kept_bytes(length, precision, twice=False, recompute=recompute)
    return _peak((tune.fine_tuning.micro_batch or tune.batch_size) * length * kept)


def _chunk_tokens(precision: str, *, trains: bool) -> dict[str, int]:
    if not trains:
        return TUNING_TOKENS
    return LOW_CHUNK_TOKENS if precision == "bfloat16" else CHUNK_TOKENS


def _of_passes(plan: Plan, machine: Machine, work: Work, precision: str) -> _Memory:
    """Return the memory of a stage that passes rows through the backbone with gradients."""
    recompute = plan.params.metatrain.gradient_checkpointing
    shape, kind = plan.backbone, "cuda" if machine.device else "cpu"
    weights = shape.weights(precision, packed=kind == "cpu" and not recompute)
    trainings = trained(plan.params) if work.stage == "metatrain" else []
    length = max((row_length(plan, one) for one in trainings), default=plan.params.metatrain.prompt_tokens + 60.0)
    twice = any(one.order == 2 and not one.plain for one in trainings)
    chunk = plan.params.metatrain.chunk_tokens or _chunk_tokens(precision, trains=bool(trainings))[kind]
    once = shape.kept_bytes(length, precision, twice=False, recompute=recompute)
    second = shape.kept_bytes(length, precision, twice=True) if twice else once
    graph = second * max((_support_tokens(plan, one) for one in trainings), default=0) if twice else 0.0
    layouts = ", with oneDNN's layouts" if kind == "cpu" and not recompute else ""
    lines = [f"weights {weights / GB:.1f} GB in {precision}{layouts}"]
    if machine.device is not None:
        return _on_gpu(machine, weights, (once, second, graph), chunk, lines)
    keeps = graph <= GRAPH_SHARE * machine.memory
    at_once = int(min(machine.workers, work.processes))
    together = chunk * min(max(machine.cores // max(at_once, 1), 1), MOST_CHUNKS)  # a chunk for each core of a process
    held = graph + second * (together - chunk) if keeps and twice else second * together
    mixed = 2 if any(one.augmentation != "none" and not one.plain for one in trainings) else 1  # partners' rows
    beside = TRAINER if trainings else TUNER + TUNER_SHARE * weights + _prompt_bytes(plan)
    kernels = min(KERNELS, 0.06 * GB + 0.5 * weights)
    read = 4.0 * shape.parameters if precision == "bfloat16" else 0.0  # float32 weights of the file, then converted
    passes = max(_peak(held, twice=twice), _peak(once * together * mixed))
    each = TORCH_WORKER + kernels + weights + read + passes + beside
    lines.append(f"{at_once} processes with {each / GB:.1f} GB each; chunks of {chunk:,} tokens")
    more = f", {second / 1e3:,.0f} kB for second derivatives" if twice else ""
    lines.append(f"{once / 1e3:,.0f} kB kept for each token of a chunk{more}")
    host = MAIN + at_once * each
    return _Memory(0, host, host < machine.memory, keeps or not twice, tuple(lines))


def _on_gpu(
    machine: Machine, weights: float, kept: tuple[float, float, float], chunk: int, lines: Sequence[str]
) -> _Memory:
    """Return the memory of passes on a GPU: chunks are halved, as the program does by itself, until they fit."""
    assert machine.device is not None
    once, second, graph = kept
    room = machine.device.memory_gb * GB
    keeps = bool(graph) and graph <= GRAPH_SHARE * room
    largest = max(once, second)
    first = chunk

    def needed() -> float:
        held = graph if keeps else second * chunk
        return CUDA + weights + max(_peak(held, twice=bool(graph)), _peak(once * chunk))

    while needed() > room and (keeps or chunk > SMALLEST_CHUNK):
        if keeps:
            keeps = False
        else:
            chunk //= 2
    halved = f", halved from {first:,} until they fit" if chunk < first else ""
    summary = f"chunks of {chunk:,} tokens{halved}, {largest / 1e6:,.2f} MB kept per token"
    if graph:
        summary += ", graphs of the support sets kept" if keeps else ", support sets read twice"
    host = MAIN + TORCH_WORKER + KERNELS + 1.2 * weights
    device = needed()
    return _Memory(device, host, device <= room and host < machine.memory, keeps or not graph, (*lines, summary))


def _peak(kept: float, *, twice: bool = False) -> float:
    return kept * (TRANSIENT_TWICE if twice else TRANSIENT)


def _support_tokens(plan: Plan, training: Training) -> float:
    return training.tasks_per_batch * plan.params.materialize.support_size * row_length(plan, training)


def _prompt_bytes(plan: Plan) -> float:
    """Return the bytes of the prompts that are tuned together, and of what is kept for each."""
    tune = plan.params.tune
    runs = len(tune.seeds) * len(tune.learning_rates)
    return min(runs * plan.params.metatrain.prompt_tokens * plan.backbone.width * 4 * PROMPT_COPIES, 2**29)


def shapes_of(plan: Plan) -> dict[str, Shape]:
    """Return the shapes that a machine must be measured for, by model."""
    shapes = {"backbone": plan.backbone}
    if plan.params.embed.model == "embedder":
        shapes["embedder"] = plan.embedder
    return shapes
