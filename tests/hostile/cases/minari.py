"""Minari datasets: ids, metadata, episodes, and checkpoints that refer to them."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from tests.hostile.bases import MINARI_ID, Bases
from tests.hostile.case import Case, Write
from tests.hostile.forging import change_config
from tests.hostile.sandbox import Workspace

INSPECT = ("data", "inspect", MINARI_ID)
VALIDATE = ("data", "validate", MINARI_ID)
TRAIN = (
    *("train", "-c", "{bases}/bc.yaml", "dataset_kind=minari", "dataset_path=null"),
    *(f"dataset_id={MINARI_ID}", "output_dir={given}/new"),
)
SHELL: dict[str, Any] = {
    "id": "Evil-v0",
    "entry_point": "os:system",
    "kwargs": {"command": "touch {outside}/made"},
    "additional_wrappers": [],
    "vector_entry_point": None,
}


def _copy(workspace: Workspace, bases: Bases) -> Path:
    """Copy the ordinary dataset and return its data folder."""
    shutil.copytree(bases.minari, workspace.given / "minari", symlinks=True)
    return workspace.given / "minari" / MINARI_ID / "data"


def _metadata(change: Callable[[dict[str, Any]], object]) -> Write:
    def write(workspace: Workspace, bases: Bases) -> None:
        file = _copy(workspace, bases) / "metadata.json"
        metadata = json.loads(file.read_text())
        change(metadata)
        file.write_text(json.dumps(metadata).replace("{outside}", str(workspace.outside)))

    return write


def _raw(text: str) -> Write:
    def write(workspace: Workspace, bases: Bases) -> None:
        (_copy(workspace, bases) / "metadata.json").write_text(text, errors="surrogatepass")

    return write


def _episodes(change: Callable[[h5py.File, Path], object]) -> Write:
    def write(workspace: Workspace, bases: Bases) -> None:
        folder = _copy(workspace, bases)
        with h5py.File(folder / "main_data.hdf5", "a") as file:
            change(file, folder)

    return write


def _spec(**changes: Any) -> str:
    return json.dumps(SHELL | changes)


def _space(**fields: Any) -> str:
    ordinary = {
        "type": "Box",
        "dtype": "float32",
        "shape": [3],
        "low": [-1.0] * 3,
        "high": [1.0] * 3,
    }
    return json.dumps({k: v for k, v in (ordinary | fields).items() if v is not None})


def _without(*names: str, **changes: Any) -> Callable[[dict[str, Any]], None]:
    def change(metadata: dict[str, Any]) -> None:
        metadata.update(changes)
        for name in names:
            del metadata[name]

    return change


def _hostile_specs() -> dict[str, str]:
    return {
        "os-system": _spec(),
        "module-in-the-current-folder": _spec(entry_point="evil:Env", kwargs={}),
        "id-with-a-module": _spec(id="evil:Env-v0", entry_point=None, kwargs={}),
        "wrapper": _spec(
            id="Pendulum-v1",
            entry_point="gymnasium.envs.classic_control.pendulum:PendulumEnv",
            kwargs={},
            additional_wrappers=[{"name": "W", "entry_point": "evil:W", "kwargs": {}}],
        ),
        "vector-entry-point": _spec(vector_entry_point="os:system", entry_point=None),
        "old-gym": _spec(
            id="GymV21Environment-v0", entry_point=None, kwargs={"env_id": "evil:X-v0"}
        ),
        "not-json": "os:system",
    }


def _code() -> Iterator[Case]:
    """Yield environment specs that would run code; the environments must not be created."""
    commands = {"inspect": INSPECT, "validate": VALIDATE, "train": TRAIN}
    for name, spec in _hostile_specs().items():
        for missing in ("observation_space", "action_space"):
            write = _metadata(_without(missing, env_spec=spec))
            yield Case(f"minari/env-spec-{name}-without-{missing}", INSPECT, write, (0, 2))
        for command in ("validate", "train"):
            write = _metadata(_without("observation_space", "action_space", env_spec=spec))
            yield Case(f"minari/{command}-env-spec-{name}", commands[command], write, (0, 2))
    write = _metadata(lambda m: m.update(env_spec=_spec()))
    yield Case("minari/env-spec-os-system-with-spaces", INSPECT, write, (0, 2))


def _fields() -> dict[str, Callable[[dict[str, Any]], object]]:
    """Return changes that make the metadata inconsistent with the data."""
    return {
        "format-arrow": lambda m: m.update(data_format="arrow"),
        "format-unknown": lambda m: m.update(data_format="pickle"),
        "format-is-a-path": lambda m: m.update(data_format="../../evil"),
        "format-is-a-list": lambda m: m.update(data_format=["hdf5"]),
        "episodes-negative": lambda m: m.update(total_episodes=-1),
        "episodes-none": lambda m: m.update(total_episodes=0),
        "too-many-episodes": lambda m: m.update(total_episodes=5),
        "a-billion-episodes": lambda m: m.update(total_episodes=10**9),
        "episodes-text": lambda m: m.update(total_episodes="4"),
        "episodes-is-a-float": lambda m: m.update(total_episodes=4.5),
        "episodes-missing": _without("total_episodes"),
        "space-not-json": lambda m: m.update(observation_space="Box(3,)"),
        "space-is-a-mapping": lambda m: m.update(observation_space=json.loads(_space())),
        "space-huge": lambda m: m.update(observation_space=_space(shape=[1 << 40])),
        "space-of-objects": lambda m: m.update(observation_space=_space(dtype="object")),
        "space-deep": lambda m: m.update(observation_space="[" * 50_000 + "]" * 50_000),
    }


def _metadata_cases() -> Iterator[Case]:
    for name, change in _fields().items():
        yield Case(f"minari/{name}", INSPECT, _metadata(change), message=MINARI_ID)
    odd: dict[str, Callable[[dict[str, Any]], object]] = {
        "another-id": lambda m: m.update(dataset_id="other/data-v3"),
        "id-path-traversal": lambda m: m.update(dataset_id="../../outside-v0"),
        "future-version": lambda m: m.update(minari_version="99.0.0"),
        "version-a-number": lambda m: m.update(minari_version=7),
        "no-version": _without("minari_version"),
        "extra-keys": lambda m: m.update(evil="os:system", author=["\x1b[31m"]),
        "no-env-spec": _without("env_spec"),
        "another-space": lambda m: m.update(
            observation_space=_space(shape=[4], low=[0] * 4, high=[1] * 4)
        ),
        "format-missing": _without("data_format"),
        "space-unknown": lambda m: m.update(observation_space=_space(type="Evil")),
        "space-of-text": lambda m: m.update(
            observation_space='{"type": "Text", "max_length": 3, "min_length": 1, "charset": "ab"}'
        ),
        "space-of-goals": lambda m: m.update(
            observation_space=json.dumps({"type": "Dict", "subspaces": {"a": json.loads(_space())}})
        ),
        "space-of-images": lambda m: m.update(
            observation_space=_space(
                dtype="uint8",
                shape=[64, 64, 3],
                low=[[[0] * 3] * 64] * 64,
                high=[[[255] * 3] * 64] * 64,
            )
        ),
        "actions-of-text": lambda m: m.update(
            action_space='{"type": "Text", "max_length": 3, "min_length": 1, "charset": "ab"}'
        ),
        "eval-spec-os-system": lambda m: m.update(eval_env_spec=_spec()),
    }
    for name, change in odd.items():
        yield Case(f"minari/odd-{name}", INSPECT, _metadata(change), (0, 2))
        yield Case(f"minari/validate-odd-{name}", VALIDATE, _metadata(change), (0, 1, 2), slow=True)
    texts = {
        "empty": "",
        "a-list": "[]",
        "deep": "[" * 100_000,
        "a-huge-number": '{"total_episodes": 1' + "0" * 100_000 + "}",
        "nan": '{"total_episodes": NaN}',
        "a-lone-surrogate": '{"total_episodes": 4, "data_format": "\\ud800"}',
        "not-utf-8": '{"total_episodes": 4, "data_format": "\udcff"}',
    }
    for name, text in texts.items():
        yield Case(f"minari/metadata-{name}", INSPECT, _raw(text), message=MINARI_ID)


def _episode_changes() -> dict[str, Callable[[h5py.File, Path], object]]:
    def replace(name: str, values: Any, **options: Any) -> Callable[[h5py.File, Path], None]:
        def change(file: h5py.File, folder: Path) -> None:
            del file[f"episode_1/{name}"]
            file.create_dataset(f"episode_1/{name}", data=values, **options)

        return change

    def link(name: str, target: Any) -> Callable[[h5py.File, Path], None]:
        def change(file: h5py.File, folder: Path) -> None:
            del file[f"episode_1/{name}"]
            file[f"episode_1/{name}"] = target(folder) if callable(target) else target

        return change

    def storage(file: h5py.File, folder: Path) -> None:
        (folder / "raw.bin").write_bytes(bytes(40))
        del file["episode_1/rewards"]
        file.create_dataset(
            "episode_1/rewards", (10,), "f4", external=[(str(folder / "raw.bin"), 0, 40)]
        )

    def virtual(file: h5py.File, folder: Path) -> None:
        del file["episode_1/rewards"]
        layout = h5py.VirtualLayout((10,), "f4")
        layout[:] = h5py.VirtualSource(".", "episode_0/rewards", (10,))
        file.create_virtual_dataset("episode_1/rewards", layout)

    def episode_elsewhere(file: h5py.File, folder: Path) -> None:
        shutil.copyfile(folder / "main_data.hdf5", folder / "other.hdf5")
        del file["episode_1"]
        file["episode_1"] = h5py.ExternalLink("other.hdf5", "/episode_0")

    def pipe(folder: Path) -> h5py.ExternalLink:
        os.mkfifo(folder / "pipe")
        return h5py.ExternalLink(str(folder / "pipe"), "/x")

    def seedless(file: h5py.File, folder: Path) -> None:
        file["episode_1"].attrs["id"] = "x"
        file["episode_1"].attrs["seed"] = "many"

    return {
        "external-storage": storage,
        "external-link": episode_elsewhere,
        "external-link-to-a-pipe": link("rewards", pipe),
        "virtual": virtual,
        "soft-link-loop": link("rewards", h5py.SoftLink("/episode_1/rewards")),
        "text-actions": replace("actions", ["a"] * 10, dtype=h5py.string_dtype()),
        "bytes-actions": replace("actions", np.full((10, 1), b"ab")),
        "compound-actions": replace("actions", np.zeros((10, 1), dtype=[("a", "f4")])),
        "deep-actions": replace("actions", np.zeros((10, 2, 3))),
        "complex-rewards": replace("rewards", np.zeros(10, dtype=np.complex64)),
        "text-rewards": replace("rewards", ["a"] * 10, dtype=h5py.string_dtype()),
        "wide-rewards": replace("rewards", np.zeros((10, 3))),
        "fewer-rewards": replace("rewards", np.zeros(9)),
        "fewer-observations": replace("observations", np.zeros((10, 3))),
        "other-observations": replace("observations", np.zeros((11, 4), dtype=np.float32)),
        "scalar-observations": replace("observations", 1.0),
        "text-flags": replace("terminations", ["a"] * 10, dtype=h5py.string_dtype()),
        "null-actions": replace("actions", h5py.Empty("f4")),
        "huge-rewards": lambda f, p: (
            f.__delitem__("episode_1/rewards"),
            f.create_dataset("episode_1/rewards", (10**12,), "f4", chunks=(1000,)),
        ),
        "group-of-rewards": lambda f, p: (
            f.__delitem__("episode_1/rewards"),
            f.create_group("episode_1/rewards"),
        ),
        "no-rewards": lambda f, p: f.__delitem__("episode_1/rewards"),
        "no-episode": lambda f, p: f.__delitem__("episode_1"),
        "episode-is-a-dataset": lambda f, p: (
            f.__delitem__("episode_1"),
            f.__setitem__("episode_1", np.zeros(3)),
        ),
        "circular-episode": lambda f, p: (
            f.__delitem__("episode_1"),
            f.__setitem__("episode_1", f["/"]),
        ),
    }


def _episode_cases() -> Iterator[Case]:
    for name, change in _episode_changes().items():
        yield Case(f"minari/episode-{name}", INSPECT, _episodes(change), message=MINARI_ID)

    def infos(file: h5py.File, folder: Path) -> None:
        group = file["episode_1"].require_group("infos")
        group["evil"] = h5py.ExternalLink("/dev/zero", "/x")

    yield Case("minari/external-infos-are-not-read", INSPECT, _episodes(infos), (0, 2))
    yield Case(
        "minari/infos-of-objects-are-not-read",
        INSPECT,
        _episodes(
            lambda f, p: (
                f["episode_1"]
                .require_group("infos")
                .create_dataset("x", data=["a"], dtype=h5py.string_dtype())
            )
        ),
        (0, 2),
    )


# --- Ids ------------------------------------------------------------------------

IDS = {
    "absolute": "{given}/minari/tests/pendulum-v0",
    "path-traversal": "../minari/tests/pendulum-v0",
    "path-traversal-inside": "tests/../tests/pendulum-v0",
    "path-traversal-to-other-files": "../../outside/evil-v0",
    "hugging-face": "hf://evil/pendulum-v0",
    "google-storage": "gs://evil/pendulum-v0",
    "web": "https://127.0.0.1/pendulum-v0",
    "no-version": "tests/pendulum",
    "missing-version": "tests/pendulum-v9",
    "two-slashes": "tests//pendulum-v0",
    "trailing-slash": "tests/pendulum-v0/",
    "a-dot": "./tests/pendulum-v0",
    "home": "~/tests/pendulum-v0",
    "spaces": " tests/pendulum-v0 ",
    "a-new-line": "tests/pendulum-v0\n",
    "an-escape": "tests/\x1b[31mred-v0",
    "markup": "tests/[red]x[/nope]-v0",
    "very-long": "x" * 5000 + "-v0",
    "a-variable": "$HOME/x-v0",
    "empty": "",
}


QUICK_IDS = (
    "absolute",
    "path-traversal",
    "path-traversal-inside",
    "path-traversal-to-other-files",
    "hugging-face",
    "no-version",
    "an-escape",
    "very-long",
    "empty",
)


def _id_cases() -> Iterator[Case]:
    for name, text in IDS.items():
        config = (*TRAIN[:5], "dataset_id=" + json.dumps(text), *TRAIN[6:])
        slow = name not in QUICK_IDS
        yield Case(f"minari/id-{name}-in-a-config", config, lambda p, b: _copy(p, b), slow=slow)
        if name not in ("absolute", "empty"):
            yield Case(f"minari/id-{name}", ("data", "inspect", text), lambda p, b: _copy(p, b))
        if name != "missing-version":
            yield Case(
                f"minari/convert-to-{name}",
                ("data", "convert", "{data}", f"minari:{text}"),
                lambda p, b: (p.given / "minari").mkdir(),
                check=_no_dataset,
                slow=slow,
            )
    yield Case(
        "minari/collect-to-path-traversal",
        (
            "data",
            "collect",
            "{bases}/runs/sac",
            "--steps",
            "3",
            "--minari",
            "../../outside/made-v0",
        ),
    )
    for name in ("hugging-face", "google-storage"):
        download = (
            *TRAIN[:5],
            "dataset_id=" + json.dumps(IDS[name]),
            "dataset_download=true",
            *TRAIN[6:],
        )
        yield Case(f"minari/download-{name}", download)


def _no_dataset(workspace: Workspace, outcome: object) -> None:
    assert not list((workspace.given / "minari").rglob("*.hdf5"))


# --- Checkpoints that refer to a dataset ------------------------------------------


def _named(**kwargs: Any) -> Write:
    """Change a BC run so that it refers to another dataset."""

    def write(workspace: Workspace, bases: Bases) -> None:
        _metadata(_without("observation_space", env_spec=_spec()))(workspace, bases)
        values = {
            key: value.format(given=workspace.given) if isinstance(value, str) else value
            for key, value in kwargs.items()
        }
        ordinary = {"dataset_kind": "minari", "dataset_path": None}
        change_config(workspace.run, lambda c: c["algo_kwargs"].update(ordinary | values))

    return write


def _checkpoint_cases() -> Iterator[Case]:
    commands = {
        "evaluate": ("evaluate", "{run}"),
        "fqe": ("evaluate", "{run}", "--fqe", "--fqe-updates", "2"),
        "resume": ("resume", "{run}", "total_timesteps=26"),
        "finetune": (
            "finetune",
            "{run}",
            "--env-id",
            "Pendulum-v1",
            "total_timesteps=4",
            "output_dir={given}/new",
        ),
    }
    sources: dict[str, dict[str, Any]] = {
        "spec-with-a-call": {"dataset_id": MINARI_ID},
        "absolute-id": {"dataset_id": "{given}/minari/tests/pendulum-v0"},
        "path-traversal": {"dataset_id": "../minari/tests/pendulum-v0"},
        "download": {"dataset_id": "hf://evil/pendulum-v0", "dataset_download": True},
        "download-plain-id": {"dataset_id": "evil/pendulum-v0", "dataset_download": True},
    }
    for command, words in commands.items():
        base = "iql" if command == "finetune" else "bc"
        for name, kwargs in sources.items():
            codes = (0, 1, 2) if name == "spec-with-a-call" else (1, 2)  # the data is the same
            yield Case(
                f"minari/checkpoint-{command}-{name}", words, _named(**kwargs), codes, base=base
            )
    predict = ("predict", "{run}", "--obs", "{obs}")
    yield Case(
        "minari/checkpoint-predict-spec-with-a-call",
        predict,
        _named(dataset_id=MINARI_ID),
        (0,),
        base="bc",
    )


def cases() -> Iterator[Case]:
    yield Case("minari/ordinary-is-read", INSPECT, lambda p, b: _copy(p, b), (0,), "40")
    yield from _code()
    yield from _metadata_cases()
    yield from _episode_cases()
    yield from _id_cases()
    yield from _checkpoint_cases()
