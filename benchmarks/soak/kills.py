"""Random kills over all stages: a workspace is run again and again, struck each time, until it is whole.

A strike hits the process group, the main process, a worker or Prefect's server, at a random time or in the stage whose
turn it is, often just after the run got on. Between two runs an output may be deleted. Nothing that was finished may be
lost or done again, and the files must be those of an undisturbed run.
"""

import os
import random
import shutil
import signal
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import psutil

from soak.findings import Findings
from soak.rooms import SUPMER, Digests, Rooms, environment, events, finished_shards, left_running, outputs

FATAL = ("process group", "main process")
PASSING = ("worker", "server")  # the run goes on
DELETED_SHARE = 0.15
PASSING_SHARE = 0.4
SLOW_SECONDS = 300  # a run of the tiny profile takes one minute
STRIKES_IN_A_RUN = 3
RANDOM_SHARE = 0.2  # strikes at any time; the others take the stages in turn
STAGE_SECONDS = 4  # in which most stages of the tiny profile end
STAGES = ("acquire", "sample", "embed", "cluster", "materialize", "metatrain", "tune", "report")
MOST_FAILURES = 3


@dataclass
class Room:
    """A workspace under attack, and what is known to be finished in it."""

    root: Path
    wanted: dict[str, Digests]
    findings: Findings
    generator: random.Random
    shards: dict[str, tuple[int, int]] = field(default_factory=dict)
    strikes: int = 0
    events_before: int = 0  # those of earlier runs
    failures: int = 0  # runs that ended by themselves, and not well


def kill_round(rooms: Rooms, name: str, wanted: dict[str, Digests], findings: Findings, strikes: int) -> None:
    """Strike a fresh workspace up to so many times, let it end, and compare every file with those wanted."""
    room = Room(rooms.copy(rooms.fresh, name), wanted, findings, random.Random(name))
    while not _run(room, strikes):
        if room.failures == MOST_FAILURES:  # the next ones would fail alike
            return
        _check_kept(room)
        if room.generator.random() < DELETED_SHARE:
            _delete_an_output(room)
    _check_end(room)
    shutil.rmtree(room.root)


def _run(room: Room, strikes: int) -> bool:
    """Run the pipeline and strike it; return True if it came to its end."""
    room.events_before = len(events(room.root))
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(
            [SUPMER, "run", "--workers", str(room.generator.choice((1, 2)))],
            cwd=room.root,
            env=environment(),
            stdout=said,
            stderr=said,
            start_new_session=True,
        )
        deadline = time.monotonic() + SLOW_SECONDS
        for kind in _kinds(room, strikes):
            if not _await_moment(room, process, strikes, deadline) or _strike(room, process, kind) in FATAL:
                break
        return _ended(room, process, deadline, said)


def _kinds(room: Room, strikes: int) -> Iterator[str]:
    """Yield the kinds of the strikes at one run: some from which it recovers, then one that ends it."""
    for number in range(STRIKES_IN_A_RUN):
        if room.strikes >= strikes:
            return
        last = number == STRIKES_IN_A_RUN - 1 or room.generator.random() > PASSING_SHARE
        yield room.generator.choice(FATAL if last else PASSING)
        if last:
            return


