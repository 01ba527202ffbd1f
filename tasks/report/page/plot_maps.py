"""Panels without axes as inline SVG: maps of circles, and confusion matrices."""

import json
from math import sqrt

from markupsafe import Markup

from tasks.report.page.colours import style_class
from tasks.report.page.markup import tag
from tasks.report.page.parts import Map, Matrix

WIDTH = 340
_TOP, _MAP_HEIGHT, _MARGIN = 42, 260, 26
_LARGEST, _SMALLEST = 20.0, 3.0  # radii of circles
_LETTER = 6.2  # width of a letter
_SHADES = 8  # shades of a matrix, from none to all of a row


def circle_map(panel: Map, name: str) -> Markup:
    """Return a map; the largest circles are drawn first, so that no circle hides a smaller one."""
    xs, ys = [place.x for place in panel.places], [place.y for place in panel.places]
    height = _MAP_HEIGHT - _TOP
    across, upward = max(xs) - min(xs) or 1.0, max(ys) - min(ys) or 1.0
    # One scale for both axes: distances stay true.
    scale = min((WIDTH - 2 * _MARGIN) / across, (height - 2 * _MARGIN) / upward)
    middle = (max(xs) + min(xs)) / 2, (max(ys) + min(ys)) / 2
    most = max(place.size for place in panel.places) or 1
    circles, told = [], []
    for place in sorted(panel.places, key=lambda place: -place.size):
        x = WIDTH / 2 + (place.x - middle[0]) * scale
        y = _TOP + height / 2 - (place.y - middle[1]) * scale
        radius = max(_LARGEST * sqrt(place.size / most), _SMALLEST)
        circles.append(
            tag("circle", cx=f"{x:.1f}", cy=f"{y:.1f}", r=f"{radius:.1f}", class_=f"place {style_class(panel.style)}")
        )
        told.append(
            {"x": round(x, 1), "y": round(y, 1), "r": round(radius, 1), "name": place.name, "about": place.about}
        )
    return tag(
        "svg",
        tag("text", panel.title, x=0, y=13, class_="panel-title"),
        tag("text", panel.subtitle, x=0, y=29, class_="axis-title"),
        *circles,
        tag("circle", class_="ring-mark", cx=0, cy=0, r=0, visibility="hidden"),
        viewBox=f"0 0 {WIDTH} {_MAP_HEIGHT}",
        role="img",
        aria_label=name,
        class_="plot map",
        tabindex="0",
        data_map=json.dumps(told),
    )


def matrix(panel: Matrix, name: str) -> Markup:
    """Return a matrix with true labels on the left and predicted labels below, shaded by the share of the row."""
    count = len(panel.labels)
    shown = [label if len(label) <= 14 else label[:13] + "…" for label in panel.labels]
    left = min(max(map(len, shown)) * _LETTER + 14, 104)
    size = min((WIDTH - left - 4) / count, 64.0)
    parts = [
        tag("text", panel.title, x=0, y=13, class_="panel-title"),
        tag("text", panel.subtitle, x=0, y=29, class_="axis-title"),
    ]
    for row, counts in enumerate(panel.counts):
        total = sum(counts)
        top = _TOP + row * size
        parts.append(tag("text", shown[row], x=f"{left - 8:.1f}", y=f"{top + size / 2 + 4:.1f}", class_="tick end"))
        for column, found in enumerate(counts):
            parts += _square(panel, (row, column), found, total, (left + column * size, top, size))
    slanted = max(map(len, shown)) * _LETTER > size
    for column, label in enumerate(shown):
        x, y = left + (column + 0.5) * size, _TOP + count * size + 15
        turn = f"rotate({-40 if slanted else 0} {x:.1f} {y:.1f})"
        parts.append(
            tag(
                "text",
                label,
                x=f"{x:.1f}",
                y=f"{y:.1f}",
                class_=f"tick {'end' if slanted else 'middle'}",
                transform=turn,
            )
        )
    depth = max(map(len, shown)) * _LETTER * 0.65 + 8 if slanted else 18
    height = _TOP + count * size + depth + 18
    parts.append(
        tag("text", "predicted", x=f"{left + count * size / 2:.1f}", y=f"{height - 4:.1f}", class_="axis-title middle")
    )
    return tag("svg", *parts, viewBox=f"0 0 {WIDTH} {height:.0f}", role="img", aria_label=name, class_="plot matrix")


def _square(
    panel: Matrix, place: tuple[int, int], found: int, total: int, box: tuple[float, float, float]
) -> list[Markup]:
    """Return a square with the share of its row, and a title that says it in words."""
    left, top, size = box
    share = found / total if total else 0.0
    shade = min(round(share * _SHADES), _SHADES)
    true, predicted = panel.labels[place[0]], panel.labels[place[1]]
    said = f"{found:,} of {total:,} that are {true} were predicted as {predicted}"
    square = tag(
        "rect", tag("title", said), x=f"{left:.1f}", y=f"{top:.1f}", width=f"{size:.1f}", height=f"{size:.1f}",
        class_=f"shade{shade} {'right' if place[0] == place[1] else 'wrong'}",
    )  # fmt: skip
    if size < 22:
        return [square]
    text = f"{100 * share:.0f}"
    middle = f"{left + size / 2:.1f}", f"{top + size / 2 + 4:.1f}"
    return [square, tag("text", text, x=middle[0], y=middle[1], class_=f"share middle on{shade}")]
