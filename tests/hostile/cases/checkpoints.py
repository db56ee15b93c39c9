"""Checkpoints altered by an attacker who also corrected the digests."""

from __future__ import annotations

import base64
import os
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from rl_training.runtime.checkpointing import MANIFEST, STATE, step_name
from tests.faults.runs import forge, forge_segment, newest
from tests.hostile.bases import Bases
from tests.hostile.case import Case, Write
from tests.hostile.forging import Change, change_config, change_manifest, change_state, drop, put
from tests.hostile.formats import Called, described, npy
from tests.hostile.sandbox import Workspace

PREDICT = ("predict", "{run}", "--obs", "{obs}")
EVALUATE = ("evaluate", "{run}", "--episodes", "1")
RESUME = ("resume", "{run}", "total_timesteps=26")
COLLECT = ("data", "collect", "{run}", "--steps", "3", "--out", "{given}/c.npz")
REPLAY = ("data", "inspect", "{run}")
CARD = ("card", "{run}", "--out", "{given}/c.md")
EXPORT = ("export", "{run}", "--out", "{given}/e.safetensors")


def _manifest(change: Change) -> Write:
    return lambda workspace, bases: change_manifest(workspace.run, change)


def _state(change: Change) -> Write:
    return lambda workspace, bases: change_state(workspace.run, change)


def _config(change: Change) -> Write:
    return lambda workspace, bases: change_config(workspace.run, change)


def nested(depth: int) -> list[Any]:
    """Return nested lists of a given depth."""
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


# --- Environments -----------------------------------------------------------------


def _environments() -> dict[str, Change]:
    """Return changes of a checkpoint's environment that would run code or read files."""
    return {
        "module": put("env_id", value="evil:Env-v0"),
        "system-module": put("env_id", value="os:system"),
        "absent-package": put("env_id", value="FetchReach-v4"),
        "missing-maze-package": put("env_id", value="PointMaze_UMaze-v3"),
        "old-gym": put("env_id", value="GymV21Environment-v0"),
        "old-gym-with-a-module": lambda c: c.update(
            env_id="GymV21Environment-v0", env_kwargs={"env_id": "evil:X-v0"}
        ),
        "newer-gym": put("env_id", value="GymV26Environment-v0"),
        "unknown": put("env_id", value="Evil-v0"),
        "very-long": put("env_id", value="x" * 5000 + "-v0"),
        "escape": put("env_id", value="\x1b[31mPendulum-v1"),
        "markup": put("env_id", value="[/red]-v0"),
        "a-number": put("env_id", value=7),
        "entry-point": put("env_kwargs", value={"entry_point": "os:system"}),
        "additional-wrappers": put("env_kwargs", value={"additional_wrappers": ["evil:W"]}),
        "vector-entry-point": put("env_kwargs", value={"vector_entry_point": "os:system"}),
        "id-in-kwargs": put("env_kwargs", value={"id": "evil:X-v0"}),
        "xml-file": lambda c: c.update(env_id="Hopper-v5", env_kwargs={"xml_file": "/etc/passwd"}),
        "xml-file-relative": lambda c: c.update(
            env_id="HalfCheetah-v5", env_kwargs={"xml_file": "../../evil.xml"}
        ),
        "unknown-kwarg": put("env_kwargs", value={"nonsense": 1}),
        "render-mode": put("env_kwargs", value={"render_mode": "nope"}),
        "kwargs-deep": put("env_kwargs", value={"g": nested(300)}),
        "kwargs-is-a-list": put("env_kwargs", value=[1]),
    }


CODE = ("module", "absent-package", "old-gym", "entry-point", "xml-file", "render-mode")


