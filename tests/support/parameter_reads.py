"""Find the parameters that the code reads: attributes of values that are known to be parts of the schema.

A small type inference on the syntax tree: the annotations give the types of arguments, attributes and results of calls,
and the assigned values give those of variables. Reading an attribute of the same name from another object does not
count.
"""

import ast
from collections import defaultdict
from typing import get_args, get_origin

from tasks.params.reference import group_type
from tasks.params.schema import Params

PACKAGES = ("flows", "tasks", "model", "storage")
SCHEMA = "tasks/params"


def groups(group=Params, path=()):
    """Yield each group of the schema and its path."""
    yield group, path
    for name, field in group.model_fields.items():
        if inner := group_type(field.annotation):
            yield from groups(inner, (*path, name))
        elif get_origin(field.annotation) is dict and (inner := group_type(get_args(field.annotation)[1])):
            yield from groups(inner, (*path, name, "NAME"))  # the entries of a mapping


GROUPS = {group.__name__: group for group, _ in groups()}


def keys():
    """Return every key of the schema that holds a value."""
    return {
        ".".join((*path, name))
        for group, path in groups()
        for name, field in group.model_fields.items()
        if group_type(field.annotation) is None
    }


def read_keys(root):
    """Return the keys that the packages below a folder read."""
    trees = {
        path: ast.parse(path.read_text("utf-8"))
        for package in PACKAGES
        for path in sorted((root / package).rglob("*.py"))
        if not path.relative_to(root).as_posix().startswith(f"{SCHEMA}/")
    }
    attributes, results = defaultdict(set), defaultdict(set)
    for tree in trees.values():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                for line in node.body:
                    if isinstance(line, ast.AnnAssign):
                        attributes[line.target.id] |= annotated(line.annotation)
            if isinstance(node, ast.FunctionDef):
                results[node.name] |= annotated(node.returns)
    found = set()
    for tree in trees.values():
        found |= Reads(attributes, results).of(tree)
    places = dict(groups())
    return {".".join((*places[group], name)) for group, name in found}


def annotated(annotation):
    """Return the groups that an annotation names directly; an optional or quoted one counts, a list does not."""
    if isinstance(annotation, ast.BinOp):
        return annotated(annotation.left) | annotated(annotation.right)
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        return annotated(ast.parse(annotation.value, mode="eval").body)
    return {GROUPS[annotation.id]} if isinstance(annotation, ast.Name) and annotation.id in GROUPS else set()


class Reads:
    """The parameters that one module reads. A name may stand for several groups; the attribute shows which is meant."""

    def __init__(self, attributes, results):
        self.attributes = defaultdict(set, {name: set(types) for name, types in attributes.items()})
        self.results = results
        self.variables = defaultdict(set)
        self.found = set()

    def of(self, tree):
        for node in tree.body:  # top-level functions and classes have separate names
            self.variables.clear()
            for _ in range(3):  # a variable may be assigned from another that comes later in the walk
                for inner in ast.walk(node):
                    self.bind(inner)
            for inner in ast.walk(node):
                self.types(inner)
        return self.found

    def bind(self, node):
        if isinstance(node, ast.arg):
            self.variables[node.arg] |= annotated(node.annotation)
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                self.assign(target, node.value)
        elif isinstance(node, ast.NamedExpr):
            self.assign(node.target, node.value)

    def assign(self, target, value):
        if isinstance(target, ast.Name):
            self.variables[target.id] |= self.types(value)
        elif isinstance(target, ast.Attribute):
            self.attributes[target.attr] |= self.types(value)
        elif isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
            for part, source in zip(target.elts, value.elts, strict=True):
                self.assign(part, source)

    def types(self, node):
        """Return the groups that an expression may be, and record the values that it reads."""
        if isinstance(node, ast.Name):
            return self.variables[node.id]
        if isinstance(node, ast.Call):
            return self.called(node)
        if isinstance(node, ast.Attribute):
            owners = [group for group in self.types(node.value) if node.attr in group.model_fields]
            fields = {owner: group_type(owner.model_fields[node.attr].annotation) for owner in owners}
            self.found |= {(owner, node.attr) for owner, group in fields.items() if group is None}
            return {group for group in fields.values() if group} or self.attributes[node.attr]
        return set()

    def called(self, node):
        if isinstance(node.func, ast.Name):
            name = node.func.id
            return {GROUPS[name]} if name in GROUPS else self.results[name]
        if isinstance(node.func, ast.Attribute) and node.func.attr == "model_dump":
            included = next((word.value for word in node.keywords if word.arg == "include"), None)
            if isinstance(included, ast.Set):  # `include={"a", "b"}` reads these values
                names = {item.value for item in included.elts}
                self.found |= {(group, name) for group in self.types(node.func.value) for name in names}
        return set()
