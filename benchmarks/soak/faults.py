"""The faults that earlier fault runs found, each with the end it must have: mended, or one line and exit code 2."""

import gzip
import io
import os
import pickle
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson

from soak.findings import Findings
from soak.fuzz import Warm, run_case
from soak.inputs import PROMPT, TEXTS, THERE, Case, as_csv
from soak.rooms import SUPMER, Rooms, environment, outputs

REFUSED, DONE, INTERRUPTED = 2, 0, 130
PREDICT = ("predict", "--prompt", PROMPT, "--data", f"{THERE}/texts.csv")
BOMB = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{new}: &{new} [{','.join([f'*{old}'] * 9)}]\n" for old, new in zip("abcdefgh", "bcdefghi", strict=True)
)
NESTED = 100_000


class Hostile:
    """What a pickle of a hostile model holds: its loading would call this."""

    def __reduce__(self) -> tuple[Callable[[str], int], tuple[str]]:
        return os.system, ("touch hostile",)


def config(root: Path, change: Callable[[dict[str, Any]], None]) -> dict[str, bytes | None]:
    """Return the files of a prompt whose config.json is changed."""
    files: dict[str, bytes | None] = {f"{THERE}/p/{path.name}": path.read_bytes() for path in (root / PROMPT).iterdir()}
    content = orjson.loads(files[f"{THERE}/p/config.json"] or b"")
    change(content)
    return files | {f"{THERE}/p/config.json": orjson.dumps(content), f"{THERE}/texts.csv": as_csv(TEXTS)}


def without_backbone(read: dict[str, Any]) -> None:
    read.pop("backbone", None)
    read["downstream"].pop("backbone", None)


def saved(value: object) -> bytes:
    import torch

    sink = io.BytesIO()
    torch.save(value, sink)
    return sink.getvalue()


def two_columns() -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    sink = io.BytesIO()
    pq.write_table(pa.Table.from_arrays([pa.array(["a"]), pa.array(["b"])], names=["text", "text"]), sink)
    return sink.getvalue()


def flipped_prompt() -> bytes:
    import torch

    content = bytearray(saved(torch.arange(8 * 64, dtype=torch.float32).reshape(8, 64)))
    at = content.find(torch.arange(5, 9, dtype=torch.float32).numpy().tobytes())
    content[at + 2] ^= 1
    return bytes(content)


def listed_cases(root: Path) -> dict[str, tuple[Case, int]]:
    """Return the faults that one command meets, with the exit code that each must end with."""
    import torch

    params = (root / "params.yaml").read_bytes()
    official = ("import-official", "--prompt", f"{THERE}/p.pt", f"{THERE}/out")
    sample = ("alone", "sample", THERE)
    use = ("predict", "--prompt", f"{THERE}/p", "--data", f"{THERE}/texts.csv")
    backbone: dict[str, bytes | None] = {
        f"{THERE}/model/{path.name}": path.read_bytes()
        for path in (root / "data/sources/backbone").rglob("*")
        if path.is_file() and path.suffix != ".safetensors"
    }
    backbone |= {f"{THERE}/model/pytorch_model.bin": pickle.dumps(Hostile()), f"{THERE}/texts.csv": as_csv(TEXTS)}
    short_lock = (root / "dvc.lock").read_bytes()[:1000]
    tuned = ("tune", "--data", f"{THERE}/texts.csv", "--text", "text", "--output", f"{THERE}/out")
    return {
        "a dvc.lock of 1,000 bytes": (Case(("run", "--dry-run"), {"dvc.lock": short_lock}), DONE),
        "an alias bomb in params.yaml": (Case(("run", "--dry-run"), {"params.yaml": params + BOMB.encode()}), REFUSED),
        "a merge bomb in params.yaml": (
            Case(
                ("params", "show"),
                {"params.yaml": b"x: &x {a: 1}\n" + b"y: {<<: [" + b"*x," * 50_000 + b"]}\n" + params},
            ),
            REFUSED,
        ),
        "a backbone that is a hostile pickle": (
            Case((*PREDICT, "--backbone", f"{THERE}/model", "--any-backbone"), backbone),
            REFUSED,
        ),
        "a corpus named 2024": (
            Case(("run", "--dry-run"), {"params.yaml": params.replace(b"    stories:", b"    2024:")}),
            REFUSED,
        ),
        "a Parquet file with two columns text": (Case(sample, {f"{THERE}/corpus/a.parquet": two_columns()}), REFUSED),
        "a damaged Parquet footer": (
            Case(sample, {f"{THERE}/corpus/a.parquet": two_columns()[:-40] + b"\x00" * 32 + two_columns()[-8:]}),
            REFUSED,
        ),
        "invalid UTF-8 on `supmer sql -`": (Case(("sql", "-"), standard_input=b"SELECT '\xff\xfe'"), REFUSED),
        "1,000 nested lists in -S": (Case(("run", "--dry-run", "-S", f"tune.seeds={'[' * 1000}{']' * 1000}")), REFUSED),
        "100,000 brackets in config.json": (
            Case(use, config(root, lambda _: None) | {f"{THERE}/p/config.json": b"[" * NESTED}),
            REFUSED,
        ),
        "a meta tensor in an official .pt": (
            Case(official, {f"{THERE}/p.pt": saved(torch.empty(200_000, 200_000, device="meta"))}),
            REFUSED,
        ),
        "an expanded tensor in an official .pt": (
            Case(official, {f"{THERE}/p.pt": saved(torch.zeros(1).expand(200_000, 200_000))}),
            REFUSED,
        ),
        "an official .pt with a flipped bit": (Case(official, {f"{THERE}/p.pt": flipped_prompt()}), REFUSED),
        "a verbalizer with a label twice": (
            Case((*tuned, "--verbalizer", "positive=good,positive=bad"), {f"{THERE}/texts.csv": as_csv(TEXTS)}),
            REFUSED,
        ),
        "a prompt without a backbone": (Case(use, config(root, without_backbone)), REFUSED),
        "a line of 50 MB": (
            Case(sample, {f"{THERE}/corpus/a.jsonl": b'{"text": "' + b"word " * 10_000_000 + b'"}\n'}),
            REFUSED,  # the only document is filtered out as too long
        ),
        "a gz corpus that grows a thousandfold": (
            Case(sample, {f"{THERE}/corpus/a.jsonl.gz": gzip.compress(b" " * 300_000_000, 9)}),
            REFUSED,
        ),
    }


