"""YAML configs and overrides."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from tests.hostile.bases import ONLINE, Bases, config
from tests.hostile.case import Case, Write
from tests.hostile.sandbox import Workspace

TRAIN = ("train", "-c", "{given}/c.yaml")
SMALL = "{hidden_sizes: [8], batch_size: 8, buffer_capacity: 100, tensorboard: false}"
HEAD = (
    f"algo: sac\nenv_id: Pendulum-v1\ntotal_timesteps: 4\neval_episodes: 0\nalgo_kwargs: {SMALL}\n"
)
TOP = (
    *("algo", "env_id", "seed", "total_timesteps", "output_dir", "device", "num_envs", "tags"),
    *("eval_episodes", "checkpoint_interval", "log_interval", "algo_kwargs", "env_kwargs"),
)


def _text(text: str | bytes) -> Write:
    def write(workspace: Workspace, bases: Bases) -> None:
        data = text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")
        data = data.replace(b"{outside}", str(workspace.outside).encode())
        (workspace.given / "c.yaml").write_bytes(data)

    return write


def _changed(changes: Mapping[str, Any]) -> Write:
    """Write the SAC run's config with some keys changed, at the top level or in algo_kwargs."""

    def write(workspace: Workspace, bases: Bases) -> None:
        data = config("sac", "Pendulum-v1", workspace.given / "new", **ONLINE)
        for key, value in changes.items():
            if isinstance(value, str):
                value = value.replace("{given}", str(workspace.given))
            (data if key in TOP else data["algo_kwargs"])[key] = value
        (workspace.given / "c.yaml").write_text(yaml.safe_dump(data, allow_unicode=False))

    return write


def no_run(workspace: Workspace, outcome: Any) -> None:
    """Assert that a rejected start leaves no run folder."""
    folder = workspace.given / "new"
    assert not folder.exists() or not list(folder.iterdir()), list(folder.iterdir())


# --- Texts ----------------------------------------------------------------------


def _bomb(levels: int = 12) -> str:
    lines = (
        f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10) if n else 'x'}]\n" for n in range(levels)
    )
    return "".join(lines)


