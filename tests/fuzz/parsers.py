"""All parsers of untrusted input in the package, with valid input as a starting point."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from tests.fuzz import mutation, trees
from tests.fuzz.mutation import Mutate
from tests.hostile.bases import MINARI_ID, ONLINE, arrays, config
from tests.hostile.formats import npz

Parse = Callable[[bytes], object]


@dataclass(frozen=True)
class Target:
    """Valid input, and the function that parses it."""

    seeds: list[Any]
    """Files, or nested plain data that `Parser.render` turns into files."""
    parse: Parse


@dataclass(frozen=True)
class Parser:
    """One reader of the package."""

    name: str
    make: Callable[[Path, Path], Target]
    """Prepares a separate folder, given the ordinary files."""
    mutate: Mutate = mutation.mutate_bytes
    render: trees.Render | None = None


# --- Ordinary files -------------------------------------------------------------------


def make_ordinary(folder: Path) -> None:
    """Train one run and write one dataset in every format, as the starting points."""
    from rl_training.api.datasets import convert_data
    from rl_training.api.training import train

    os.environ["MINARI_DATASETS_PATH"] = str(folder / "minari")
    (folder / "data.npz").write_bytes(npz())
    for ending in ("pt", "hdf5"):
        convert_data(str(folder / "data.npz"), str(folder / f"data.{ending}"))
    convert_data(str(folder / "data.npz"), f"minari:{MINARI_ID}", env_id="Pendulum-v1")
    train(config("sac", "Pendulum-v1", folder / "runs", **ONLINE))
    (run,) = (folder / "runs").iterdir()
    for path in sorted((run / "checkpoints").glob("step_*"))[:-1]:
        shutil.rmtree(path)
    run.rename(folder / "run")


def _checkpoint(run: Path) -> Path:
    (path,) = (run / "checkpoints").glob("step_*")
    return path


def _own_run(ordinary: Path, folder: Path) -> Path:
    return Path(shutil.copytree(ordinary / "run", folder / "run"))


# --- Datasets and arrays --------------------------------------------------------------


def _dataset(ending: str) -> Callable[[Path, Path], Target]:
    def make(ordinary: Path, folder: Path) -> Target:
        from rl_training.api.datasets import read_raw
        from rl_training.data.inspection import inspect_dataset

        file = folder / f"d.{ending}"

        def parse(data: bytes) -> None:
            file.write_bytes(data)
            inspect_dataset(read_raw(str(file)))

        return Target([(ordinary / f"data.{ending}").read_bytes(), *_more(ending)], parse)

    return make


def _more(ending: str) -> list[bytes]:
    """Return further valid files of a format."""
    if ending != "npz":
        return []
    columns = arrays()
    turned = {name: np.asfortranarray(values) for name, values in columns.items()}
    narrow = {name: values.astype(np.float16) for name, values in columns.items()}
    return [npz(**turned), npz(**narrow)]


def _minari(name: str) -> Callable[[Path, Path], Target]:
    def make(ordinary: Path, folder: Path) -> Target:
        from rl_training.api.datasets import validate_data

        root = Path(shutil.copytree(ordinary / "minari", folder / "minari"))
        file = root / MINARI_ID / "data" / name
        data = file.read_bytes()

        def parse(data: bytes) -> None:
            os.environ["MINARI_DATASETS_PATH"] = str(root)
            file.write_bytes(data)
            validate_data(MINARI_ID)

        seed: Any = data
        if name == "metadata.json":
            seed = json.loads(data)
            for key in SPACES:
                seed[key] = json.loads(seed[key])
        return Target([seed], parse)

    return make


SPACES = ("observation_space", "action_space", "env_spec")


def _metadata(tree: Any) -> bytes:
    """Return Minari's metadata, in which spaces are JSON inside JSON."""
    if isinstance(tree, dict):
        tree = {
            key: json.dumps(value) if key in SPACES and isinstance(value, dict) else value
            for key, value in tree.items()
        }
    return trees.as_json(tree)


