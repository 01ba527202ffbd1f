"""Counts and speeds in words: a number with its noun, in the singular or the plural, and in the better unit."""

from collections.abc import Iterable


def counted(count: int, noun: str) -> str:
    """Return a count with its noun: `1 seed`, `3 seeds`, `1,000 entries`."""
    return f"{count:,} {noun if count == 1 else plural(noun)}"


def listed(names: Iterable[str]) -> str:
    """Return names with commas between them; if one has a comma itself, all are in quotes."""
    names = list(names)
    return ", ".join(map(repr, names) if any("," in name for name in names) else names)


def plural(noun: str) -> str:
    """Return the plural of a noun; of several words, that of the last."""
    if noun.endswith("y") and noun[-2:-1] not in "aeiou":
        return f"{noun[:-1]}ies"
    return f"{noun}es" if noun.endswith(("s", "sh", "ch", "x")) else f"{noun}s"


def singular(nouns: str) -> str:
    """Return the singular of a unit of progress, such as `steps`; a unit such as `kB` stays as it is."""
    return nouns[:-1] if nouns.endswith("s") and not nouns.endswith("ss") else nouns


def speed(rate: float, unit: str) -> str:
    """Return a speed in the better unit: steps per second, or seconds per step."""
    if rate >= 1:
        return f"{rate:,.1f} {unit} per second"
    return f"{1 / rate:,.1f} s per {singular(unit)}"


def remaining(seconds: float) -> str:
    """Return the time left in words, in the unit that a person would use."""
    if seconds < 90:
        return f"about {seconds:.0f} s left"
    if seconds < 5400:
        return f"about {seconds / 60:.0f} min left"
    return f"about {seconds / 3600:.1f} h left"
