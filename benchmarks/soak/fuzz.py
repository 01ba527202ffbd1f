"""Seeded fuzz of every input: each case runs a command on damaged or odd input, and must end as bad input does.

Allowed are exit codes 0 and 2 (and 1 for `status` and `verify`, which report damage so), something said with code 2,
no traceback, and an end within seconds.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson

from soak.findings import Findings
from soak.inputs import INPUTS, THERE, Case
from soak.mutations import Random
from soak.rooms import ROOT, Rooms, environment

SECONDS = 60  # of one case; the slowest that ends takes five
REPORTING = {"status", "verify"}
REPORTED = 1


class Warm:
    """The process whose forks run the cases."""

    def __init__(self) -> None:
        path = os.pathsep.join([str(ROOT / "benchmarks"), str(ROOT)])
        self.process = subprocess.Popen(
            [sys.executable, "-m", "soak.warm"],
            env=environment() | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self._answer() == b"ready\n"

    def run(self, question: dict[str, Any]) -> dict[str, Any]:
        assert self.process.stdin is not None
        self.process.stdin.write(orjson.dumps(question) + b"\n")
        self.process.stdin.flush()
        answer: dict[str, Any] = orjson.loads(self._answer())
        return answer

    def _answer(self) -> bytes:
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def end(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


def fuzz(
    rooms: Rooms, seed: int, numbers: range, findings: Findings, go_on: Callable[[], bool], name: str = "fuzzed"
) -> None:
    """Run the cases with these numbers; the same seed and number make the same case."""
    root = rooms.copy(rooms.whole, name)
    warm = Warm()
    for number in numbers:
        if not go_on():
            break
        group = list(INPUTS)[number % len(INPUTS)]
        case = INPUTS[group](root, Random(f"{seed}/{number}"))
        findings.count(group)
        for kind, what in judged(case, *run_case(warm, root, case)):
            findings.add(kind, f"case {number} ({group}): {orjson.dumps(case.described()).decode()}: {what}")
    warm.end()
    shutil.rmtree(root)


def run_case(warm: Warm, root: Path, case: Case) -> tuple[int | None, str]:
    """Put the files of a case in place, run its command, put the earlier files back; return exit code and output."""
    kept = {path: root / f".kept-{number}" for number, path in enumerate(case.files) if (root / path).exists()}
    for path, place in kept.items():
        (root / path).rename(place)
    for path, content in case.files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        if content is not None:
            (root / path).write_bytes(content)
    output, given = root.parent / f"{root.name}.said", root.parent / f"{root.name}.given"
    given.write_bytes(case.standard_input)
    question = {"words": case.words, "folder": str(root), "input": str(given), "output": str(output)}
    code = warm.run(question | {"seconds": SECONDS, "variables": case.variables})["code"]
    for path in case.files:
        (root / path).unlink(missing_ok=True)
    for path, place in kept.items():
        place.rename(root / path)
    shutil.rmtree(root / THERE, ignore_errors=True)
    return code, output.read_bytes().decode(errors="replace")


def judged(case: Case, code: int | None, said: str) -> list[tuple[str, str]]:
    """Return what is wrong with the end of a case."""
    allowed = {0, 2} | ({REPORTED} if case.words[0] in REPORTING else set())
    if code is None:
        return [("hangs", f"no end after {SECONDS} s: {said[-200:]}")]
    if "Traceback" in said or code not in allowed:
        return [("tracebacks", f"exit code {code}: {said[-700:]}")]
    return [("tracebacks", "exit code 2 without a word")] if code == 2 and not said.strip() else []
