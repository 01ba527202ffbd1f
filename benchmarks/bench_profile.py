"""Show where the processor time of each stage goes: `python benchmarks/bench_profile.py --downloads FOLDER`.

The stages of a profile run one after the other in this process with one thread, without Prefect, DVC and workers, in a
temporary workspace. A timer that counts processor time interrupts them a hundred times a second; the time since the
last interruption belongs to the function of this project that runs then or has called a library. So does what C code
does: the backward pass of autograd is the call that started it, but the derivatives that this project has written out
are functions of their own.

Meta-training takes few steps and tuning one seed (`--steps`, `--seeds`), because shares hardly depend on them.
`--downloads` names a folder of wheels that a workspace has fetched (.supmer/downloads); without it they are fetched.
`--stages` leaves out the other stages, whose outputs are then taken from `--workspace`.
"""

import argparse
import os
import signal
import sys
import tempfile
import time
from collections import Counter
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import Any, Self

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
os.environ.setdefault("OMP_NUM_THREADS", "1")

import yaml  # noqa: E402
from records import Record  # noqa: E402
from stages import silent_stage  # noqa: E402

from storage import paths  # noqa: E402
from tasks.params.file import load  # noqa: E402
from tasks.stage.contract import InlineFanOut  # noqa: E402

STAGES = ("acquire", "sample", "embed", "cluster", "materialize", "metatrain", "tune", "report")
PROJECT = tuple(str(ROOT / name) + os.sep for name in ("model", "storage", "tasks"))
INTERVAL, SHOWN, IMPORTS = 0.01, 12, "imports"


class Sampler:
    """Counts the processor time of functions while it is entered."""

    def __init__(self) -> None:
        self.spent: Counter[str] = Counter()
        self._last = 0.0

    def __enter__(self) -> Self:
        self._last = time.process_time()
        signal.signal(signal.SIGPROF, self._sample)
        signal.setitimer(signal.ITIMER_PROF, INTERVAL, INTERVAL)
        return self

    def __exit__(self, *_error: object) -> None:
        signal.setitimer(signal.ITIMER_PROF, 0, 0)
        self.spent["the end"] += time.process_time() - self._last  # type: ignore[assignment]

    def _sample(self, _signal: int, frame: FrameType | None) -> None:
        now = time.process_time()
        self.spent[place(frame)] += now - self._last  # type: ignore[assignment]
        self._last = now


def place(frame: FrameType | None) -> str:
    """Return the innermost function of the project, or that modules are being imported."""
    while frame is not None and not frame.f_code.co_filename.startswith(PROJECT):
        if "importlib" in frame.f_code.co_filename:
            return IMPORTS
        frame = frame.f_back
    if frame is None:
        return "the rest"
    return f"{Path(frame.f_code.co_filename).relative_to(ROOT).with_suffix('')}:{frame.f_code.co_qualname}"


def sections(profile: str, steps: int, seeds: int) -> dict[str, Any]:
    """Return the parameters of a profile, with fewer steps of meta-training and seeds of tuning."""
    params: dict[str, Any] = load(ROOT / "profiles" / f"{profile}.yaml").model_dump()
    metatrain, tune = params["metatrain"], params["tune"]
    metatrain |= {"steps": min(steps, metatrain["steps"]), "validate_every": min(steps, metatrain["validate_every"])}
    metatrain["warmup_steps"] = min(steps, metatrain["warmup_steps"])
    metatrain["plain_steps"] = min(steps // 2, metatrain["plain_steps"])
    tune["seeds"] = tune["seeds"][:seeds]
    return params


def declared(name: str) -> tuple[list[str], list[str]]:
    """Return the inputs and outputs of a stage in dvc.yaml."""
    stage = yaml.safe_load((ROOT / "dvc.yaml").read_text("utf-8"))["stages"][name]
    written = [*stage.get("outs", []), *stage.get("metrics", []), *stage.get("plots", [])]
    return stage["deps"], [next(iter(out)) if isinstance(out, dict) else out for out in written]


def link_inputs(name: str, root: Path, workspace: Path) -> None:
    """Link what a stage reads, and no stage has written here, to a workspace that has it."""
    for path in declared(name)[0]:
        if path.startswith(("data", "artifacts")) and not (root / path).exists():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).symlink_to(workspace.absolute() / path)


def profiled(name: str, root: Path, params: dict[str, Any]) -> Counter[str]:
    """Run a stage; return the seconds of each function."""
    stage = silent_stage(name, root, params, *declared(name), InlineFanOut())
    run = import_module(f"tasks.{name}.stage").run
    with Sampler() as sampler:
        run(stage)
    stage.publish()
    return sampler.spent


def main() -> None:
    """Run the stages, print the largest parts of each and write a record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--profile", default="quickstart")
    parser.add_argument("--downloads", type=Path, help="folder of fetched wheels")
    parser.add_argument("--stages", nargs="+", choices=STAGES, default=STAGES, help="only these")
    parser.add_argument("--workspace", type=Path, help="where the stages that are left out have run")
    parser.add_argument("--steps", type=int, default=6, help="steps of meta-training")
    parser.add_argument("--seeds", type=int, default=1, help="seeds of tuning")
    options = parser.parse_args()
    import torch

    torch.set_num_threads(1)
    record = Record(__file__, parser, options)
    params = sections(options.profile, options.steps, options.seeds)
    with tempfile.TemporaryDirectory(prefix="bench_profile_") as folder:
        root = Path(folder)
        for name in ("inputs", paths.DOWNLOADS.parent):
            (root / name).mkdir(parents=True)
        (root / paths.FORGOTTEN).write_bytes((ROOT / paths.FORGOTTEN).read_bytes())
        (root / paths.SHIPPED_PROMPTS).symlink_to(ROOT / paths.SHIPPED_PROMPTS)
        if options.downloads:
            (root / paths.DOWNLOADS).symlink_to(options.downloads.absolute())
        for name in options.stages:
            if options.workspace:
                link_inputs(name, root, options.workspace)
            spent = profiled(name, root, params)
            total = sum(spent.values())
            parts = [[part, seconds / total] for part, seconds in spent.most_common(SHOWN)]
            record.add(profile=options.profile, stage=name, cpu_seconds=[total], parts=parts)
            print(f"{name}: {total:.1f} s of processor time", flush=True)
            for part, share in parts:
                print(f"  {100 * share:5.1f} %  {part}", flush=True)
    record.write()


if __name__ == "__main__":
    main()