def _await_moment(room: Room, process: subprocess.Popen[bytes], strikes: int, deadline: float) -> bool:
    """Wait for a random time, or until the run is in the stage whose turn it is; return False if it ended before."""
    generator = room.generator
    if generator.random() < RANDOM_SHARE:
        until = time.monotonic() + generator.uniform(0.1, 8)
        while process.poll() is None and time.monotonic() < until:
            time.sleep(0.02)
        return process.poll() is None
    turn = STAGES[min(room.strikes * len(STAGES) // strikes, len(STAGES) - 1)]
    while process.poll() is None and time.monotonic() < deadline and not _reached(room, turn):
        time.sleep(0.02)
    _await_progress(room, process, generator)
    return process.poll() is None and time.monotonic() < deadline


def _reached(room: Room, turn: str) -> bool:
    """Return True if the run is in a stage, or in a later one."""
    return _stage(room) in STAGES[STAGES.index(turn) :]


def _await_progress(room: Room, process: subprocess.Popen[bytes], generator: random.Random) -> None:
    """Wait a moment, which a shard or a checkpoint that is written cuts short."""
    until, before = (
        time.monotonic() + generator.uniform(0, STAGE_SECONDS),
        _progress(room.root) + generator.randint(0, 3),
    )
    while process.poll() is None and time.monotonic() < until and _progress(room.root) <= before:
        time.sleep(0.02)
    time.sleep(generator.uniform(0, 0.3))


def _progress(root: Path) -> int:
    """Return a number that grows whenever a shard, a checkpoint, an output or an event is written."""
    store = root / ".supmer/shards"
    kept = sum(len(folders) + len(files) for _, folders, files in os.walk(store))
    return kept + len(events(root)) + sum((root / name).exists() for name in ("data/corpus", "data/tasks", "report"))


def _strike(room: Room, process: subprocess.Popen[bytes], kind: str) -> str:
    """Kill what the kind names, and count it by stage; without a worker or a server, the main process."""
    victims = [] if kind in FATAL else _children(process.pid, kind)
    kind = kind if kind in FATAL or victims else "main process"
    stage = _stage(room)
    if kind == "process group":
        os.killpg(process.pid, signal.SIGKILL)
    elif kind == "main process":
        process.kill()
    else:
        room.generator.choice(victims).kill()
    room.strikes += 1
    room.findings.count(f"{kind} | {stage}")
    return kind


def _children(pid: int, kind: str) -> list[psutil.Process]:
    sign = "multiprocessing.spawn" if kind == "worker" else "flows.server"
    try:
        children = psutil.Process(pid).children(recursive=True)
        return [child for child in children if sign in " ".join(child.cmdline())]
    except psutil.Error:  # one ended meanwhile
        return []


def _stage(room: Room) -> str:
    """Return the stage that the run is in, or that it is in none."""
    last = dict(events(room.root)[room.events_before :])
    under_way = [stage for stage, state in last.items() if state == "START" and "@" not in stage]
    return under_way[-1] if under_way else "start or between stages"


def _ended(room: Room, process: subprocess.Popen[bytes], deadline: float, said: IO[bytes]) -> bool:
    """Wait for the end of a run, report what is wrong with it, and return True if it ended well."""
    try:
        code = process.wait(max(deadline - time.monotonic(), 1))
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        code = process.wait()
        room.findings.add("hangs", f"{room.root.name}: no end after {SLOW_SECONDS} s in {_stage(room)}")
    said.seek(0)
    text = said.read().decode(errors="replace")
    for line in left_running(room.root):
        room.findings.add("left running", f"{room.root.name}: {line}")
    if "Traceback" in text or "this is a bug" in text:
        room.findings.add("tracebacks", f"{room.root.name}: {text[-1500:]}")
    if code not in {0, -signal.SIGKILL}:
        room.failures += 1
        room.findings.add("lost", f"{room.root.name}: exit code {code}: {text[-800:]}")
    return code == 0


def _check_kept(room: Room) -> None:
    """Report finished shards that are gone or made again, and outputs that are neither absent nor whole."""
    now = finished_shards(room.root)
    for path in room.shards.keys() - now.keys():
        room.findings.add("lost", f"{room.root.name}: {path}")
    for path, made in room.shards.items():
        if now.get(path, made) != made:
            room.findings.add("redone", f"{room.root.name}: {path}")
    room.shards = now
    for path, files in outputs(room.root).items():  # DVC links file by file: some may be missing, none may differ
        if not files.items() <= room.wanted[path].items():
            wrong = sorted(name for name, digest in files.items() if room.wanted[path].get(name) != digest)
            room.findings.add("lost", f"{room.root.name}: {path}: {', '.join(wrong[:3])}")


def _delete_an_output(room: Room) -> None:
    there = sorted(outputs(room.root))
    if there:
        place = room.root / room.generator.choice(there)
        shutil.rmtree(place) if place.is_dir() else place.unlink()


def _check_end(room: Room) -> None:
    """Compare the end with the undisturbed run: files, lineage, and nothing half written."""
    _check_kept(room)
    root, findings = room.root, room.findings
    made = outputs(root)
    for path in room.wanted:
        if made.get(path) != room.wanted[path]:
            findings.add("lost", f"{root.name}: {path} differs from the undisturbed run")
    completed = Counter(stage for stage, state in events(root) if state == "COMPLETE")
    for stage, times in completed.items():
        if times > 1:
            findings.add("redone", f"{root.name}: stage {stage} completed {times} times")
    for path in root.rglob("*.partial-*"):
        if ".dvc" not in path.parts:
            findings.add("lost", f"{root.name}: {path.relative_to(root)} is left half written")
