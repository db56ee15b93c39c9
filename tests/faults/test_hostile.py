"""Hostile files are refused in one line; no code runs and no other files change."""

from __future__ import annotations

import io
import json
import os
import shutil
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rl_training.runtime.checkpointing import MANIFEST, MODEL, OPTIMIZERS, STATE, list_steps
from tests.faults.runs import copy_run, forge, forge_segment, newest
from tests.faults.zygote import Zygote

Attack = Callable[[Path], object]


class Danger:
    """Files that an attack must not reach."""

    def __init__(self, root: Path) -> None:
        self.sentinel = root / "sentinel"
        self.outside = root / "outside"
        self.outside.mkdir()
        (self.outside / "precious.txt").write_text("precious")

    def assert_untouched(self) -> None:
        """Check that no code ran and that the other folder is unchanged."""
        assert not self.sentinel.exists()
        assert [file.name for file in self.outside.iterdir()] == ["precious.txt"]
        assert (self.outside / "precious.txt").read_text() == "precious"


@pytest.fixture
def danger(tmp_path: Path) -> Danger:
    return Danger(tmp_path)


@pytest.fixture
def lone(interrupted: Path, tmp_path: Path) -> Path:
    """Return the checkpoint of a run that has only one, so that there is no fallback."""
    run_dir = copy_run(interrupted, tmp_path / "runs")
    for path in list_steps(run_dir)[:-1]:
        shutil.rmtree(path)
    return newest(run_dir)


@pytest.fixture
def observation(tmp_path: Path) -> Path:
    file = tmp_path / "obs.npy"
    np.save(file, np.zeros(3, dtype=np.float32))
    return file


def _refused(zygote: Zygote, *command: str | Path) -> str:
    outcome = zygote.run(*command)
    assert outcome.status in (1, 2), f"{command}: {outcome}"
    assert len(outcome.error_line()) < 1000
    return outcome.error_line()


# --- Configs ------------------------------------------------------------------


def _configs(sentinel: Path) -> dict[str, bytes]:
    apply = f'!!python/object/apply:os.system ["touch {sentinel}"]'
    bomb = "".join(
        f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10) if n else 'x'}]\n" for n in range(12)
    )
    valid = "algo: sac\nenv_id: Pendulum-v1\ntotal_timesteps: 10\n"
    return {
        "a tag that calls": f"{valid}tags: {apply}\n".encode(),
        "a tag at the top": apply.encode(),
        "a tag that creates an object": f"{valid}tags: !!python/object:os.PathLike {{}}".encode(),
        "a list": b"- algo\n- sac\n",
        "a word": b"sac",
        "nothing": b"",
        "bytes": bytes(range(256)) * 20,
        "deep lists": b"algo: " + b"[" * 100_000,
        "deep mappings": b"algo: " + b"{a: " * 50_000,
        "deep and closed": b"algo: " + b"[" * 300 + b"]" * 300,
        "deep extras": valid.encode() + b"env_kwargs: {a: " + b"[" * 200 + b"]" * 200 + b"}",
        "an alias bomb": f"{valid}{bomb}".encode(),
        "an alias bomb in a field": f"{valid}{bomb}".replace("a11:", "tags:").encode(),
        "an alias bomb in the kwargs": f"{valid}env_kwargs:\n{bomb}".replace(
            "\na", "\n  a"
        ).encode(),
        "a self-referential alias": b"algo: &self [*self]\n",
        "an unhashable key": b"? [a]\n: 1\n",
        "a number as a key": b"1: 2\n",
    }


CONFIGS = list(_configs(Path("sentinel")))


@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", CONFIGS)
def test_hostile_config_is_refused(
    zygote: Zygote, tmp_path: Path, danger: Danger, name: str
) -> None:
    file = tmp_path / "hostile.yaml"
    file.write_bytes(_configs(danger.sentinel)[name])
    _refused(zygote, "train", "-c", file, f"output_dir={tmp_path / 'made'}")
    danger.assert_untouched()
    assert not (tmp_path / "made").exists()


