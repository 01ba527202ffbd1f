"""The DAG as inline SVG: stages in a column, an arc for each dependency, narrow enough for a phone."""

from markupsafe import Markup

from tasks.report.page.markup import inner, tag
from tasks.report.page.parts import Graph

WIDTH = 340
_BOX, _GAP, _LEFT, _RIGHT = 44, 14, 2, 214


def dag(graph: Graph, name: str) -> Markup:
    """Return the boxes in order, with lines between neighbours and arcs on the right for other dependencies."""
    tops = {box.name: 4 + number * (_BOX + _GAP) for number, box in enumerate(graph.boxes)}
    height = len(graph.boxes) * (_BOX + _GAP) - _GAP + 8
    order = list(tops)
    arcs, boxes = [], []
    for number, box in enumerate(graph.boxes):
        above = [parent for parent in box.upstream if parent in tops]
        for place, upstream in enumerate(sorted(above, key=order.index)):
            arcs.append(
                _edge(order.index(upstream), number, tops[upstream], tops[box.name], place / max(len(above), 1))
            )
        top = tops[box.name]
        boxes.append(
            inner(
                tag("rect", x=_LEFT, y=top, width=_RIGHT - _LEFT, height=_BOX, rx=5, class_="box"),
                tag("text", box.name, x=_LEFT + 12, y=top + 19, class_="panel-title"),
                tag("text", box.facts, x=_LEFT + 12, y=top + 35, class_="tick"),
            )
        )
    return tag(
        "svg",
        inner(*arcs),
        inner(*boxes),
        viewBox=f"0 0 {WIDTH} {height}",
        role="img",
        aria_label=name,
        class_="plot dag",
    )


def _edge(above: int, below: int, top: float, bottom: float, share: float) -> Markup:
    """Return a straight line to a neighbour, or an arc, wider for longer distances, that ends at its own height."""
    if below - above == 1:
        middle = (_LEFT + _RIGHT) / 2
        return _arrow(f"M{middle:g},{top + _BOX} L{middle:g},{bottom - 1}", middle, bottom, down=True)
    reach = _RIGHT + 10 + 21 * (below - above)
    start, end = top + _BOX * 0.62, bottom + 8 + (_BOX - 20) * share
    return _arrow(
        f"M{_RIGHT},{start:.1f} C{reach},{start:.1f} {reach},{end:.1f} {_RIGHT + 2},{end:.1f}", _RIGHT, end, down=False
    )


def _arrow(path: str, x: float, y: float, *, down: bool) -> Markup:
    head = f"{x - 4:g},{y - 6:.1f} {x:g},{y:.1f} {x + 4:g},{y - 6:.1f}"
    if not down:
        head = f"{x + 7:g},{y - 4:.1f} {x + 1:g},{y:.1f} {x + 7:g},{y + 4:.1f}"
    return inner(tag("path", d=path, class_="edge"), tag("polygon", points=head, class_="edge-head"))
