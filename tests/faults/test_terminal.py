"""Terminals, pipes and unusual names: no traceback and no control characters."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import unicodedata
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import yaml
from safetensors.torch import load_file, save

from rl_training.api.plots import plot_runs
from rl_training.api.video import record
from rl_training.errors import ConfigError
from tests.faults.conftest import Reference
from tests.faults.noisy import NOISY
from tests.faults.runs import RUN_NAME, copy_run, flip_byte, forge, newest, write_config
from tests.faults.zygote import ENVIRONMENT, Outcome, Zygote

EVIL = "\x1b[2J[red]x[/]\u202e\u2028[/]\x9b\x07\r:smile:"
"""Escape sequences, a change of direction, a line separator, rich's markup and an emoji code."""

TINY = {"total_timesteps": 40, "checkpoint_interval": 20, "eval_interval": 0, "eval_episodes": 0}


def state_of(run_dir: Path) -> Any:
    return json.loads((run_dir / "run.json").read_text())["state"]


def is_plain(text: str) -> bool:
    """Return whether text contains no terminal control sequences."""
    unsafe = {"Cc", "Cf", "Cs", "Zl", "Zp"}
    return not [char for char in text if char != "\n" and unicodedata.category(char) in unsafe]


# --- Names with markup or control sequences ----------------------------------------


@pytest.mark.parametrize("name", ["exp[/2]", "[red]x[/]", ":smile:"])
def test_markup_in_a_path_is_printed_literally(zygote: Zygote, tmp_path: Path, name: str) -> None:
    folder = tmp_path / name
    folder.mkdir(parents=True)
    done = zygote.run("train", "-c", write_config(folder, **TINY))
    assert done.status == 0, done.err
    assert f"Run folder: {folder}" in done.out
    assert f"Run folder: {folder}" in done.err
    listed = zygote.run("runs", tmp_path)
    assert listed.status == 0, listed.err
    assert f"{name}/{RUN_NAME}" in listed.out


@pytest.mark.parametrize("name", [EVIL, "two\nlines"])
def test_control_characters_in_a_path_are_escaped(
    zygote: Zygote, interrupted: Path, tmp_path: Path, name: str
) -> None:
    """A config refuses such a folder, but a run can be moved there."""
    folder = tmp_path / name
    folder.mkdir(parents=True)
    run_dir = copy_run(interrupted, folder)
    flip_byte(newest(run_dir) / "model.safetensors")
    done, listed = zygote.run("resume", run_dir), zygote.run("runs", tmp_path)
    assert (done.status, listed.status) == (0, 0), (done.err, listed.err)
    escaped = str(run_dir).encode("unicode_escape").decode()
    assert f"Run folder: {escaped}\n" in done.out
    assert f"Run folder: {escaped}\n" in done.err
    shown = escaped.replace(r"\n", " ")  # a message is one line
    assert [line for line in done.err.splitlines() if line.startswith(f"Warning: {shown}")]
    assert name.encode("unicode_escape").decode() in listed.out
    refused = zygote.run("evaluate", run_dir / "none")
    assert escaped in refused.error_line()
    for outcome in (done, listed, refused):
        assert is_plain(outcome.out)
        assert is_plain(outcome.err)


def test_run_metadata_is_printed_as_plain_text(
    zygote: Zygote, reference: Reference, tmp_path: Path
) -> None:
    run_dir = copy_run(reference.run_dir, tmp_path)
    info = json.loads((run_dir / "run.json").read_text())
    (run_dir / "run.json").write_text(json.dumps(info | {"state": EVIL}))
    config = yaml.safe_load((run_dir / "config.yaml").read_text())
    (run_dir / "config.yaml").write_text(yaml.safe_dump(config | {"env_id": "[red]x[/][/]"}))
    listed = zygote.run("runs", tmp_path)
    assert listed.status == 0, listed.err
    assert " [red]x[/][/] " in listed.out
    assert r" \x1b[2J[red]x[/]\u202e\u2028[/]\x9b\x07\r:smile:" in listed.out
    assert is_plain(listed.out)


# --- Broken streams --------------------------------------------------

STREAMS: dict[str, tuple[dict[str, str], int]] = {
    "both readers are closed": ({"out": "broken", "err": "broken"}, 141),
    "the reader of standard output is closed": ({"out": "broken"}, 141),
    "standard error is full": ({"err": "full"}, 0),
    "standard error is closed": ({"err": "closed"}, 0),
    "standard output is full": ({"out": "full"}, 1),
    "standard output is closed": ({"out": "closed"}, 0),
    "both are closed": ({"out": "closed", "err": "closed"}, 0),
    "both are full": ({"out": "full", "err": "full"}, 1),
    "both support only ASCII": ({"out": "ascii", "err": "ascii"}, 0),
}


