"""Malformed run.json, config.yaml and metrics.jsonl in listings and plots."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

from tests.hostile.bases import Bases
from tests.hostile.case import Case, Write
from tests.hostile.sandbox import Outcome, Workspace

LIST = ("runs", "{given}")
PLOT = ("plot", "{run}", "--out", "{given}/p.png")
RESUME = ("resume", "{run}", "total_timesteps=26")
CARD = ("card", "{run}", "--out", "{given}/c.md", "--episodes", "0")


def _content(name: str, text: str | bytes) -> Write:
    def write(workspace: Workspace, bases: Bases) -> None:
        data = text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")
        (workspace.run / name).write_bytes(data)

    return write


def _changed(**changes: Any) -> Write:
    def write(workspace: Workspace, bases: Bases) -> None:
        file = workspace.run / "run.json"
        file.write_text(json.dumps(json.loads(file.read_text()) | changes))

    return write


JSON_TEXTS: dict[str, str | bytes] = {
    "empty": "",
    "half": '{"state": "comp',
    "a-list": "[]",
    "a-word": '"completed"',
    "null": "null",
    "nan": '{"step": NaN, "best_return": Infinity}',
    "deep": "[" * 200_000,
    "deep-and-closed": '{"state": ' + "[" * 900 + "]" * 900 + "}",
    "a-huge-number": '{"step": 1' + "0" * 50_000 + "}",
    "a-huge-exponent": '{"step": 1e999999, "best_return": -1e400}',
    "duplicate-keys": '{"state": "completed", "state": "running"}',
    "a-lone-surrogate": '{"state": "\\ud800"}',
    "not-utf-8": b'{"state": "\xff\xfe"}',
    "a-byte-order-mark": b'\xef\xbb\xbf{"state": "completed"}',
    "utf-16": '{"state": "completed"}'.encode("utf-16"),
    "a-null-byte": b'{"state": "a\0b"}',
    "all-bytes": bytes(range(256)),
    "a-million-keys": "{" + ",".join(f'"{n}":0' for n in range(90_000)) + "}",
}

QUICK = (
    *("deep", "a-huge-number", "line-deep", "line-nan", "line-text", "line-huge-step"),
    *("line-of-two-megabytes", "unterminated-line"),
)
"""Texts that `make test` tries with every command."""

FIELDS: dict[str, dict[str, Any]] = {
    "state-with-an-escape": {"state": "\x1b[2J\x1b[31mgone\x07"},
    "state-with-markup": {"state": "[/red][link=file:///etc]x"},
    "state-with-unclosed-markup": {"state": "[bold"},
    "state-with-new-lines": {"state": "a\nError: b\r\tc"},
    "state-reversed-text": {"state": "\u202egnp.exe"},
    "state-very-long": {"state": "x" * 100_000},
    "state-is-a-list": {"state": [1, 2]},
    "state-is-a-mapping": {"state": {"a": "\x1b[31m"}},
    "step-text": {"step": "many"},
    "step-is-a-list": {"step": [1]},
    "step-is-a-float": {"step": 1e308},
    "step-negative": {"step": -5},
    "step-true": {"step": True},
    "step-huge": {"step": 10**300},
    "returns-text": {"best_return": "high", "last_return": "\x1b[31m"},
    "returns-huge": {"best_return": 10**400, "last_return": -(10**400)},
    "losses-is-a-mapping": {"best_loss": {}, "last_loss": []},
    "versions-is-a-list": {"versions": [], "device": 7, "engine": {"a": 1}},
    "command-is-a-mapping": {"command": {"a": 1}, "git": [], "hardware": {"a": []}},
    "command-of-another-program": {"command": ["rm", "-rf", "~"], "git": {"commit": 7}},
    "command-with-escapes": {"command": ["rl-training", "\x1b[31m```\n# x"], "hardware": "|\n`"},
}


def _listed(workspace: Workspace, outcome: Outcome) -> None:
    """Assert that the listing includes the run."""
    assert "run" in outcome.out
    assert "sac" in outcome.out


def _listed_json(workspace: Workspace, outcome: Outcome) -> None:
    (row,) = json.loads(outcome.out)["runs"]
    assert row["algo"] == "sac"


def _run_json() -> Iterator[Case]:
    for name, text in JSON_TEXTS.items():
        write = _content("run.json", text)
        yield Case(f"run.json/{name}-is-listed", LIST, write, (0,), base="sac", check=_listed)
        slow = name not in QUICK
        yield Case(f"run.json/{name}-card", CARD, write, (0,), base="sac", slow=slow)
        yield Case(f"run.json/{name}-resumes", RESUME, write, (0,), base="sac", slow=slow)
    for name, changes in FIELDS.items():
        write = _changed(**changes)
        yield Case(
            f"run.json/{name}-card", CARD, write, (0,), base="sac", slow="command" not in name
        )
        yield Case(f"run.json/{name}", LIST, write, (0,), base="sac", check=_listed)
        yield Case(
            f"run.json/{name}-as-json",
            (*LIST, "--json"),
            write,
            (0,),
            base="sac",
            check=_listed_json,
            slow=name
            not in ("state-with-an-escape", "state-is-a-list", "step-huge", "returns-huge"),
        )


METRICS: dict[str, str | bytes] = {
    "line-not-json": "not json\n",
    "line-is-a-list": "[1]\n",
    "line-is-a-number": "7\n",
    "line-deep": "[" * 100_000 + "\n",
    "line-nan": '{"step": 24, "eval_return_mean": NaN}\n',
    "line-infinite": '{"step": 24, "eval_return_mean": 1e999}\n',
    "line-text": '{"step": 24, "eval_return_mean": "high"}\n',
    "line-null": '{"step": 24, "eval_return_mean": null}\n',
    "line-true": '{"step": 24, "eval_return_mean": true}\n',
    "line-is-a-list-of-values": '{"step": 24, "eval_return_mean": [1]}\n',
    "line-huge-step": '{"step": 1' + "0" * 400 + ', "eval_return_mean": 1.0}\n',
    "line-negative-step": '{"step": -1, "eval_return_mean": 1.0}\n',
    "line-float-step": '{"step": 1.5, "eval_return_mean": 1.0}\n',
    "line-text-env-steps": '{"step": 24, "env_steps": "x", "eval_return_mean": 1.0}\n',
    "line-of-two-megabytes": '{"step": 24, "x": "' + "x" * 2_000_000 + '"}\n',
    "line-with-escapes": '{"step": 24, "\\u001b[31m": 1.0}\n',
    "line-not-utf-8": b'{"step": 24, "\xff": 1.0}\n',
    "line-of-nulls": b"\0" * 5000 + b"\n",
    "unterminated-line": '{"step": 24, "eval_ret',
    "empty-lines": "\n" * 5000,
    "windows-lines": '{"step": 24, "loss": 1.0}\r\n',
}


def _appended(text: str | bytes) -> Write:
    def write(workspace: Workspace, bases: Bases) -> None:
        data = text if isinstance(text, bytes) else text.encode()
        with (workspace.run / "metrics.jsonl").open("ab") as stream:
            stream.write(data)

    return write


def _metrics() -> Iterator[Case]:
    for name, text in METRICS.items():
        small = len(text) < 1_000_000
        write, slow = _appended(text), name not in QUICK
        yield Case(f"metrics/{name}-plots", PLOT, write, (0,), base="sac", small=small, slow=slow)
        yield Case(f"metrics/{name}-card", CARD, write, (0,), base="sac", small=small, slow=slow)
        yield Case(
            f"metrics/{name}-resumes", RESUME, write, (0,), base="sac", small=small, slow=slow
        )
    unplottable = {"empty": b"", "all-bytes": bytes(range(256)), "nulls": b"\0" * 10_000}
    for name, text in unplottable.items():
        yield Case(
            f"metrics/{name}-without-plot",
            PLOT,
            _content("metrics.jsonl", text),
            (2,),
            "evaluated",
            base="sac",
        )


def _configs() -> Iterator[Case]:
    """Yield runs with an invalid config.yaml, which are neither listed nor resumed."""
    texts: dict[str, str | bytes] = {
        "empty": "",
        "a-list": "[]",
        "a-tag": '!!python/object/apply:os.system ["touch made"]',
        "a-bomb": "".join(
            f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10) if n else 'x'}]\n" for n in range(12)
        ),
        "deep": "[" * 20_000,
        "unknown-key": "algo: sac\nenv_id: Pendulum-v1\ntotal_timesteps: 9\nevil: 1\n",
        "another-algorithm": "algo: evil\nenv_id: Pendulum-v1\ntotal_timesteps: 9\n",
        "not-utf-8": b"\xff\xfe\x00",
        "all-bytes": bytes(range(256)),
    }
    for name, text in texts.items():
        write = _content("config.yaml", text)
        yield Case(f"config.yaml/{name}-is-not-listed", LIST, write, (0,), "No runs", base="sac")
        yield Case(f"config.yaml/{name}-is-not-resumed", RESUME, write, (1, 2), base="sac")
    contradiction: dict[str, Callable[[str], str]] = {
        "another-seed": lambda text: text.replace("seed: 1", "seed: 2"),
        "another-environment": lambda text: text.replace("Pendulum-v1", "MountainCarContinuous-v0"),
        "another-gamma": lambda text: text.replace("gamma: 0.99", "gamma: 0.9"),
        "another-learner": lambda text: text.replace("algo: sac", "algo: td3"),
    }
    for name, change in contradiction.items():

        def write(
            workspace: Workspace, bases: Bases, change: Callable[[str], str] = change
        ) -> None:
            file = workspace.run / "config.yaml"
            assert change(file.read_text()) != file.read_text()
            file.write_text(change(file.read_text()))

        yield Case(
            f"config.yaml/{name}-contradicts-the-checkpoint", RESUME, write, (2,), base="sac"
        )


def cases() -> Iterator[Case]:
    yield from _run_json()
    yield from _metrics()
    yield from _configs()
