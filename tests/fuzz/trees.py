"""Mutations of nested plain data, drawn by hypothesis, which also shrinks failing inputs."""

from __future__ import annotations

import json
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import yaml
from hypothesis import strategies as st

SPECIAL: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 2**31, 2**53, 2**63, -(2**63), 2**64, 10**30, 10**400),
    *(0.0, -0.0, 1.5, 1e308, 1e-320, float("nan"), float("inf"), -float("inf")),
    *("", "x", "auto", "null", "true", "1", "1e9", ".nan", "nan", "../..", "/etc/passwd", "a\0b"),
    *("\x1b[31m", "[/red]", "\u202e", "\ud800", "{}", "%s", "evil:Env-v0", "os:system", "x" * 5000),
    *([], {}, [[]], {"@array": ["<f4", [1], "AAAAAA=="]}, {"@array": ["|O", [1], "AAAA"]}),
    *({"@tuple": [1]}, {"@scalar": ["<f4", [], "AAAAAA=="]}, {"@shared": 0}, {"@items": []}),
    *({"@array": 7}, {"@array": ["<f4", [2**40], ""]}, {"@generator": {}}, {"a": {"a": {"a": 1}}}),
)
scalars = (
    st.sampled_from(SPECIAL)
    | st.integers()
    | st.floats()
    | st.text(max_size=20)
    | st.booleans()
    | st.none()
)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=8,
)
edits = st.lists(
    st.tuples(
        st.sampled_from(("replace", "delete", "add", "copy", "repeat", "wrap", "rename", "nudge")),
        st.floats(0, 1, exclude_max=True),
        st.floats(0, 1, exclude_max=True),
        values,
    ),
    min_size=1,
    max_size=4,
)
"""Kind of change, target and source (as fractions of all positions), and new value."""


def edited(tree: Any, changes: list[tuple[str, float, float, Any]]) -> Any:
    """Return a copy of the tree with all changes applied."""
    root = [json.loads(json.dumps(tree))]
    for kind, where, source, value in changes:
        positions = list(_positions(root))
        parent, key = positions[int(where * len(positions))]
        other_parent, other_key = positions[int(source * len(positions))]
        # A copy, since a later change may modify it, and hypothesis reuses values.
        _apply(kind, parent, key, deepcopy(value), other_parent[other_key])
        if not root:
            root = [None]
    return root[0]


def _positions(node: Any) -> list[tuple[Any, Any]]:
    """Return the container and key of every value in the tree."""
    found: list[tuple[Any, Any]] = []
    todo = [node]
    while todo:
        part = todo.pop()
        keys = list(part) if isinstance(part, dict) else range(len(part))
        for key in keys:
            found.append((part, key))
            if isinstance(part[key], dict | list):
                todo.append(part[key])
    return found


def _apply(kind: str, parent: Any, key: Any, value: Any, other: Any) -> None:
    if kind == "replace":
        parent[key] = value
    elif kind == "delete":
        del parent[key]
    elif kind == "copy":
        parent[key] = json.loads(json.dumps(other))
    elif kind == "wrap":
        parent[key] = [parent[key]] if value else {"x": parent[key]}
    elif kind == "nudge":
        parent[key] = _nudged(parent[key])
    elif kind == "repeat" and isinstance(parent, list):
        parent[key:key] = [json.loads(json.dumps(parent[key]))] * 3
    elif kind == "rename" and isinstance(parent, dict):
        parent[value if isinstance(value, str) else "evil"] = parent.pop(key)
    elif isinstance(parent, dict):
        parent[value if isinstance(value, str) else "evil"] = value
    else:
        parent.append(value)


def _nudged(value: Any) -> Any:
    """Return a similar value of the same type."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    if isinstance(value, float):
        return -value
    if isinstance(value, str):
        return value[1:] + value[:1]
    return value


Render = Callable[[Any], bytes]


def as_json(tree: Any) -> bytes:
    """Serialize to JSON, including values that only Python's encoder allows."""
    return json.dumps(tree).encode("utf-8", "surrogatepass")


def as_yaml(tree: Any) -> bytes:
    """Serialize to YAML."""
    return yaml.safe_dump(tree, allow_unicode=False).encode("utf-8", "surrogatepass")


def as_lines(tree: Any) -> bytes:
    """Serialize a list to JSON Lines."""
    rows = tree if isinstance(tree, list) else [tree]
    return b"".join(as_json(row) + b"\n" for row in rows)
