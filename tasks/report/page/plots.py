"""Panels as inline SVG: lines with bands, strips of dots. Colours are CSS classes, so that both themes can set them."""

import json
from collections.abc import Sequence
from itertools import pairwise

from markupsafe import Markup

from tasks.report.page.colours import COLOURS, style_class
from tasks.report.page.markup import inner, tag
from tasks.report.page.parts import Lines, Series, Strips
from tasks.report.page.plot_scales import Scale, at_values, scale, shown, spread

WIDTH, HEIGHT = 340, 230
_TOP, _BOTTOM, _LEFT = 42, 40, 40
_LETTER, _LINE = 6.6, 14.0  # width of a letter of a label, and height of its line
_DASHES = ("none", "6 3", "8 3 2 3")
_DOTTED = "2 3"
_MOST_TICKS = 7  # values of x, at most, that all get a tick
_ROW = 34  # height of a strip


def lines(panel: Lines, name: str) -> Markup:
    """Return a panel of lines that are named at their ends, with a band if the points have one."""
    names = [series.name for series in panel.series if series.labelled] + [level[0] for level in panel.levels]
    right = WIDTH - 14 - min(max(map(len, names), default=0) * _LETTER, 110)
    points = [point for series in panel.series for point in series.points]
    edges = [edge for p in points for edge in (p.y, p.low, p.high) if edge is not None]
    x = _across([point.x for point in points], right)
    y = scale([*edges, *(height for _, _, height in panel.levels)], HEIGHT - _BOTTOM, _TOP, 5)
    drawn = [_line(series, x, y) for series in panel.series]
    ends = [(line.name, line.style, line.points[-1].y) for line in panel.series if line.labelled and line.points]
    return _svg(
        name,
        HEIGHT,
        _titles(panel.title, panel.y_title),
        _grid(x, y, panel.x_title, right),
        *(_level(style, y(height), right) for _, style, height in panel.levels),
        *drawn,
        _end_labels([*ends, *panel.levels], y, right),
        tag("line", class_="cross", x1=0, x2=0, y1=_TOP, y2=HEIGHT - _BOTTOM, visibility="hidden"),
        data=_hover(panel, x),
    )


def _across(values: Sequence[float], right: float) -> Scale:
    """Return the scale of x, with ticks at the values themselves if they are few, else at round numbers."""
    different = sorted(set(values))
    if 1 < len(different) <= _MOST_TICKS:
        return at_values(different, _LEFT, right)
    return scale(values, _LEFT, right, 5, tight=True)


def _level(style: int, height: float, right: float) -> Markup:
    return tag(
        "line", x1=_LEFT, x2=f"{right:g}", y1=f"{height:.1f}", y2=f"{height:.1f}",
        class_=f"line {style_class(style)}", stroke_dasharray=_DOTTED,
    )  # fmt: skip


def _svg(name: str, height: float, *children: Markup, data: str | None = None) -> Markup:
    return tag(
        "svg",
        *children,
        viewBox=f"0 0 {WIDTH} {height:g}",
        role="img",
        aria_label=name,
        class_="plot",
        tabindex="0" if data else None,
        data_plot=data,
    )


def _titles(title: str, axis: str) -> Markup:
    return inner(
        tag("text", title, x=0, y=13, class_="panel-title"),
        tag("text", axis, x=0, y=29, class_="axis-title"),
    )


def _grid(x: Scale, y: Scale, x_title: str, right: float) -> Markup:
    base = HEIGHT - _BOTTOM
    rules = [tag("line", x1=_LEFT, x2=f"{right:g}", y1=f"{y(t):.1f}", y2=f"{y(t):.1f}", class_="grid") for t in y.ticks]
    sides = [tag("text", shown(t), x=_LEFT - 7, y=f"{y(t) + 4:.1f}", class_="tick end") for t in y.ticks]
    marks = [tag("line", x1=f"{x(t):.1f}", x2=f"{x(t):.1f}", y1=base, y2=base + 4, class_="axis") for t in x.ticks]
    below = [tag("text", shown(t), x=f"{x(t):.1f}", y=base + 16, class_="tick middle") for t in x.ticks]
    floor = tag("line", x1=_LEFT, x2=f"{right:g}", y1=base, y2=base, class_="axis")
    middle = (_LEFT + right) / 2
    return inner(
        *rules, *sides, *marks, *below, floor,
        tag("text", x_title, x=f"{middle:g}", y=HEIGHT - 6, class_="axis-title middle"),
    )  # fmt: skip


