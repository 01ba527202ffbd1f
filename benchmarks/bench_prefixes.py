"""Compare tuning of prefixes together, apart, and by PEFT in the decoder: `python benchmarks/bench_prefixes.py`.

15 runs (5 seeds × 3 learning rates) of P-Tuning v2 take the same steps on the same batches:

    PEFT            one run at a time: prefixes of `peft` in the decoder's self-attention of transformers' T5
    decoder, apart  one run at a time through `model.tuning.tuner`, prefixes in the same place
    decoder         the same, all runs together
    apart, all      one run at a time, prefixes in all places
    all             the same, all runs together

PEFT gives prefix positions a position bias, which is set to 0 in the model; its losses must then be those of
`decoder`. Processor time is printed, which is more reliable than the clock on a shared machine. Evaluation is left out.
"""

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import numpy as np  # noqa: E402
import torch  # noqa: E402
from numpy.typing import NDArray  # noqa: E402
from peft import PrefixTuningConfig, TaskType, get_peft_model  # noqa: E402
from records import Record  # noqa: E402
from transformers import T5Config, T5ForConditionalGeneration  # noqa: E402

from model.prompt.prefixes import PrefixPasses, PrefixShape, initial_prefixes  # noqa: E402
from model.t5.backbone import backbone_of  # noqa: E402
from model.t5.prefix_attention import PLACES  # noqa: E402
from model.text.tokenized_tasks import Example, pad  # noqa: E402
from model.tuning.runs import TuneForm, TuneRun  # noqa: E402
from model.tuning.tuner import Tuner  # noqa: E402

# An odd number of layers: of an even number, PEFT gives two each the same prefix.
SHAPE = {"d_model": 256, "d_kv": 64, "num_heads": 4, "d_ff": 1024, "num_layers": 5}
VOCABULARY, LENGTHS = 32_128, (12, 60)
LABELS = tuple(np.array([VOCABULARY - 29, word], np.int32) for word in (4273, 150))
FORM = TuneForm(batch_size=16, epochs=10_000, evaluate_every=10_000)
Losses = NDArray[np.float64]


def main() -> None:
    """Run every way once and print processor seconds and the difference from PEFT."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=20, help="prefix positions")
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    model = _model()
    examples = _examples()
    decoder, everywhere = (_runs(model, places, arguments.tokens, examples) for places in (("decoder",), PLACES))
    ways: dict[str, Callable[[], Losses]] = {
        "decoder, apart": lambda: np.concatenate([_ours(decoder[0], [run], arguments.steps) for run in decoder[1]]),
        "decoder": lambda: _ours(*decoder, arguments.steps),
        "apart, all": lambda: np.concatenate([_ours(everywhere[0], [run], arguments.steps) for run in everywhere[1]]),
        "all": lambda: _ours(*everywhere, arguments.steps),
        "PEFT": lambda: np.array([_peft(model, run, arguments.steps) for run in decoder[1]]),
    }
    record = Record(__file__, parser, arguments)
    losses: dict[str, Losses] = {}
    spent: dict[str, float] = {}
    for name, way in ways.items():
        began = time.process_time()
        losses[name] = way()
        spent[name] = (time.process_time() - began) / arguments.steps
        print(f"{name:16}{spent[name]:8.2f} s of processor time a step of {len(decoder[1])} runs", flush=True)
    for name, seconds in spent.items():
        row = {"way": name, "runs": len(decoder[1]), "tokens": arguments.tokens, "cpu_seconds": [seconds]}
        if name in ("decoder, apart", "decoder"):  # PEFT has no prefixes in other places to compare with
            row["largest_difference"] = float(np.abs(losses[name] / losses["PEFT"] - 1).max())
            print(f"{name}: losses differ from PEFT's by at most {row['largest_difference']:.1e}")
            assert row["largest_difference"] < 1e-3
        record.add(**row)
    record.write()


def _model() -> Any:
    torch.manual_seed(0)
    config = T5Config(vocab_size=VOCABULARY, decoder_start_token_id=0, pad_token_id=0, **SHAPE)
    model = T5ForConditionalGeneration(config).eval().requires_grad_(requires_grad=False)
    model.decoder.block[0].layer[0].SelfAttention.relative_attention_bias.weight.zero_()
    return model


def _examples() -> list[Example]:
    chance = np.random.default_rng(0)
    lengths = chance.integers(*LENGTHS, 32)
    return [
        Example(str(place), place % 2, chance.integers(3, VOCABULARY - 100, length).astype(np.int32), LABELS[place % 2])
        for place, length in enumerate(lengths)
    ]


def _runs(
    model: Any, places: Sequence[str], tokens: int, examples: Sequence[Example]
) -> tuple[PrefixPasses, list[TuneRun]]:
    backbone = backbone_of(model)
    shape = PrefixShape.of(backbone, places, "benchmark")
    runs = [
        TuneRun(initial_prefixes(tokens, shape.width, seed), rate, seed, examples, [])
        for seed in (10, 20, 30, 40, 50)
        for rate in (0.005, 0.01, 0.03)
    ]
    return PrefixPasses.after(shape, backbone), runs


def _ours(passes: PrefixPasses, runs: Sequence[TuneRun], steps: int) -> Losses:
    tuner = Tuner(passes, runs, LABELS, FORM)
    for _ in range(steps):
        tuner.descend()
    return np.array(tuner.losses())


def _peft(model: Any, run: TuneRun, steps: int) -> list[float]:
    layers, (tokens, width) = SHAPE["num_layers"], run.prompt.shape
    config = PrefixTuningConfig(task_type=TaskType.SEQ_2_SEQ_LM, num_virtual_tokens=tokens)
    adapted = get_peft_model(model, config)
    weight = adapted.prompt_encoder["default"].embedding.weight
    own = run.prompt.view(tokens, layers, -1)
    with torch.no_grad():
        for layer in range(layers):  # PEFT gives decoder layer i the prefix 2·i mod L
            weight.view(tokens, layers, -1)[:, 2 * layer % layers] = own[:, layer]
    assert weight.numel() == tokens * width
    adam = torch.optim.AdamW([weight], lr=run.learning_rate)
    losses = []
    for step in range(steps):
        batch = pad(run.batch(step, FORM), 0)
        ids, mask, labels = (torch.from_numpy(one).long() for one in (batch.input_ids, batch.mask, batch.target_ids))
        loss = adapted(input_ids=ids, attention_mask=mask, labels=labels).loss * labels.shape[1]
        adam.zero_grad()
        loss.backward()
        adam.step()
        losses.append(loss.item())
    return losses


if __name__ == "__main__":
    main()
