"""The `export` command."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.test_cli import cli, ok, only_json

RUN = str(Path(__file__).parents[1] / "fixtures" / "format_1" / "sac")


def test_export_says_what_it_wrote_and_what_it_compared(tmp_path: Path) -> None:
    text = ok("export", RUN, "--format", "pt2", cwd=tmp_path)
    assert text.splitlines()[0] == "Wrote policy.pt2 (step 31)"
    assert "inputs: observation float32[batch, 3]; outputs: action float32[batch, 1]" in text
    assert "same actions as predict for 1,000 random observations and 20 of an episode" in text
    done = cli("export", RUN, "--out", "policy.pt2", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr == (
        "Error: policy.pt2 already exists: choose another name, or replace it with --force "
        "(overwrite=True).\n"
    )
    assert "Wrote" in ok("export", RUN, "--out", "policy.pt2", "--force", cwd=tmp_path)


def test_standalone_export_as_json(tmp_path: Path) -> None:
    result = only_json("export", RUN, "--standalone", cwd=tmp_path)
    assert result["files"] == ["policy.onnx", "policy.json", "policy.py"]
    assert {path.name for path in tmp_path.iterdir()} == set(result["files"])
    assert result["parity"]["largest_difference"] < 1e-5


def test_weights_of_the_best_checkpoint(tmp_path: Path) -> None:
    text = ok("export", RUN, "--best", "--out", "weights.safetensors", cwd=tmp_path)
    assert text.startswith("Wrote weights.safetensors (step 20): ")


def test_run_without_environment_says_so(tmp_path: Path) -> None:
    text = ok("export", RUN.replace("sac", "bc"), "--format", "pt2", cwd=tmp_path)
    assert text.endswith("no episode was played: the run has no environment\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("nothing",), "The run or checkpoint 'nothing' does not exist."),
        ((RUN, "--format", "keras"), "format = 'keras': should be one of onnx, pt2, safetensors."),
        ((RUN, "--out", "."), ". is a folder: pass the name of a file."),
        ((RUN, "--out", "a/b.onnx"), "out = 'a/b.onnx': the folder 'a' does not exist."),
        ((RUN, "--format", "pt2", "--standalone"), "A standalone policy requires the format onnx"),
    ],
)
def test_mistakes_are_one_sentence(
    arguments: tuple[str, ...], message: str, tmp_path: Path
) -> None:
    done = cli("export", *arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith(f"Error: {message}")
    assert done.stderr.count("\n") == 1
    assert not list(tmp_path.iterdir())