def _environment_cases() -> Iterator[Case]:
    for name, change in _environments().items():
        for command, words in {"evaluate": EVALUATE, "resume": RESUME, "collect": COLLECT}.items():
            slow = command == "collect" and name not in CODE
            yield Case(
                f"checkpoint/env-{name}-{command}",
                words,
                _config(change),
                (1, 2),
                base="sac",
                slow=slow,
            )
        yield Case(
            f"checkpoint/env-{name}-card",
            CARD,
            _config(change),
            (0, 1, 2),
            base="sac",
            slow=name not in (*CODE, "kwargs-deep", "escape"),
        )
    for name in CODE:
        change = _environments()[name]
        yield Case(f"checkpoint/env-{name}-exports", EXPORT, _config(change), (0, 1, 2), base="sac")
        yield Case(
            f"checkpoint/env-{name}-predicts", PREDICT, _config(change), (0, 1, 2), base="sac"
        )
        yield Case(
            f"checkpoint/env-{name}-validate",
            ("data", "validate", "{run}"),
            _config(change),
            (0, 1, 2),
            base="sac",
        )
        yield Case(
            f"checkpoint/env-{name}-finetune",
            ("finetune", "{run}", "total_timesteps=4", "output_dir={given}/new"),
            _config(change),
            (1, 2),
            base="iql",
        )
    yield Case(
        "checkpoint/her-env-module-resume",
        RESUME,
        _config(put("env_id", value="evil:E-v0")),
        (1, 2),
        base="her",
    )
    yield Case(
        "checkpoint/dqn-env-continuous-resume",
        RESUME,
        _config(put("env_id", value="Pendulum-v1")),
        (1, 2),
        base="dqn",
    )


# --- Manifest ---------------------------------------------------------------------


def _manifests() -> dict[str, Change]:
    return {
        "file-elsewhere": lambda m: m["files"].update(
            {"../../../outside/precious.txt": m["files"].pop(STATE)}
        ),
        "extra-file": lambda m: m["files"].update(
            {"/etc/passwd": {"sha256": "0" * 64, "bytes": 1}}
        ),
        "missing-file": drop("files", STATE),
        "file-text": put("files", STATE, value="x"),
        "file-size-text": put("files", STATE, "bytes", value="x"),
        "file-size-negative": put("files", STATE, "bytes", value=-1),
        "file-size-true": put("files", STATE, "bytes", value=True),
        "file-hash-is-a-list": put("files", STATE, "sha256", value=[]),
        "files-is-a-list": put("files", value=[]),
        "rows-elsewhere": put("replay", value=["../../outside/precious"]),
        "rows-absolute": put("replay", value=["/etc/passwd"]),
        "rows-text": put("replay", value="a" * 64),
        "rows-upper-case": put("replay", value=["A" * 64]),
        "rows-missing": put("replay", value=["0" * 64]),
        "format-99": put("format", value=99),
        "format-zero": put("format", value=0),
        "format-true": put("format", value=True),
        "format-text": put("format", value="1"),
        "format-missing": drop("format"),
        "step-text": put("step", value="24"),
        "step-negative": put("step", value=-24),
        "step-differs": put("step", value=25),
        "step-zero": put("step", value=0),
        "step-huge": put("step", value=10**30),
        "step-true": put("step", value=True),
        "step-missing": drop("step"),
        "config-missing": drop("config"),
        "config-is-a-list": put("config", value=[1]),
        "config-unknown-key": put("config", "evil", value=1),
        "config-unknown-algorithm": put("config", "algo", value="evil"),
        "config-algorithm-is-a-list": put("config", "algo", value=["sac"]),
        "config-other-algorithm": put("config", "algo", value="td3"),
        "config-kwargs-text": put("config", "algo_kwargs", value="x"),
        "config-unknown-kwarg": put("config", "algo_kwargs", "evil", value=1),
        "config-layers-huge": put("config", "algo_kwargs", "hidden_sizes", value=[65536] * 3),
        "config-layers-many": put("config", "algo_kwargs", "hidden_sizes", value=[8] * 10_000),
        "config-wrong-layers": put("config", "algo_kwargs", "hidden_sizes", value=[8, 9]),
        "config-layers-deep": put("config", "algo_kwargs", "hidden_sizes", value=nested(400)),
        "spec-missing": drop("env_spec"),
        "spec-empty": put("env_spec", value={}),
        "spec-extra-field": put("env_spec", "evil", value=1),
        "spec-missing-field": drop("env_spec", "goal_dim"),
        "spec-missing-start": drop("env_spec", "action_start"),
        "spec-obs-text": put("env_spec", "obs_dim", value="3"),
        "spec-obs-true": put("env_spec", "obs_dim", value=True),
        "spec-obs-is-a-float": put("env_spec", "obs_dim", value=3.0),
        "spec-obs-negative": put("env_spec", "obs_dim", value=-3),
        "spec-obs-huge": put("env_spec", "obs_dim", value=10**12),
        "spec-wrong-obs": put("env_spec", "obs_dim", value=4),
        "spec-discrete": put("env_spec", "discrete", value=True),
        "spec-discrete-text": put("env_spec", "discrete", value="no"),
        "spec-start-for-a-box": put("env_spec", "action_start", value=5),
        "spec-unexpected-goal": put("env_spec", "goal_dim", value=2),
        "spec-goal-negative": put("env_spec", "goal_dim", value=-1),
        "spec-bounds-text": put("env_spec", "action_low", value="low"),
        "spec-bounds-missing": put("env_spec", "action_low", value=[]),
        "spec-too-many-bounds": put("env_spec", "action_low", value=[-2.0, -2.0]),
        "spec-bounds-reversed": put("env_spec", "action_low", value=[3.0]),
        "spec-bounds-equal": put("env_spec", "action_low", value=[2.0]),
        "spec-bounds-huge": put("env_spec", "action_high", value=[1e39]),
        "spec-bounds-true": put("env_spec", "action_low", value=[True]),
        "spec-bounds-is-a-list": put("env_spec", "action_low", value=[[-2.0]]),
    }


