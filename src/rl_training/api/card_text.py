"""The text of a model card: Markdown with the metadata that the Hugging Face hub reads."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from rl_training.algorithms.registry import AlgorithmEntry, get_algorithm
from rl_training.api.exporting import describe_ports
from rl_training.api.publishing import (
    published_command,
    published_config,
    published_data,
    strip_paths,
)
from rl_training.boundary.yaml_codec import dump_yaml
from rl_training.envs.resolving import is_object_label
from rl_training.experiment.saved_run import SavedRun
from rl_training.generated import catalog
from rl_training.runtime.trainer_state import TrainerState
from rl_training.text import counted, printable, shorten

LIBRARY = "rl-training"
HOMEPAGE = "https://github.com/rl-training/rl_training"
TASK = "reinforcement-learning"
CHECKPOINT, POLICY = "checkpoint", "policy.onnx"
"""Names of the checkpoint's folder and of the exported policy in a repository."""
MAX_ROWS = 12
"""Number of evaluations in the table that replaces a learning curve."""


@dataclass(frozen=True)
class Returns:
    """Returns of evaluation episodes."""

    mean: float
    std: float
    how: str
    """Which episodes were played."""
    interval: tuple[float, float] | None = None
    """95% confidence interval of the mean."""
    success_rate: float | None = None


@dataclass(frozen=True)
class LearningCurve:
    """A metric during training."""

    name: str
    points: list[tuple[int, float]]
    """Step and value."""
    figure: str = ""
    """Name of the image; without one, the card has a table."""


@dataclass(frozen=True)
class CardFacts:
    """What a model card says."""

    checkpoint: SavedRun
    info: Mapping[str, Any]
    """Contents of ``run.json``, which may have been edited."""
    returns: Returns | None = None
    curve: LearningCurve | None = None
    license: str | None = None
    repo: str | None = None
    """Repository of the checkpoint, if it is published."""
    has_policy: bool = False
    """Whether the repository contains an ONNX policy."""

    @property
    def algorithm(self) -> AlgorithmEntry:
        """The algorithm of the run."""
        return get_algorithm(self.checkpoint.config.algo)

    @property
    def task(self) -> str:
        """Name of the environment, or of the data if there is no environment."""
        env_id = self.checkpoint.config.env_id
        named = str(self.data.get("source", "data")) if env_id is None else env_id.strip("<>")
        return shorten(printable(named, keep=""))

    @property
    def data(self) -> dict[str, Any]:
        """Source, length and hash of the recorded data; empty if there is none."""
        return published_data(self.checkpoint)


def card_text(facts: CardFacts) -> str:
    """Return a model card."""
    sections = (
        _introduction(facts),
        _results(facts),
        _learning_curve(facts),
        _usage(facts),
        _training(facts),
        _training_data(facts),
        _reproduction(facts),
    )
    front = dump_yaml(card_metadata(facts))
    return f"---\n{front}---\n\n" + "\n\n".join(filter(None, sections)) + "\n"


def card_metadata(facts: CardFacts) -> dict[str, Any]:
    """Return the metadata block, in the layout of the Hugging Face hub."""
    config, returns = facts.checkpoint.config, facts.returns
    tags = [TASK, "deep-reinforcement-learning", LIBRARY, config.algo]
    tags += [] if config.env_id is None else [facts.task]
    metadata: dict[str, Any] = {} if facts.license is None else {"license": facts.license}
    metadata |= {
        "library_name": LIBRARY,
        "pipeline_tag": TASK,
        "tags": tags,
    }
    if returns is None:
        return metadata
    metrics = [("mean_reward", f"{returns.mean:.2f} +/- {returns.std:.2f}")]
    if returns.success_rate is not None:
        metrics.append(("success_rate", f"{returns.success_rate:.2f}"))
    result = {
        "task": {"type": TASK, "name": TASK},
        "dataset": {"name": facts.task, "type": facts.task},
        "metrics": [
            {"type": name, "value": value, "name": name, "verified": False}
            for name, value in metrics
        ],
    }
    return metadata | {"model-index": [{"name": facts.algorithm.short_name, "results": [result]}]}


# --- Sections -------------------------------------------------------------------


