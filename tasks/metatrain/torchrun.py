"""Training on several GPUs or processes, of this node or of several."""

import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from model.device import device
from model.meta.ranks import ranks_of_torchrun
from storage.atomic import remove
from storage.errors import InputError, TransientError
from storage.prompts.checkpoints import Checkpoint, last_checkpoint, write_checkpoint
from tasks.metatrain.training import Job, Trained, train
from tasks.stage.contract import Record
from tasks.stage.nodes import Group
from tasks.stage.progress import say, tell
from tasks.stage.torchrun import LOG, rank_main, run_on_ranks

_RESULT = "result"


def train_on_ranks(job: Job, ranks: int, folder: Path, group: Group | None = None) -> Trained:
    """Train on `ranks` processes of this node, and on those of a group of nodes.

    If one dies, the others are ended. On one node a retry resumes from the last checkpoint; with other nodes the user
    decides with which of them the next run resumes.
    """
    job = replace(job, threads=max(job.threads // ranks, 1))
    remove(job.work / _RESULT)
    arguments = {"job": job.to_json(), "folder": str(folder)}
    if not run_on_ranks("tasks.metatrain.torchrun", job.work, arguments, ranks, job.threads, group):
        last, _ = last_checkpoint(job.work)
        begun = f"step {last.step:,}" if last else "the beginning"
        name, log = job.training.variant, f"({job.work / LOG} says more)"
        if group:
            raise InputError(
                f"{name}: a node or rank was lost {log}: `supmer run` continues from {begun}, alone or with --nodes"
            )
        raise TransientError(f"{name}: a rank ended too early {log}: it continues from {begun}")
    return _read_result(job.work)


def _read_result(work: Path) -> Trained:
    found, _ = last_checkpoint(work / _RESULT)
    assert found is not None  # written before the ranks ended without an error
    return Trained.from_json(found.arrays, found.state)


def _train(arguments: Record) -> None:
    job, folder = Job.from_json(arguments["job"]), Path(arguments["folder"])
    with ranks_of_torchrun(device(int(os.environ["LOCAL_RANK"]))) as ranks:
        trained = train(job, ranks, lambda done, note: tell(folder, done, note), lambda line: say(folder, line))
        if ranks.first:
            write_checkpoint(job.work / _RESULT, Checkpoint(trained.steps, trained.arrays, trained.to_json()))


def main(arguments: Sequence[str]) -> int:
    """Run one rank, as torchrun starts it."""
    return rank_main(Path(arguments[0]), _train)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