MANIFEST_TEXTS: dict[str, bytes] = {
    "empty": b"",
    "a-list": b"[]",
    "null": b"null",
    "no-digest": b"{}",
    "digest-is-a-number": b'{"digest": 1}',
    "digest-is-a-list": b'{"digest": []}',
    "deep": b"[" * 200_000,
    "not-utf-8": b"\xff\xfe",
    "a-huge-number": b'{"digest": "", "step": 1' + b"0" * 50_000 + b"}",
    "nan": b'{"digest": "", "step": NaN}',
    "a-lone-surrogate": b'{"digest": "\\ud800", "step": "\\ud800"}',
    "nulls": b"\0" * 4000,
}


def _manifest_cases() -> Iterator[Case]:
    for name, change in _manifests().items():
        if name.startswith(("step", "rows")):
            yield Case(f"manifest/{name}", REPLAY, _manifest(change), (1,), base="sac")
        else:
            # Early files of format 1 have neither goals nor the first discrete action.
            codes = (0,) if name in ("spec-missing-field", "spec-missing-start") else (1, 2)
            yield Case(f"manifest/{name}", PREDICT, _manifest(change), codes, base="sac")
    for name in (
        "step-differs",
        "spec-extra-field",
        "spec-bounds-reversed",
        "spec-wrong-obs",
        "config-other-algorithm",
        "format-99",
        "rows-elsewhere",
    ):
        change = _manifests()[name]
        yield Case(f"manifest/{name}-resume", RESUME, _manifest(change), (1, 2), base="sac")
        yield Case(f"manifest/{name}-evaluate", EVALUATE, _manifest(change), (1, 2), base="sac")
        yield Case(f"manifest/{name}-card", CARD, _manifest(change), (0, 1, 2), base="sac")
    for name, value in {
        "a-list": [1],
        "deep": nested(400),
        "source-is-a-list": {"source": nested(400), "rows": "many", "sha256": 3},
        "markup": {"source": "[/red]`|\n# x\x1b[31m", "rows": -1, "sha256": ""},
    }.items():
        write = _manifest(put("dataset", value=value))
        yield Case(f"manifest/dataset-{name}-card", CARD, write, (0, 1), base="sac")
    for name, data in MANIFEST_TEXTS.items():
        write = _manifest_text(data)
        yield Case(f"manifest/text-{name}", PREDICT, write, (1,), "manifest.json", base="sac")
    duplicate = _duplicate_keys()
    yield Case("manifest/duplicate-keys", PREDICT, duplicate, (1,), "manifest.json", base="sac")
    notes = put("versions", value=["\x1b[31m"])
    yield Case("manifest/odd-notes-cause-a-warning", RESUME, _manifest(notes), (0, 1), base="sac")
    yield Case(
        "manifest/extra-fields",
        PREDICT,
        _manifest(put("evil", value="os:system")),
        (0, 1),
        base="sac",
    )
    renamed = _renamed()
    yield Case("manifest/folder-of-another-step", RESUME, renamed, (1,), base="sac")
    yield Case("manifest/folder-of-another-step-predicts", PREDICT, renamed, (1,), base="sac")


