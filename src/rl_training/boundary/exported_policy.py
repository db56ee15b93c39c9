"""Run an exported policy with NumPy and onnxruntime: ``Policy("policy.onnx")(observation)``."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime


class Policy:
    """A function from raw observations to actions; ``facts`` describes the policy."""

    def __init__(self, path: str | Path = "") -> None:
        path = Path(path or Path(__file__).with_name("policy.onnx"))
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.log_severity_level = 1, 4
        key = "session.model_external_initializers_file_folder_path"
        options.add_session_config_entry(key, str(path))  # not a folder: reads no other files
        try:
            data, record = path.read_bytes(), path.with_suffix(".json")
            digest = hashlib.sha256(data).hexdigest()
            if record.exists() and json.loads(record.read_bytes())["sha256"] != digest:
                raise ValueError(f"{record} describes another file")
            self._session = onnxruntime.InferenceSession(data, options, ["CPUExecutionProvider"])
            known = self._session.get_modelmeta().custom_metadata_map
            self.facts: dict[str, Any] = json.loads(known["rl_training"])
            keys = "name", "entry", "dtype", "shape", "low", "high"
            self._inputs = [[given[key] for key in keys] for given in self.facts["inputs"]]
            found = [[given.name, given.shape[1:]] for given in self._session.get_inputs()]
            if found != [[given[0], given[3]] for given in self._inputs]:
                raise ValueError(f"its metadata does not match its inputs {found}")
        except Exception as error:
            raise ValueError(f"{path} is not an intact exported policy: {error!r}") from error

    def __call__(self, observation: Any, action_mask: Any = None) -> Any:
        """Return the action for an observation of the environment, or actions for a batch."""
        arrays, feeds, is_batch = {**_entries(observation), None: action_mask}, {}, False
        for name, entry, dtype, shape, low, high in self._inputs:
            array = np.asarray(arrays.get(entry))
            is_batch = array.ndim > len(shape)
            if entry not in arrays or list(array.shape[is_batch:]) != shape:
                raise ValueError(f"The policy needs {name} of shape {shape} or [batch, …].")
            if not np.all((low <= array) & (array <= high)):
                raise ValueError(f"{name} should be between {low} and {high}.")
            feeds[name] = array.astype(dtype, casting="same_kind").reshape(-1, *shape)
        actions = self._session.run(None, feeds)[0]
        return actions if is_batch else actions[0]


def _entries(value: Any, name: str = "") -> dict[Any, Any]:
    """Return the arrays in nested Dicts and Tuples by name, as in ``robot/0``."""
    if not isinstance(value, Mapping | tuple):
        return {name: value}
    pairs = value.items() if isinstance(value, Mapping) else enumerate(value)
    nested = (_entries(part, f"{name}/{key}" if name else str(key)) for key, part in pairs)
    return {key: array for arrays in nested for key, array in arrays.items()}