@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", [name for name in CONFIGS if name != "an alias bomb"])
def test_hostile_config_of_a_run_is_refused(
    zygote: Zygote, lone: Path, danger: Danger, name: str
) -> None:
    run_dir = lone.parents[1]
    (run_dir / "config.yaml").write_bytes(_configs(danger.sentinel)[name])
    _refused(zygote, "resume", run_dir)
    assert zygote.run("runs", run_dir.parent).status == 0
    danger.assert_untouched()


def test_hostile_override_is_refused(zygote: Zygote, danger: Danger) -> None:
    tag = f'tags=!!python/object/apply:os.system ["touch {danger.sentinel}"]'
    assert "plain YAML" in _refused(zygote, "train", "-c", "sac/pendulum", tag)
    danger.assert_untouched()


# --- Tensors ------------------------------------------------------------------


def _safetensors(header: Any, data: bytes = b"", *, length: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def _tensor(dtype: str, shape: list[int], end: int) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [0, end]}


def _retyped(path: Path) -> bytes:
    """Return the checkpoint's tensors, declared as integers."""
    return (path / MODEL).read_bytes().replace(b'"F32"', b'"I32"')


TENSORS: dict[str, Callable[[Path], bytes]] = {
    "empty": lambda path: b"",
    "four bytes": lambda path: b"\x08\0\0\0",
    "a huge header": lambda path: _safetensors(b"{}", length=1 << 60),
    "a header beyond the file": lambda path: _safetensors(b"{}", length=4096),
    "a broken header": lambda path: _safetensors(b"{not json"),
    "a deep header": lambda path: _safetensors(b"[" * 100_000),
    "a list as the header": lambda path: _safetensors([]),
    "no tensors": lambda path: _safetensors({}),
    "a huge shape": lambda path: _safetensors(
        {"a": _tensor("F32", [1 << 40, 1 << 40], 8)}, b"8" * 8
    ),
    "data beyond the file": lambda path: _safetensors({"a": _tensor("F32", [1 << 30], 1 << 32)}),
    "an unknown type": lambda path: _safetensors({"a": _tensor("PICKLE", [1], 4)}, b"4" * 4),
    "a type unknown to torch": lambda path: _safetensors({"a": _tensor("F4", [2], 1)}, b"1"),
    "a pickle": lambda path: b"\x80\x04cos\nsystem\n.",
    "another type": _retyped,
}


@pytest.mark.parametrize("name", TENSORS)
@pytest.mark.parametrize("file", [MODEL, OPTIMIZERS])
def test_hostile_tensors_are_refused(
    zygote: Zygote, lone: Path, observation: Path, danger: Danger, name: str, file: str
) -> None:
    (lone / file).write_bytes(TENSORS[name](lone))
    forge(lone)
    _refused(zygote, "resume", lone.parents[1])
    if file == MODEL:
        _refused(zygote, "predict", lone, "--obs", observation)
        _refused(zygote, "evaluate", lone, "--episodes", "1")
    danger.assert_untouched()


# --- State --------------------------------------------------------------------


def _put(*keys: Any, value: Any) -> Callable[[Any], Any]:
    """Return a change of one entry of ``state.json``."""

    def change(state: Any) -> Any:
        target = state
        for key in keys[:-1]:
            target = target[key]
        assert isinstance(target, list) or keys[-1] in target, keys
        target[keys[-1]] = value
        return state

    return change


def _array(dtype: Any, shape: Any, data: Any) -> dict[str, Any]:
    return {"@array": [dtype, shape, data]}


def _nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


