"""The checks of `supmer doctor`: each says what was found, and what to do if that is not in order."""

from __future__ import annotations

import os
import platform
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Literal

from storage import paths
from storage.errors import InputError, first_line

State = Literal["ok", "warning", "problem"]
OLDEST_PYTHON = (3, 11)
LITTLE_DISK = 5_000_000_000  # the quickstart needs about 2 GB
NO_DISK = 500_000_000
LITTLE_MEMORY = 4_000_000_000
HUB_SECONDS = 5.0
UI_PORT = 4200
_PINNED = re.compile(r"^([A-Za-z0-9._-]+)==([^ \\;]+)", re.MULTILINE)
_SOURCE = Path(__file__).parents[1]


@dataclass(frozen=True)
class Check:
    """The result of one check; `advice` is empty if there is nothing to do."""

    name: str
    state: State
    found: str
    advice: str = ""


def checks(root: Path | None, *, offline: bool) -> Iterator[Check]:
    """Yield the checks of the machine, then those of the workspace at `root`, if there is one."""
    yield _python()
    yield _packages()
    yield _git()
    yield from _disks(root)
    yield _memory()
    yield _device()
    yield _hub(offline=offline)
    yield _port()
    yield from _workspace(root) if root else [_no_workspace()]


def _python() -> Check:
    found = f"{platform.python_version()} ({sys.executable})"
    if sys.version_info[:2] < OLDEST_PYTHON:
        return Check("python", "problem", found, "install Python 3.11 or newer, then `make install`")
    return Check("python", "ok", found)


def _packages() -> Check:
    """Compare the installed packages with the lock files of the source tree."""
    wanted = {
        name: pinned
        for lock in ("requirements.lock", "requirements-torch-cpu.lock")
        if (_SOURCE / lock).is_file()
        for name, pinned in _PINNED.findall((_SOURCE / lock).read_text())
    }
    differing = [
        f"{name} {there or 'missing'} (locked: {pinned})"
        for name, pinned in wanted.items()
        if (there := _installed(name)) is None or there.partition("+")[0] != pinned.partition("+")[0]
    ]
    supmer = f"supmer {_installed('supmer')}, {len(wanted)} locked packages"
    if not differing:
        return Check("packages", "ok", supmer)
    shown = ", ".join(differing[:3]) + (f" and {len(differing) - 3} more" if len(differing) > 3 else "")
    return Check(
        "packages", "warning", f"{supmer}; not as locked: {shown}", "`make install` installs the locked versions"
    )


def _installed(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _git() -> Check:
    if shutil.which("git") is None:
        return Check("git", "warning", "not installed", "install it, or lineage has no commits and DVC no history")
    asked = subprocess.run(["git", "--version"], capture_output=True, text=True, check=False)
    return Check("git", "ok", asked.stdout.strip().removeprefix("git version "))


def _disks(root: Path | None) -> Iterator[Check]:
    for name, folder in (("disk", root or Path.cwd()), ("temporary files", Path(tempfile.gettempdir()))):
        free = shutil.disk_usage(folder).free
        found = f"{free / 1e9:,.1f} GB free at {folder}"
        if free < NO_DISK:
            yield Check(name, "problem", found, "make room; `supmer gc` frees what no version needs")
        elif free < LITTLE_DISK:
            yield Check(name, "warning", found, "`supmer cost` estimates what a run needs; `supmer gc` frees some")
        else:
            yield Check(name, "ok", found)


def _memory() -> Check:
    import psutil

    available = psutil.virtual_memory().available
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    found = f"{available / 1e9:,.1f} GB available, {cores} core{'' if cores == 1 else 's'}"
    if available < LITTLE_MEMORY:
        return Check("memory", "warning", found, "close other programs, or use --workers 1; `supmer cost` estimates")
    return Check("memory", "ok", found)


def _device() -> Check:
    try:
        import torch

        from model.device import device
    except ImportError as error:
        return Check("torch", "problem", f"cannot be imported ({first_line(error)})", "`make install`")
    return Check("torch", "ok", f"{torch.__version__}, models run on {device()}")


def _hub(*, offline: bool) -> Check:
    address = os.environ.get("HF_ENDPOINT", "https://huggingface.co")
    if offline or os.environ.get("HF_HUB_OFFLINE", "").lower() in {"1", "true", "on", "yes"}:
        return Check("hub", "ok", "not asked")
    import urllib.error
    import urllib.request

    try:
        with urllib.request.urlopen(f"{address}/api/models?limit=1", timeout=HUB_SECONDS):  # noqa: S310 - the user's
            return Check("hub", "ok", f"{address} answers")
    except urllib.error.HTTPError as error:
        return Check("hub", "warning", f"{address} answers {error.code}", "check HF_ENDPOINT and HF_TOKEN")
    except (OSError, ValueError) as error:
        reason = first_line(getattr(error, "reason", None) or error) if isinstance(error, Exception) else str(error)
        advice = "hf: sources need it; wheel:, path: and made: sources do not. Behind a mirror, set HF_ENDPOINT"
        return Check("hub", "warning", f"{address} cannot be reached ({reason})", advice)


def _port() -> Check:
    """Check that a server can listen on this machine, as every run needs, and that the interface's port is free."""
    try:
        with socket.create_server(("127.0.0.1", 0)):
            pass
    except OSError as error:
        return Check("ports", "problem", f"none can be opened on 127.0.0.1 ({error.strerror})", "allow local servers")
    with socket.socket() as probe:
        probe.settimeout(1)
        taken = probe.connect_ex(("127.0.0.1", UI_PORT)) == 0
    if taken:
        return Check(
            "ports", "warning", f"{UI_PORT} is in use", "`supmer ui --port 0` takes a free one; runs do not need it"
        )
    return Check("ports", "ok", f"local servers can listen, {UI_PORT} is free")


def _no_workspace() -> Check:
    return Check("workspace", "warning", "not inside one", "cd into one, or make one with `supmer init DIR`")


def _workspace(root: Path) -> Iterator[Check]:
    yield _parameters(root)
    yield _links(root)
    from flows.lock import holder_in_words, is_free

    if is_free(root):
        yield Check("lock", "ok", "no other command runs here")
    else:
        yield Check("lock", "warning", f"{holder_in_words(root)} runs here", "wait for it, or end it")


def _parameters(root: Path) -> Check:
    from flows.options import overlaid
    from storage.lockfile import read_pipeline

    try:
        read_pipeline(root)
        overlaid(root, ())
    except InputError as error:
        return Check("workspace", "problem", first_line(error))
    return Check("workspace", "ok", f"{root}, params.yaml and dvc.yaml are valid")


def _links(root: Path) -> Check:
    """Check that files of the shard store and of DVC's cache can share their bytes."""
    from storage.lockfile import cache_folder

    private, cache = root / paths.PRIVATE, cache_folder(root)
    if not private.is_dir() or not cache.is_dir():
        return Check("cache", "ok", "empty: no stage has run here")
    with tempfile.TemporaryDirectory(dir=private) as here, tempfile.TemporaryDirectory(dir=cache.parent) as there:
        (Path(here) / "a").write_bytes(b"a")
        try:
            (Path(there) / "b").hardlink_to(Path(here) / "a")
        except OSError as error:
            found = f"{cache} cannot share bytes with the workspace ({error.strerror})"
            return Check("cache", "warning", found, "outputs take their room twice: keep both on one file system")
    return Check("cache", "ok", "outputs, cache and shards can share their bytes")
