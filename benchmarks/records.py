"""What a benchmark measured, as a JSON file in benchmarks/records/: the tables of docs/results.md are made of these.

A record holds the arguments, the machine, the versions of the packages, the commit, the date and every sample. It holds
no path, host or user: of an argument that is a path, only the last part is kept.
"""

import argparse
import os
import platform
import re
import subprocess
import sys
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import orjson
import psutil

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "benchmarks" / "records"
CODE = ("benchmarks/*.py", "flows", "model", "storage", "supmer", "tasks")
PACKAGES = ("dvc", "duckdb", "faiss-cpu", "numpy", "peft", "prefect", "pyarrow", "scikit-learn",
            "sentence-transformers", "torch", "transformers")  # fmt: skip
INSTRUCTIONS = re.compile(r"(sse4_2|fma|f16c|avx\w*|amx\w*|neon|asimd\w*|sve\w*|i8mm|bf16)")
HIDDEN = argparse.SUPPRESS

Row = dict[str, Any]


class Record:
    """The record of one run of a benchmark; `add` rows while it runs, `write` at the end."""

    def __init__(self, script: str, parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
        self.benchmark = Path(script).stem.removeprefix("bench_")
        self.arguments = _arguments(parser, options)
        self.loads = [os.getloadavg()[0]]
        self.rows: list[Row] = []

    def add(self, **row: Any) -> None:
        """Keep a row: names and sizes as they are, measurements as lists with every sample."""
        self.rows.append(row)

    @property
    def path(self) -> Path:
        """The file of the record: the same arguments give the same file."""
        parts = [f"{name}-{_text(value)}" if value is not True else name for name, value in self.arguments.items()]
        name = "--".join([self.benchmark, *parts])
        return FOLDER / (re.sub(r"[^A-Za-z0-9.=_-]+", "-", name)[:150] + ".json")

    def write(self) -> None:
        """Write the record, and say where it is."""
        self.loads.append(os.getloadavg()[0])
        FOLDER.mkdir(exist_ok=True)
        content = {
            "benchmark": self.benchmark,
            "command": " ".join([f"python benchmarks/bench_{self.benchmark}.py", *_words(self.arguments)]),
            "arguments": self.arguments,
            "date": datetime.now(UTC).isoformat(timespec="minutes"),
            "commit": commit(),
            "machine": machine(),
            "load": [round(load, 1) for load in self.loads],
            "versions": versions(),
            "rows": _rounded(self.rows),
        }
        self.path.write_bytes(orjson.dumps(content, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))
        print(f"record: {self.path.relative_to(ROOT)}", flush=True)


def read(benchmark: str) -> list[Row]:
    """Return the records of a benchmark, the oldest first."""
    records = [orjson.loads(path.read_bytes()) for path in sorted(FOLDER.glob("*.json"))]
    own = [record for record in records if record["benchmark"] == benchmark]
    return sorted(own, key=lambda record: record["date"])


def machine() -> Row:
    """Return what is known of this machine, without its name."""
    lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines() if Path("/proc/cpuinfo").exists() else []
    fields = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    flags = fields.get("flags", fields.get("Features", "")).split()
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {
        "processor": fields.get("model name", platform.machine()),
        "cores": os.cpu_count(),
        "usable_cores": usable,
        "memory_gb": round(psutil.virtual_memory().total / 1e9, 1),
        "instruction_sets": [flag for flag in flags if INSTRUCTIONS.fullmatch(flag)],
    }


def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that decide about speed."""
    installed = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            installed[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return installed


def commit() -> str:
    """Return the commit, with a plus sign if the code has changes that are not committed."""
    git = ["git", "-C", str(ROOT)]
    head = subprocess.run([*git, "rev-parse", "--short=10", "HEAD"], capture_output=True, text=True, check=False)
    status = [*git, "status", "--porcelain", "--untracked-files=no", "--", *CODE]
    changed = subprocess.run(status, capture_output=True, text=True, check=False).stdout.strip()
    return head.stdout.strip() + ("+" if changed else "") or "unknown"


def _arguments(parser: argparse.ArgumentParser, options: argparse.Namespace) -> Row:
    """Return the arguments that differ from their defaults."""
    chosen = {}
    for action in parser._actions:  # noqa: SLF001 - argparse has no other list of its arguments
        value = getattr(options, action.dest, None)
        if action.help != HIDDEN and value not in (None, action.default):
            chosen[action.dest.replace("_", "-")] = _plain(value)
    return chosen


def _plain(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value.name if isinstance(value, Path) else value


def _text(value: Any) -> str:
    return "-".join(map(str, value)) if isinstance(value, list) else str(value)


def _words(arguments: Row) -> list[str]:
    words = []
    for name, value in arguments.items():
        words.append(f"--{name}")
        if value is not True:
            words += [f'"{item}"' if " " in str(item) else str(item) for item in _as_list(value)]
    return words


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _rounded(value: Any) -> Any:
    """Return a value with numbers of six digits: more are noise, and make a record hard to read."""
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    return [_rounded(item) for item in value] if isinstance(value, list | tuple) else value


if __name__ == "__main__":
    sys.stdout.buffer.write(orjson.dumps(machine() | versions(), option=orjson.OPT_INDENT_2))