def _introduction(facts: CardFacts) -> str:
    config, entry, step = facts.checkpoint.config, facts.algorithm, facts.checkpoint.step
    how = {
        "online": f"for {step:,} steps in {code(facts.task)}",
        "offline": f"for {step:,} gradient updates on recorded data",
        "offline_to_online": f"for {step:,} steps, first on recorded data and then in "
        f"{code(facts.task)}",
    }
    ports = describe_ports(facts.checkpoint.spec)
    rows = [
        ("Algorithm", f"{entry.title} ({code(config.algo)}, {config.mode.replace('_', '-')})"),
        *((("Paper", _paper(entry.paper)),) if entry.paper else ()),
        ("Checkpoint", f"step {step:,} of {config.last_step:,}"),
        ("Seed", f"{config.seed}"),
        *(("Observation", _port(port)) for port in ports["inputs"]),
        *(("Action", _port(port, bounds=True)) for port in ports["outputs"]),
    ]
    return (
        f"# {entry.short_name} agent for {code(facts.task)}\n\n"
        f"This policy was trained with {entry.title} {how[config.mode]}, using "
        f"[{LIBRARY}]({HOMEPAGE}).\n\n{_table(rows)}"
    )


def _results(facts: CardFacts) -> str:
    returns, trained = facts.returns, facts.checkpoint.trainer_state()
    rows: list[tuple[str, str]] = []
    text = ""
    if returns is not None:
        text = f"Returns of {returns.how}, without exploration:\n\n"
        rows.append(("Mean return", f"**{returns.mean:,.2f}**"))
        if returns.interval is not None:
            low, high = returns.interval
            rows.append(("95% confidence interval of the mean", f"{low:,.2f} to {high:,.2f}"))
        rows.append(("Standard deviation", f"{returns.std:,.2f}"))
        if returns.success_rate is not None:
            rows.append(("Success rate", f"{returns.success_rate:.1%}"))
    rows += _recorded_results(trained)
    if not rows:
        return "## Results\n\nThis policy was not evaluated."
    note = (
        "\n\nThese numbers describe one training run: the same settings with another seed can give "
        "a different policy."
    )
    if returns is not None and returns.interval is not None:
        note += " The interval is over the episodes of this policy."
    return f"## Results\n\n{text}{_table(rows)}{note}"


def _recorded_results(trained: TrainerState) -> Iterable[tuple[str, str]]:
    """Yield the best results of the evaluations during training."""
    if trained.best_step is None:
        return
    at = f"at step {trained.best_step:,}"
    if trained.best_return is not None:
        yield "Best evaluation during training", f"{trained.best_return:,.2f} {at}"
    if trained.best_loss is not None:
        yield "Lowest loss on held-out data", f"{trained.best_loss:.6g} {at}"


