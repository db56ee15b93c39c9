"""The `card` command."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.cli.test_cli import cli, ok, only_json

RUN = Path(__file__).parents[1] / "fixtures" / "format_1" / "sac"


def test_card_is_written_into_the_run_folder(tmp_path: Path) -> None:
    shutil.copytree(RUN, tmp_path / "run")
    lines = ok("card", "run", "--best", "--episodes", "2", cwd=tmp_path).splitlines()
    assert lines[0] == "Wrote run/README.md, run/README.png (step 20)"
    assert lines[1].startswith("  return -")
    assert "(95% interval of the mean " in lines[1]
    done = cli("card", "run", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr == (
        "Error: run/README.md already exists: choose another name with --out (out=…), or replace "
        "it with --force (overwrite=True).\n"
    )
    assert ok("card", "run", "--episodes", "0", "--force", cwd=tmp_path).startswith("Wrote ")


def test_card_as_json(tmp_path: Path) -> None:
    result = only_json("card", str(RUN), "--out", "card.md", "--episodes", "2", cwd=tmp_path)
    assert result["files"] == ["card.md", "card.png"]
    assert len(result["return_ci95"]) == 2
    assert result["uploaded"] == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("nothing",), "The run or checkpoint 'nothing' does not exist."),
        ((str(RUN), "--out", "card.pdf"), "out = 'card.pdf': the file name must end in .md."),
        ((str(RUN), "--onnx"), "onnx requires push"),
        ((str(RUN), "--push", "me"), "push = 'me': should be the name of a repository"),
        ((str(RUN), "--license", "MIT"), "license = 'MIT': should be a name that the hub knows"),
    ],
)
def test_mistakes_are_one_sentence(
    arguments: tuple[str, ...], message: str, tmp_path: Path
) -> None:
    done = cli("card", *arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith(f"Error: {message}")
    assert done.stderr.count("\n") == 1
    assert not list(tmp_path.iterdir())
