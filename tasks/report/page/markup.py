"""Elements of the plots, in which every text is escaped: only markup that `tag` made is inserted unchanged."""

import re

from markupsafe import Markup

_UNPRINTABLE = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029\ufeff]")

Content = str | Markup | None


def tag(element: str, /, *children: Content, **attributes: object) -> Markup:
    """Return an element; `class_` is class, `aria_label` aria-label.

    An attribute with the value None or False is left out, one with True has no value.
    """
    listed = Markup("").join(
        Markup(" {}").format(_name(key)) if value is True else Markup(' {}="{}"').format(_name(key), cleaned(value))
        for key, value in attributes.items()
        if value is not None and value is not False
    )
    return Markup("<{}{}>{}</{}>").format(element, listed, inner(*children), element)


def inner(*children: Content) -> Markup:
    """Return the children joined, with plain text escaped."""
    return Markup("").join(
        child if isinstance(child, Markup) else cleaned(child) for child in children if child is not None
    )


def cleaned(value: object) -> str:
    """Return text without unprintable characters, which do not belong in HTML; markup is returned unchanged."""
    return value if isinstance(value, Markup) else _UNPRINTABLE.sub(" ", str(value))


def _name(key: str) -> str:
    return key.rstrip("_").replace("_", "-")
