"""Run `supmer` and kill it at an exact moment: `python killed.py run …`, with the moment in $KILLED_AT.

`python killed.py dask worker …` is a Dask worker that dies so.

The moment is just before or just after the n-th call of one function whose arguments match a pattern, in the run or in
any of its workers. The run is then killed as with `kill -9`; otherwise it is an ordinary run.
"""

import builtins
import importlib.util
import json
import os
import re
import signal
import sys
import time
from dataclasses import asdict, dataclass
from functools import wraps
from importlib.abc import MetaPathFinder
from operator import attrgetter


@dataclass(frozen=True)
class Moment:
    """A call of `target` (module:function) whose arguments, as text, match `pattern`."""

    target: str
    when: str  # before or after
    pattern: str = ""
    nth: int = 1

    def environment(self):
        return {"KILLED_AT": json.dumps(asdict(self))}

    @property
    def module(self):
        return self.target.partition(":")[0]

    def install(self, module):
        """Replace the named function by one that kills the run at the moment."""
        *owners, name = self.target.partition(":")[2].split(".")
        owner = attrgetter(".".join(owners))(module) if owners else module
        function = getattr(owner, name, None) or getattr(builtins, name)
        calls = 0

        @wraps(function)
        def watched(*arguments, **options):
            nonlocal calls
            matches = re.search(self.pattern, repr((arguments, options))) is not None
            calls += matches
            if matches and calls == self.nth and self.when == "before":
                kill_the_run()
            result = function(*arguments, **options)
            if matches and calls == self.nth:
                kill_the_run()
            return result

        setattr(owner, name, watched)


class Finder(MetaPathFinder):
    """A finder that installs the moment as soon as its module is loaded, before others import the function from it."""

    def __init__(self, moment):
        self.moment = moment

    def find_spec(self, name, path, target=None):  # noqa: ARG002 - the protocol's signature
        if name != self.moment.module:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        load = spec.loader.exec_module

        def exec_module(module):
            load(module)
            self.moment.install(module)

        spec.loader.exec_module = exec_module
        return spec


def kill_the_run():
    os.kill(int(os.environ["KILLED_RUN"]), signal.SIGKILL)
    time.sleep(60)  # in a worker, which has to notice by itself that the run is gone


# Workers are new processes and load this file too, under another name.
if "KILLED_AT" in os.environ:
    moment = Moment(**json.loads(os.environ["KILLED_AT"]))
    if moment.module in sys.modules:
        moment.install(sys.modules[moment.module])
    else:
        sys.meta_path.insert(0, Finder(moment))

if __name__ == "__main__":
    os.environ["KILLED_RUN"] = str(os.getpid())
    if sys.argv[1] == "dask":
        from dask.__main__ import main

        sys.argv.pop(0)
    else:
        from flows.cli import main

        sys.argv[0] = "supmer"
    main()