def run_faults(rooms: Rooms, findings: Findings) -> None:
    """Run every fault; each is counted, and reported if it ends otherwise than it must."""
    root = rooms.copy(rooms.whole, "faults")
    warm = Warm()
    for name, (case, expected) in listed_cases(root).items():
        code, said = run_case(warm, root, case)
        _judge(findings, name, code, expected, said)
    warm.end()
    if (root / "hostile").exists():
        findings.add("lost", "a backbone that is a hostile pickle: its code ran")
    for check in (_mended_lock, _odd_path, _interrupted_query, _garbage_database):
        _judge(findings, *check(rooms, root))
    shutil.rmtree(root)


def _judge(findings: Findings, name: str, code: int | None, expected: int, said: str) -> None:
    findings.count(name)
    if code is None:
        findings.add("hangs", f"{name}: no end")
    elif code != expected or "Traceback" in said:
        findings.add("tracebacks", f"{name}: exit code {code} instead of {expected}: {said[-700:]}")


def _run(root: Path, *arguments: str) -> tuple[int, str]:
    done = subprocess.run(
        [SUPMER, *arguments], cwd=root, env=environment(), capture_output=True, text=True, check=False, timeout=600
    )
    return done.returncode, done.stdout + done.stderr


def _mended_lock(_rooms: Rooms, root: Path) -> tuple[str, int, int, str]:
    """A lock file cut so that a hash reads as a number is mended by the next run, which then computes nothing again."""
    before, lock = outputs(root), (root / "dvc.lock").read_bytes()
    (root / "dvc.lock").write_bytes(lock[:1000])
    code, said = _run(root, "run")
    if code == DONE and outputs(root) != before:
        code, said = -1, "outputs differ after a cut dvc.lock"
    return "a run after a cut dvc.lock", code, DONE, said


def _odd_path(rooms: Rooms, _root: Path) -> tuple[str, int, int, str]:
    place = rooms.copy(rooms.whole, "odd [a] *? {b}")
    code, said = _run(place, "run", "--force", "sample", "--until", "sample")
    shutil.rmtree(place)
    return "a workspace path with [ ] * ? { }", code, REFUSED, said


def _interrupted_query(_rooms: Rooms, root: Path) -> tuple[str, int | None, int, str]:
    name = "Ctrl-C in `supmer sql`"
    process = subprocess.Popen(
        [SUPMER, "sql", "SELECT count(*) FROM range(1000000) a, range(1000000) b"],
        cwd=root,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    time.sleep(4)
    process.send_signal(signal.SIGINT)
    try:
        said, _ = process.communicate(timeout=60)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return name, None, INTERRUPTED, ""
    return name, process.returncode, INTERRUPTED, said


def _garbage_database(_rooms: Rooms, root: Path) -> tuple[str, int, int, str]:
    (root / ".prefect/prefect.db").write_bytes(b"garbage " * 1000)
    code, said = _run(root, "run", "--force", "report")
    return "garbage in prefect.db", code, REFUSED, said