def _texts() -> dict[str, str | bytes]:
    touch = "touch {outside}/made"
    return {
        "tag-apply": f'{HEAD}tags: !!python/object/apply:os.system ["{touch}"]\n',
        "tag-apply-at-the-top": f'!!python/object/apply:os.system ["{touch}"]\n',
        "tag-apply-as-a-key": f'? !!python/object/apply:os.system ["{touch}"]\n: 1\n',
        "tag-new": f"{HEAD}tags: !!python/object/new:os.system [x]\n",
        "tag-object": f"{HEAD}tags: !!python/object:os.PathLike {{}}\n",
        "tag-name": f"{HEAD}tags: !!python/name:os.system\n",
        "tag-module": f"{HEAD}tags: !!python/module:evil\n",
        "tag-tuple": f"{HEAD}tags: !!python/tuple [a]\n",
        "custom-tag": f"{HEAD}tags: !evil [a]\n",
        "tag-binary": f"{HEAD}tags: !!binary aGk=\n",
        "tag-set": f"{HEAD}tags: !!set {{a, b}}\n",
        "tag-pairs": f"{HEAD}tags: !!pairs [a: 1]\n",
        "alias": f"{HEAD}tags: [&a x, *a]\n",
        "alias-bomb": HEAD + _bomb(),
        "alias-bomb-in-env-kwargs": f"{HEAD}env_kwargs:\n  " + _bomb().replace("\n", "\n  "),
        "self-referential-alias": f"{HEAD}tags: &a [*a]\n",
        "undefined-alias": f"{HEAD}tags: *nothing\n",
        "merge-key": f"{HEAD}env_kwargs:\n  <<: {{g: 9.8}}\n",
        "duplicate-key": f"{HEAD}seed: 1\nseed: 2\n",
        "duplicate-key-inside": f"{HEAD}env_kwargs:\n  g: 0.9\n  g: 0.8\n",
        "many-duplicate-keys": HEAD + "a: 1\n" * 2000,
        "many-keys": HEAD + "".join(f"k{n}: 1\n" for n in range(5_000)),
        "deep-lists": "algo: " + "[" * 20_000,
        "deep-mappings": "algo: " + "{a: " * 10_000,
        "deep-blocks": "".join(" " * n + "a:\n" for n in range(900)),
        "deep-and-closed": f"{HEAD}tags: " + "[" * 500 + "]" * 500,
        "deep-in-env-kwargs": f"{HEAD}env_kwargs: {{a: " + "[" * 200 + "]" * 200 + "}",
        "key-is-a-list": "? [a]\n: 1\n",
        "key-is-a-mapping": "? {a: 1}\n: 1\n",
        "key-is-a-number": "1: 2\n",
        "key-null": "~: 2\n",
        "key-true": "true: 2\n",
        "key-is-a-date": "2020-01-01: 2\n",
        "key-empty": f"{HEAD}'': 1\n",
        "key-with-an-escape": f'{HEAD}"\\e[31mred": 1\n',
        "key-very-long": HEAD + "k" * 5000 + ": 1\n",
        "two-documents": f"{HEAD}---\n{HEAD}",
        "a-list": "- algo\n- sac\n",
        "a-word": "sac",
        "a-number": "7",
        "empty": "",
        "only-a-comment": "# nothing\n",
        "tabs": "algo:\tsac\n\tseed: 1\n",
        "an-unclosed-text": f'{HEAD}output_dir: "a\n',
        "a-null-byte": HEAD.encode() + b"seed: \0 1\n",
        "control-bytes": HEAD.encode() + b"tags: [\x1b[31m]\n",
        "utf-16": HEAD.encode("utf-16"),
        "all-bytes": bytes(range(256)) * 20,
        "a-pickle": b"\x80\x04cos\nsystem\n.",
        "future-yaml-version": f"%YAML 9.9\n---\n{HEAD}",
        "tag-directive": "%TAG ! tag:yaml.org,2002:python/object/apply:\n---\n"
        f"{HEAD}tags: !os.system [x]\n",
        "a-million-digits": HEAD + "seed: 1" + "0" * 1_000_000 + "\n",
        "a-lone-surrogate": f'{HEAD}tags: ["\\ud800"]\n',
        "base-60": f"{HEAD}seed: " + ":".join(["1"] * 5000) + "\n",
        "a-date": f"{HEAD}seed: 2020-01-01\n",
    }


def _text_cases() -> Iterator[Case]:
    for name, text in _texts().items():
        yield Case(f"yaml/{name}", (*TRAIN, "output_dir={given}/new"), _text(text), check=no_run)
    for name in ("tag-apply", "tag-module", "alias-bomb", "deep-lists", "duplicate-key"):
        text = str(_texts()[name])
        line = (
            text.splitlines()[-1]
            if name != "alias-bomb"
            else "tags: {" + ", ".join(_bomb().splitlines()) + "}"
        )
        value = line.partition(": ")[2]
        yield Case(
            f"yaml/override-{name}",
            (
                "train",
                "-c",
                "sac/pendulum",
                f"tags={value}".replace("{", "{{").replace("}", "}}")
                if name != "tag-apply"
                else f"tags={value}",
            ),
        )


# --- Values ---------------------------------------------------------------------

