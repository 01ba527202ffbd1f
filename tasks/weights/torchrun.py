"""Fine-tuning on several GPUs or processes, of one node or of several, over which FSDP2 shards the weights."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import orjson
import torch

from model.device import device
from model.meta.ranks import ranks_of_torchrun
from storage.atomic import remove, write_bytes
from storage.errors import InputError, TransientError
from tasks.stage.contract import Record
from tasks.stage.nodes import Group
from tasks.stage.torchrun import LOG, rank_main, run_on_ranks
from tasks.tune.shards import tuning_job
from tasks.weights import fine_tuning

_RECORDS = "records.json"


def tune_on_ranks(payload: Record, folder: Path, ranks: int) -> dict[str, Record]:
    """Fine-tune on `ranks` processes; if one dies, the others are ended, and a retry resumes from the checkpoint."""
    work = Path(payload["work"], folder.name.partition(".partial-")[0])
    threads = max(payload["threads"] // ranks, 1)
    remove(work / _RECORDS)
    arguments = {"payload": payload | {"threads": threads}, "folder": str(folder), "work": str(work)}
    group = Group.of(payload["group"])
    if not run_on_ranks("tasks.weights.torchrun", work, arguments, ranks, threads, group):
        name = f"{payload['tuning']['dataset']}/{payload['tuning']['method']}"
        log = f"({work / LOG} says more)"
        if group:
            raise InputError(
                f"{name}: a node or rank was lost {log}: `supmer run` continues, alone or with --nodes again"
            )
        raise TransientError(f"{name}: a rank ended too early {log}: a retry continues")
    records: dict[str, Record] = orjson.loads((work / _RECORDS).read_bytes())
    return records


def _tune(arguments: Record) -> None:
    local = int(os.environ["LOCAL_RANK"])
    torch.set_num_threads(arguments["payload"]["threads"])
    with (
        ranks_of_torchrun(device(local)) as ranks,
        tuning_job(arguments["payload"] | {"number": local}, Path(arguments["folder"]), alone=False) as job,
    ):
        records = fine_tuning.tune(job, ranks)
        if ranks.first:
            write_bytes(Path(arguments["work"], _RECORDS), orjson.dumps(records))


def main(arguments: Sequence[str]) -> int:
    """Run one rank, as torchrun starts it."""
    return rank_main(Path(arguments[0]), _tune)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
