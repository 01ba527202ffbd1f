"""What messages tell a person to type is what the command line takes."""

import re
import shlex
from pathlib import Path

import pytest

from support.command_line import resolve

REPOSITORY = Path(__file__).parents[1]
COMMAND = re.compile(r"`(supmer [^`\n]+)`")
PLACEHOLDER = re.compile(r"\{[^{}]*\}|\b[A-Z]{2,}\b")  # of an f-string, or a word such as STAGE


def advised():
    """Every command between backticks in the packages, placeholders filled in."""
    for package in ("flows", "model", "storage", "supmer", "tasks"):
        for path in sorted((REPOSITORY / package).rglob("*.py")):
            for found in COMMAND.findall(path.read_text("utf-8")):
                yield pytest.param(PLACEHOLDER.sub("sample", found), id=f"{path.relative_to(REPOSITORY)}: {found}")


@pytest.mark.parametrize("command", list(advised()))
def test_an_advised_command_is_one_that_the_command_line_takes(command):
    verb, context, words = resolve(shlex.split(command)[1:])
    if words:  # a verb alone is its name, not a command to type
        verb.make_context(context.info_name, words, parent=context.parent)
