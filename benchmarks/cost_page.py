"""Make the README's table of what the paper's profiles cost: `python benchmarks/cost_page.py`.

The figures are those of `supmer cost --profile NAME --device NAME`, before anything has run.
"""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(Path(__file__).resolve().parent)]

from pages import table, with_part  # noqa: E402

from flows.commands.cost import amount, duration  # noqa: E402
from model.prompt.sizes import TRAINED_WEIGHT_BYTES  # noqa: E402
from tasks.cost.devices import device_named  # noqa: E402
from tasks.cost.estimate import RunCost, StageCost, estimate, plan_of  # noqa: E402
from tasks.cost.machine import named_machine  # noqa: E402
from tasks.cost.work import trained  # noqa: E402
from tasks.params.file import load  # noqa: E402
from tasks.params.schema import Params  # noqa: E402

PAGE, PROGRAM, PART = ROOT / "README.md", "benchmarks/cost_page.py", "cost of the paper"
PROFILES = ("paper-t5-base", "official-code", "paper-flan-t5-xl")
DEVICES = ("A100-80", "RTX-4090", "L4", "V100")
LARGE, SMALL_GPU = "paper-flan-t5-xl", "RTX-4090"
OPERATIONS = ("FLOP", "kFLOP", "MFLOP", "GFLOP", "TFLOP", "PFLOP", "EFLOP")


def main() -> None:
    """Write the table."""
    PAGE.write_text(filled(PAGE.read_text("utf-8")), "utf-8")


def filled(page: str) -> str:
    """Return the page with its table made anew."""
    return with_part(page, PART, PROGRAM, content())


def content() -> str:
    """Return the table, and the sentence about the large model on a GPU of 24 GB."""
    rows = [_row(profile, device) for profile in PROFILES for device in DEVICES]
    columns = ("profile", "GPU", "SUPMER's training", "GPU memory", "all trainings", "embed", "tune", "disk")
    return f"{table(columns, rows)}\n\n{large_model()}"


def _row(profile: str, device: str) -> tuple[str, ...]:
    every, alone = _cost(profile, device), _cost(profile, device, alone=True)
    stages = {stage.stage: stage for stage in every.stages}
    one = next(stage for stage in alone.stages if stage.stage == "metatrain")
    memory = f"{one.device_memory / 1e9:.0f} GB" if one.fits else "does not fit"
    trainings = len(trained(_params(profile)))
    timed = [stages[name] for name in ("metatrain", "embed", "tune")]
    times = [duration(stage.seconds) + shared(stage) if stage.fits else "does not fit" for stage in timed]
    own = f"{duration(one.seconds)}, {amount(one.operations, OPERATIONS)}" if one.fits else "does not fit"
    disk = f"{every.total.disk / 1e9:.0f} GB"
    return (f"`{profile}`", device, own, memory, f"{times[0]} ({trainings})", *times[1:], disk)


def shared(stage: StageCost) -> str:
    """Return how many GPUs the fine-tuning of a stage needs, if one is too small."""
    return f" (ft: {stage.devices} GPUs)" if stage.devices > 1 else ""


def large_model() -> str:
    """Return how the training of the largest model fits into a GPU of 24 GB, or that it does not."""
    stages = {one.stage: one for one in _cost(LARGE, SMALL_GPU, alone=True).stages}
    stage, tuning = stages["metatrain"], stages["tune"]
    plan = plan_of(_params(LARGE), None)
    size = f"{plan.backbone.name} ({plan.backbone.parameters / 1e9:.1f} billion parameters)"
    memory = device_named(SMALL_GPU).memory_gb
    reasons = [line for line in stage.assumptions if line.startswith(("weights", "chunks"))]
    if not stage.fits:
        return f"Meta-training of {size} does not fit into {memory:g} GB: {'; '.join(reasons)}."
    return (
        f"Meta-training of {size} fits into {memory:g} GB, with a peak of {stage.device_memory / 1e9:.0f} GB: "
        f"{'; '.join(reasons)}. The backbone is frozen, so it has neither gradients nor optimizer states. In float32 "
        f"(V100) the weights alone take {plan.backbone.weights('float32', packed=False) / 1e9:.0f} GB. Fine-tuning of "
        f"all weights (`ft`) keeps {TRAINED_WEIGHT_BYTES} bytes for each: {tuning.devices} GPUs of {memory:g} GB share "
        "them."
    )


def _params(profile: str) -> Params:
    return load(ROOT / "profiles" / f"{profile}.yaml")


def _cost(profile: str, device: str, *, alone: bool = False) -> RunCost:
    """Return the cost of a profile, or of SUPMER's training alone."""
    params = _params(profile)
    if alone:
        params = params.model_copy(update={"metatrain": params.metatrain.model_copy(update={"variants": ["supmer"]})})
    return estimate(plan_of(params, None), named_machine(device_named(device), None), profile)


if __name__ == "__main__":
    main()