def _dash(series: Series) -> str:
    return _DOTTED if series.dotted else _DASHES[max(series.style, 0) // COLOURS % len(_DASHES)]


def _line(series: Series, x: Scale, y: Scale) -> Markup:
    colour = style_class(series.style)
    points = series.points
    banded = [point for point in points if point.low is not None and point.high is not None]
    parts = []
    if len(banded) > 1:
        upper = [(x(point.x), y(point.high or 0.0)) for point in banded]
        lower = [(x(point.x), y(point.low or 0.0)) for point in reversed(banded)]
        parts.append(tag("polygon", points=_path(upper + lower), class_=f"band {colour}"))
    if len(points) > 1:
        path = _path([(x(point.x), y(point.y)) for point in points])
        parts.append(tag("polyline", points=path, class_=f"line {colour}", stroke_dasharray=_dash(series)))
    if series.dots or len(points) == 1:
        parts += [
            tag("circle", cx=f"{x(point.x):.1f}", cy=f"{y(point.y):.1f}", r=3, class_=f"dot {colour}")
            for point in points
        ]
    return inner(*parts)


def _path(points: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{left:.1f},{top:.1f}" for left, top in points)


def _end_labels(lines_ending: Sequence[tuple[str, int, float]], y: Scale, right: float) -> Markup:
    """Return the names of lines (name, style, last value) beside their ends, moved apart where they would overlap."""
    ends = [y(value) for _, _, value in lines_ending]
    places = spread(ends, _LINE, _TOP + 2, HEIGHT - _BOTTOM)
    labels = []
    for (name, style, _), end, place in zip(lines_ending, ends, places, strict=True):
        colour = style_class(style)
        if abs(place - end) > 3:
            lead = f"{right + 1:g},{end:.1f} {right + 7:g},{place:.1f}"
            labels.append(tag("polyline", points=lead, class_=f"lead {colour}"))
        labels.append(tag("text", name, x=f"{right + 9:g}", y=f"{place + 4:.1f}", class_=f"label {colour}"))
    return inner(*labels)


def _hover(panel: Lines, x: Scale) -> str:
    """Return, as JSON, the values that the script shows under the pointer."""
    steps = sorted({point.x for series in panel.series for point in series.points})
    shown_series = []
    for series in panel.series:
        at = {point.x: point for point in series.points}
        values = [_said(at[step].y, at[step].low) if step in at else None for step in steps]
        shown_series.append({"name": series.name, "style": style_class(series.style), "values": values})
    for name, style, height in panel.levels:
        shown_series.append({"name": name, "style": style_class(style), "values": [f"{height:.4g}"] * len(steps)})
    places = [round(x(step), 1) for step in steps]
    return json.dumps({"x": places, "at": [f"{panel.x_title} {shown(step)}" for step in steps], "series": shown_series})


def _said(value: float, low: float | None) -> str:
    return f"{value:.4g}" + (f" ± {value - low:.2g}" if low is not None else "")


def strips(panel: Strips, name: str) -> Markup:
    """Return a panel of rows of dots, with a mark at the middle of each row; chosen runs are filled."""
    height = _TOP + _ROW * len(panel.rows) + _BOTTOM
    longest = max(len(row[0]) for row in panel.rows)
    left = min(longest * _LETTER + 12, 120)
    x = scale([dot.x for row in panel.rows for dot in row[2]], left, WIDTH - 12, 5)
    base = height - _BOTTOM
    parts = [tag("text", panel.title, x=0, y=13, class_="panel-title")]
    for tick in x.ticks:
        place = f"{x(tick):.1f}"
        parts.append(tag("line", x1=place, x2=place, y1=_TOP - 12, y2=base, class_="grid"))
        parts.append(tag("text", shown(tick), x=place, y=f"{base + 16:g}", class_="tick middle"))
    for number, (label, style, dots, middle) in enumerate(panel.rows):
        top = _TOP + _ROW * number + _ROW / 2 - 6
        colour = style_class(style)
        parts.append(tag("text", label, x=f"{left - 10:g}", y=f"{top + 4:g}", class_=f"label end {colour}"))
        at = f"{x(middle):.1f}"
        parts.append(tag("line", x1=at, x2=at, y1=f"{top - 11:g}", y2=f"{top + 11:g}", class_=f"middle-mark {colour}"))
        for dot, lift in zip(dots, _lifts([x(dot.x) for dot in dots]), strict=True):
            kind = "dot" if dot.filled else "ring"
            circle = tag(
                "circle",
                tag("title", dot.label),
                cx=f"{x(dot.x):.1f}",
                cy=f"{top + lift:.1f}",
                r=4,
                class_=f"{kind} {colour}",
            )
            parts.append(circle)
    centre = (left + WIDTH - 12) / 2
    parts.append(tag("text", panel.x_title, x=f"{centre:g}", y=f"{height - 6:g}", class_="axis-title middle"))
    return _svg(name, height, *parts)


def _lifts(places: Sequence[float]) -> list[float]:
    """Return the distance by which each dot is moved up or down, so that equal dots can be told apart."""
    lifts = [0.0] * len(places)
    order = sorted(range(len(places)), key=lambda number: places[number])
    run = 0
    for before, here in pairwise(order):
        run = run + 1 if places[here] - places[before] < 5 else 0
        lifts[here] = ((run + 1) // 2) * 5.0 * (1 if run % 2 else -1) if run else 0.0
    return [max(-10.0, min(10.0, lift)) for lift in lifts]