def _npy(ordinary: Path, folder: Path) -> Target:
    from rl_training.api.checkpoints import check_obs
    from rl_training.boundary.npy import read_npy
    from rl_training.types import EnvSpec
    from tests.hostile.formats import npy

    file, spec = folder / "obs.npy", EnvSpec(3, 1, (-1.0,), (1.0,))

    def parse(data: bytes) -> None:
        file.write_bytes(data)
        check_obs(read_npy(file, follow_links=True), spec)

    values = np.ones((4, 3), dtype=np.float32)
    return Target(
        [npy(values), npy(np.asfortranarray(values)), npy(values[0].astype(">f8"))], parse
    )


# --- Checkpoints ----------------------------------------------------------------------


def _forge(path: Path, manifest: dict[str, Any], **contents: bytes) -> None:
    """Write a checkpoint's files and a manifest that agrees with them."""
    for name, data in contents.items():
        (path / name).write_bytes(data)
        manifest["files"][name] = {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}
    (path / "manifest.json").write_bytes(sealed(manifest))


def sealed(manifest: Any) -> bytes:
    """Return a manifest with the matching digest."""
    if not isinstance(manifest, dict):
        return trees.as_json(manifest)
    body = {key: value for key, value in manifest.items() if key != "digest"}
    text = (json.dumps(body, sort_keys=True, indent=1) + "\n").encode("utf-8", "surrogatepass")
    return trees.as_json(body | {"digest": hashlib.sha256(text).hexdigest()})


def _manifest_of(path: Path) -> dict[str, Any]:
    manifest: dict[str, Any] = json.loads((path / "manifest.json").read_bytes())
    del manifest["digest"]
    return manifest


def _tensors(ordinary: Path, folder: Path) -> Target:
    from rl_training.api.checkpoints import predict_checkpoint

    path = _checkpoint(_own_run(ordinary, folder))
    manifest, obs = _manifest_of(path), np.zeros(3, dtype=np.float32)

    def parse(data: bytes) -> None:
        _forge(path, manifest, **{"model.safetensors": data})
        predict_checkpoint(path, obs)

    return Target([(path / "model.safetensors").read_bytes()], parse)


def _manifest(ordinary: Path, folder: Path) -> Target:
    from rl_training.api.checkpoints import evaluate_checkpoint, predict_checkpoint

    path = _checkpoint(_own_run(ordinary, folder))
    obs = np.zeros(3, dtype=np.float32)

    def parse(data: bytes) -> None:
        (path / "manifest.json").write_bytes(data)
        predict_checkpoint(path, obs)
        evaluate_checkpoint(path, episodes=1)

    return Target([_manifest_of(path)], parse)


def _state(ordinary: Path, folder: Path) -> Target:
    from rl_training.experiment.build import build_session
    from rl_training.experiment.config import make_config
    from rl_training.experiment.run_directory import read_config_file
    from rl_training.experiment.task import check_config
    from rl_training.runtime.checkpointing import open_checkpoint

    path = _checkpoint(_own_run(ordinary, folder))
    manifest, state = _manifest_of(path), json.loads((path / "state.json").read_bytes())
    longer = read_config_file(path.parents[1]).to_dict() | {"total_timesteps": 26}
    task = check_config(make_config(longer).resolved())
    (folder / "other").mkdir()
    session = build_session(task, folder / "other")

    def parse(data: bytes) -> None:
        _forge(path, manifest, **{"state.json": data})
        session.restore(open_checkpoint(path, replay=True))
        assert session.collector is not None
        session.collector.request_actions(random=False)
        session.collector.step(session.state.step)

    return Target([state], parse)


def _segment(ordinary: Path, folder: Path) -> Target:
    from rl_training.api.datasets import read_raw

    run = _own_run(ordinary, folder)
    path = _checkpoint(run)
    manifest = _manifest_of(path)
    seed = (run / "replay" / f"{manifest['replay'][0]}.npy").read_bytes()

    def parse(data: bytes) -> None:
        shutil.rmtree(run / "replay")
        (run / "replay").mkdir()
        name = hashlib.sha256(data).hexdigest()
        (run / "replay" / f"{name}.npy").write_bytes(data)
        _forge(path, manifest | {"replay": [name]})
        read_raw(str(run))

    return Target([seed], parse)


