"""The workspace: the folder that holds dvc.yaml, and the settings that apply to everything that runs in it."""

import configparser
import os
import stat
from pathlib import Path

import click

from storage import paths
from storage.errors import InputError

UMASK = "SUPMER_UMASK"  # environment variable: which rights new files do not get, in octal; default: none for others
PRIVATE_UMASK = 0o077
FIND_ONE = "cd into one, or make one with `supmer init DIR`"

QUIET = {
    "DO_NOT_TRACK": "1",
    "DVC_NO_ANALYTICS": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    # After kill -9 Python's resource tracker would print a warning about semaphores it has cleaned up.
    "PYTHONWARNINGS": "ignore:resource_tracker",
    "TOKENIZERS_PARALLELISM": "false",
}


def find_root(start: Path | None = None) -> Path:
    """Return the nearest folder, from `start` upwards, that holds a dvc.yaml and a params.yaml.

    Raise InputError if there is none.
    """
    here = (start or Path.cwd()).resolve()
    for folder in (here, *here.parents):
        if (folder / "dvc.yaml").is_file() and (folder / "params.yaml").is_file():
            return folder
        if (folder / "dvc.yaml").is_file() and (folder / "profiles").is_dir():
            raise InputError(f"{folder / 'params.yaml'}: is missing: `supmer params use quickstart` puts one there")
    raise InputError(f"{here}: not inside a supmer workspace (no dvc.yaml with params.yaml here or above): {FIND_ONE}")


def enter(start: Path | None = None) -> Path:
    """Find the workspace, make it the working directory, turn off telemetry and return the root.

    Files that are written from now on are private (`keep_private`).
    """
    root = find_root(start)
    os.chdir(root)
    keep_private(root)
    silence()
    _agree_on_git(root)
    return root


def keep_private(root: Path) -> None:
    """Let no other user read what this process and its children write from now on, unless SUPMER_UMASK allows it."""
    chosen = os.environ.get(UMASK)
    if chosen is None:
        os.umask(os.umask(PRIVATE_UMASK) | PRIVATE_UMASK)
    elif len(chosen) <= 4 and chosen.isdecimal() and not set(chosen) & {"8", "9"}:
        os.umask(int(chosen, 8))
    else:
        raise InputError(f"{UMASK}={chosen}: not a mask of rights: write it in octal like 022, or leave it out")
    for folder in (paths.PRIVATE, paths.PREFECT_HOME):
        if (root / folder).is_dir():
            private_folder(root / folder)


def private_folder(folder: Path) -> None:
    """Make a folder with the rights that the umask leaves; take them from one that exists and is this user's."""
    folder.mkdir(parents=True, exist_ok=True)
    umask = os.umask(PRIVATE_UMASK)
    os.umask(umask)
    status = folder.stat()
    if status.st_mode & umask & 0o777 and status.st_uid == os.geteuid():
        folder.chmod(stat.S_IMODE(status.st_mode) & ~umask)


def silence() -> None:
    """Turn off the telemetry and the notices of libraries."""
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)


def _agree_on_git(root: Path) -> None:
    """Tell DVC whether the workspace is under git; DVC refuses to open an unpacked archive, which is not."""
    with_git = any((folder / ".git").exists() for folder in (root, *root.parents))
    path = root / ".dvc" / "config.local"
    config = configparser.ConfigParser()
    config.read(path)
    without = config.getboolean("core", "no_scm", fallback=False)
    if with_git != without:
        return
    if with_git:
        config.remove_option("core", "no_scm")
    else:
        config.read_dict({"core": {"no_scm": "true"}})
        click.echo("no git here: DVC versions outputs without it (core.no_scm in .dvc/config.local)", err=True)
    with path.open("w") as file:
        config.write(file)