ENVIRONMENT = ("collector", "environments", 0, "layers")
STATES: dict[str, Callable[[Any], Any]] = {
    "a list": lambda state: [],
    "a word": lambda state: "state",
    "nothing": lambda state: {},
    "deep lists": lambda state: _nested(400),
    "no trainer": lambda state: state | {"trainer": []},
    "no engine": lambda state: state | {"engine": None},
    "no storage": lambda state: state | {"storage": 3},
    "no collector": lambda state: state | {"collector": "x"},
    "callbacks as a list": lambda state: state | {"callbacks": None},
    "a step as text": _put("trainer", "step", value="many"),
    "a negative step": _put("trainer", "step", value=-5),
    "another step": _put("trainer", "step", value=10**15),
    "a fractional step": _put("trainer", "step", value=1.5),
    "a best return as text": _put("trainer", "best_return", value="high"),
    "a best step as text": _put("trainer", "best_step", value="../../outside"),
    "an evaluation as a list": _put("trainer", "evaluation", value=[]),
    "a stop as text": _put("trainer", "should_stop", value="no"),
    "a number as the stop reason": _put("trainer", "stop_reason", value=7),
    "infinite updates": _put("engine", "updates", value=float("inf")),
    "negative updates": _put("engine", "updates", value=-1),
    "a generator as text": _put("engine", "generator", value="random"),
    "sums as a list": _put("engine", "sums", value=[]),
    "sums as text": _put("engine", "sums", value={"loss/critic": "x"}),
    "NaN sums": _put("engine", "sums", value={"loss/critic": float("nan")}),
    "a huge array": _put("collector", "obs", value=_array("<f4", [1 << 40], "AAAA")),
    "an enormous array": _put("collector", "obs", value=_array("<f4", [10**30], "AAAA")),
    "a negative array": _put("collector", "obs", value=_array("<f4", [-5, 3], "AAAA")),
    "an array of objects": _put("collector", "obs", value=_array("|O", [1], "AAAAAAAAAAA=")),
    "an unknown array type": _put("collector", "obs", value=_array("nonsense", [1], "AAAA")),
    "an array of lists": _put("collector", "obs", value=_array([["a", "<f4"]], [1], "AAAA")),
    "an array of numbers": _put("collector", "obs", value={"@array": 5}),
    "an array with another shape": _put("collector", "obs", value=_array("<f4", [1], "AAAAAA==")),
    "NaN observations": _put("collector", "obs", value=_array("<f4", [1, 3], "AADAfwAAwH8AAMB/")),
    "returns with another shape": _put("collector", "returns", value=_array("<f8", [0], "")),
    "lengths as text": _put("collector", "lengths", value="long"),
    "finished as text": _put("collector", "finished", value=["x"]),
    "episodes as text": _put("collector", "episodes", value="many"),
    "a last return as text": _put("collector", "last_return", value="high"),
    "no environments": _put("collector", "environments", value=[]),
    "environments as text": _put("collector", "environments", value="x"),
    "no layers": _put(*ENVIRONMENT, value=[]),
    "another class": _put(*ENVIRONMENT, 0, "class", value="Evil"),
    "a method replaced": lambda state: _add_attribute(state, "step", 1),
    "a space replaced": lambda state: _add_attribute(state, "action_space", 1),
    "a physical state as text": lambda state: _add_attribute(state, "state", "x"),
    "a generator of another type": lambda state: _set_generator(state, {"bit_generator": "MT"}),
    "more rows than stored": _put("storage", "total", value=10**6),
    "a negative number of rows": _put("storage", "total", value=-1),
    "a capacity as text": _put("storage", "capacity", value="large"),
}


def _add_attribute(state: Any, name: str, value: Any) -> Any:
    state["collector"]["environments"][0]["layers"][-1]["attributes"][name] = value
    return state


def _set_generator(state: Any, value: Any) -> Any:
    generators = state["collector"]["environments"][0]["layers"][-1]["generators"]
    generators[next(iter(generators))] = value
    return state


@pytest.mark.parametrize("name", STATES)
def test_hostile_state_is_refused(zygote: Zygote, lone: Path, danger: Danger, name: str) -> None:
    state = STATES[name](json.loads((lone / STATE).read_bytes()))
    (lone / STATE).write_text(json.dumps(state))
    forge(lone)
    line = _refused(zygote, "resume", lone.parents[1])
    assert str(lone) in line or "replay segment 0" in line
    danger.assert_untouched()


REPLAY_STATES = {
    "nothing": lambda state: {"trainer": state["trainer"]},
    "no total": lambda state: state | {"storage": {"capacity": state["storage"]["capacity"]}},
    "a total as a list": _put("storage", "total", value=[1]),
    "an infinite total": _put("storage", "total", value=float("inf")),
} | {
    name: STATES[name] for name in ("no storage", "a negative number of rows", "a capacity as text")
}


