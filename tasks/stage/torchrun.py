"""Work on several GPUs or processes, of this node or of several: torchrun starts the ranks, the first rank reports."""

import os
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path

import orjson
from torch.distributed import DistError

from storage.atomic import remove, write_bytes
from storage.errors import InputError, TransientError
from tasks.stage.contract import RANKS, Record
from tasks.stage.nodes import Group, train_together

LOG = "ranks.log"
_JOB, _PROBLEM, _BUG = "job.json", "problem.txt", "bug.txt"


def run_on_ranks(module: str, work: Path, job: Record, ranks: int, threads: int, group: Group | None = None) -> bool:
    """Run a module on `ranks` processes; return False if one died, whereupon the others are ended.

    Raise InputError for the problem that a rank reports, and RuntimeError for a bug.

    Args:
        module: a module that calls `rank_main` with its first argument, the folder.
        work: a folder for the job, the log and reports.
        job: plain values, which every rank gets.
        ranks: the number of processes of this node.
        threads: the threads of each.
        group: the nodes that work together; None for this node alone.
    """
    work.mkdir(parents=True, exist_ok=True)
    for left in (_PROBLEM, _BUG):
        remove(work / left)
    write_bytes(work / _JOB, orjson.dumps(job))
    code = train_together(group, module, work, ranks, threads) if group else _run_alone(module, work, ranks, threads)
    if (work / _PROBLEM).exists():
        raise InputError((work / _PROBLEM).read_text())
    if (work / _BUG).exists():
        raise RuntimeError((work / _BUG).read_text())
    return code == 0


def _run_alone(module: str, work: Path, ranks: int, threads: int) -> int:
    """Run the ranks of this node by themselves, and return the exit code of torchrun."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    own = {"OMP_NUM_THREADS": str(threads), "GLOO_SOCKET_IFNAME": os.environ.get("GLOO_SOCKET_IFNAME", "lo")}
    with (
        (work / LOG).open("wb") as log,
        subprocess.Popen(
            [*command, "-m", module, str(work)],
            stdin=subprocess.PIPE,  # the ranks end when this pipe closes, however this process ends
            stdout=log,
            stderr=log,
            env=os.environ | own,
        ) as started,
    ):
        return started.wait()


def rank_main(work: Path, run: Callable[[Record], None]) -> int:
    """Run the job on one rank, as torchrun starts it; the first rank that fails reports the error."""
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    try:
        run(orjson.loads((work / _JOB).read_bytes()))
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


def rank_count(wanted: str, gpus: int) -> int:
    """Return the number of ranks that a user wants, or else one for each GPU; raise InputError if it cannot be."""
    if not wanted:
        return max(gpus, 1)
    if not wanted.isdecimal() or int(wanted) < 1 or (gpus and int(wanted) > gpus):
        there = f"there are {gpus} GPUs" if gpus else "give a number of processes, 1 or more"
        raise InputError(f"{RANKS}={wanted}: {there}")
    return int(wanted)


def _is_of_another(error: Exception) -> bool:
    """True if an error only says that another rank is gone; that rank reports the cause."""
    return isinstance(error, ConnectionError | DistError) or "gloo" in str(error)


def _leave_with_parent() -> None:
    """End this rank when the pipe from the process that started torchrun closes."""
    while os.read(0, 4096):  # not through sys.stdin, whose lock Python could not take at exit
        pass
    os._exit(4)
