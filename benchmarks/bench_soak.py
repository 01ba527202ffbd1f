"""Kill, damage and fuzz for half an hour: `make soak`, or `python benchmarks/bench_soak.py [--minutes 5] [--seed 7]`.

Kills strike runs of the tiny profile in all stages: the process group, the main process, a worker, Prefect's server.
Faults are the list of earlier fault runs. Fuzz damages every input, each case made from the seed and its number. The
aims are 0 lost, 0 redone, 0 tracebacks, 0 hangs; the exit code is 1 if one is missed.
"""

import argparse
import re
import signal
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parent), str(Path(__file__).resolve().parents[1])]

from records import Record  # noqa: E402
from soak.faults import run_faults  # noqa: E402
from soak.findings import WRONG, Findings  # noqa: E402
from soak.fuzz import fuzz  # noqa: E402
from soak.kills import kill_round  # noqa: E402
from soak.rooms import Rooms, make_rooms, outputs  # noqa: E402

STRIKES_IN_A_ROUND = 25


class Clock:
    """The time that is left; new rounds and cases begin only while there is some."""

    def __init__(self, minutes: float) -> None:
        self.start = time.monotonic()
        self.end = self.start + 60 * minutes

    def left(self) -> bool:
        return time.monotonic() < self.end

    def minutes(self) -> float:
        return (time.monotonic() - self.start) / 60


def kill(rooms: Rooms, seed: int, wanted_kills: int, clock: Clock, findings: Findings) -> None:
    """Strike workspaces one after the other until there were enough kills, or the time is over."""
    wanted, number = outputs(rooms.whole), 0
    while clock.left() and (missing := wanted_kills - findings.counts.total()) > 0:
        number += 1
        kill_round(rooms, f"killed-{seed}-{number}", wanted, findings, min(missing, STRIKES_IN_A_ROUND))
        print(f"kills: {findings.counts.total()} after {clock.minutes():.1f} min", flush=True)


def feed(rooms: Rooms, options: argparse.Namespace, clock: Clock, faults: Findings, fuzzed: Findings) -> None:
    """Run the faults, then the fuzz cases."""
    if options.faults:
        run_faults(rooms, faults)
        print(f"faults: {faults.counts.total()} after {clock.minutes():.1f} min", flush=True)
    first = options.first
    fuzz(rooms, options.seed, range(first, first + options.fuzz), fuzzed, clock.left)
    print(f"fuzz cases: {fuzzed.counts.total()} after {clock.minutes():.1f} min", flush=True)


def add(record: Record, part: str, findings: Findings, minutes: float) -> None:
    groups: Counter[str] = findings.counts
    record.add(
        part=part,
        number=groups.total(),
        groups=dict(sorted(groups.items())),
        wrong={kind: findings.wrong[kind] for kind in WRONG},
        minutes=[minutes],
        problems=[re.sub(r"/\S*", "…", line)[:200] for line in findings.problems[:20]],  # a record names no path
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=30, help="begin nothing new after this time")
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--fuzz", type=int, default=1000, help="fuzz cases")
    parser.add_argument("--first", type=int, default=0, help="number of the first fuzz case, to repeat one")
    parser.add_argument("--no-faults", dest="faults", action="store_false", default=True)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rooms", type=Path, help=argparse.SUPPRESS)  # keep the workspaces here, or use those
    options = parser.parse_args()
    signal.signal(
        signal.SIGINT, signal.default_int_handler
    )  # a job in the background ignores it, and so do its children
    record, clock = Record(__file__, parser, options), Clock(options.minutes)
    parts = {name: Findings() for name in ("kills", "faults", "fuzz")}
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        place = options.rooms or Path(folder) / "rooms"
        rooms = Rooms(place.resolve()) if place.is_dir() else make_rooms(place.resolve())
        print(f"workspaces are made: {clock.minutes():.1f} min", flush=True)
        with ThreadPoolExecutor(2) as lanes:
            jobs = [
                lanes.submit(kill, rooms, options.seed, options.kills, clock, parts["kills"]),
                lanes.submit(feed, rooms, options, clock, parts["faults"], parts["fuzz"]),
            ]
            for job in jobs:
                job.result()
    for name, findings in parts.items():
        if findings.counts:
            add(record, name, findings, clock.minutes())
        print(f"{name}: {findings.counts.total()}, {dict(findings.wrong) or 'nothing wrong'}")
    record.write()
    return int(any(findings.wrong for findings in parts.values()))


if __name__ == "__main__":
    sys.exit(main())
