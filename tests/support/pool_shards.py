"""Shard functions that worker processes can import."""

import os
import signal
import time
from pathlib import Path

from storage.errors import InputError, TransientError


def tries(payload):
    """Return how often this shard has been tried, including this time."""
    path = Path(payload["tries"])
    with path.open("a") as file:
        file.write("x")
    return path.stat().st_size


def well(payload, folder):
    tries(payload)
    (folder / "out.txt").write_text("done")
    return {"process": os.getpid()}


def well_the_third_time(payload, folder):
    if tries(payload) < 3:
        raise TransientError("the line is bad")
    return {}


def never(payload, folder):
    tries(payload)
    raise InputError("row 3: bad")


def killed_the_first_time(payload, folder):
    if tries(payload) == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return {}


_running = []


def alone(payload, folder):
    """Return how many other shards run in this process at the same time."""
    _running.append(folder)
    time.sleep(0.02)
    beside = len(_running) - 1
    _running.remove(folder)
    return {"beside": beside}


def waits(payload, folder):
    """Signal that it has begun with a file, and end when the file `until` exists."""
    until = Path(payload["until"])
    until.with_suffix(".seen").touch()
    while not until.exists():
        time.sleep(0.01)
    return {"process": os.getpid()}
