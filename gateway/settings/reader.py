"""YAML text to nodes with line numbers, as YAML 1.2 reads it: `5e-5` is a number, `no` is text.

Stricter than YAML where that saves someone's evening: one document, no key twice, keys are text, no tags of
one's own. Bounded: size, nodes (aliases count each time they are used) and depth. Substitutes from the
environment. Problems are collected, never raised; what could be read is returned.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.events import CollectionEndEvent, CollectionStartEvent
from ruamel.yaml.nodes import MappingNode, ScalarNode, SequenceNode
from ruamel.yaml.nodes import Node as YamlNode

from gateway.settings.nodes import Items, Leaf, Node, Table
from gateway.settings.options import Shape, shape_at
from gateway.settings.origin import Origin, Place, Source, dotted
from gateway.settings.problems import Problem
from gateway.settings.substitution import SubstitutionError, substitute

MAX_BYTES = 1024 * 1024
MAX_NODES = 50_000
MAX_DEPTH = 40
_TAG = "tag:yaml.org,2002:"
_MERGE_TAG = _TAG + "merge"


@dataclass(slots=True)
class Reading:
    """What came of reading one text."""

    root: Node | None = None
    """None: the text is empty or could not be read at all."""
    problems: list[Problem] = field(default_factory=list)


def read_bytes(data: bytes, file: str, environment: Mapping[str, str]) -> Reading:
    """Read a file's content: UTF-8, or UTF-16 with a byte order mark."""
    origin = Origin(Source.FILE, file)
    if len(data) > MAX_BYTES:
        return Reading(
            problems=[Problem(origin, "", f"is larger than {MAX_BYTES // 1024} KiB; is it the right file?")]
        )
    utf16 = data.startswith((b"\xff\xfe", b"\xfe\xff"))
    try:
        text = data.decode("utf-16" if utf16 else "utf-8-sig")
    except UnicodeDecodeError as error:
        line = 0 if utf16 else data.count(b"\n", 0, error.start) + 1
        what = f"is not UTF-8: byte 0x{data[error.start]:02x} has no meaning there; save the file as UTF-8"
        return Reading(problems=[Problem(replace(origin, line=line), "", what)])
    return read_text(text, origin, environment=environment)


def read_text(
    text: str, origin: Origin, *, path: Place = (), environment: Mapping[str, str] | None = None
) -> Reading:
    """Read YAML text that stands at `path`. Lines are counted for files only.

    environment: what `${NAME}` is replaced from; None: such text stays as it is.
    """
    reader = _Reader(origin, environment)
    try:
        if _too_deep(text):  # told before composing, which takes seconds for a thousand brackets
            raise RecursionError
        document = YAML(typ="safe", pure=True).compose(text)
        root = reader.convert(document, path) if document is not None else None
        reader.reading.root = root if not reader.refused else None
    except RecursionError:
        reader.report("is nested too deeply", path=path)
    except (YAMLError, ValueError) as error:
        line, what = _syntax(error, text)
        reader.report(f"is not valid YAML: {what}", path=path, line=line)
    return reader.reading


def _too_deep(text: str) -> bool:
    depth = 0
    for event in YAML(typ="safe", pure=True).parse(text):
        depth += isinstance(event, CollectionStartEvent) - isinstance(event, CollectionEndEvent)
        if depth > MAX_DEPTH:
            return True
    return False


def _syntax(error: Exception, text: str) -> tuple[int, str]:
    """Line and a sentence for a syntax error, without the text around it: that may hold a secret."""
    if not isinstance(error, MarkedYAMLError) or error.problem_mark is None:
        position = getattr(error, "position", None)
        line = text.count("\n", 0, position) + 1 if isinstance(position, int) else 0
        return line, "a control character stands where only text may"
    line = error.problem_mark.line + 1
    problem = error.problem or error.context or "it cannot be read"
    lines = text.splitlines()
    here = lines[line - 1] if line <= len(lines) else ""
    if "'\\t'" in problem or here[: len(here) - len(here.lstrip())].count("\t"):
        return line, "a tab stands where YAML indents; use spaces"
    if "another document" in problem:
        return line, "a second document begins (`---`); there may be only one"
    if "${" in here and "{" in here.replace("${", ""):
        return line, f'{problem}; within {{…}} a substitution needs quotes: "${{NAME}}"'
    return line, problem