def _manifest_text(data: bytes) -> Write:
    return lambda workspace, bases: (newest(workspace.run) / MANIFEST).write_bytes(data)


def _duplicate_keys() -> Write:
    """Write a manifest with a duplicate key; the digest matches the last value."""

    def write(workspace: Workspace, bases: Bases) -> None:
        file = newest(workspace.run) / MANIFEST
        text = file.read_text()
        file.write_text(text.replace('{\n "algorithm"', '{\n "step": 7,\n "algorithm"', 1))

    return write


def _renamed() -> Write:
    def write(workspace: Workspace, bases: Bases) -> None:
        path = newest(workspace.run)
        path.rename(path.with_name(step_name(23)))
        for name in ("last", "best"):
            (path.parent / name).write_text(step_name(23) + "\n")

    return write


# --- State ------------------------------------------------------------------------

LAYER = ("collector", "environments", 0, "layers")
CORE = (*LAYER, 2)
LEAVES: tuple[tuple[Any, ...], ...] = (
    *(("trainer", name) for name in ("step", "updates", "env_steps", "best_step", "best_return")),
    *(("trainer", name) for name in ("should_stop", "evaluation", "offline_rows", "online_rows")),
    *(("trainer", name) for name in ("evaluation_step", "evaluation_owed", "online_updates")),
    *(("engine", name) for name in ("updates", "generator")),
    *(("storage", name) for name in ("capacity", "total")),
    *(("collector", name) for name in ("environments", "episodes", "lengths", "obs", "returns")),
    ("collector", "explorer"),
    ("collector", "explorer", "generator"),
    (*LAYER, 0, "class"),
    (*LAYER, 0, "attributes"),
    (*LAYER, 0, "attributes", "_elapsed_steps"),
    (*CORE, "attributes", "state"),
    (*CORE, "generators", "_np_random"),
    (*CORE, "generators", "_np_random", "state"),
    (*CORE, "generators", "_np_random", "bit_generator"),
)
"""Entries of a state that have a fixed type."""
OPTIONAL = ("best_step", "best_return", "evaluation_step", "environments")
"""Entries that may be null, for example in a run that was never evaluated."""
KINDS: dict[str, Any] = {"text": "x", "null": None, "list": [1, 2]}


def _array(values: Any, dtype: str, shape: Any = None) -> dict[str, Any]:
    array = np.asarray(values, dtype=dtype)
    data = base64.b64encode(array.tobytes()).decode()
    return {"@array": [dtype, list(array.shape) if shape is None else shape, data]}


def _shortened(*keys: Any, size: int) -> Change:
    """Keep the first bytes of a torch generator's state."""

    def change(state: Any) -> Any:
        target = state
        for key in keys:
            target = target[key]
        dtype, _, data = target["@array"]
        kept = base64.b64decode(data)[:size]
        target["@array"] = [dtype, [len(kept)], base64.b64encode(kept).decode()]
        return state

    return change


def _generator(**changes: Any) -> Change:
    """Change fields of the environment's PCG64 generator."""

    def change(state: Any) -> Any:
        target = state
        for key in (*CORE, "generators", "_np_random"):
            target = target[key]
        for name, value in changes.items():
            (target if name in target else target["state"])[name] = value
        return state

    return change