WHOLE = (
    *("seed", "total_timesteps", "num_envs", "eval_episodes", "checkpoint_interval"),
    *("log_interval", "batch_size", "buffer_capacity", "learning_starts", "keep_checkpoints"),
    *("train_frequency", "gradient_updates_per_step", "num_threads", "learning_rate_warmup"),
    *("schedule_horizon", "eval_interval"),
)
REAL = ("learning_rate", "gamma", "tau", "reward_scale", "learning_rate_final", "initial_alpha")
WORDS = ("algo", "env_id", "output_dir", "device", "learning_rate_schedule", "engine")
FLAGS = ("tensorboard", "normalize_states", "return_scaling", "dataset_download")
SHAPES = ("hidden_sizes", "tags", "env_kwargs", "algo_kwargs", "early_stopping")
WRONG: dict[str, tuple[tuple[str, ...], Any]] = {
    "true": ((*WHOLE, *REAL), True),
    "number-as-text": ((*WHOLE, *REAL), "16"),
    "nan": (("seed", "batch_size", *REAL), float("nan")),
    "infinite": (("total_timesteps", *REAL), float("inf")),
    "a-list": (("seed", "num_envs", "gamma", *WORDS), [1]),
    "a-mapping": (("batch_size", "tau", "tensorboard", *WORDS), {"a": 1}),
    "negative": (WHOLE, -1),
    "half": (("seed", "total_timesteps", "num_envs", "batch_size", "num_threads"), 1.5),
    "a-number": (WORDS, 7),
    "empty": (("seed", *WORDS), ""),
    "one": (FLAGS, 1),
    "yes-in-quotes": (FLAGS, "yes"),
    "a-word": (SHAPES, "x"),
}
"""The keys and the wrong value, by kind of mistake."""


def _value_cases() -> Iterator[Case]:
    for kind, (keys, wrong) in WRONG.items():
        for key in keys:
            yield Case(
                f"config/{key}-{kind}",
                TRAIN,
                _changed({key: wrong}),
                message=key,
                check=no_run,
                slow=kind in ("a-list", "a-mapping", "negative", "a-number", "empty")
                and key not in ("seed", "batch_size", "env_id"),
            )
    for name, changes in _extremes().items():
        yield Case(f"config/{name}", TRAIN, _changed(changes), check=no_run)


def _extremes() -> dict[str, dict[str, Any]]:
    return {
        "learning-rate-1e300": {"learning_rate": 1e300},
        "learning-rate-zero": {"learning_rate": 0.0},
        "layer-width-65536": {"hidden_sizes": [65536, 65536, 65536]},
        "thousands-of-layers": {"hidden_sizes": [8] * 20_000},
        "zero-width-layer": {"hidden_sizes": [0]},
        "layer-width-2-to-the-62": {"hidden_sizes": [1 << 62]},
        "layer-true": {"hidden_sizes": [True, 8]},
        "layer-in-quotes": {"hidden_sizes": ["8"]},
        "list-as-layer": {"hidden_sizes": [[]]},
        "buffer-of-a-billion": {"buffer_capacity": 10**9 * 8},
        "buffer-beyond-64-bits": {"buffer_capacity": 10**30},
        "batch-of-a-billion": {"batch_size": 10**11},
        "a-million-environments": {"num_envs": 10**7},
        "steps-beyond-64-bits": {"total_timesteps": 10**30},
        "warm-up-longer-than-its-horizon": {"learning_rate_warmup": 100, "schedule_horizon": 10},
        "gamma-two": {"gamma": 2.0},
        "tau-zero": {"tau": 0.0},
        "a-million-threads": {"num_threads": 10**6},
        "device-unknown": {"device": "evil"},
        "device-cuda-99": {"device": "cuda:99"},
        "device-cuda-minus-one": {"device": "cuda:-1"},
        "device-cpu-7": {"device": "cpu:7"},
        "device-meta": {"device": "meta"},
        "output-dir-null-byte": {"output_dir": "a\0b"},
        "output-dir-very-long": {"output_dir": "{given}/" + "x" * 5000},
        "output-dir-very-deep": {"output_dir": "{given}/" + "x/" * 3000},
        "output-dir-under-a-file": {"output_dir": "{given}/c.yaml/runs"},
        "output-dir-is-a-file": {"output_dir": "{given}/c.yaml"},
        "output-dir-lone-surrogate": {"output_dir": "{given}/\ud800"},
        "env-id-with-a-module": {"env_id": "evil:Env-v0"},
        "env-id-of-os": {"env_id": "os:system"},
        "env-id-of-old-gym": {"env_id": "GymV21Environment-v0"},
        "env-id-of-newer-gym": {"env_id": "GymV26Environment-v0"},
        "env-id-of-missing-package": {"env_id": "FetchReach-v4"},
        "env-id-very-long": {"env_id": "x" * 5000 + "-v0"},
        "env-id-null-byte": {"env_id": "Pendulum\0-v1"},
        "env-id-with-an-escape": {"env_id": "\x1b[31mPendulum-v1"},
        "env-id-without-a-version": {"env_id": "Pendulum-v99"},
        "env-id-of-markup": {"env_id": "[red]Pendulum[/nope]"},
        "algo-unknown": {"algo": "evil"},
        "algo-is-a-module": {"algo": "os.system"},
        "algo-is-a-path": {"algo": "../evil"},
        "env-kwargs-entry-point": {"env_kwargs": {"entry_point": "os:system"}},
        "env-kwargs-wrappers": {"env_kwargs": {"additional_wrappers": ["evil:W"]}},
        "env-kwargs-id": {"env_kwargs": {"id": "evil:X-v0"}},
        "env-kwargs-spec": {"env_kwargs": {"spec": "evil:X-v0"}},
        "env-kwargs-unknown": {"env_kwargs": {"nonsense": 1}},
        "env-kwargs-render-mode": {"env_kwargs": {"render_mode": "nope"}},
        "env-kwargs-episode-steps-text": {"env_kwargs": {"max_episode_steps": "x"}},
        "env-kwargs-vectorization": {"env_kwargs": {"vectorization": "evil"}},
        "env-kwargs-wrapper-unknown": {"env_kwargs": {"wrappers": {"evil": 1}}},
        "dataset-for-an-online-learner": {"dataset_path": "x.npz"},
        "unknown-key": {"learning_rat": 1},
        "dunder-key": {"__class__": 1},
        "early-stopping-unknown": {"early_stopping": {"evil": 1}},
        "tag-is-a-number": {"tags": [7]},
        "tag-with-an-escape": {"tags": ["\x1b[31m"]},
        "output-dir-with-an-escape": {"output_dir": "{given}/exp\x1b[31m"},
    }


