"""Compare `supmer cost` with a run of a profile in a fresh workspace: `python benchmarks/bench_cost.py`.

The estimate is made before anything has run there. The times and the peak memory of the stages are those that
`supmer run` records. Estimates are for an otherwise idle machine: if other work runs on it, the processor time of a
stage, divided by the cores, is compared instead of the clock (`--by cpu`). The processor time of Prefect's server is
left out.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from datetime import datetime
from pathlib import Path

import psutil
from records import Record, Row

ROOT = Path(__file__).resolve().parents[1]
CLONED = (
    ".dvc",
    ".dvcignore",
    ".gitignore",
    "dvc.yaml",
    "forgotten.csv",
    "inputs.yaml",
    "params.yaml",
    "profiles",
    "prompts",
)
CODE = ("flows", "model", "storage", "tasks")
SUPMER = str(Path(sys.executable).parent / "supmer")
_POLL = 0.2

Sample = tuple[float, float]
"""A moment, and the processor time that all processes have used until then."""


def workspace(folder: Path, profile: str, name: str = "supmer") -> Path:
    """Make a workspace with the code of this repository and a profile."""
    root = folder / name
    root.mkdir()
    for part in (*CLONED, *CODE):
        if (ROOT / part).is_dir():
            shutil.copytree(ROOT / part, root / part, ignore=shutil.ignore_patterns("__pycache__", "cache", "tmp"))
        else:
            shutil.copyfile(ROOT / part, root / part)
    (root / "inputs").mkdir()
    subprocess.run(["git", "init", "--quiet"], cwd=root, check=True)
    subprocess.run([SUPMER, "params", "use", profile], cwd=root, check=True, capture_output=True)
    return root


def followed(process: subprocess.Popen[bytes], samples: list[Sample]) -> None:
    """Add samples of the processor time of a process and its children, without Prefect's server, until it ends."""
    spent: dict[int, float] = {}
    try:
        parent = psutil.Process(process.pid)
        while parent.is_running() and parent.status() != psutil.STATUS_ZOMBIE:
            for one in [parent, *parent.children(recursive=True)]:
                try:
                    if "flows.server" not in " ".join(one.cmdline()):
                        times = one.cpu_times()
                        spent[one.pid] = times.user + times.system
                except psutil.Error:
                    continue
            samples.append((time.time(), sum(spent.values())))
            time.sleep(_POLL)
    except psutil.NoSuchProcess:
        return


def run(root: Path) -> list[Sample]:
    samples: list[Sample] = []
    process = subprocess.Popen([SUPMER, "run"], cwd=root, stdout=subprocess.DEVNULL)
    watcher = threading.Thread(target=followed, args=(process, samples))
    watcher.start()
    process.wait()
    watcher.join()
    if process.returncode:
        raise SystemExit(process.returncode)
    return samples


def stage_runs(root: Path) -> dict[str, tuple[float, float, int]]:
    """Return the moments at which each stage began and ended, and its peak of memory in bytes, by the lineage."""
    starts: dict[str, float] = {}
    runs = {}
    for line in (root / "lineage" / "events.jsonl").read_text("utf-8").splitlines():
        event = json.loads(line)
        name, moment = event["job"]["name"], datetime.fromisoformat(event["eventTime"]).timestamp()
        if event["eventType"] == "START":
            starts[name] = moment
        elif event["eventType"] == "COMPLETE":
            record = event["run"]["facets"]["supmer_stage"]["record"]
            runs[name] = (starts[name], moment, record["peak_memory_bytes"])
    return runs


def measured(root: Path) -> dict[str, Row]:
    """Run the profile; return the seconds, processor time and peak memory of each stage."""
    samples = run(root)

    def used(moment: float) -> float:
        return max((cpu for at, cpu in samples if at <= moment), default=0.0)

    return {
        name: {"seconds": [end - start], "cpu_seconds": [used(end + _POLL) - used(start)], "peak_mb": peak / 1e6}
        for name, (start, end, peak) in stage_runs(root).items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--profile", default="offline-tiny")
    parser.add_argument("--by", choices=["clock", "cpu"], default="clock", help="the time that is compared")
    options = parser.parse_args()
    record = Record(__file__, parser, options)
    cores = len(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory(prefix="bench_cost_") as folder:
        root = workspace(Path(folder), options.profile)
        estimate = json.loads(subprocess.check_output([SUPMER, "cost", "--json"], cwd=root))
        results = measured(root)
    for stage in estimate["stages"]:
        taken = results.get(stage["stage"])
        if taken is None:
            continue
        if options.by == "cpu":
            taken |= {"clock_seconds": taken["seconds"], "seconds": [spent / cores for spent in taken["cpu_seconds"]]}
        estimated = {"estimated_seconds": stage["seconds"], "estimated_mb": stage["host_memory"] / 1e6}
        record.add(profile=options.profile, stage=stage["stage"], **taken, **estimated)
        pairs = [(taken["seconds"][0], stage["seconds"], "s"), (taken["peak_mb"], estimated["estimated_mb"], "MB")]
        told = [f"{real:7.1f} {unit}, estimated {guess:7.1f}, {guess / real:.2f}" for real, guess, unit in pairs]
        print(f"{stage['stage']:12} {'; '.join(told)}", flush=True)
    record.write()


if __name__ == "__main__":
    main()
