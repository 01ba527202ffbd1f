"""The machine of an estimate: this one, measured for a few seconds, or a GPU of the table with a usual host."""

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import psutil

from model.t5.precision import Precision, bfloat16_units, slow_down
from tasks.cost.devices import EFFICIENCY, Device
from tasks.cost.shapes import Shape
from tasks.cost.work import FORWARD, PASS, TWICE

REFERENCE_TEXT = 33.0  # MB/s of `_text_speed` on a core of the reference machine (AMD EPYC, AVX-512)
HOST_CORES, HOST_MEMORY = 16, 64e9  # of the host of a named GPU, assumed
DOWNLOAD = 100e6  # bytes per second, assumed
SCALING = 0.93  # of the speed of one core that each of several has, when chunks run in parallel: measured
_PROBE_TOKENS, _PROBE_SECONDS, _PROBE_LAYERS = 768, 0.6, 2
_WIDE = 768  # models at least this wide are measured on fewer tokens
_DISK_BYTES = 64_000_000
_NEAR = (5, 14, 8)  # words of a shingle, bands, and hashes of a band: the defaults of sample.near_duplicates

Say = Callable[[str], None]


@dataclass(frozen=True)
class Machine:
    """The facts about a machine that an estimate needs.

    Attributes:
        name: in words.
        device: a GPU of the table; None for the processor.
        cores: cores that the run may use.
        workers: worker processes that a run starts, unless --workers says otherwise.
        memory: bytes of host memory.
        speed: of one core, relative to the reference machine's, for other work than a model's.
        rates: operations per second of a core by (model, kind, precision); empty with a GPU. It has bfloat16 if the
            processor computes in it.
        disk: bytes per second that are written and read.
        measured: lines that say what was measured or assumed.
        slow_down: how many times as long as in float32 products take in bfloat16, if the processor has no units for it.
    """

    name: str
    device: Device | None
    cores: int
    workers: int
    memory: float
    speed: float
    rates: dict[tuple[str, str, str], float]
    disk: float
    measured: tuple[str, ...]
    slow_down: float = 1.0

    def seconds(self, model: str, kind: str, operations: float, precision: str) -> float:
        """Return the time of operations of a model, on the GPU or on one core."""
        if self.device is not None:
            return operations / self.device.rate(precision)
        known = self.rates.get((model, kind, precision))
        return operations / known if known else self.slow_down * operations / self.rates[model, kind, "float32"]

    def precision(self, wanted: str) -> str:
        """Return the precision that `auto` or a name means on this machine."""
        if self.device is not None:
            return self.device.precision(wanted)
        if wanted == "auto":
            return "bfloat16" if any(precision == "bfloat16" for *_, precision in self.rates) else "float32"
        return wanted


def named_machine(device: Device, cores: int | None) -> Machine:
    """Return a GPU of the table with a usual host."""
    share = ", ".join(f"{100 * value:.0f} % in {name}" for name, value in EFFICIENCY.items())
    rate = f"{device.bfloat16:g} TFLOP/s in bfloat16" if device.bfloat16 else "no bfloat16"
    number = cores or HOST_CORES
    lines = (
        f"{device.name}: {device.memory_gb:g} GB, {rate}, {device.float32:g} in float32 (dense)",
        f"share of the dense rate that is reached, assumed: {share}",
        f"host: {number} cores like the reference machine's and {HOST_MEMORY / 1e9:.0f} GB of memory, assumed",
        f"disk 1 GB/s, download {DOWNLOAD / 1e6:.0f} MB/s, assumed",
    )
    return Machine(device.name, device, number, number, HOST_MEMORY, 1.0, {}, 1e9, lines)


def this_machine(shapes: dict[str, Shape], cores: int | None, say: Say = lambda _line: None) -> Machine:
    """Measure the processor for a few seconds: products of the models' shapes, text, and the disk."""
    usable, memory = len(os.sched_getaffinity(0)), float(psutil.virtual_memory().total)
    say("text")
    speed = _text_speed() / REFERENCE_TEXT
    say("disk")
    disk = _disk_speed()
    rates: dict[tuple[str, str, str], float] = {}
    for name, shape in shapes.items():
        for precision in _precisions():
            say(f"products of the {name} in {precision}")
            rates |= {(name, kind, precision): rate for kind, rate in _model_rates(shape, precision)}
    lines = [
        f"this machine: {usable} of {os.cpu_count()} cores, {memory / 1e9:.0f} GB",
        f"text: {speed:.2f} × as fast as a core of the reference machine",
        f"disk: {disk / 1e6:,.0f} MB/s; download {DOWNLOAD / 1e6:.0f} MB/s, assumed",
        *(
            f"{name}, {kind}, {precision}: {rate / 1e9:,.1f} GFLOP/s on one core"
            for (name, kind, precision), rate in rates.items()
        ),
        "measured by processor time: the estimates are for an otherwise idle machine",
    ]
    slower = _slow_down()
    if slower > 1:
        lines.append(f"bfloat16: no units for it, {slower:.1f} times as slow as float32")
    count = cores or usable
    workers = max(os.cpu_count() or 1, count)
    return Machine("this machine", None, count, workers, memory, speed, rates, disk, tuple(lines), slower)