@pytest.mark.parametrize("as_json", [[], ["--json"]], ids=["text", "json"])
@pytest.mark.parametrize(("streams", "status"), STREAMS.values(), ids=list(STREAMS))
def test_training_continues_without_a_display(
    zygote: Zygote, tmp_path: Path, streams: dict[str, str], status: int, as_json: list[str]
) -> None:
    folder = tmp_path / "é"
    folder.mkdir()
    noisy = write_config(folder, **TINY, env_id=NOISY)
    done = zygote.run(
        "--import", "tests.faults.noisy", "train", "-c", noisy, *as_json, streams=streams
    )
    assert done.status == status, done.err
    (run_dir,) = (path for path in folder.iterdir() if path.is_dir())
    assert state_of(run_dir) == "completed"
    assert newest(run_dir).name == "step_000000040"
    assert "Traceback" not in done.err
    if streams == {"out": "full"}:
        assert "Standard output could not be written: No space left on device." in done.error_line()


def test_workers_that_print_continue_without_a_reader(zygote: Zygote, tmp_path: Path) -> None:
    workers = {"num_envs": 2, "env_kwargs": {"vectorization": "async"}}
    config = write_config(tmp_path, **TINY, **workers, env_id=NOISY)
    broken = {"out": "broken", "err": "broken"}
    done = zygote.run("--import", "tests.faults.noisy", "train", "-c", config, streams=broken)
    assert done.status == 141, done.err
    (run_dir,) = (path for path in tmp_path.iterdir() if path.is_dir())
    assert state_of(run_dir) == "completed"


@pytest.mark.parametrize(
    "command", ["runs {} | head -1", "algorithms | head -1", "--help | head -1"]
)
@pytest.mark.parametrize("streams", [{"out": "broken"}, {"out": "closed"}, {"out": "ascii"}])
def test_reading_commands_exit_quietly(
    zygote: Zygote, reference: Reference, command: str, streams: dict[str, str]
) -> None:
    words = command.removesuffix(" | head -1").format(reference.run_dir.parent).split()
    done = zygote.run(*words, streams=streams)
    assert done.err == ""
    assert done.status == (141 if streams == {"out": "broken"} else 0)
    assert done.out.isascii()
    assert bool(done.out) == (streams == {"out": "ascii"})