@pytest.mark.parametrize("name", REPLAY_STATES)
def test_hostile_replay_is_not_converted(zygote: Zygote, lone: Path, name: str) -> None:
    state = REPLAY_STATES[name](json.loads((lone / STATE).read_bytes()))
    (lone / STATE).write_text(json.dumps(state))
    forge(lone)
    assert str(lone / STATE) in _refused(zygote, "data", "inspect", lone.parents[1])


@pytest.mark.parametrize(
    "data", [b"", b"[" * 100_000, b"\xff\xfe", b'{"a": 1' + b"0" * 10_000 + b"}"]
)
def test_state_that_is_not_json_is_refused(zygote: Zygote, lone: Path, data: bytes) -> None:
    (lone / STATE).write_bytes(data)
    forge(lone)
    assert str(lone / STATE) in _refused(zygote, "resume", lone.parents[1])


# --- Manifest -----------------------------------------------------------------


def _changed(**changes: Any) -> Callable[[dict[str, Any]], None]:
    return lambda manifest: manifest.update(changes)


def _config(**changes: Any) -> Callable[[dict[str, Any]], None]:
    return lambda manifest: manifest["config"].update(changes)


def _spec(**changes: Any) -> Callable[[dict[str, Any]], None]:
    return lambda manifest: manifest["env_spec"].update(changes)


def _rename_file(manifest: dict[str, Any]) -> None:
    manifest["files"]["../../../outside/precious.txt"] = manifest["files"].pop(MODEL)


MANIFESTS: dict[str, Callable[[dict[str, Any]], object]] = {
    "a renamed file": _rename_file,
    "an extra file": lambda manifest: manifest["files"].update({"/etc/passwd": {}}),
    "a missing file": lambda manifest: manifest["files"].pop(STATE),
    "files as a list": _changed(files=[]),
    "a file as text": lambda manifest: manifest["files"].update({MODEL: "x"}),
    "a size as text": lambda manifest: manifest["files"][MODEL].update(bytes="x"),
    "no size": lambda manifest: manifest["files"][MODEL].pop("bytes"),
    "rows outside the run": _changed(replay=["../../outside/precious"]),
    "an absolute replay path": _changed(replay=["/etc/passwd"]),
    "rows as text": _changed(replay="abc"),
    "rows as numbers": _changed(replay=[7]),
    "another format": _changed(format=99),
    "a format as a list": _changed(format=[1]),
    "a step as text": _changed(step="../../outside"),
    "a negative step": _changed(step=-1),
    "true as the step": _changed(step=True),
    "no config": _changed(config=None),
    "a config as a list": _changed(config=[1]),
    "another algorithm": _config(algo="evil"),
    "an algorithm as a list": _config(algo=["sac"]),
    "an unknown key": _config(evil=1),
    "kwargs as text": _config(algo_kwargs="x"),
    "deep kwargs": _config(algo_kwargs={"hidden_sizes": _nested(400)}),
    "no sizes": _changed(env_spec={}),
    "sizes as text": _spec(obs_dim="three"),
    "a negative size": _spec(obs_dim=-3),
    "another size": _spec(obs_dim=4),
    "a huge size": _spec(obs_dim=10**12),
    "an infinite size": _spec(obs_dim=float("inf")),
    "bounds as text": _spec(action_low="low"),
    "missing bounds": _spec(action_low=[]),
    "NaN bounds": _spec(action_low=[float("nan")]),
    "discrete": _spec(discrete=True),
}


@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", MANIFESTS)
def test_hostile_manifest_is_refused(
    zygote: Zygote, lone: Path, observation: Path, danger: Danger, name: str
) -> None:
    forge(lone, MANIFESTS[name])
    _refused(zygote, "predict", lone, "--obs", observation)
    _refused(zygote, "resume", lone.parents[1])
    danger.assert_untouched()


@pytest.mark.parametrize(
    "data",
    [b"", b"[]", b"7", b"null", b'{"digest": 1}', b"[" * 100_000, b"\xff\xfe", b'{"digest": []}'],
)
def test_invalid_manifest_is_refused(
    zygote: Zygote, lone: Path, observation: Path, data: bytes
) -> None:
    (lone / MANIFEST).write_bytes(data)
    assert str(lone / MANIFEST) in _refused(zygote, "predict", lone, "--obs", observation)
    assert str(lone / MANIFEST) in _refused(zygote, "resume", lone.parents[1])