def _states() -> dict[str, Change]:
    obs = ("collector", "obs")
    physical = (*CORE, "attributes", "state")
    return {
        "engine-generator-shortened": _shortened("engine", "generator", size=5000),
        "engine-generator-empty": _shortened("engine", "generator", size=0),
        "engine-generator-of-one-byte": _shortened("engine", "generator", size=1),
        "engine-generator-of-floats": put(
            "engine", "generator", value=_array(np.zeros(5056), "<f8")
        ),
        "engine-generator-of-zeros": put(
            "engine", "generator", value=_array(np.zeros(5056), "|u1")
        ),
        "explorer-generator-shortened": _shortened("collector", "explorer", "generator", size=5000),
        "explorer-generator-empty": _shortened("collector", "explorer", "generator", size=0),
        "environment-generator-negative": _generator(state=-1),
        "environment-generator-negative-increment": _generator(inc=-1),
        "environment-generator-even-increment": _generator(inc=2),
        "environment-generator-too-large": _generator(state=1 << 128),
        "environment-generator-of-other-kind": _generator(bit_generator="MT19937"),
        "environment-generator-odd-flag": _generator(has_uint32=7),
        "environment-generator-huge-word": _generator(uinteger=1 << 40),
        "environment-generator-negative-word": _generator(uinteger=-1),
        "environment-state-wrong-shape": put(*physical, value=_array([0.0, 0.0, 0.0], "<f8")),
        "environment-state-is-a-scalar": put(*physical, value=_array(0.0, "<f8")),
        "environment-state-empty": put(*physical, value=_array([], "<f8")),
        "environment-state-of-integers": put(*physical, value=_array([0, 0], "<i8")),
        "environment-state-nan": put(*physical, value=_array([np.nan, 0.0], "<f8")),
        "environment-state-is-a-number": put(*physical, value=1.0),
        "environment-method-replaced": put(*CORE, "attributes", "step", value=1),
        "environment-space-replaced": put(*CORE, "attributes", "action_space", value=1),
        "environment-spec-replaced": put(*CORE, "attributes", "spec", value="evil:X-v0"),
        "environment-dunder-replaced": put(*CORE, "attributes", "__class__", value="x"),
        "environment-missing-layer": drop(*LAYER, 0),
        "environment-layer-of-other-class": put(*CORE, "class", value="os.system"),
        "environments-none": put("collector", "environments", value=[]),
        "environments-two": lambda s: (
            s["collector"]["environments"].append(s["collector"]["environments"][0]),
            s,
        )[1],
        "environment-shared-out-of-range": put(*CORE, "attributes", "state", value={"@shared": 99}),
        "environment-shared-circular": lambda s: (
            s["collector"]["environments"][0].update(shared=[{"@shared": 0}]),
            put(*CORE, "attributes", "state", value={"@shared": 0})(s),
        )[1],
        "observation-nan": put(*obs, value=_array([[np.nan] * 3], "<f4")),
        "observation-wrong-shape": put(*obs, value=_array([[0.0]], "<f4")),
        "observation-of-float64": put(*obs, value=_array([[0.0] * 3], "<f8")),
        "observation-of-objects": put(*obs, value={"@array": ["|O", [1], "AAAAAAAAAAA="]}),
        "observation-of-records": put(*obs, value={"@array": [[["a", "<f4"]], [1], "AAAA"]}),
        "observation-huge": put(*obs, value=_array([0.0], "<f4", [1 << 40])),
        "observation-negative-shape": put(*obs, value=_array([[0.0] * 3], "<f4", [-1, 3])),
        "observation-not-base64": put(*obs, value={"@array": ["<f4", [1, 3], "?" * 16]}),
        "observation-of-two-fields": put(*obs, value={"@array": ["<f4", [1, 3]]}),
        "observation-a-tuple": put(*obs, value={"@tuple": 7}),
        "returns-wrong-shape": put("collector", "returns", value=_array([], "<f8")),
        "lengths-negative": put("collector", "lengths", value=_array([-5], "<i8")),
        "total-too-large": put("storage", "total", value=10**6),
        "total-negative": put("storage", "total", value=-1),
        "total-true": put("storage", "total", value=True),
        "wrong-capacity": put("storage", "capacity", value=201),
        "step-differs": put("trainer", "step", value=25),
        "step-negative": put("trainer", "step", value=-1),
        "step-huge": put("trainer", "step", value=10**30),
        "step-true": put("trainer", "step", value=True),
        "updates-negative": put("engine", "updates", value=-1),
        "updates-infinite": put("engine", "updates", value=float("inf")),
        "best-return-nan": put("trainer", "best_return", value=float("nan")),
        "stop-reason-a-number": put("trainer", "stop_reason", value=7),
        "a-list": lambda s: [],
        "deep": lambda s: nested(400),
        "empty": lambda s: {},
        "missing-part": drop("collector"),
        "trainer-missing-field": drop("trainer", "step"),
        "trainer-extra-field": put("trainer", "evil", value=1),
        "extra-part": put("evil", value="os:system"),
    }


