"""The documentation tells the truth: what it shows is run, and what it mentions exists."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest

from flows.cli import VERBS
from support.command_line import resolve
from support.documented import agrees, mentions, steps

REPOSITORY = Path(__file__).parents[1]
PAGES = [REPOSITORY / "README.md", REPOSITORY / "CONTRIBUTING.md", *sorted((REPOSITORY / "docs").rglob("*.md"))]
BIN = Path(sys.executable).parent
CLONED = (".dvc", ".dvcignore", ".gitignore", "dvc.yaml", "inputs", "inputs.yaml", "params.yaml", "profiles", "prompts")
CODE = ("flows", "model", "storage", "tasks")


def page_id(page):
    return page.relative_to(REPOSITORY).as_posix()


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_every_command_that_is_mentioned_exists_with_these_options(page):
    for line, mentioned in mentions(page.read_text()):
        try:
            command, context, words = resolve(mentioned)
            if not isinstance(command, click.Group):
                command.make_parser(context).parse_args(words)
        except LookupError as error:
            pytest.fail(f"{page.name}: {line}: {error}")
        except click.UsageError as error:
            pytest.fail(f"{page.name}: {line}: {error.format_message()}")


def test_every_verb_is_mentioned_somewhere():
    named = {words[0] for page in PAGES for _, words in mentions(page.read_text()) if words}
    assert set(VERBS) - named == set()


@pytest.fixture(scope="module")
def clone(tmp_path_factory, prefect_home):
    """A fresh clone, save that Prefect's database is made already."""
    root = tmp_path_factory.mktemp("clone") / "supmer"
    root.mkdir()
    ignore = shutil.ignore_patterns("__pycache__", "cache", "tmp", "config.local")
    for name in (*CODE, *CLONED):
        if (REPOSITORY / name).is_dir():
            shutil.copytree(REPOSITORY / name, root / name, symlinks=True, ignore=ignore)
        else:
            shutil.copyfile(REPOSITORY / name, root / name)
    shutil.copytree(prefect_home, root / ".prefect")
    subprocess.run(["git", "init", "--quiet"], cwd=root, check=True)
    return root


@pytest.mark.parametrize("page", [page for page in PAGES if steps(page.read_text())], ids=page_id)
def test_what_a_page_shows_is_what_happens(clone, page):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
    environment |= {"PATH": f"{BIN}:{os.environ['PATH']}", "COLUMNS": "120"}
    for step in steps(page.read_text()):
        command = ["bash", "-o", "pipefail", "-c", f"exec 2>&1; {step.command}"]
        done = subprocess.run(command, cwd=clone, env=environment, stdout=subprocess.PIPE, text=True, check=False)
        assert done.returncode == 0, f"$ {step.command}\n{done.stdout}"
        right, missing = agrees(step.printed, done.stdout.splitlines())
        assert right, f"$ {step.command}\nnot printed: {missing}\n{done.stdout}"
