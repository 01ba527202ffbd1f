"""What messages tell a person to type is what the command line takes."""

import re
import shlex
from pathlib import Path

import click
import pytest

from flows.cli import cli

REPOSITORY = Path(__file__).parents[1]
COMMAND = re.compile(r"`(supmer [^`\n]+)`")
PLACEHOLDER = re.compile(r"\{[^{}]*\}|\b[A-Z]{2,}\b")  # of an f-string, or a word such as STAGE


def advised():
    """Every command between backticks in the packages, placeholders filled in."""
    for package in ("flows", "model", "storage", "tasks"):
        for path in sorted((REPOSITORY / package).rglob("*.py")):
            for found in COMMAND.findall(path.read_text("utf-8")):
                yield pytest.param(PLACEHOLDER.sub("sample", found), id=f"{path.relative_to(REPOSITORY)}: {found}")


@pytest.mark.parametrize("command", list(advised()))
def test_an_advised_command_is_one_that_the_command_line_takes(command):
    here, words = cli, shlex.split(command)[1:]
    while isinstance(here, click.Group) and words:
        name, *words = words
        with click.Context(here) as context:
            found = here.get_command(context, name)
        assert found is not None, f"no command {name}"
        here = found
    if words:  # a verb alone is its name, not a command to type
        here.make_context(here.name, list(words))
