"""The examples at the top of each algorithm page: the commands parse and the Python code runs."""

from __future__ import annotations

import re
import shlex
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
import typer

from rl_training import cli
from rl_training.algorithms.registry import REGISTRY
from rl_training.api import ManagedAlgorithm
from rl_training.cli.train_arguments import parse_train_arguments

ROOT = Path(__file__).parents[1]


def code_blocks(algo: str, language: str) -> list[str]:
    page = (ROOT / "docs" / "algorithms" / f"{algo}.md").read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```$", page, re.M | re.S)


@pytest.mark.parametrize("algo", REGISTRY)
def test_commands_are_valid(algo: str) -> None:
    lines = [line for block in code_blocks(algo, "bash") for line in block.splitlines()]
    group: Any = typer.main.get_command(cli.app)
    for line in lines:
        program, name, *arguments = shlex.split(line, comments=True)
        assert (program, name) == ("rl-training", "train")
        values = group.commands[name].make_context(name, arguments).params
        config, _ = parse_train_arguments(values["config"], values["words"] or ())
        assert config.algo == algo


@pytest.mark.parametrize("algo", REGISTRY)
def test_python_examples_run(algo: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Constructors check every option; training itself is tested elsewhere."""
    monkeypatch.setattr(ManagedAlgorithm, "learn", lambda self, *_, **__: self)
    monkeypatch.setattr(ManagedAlgorithm, "evaluate", lambda *_, **__: defaultdict(float))
    for code in code_blocks(algo, "python"):
        exec(compile(code, f"{algo}.md", "exec"), {})