def test_odd_notes_in_a_manifest_are_harmless(zygote: Zygote, lone: Path) -> None:
    """Values that are only compared and shown may be anything."""
    forge(lone, _changed(versions=[], num_threads="x", device=None))
    outcome = zygote.run("resume", lone.parents[1])
    assert outcome.status == 0
    assert "Traceback" not in outcome.err
    assert outcome.err.count("Warning: ") >= 2


@pytest.mark.parametrize("depth", [200, 300, 450])
def test_deeply_nested_manifest_is_harmless(
    zygote: Zygote, lone: Path, observation: Path, depth: int
) -> None:
    """A manifest that is nested too deeply to be read is damaged; otherwise it is accepted."""
    forge(lone, _changed(extra=_nested(depth)))
    outcome = zygote.run("predict", lone, "--obs", observation)
    assert "Traceback" not in outcome.err
    assert outcome.status in (0, 1)


# --- Replay rows --------------------------------------------------------------


class _Call:
    """Calls `os.system` when it is unpickled."""

    def __init__(self, command: str) -> None:
        self.command = command

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (self.command,)


def _npy(array: Any) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=True)
    return buffer.getvalue()


def _npy_header(text: str, data: bytes = b"") -> bytes:
    header = text.encode() + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + data


def _zip(data: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("rows.npy", data)
    return buffer.getvalue()


def _segments(sentinel: Path) -> dict[str, bytes]:
    pickled = np.array([_Call(f"touch {sentinel}")], dtype=object)
    rows = np.zeros((175, 10), dtype=np.float32)
    return {
        "a pickled object": _npy(pickled),
        "only a pickle": pickled.dumps(),
        "pickled rows in an archive": _zip(_npy(pickled)),
        "an archive": _zip(_npy(rows)),
        "a broken archive": b"PK\x03\x04" + b"\0" * 100,
        "nothing": b"",
        "another shape": _npy(rows[:, :9]),
        "fewer rows": _npy(rows[:50]),
        "another type": _npy(rows.astype(np.float64)),
        "integer rows": _npy(rows.astype(np.int32)),
        "a huge shape": _npy_header("{'descr':'<f4','fortran_order':False,'shape':(1<<40,)}"),
        "an enormous shape": _npy_header(
            f"{{'descr':'<f4','fortran_order':False,'shape':({10**14},10)}}"
        ),
        "an impossible shape": _npy_header(
            f"{{'descr':'<f4','fortran_order':False,'shape':({10**40},)}}"
        ),
        "a negative shape": _npy_header("{'descr':'<f4','fortran_order':False,'shape':(-1,10)}"),
        "a deep header": _npy_header("(" * 5000),
        "an unclosed header": _npy_header("{'descr':'<f4"),
        "a header with a call": _npy_header("__import__('os').system('x')"),
        "fewer bytes": _npy(rows)[:-40],
    }


@pytest.mark.parametrize("name", list(_segments(Path("sentinel"))))
def test_hostile_replay_rows_are_refused(
    zygote: Zygote, lone: Path, danger: Danger, name: str
) -> None:
    file = forge_segment(lone, _segments(danger.sentinel)[name])
    line = _refused(zygote, "resume", lone.parents[1])
    assert "replay segment 0" in line or str(file) in line
    danger.assert_untouched()


def test_nan_in_replay_rows_is_refused(zygote: Zygote, lone: Path) -> None:
    forge_segment(lone, _npy(np.full((175, 10), np.nan, dtype=np.float32)))
    assert "replay segment 0" in _refused(zygote, "resume", lone.parents[1])


@pytest.mark.parametrize("name", list(_segments(Path("sentinel"))))
def test_hostile_observations_are_refused(
    zygote: Zygote, lone: Path, tmp_path: Path, danger: Danger, name: str
) -> None:
    file = tmp_path / "hostile.npy"
    file.write_bytes(_segments(danger.sentinel)[name])
    _refused(zygote, "predict", lone, "--obs", file)
    danger.assert_untouched()


# --- Links --------------------------------------------------------------------


def _replace_with_link(path: Path, danger: Danger) -> None:
    """Move a file out of the run and replace it with a link."""
    target = danger.outside.parent / "moved"
    shutil.move(path, target)
    path.symlink_to(target)


def _segment(lone: Path) -> Path:
    (name,) = json.loads((lone / MANIFEST).read_bytes())["replay"]
    return lone.parents[1] / "replay" / f"{name}.npy"


LINKS: dict[str, Callable[[Path], Path]] = {
    "manifest": lambda lone: lone / MANIFEST,
    "model": lambda lone: lone / MODEL,
    "state": lambda lone: lone / STATE,
    "checkpoint": lambda lone: lone,
    "checkpoints": lambda lone: lone.parent,
    "segment": _segment,
    "replay": lambda lone: lone.parents[1] / "replay",
    "metrics": lambda lone: lone.parents[1] / "metrics.jsonl",
    "lock": lambda lone: lone.parents[1] / ".lock",
}


@pytest.mark.parametrize("name", LINKS)
def test_links_are_not_followed(zygote: Zygote, lone: Path, danger: Danger, name: str) -> None:
    path = LINKS[name](lone)
    _replace_with_link(path, danger)
    moved = danger.outside.parent / "moved"
    before = sorted((file, file.stat().st_mtime_ns) for file in [moved, *moved.rglob("*")])
    line = _refused(zygote, "resume", lone.parents[1])
    assert str(path) in line
    after = sorted((file, file.stat().st_mtime_ns) for file in [moved, *moved.rglob("*")])
    assert before == after


@pytest.mark.parametrize("name", ["manifest", "model", "state", "checkpoint", "checkpoints"])
def test_linked_checkpoint_is_not_used(
    zygote: Zygote, lone: Path, observation: Path, danger: Danger, name: str
) -> None:
    _replace_with_link(LINKS[name](lone), danger)
    _refused(zygote, "predict", lone.parents[1], "--obs", observation)


@pytest.mark.parametrize(
    "name",
    [
        *(".tmp-config.yaml", ".tmp-metrics.jsonl", ".tmp-run.json", "tensorboard"),
        *("checkpoints/.tmp-last", "checkpoints/.tmp-step_000000200", "replay/.tmp-x"),
        *("checkpoints/last", "checkpoints/best", "checkpoints/damaged-step_000000200"),
    ],
)
def test_no_write_follows_planted_links(
    zygote: Zygote, lone: Path, danger: Danger, name: str
) -> None:
    """Links at paths that a resume writes to are refused or replaced, but not followed."""
    planted = lone.parents[1] / name
    if planted.is_dir():
        shutil.rmtree(planted)
    planted.unlink(missing_ok=True)
    folder = name in ("tensorboard", "checkpoints/.tmp-step_000000200")
    planted.symlink_to(danger.outside if folder else danger.outside / "precious.txt")
    outcome = zygote.run("resume", lone.parents[1], "tensorboard=true")
    assert "Traceback" not in outcome.err
    danger.assert_untouched()


@pytest.mark.parametrize("kind", ["pipe", "link"])
def test_lock_that_is_not_a_file_does_not_block_a_listing(
    zygote: Zygote, lone: Path, tmp_path: Path, kind: str
) -> None:
    run_dir, elsewhere = lone.parents[1], tmp_path / "elsewhere"
    (run_dir / ".lock").unlink(missing_ok=True)
    if kind == "pipe":
        os.mkfifo(run_dir / ".lock")
    else:
        (run_dir / ".lock").symlink_to(elsewhere)
    listed = zygote.start("runs", run_dir.parent).wait(kill_after=20)
    assert listed.status == 0, listed.err
    assert "killed" in listed.out
    assert not elsewhere.exists()


def test_pipe_instead_of_a_file_does_not_block(
    zygote: Zygote, lone: Path, observation: Path
) -> None:
    for name in (MANIFEST, MODEL):
        (lone / name).rename(lone / "kept")
        os.mkfifo(lone / name)
        line = _refused(zygote, "predict", lone, "--obs", observation)
        assert str(lone / name) in line
        (lone / name).unlink()
        (lone / "kept").rename(lone / name)
