"""A configuration before it is validated: plain values that remember their place and origin.

Built by `gateway.settings.reader` from a file, changed by environment and flags, turned into plain data
for validation. A node's `path` stays what it was when it was read, also after others are taken out.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from gateway.settings.options import Shape, child, shape_at
from gateway.settings.origin import Origin, Place


@dataclass(slots=True, eq=False)
class Leaf:
    """A single value. Not in its repr: it may be a secret."""

    path: Place
    origin: Origin
    value: str | int | float | bool | None = field(repr=False)


@dataclass(slots=True, eq=False)
class Items:
    path: Place
    origin: Origin
    items: list[Node]


@dataclass(slots=True, eq=False)
class Table:
    path: Place
    origin: Origin
    entries: dict[str, Node]


Node = Leaf | Items | Table


def step(node: Node, key: str | int) -> Node | None:
    """The node under `key`; None: there is none."""
    if isinstance(node, Table):
        return node.entries.get(str(key))
    if isinstance(node, Items) and isinstance(key, int) and 0 <= key < len(node.items):
        return node.items[key]
    return None


def find(root: Node, path: Place) -> tuple[Node, Place]:
    """The deepest node on the way to `path`, and the rest of the way."""
    for depth, key in enumerate(path):
        below = step(root, key)
        if below is None:
            return root, path[depth:]
        root = below
    return root, ()


def put(root: Table, path: Place, node: Node) -> bool:
    """Set the node at `path`, with sections and lists above it as needed. False: there is no such place."""
    at: Node = root
    for depth, key in enumerate(path[:-1]):
        below = step(at, key)
        if below is None or (isinstance(below, Leaf) and below.value is None):
            below = _empty(path[: depth + 1], node.origin)
            if not _set(at, key, below):
                return False
        at = below
    return _set(at, path[-1], node)


def _empty(path: Place, origin: Origin) -> Table | Items:
    shape = shape_at(path)
    return Items(path, origin, []) if shape is not None and shape.element else Table(path, origin, {})


def _set(at: Node, key: str | int, node: Node) -> bool:
    if isinstance(at, Table):
        at.entries[str(key)] = node
        return True
    if isinstance(at, Items) and isinstance(key, int) and 0 <= key <= len(at.items):
        at.items[key : key + 1] = [node]
        return True
    return False


def without(node: Node, removed: Collection[int]) -> Node | None:
    """The tree without the nodes whose `id` is in `removed`; None: nothing is left of it."""
    if id(node) in removed:
        return None
    if isinstance(node, Table):
        kept = {key: without(below, removed) for key, below in node.entries.items()}
        return Table(node.path, node.origin, {key: below for key, below in kept.items() if below is not None})
    if isinstance(node, Items):
        rest = [without(below, removed) for below in node.items]
        return Items(node.path, node.origin, [below for below in rest if below is not None])
    return node


def plain(node: Node, shape: Shape | None = None) -> object:
    """The data as pydantic takes it.

    A section, list or mapping without content (`cache:` with all below it commented out) is an empty one.
    """
    shape = shape or shape_at(())
    assert shape is not None
    if isinstance(node, Table):
        return {key: plain(below, child(shape, key) or _UNKNOWN) for key, below in node.entries.items()}
    if isinstance(node, Items):
        return [plain(below, child(shape, index) or _UNKNOWN) for index, below in enumerate(node.items)]
    if node.value is None and shape.is_container and not shape.nullable:
        return [] if shape.element is not None else {}
    if isinstance(node.value, bool) and shape.type in (int, float):
        return str(node.value).lower()  # pydantic would read true as 1
    return node.value


_UNKNOWN = Shape(object, nullable=True)