def _slow_down() -> float:
    """Return how many times as long as in float32 a product takes in bfloat16; 1 if the processor has units for it."""
    import torch

    where = torch.device("cpu")
    return 1.0 if bfloat16_units(where) else max(slow_down(where), 1.0)


def _text_speed() -> float:
    """Return the MB of made text per second that one core splits into sentences and hashes for duplicates."""
    from storage.sources.made_text import stories
    from tasks.sample.minhash import band_keys
    from tasks.sample.sentences import sentence_spans

    texts = list(stories(60, 1))
    size = sum(map(len, texts))
    best = float("inf")
    for _ in range(3):
        start = time.process_time()
        for text in texts:
            sum(1 for _ in sentence_spans(text))
        band_keys(texts, *_NEAR)
        best = min(best, time.process_time() - start)
    return size / best / 1e6


def _disk_speed() -> float:
    """Return the bytes per second at which a file is written to disk, in the temporary folder."""
    block = os.urandom(1 << 20)
    with tempfile.TemporaryDirectory(prefix="supmer_cost_") as folder:
        start = time.perf_counter()
        with (Path(folder) / "probe").open("wb") as file:
            for _ in range(_DISK_BYTES >> 20):
                file.write(block)
            file.flush()
            os.fsync(file.fileno())
        return _DISK_BYTES / (time.perf_counter() - start)


def _precisions() -> tuple[Precision, ...]:
    import torch

    return ("float32", "bfloat16") if bfloat16_units(torch.device("cpu")) else ("float32",)


def _model_rates(shape: Shape, precision: Precision) -> Iterator[tuple[str, float]]:
    """Yield the operations per second of one core, for each kind, on two layers of the model with random weights."""
    if not shape.layers:  # static embeddings: a table is read
        yield FORWARD, 1e9
        return
    if not shape.decoder_layers:
        yield FORWARD, _encoder_rate(shape, precision)
        return
    import torch

    from model.device import single_threaded

    with single_threaded(), torch.random.fork_rng(devices=[]):
        yield from _t5_rates(shape, precision)


def _encoder_rate(shape: Shape, precision: Precision) -> float:
    """Return the rate of a sentence encoder in batches of 16 rows, as transformers computes it."""
    import torch
    from transformers import BertConfig, BertModel

    from model.device import single_threaded

    config = BertConfig(
        vocab_size=1000,
        hidden_size=shape.width,
        num_attention_heads=shape.heads,
        num_hidden_layers=_PROBE_LAYERS,
        intermediate_size=shape.feed_forward,
    )
    with single_threaded(), torch.inference_mode(), torch.random.fork_rng(devices=[]):
        model = BertModel(config).eval().to(getattr(torch, precision))
        ids = torch.randint(0, 1000, (16, 32))
        each = _best(lambda: model(input_ids=ids))
    return shape.encoder_operations(16 * 32, 32) * _PROBE_LAYERS / shape.layers / each


def _t5_rates(shape: Shape, precision: Precision) -> Iterator[tuple[str, float]]:
    import numpy as np
    import torch
    from transformers import T5Config, T5ForConditionalGeneration

    from model.prompt.passes import Passes
    from model.prompt.rows import Row
    from model.t5.backbone import backbone_of
    from model.text.tokenized_tasks import Example

    layers = min(_PROBE_LAYERS, shape.layers)
    config = T5Config(
        vocab_size=shape.vocabulary,
        d_model=shape.width,
        d_kv=shape.head_width,
        d_ff=shape.feed_forward,
        num_heads=shape.heads,
        num_layers=layers,
        decoder_start_token_id=0,
        tie_word_embeddings=True,
        feed_forward_proj="gated-gelu" if shape.gated else "relu",
    )
    model = T5ForConditionalGeneration(config).eval().requires_grad_(requires_grad=False)
    model = model.to(getattr(torch, precision))
    passes = Passes(backbone_of(model))
    length, tokens = 96, _PROBE_TOKENS if shape.width < _WIDE else _PROBE_TOKENS // 4
    chance = np.random.default_rng(0)
    ids = [chance.integers(3, shape.vocabulary - 3, length - 16, dtype=np.int32) for _ in range(tokens // length)]
    rows = [Row(Example("e", 0, each, np.array([4, 5], np.int32)), 0, 1.0) for each in ids]
    prompts = torch.randn(1, 16, shape.width)
    part = replace(shape, layers=layers, decoder_layers=layers)
    forward = part.operations(len(rows), length)
    yield FORWARD, forward / _best(lambda: passes.losses_of(prompts, rows))
    yield PASS, 2 * forward / _best(lambda: passes.run(prompts, rows))

    def twice() -> None:
        graphs = passes.run(prompts, rows, graph=True).graphs
        passes.hessian_product(prompts, rows, prompts, graphs)

    yield TWICE, 5 * forward / _best(twice)


def _best(work: Callable[[], object]) -> float:
    """Return the least processor time of some calls; the first is a warm-up."""
    work()
    times: list[float] = []
    started = time.process_time()
    while len(times) < 2 or (time.process_time() - started < _PROBE_SECONDS and len(times) < 20):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return min(times)
