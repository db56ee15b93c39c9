"""A short `make fuzz`: every parser survives mutated input, and the fuzzer detects bugs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest

from rl_training.errors import ConfigError
from rl_training.experiment.machine import keep_freed_memory
from tests.fuzz import worker
from tests.fuzz.mutation import mutate_npy, mutate_pickle, mutate_zip, or_bytes
from tests.fuzz.parsers import PARSERS, Parser, Target
from tests.fuzz.trees import edited
from tests.fuzz.worker import Report, fuzz
from tests.hostile.formats import npz

REPOSITORY = Path(__file__).parents[2]


def test_every_parser_survives_a_short_run() -> None:
    command = [sys.executable, "-m", "tests.fuzz", "--seconds", "3600", "--inputs", "40"]
    done = subprocess.run(
        command,
        cwd=REPOSITORY,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for parser in PARSERS:
        (line,) = (line for line in done.stdout.splitlines() if line.startswith(f"{parser.name} "))
        assert int(line.split()[1]) == 40, done.stdout


# --- Detection of bugs ----------------------------------------------------------------


def _crash(data: bytes) -> None:
    if data[:1] != b"0":
        os.abort()


def _raise(data: bytes) -> None:
    if data[:1] != b"0":
        raise KeyError(data)


class _UglyError(ConfigError):
    def __str__(self) -> str:
        return "two\nlines"


def _swallow(data: bytes) -> None:
    if data[:1] != b"0":
        raise _UglyError


def _waste(data: bytes) -> None:
    if data[:1] != b"0":
        bytearray(os.urandom(1)) * 200_000_000


def _refuse(data: bytes) -> None:
    if data[:1] != b"0":
        raise ConfigError("no")


MISTAKES = {"crash": _crash, "exception": _raise, "message": _swallow, "memory": _waste}


def _short(parse: object, tmp_path: Path) -> Report:
    def make(ordinary: Path, folder: Path) -> Target:
        return Target([b"0123456789"], parse)  # type: ignore[arg-type]

    (tmp_path / "scratch").mkdir()
    toy = Parser("toy", make)
    return fuzz(toy, tmp_path, tmp_path / "scratch", seconds=100, seed="0", inputs=8)


@pytest.mark.parametrize("kind", MISTAKES)
def test_bug_is_found_and_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.setattr(worker, "EXTRA_MIB", 100.0)
    report = _short(MISTAKES[kind], tmp_path)
    (finding,) = report.findings.values()
    assert finding.kind == kind
    file = finding.save(tmp_path / "found", "toy")
    assert file.name.startswith(f"toy+{kind}-")
    assert file.read_bytes()[:1] != b"0"


def test_freed_memory_does_not_hide_allocations(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "EXTRA_MIB", 100.0)
    keep_freed_memory()  # as every training run in this process does
    blocks = [bytearray(os.urandom(1)) * 100_000 for _ in range(8_000)]
    del blocks[::2]

    def waste(data: bytes) -> None:
        blocks.clear()  # the first, valid input frees them
        _waste(data)

    (finding,) = _short(waste, tmp_path).findings.values()
    assert finding.kind == "memory"


def test_rejected_input_is_not_a_finding(tmp_path: Path) -> None:
    report = _short(_refuse, tmp_path)
    assert (report.findings, report.outcomes) == ({}, {"accepted", "no"})
    assert report.executions == 8


def test_inputs_are_determined_by_the_seed() -> None:
    mutate = or_bytes(mutate_zip(mutate_npy, ".npy"))
    first, second = ([mutate(npz(), rng) for _ in range(20)] for rng in (Random(1), Random(1)))
    assert first == second
    assert len(set(first)) > 15
    assert or_bytes(mutate_pickle)(b"not a pickle", Random(1)) != b"not a pickle"


def test_mutations_do_not_modify_inserted_values() -> None:
    empty: list[object] = []
    changes = [("replace", 0.0, 0.0, empty), ("add", 0.99, 0.0, empty), ("add", 0.99, 0.0, empty)]
    tree = edited({"a": 1}, changes)
    assert empty == []
    assert len(json.dumps(tree)) < 100  # the tree does not grow without bound
