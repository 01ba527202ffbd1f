"""Workspaces for the soak: a fresh one for kills, a finished one for faults and fuzz, and what they must come to."""

import hashlib
import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import orjson
import psutil

from storage.lockfile import read_pipeline
from tasks.stage.contract import MARKER

ROOT = Path(__file__).resolve().parents[2]
SUPMER = str(Path(sys.executable).parent / "supmer")
PARTS = (
    ".dvc/config", ".dvc/.gitignore", ".dvcignore", ".gitignore", "dvc.yaml", "forgotten.csv", "inputs.yaml",
    "inputs/README.md", "params.yaml", "profiles", "prompts", "flows", "model", "storage", "tasks",
)  # fmt: skip
MEASURED = ("data/tuning/costs", "report")  # these hold times and memory: no two runs write the same
GONE_SECONDS = 30
PROFILE = "offline-tiny"

Digests = dict[str, str]


@dataclass(frozen=True)
class Rooms:
    """A folder with two workspaces: `fresh`, in which nothing has run, and `whole`, in which everything has."""

    folder: Path

    @property
    def fresh(self) -> Path:
        return self.folder / "fresh"

    @property
    def whole(self) -> Path:
        return self.folder / "whole"

    def copy(self, source: Path, name: str) -> Path:
        """Copy a workspace, with its links and times, to a place of its own; one that is there is replaced."""
        place = self.folder / name
        shutil.rmtree(place, ignore_errors=True)
        subprocess.run(["cp", "-a", source, place], check=True)
        return place


def environment() -> dict[str, str]:
    """Return the environment without settings of Prefect and of supmer, so that every run starts its own server."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PREFECT_", "SUPMER_"))}
    return kept | {"COLUMNS": "200", "NO_COLOR": "1", "HF_HUB_OFFLINE": "1"}


def make_rooms(folder: Path) -> Rooms:
    """Make both workspaces; the finished one lends its empty Prefect database, which takes half a minute to make."""
    rooms = Rooms(folder)
    rooms.fresh.mkdir(parents=True)
    for part in PARTS:
        (rooms.fresh / part).parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / part).is_dir():
            shutil.copytree(ROOT / part, rooms.fresh / part, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copyfile(ROOT / part, rooms.fresh / part)
    subprocess.run(["git", "init", "--quiet"], cwd=rooms.fresh, check=True)
    supmer(rooms.fresh, "params", "use", PROFILE)
    supmer(rooms.copy(rooms.fresh, "whole"), "run")
    shutil.copytree(rooms.whole / ".prefect", rooms.fresh / ".prefect")
    return rooms


def supmer(root: Path, *arguments: str, seconds: float = 600) -> str:
    """Run a command that must end well, and return what it printed."""
    done = subprocess.run(
        [SUPMER, *arguments],
        cwd=root,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=seconds,
        errors="replace",
    )
    if done.returncode:
        raise SystemExit(f"supmer {' '.join(arguments)}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout + done.stderr


def outputs(root: Path) -> dict[str, Digests]:
    """Return the digests of the files of each output that is there; of measurements only the names."""
    there = [path for path in read_pipeline(root).artifacts() if (root / path).exists()]
    return {path: digests(root / path) if not path.startswith(MEASURED) else _names(root / path) for path in there}


def _names(top: Path) -> Digests:
    return dict.fromkeys(digests(top), "measured")


def digests(top: Path) -> Digests:
    files = [top] if top.is_file() else sorted(path for path in top.rglob("*") if path.is_file())
    return {str(path.relative_to(top)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def finished_shards(root: Path) -> dict[str, tuple[int, int]]:
    """Return every finished shard, with what would change if it were made again."""
    shards = {}
    for path in (root / ".supmer/shards").glob(f"*/*/*/{MARKER}"):
        if ".partial-" not in str(path):
            status = path.stat()
            shards[str(path.relative_to(root))] = (status.st_ino, status.st_mtime_ns)
    return shards


def events(root: Path) -> list[tuple[str, str]]:
    """Return the stage and the type of each event of the lineage."""
    path = root / "lineage/events.jsonl"
    lines = path.read_bytes().splitlines() if path.exists() else []
    read = []
    for line in lines:
        try:
            event = orjson.loads(line)
        except orjson.JSONDecodeError:  # the last line, which is being written or was cut by a kill
            continue
        read.append((event["job"]["name"], event["eventType"]))
    return read


def processes_of(root: Path) -> list[psutil.Process]:
    """Return every process whose working directory is this workspace."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.cwd() == str(root):
                found.append(process)
        except psutil.Error:
            continue
    return found


def left_running(root: Path) -> list[str]:
    """Wait until no process is left in a workspace; return those that stay, which are then ended."""
    deadline = time.monotonic() + GONE_SECONDS
    while (processes := processes_of(root)) and time.monotonic() < deadline:
        time.sleep(0.05)
    said = []
    for process in processes:
        try:
            said.append(" ".join(process.cmdline())[:100])
            process.kill()
        except psutil.Error:
            continue
    return said
