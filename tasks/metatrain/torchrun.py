"""Training on several GPUs or processes of this machine: torchrun starts the ranks, and the first rank reports."""

import os
import subprocess
import sys
import threading
import traceback
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import orjson
from torch.distributed import DistError

from model.device import device
from model.meta.ranks import ranks_of_torchrun
from storage.atomic import remove, write_bytes
from storage.errors import InputError, TransientError
from storage.prompts.checkpoints import Checkpoint, last_checkpoint, write_checkpoint
from tasks.metatrain.training import Job, Trained, train
from tasks.stage.progress import say, tell

_JOB, _PROBLEM, _BUG, _RESULT, _LOG = "job.json", "problem.txt", "bug.txt", "result", "ranks.log"


def train_on_ranks(job: Job, ranks: int, folder: Path) -> Trained:
    """Train on `ranks` processes; if one dies, the others are ended, and a retry resumes from the last checkpoint."""
    job = replace(job, threads=max(job.threads // ranks, 1))
    job.work.mkdir(parents=True, exist_ok=True)
    for left in (_PROBLEM, _BUG, _RESULT):
        remove(job.work / left)
    write_bytes(job.work / _JOB, orjson.dumps({"job": job.to_json(), "folder": str(folder)}))
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    own = {"OMP_NUM_THREADS": str(job.threads), "GLOO_SOCKET_IFNAME": os.environ.get("GLOO_SOCKET_IFNAME", "lo")}
    with (
        (job.work / _LOG).open("wb") as log,
        subprocess.Popen(
            [*command, "-m", "tasks.metatrain.torchrun", str(job.work)],
            stdin=subprocess.PIPE,  # the ranks end when this pipe closes, however this process ends
            stdout=log,
            stderr=log,
            env=os.environ | own,
        ) as started,
    ):
        code = started.wait()
    if (job.work / _PROBLEM).exists():
        raise InputError((job.work / _PROBLEM).read_text())
    if (job.work / _BUG).exists():
        raise RuntimeError((job.work / _BUG).read_text())
    if code:
        last, _ = last_checkpoint(job.work)
        begun = f"step {last.step:,}" if last else "the beginning"
        raise TransientError(
            f"{job.training.variant}: a rank ended too early ({job.work / _LOG} says more): it continues from {begun}"
        )
    return _read_result(job.work)


def _read_result(work: Path) -> Trained:
    found, _ = last_checkpoint(work / _RESULT)
    assert found is not None  # written before the ranks ended without an error
    return Trained.from_json(found.arrays, found.state)


def main(arguments: Sequence[str]) -> int:
    """Run one rank, as torchrun starts it; the first rank that fails reports the error, and the others are ended."""
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    work = Path(arguments[0])
    try:
        _train(work)
    except InputError as error:
        write_bytes(work / _PROBLEM, str(error).encode())
        return 3
    except TransientError as error:
        print(error, file=sys.stderr)  # goes to the log of the ranks
        return 4
    except Exception as error:  # noqa: BLE001 - reported by the process that started the ranks
        if _is_of_another(error):
            return 4
        write_bytes(work / _BUG, traceback.format_exc().encode())
        return 1
    return 0


def _train(work: Path) -> None:
    told = orjson.loads((work / _JOB).read_bytes())
    job, folder = Job.from_json(told["job"]), Path(told["folder"])
    with ranks_of_torchrun(device(int(os.environ["LOCAL_RANK"]))) as ranks:
        trained = train(job, ranks, lambda done, note: tell(folder, done, note), lambda line: say(folder, line))
        if ranks.first:
            write_checkpoint(work / _RESULT, Checkpoint(trained.steps, trained.arrays, trained.to_json()))


def _is_of_another(error: Exception) -> bool:
    """True if an error only says that another rank is gone; that rank reports the cause."""
    return isinstance(error, ConnectionError | DistError) or "gloo" in str(error)


def _leave_with_parent() -> None:
    """End this rank when the pipe from the process that started torchrun closes."""
    while os.read(0, 4096):  # not through sys.stdin, whose lock Python could not take at exit
        pass
    os._exit(4)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
