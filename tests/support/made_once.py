"""Make a slow fixture once for all processes that share the tests (pytest-xdist starts several)."""

import os

from filelock import FileLock


def made_once(tmp_path_factory, name, make):
    """Return the folder `name`, which the first caller lets `make` fill; tests must not change it."""
    top = tmp_path_factory.getbasetemp()
    top = top.parent if "PYTEST_XDIST_WORKER" in os.environ else top
    made = top / f"{name}.made"
    with FileLock(top / f"{name}.lock"):
        if not made.exists():
            (top / name).mkdir()
            make(top / name)
            made.touch()
    return top / name
