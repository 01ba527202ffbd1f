"""Read the documentation: the blocks that are meant to be run, and every `supmer …` command it mentions."""

import re
import shlex
from dataclasses import dataclass

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"`(supmer [^`\n]+)`")
_ASIDE = re.compile(r"\s{2,}(?=[^\s\"'])")  # begins the remark beside a command in a list of commands
# Fractions, times and sizes depend on the machine; all other numbers must be as the page shows them.
_MEASURED = re.compile(r"\d[\d,]*\.\d+(?:e-?\d+)?|\d[\d,]*(?= (?:s|ms|B|kB|MB|GB)\b)")
LEFT_OUT = "…"
_END = {"|", "||", "&&", ";", ">", ">>", "<", "(", ")", "&", "#"}


@dataclass(frozen=True)
class Step:
    """A command line, and the lines that it prints."""

    command: str
    printed: tuple[str, ...]


def steps(text):
    """Return the steps of all blocks of a page that are meant to be run."""
    found = []
    for kind, block in _FENCE.findall(text):
        if kind == "console":
            for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
                command, *printed = part.splitlines()
                found.append(Step(command, tuple(printed)))
    return found


def mentions(text):
    """Return (line, words) of every `supmer` command in the fenced, indented and inline code of a page."""
    code = [line for _, block in _FENCE.findall(text) for line in block.splitlines()]
    rest = _FENCE.sub("", text)
    code += [line for line in rest.splitlines() if line.startswith("    ")]
    lines = [line.strip().removeprefix("$ ") for line in code]
    lines = [_ASIDE.split(line)[0] for line in lines if line.startswith("supmer ")] + _INLINE.findall(rest)
    return [(line, words(line)) for line in lines]


def words(line):
    """Return the words of the first command of a line, without `supmer`."""
    reader = shlex.shlex(line, posix=True, punctuation_chars=True)
    reader.whitespace_split, reader.commenters = True, ""
    found = []
    for word in reader:
        if word in _END:
            break
        found.append(word)
    return found[1:]


def agrees(shown, printed):
    """Return (True, None) if the printed lines contain the shown lines in order, ignoring measures and spaces.

    Otherwise return False and the first shown line that is missing.
    """
    left = iter(plain(line) for line in printed)
    for line in shown:
        if line.strip() != LEFT_OUT:
            pattern = re.compile(".*".join(re.escape(part) for part in plain(line).split(LEFT_OUT)))
            if not any(pattern.fullmatch(one) for one in left):
                return False, line
    return True, None


def plain(line):
    return " ".join(_MEASURED.sub("0", line).replace("─", "").split())
