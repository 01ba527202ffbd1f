"""The colour of each method: the same in every figure, table and report, whatever else was run."""

from functools import cache

from tasks.methods import METHODS, in_order, method_of

COLOURS = 16  # colours of methods in report.css; further methods share them and are told apart by dashes
_OWN = sum(method.summarized for method in METHODS.values())  # methods whose colours no other method shares
FORMAT_STYLES = {"sp": -1, "mc": -2, "ss": -3}
"""Styles of the task formats: negative, because a format must not look like a method."""
OTHER = -4  # the style of chance, and of what is neither a method nor a format


def style_class(style: int) -> str:
    """Return the CSS class of a style's colour."""
    if style < 0:
        return f"f{-style}"
    return f"s{style if style < COLOURS else _OWN + (style - COLOURS) % (COLOURS - _OWN)}"


def style_of(name: str) -> int:
    """Return the style of a method or of a prompt that `metatrain` learns; the methods in the summary come first."""
    styles = _styles()
    if name in styles:
        return styles[name]
    try:
        return styles[method_of(name).name]
    except KeyError:
        return OTHER


@cache
def _styles() -> dict[str, int]:
    def rank(name: str) -> tuple[bool, int]:
        method = METHODS[name]
        return not method.summarized, method.drawn

    return {name: place for place, name in enumerate(sorted(in_order(METHODS), key=rank))}
