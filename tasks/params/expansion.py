"""Aliases in YAML: how far a text of a few lines would expand, found out before anything is expanded."""

import math
import re

from ruamel.yaml import YAML
from ruamel.yaml.nodes import MappingNode, Node, SequenceNode

MOST_NODES = 100_000  # a parameter file has a few hundred

_ALIAS = re.compile(r"(?:^|[\s,\[{:-])\*[^\s,\]}*]", re.MULTILINE)


def expands_too_far(text: str) -> bool:
    """Return True if the aliases and merge keys of a YAML text stand for more than MOST_NODES values.

    A value that holds itself is endless. Raise YAMLError if the text is not YAML.
    """
    if not _ALIAS.search(text):  # composing takes time, and hardly any file has an alias
        return False
    root = YAML(typ="safe").compose(text)
    return root is not None and _nodes(root, {}) > MOST_NODES


def _nodes(node: Node, known: dict[int, float]) -> float:
    """Return the number of values below a node; one that several aliases name counts each time, but is visited once."""
    if id(node) not in known:
        known[id(node)] = math.inf  # until it is known: an alias of a value within the value itself
        children: list[Node] = []
        if isinstance(node, SequenceNode):
            children = node.value
        elif isinstance(node, MappingNode):
            children = [part for pair in node.value for part in pair]
        known[id(node)] = 1 + sum(_nodes(child, known) for child in children)
    return known[id(node)]
