"""pydantic's validation errors in words that help to mend the file: what was expected, what is near. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pydantic import SecretStr
from pydantic_core import ErrorDetails

from gateway.settings.masking import without_passwords
from gateway.settings.nodes import Node, find
from gateway.settings.options import Shape, is_secret, options, shape_at
from gateway.settings.origin import Place, dotted
from gateway.settings.problems import Problem, nearest
from gateway.settings.values import CONTRADICTION

TRAINING_KEYS = frozenset({"model", "training", "data", "optimizer", "distributed"})
"""Top-level keys of the trainer's configuration, which people give to the gateway by mistake."""

OTHER_NAMES: Mapping[str, str] = {
    "max_num_seqs": "engine.max_batch_size",
    "tensor_model_parallel": "engine.tensor_parallel_size",
    "tp": "engine.tensor_parallel_size",
    "kv_cache_memory": "engine.kv_cache_gib",
    "backends": "endpoints",
    "upstreams": "endpoints",
    "servers": "endpoints",
    "api_keys": "auth.keys",
    "timeout": "timeouts.total_s",
    "redis": "cache",
    "tls": "nginx (TLS ends there)",
}
"""What other servers call an option, and what it is called here."""

_NUMBER = "should be a number"
_WHOLE = "should be a whole number"
_LIST = "should be a list, like [first, second]"
_EXPECTED: Mapping[str, str] = {
    "int_type": _WHOLE,
    "int_parsing": _WHOLE,
    "int_parsing_size": _WHOLE,
    "int_from_float": _WHOLE,
    "float_type": _NUMBER,
    "float_parsing": _NUMBER,
    "finite_number": _NUMBER,
    "bool_type": "should be true or false",
    "bool_parsing": "should be true or false",
    "string_type": "should be text",
    "tuple_type": _LIST,
    "dict_type": "should be a mapping, like {{NAME: value}}",
    "greater_than_equal": "should be at least {ge:g}",
    "greater_than": "should be above {gt:g}",
    "less_than_equal": "should be at most {le:g}",
    "less_than": "should be below {lt:g}",
    "string_too_short": "should not be empty",
    "string_too_long": "should have at most {max_length} characters",
    "string_pattern_mismatch": "should be text without spaces",
    "missing": "is required and not given",
}


def complaints(tree: Node, errors: Iterable[ErrorDetails]) -> list[Problem]:
    """A problem for each error; `tree` is what was validated. A misspelt required key is told once."""
    errors = list(errors)
    missing = {_path(error) for error in errors if error["type"] == "missing"}
    told: set[Place] = set()
    problems = []
    for error in errors:
        path = _path(error)
        if error["type"] == "extra_forbidden":
            close = nearest(str(path[-1]), [str(other[-1]) for other in missing if other[:-1] == path[:-1]])
            told |= {(*path[:-1], close)} if close else set()
    for error in errors:
        if _path(error) not in told or error["type"] != "missing":
            problems.append(_complaint(tree, error))
    return problems


def contradicting(error: ErrorDetails) -> list[Place]:
    """The places of the options that a contradiction is between; for other errors, the place of the error."""
    path = _path(error)
    if error["type"] != CONTRADICTION:
        return [path]
    keys: list[Place] = [tuple(key) for key in error["ctx"]["keys"]]
    above = path[: len(path) - len(keys[0])]
    return [(*above, *key) for key in keys]


def _path(error: ErrorDetails) -> Place:
    return tuple(error["loc"])


def _complaint(tree: Node, error: ErrorDetails) -> Problem:
    node, rest = find(tree, _path(error))
    path = (*node.path, *rest)
    shape = shape_at(path)
    key = dotted(path)
    if error["type"] == "extra_forbidden":
        return Problem(node.origin, key, "is no known key", _known(path))
    if error["type"] in (CONTRADICTION, "value_error"):
        what = error["msg"].removeprefix("Value error, ")
        return Problem(
            node.origin, key, what + ("" if error["type"] == CONTRADICTION else _got(node, path, error))
        )
    if error["type"] == "model_type" and shape is not None and shape.section is not None:
        keys = ", ".join(shape.section.model_fields)
        return Problem(node.origin, key, "should be a mapping", f"its keys are {keys}")
    if error["type"] == "enum" and shape is not None:
        return _not_among(node, path, shape, error)
    expected = _EXPECTED.get(error["type"])
    what = expected.format_map(error.get("ctx", {})) if expected else error["msg"]
    if error["type"] == "string_type" and isinstance(error["input"], int | float):
        what += " in quotes"
    return Problem(node.origin, key, what + _got(node, path, error))


def _got(node: Node, path: Place, error: ErrorDetails) -> str:
    """The value, if it may be repeated: no secret, not from the environment by `${}`, one value only."""
    value = error["input"]
    if error["type"] == "missing" or is_secret(path) or node.origin.variables or isinstance(value, SecretStr):
        return ""
    shape = shape_at(path)
    if shape is None or shape.holds_sections or not isinstance(value, str | int | float):
        return ", got nothing" if value is None else ""
    return f", got {without_passwords(value)!r}" if isinstance(value, str) else f", got {value!r}"


def _not_among(node: Node, path: Place, shape: Shape, error: ErrorDetails) -> Problem:
    if str(error["input"]).lower() in ("megatron", "deepspeed") and path[-1] == "type":
        suggestion = "that engine trains: it belongs in train_config.yaml"
    else:
        close = nearest(str(error["input"]), shape.choices)
        suggestion = f"did you mean {close}?" if close else ""
    choices = (
        f"should be one of {', '.join(shape.choices)}"
        if len(shape.choices) > 1
        else f"should be {shape.choices[0]}"
    )
    return Problem(node.origin, dotted(path), choices + _got(node, path, error), suggestion)


def _known(path: Place) -> str:
    """The nearest valid key: a sibling, what others call it, or the same name elsewhere in the tree."""
    key, above = str(path[-1]), shape_at(path[:-1])
    siblings = list(above.section.model_fields) if above is not None and above.section is not None else []
    close = nearest(key, siblings)
    if close is not None:
        return f"did you mean {dotted((*path[:-1], close))}?"
    if len(path) == 1 and key in TRAINING_KEYS:
        return "this belongs to the trainer: train_config.yaml, `python train.py --config train_config.yaml`"
    if key in OTHER_NAMES:
        return f"here it is {OTHER_NAMES[key]}"
    elsewhere = [
        option.key for option in options() if option.key.rsplit(".", 1)[-1] == key and "*" not in option.key
    ]
    return (
        f"did you mean {' or '.join(elsewhere[:3])}?" if elsewhere else f"valid here: {', '.join(siblings)}"
    )