def _accepted() -> Iterator[Case]:
    """Yield unusual but valid configs; the run trains in a separate folder."""

    def trained(workspace: Workspace, outcome: Any) -> None:
        runs = list(workspace.given.rglob("run.json"))
        assert len(runs) == 1
        assert json.loads(runs[0].read_text())["state"] == "completed"

    odd: dict[str, dict[str, Any]] = {
        "output-dir-with-markup": {"output_dir": "exp[/2]"},
        "output-dir-with-braces": {"output_dir": "{run} %s"},
        "output-dir-with-spaces": {"output_dir": " a b "},
        "output-dir-unicode": {"output_dir": "läufe-試"},
        "tags-with-markup": {"tags": ["[/red]", "a" * 300]},
        "env-id-with-markup-in-tags": {"tags": ["[bold]"]},
        "learning-rate-tiny": {"learning_rate": 1e-30},
        "seed-beyond-64-bits": {"seed": 10**30},
    }
    for name, changes in odd.items():
        if "output_dir" in changes:
            changes = {"output_dir": f"{{given}}/{changes['output_dir']}"}
        write = _changed({"total_timesteps": 4, "eval_episodes": 0} | changes)
        yield Case(f"config/{name}-is-trained", TRAIN, write, (0,), check=trained)
    command = (*TRAIN, "output_dir={given}/new")
    replaced = HEAD.encode() + b"tags: [\xff\xfe]\n"
    yield Case("yaml/not-utf-8-is-trained", command, _text(replaced), (0,), check=trained)
    anchored = f"{HEAD}tags: [&unused a]\n"
    yield Case(
        "yaml/anchor-without-alias-is-trained", command, _text(anchored), (0,), check=trained
    )


def cases() -> Iterator[Case]:
    yield from _text_cases()
    yield from _value_cases()
    yield from _accepted()