def _learning_curve(facts: CardFacts) -> str:
    curve = facts.curve
    if curve is None:
        return ""
    if curve.figure:
        return f"## Learning curve\n\n![{curve.name} during training]({quote(curve.figure)})"
    stride = -(-len(curve.points) // MAX_ROWS)
    shown_points = curve.points[::-1][::stride][::-1]  # always with the last one
    rows = [(f"{step:,}", f"{value:,.2f}") for step, value in shown_points]
    return f"## Learning curve\n\n{_table(rows, heads=('Step', curve.name))}"


def _usage(facts: CardFacts) -> str:
    install, folder = f"[Install {LIBRARY}]({HOMEPAGE}#install)", "path/to/checkpoint"
    start = f"{install}. Then:"
    if facts.repo is not None:
        local = facts.repo.partition("/")[2]
        folder = f"{local}/{CHECKPOINT}"
        download = fenced(f"hf download {facts.repo} --local-dir {local}", "bash")
        start = f"{install}, and download this repository:\n\n{download}"
    program = fenced(_program(facts, folder), "python")
    return f"## Use\n\n{start}\n\n{program}\n\n{_without_package(facts, folder)}"


def _program(facts: CardFacts, folder: str) -> str:
    """Return a program that loads the policy from a folder."""
    config, name, path = facts.checkpoint.config, facts.algorithm.short_name, json.dumps(folder)
    if name not in catalog.MANAGED:
        return (
            "from rl_training import predict_checkpoint\n\n"
            f"import my_module  # registers {config.algo}\n\n"
            f"action = predict_checkpoint({path}, observation)"
        )
    evaluation = "" if config.env_id is None else "\nprint(model.evaluate(episodes=10))"
    return (
        f"from rl_training import {name}\n\nmodel = {name}.load({path})\n"
        f"action = model.predict(observation){evaluation}"
    )


def _without_package(facts: CardFacts, folder: str) -> str:
    """Say how to run the policy without this package."""
    if not facts.has_policy:
        command = f"rl-training export {folder} --out {POLICY} --standalone"
        return f"To run the policy without {LIBRARY}, export it first:\n\n{fenced(command, 'bash')}"
    program = (
        f'from policy import Policy\n\npolicy = Policy("{POLICY}")\naction = policy(observation)'
    )
    return (
        f"`{POLICY}` is the same policy as an ONNX model, from raw observations to actions of the "
        "environment. `policy.py` runs it with NumPy and onnxruntime alone:\n\n"
        f"{fenced(program, 'python')}"
    )


def _training(facts: CardFacts) -> str:
    info, manifest = facts.info, facts.checkpoint.manifest
    rows = [("Updates", f"{facts.checkpoint.updates():,}")]
    seconds = info.get("seconds")
    if isinstance(seconds, float):
        rows.append(("Time", _duration(seconds)))
    for name, value in (
        ("Hardware", info.get("hardware")),
        ("Device", manifest.get("device")),
        ("CPU threads", manifest.get("num_threads")),
        ("Engine", manifest.get("engine")),
    ):
        if isinstance(value, str | int):
            rows.append((name, code(str(value))))
    git = info.get("git")
    if isinstance(git, dict) and isinstance(git.get("commit"), str):
        changes = " with uncommitted changes" if git.get("dirty") is True else ""
        rows.append(("Git commit", f"{code(git['commit'])}{changes}"))
    versions = manifest.get("versions")
    if isinstance(versions, dict):
        rows += [(code(str(name)), code(str(version))) for name, version in versions.items()]
    return f"## Training\n\n{_table(rows)}"


def _training_data(facts: CardFacts) -> str:
    if not facts.data:
        return ""
    rows = [
        (name, code(str(facts.data[key])))
        for name, key in (("Source", "source"), ("Transitions", "rows"), ("SHA-256", "sha256"))
        if key in facts.data
    ]
    return f"## Training data\n\n{_table(rows)}"


def _reproduction(facts: CardFacts) -> str:
    config, command = facts.checkpoint.config, published_command(facts.info.get("command"))
    parts = ["## Reproduce"]
    if command is not None:
        parts.append(f"The run was started with:\n\n{fenced(command, 'bash')}")
    if config.finetunes:
        parts.append(
            f"It fine-tuned another checkpoint, which had trained for {config.first_step:,} steps."
        )
    text = dump_yaml(published_config(config))
    parts.append(
        f"<details>\n<summary>All settings</summary>\n\n{fenced(text, 'yaml')}\n\n</details>"
    )
    if is_object_label(config.env_id):
        parts.append(
            f"The environment, {code(facts.task)}, was passed as an object: pass it to "
            "`train` as well."
        )
    elif not config.finetunes:
        parts.append(
            "Save these settings as `config.yaml`, and run `rl-training train config.yaml`."
        )
    parts.append(
        "The result is the same, bit for bit, only with the same versions, hardware and number of "
        "threads."
    )
    return "\n\n".join(parts)


# --- Markdown -------------------------------------------------------------------


def code(text: str) -> str:
    """Return text as inline code for a table, whatever it contains."""
    line = shorten(printable(strip_paths(text), keep=""), 200).replace("|", "\\|")
    marks = "`" * (1 + _longest_run(line))
    space = " " if "`" in line else ""
    return f"{marks}{space}{line or ' '}{space}{marks}"


def fenced(text: str, language: str) -> str:
    """Return text as a code block, whatever it contains."""
    marks = "`" * max(3, 1 + _longest_run(text))
    return f"{marks}{language}\n{printable(text.rstrip(), keep=chr(10))}\n{marks}"


def _longest_run(text: str) -> int:
    return max(map(len, re.findall("`+", text)), default=0)


def _table(rows: Iterable[tuple[str, str]], heads: tuple[str, str] = ("", "")) -> str:
    lines = [f"| {left} | {right} |" for left, right in (heads, ("---", "---"), *rows)]
    return "\n".join(lines)


def _paper(paper: str) -> str:
    number = re.fullmatch(r"arXiv (\d{4}\.\d{4,5})", paper)
    return f"[{paper}](https://arxiv.org/abs/{number[1]})" if number else paper


def _port(port: Mapping[str, Any], *, bounds: bool = False) -> str:
    """Describe an input or output of the policy."""
    shape = f" of shape {port['shape']}" if port["shape"] else ""
    span = f", from {_bound(port['low'])} to {_bound(port['high'])}" if bounds else ""
    return f"{code(port['name'])}: {port['dtype']}{shape}{span}"


def _bound(value: float | list[float]) -> str:
    """Return a bound of the actions: one number if all actions have the same."""
    values = value if isinstance(value, list) else [value]
    if len(set(values)) == 1:
        return f"{values[0]:g}"
    return shorten(f"[{', '.join(f'{one:g}' for one in values)}]")


def _duration(seconds: float) -> str:
    if seconds < 120:
        return counted(max(1, round(seconds)), "second")
    if seconds < 7200:
        return counted(round(seconds / 60), "minute")
    return f"{seconds / 3600:.1f} hours"
