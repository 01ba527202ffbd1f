"""`supmer init`: make a workspace in a folder of its own, apart from the program's source tree."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import click

from storage.errors import InputError, did_you_mean

SOURCE = Path(__file__).parents[2]  # the source tree that this program runs from
LINKED = ("flows", "model", "storage", "tasks")  # code that stages depend on: the workspace links to the program's own
COPIED = (
    ".dvc/config",
    ".dvc/.gitignore",
    ".dvcignore",
    "dvc.yaml",
    "inputs.yaml",
    "inputs/README.md",
    "prefect.yaml",
    "profiles",
)
EXAMPLES = """\b
Examples:
  supmer init ~/prompts
  supmer init ~/prompts --profile offline-tiny
"""


@click.command(name="init", epilog=EXAMPLES)
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--profile", default="quickstart", show_default=True, help="The profile that params.yaml begins with.")
def command(folder: Path, profile: str) -> None:
    """Make a workspace in DIR, outside the source tree: dvc.yaml, params.yaml, profiles, and a git repository.

    The code that stages depend on is linked, so an update of supmer reaches the workspace. Called again on a workspace,
    for example after a clone of it on another machine, the command renews the links and changes nothing else.
    """
    _require_source()
    chosen = _profile(profile)
    root = folder.expanduser().resolve()
    known = (root / "dvc.yaml").is_file() and (root / "params.yaml").is_file()
    if root.is_relative_to(SOURCE):
        raise InputError(f"{folder}: lies in the source tree, which is a workspace itself: name a folder elsewhere")
    if not known and root.exists() and (not root.is_dir() or any(root.iterdir())):
        raise InputError(f"{folder}: is not empty: name a new folder")
    root.mkdir(parents=True, exist_ok=True)
    if not known:
        _copy(root, chosen)
        _start_git(root)
    _link(root)
    what = "links renewed" if known else f"a workspace with the profile {profile}"
    click.echo(f"{folder}: {what}: cd {folder} && supmer run")


def _require_source() -> None:
    missing = [name for name in ("dvc.yaml", "profiles") if not (SOURCE / name).exists()]
    if missing:
        raise InputError(
            f"{SOURCE}: has no {missing[0]}: supmer was installed without its source tree: clone it and `make install`"
        )


def _profile(name: str) -> Path:
    known = sorted(path.stem for path in (SOURCE / "profiles").glob("*.yaml"))
    if name not in known:
        raise InputError(f"--profile {name}: no such profile{did_you_mean(name, known)} ({', '.join(known)})")
    return SOURCE / "profiles" / f"{name}.yaml"


def _copy(root: Path, profile: Path) -> None:
    """Copy what a workspace consists of, without the code; other files that dvc.yaml names are copied too."""
    from flows.dvc_state.forgotten_list import require_list

    for name in (*COPIED, *_other_dependencies()):
        target = root / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if (SOURCE / name).is_dir():
            shutil.copytree(SOURCE / name, target, dirs_exist_ok=True)
        else:
            shutil.copyfile(SOURCE / name, target)
    shutil.copyfile(profile, root / "params.yaml")
    ignored = "".join(f"/{name}\n" for name in LINKED)
    (root / ".gitignore").write_text(
        f"{(SOURCE / '.gitignore').read_text()}# links to the program's code: `supmer init .` renews them\n{ignored}"
    )
    require_list(root)


def _other_dependencies() -> list[str]:
    """Return the files and folders of the source tree that stages depend on, apart from code, data and the list."""
    from ruamel.yaml import YAML

    from storage import paths
    from storage.lockfile import is_code

    stages = YAML(typ="safe").load((SOURCE / "dvc.yaml").read_bytes())["stages"].values()
    named = {dep for stage in stages for dep in stage.get("deps", ())}
    made = ("data/", "artifacts/", "inputs")
    return sorted(
        dep
        for dep in named
        if not is_code(dep) and not dep.startswith(made) and dep != paths.FORGOTTEN and (SOURCE / dep).exists()
    )


def _link(root: Path) -> None:
    for name in LINKED:
        link = root / name
        if link.is_symlink():
            link.unlink()
        if link.exists():
            raise InputError(f"{link}: is there and not a link: this is a source tree; run supmer in it as it is")
        link.symlink_to(SOURCE / name, target_is_directory=True)


def _start_git(root: Path) -> None:
    """Make the workspace a git repository, unless it lies in one or there is no git."""
    if shutil.which("git") and not any((folder / ".git").exists() for folder in (root, *root.parents)):
        subprocess.run(["git", "init", "--quiet"], cwd=root, check=False, env=os.environ | {"GIT_TERMINAL_PROMPT": "0"})