# --- Run folders and configs ----------------------------------------------------------


def _run_info(ordinary: Path, folder: Path) -> Target:
    from rl_training.experiment.run_directory import list_runs

    run = _own_run(ordinary, folder)

    def parse(data: bytes) -> None:
        (run / "run.json").write_bytes(data)
        list_runs(folder)

    return Target([json.loads((run / "run.json").read_bytes())], parse)


def _metrics(ordinary: Path, folder: Path) -> Target:
    from rl_training.api.plots import evaluations
    from rl_training.runtime.logging import cut_metrics

    run = _own_run(ordinary, folder)

    def parse(data: bytes) -> None:
        (run / "metrics.jsonl").write_bytes(data)
        evaluations(run)
        cut_metrics(run, 16)

    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return Target([rows], parse)


def _configuration(ordinary: Path, folder: Path) -> Target:
    from rl_training.experiment.config import TrainConfig

    file = folder / "c.yaml"

    def parse(data: bytes) -> None:
        file.write_bytes(data)
        assert TrainConfig.load(file).resolved().parts

    recorded = {"dataset_kind": "npz", "dataset_path": "d.npz", "action_low": -1, "action_high": 1}
    whole = yaml.safe_load((ordinary / "run" / "config.yaml").read_text())
    bc = config("bc", None, folder, **recorded)
    return Target(
        [whole, bc, {"algo": "sac", "env_id": "Pendulum-v1", "total_timesteps": 9}], parse
    )


def _overrides(ordinary: Path, folder: Path) -> Target:
    from rl_training.experiment.config import TrainConfig

    def parse(data: bytes) -> None:
        text = data.decode("utf-8", "surrogateescape")
        TrainConfig.load("sac/pendulum", [text])

    seeds = (
        "seed=1",
        "hidden_sizes=[64, 64]",
        "env_kwargs.g=9.8",
        "learning_rate=1e-3",
        "tags=[a]",
    )
    return Target([text.encode() for text in seeds], parse)


def _pointer(ordinary: Path, folder: Path) -> Target:
    from rl_training.experiment.run_directory import locate
    from rl_training.runtime.checkpointing import open_checkpoint

    run = _own_run(ordinary, folder)

    def parse(data: bytes) -> None:
        (run / "checkpoints" / "last").write_bytes(data)
        open_checkpoint(locate(run))

    return Target([(run / "checkpoints" / "last").read_bytes()], parse)


PARSERS = (
    Parser(
        "npz", _dataset("npz"), mutation.or_bytes(mutation.mutate_zip(mutation.mutate_npy, ".npy"))
    ),
    Parser(
        "pt", _dataset("pt"), mutation.or_bytes(mutation.mutate_zip(mutation.mutate_pickle, ".pkl"))
    ),
    Parser("hdf5", _dataset("hdf5"), mutation.or_bytes(mutation.mutate_hdf5, 0.15)),
    Parser("minari-data", _minari("main_data.hdf5"), mutation.or_bytes(mutation.mutate_hdf5, 0.15)),
    Parser("minari-metadata", _minari("metadata.json"), render=_metadata),
    Parser("npy", _npy, mutation.or_bytes(mutation.mutate_npy)),
    Parser("safetensors", _tensors, mutation.or_bytes(mutation.mutate_safetensors)),
    Parser("manifest", _manifest, render=sealed),
    Parser("state", _state, render=trees.as_json),
    Parser("segment", _segment, mutation.or_bytes(mutation.mutate_npy)),
    Parser("run-info", _run_info, render=trees.as_json),
    Parser("metrics", _metrics, render=trees.as_lines),
    Parser("config", _configuration, render=trees.as_yaml),
    Parser("override", _overrides),
    Parser("pointer", _pointer),
)