class _Reader:
    """Turns one composed document into nodes."""

    def __init__(self, origin: Origin, environment: Mapping[str, str] | None) -> None:
        self.reading = Reading()
        self._origin = origin
        self._environment = environment
        self._nodes = 0
        self.refused = False

    def report(self, what: str, *, path: Place, line: int = 0) -> None:
        self.reading.problems.append(Problem(self._at(line), dotted(path), what))

    def _at(self, line: int) -> Origin:
        return replace(self._origin, line=line) if self._origin.source is Source.FILE else self._origin

    def convert(self, node: YamlNode, path: Place, line: int = 0) -> Node | None:
        """The node, or None where it had to be refused. `line`: where its key stands, if it has one."""
        line = line or node.start_mark.line + 1
        self._nodes += 1
        if self._nodes > MAX_NODES or len(path) > MAX_DEPTH:
            if not self.refused:
                what = "holds more than a configuration does; does an alias name itself?"
                self.report(what, path=path[:1], line=line)
            self.refused = True
            return None
        if isinstance(node, MappingNode):
            entries: dict[str, Node] = {}
            self._fill(entries, node, path)
            return Table(path, self._at(line), entries)
        if isinstance(node, SequenceNode):
            items = [self.convert(item, (*path, index)) for index, item in enumerate(node.value)]
            return Items(path, self._at(line), [item for item in items if item is not None])
        return self._scalar(node, path, line)

    def _fill(self, entries: dict[str, Node], node: MappingNode, path: Place) -> None:
        lines: dict[str, int] = {}
        merged: list[YamlNode] = []
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if key_node.tag == _MERGE_TAG:
                merged += value_node.value if isinstance(value_node, SequenceNode) else [value_node]
            elif not isinstance(key_node, ScalarNode) or key_node.tag != _TAG + "str":
                self.report("holds a key that is not text; put it in quotes", path=path, line=line)
            elif key_node.value in lines:
                what = f"is given twice; first on line {lines[key_node.value]}"
                self.report(what, path=(*path, key_node.value), line=line)
            else:
                lines[key_node.value] = line
                child = self.convert(value_node, (*path, key_node.value), line)
                if child is not None:
                    entries[key_node.value] = child
        self._merge(entries, merged, path)

    def _merge(self, entries: dict[str, Node], merged: list[YamlNode], path: Place) -> None:
        """`<<: *name`: what the named mapping has and this one has not."""
        for node in merged:
            if not isinstance(node, MappingNode):
                self.report("`<<` takes the alias of a mapping", path=path, line=node.start_mark.line + 1)
                continue
            source = self.convert(node, path)
            if isinstance(source, Table):
                for key, below in source.entries.items():
                    entries.setdefault(key, below)

    def _scalar(self, node: YamlNode, path: Place, line: int) -> Node | None:
        origin = self._at(line)
        if node.tag not in _SCALARS:
            self.report(f"has the tag {node.tag}, which means nothing here", path=path, line=line)
            return None
        text = str(node.value)
        if self._environment is None or "${" not in text:
            value, known = _value(str(node.tag), text)
            if not known:
                self.report(f"is not of the kind that its tag {node.tag} says", path=path, line=line)
                return None
            return Leaf(path, origin, value)
        try:
            substituted = substitute(text, self._environment)
        except SubstitutionError as error:
            self.report(str(error), path=path, line=line)
            return None
        origin = replace(origin, variables=substituted.variables)
        if not substituted.whole:
            return Leaf(path, origin, substituted.text)
        inner = typed(substituted.text, shape_at(path), origin, path)
        self.reading.problems += inner.problems
        return inner.root


def typed(text: str, shape: Shape | None, origin: Origin, path: Place) -> Reading:
    """Text from the environment or a flag, as the option there wants it.

    Text for an option that is text; else what YAML reads. Nothing, `null` and `~` are None where it may be.
    """
    if shape is not None and shape.nullable and text.strip() in ("", "null", "~"):
        return Reading(Leaf(path, origin, None))
    if shape is None or shape.is_text:
        return Reading(Leaf(path, origin, text))
    reading = read_text(text, origin, path=path)
    if reading.root is None or (reading.problems and not shape.is_container):
        problems = reading.problems if shape.is_container else []
        return Reading(Leaf(path, origin, text), problems)
    return reading


def _value(tag: str, text: str) -> tuple[str | int | float | bool | None, bool]:
    """A scalar's value by its tag, and whether it could be read so."""
    try:
        return _SCALARS[tag](text), True
    except (ValueError, KeyError):
        return None, False


def _int(text: str) -> int:
    digits = text.replace("_", "")
    return int(digits, 0) if digits.lstrip("+-")[:2].lower() in ("0x", "0o", "0b") else int(digits)


def _float(text: str) -> float:
    digits = text.replace("_", "").lower()
    if digits.lstrip("+-") == ".inf":
        return -math.inf if digits.startswith("-") else math.inf
    return math.nan if digits == ".nan" else float(digits)


def _bool(text: str) -> bool:
    return {"true": True, "false": False}[text.lower()]


def _null(text: str) -> None:
    return None


_SCALARS: Mapping[str, Callable[[str], str | int | float | bool | None]] = {
    _TAG + "str": str,
    _TAG + "int": _int,
    _TAG + "float": _float,
    _TAG + "bool": _bool,
    _TAG + "null": _null,
    _TAG + "timestamp": str,
    _TAG + "value": str,
}
