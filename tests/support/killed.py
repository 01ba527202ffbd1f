"""`supmer`, killed at an exact moment: `python killed.py run …`, the moment in $KILLED_AT.

The moment is a call of one function, in the run or in any of its workers: just before it or just after it, the n-th
whose arguments match a pattern. The run is then killed as `kill -9` would; nothing else about it is different.
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
        """Put a function that kills in the place of the one that is named."""
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
    """Installs the moment as soon as its module is loaded, before anybody can take the function from it."""

    def __init__(self, moment):
        self.moment = moment

    def find_spec(self, name, path, target=None):  # noqa: ARG002 - the protocol's
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
    time.sleep(60)  # a worker: it has to notice by itself that the run is gone


# Workers are started afresh and load this file as well, under another name.
if "KILLED_AT" in os.environ:
    moment = Moment(**json.loads(os.environ["KILLED_AT"]))
    if moment.module in sys.modules:
        moment.install(sys.modules[moment.module])
    else:
        sys.meta_path.insert(0, Finder(moment))

if __name__ == "__main__":
    from flows.cli import main

    os.environ["KILLED_RUN"] = str(os.getpid())
    sys.argv[0] = "supmer"
    main()
