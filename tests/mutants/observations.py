"""Mutants of observations: entries, their flat vectors and their data."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

ENTRIES = "observations.py"
WRAPPER = "envs/observations.py"
COLUMNS = "data/observation_columns.py"
UNIT = "tests/test_observations.py"
RUNS = "tests/api/test_structured_observations.py"

MUTANTS = [
    Mutant(
        "one-hot values ignore the start of a Discrete space",
        ENTRIES,
        "places = values.astype(np.int64) - first + begins",
        "places = values.astype(np.int64) + begins",
        UNIT,
    ),
    Mutant(
        "the numbers of a MultiDiscrete entry share their one-hot values",
        ENTRIES,
        "begins = np.cumsum(count) - count",
        "begins = 0 * count",
        UNIT,
    ),
    Mutant(
        "a value outside a Discrete space becomes another one's one-hot vector",
        ENTRIES,
        "        if not valid.all():\n            row, place",
        "        if False:\n            row, place",
        UNIT,
    ),
    Mutant(
        "entries are accepted at any position of the flat vector",
        ENTRIES,
        "starts != [entry.offset for entry in entries]\n        or ",
        "",
        UNIT,
    ),
    Mutant(
        "arrays of a batch may have different numbers of rows",
        ENTRIES,
        "if not all(batched) or len(rows) > 1:",
        "if len(rows) > 1:",
        UNIT,
    ),
    Mutant(
        "a batch of discrete numbers is read as one flat vector",
        ENTRIES,
        'batch = array.dtype.kind in "iu"',
        "batch = False",
        UNIT,
    ),
    Mutant(
        "values of an environment are not compared with their space",
        WRAPPER,
        "check_obs(obs, self._space, method)",
        "pass",
        RUNS,
    ),
    Mutant(
        "data entries are used in the order of the file",
        COLUMNS,
        "columns = [parts[entry.name] for entry in entries]",
        "columns = list(parts.values())",
        RUNS,
    ),
    Mutant(
        "data with missing entries is accepted",
        COLUMNS,
        "if {entry.name for entry in entries} != set(parts):",
        "if not {entry.name for entry in entries} >= set(parts):",
        RUNS,
    ),
    Mutant(
        "discrete numbers in data are used as indices without their start",
        COLUMNS,
        "if values.shape[1:] == (entry.width,) != entry.shape and",
        "if values.shape[1:] in ((entry.width,), ()) and",
        RUNS,
    ),
    Mutant(
        "checkpoints do not record the entries",
        "types.py",
        'data["entries"] = [entry.to_dict() for entry in self.entries]',
        'data["entries"] = []',
        RUNS,
    ),
]