STATE_TEXTS: dict[str, bytes] = {
    "empty": b"",
    "half": b'{"trainer": {"st',
    "deep": b"[" * 200_000,
    "not-utf-8": b"\xff\xfe",
    "a-huge-number": b'{"trainer": 1' + b"0" * 50_000 + b"}",
    "nan": b'{"trainer": NaN}',
    "a-lone-surrogate": b'{"trainer": "\\ud800"}',
    "a-pickle": b"\x80\x04cos\nsystem\n.",
}


def _state_text(data: bytes) -> Write:
    def write(workspace: Workspace, bases: Bases) -> None:
        (newest(workspace.run) / STATE).write_bytes(data)
        forge(newest(workspace.run))

    return write


def _state_cases() -> Iterator[Case]:
    for number, path in enumerate(LEAVES):
        null = "list" if number % 2 or path[-1] in OPTIONAL else "null"
        for kind in ("text", null):
            value, slow = KINDS[kind], kind != ("text", null)[number % 3 == 0]
            name = ".".join(map(str, path[-2:]))
            write = _state(put(*path, value=value))
            yield Case(f"state/{name}-{kind}", RESUME, write, (1,), base="sac", slow=slow)
    for name, change in _states().items():
        yield Case(f"state/{name}", RESUME, _state(change), (1,), base="sac")
    lazily = {
        "environment-extra-attribute": put(*CORE, "attributes", "evil", value=1),
        "environment-missing-attribute": drop(*CORE, "attributes", "state"),
    }
    for name, change in lazily.items():  # an environment may create attributes in its first step
        yield Case(f"state/{name}", RESUME, _state(change), (0, 1), base="sac")
    for name, data in STATE_TEXTS.items():
        yield Case(f"state/text-{name}", RESUME, _state_text(data), (1,), "state.json", base="sac")
    for name in ("total-too-large", "total-negative", "wrong-capacity", "empty", "a-list"):
        yield Case(f"state/{name}-as-data", REPLAY, _state(_states()[name]), (1,), base="sac")
    for base in ("dqn", "her", "bc", "finetuned"):
        resume = (*RESUME[:2], "total_timesteps=40")
        for name in ("engine-generator-shortened", "step-differs", "updates-negative", "empty"):
            yield Case(f"state/{base}-{name}", resume, _state(_states()[name]), (1,), base=base)


# --- Replay rows --------------------------------------------------------------------


def _segments() -> dict[str, Callable[[Workspace], bytes]]:
    rows = np.zeros((24, 10), dtype=np.float32)

    def evil(workspace: Workspace) -> Any:
        return np.array([Called(os.system, f"touch {workspace.outside / 'made'}")], dtype=object)

    return {
        "pickled": lambda workspace: npy(evil(workspace), pickled=True),
        "empty": lambda workspace: b"",
        "half": lambda workspace: npy(rows)[:500],
        "other-width": lambda workspace: npy(rows[:, :9]),
        "fewer-rows": lambda workspace: npy(rows[:20]),
        "more-rows": lambda workspace: npy(np.zeros((25, 10), dtype=np.float32)),
        "float64": lambda workspace: npy(rows.astype(np.float64)),
        "integers": lambda workspace: npy(rows.astype(np.int32)),
        "nan": lambda workspace: npy(np.full_like(rows, np.nan)),
        "trailing-bytes": lambda workspace: npy(rows) + bytes(64),
        "huge": lambda workspace: described("'<f4'", f"({1 << 40}, 10)"),
        "zero-byte-dtype": lambda workspace: described("'|V0'", f"({10**15}, 10)"),
        "negative": lambda workspace: described("'<f4'", "(-24, 10)"),
        "invalid-flags": lambda workspace: npy(np.full_like(rows, 7.5)),
    }


def _segment_cases() -> Iterator[Case]:
    for name, make in _segments().items():

        def write(
            workspace: Workspace, bases: Bases, make: Callable[[Workspace], bytes] = make
        ) -> None:
            forge_segment(newest(workspace.run), make(workspace))

        yield Case(f"replay/{name}", RESUME, write, (1,), base="sac")
        yield Case(f"replay/{name}-as-data", REPLAY, write, (1,), base="sac")


def cases() -> Iterator[Case]:
    yield from _environment_cases()
    yield from _manifest_cases()
    yield from _state_cases()
    yield from _segment_cases()
