"""Command lines with odd arguments for every command."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from tests.hostile.case import Case, do_nothing
from tests.hostile.sandbox import Outcome, Workspace

SAC = "{bases}/runs/sac"
COMMANDS: dict[str, tuple[str, ...]] = {
    "train": ("train", "-c", "sac/pendulum"),
    "resume": ("resume", SAC),
    "finetune": ("finetune", "{bases}/runs/iql"),
    "evaluate": ("evaluate", SAC, "--episodes", "1"),
    "predict": ("predict", SAC, "--obs", "{obs}"),
    "runs": ("runs", "{bases}/runs"),
    "plot": ("plot", SAC, "--out", "{given}/p.png"),
    "card": ("card", SAC, "--out", "{given}/c.md", "--episodes", "0"),
    "export": ("export", SAC, "--out", "{given}/e.safetensors"),
    "algorithms": ("algorithms",),
    "configs": ("configs",),
    "configs-show": ("configs", "show", "sac/pendulum"),
    "inspect": ("data", "inspect", "{data}"),
    "validate": ("data", "validate", "{data}", "--env-id", "Pendulum-v1"),
    "collect": ("data", "collect", SAC, "--steps", "3", "--out", "{given}/c.npz"),
    "convert": ("data", "convert", "{data}", "{given}/e.npz"),
}
PATHS = {
    "missing": "{given}/nowhere",
    "empty": "",
    "very-long": "x" * 5000,
    "new-line": "a\nError: b",
    "escape": "\x1b[31mred",
    "markup": "[/red]",
    "not-utf-8": os.fsdecode(b"\xff\xfe"),
    "a-file": "{obs}",
    "a-device": "/dev/zero",
    "root": "/",
    "home": "~",
    "current-folder": ".",
    "folder-above": "..",
    "address": "https://127.0.0.1/x",
    "proc": "/proc/self",
}
EVERYWHERE = ("missing", "very-long", "escape", "a-device")
"""Paths that `make test` passes to every command; each command also gets a few of the others."""
READERS = {
    "resume": ("resume", "PATH", "total_timesteps=26"),
    "finetune": ("finetune", "PATH", "total_timesteps=4"),
    "evaluate": ("evaluate", "PATH", "--episodes", "1"),
    "predict": ("predict", "PATH", "--obs", "{obs}"),
    "plot": ("plot", "PATH", "--out", "{given}/p.png"),
    "card": ("card", "PATH", "--out", "{given}/c.md"),
    "card-out": ("card", SAC, "--out", "PATH"),
    "export": ("export", "PATH", "--out", "{given}/e.safetensors"),
    "export-out": ("export", SAC, "--out", "PATH"),
    "collect": ("data", "collect", "PATH", "--steps", "3", "--out", "{given}/c.npz"),
    "inspect": ("data", "inspect", "PATH"),
    "validate": ("data", "validate", "PATH"),
    "convert": ("data", "convert", "PATH", "{given}/e.npz"),
    "train": ("train", "-c", "PATH"),
    "observations": ("predict", SAC, "--obs", "PATH"),
    "dataset": ("evaluate", "{bases}/runs/bc", "--fqe", "--fqe-updates", "2", "--dataset", "PATH"),
}


def _paths() -> Iterator[Case]:
    for number, (command, words) in enumerate(READERS.items()):
        for index, (name, path) in enumerate(PATHS.items()):
            if (command, name) == ("observations", "a-file"):
                continue  # the path is a valid observation file
            filled = tuple(word.replace("PATH", path) if word == "PATH" else word for word in words)
            slow = name not in EVERYWHERE and (index + number) % 4 != 0
            yield Case(f"command/{command}-path-{name}", filled, slow=slow)
    for name in (
        "missing",
        "empty",
        "very-long",
        "escape",
        "markup",
        "not-utf-8",
        "a-file",
        "a-device",
    ):
        codes = (0, 2) if name in ("empty",) else (2,)
        yield Case(f"command/runs-path-{name}", ("runs", PATHS[name]), codes=codes)


def _usage() -> Iterator[Case]:
    """Yield command lines that the parser rejects before a command starts."""
    for name, words in COMMANDS.items():
        slow = name not in ("train", "predict", "convert")
        yield Case(f"command/{name}-unknown-option", (*words, "--nonsense"), usage=True, slow=slow)
        if name not in ("train", "resume", "finetune", "plot", "configs"):
            yield Case(f"command/{name}-extra-argument", (*words, "x"), usage=True, slow=slow)
    for name in ("train", "resume", "finetune", "evaluate", "predict", "plot", "card", "export"):
        yield Case(f"command/{name}-no-arguments", (name,), usage=name != "train")
    for name in ("inspect", "validate", "collect", "convert"):
        yield Case(f"command/{name}-no-arguments", ("data", name), usage=True)
    yield Case("command/unknown", ("nonsense",), usage=True)
    yield Case("command/unknown-data-command", ("data", "nonsense"), usage=True)
    yield Case("command/unknown-with-markup", ("[/red]",), usage=True)
    yield Case("command/unknown-with-an-escape", ("\x1b[31m",), usage=True)
    yield Case("command/option-with-markup", ("--[/red]",), usage=True)
    numbers = {"a-word": "x", "half": "1.5", "nan": "nan", "empty": ""}
    for name, text in numbers.items():
        for option in ("--episodes", "--seed", "--fqe-updates"):
            words = ("evaluate", SAC, option, text)
            slow = name != "nan" and option != "--seed"
            yield Case(f"command/evaluate{option}-{name}", words, usage=True, slow=slow)
        yield Case(
            f"command/collect--steps-{name}",
            ("data", "collect", SAC, "--steps", text, "--out", "{given}/c.npz"),
            usage=True,
        )
    yield Case(
        "command/collect--noise-a-word",
        ("data", "collect", SAC, "--steps", "3", "--noise", "x", "--out", "{given}/c.npz"),
        usage=True,
    )


def _values() -> Iterator[Case]:
    options: dict[str, tuple[str, ...]] = {
        "evaluate-no-episodes": ("evaluate", SAC, "--episodes", "0"),
        "evaluate-negative-episodes": ("evaluate", SAC, "--episodes", "-5"),
        "evaluate-negative-seed": ("evaluate", SAC, "--seed", "-1"),
        "evaluate-device-unknown": ("evaluate", SAC, "--device", "evil"),
        "evaluate-device-cuda-99": ("evaluate", SAC, "--device", "cuda:99"),
        "evaluate-device-meta": ("evaluate", SAC, "--device", "meta"),
        "evaluate-device-escape": ("evaluate", SAC, "--device", "\x1b[31m"),
        "evaluate-env-with-a-module": ("evaluate", SAC, "--env-id", "evil:Env-v0"),
        "evaluate-env-unknown": ("evaluate", SAC, "--env-id", "Evil-v0"),
        "evaluate-env-empty": ("evaluate", SAC, "--env-id", ""),
        "evaluate-env-very-long": ("evaluate", SAC, "--env-id", "x" * 5000),
        "evaluate-env-markup": ("evaluate", SAC, "--env-id", "[/red]-v0"),
        "evaluate-env-other-spaces": ("evaluate", SAC, "--env-id", "MountainCarContinuous-v0"),
        "evaluate-env-discrete-actions": ("evaluate", SAC, "--env-id", "CartPole-v1"),
        "evaluate-env-old-gym": ("evaluate", SAC, "--env-id", "GymV21Environment-v0"),
        "evaluate-fqe-without-data": ("evaluate", SAC, "--fqe"),
        "evaluate-fqe-with-episodes": ("evaluate", "{bases}/runs/bc", "--fqe", "--episodes", "2"),
        "evaluate-fqe-no-updates": ("evaluate", "{bases}/runs/bc", "--fqe", "--fqe-updates", "0"),
        "evaluate-fqe-negative-updates": (
            "evaluate",
            "{bases}/runs/bc",
            "--fqe",
            "--fqe-updates",
            "-1",
        ),
        "evaluate-fqe-other-action-kind": (
            "evaluate",
            "{bases}/runs/dqn",
            "--fqe",
            "--fqe-updates",
            "2",
            "--dataset",
            "{data}",
        ),
        "evaluate-dataset-without-fqe": ("evaluate", "{bases}/runs/iql", "--dataset", "{data}"),
        "evaluate-video-unknown-format": (
            "evaluate",
            SAC,
            "--episodes",
            "1",
            "--video",
            "{given}/v.txt",
        ),
        "evaluate-best-given-a-checkpoint": (
            "evaluate",
            "{bases}/runs/sac/checkpoints/step_000000024",
            "--best",
        ),
        "predict-device-unknown": ("predict", SAC, "--obs", "{obs}", "--device", "evil"),
        "predict-out-in-missing-folder": (
            "predict",
            SAC,
            "--obs",
            "{obs}",
            "--out",
            "{given}/no/where.npy",
        ),
        "predict-out-is-a-folder": ("predict", SAC, "--obs", "{obs}", "--out", "{given}"),
        "predict-out-very-long": (
            "predict",
            SAC,
            "--obs",
            "{obs}",
            "--out",
            "{given}/" + "x" * 5000,
        ),
        "predict-goal-conditioned": ("predict", "{bases}/runs/her", "--obs", "{obs}"),
        "plot-out-unknown-format": ("plot", SAC, "--out", "{given}/p.exe"),
        "plot-out-is-a-folder": ("plot", SAC, "--out", "{given}"),
        "plot-out-in-missing-folder": ("plot", SAC, "--out", "{given}/c.npz/p.png"),
        "plot-never-evaluated": ("plot", "{bases}/runs/bc", "--out", "{given}/p.png"),
        "collect-no-steps": ("data", "collect", SAC, "--steps", "0", "--out", "{given}/c.npz"),
        "collect-negative-steps": (
            "data",
            "collect",
            SAC,
            "--steps",
            "-3",
            "--out",
            "{given}/c.npz",
        ),
        "collect-steps-beyond-memory": (
            "data",
            "collect",
            SAC,
            "--steps",
            str(10**15),
            "--out",
            "{given}/c.npz",
        ),
        "collect-nan-noise": (
            "data",
            "collect",
            SAC,
            "--steps",
            "3",
            "--noise",
            "nan",
            "--out",
            "{given}/c.npz",
        ),
        "collect-infinite-noise": (
            "data",
            "collect",
            SAC,
            "--steps",
            "3",
            "--noise",
            "inf",
            "--out",
            "{given}/c.npz",
        ),
        "collect-negative-seed": (
            "data",
            "collect",
            SAC,
            "--steps",
            "3",
            "--seed",
            "-1",
            "--out",
            "{given}/c.npz",
        ),
        "collect-nowhere": ("data", "collect", SAC, "--steps", "3"),
        "collect-twice": (
            "data",
            "collect",
            SAC,
            "--steps",
            "3",
            "--out",
            "{given}/c.npz",
            "--minari",
            "a/b-v0",
        ),
        "collect-unknown-format": (
            "data",
            "collect",
            SAC,
            "--steps",
            "3",
            "--out",
            "{given}/c.csv",
        ),
        "collect-without-an-environment": (
            "data",
            "collect",
            "{bases}/runs/bc",
            "--steps",
            "3",
            "--out",
            "{given}/c.npz",
        ),
        "collect-over-a-file": ("data", "collect", SAC, "--steps", "3", "--out", "{data}"),
        "collect-under-a-file": ("data", "collect", SAC, "--steps", "3", "--out", "{data}/c.npz"),
        "convert-over-a-file": ("data", "convert", "{data}", "{data}"),
        "convert-unknown-format": ("data", "convert", "{data}", "{given}/e.csv"),
        "convert-to-empty-path": ("data", "convert", "{data}", ""),
        "convert-very-long": ("data", "convert", "{data}", "{given}/" + "x" * 5000 + ".npz"),
        "convert-goals": ("data", "convert", "{bases}/runs/her", "{given}/e.npz"),
        "convert-offline": ("data", "convert", "{bases}/runs/bc", "{given}/e.npz"),
        "validate-without-an-environment": ("data", "validate", "{data}"),
        "validate-env-unknown": ("data", "validate", "{data}", "--env-id", "Evil-v0"),
        "validate-env-with-a-module": ("data", "validate", "{data}", "--env-id", "evil:Env-v0"),
        "configs-show-unknown": ("configs", "show", "evil"),
        "configs-show-path-traversal": ("configs", "show", "../../../../etc/passwd"),
        "configs-show-absolute": ("configs", "show", "/etc/passwd"),
        "configs-show-very-long": ("configs", "show", "x" * 5000),
        "configs-show-escape": ("configs", "show", "\x1b[31m"),
        "train-config-path-traversal": ("train", "-c", "../../../../etc/passwd"),
        "train-config-unknown": ("train", "-c", "sac/pendulumm"),
        "finetune-unsupported-learner": (
            "finetune",
            "{bases}/runs/bc",
            "total_timesteps=4",
            "output_dir={given}/new",
        ),
        "finetune-env-with-a-module": (
            "finetune",
            "{bases}/runs/iql",
            "--env-id",
            "evil:E-v0",
            "output_dir={given}/new",
        ),
    }
    for name, words in options.items():
        yield Case(f"command/{name}", words, check=_assert_no_files_left)
    resumes = {
        "another-algorithm": ("algo=td3",),
        "another-seed": ("seed=9", "total_timesteps=30"),
        "other-output-dir": ("output_dir={given}/new", "total_timesteps=30"),
        "finished": (),
    }
    for name, more in resumes.items():
        yield Case(f"command/resume-{name}", ("resume", "{run}", *more), base="sac")
    problems = ("data", "validate", "{data}", "--env-id", "MountainCarContinuous-v0")
    yield Case(
        "command/validate-against-another-environment", problems, codes=(1, 2), check=do_nothing
    )


def _assert_no_files_left(workspace: Workspace, outcome: Outcome) -> None:
    assert outcome.status == 2
    assert not list(workspace.given.iterdir()), list(workspace.given.iterdir())


OVERRIDES = {
    "no-value": "seed",
    "no-key": "=1",
    "empty": "",
    "only-equals": "=",
    "unknown-key": "sed=1",
    "dots": "a.b.c=1",
    "dots-alone": "...=1",
    "key-inside-scalar": "seed.x=1",
    "dunder": "__class__=1",
    "dunder-inside": "algo_kwargs.__class__=1",
    "tag": "seed=!!python/object/apply:os.system [x]",
    "unclosed": "seed=[1",
    "escape": "\x1b[31m=1",
    "very-long": "x" * 5000 + "=1",
    "very-long-value": "seed=" + "x" * 5000,
    "very-long-list": "hidden_sizes=[" + "x," * 5000 + "]",
    "markup": "seed=[/red]",
    "huge-number": "seed=" + "9" * 5000,
    "true": "seed=true",
    "quoted": "seed='16'",
    "nan": "gamma=.nan",
    "environment-module": "env_id=evil:Env-v0",
    "wrong-kwargs": "algo_kwargs=7",
    "wrong-environment-kwargs": "env_kwargs=[1]",
}


def _overrides() -> Iterator[Case]:
    for name, text in OVERRIDES.items():
        yield Case(
            f"override/train-{name}",
            ("train", "-c", "sac/pendulum", text, "output_dir={given}/new"),
        )
        slow = name not in ("tag", "escape", "very-long", "true", "environment-module")
        yield Case(f"override/resume-{name}", ("resume", "{run}", text), base="sac", slow=slow)
    for name in ("unknown-key", "tag", "escape", "very-long", "true"):
        places = ("output_dir={given}/new", "total_timesteps=4")
        words = ("finetune", "{bases}/runs/iql", OVERRIDES[name], *places)
        yield Case(f"override/finetune-{name}", words)


IMPORTS = {
    "empty": "",
    "dot": ".",
    "dots": "..",
    "relative": ".evil",
    "path": "./evil.py",
    "absolute": "/etc/passwd",
    "unknown": "no_such_module",
    "unknown-inside": "os.no_such_module",
    "statement": "os; print(1)",
    "spaces": " ",
    "new-line": "a\nb",
    "escape": "\x1b[31m",
    "very-long": "x" * 5000,
    "not-utf-8": os.fsdecode(b"\xff"),
    "option": "--json",
}


def _imports() -> Iterator[Case]:
    for name, text in IMPORTS.items():
        yield Case(f"import/{name}", ("--import", text, "algorithms"), message="--import")


def _accepted() -> Iterator[Case]:
    for name, words in COMMANDS.items():
        if name not in ("train", "resume", "finetune"):
            yield Case(f"command/{name}-ordinary", words, codes=(0,))
            if name != "inspect":
                yield Case(f"command/{name}-as-json", (*words, "--json"), codes=(0,), check=_json)
    yield Case("command/version", ("--version",), codes=(0,), message="rl-training")
    yield Case("command/help", ("--help",), codes=(0,), message="Usage")


def _json(workspace: Workspace, outcome: Any) -> None:
    import json

    assert isinstance(json.loads(outcome.out), dict)


def cases() -> Iterator[Case]:
    yield from _accepted()
    yield from _usage()
    yield from _paths()
    yield from _values()
    yield from _overrides()
    yield from _imports()
