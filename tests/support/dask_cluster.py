"""A Dask scheduler and workers, as processes of their own."""

import subprocess
import sys
import time

import orjson

from support.dying import KILLED
from support.workspaces import BIN

ALONE = ("--no-nanny", "--nthreads", "1")  # a worker that nothing starts again, with one shard at a time


class Cluster:
    """A scheduler that is there, and the workers that were added."""

    def __init__(self, workspace, folder):
        self.workspace, self.file = workspace, folder / "scheduler.json"
        self.scheduler = self._start([BIN / "dask", "scheduler", "--port", "0"])
        while not self.file.exists():
            assert self.scheduler.poll() is None
            time.sleep(0.05)
        self.address = orjson.loads(self.file.read_bytes())["address"]
        self.workers = []

    def _start(self, command, **environment):
        options = ["--scheduler-file", self.file, "--host", "127.0.0.1", "--no-dashboard"]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        environment = self.workspace.environment | environment
        return subprocess.Popen([*command, *options], cwd=self.workspace.root, env=environment, **quiet)

    def add_worker(self, *options):
        self.workers.append(self._start([BIN / "dask", "worker", *options]))

    def add_doomed_worker(self, moment):
        """Start a worker that dies at the moment, as with `kill -9`; return its process."""
        self.workers.append(self._start([sys.executable, KILLED, "dask", "worker", *ALONE], **moment.environment()))
        return self.workers[-1]

    def end(self):
        for process in (*self.workers, self.scheduler):
            process.terminate()
        for process in (*self.workers, self.scheduler):
            process.wait(20)
