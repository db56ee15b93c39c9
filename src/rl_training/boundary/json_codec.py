"""Convert plain data to JSON and back exactly, with arrays, tuples and NumPy scalars."""

from __future__ import annotations

import base64
import json
import re
from typing import Any

import numpy as np

from rl_training.boundary.reading import unique_keys
from rl_training.text import shown

_KINDS = "biuf"
_DTYPE = re.compile(rf"[<>|][{_KINDS}]\d{{1,2}}")


def encode(value: Any) -> Any:
    """Convert plain data to values that `json` can write."""
    if isinstance(value, np.ndarray):
        if value.dtype.kind not in _KINDS:
            raise TypeError(f"an array of {value.dtype} is not plain data")
        data = base64.b64encode(np.ascontiguousarray(value).tobytes()).decode()
        return {"@array": [value.dtype.str, list(value.shape), data]}
    if isinstance(value, np.generic):
        return {"@scalar": encode(np.asarray(value))["@array"]}
    if isinstance(value, tuple):
        return {"@tuple": [encode(item) for item in value]}
    if isinstance(value, list):
        return [encode(item) for item in value]
    if isinstance(value, dict):
        return {str(key): encode(item) for key, item in value.items()}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(f"a {type(value).__name__} is not plain data")


def decode(value: Any) -> Any:
    """Reverse `encode`; the result contains only numbers, strings and containers."""
    if isinstance(value, list):
        return [decode(item) for item in value]
    if not isinstance(value, dict):
        return value
    if len(value) == 1:
        (tag, content), *_ = value.items()
        if tag == "@tuple":
            return tuple(decode(item) for item in content)
        if tag in ("@array", "@scalar"):
            array = _decode_array(*content)
            return array if tag == "@array" else array[()]
    return {key: decode(item) for key, item in value.items()}


def _decode_array(dtype: str, shape: list[int], data: str) -> np.ndarray[Any, Any]:
    if not isinstance(dtype, str) or not _DTYPE.fullmatch(dtype):
        raise ValueError(f"an array of {shown(dtype)} is not plain data")
    if not all(type(size) is int and size >= 0 for size in shape):
        raise ValueError(f"an array has the invalid shape {shown(shape)}")
    values = np.frombuffer(base64.b64decode(data, validate=True), dtype=np.dtype(dtype))
    return values.reshape(shape).copy()


def dumps(value: Any) -> bytes:
    """Return canonical JSON with sorted keys, so that equal data gives equal bytes."""
    return (json.dumps(encode(value), sort_keys=True, indent=1) + "\n").encode()


def loads(data: bytes) -> Any:
    """Read what `dumps` wrote."""
    return decode(json.loads(data, object_pairs_hook=unique_keys))
