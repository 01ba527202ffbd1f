"""Measure the cost of orchestration: 64 shards of about a second on 2 workers, and in a plain loop with 2 threads.

Run: python benchmarks/bench_orchestration.py [--shards 64] [--rounds 3]
The work is hashing, which releases Python's lock, so that threads can run it in parallel. Both ways do the same shards,
alternately and several times. The medians are compared, without and with the start of Prefect (imports, server), which
happens once per run. Finally, the commands that must be quick are timed, including the start of Python.
"""

import argparse
import hashlib
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from records import Record

WORKERS = 2


def work(payload, folder):  # a shard function: (payload, folder) -> record
    digest = hashlib.pbkdf2_hmac("sha256", str(payload["shard"]).encode(), b"salt", payload["iterations"])
    (folder / "digest.bin").write_bytes(digest)
    return {"digest": digest.hex()}


def hashed(iterations):
    return hashlib.pbkdf2_hmac("sha256", b"x", b"salt", iterations)


def iterations_for(seconds):
    """Return the iterations that take this long while all workers are hashing; the first round is a warm-up."""
    iterations = 1_000_000
    for _ in range(2):
        start = time.perf_counter()
        with ThreadPoolExecutor(WORKERS) as pool:
            list(pool.map(hashed, [iterations] * WORKERS))
        iterations = int(iterations * seconds / (time.perf_counter() - start))
    return iterations


def plain_loop(root, shards):
    def work_on(shard):
        folder = root / shard.name
        folder.mkdir(parents=True)
        return work(shard.payload, folder)

    with ThreadPoolExecutor(WORKERS) as pool:
        return list(pool.map(work_on, shards))


def prefect_stage(root, shards):
    from prefect.task_runners import ThreadPoolTaskRunner

    from tasks.stage.contract import SilentReporter, Stage
    from tasks.stage.fanout import PrefectFanOut

    stage = Stage(
        name="bench",
        root=root,
        params=None,
        inputs=(),
        outputs=(),
        fingerprint="0" * 64,
        code=root.name,
        fan_out=PrefectFanOut(ThreadPoolTaskRunner(max_workers=WORKERS)),
        reporter=SilentReporter(),
    )
    return [result.record for result in stage.map("work", work, shards)]


def timed(function, *arguments):
    start = time.perf_counter()
    result = function(*arguments)
    return time.perf_counter() - start, result


def start_prefect(scratch):
    from flows.server import prefect_home
    from flows.server.run_server import await_server, importing, start_server

    prefect_home.prepare(scratch)
    log = scratch / "server.log"
    server = start_server(scratch, log)
    with importing():
        import flows.run.pipeline  # noqa: F401

    await_server(server, log)


def compare(scratch, count, rounds, record):
    # The database is made once per workspace and is not counted.
    make_database = f"from bench_orchestration import *; start_prefect(Path({str(scratch)!r}))"
    subprocess.run([sys.executable, "-c", make_database], check=True, cwd=Path(__file__).parent)
    start, _ = timed(start_prefect, scratch)
    from tasks.stage.contract import Shard
    from tasks.stage.workers import worker_processes

    iterations = iterations_for(1.0)
    shards = [Shard(f"s{i}", {"shard": i, "iterations": iterations}) for i in range(count)]
    plain, orchestrated = [], []
    with worker_processes(WORKERS):
        for index in range(rounds):
            seconds, expected = timed(plain_loop, scratch / f"plain-{index}", shards)
            plain.append(seconds)
            seconds, records = timed(prefect_stage, scratch / f"prefect-{index}", shards)
            orchestrated.append(seconds)
            assert records == expected, "the two ways disagree"
    samples = {"plain loop": plain, "Prefect fan-out": orchestrated, "starting Prefect": [start]}
    for way, seconds in samples.items():
        record.add(way=way, shards=count, workers=WORKERS, seconds=seconds)
    loop, fan_out = statistics.median(plain), statistics.median(orchestrated)
    print(f"{count} shards, {WORKERS} workers, medians of {rounds} alternating rounds (aim: at most 1.1 x as long)")
    print(f"  plain loop            {loop:8.2f} s")
    print(f"  Prefect fan-out       {fan_out:8.2f} s   {fan_out / loop:.3f} x as long")
    print(f"  starting Prefect      {start:8.2f} s   once per run")
    print(f"  start and fan-out     {start + fan_out:8.2f} s   {(start + fan_out) / loop:.3f} x as long")


def quick_commands(rounds, record):
    supmer = str(Path(sys.executable).parent / "supmer")
    if subprocess.run([supmer, "status"], capture_output=True, check=False).returncode:
        print("  not timed: this workspace is not up to date; run `supmer run` first")
        return
    for arguments, aim in ((["--help"], 0.5), (["status"], 2.0), (["run"], 2.0)):
        seconds = [timed(subprocess.check_output, [supmer, *arguments])[0] for _ in range(rounds)]
        print(f"  supmer {' '.join(arguments):<12} {statistics.median(seconds):8.2f} s   aim: under {aim} s")
        record.add(way=f"supmer {' '.join(arguments)}", seconds=seconds, aim=aim)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shards", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    record = Record(__file__, parser, arguments)
    with tempfile.TemporaryDirectory() as scratch:
        compare(Path(scratch), arguments.shards, arguments.rounds, record)
    print("quick commands, in this workspace")
    quick_commands(arguments.rounds * 3, record)
    record.write()


if __name__ == "__main__":
    main()
