"""Reasons why parameters are refused, in the terms of params.yaml: place, key, problem, value, nearest valid choice."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from difflib import get_close_matches
from typing import Any, Literal, get_args, get_origin

from pydantic import ValidationError

from tasks.params.changed_keys import changed
from tasks.params.reference import group_names, nearest_key, spell, value_type
from tasks.params.schema_base import IMPOSSIBLE, SAID_WHOLE, Impossible, shown

Place = str
LONGEST_VALUE = 120

_EXPECTED = {
    "int_type": "a whole number",
    "float_type": "a number",
    "string_type": "text",
    "bool_type": "true or false",
    "list_type": "a list",
    "dict_type": "a mapping of names to values",
    "model_type": "a group of keys",
    "model_attributes_type": "a group of keys",
}
_BOUNDS = {
    "greater_than": ("above", "gt"),
    "greater_than_equal": ("at least", "ge"),
    "less_than": ("below", "lt"),
    "less_than_equal": ("at most", "le"),
}


def refusals(error: ValidationError, place: Callable[[Sequence[Any]], Place]) -> Iterator[str]:
    """Yield a line for each problem, in the order of the schema."""
    for problem in error.errors(include_url=False):
        if problem["type"] == IMPOSSIBLE:
            yield from combinations(problem["ctx"]["problems"], place)
            continue
        path = tuple(part for part in problem["loc"] if part != "[key]")
        yield f"{place(path)}: {dotted(path)}: {_described(problem, path)}"


def combinations(problems: Iterable[Impossible], place: Callable[[Sequence[Any]], Place]) -> Iterator[str]:
    """Yield a line for each combination of values that cannot work."""
    for problem in problems:
        paths = [key.split(".") for key in (problem.key, *problem.others)]
        where = "-S" if "-S" in map(place, paths) else place(paths[0])
        yield f"{where}: {problem.key}: {problem.text} ({_got(problem.value)})"


def dotted(path: Sequence[Any]) -> str:
    """Return a key in full, with list positions in brackets: `tune.seeds[2]`."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).removeprefix(".")


def unknown(path: Sequence[Any]) -> str:
    """Return the message about a key that the schema does not have."""
    names = tuple(str(part) for part in path)
    if text := changed(names):
        return text
    nearest = nearest_key(names)
    if nearest:
        return f"unknown key; did you mean {nearest}?"
    if path[0] in group_names():
        return "unknown key"
    close = get_close_matches(str(path[0]), group_names(), n=1)
    hint = f"did you mean a key of {close[0]}?" if close else f"the groups are: {', '.join(group_names())}"
    return f"unknown key; {hint}"


def _described(problem: Any, path: tuple[Any, ...]) -> str:
    kind, context, value = problem["type"], problem.get("ctx", {}), problem["input"]
    if kind == "extra_forbidden":
        head, _, tail = unknown(path).partition("; ")
        return f"{head} ({_got(value)})" + (f"; {tail}" if tail else "")
    if kind == "missing":
        return (
            f"missing (expected {spell(value_type(path))})" if len(path) > 1 else "missing (expected a group of keys)"
        )
    if kind in SAID_WHOLE:
        return str(context["text"])
    if kind == "literal_error":
        return _not_a_choice(path, value)
    return f"{_rule(kind, context, problem['msg'])} ({_got(value)})"


def _rule(kind: str, context: dict[str, Any], message: str) -> str:
    if kind in _EXPECTED:
        return f"expected {_EXPECTED[kind]}"
    if kind in _BOUNDS:
        word, bound = _BOUNDS[kind]
        return f"must be {word} {shown(context[bound])}"
    if kind == "finite_number":
        return "must be a finite number"
    if kind in ("too_short", "string_too_short"):
        return "must not be empty"
    if kind == "string_pattern_mismatch":
        return "a name is made of a-z, 0-9, - and _, and starts with a letter or digit"
    return message


def _not_a_choice(path: tuple[Any, ...], value: Any) -> str:
    annotation = value_type(tuple(part for part in path if not isinstance(part, int)))
    while get_origin(annotation) is not Literal:
        annotation = get_args(annotation)[0]
    choices = get_args(annotation)
    close = get_close_matches(str(value), map(str, choices), n=1)
    text = f"must be one of {', '.join(map(str, choices))} ({_got(value)})"
    return text + (f"; did you mean {close[0]}?" if close else "")


def _got(value: Any) -> str:
    text = shown(value)
    return f"got {text if len(text) <= LONGEST_VALUE else text[: LONGEST_VALUE - 1] + '…'}"