def shell(line: str) -> subprocess.CompletedProcess[str]:
    """Run a line in bash, in which $RL is the command line."""
    program = f"{sys.executable} -m rl_training"
    return subprocess.run(
        ["bash", "-c", line.replace("$RL", program)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env=ENVIRONMENT,
    )


def test_streams_closed_by_a_shell() -> None:
    done = shell("$RL algorithms 2>&- >&-; echo $?; $RL --import '' runs 2>/dev/full; echo $?")
    assert (done.stdout, done.stderr) == ("0\n2\n", "")
    done = shell("$RL --help 2>&1 | head -1; echo ${PIPESTATUS[0]}")
    assert done.stdout.split() in (["141"], ["0"])  # head may still be running
    assert done.stderr == ""


# --- Standard output contains only the result ----------------------------------


def one_object(done: Outcome) -> Any:
    assert "Traceback" not in done.err, done.err
    for noise in ("import printed", "step written to the descriptor", "reset by a child process"):
        assert noise in done.err
    assert done.out.count("\n") == 1
    return json.loads(done.out)


def test_only_json_on_standard_output(zygote: Zygote, tmp_path: Path) -> None:
    config = write_config(tmp_path, **TINY, env_id=NOISY)
    noisy = ("--import", "tests.faults.noisy")
    done = zygote.run(*noisy, "train", "-c", config, "--json")
    assert done.status == 0, done.err
    run_dir = one_object(done)["run_dir"]
    done = zygote.run(*noisy, "evaluate", run_dir, "--episodes", "1", "--json")
    assert one_object(done)["eval_episodes"] == 1
    loud = zygote.run(*noisy, "evaluate", run_dir, "--episodes", "1")
    assert "step written to the descriptor" in loud.out  # as without --json


def test_json_of_an_interrupted_training(
    zygote: Zygote, reference: Reference, tmp_path: Path
) -> None:
    at = next(n for n, event in enumerate(reference.events) if "step_000000050" in event.path)
    config = write_config(tmp_path, env_id=NOISY)
    arguments = ("--import", "tests.faults.noisy", "train", "-c", config, "--json")
    done = zygote.run(*arguments, watch=tmp_path, at=at, action="SIGTERM")
    assert done.status == 143, done.err
    assert one_object(done)["stop_reason"] == "signal: SIGTERM"


def test_error_leaves_standard_output_empty(zygote: Zygote) -> None:
    done = zygote.run("--import", "tests.faults.noisy", "resume", "nowhere", "--json")
    assert (done.status, done.out) == (2, "")
    assert "The run or checkpoint 'nowhere' does not exist" in done.error_line()


# --- Modules ------------------------------------------------------------------

MODULES = {
    "": "should be the name of a module",
    ".x": "should be the name of a module",
    "a b": "should be the name of a module",
    "os:system": "should be the name of a module",
    "a\0b": r"'a\x00b': should be the name of a module",
    "no_such": "No module named 'no_such'",
    "raises": "failed with ValueError: boom with two lines",
    "exits": "failed with SystemExit: 0",
    "is_not_python": "failed with SyntaxError",
}


@pytest.mark.parametrize(("module", "sentence"), MODULES.items())
def test_failed_import_is_one_sentence(
    zygote: Zygote, tmp_path: Path, module: str, sentence: str
) -> None:
    (tmp_path / "raises.py").write_text("raise ValueError('boom\\nwith two lines')")
    (tmp_path / "exits.py").write_text("import sys; sys.exit(0)")
    (tmp_path / "is_not_python.py").write_text("(")
    done = zygote.run("--import", module, "algorithms", cwd=tmp_path)
    assert done.status == 2, done.err
    assert sentence in done.error_line()
    assert (done.out, done.err.count("\n")) == ("", 1)


@pytest.fixture
def planted(tmp_path: Path, reference: Reference) -> Path:
    """Create a folder with a run and modules that report their import."""
    copy_run(reference.run_dir, tmp_path)
    for name in ("gymnasium_robotics", "minari", "yaml", "h5py", "rich", "torch", "typer", "mine"):
        (tmp_path / f"{name}.py").write_text(f"open('imported', 'a').write('{name} ')")
    return tmp_path


def start_in(folder: Path, *words: str, **environment: str) -> str:
    """Return the modules of ``folder`` that ``python -m rl_training WORDS`` imports."""
    subprocess.run(
        [sys.executable, "-m", "rl_training", *words],
        cwd=folder,
        env=ENVIRONMENT | environment,
        capture_output=True,
        check=False,
        timeout=120,
    )
    file = folder / "imported"
    return file.read_text() if file.exists() else ""


def test_modules_of_the_current_folder_are_not_imported(planted: Path) -> None:
    assert start_in(planted, "evaluate", RUN_NAME, "--episodes", "1") == ""


def test_requested_modules_are_imported(planted: Path) -> None:
    assert start_in(planted, "--import", "mine", "algorithms") == "mine "
    path = os.pathsep.join([str(planted), ENVIRONMENT.get("PYTHONPATH", "")])
    (planted / "imported").unlink()
    assert start_in(planted, "algorithms", PYTHONPATH=path).startswith("typer")
    (planted / "imported").unlink()
    assert start_in(planted, "algorithms", PYTHONPATH=path, PYTHONSAFEPATH="1").startswith("typer")


# --- Paths and files ----------------------------------------------------------

LONG = "x" * 5_000
PATHS = [
    ["train", "-c", "{}"],
    ["resume", "{}"],
    ["finetune", "{}"],
    ["evaluate", "{}"],
    ["evaluate", "RUN", "--video", "{}.mp4"],
    ["evaluate", "RUN", "--fqe", "--dataset", "{}"],
    ["predict", "{}", "--obs", "obs.npy"],
    ["predict", "RUN", "--obs", "{}"],
    ["predict", "RUN", "--obs", "obs.npy", "--out", "{}"],
    ["runs", "{}"],
    ["plot", "{}", "--out", "a.png"],
    ["plot", "RUN", "--out", "{}.png"],
    ["data", "inspect", "{}"],
    ["data", "inspect", "{}.npz"],
    ["data", "inspect", "RUN", "--plot", "{}.png"],
    ["data", "validate", "{}.npz", "--env-id", "Pendulum-v1"],
    ["data", "collect", "{}", "--steps", "9", "--out", "a.npz"],
    ["data", "collect", "RUN", "--steps", "9", "--out", "{}.npz"],
    ["data", "convert", "{}", "a.npz"],
    ["data", "convert", "RUN", "{}.npz"],
    ["configs", "show", "{}"],
]


@pytest.mark.parametrize("name", ["a\0b", LONG], ids=["null byte", "too long"])
@pytest.mark.parametrize("words", PATHS, ids=" ".join)
def test_invalid_file_name_is_one_sentence(
    zygote: Zygote, reference: Reference, tmp_path: Path, words: list[str], name: str
) -> None:
    np.save(tmp_path / "obs.npy", np.zeros(3))
    run = str(reference.run_dir)
    done = zygote.run(*(run if w == "RUN" else w.format(name) for w in words), cwd=tmp_path)
    assert done.status == 2, done.err
    assert done.out == ""
    assert "Traceback" not in done.err
    assert is_plain(done.err)
    if "Usage:" not in done.err:  # a null byte may be refused before the command starts
        assert (len(done.error_line()) <= 2_000, done.err.count("\n")) == (True, 1)
    assert [path.name for path in tmp_path.iterdir()] == ["obs.npy"]


@pytest.mark.parametrize("words", [["--json"], [], ["--out", "actions.npy"]])
def test_nonfinite_actions_are_reported_once(
    zygote: Zygote, reference: Reference, tmp_path: Path, words: list[str]
) -> None:
    np.save(tmp_path / "obs.npy", np.array([[1e20, -1e20, 1e20], [0, 0, 0]]))
    run_dir = copy_run(reference.run_dir, tmp_path)
    arguments = ("--obs", "obs.npy", *words)
    done = zygote.run("predict", run_dir, *arguments, cwd=tmp_path)
    assert (done.status, done.err) == (0, "")
    file = newest(run_dir) / "model.safetensors"
    tensors = {name: 1e10 * tensor for name, tensor in load_file(file).items()}
    file.write_bytes(save(tensors))  # the weights are finite, but their products are not
    forge(newest(run_dir))
    done = zygote.run("predict", run_dir, *arguments, cwd=tmp_path)
    assert done.status == 0, done.err
    assert done.err.startswith("Warning: 1 of 2 action values are not finite")
    assert done.err.count("\n") == 1


def record_video(file: Path) -> None:
    def evaluate(policy: Any, episodes: int, camera: Any) -> None:
        for shade in (0, 255):
            frame = np.full((16, 16, 3), shade, dtype=np.uint8)
            camera.capture(SimpleNamespace(render=lambda frame=frame: frame))

    env, policy = SimpleNamespace(metadata={"render_fps": 0}), cast("Any", None)
    evaluator: Any = SimpleNamespace(env=env, evaluate=evaluate)
    record(evaluator, policy, 1, file)


def draw(reference: Reference, file: Path) -> None:
    plot_runs([reference.run_dir], file)


@pytest.mark.parametrize("name", ["a.png", "a.PDF", "a.gif"])
def test_plot_is_written_atomically_and_follows_no_planted_link(
    reference: Reference, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("imageio")
    pytest.importorskip("matplotlib")
    target, file = tmp_path / "target", tmp_path / name
    target.write_text("mine")
    (tmp_path / f".tmp-{name}").symlink_to(target)

    def write() -> None:
        record_video(file) if name.endswith(".gif") else draw(reference, file)

    write()
    before = file.read_bytes()
    assert before[:4] in (b"\x89PNG", b"%PDF", b"GIF8")
    assert target.read_text() == "mine"
    assert {path.name for path in tmp_path.iterdir()} == {"target", name}

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ConfigError, match="cannot be written: No space left on device"):
        write()
    assert file.read_bytes() == before
    assert {path.name for path in tmp_path.iterdir()} == {"target", name}


def test_plot_needs_a_folder_and_a_suffix(reference: Reference, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="does not exist"):
        draw(reference, tmp_path / "none" / "a.png")
    with pytest.raises(ConfigError, match=r"must end in \.png, \.pdf, \.svg or \.jpg"):
        draw(reference, tmp_path / "a.xyz")
    with pytest.raises(ConfigError, match="does not exist"):
        record_video(tmp_path / "none" / "a.gif")


def test_dollar_signs_in_a_name_are_not_math(reference: Reference, tmp_path: Path) -> None:
    run_dir = tmp_path / r"$\frac{$"
    shutil.copytree(reference.run_dir, run_dir)
    plot_runs([run_dir], tmp_path / "a.png")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


# --- Exit codes ---------------------------------------------------------------


def test_environment_with_other_spaces_is_a_user_error(
    zygote: Zygote, reference: Reference, tmp_path: Path
) -> None:
    run = reference.run_dir
    other = zygote.run("evaluate", run, "--env-id", "MountainCarContinuous-v0")
    assert (other.status, other.out) == (2, "")
    line = other.error_line()
    assert "3 observation values and 1 action value in [-2, 2], but " in line
    assert "MountainCarContinuous-v0 has 2 observation values and 1 action value in [-1, 1]" in line
    assert "EnvSpec(" not in other.err
    discrete = zygote.run("evaluate", run, "--env-id", "CartPole-v1")
    assert (discrete.status, "2 discrete actions" in discrete.error_line()) == (2, True)
    file = tmp_path / "replay.npz"
    assert zygote.run("data", "convert", run, file).status == 0
    for more in ([], ["--json"]):
        arguments = ("validate", file, "--env-id", "MountainCarContinuous-v0")
        wrong = zygote.run("data", *arguments, *more)
        assert (wrong.status, wrong.out) == (2, "")
        assert "use data from the same environment" in wrong.error_line()
