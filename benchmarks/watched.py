"""Fresh processes of which memory and processor time are watched, with those of their children."""

import json
import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

ROOT = Path(__file__).resolve().parents[1]


def figures_of(command: Sequence[str], watch: Callable[[int], None], **environment: str) -> Any:
    """Run a command that prints figures as JSON, and return them; a thread calls `watch` with the process's id."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT, env=os.environ | environment)
    watcher = threading.Thread(target=watch, args=(process.pid,))
    watcher.start()
    output, _ = process.communicate()
    watcher.join()
    if process.returncode:
        raise SystemExit(process.returncode)
    return json.loads(output)


def family(pid: int) -> Iterator[list[psutil.Process]]:
    """Yield a process with its children until it ends."""
    try:
        parent = psutil.Process(pid)
        while parent.is_running() and parent.status() != psutil.STATUS_ZOMBIE:
            yield [parent, *parent.children(recursive=True)]
    except psutil.NoSuchProcess:
        return


@dataclass
class Usage:
    """The peaks of own memory and of memory with mapped files, in bytes, and the processor time of each process by id.

    The private memory that the system reports (USS) would count pages of mapped files that only one process has read.
    """

    pause: float  # seconds between readings
    own: int = 0
    mapped: int = 0
    seconds: dict[int, float] = field(default_factory=dict)

    @property
    def main_seconds(self) -> float:
        """The processor time of the process without its children."""
        return next(iter(self.seconds.values()), 0.0)

    @property
    def all_seconds(self) -> float:
        """The processor time of the process and its children."""
        return sum(self.seconds.values())

    def watch(self, pid: int) -> None:
        """Read memory and time of a process and its children until it ends."""
        self.seconds[pid] = 0.0
        for processes in family(pid):
            memory = []
            for process in processes:
                try:
                    memory.append(process.memory_full_info())
                    times = process.cpu_times()
                    self.seconds[process.pid] = times.user + times.system
                except psutil.Error:
                    continue
            self.own = max(self.own, sum(one.rss - one.shared for one in memory))
            self.mapped = max(self.mapped, sum(one.pss for one in memory))
            time.sleep(self.pause)
