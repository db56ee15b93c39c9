"""The command line: one run in a new process, the other commands in forked processes."""

from __future__ import annotations

import importlib.util
import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.faults.zygote import ENVIRONMENT, shared_zygote

SMALL = [
    "hidden_sizes=[16,16]",
    "batch_size=16",
    "learning_starts=30",
    "buffer_capacity=5000",
    "total_timesteps=120",
    "checkpoint_interval=50",
    "log_interval=20",
    "eval_interval=60",
    "eval_episodes=1",
    "num_threads=1",
]


def new_process(*command: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run a command in a new process, which takes seconds; `cli` takes a tenth of a second."""
    return subprocess.run(
        command, capture_output=True, text=True, cwd=cwd, timeout=120, check=False, env=ENVIRONMENT
    )


def cli(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run ``rl-training ARGUMENTS`` in a forked process."""
    done = shared_zygote().run(*arguments, cwd=cwd)
    return subprocess.CompletedProcess(arguments, done.status, done.out, done.err)


def ok(*arguments: str, cwd: Path) -> str:
    done = cli(*arguments, cwd=cwd)
    assert done.returncode == 0, done.stderr
    return done.stdout


def only_json(*arguments: str, cwd: Path) -> Any:
    """Return the JSON object that must be the only text on standard output."""
    return json.loads(ok(*arguments, "--json", cwd=cwd))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Create a finished run in a new process, as users do."""
    folder = tmp_path_factory.mktemp("cli")
    program = (sys.executable, "-m", "rl_training")
    done = new_process(*program, "train", "-c", "sac/pendulum", *SMALL, "--json", cwd=folder)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert set(result) == {
        "run_dir",
        "checkpoint_path",
        "best_checkpoint_path",
        "stop_reason",
        "metrics",
    }
    assert result["stop_reason"] == "completed"
    return folder / str(result["run_dir"])


def test_train_prints_the_result_and_next_commands(tmp_path: Path) -> None:
    done = cli("train", "-c", "sac/pendulum", *SMALL, "total_timesteps=60", cwd=tmp_path)
    assert done.returncode == 0
    for text in ("Evaluation return", "runs/sac_Pendulum-v1_seed0", "rl-training resume"):
        assert text in done.stdout
    for text in ("  batch_size  ", "1 thread", "steps/s"):
        assert text in done.stderr
    again = ok("train", "-c", "sac/pendulum", *SMALL, "total_timesteps=60", cwd=tmp_path)
    assert "runs/sac_Pendulum-v1_seed0_2" in again


def test_run_folder_contents(run: Path) -> None:
    names = {path.name for path in run.iterdir()}
    assert names >= {"config.yaml", "metrics.jsonl", "run.json", "tensorboard", "replay"}
    assert list((run / "tensorboard").iterdir())
    assert (run / "checkpoints" / "last").read_text() == "step_000000120\n"


def test_evaluate(run: Path) -> None:
    arguments = ("evaluate", str(run), "--episodes", "3", "--seed", "5")
    first = only_json(*arguments, cwd=run)
    assert first == only_json(*arguments, cwd=run)
    assert first["eval_episodes"] == 3
    low, high = first["eval_return_ci95"]
    assert low <= first["eval_return_mean"] <= high
    assert {"eval_return_std", "eval_length_mean"} <= set(first)
    assert np.mean(first["eval_returns"]) == pytest.approx(first["eval_return_mean"])
    assert "95% interval" in ok("evaluate", str(run), "--best", "--episodes", "2", cwd=run)
    one = only_json("evaluate", str(run), "--episodes", "1", "--seed", "6", cwd=run)
    assert one["eval_return_ci95"] is None
    assert one["eval_returns"] == first["eval_returns"][1:2]  # episode i starts from seed + i
    assert "interval" not in ok("evaluate", str(run), "--episodes", "1", cwd=run)
    assert "eval_returns" not in (run / "metrics.jsonl").read_text()


def test_predict_single_observation_and_batch(run: Path, tmp_path: Path) -> None:
    obs = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)
    np.save(tmp_path / "batch.npy", obs)
    np.save(tmp_path / "one.npy", obs[0])
    ok("predict", str(run), "--obs", "batch.npy", "--out", "actions.npy", cwd=tmp_path)
    actions = np.load(tmp_path / "actions.npy")
    assert actions.shape == (4, 1)
    assert np.abs(actions).max() <= 2  # Pendulum's action bounds
    one = only_json("predict", str(run), "--obs", "one.npy", cwd=tmp_path)["actions"]
    np.testing.assert_allclose(one, actions[0], rtol=1e-4)


def test_lists(run: Path) -> None:
    assert "sac" in ok("algorithms", cwd=run)
    listed = only_json("algorithms", cwd=run)["algorithms"]
    assert "sac" in [entry["name"] for entry in listed]
    assert "sac/pendulum" in only_json("configs", cwd=run)["configs"]
    assert "env_id: Pendulum-v1" in ok("configs", "show", "sac/pendulum", cwd=run)
    (row,) = only_json("runs", str(run.parent), cwd=run)["runs"]
    assert (row["state"], row["step"], row["seed"]) == ("completed", 120, 0)
    assert (row["tags"], row["path"]) == ([], str(run))
    lines = ok("runs", str(run.parent), cwd=run).splitlines()
    assert len(lines) == 2
    assert lines[1].startswith(f"{run}  ")
    assert "completed" in lines[1]


def test_resume_of_a_finished_run_needs_more_steps(run: Path) -> None:
    done = cli("resume", str(run), cwd=run)
    assert done.returncode == 2
    assert "total_timesteps=N to more than 120" in done.stderr
    shorter = cli("resume", str(run), "total_timesteps=50", cwd=run)
    assert "total_timesteps=N to more than 120" in shorter.stderr


def test_branch_without_evaluations_prints_no_best_return(run: Path, tmp_path: Path) -> None:
    older = run / "checkpoints" / "step_000000100"
    printed = ok("resume", str(older), "eval_episodes=0", f"output_dir={tmp_path}", cwd=run)
    assert "Evaluation return" in printed
    assert "; best" not in printed


def test_resume_from_an_older_checkpoint_branches(run: Path) -> None:
    older = run / "checkpoints" / "step_000000100"
    before = {path: path.stat().st_mtime_ns for path in run.rglob("*") if path.is_file()}
    result = only_json("resume", str(older), cwd=run)
    assert Path(result["run_dir"]) != run
    after = {path: path.stat().st_mtime_ns for path in run.rglob("*") if path.is_file()}
    assert after == before
    model = "model.safetensors"
    final = run / "checkpoints" / "step_000000120" / model
    assert (Path(result["checkpoint_path"]) / model).read_bytes() == final.read_bytes()


BAD = {
    "unknown key": (["batchsize=3"], "did you mean 'batch_size'"),
    "value out of range": (["batch_size=-3"], "batch_size = -3"),
    "unknown environment": (["env_id=Pendulm-v1"], "did you mean 'Pendulum"),
    "unknown algorithm": (["algo=sca"], "did you mean 'sac'"),
    "discrete actions": (["algo=td3", "env_id=CartPole-v1"], "Discrete(2)"),
    "missing device": (["device=cuda:7"], "cuda:7"),
    "unknown device": (["device=abacus"], "use auto, cpu, cuda"),
    "output inside a file": (["output_dir=file/runs"], "cannot be written"),
    "too many environments": (["num_envs=9", "buffer_capacity=4"], "buffer_capacity = 4"),
}


@pytest.mark.parametrize(("overrides", "sentence"), BAD.values(), ids=list(BAD))
def test_bad_input_is_a_one_line_error_and_leaves_no_files(
    tmp_path: Path, overrides: list[str], sentence: str
) -> None:
    (tmp_path / "file").write_text("")
    done = cli("train", "--config", "sac/pendulum", *overrides, cwd=tmp_path)
    assert done.returncode == 2
    assert sentence in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_bad_paths_are_one_line_errors(run: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "wide.npy", np.zeros((2, 7)))
    np.save(tmp_path / "objects.npy", np.array([{}], dtype=object), allow_pickle=True)
    (tmp_path / "text.npy").write_text("hello")
    for arguments, sentence in {
        ("train", "--config", "none.yaml"): "config file 'none.yaml' does not exist",
        ("resume", "nowhere"): "does not exist",
        ("resume", str(tmp_path)): "neither a run nor a checkpoint",
        ("resume", str(run.parent)): "a folder of runs. Pass one of them",
        ("plot", str(run.parent), "--out", "a.png"): "is not a run, but a folder of runs",
        ("resume", str(run), "total_timesteps=500", "hidden_sizes=[8]"): "contradicts",
        ("evaluate", "nowhere"): "does not exist",
        ("evaluate", str(run), "--episodes", "0"): "at least 1",
        ("predict", str(run), "--obs", "none.npy"): "'none.npy' does not exist",
        ("predict", str(run), "--obs", "wide.npy"): "[batch, 3]",
        ("predict", str(run), "--obs", "text.npy"): "not a plain .npy",
        ("predict", str(run), "--obs", "objects.npy"): "not a plain .npy",
        ("runs", "nowhere"): "The folder 'nowhere' does not exist",
        ("configs", "show", "sac/none"): "There is no packaged config",
    }.items():
        done = cli(*arguments, cwd=tmp_path)
        assert done.returncode == 2, arguments
        assert sentence in done.stderr, (arguments, done.stderr)
        assert "Traceback" not in done.stderr
        assert len(done.stderr.strip().splitlines()) == 1, (arguments, done.stderr)


def test_debug_shows_the_traceback(tmp_path: Path) -> None:
    done = cli("--debug", "resume", "nowhere", cwd=tmp_path)
    assert done.returncode != 0
    assert "Traceback" in done.stderr


@pytest.mark.parametrize(
    "command",
    [
        *["", "train", "resume", "finetune", "evaluate", "predict", "algorithms", "plot"],
        *["configs", "configs keys", "runs", "runs delete", "data inspect"],
    ],
)
def test_help_has_an_example(tmp_path: Path, command: str) -> None:
    text = ok(*command.split(), "--help", cwd=tmp_path)
    assert "rl-training" in text
    if command:
        assert "Example" in text


def test_help_and_listing_do_not_load_torch(tmp_path: Path) -> None:
    code = (
        "import sys, rl_training, rl_training.cli, rl_training.algorithms.registry;"
        "sys.exit('torch' in sys.modules or 'gymnasium' in sys.modules)"
    )
    assert new_process(sys.executable, "-c", code, cwd=tmp_path).returncode == 0


def test_script_and_module_behave_the_same(tmp_path: Path) -> None:
    """They exit and print like the forked processes of the other tests."""
    script = str(Path(sys.executable).with_name("rl-training"))
    for arguments in (("algorithms", "--json"), ("--import", "no_such", "algorithms")):
        forked = cli(*arguments, cwd=tmp_path)
        for program in ((script,), (sys.executable, "-m", "rl_training")):
            done = new_process(*program, *arguments, cwd=tmp_path)
            assert done.returncode == forked.returncode
            assert (done.stdout, done.stderr) == (forked.stdout, forked.stderr)


def test_video(tmp_path: Path) -> None:
    pytest.importorskip("pygame")
    short = "total_timesteps=40", "eval_episodes=0", "env_kwargs={max_episode_steps: 15}"
    run = only_json("train", "-c", "sac/pendulum", *SMALL, *short, cwd=tmp_path)["run_dir"]
    ok("evaluate", run, "--episodes", "1", "--video", "film.gif", cwd=tmp_path)
    assert (tmp_path / "film.gif").read_bytes()[:6] == b"GIF89a"
    done = cli("evaluate", run, "--video", "film.xyz", cwd=tmp_path)
    assert (done.returncode, ".mp4 or .gif" in done.stderr) == (2, True)


def test_data_commands(run: Path, tmp_path: Path) -> None:
    arguments = ("data", "collect", str(run), "--steps", "230", "--noise", "0.2", "--seed", "4")
    for name in ("one.npz", "two.npz"):
        ok(*arguments, "--out", name, cwd=tmp_path)
    first, second = np.load(tmp_path / "one.npz"), np.load(tmp_path / "two.npz")
    assert all(np.array_equal(first[key], second[key]) for key in first.files)
    assert first["timeouts"].nonzero()[0].tolist() == [199, 229]
    assert np.abs(first["actions"]).max() <= 2
    report = only_json("data", "inspect", "one.npz", cwd=tmp_path)
    assert (report["rows"], report["episodes"], report["discontinuities"]) == (230, 2, 0)
    assert "Valid" in ok("data", "validate", "one.npz", "--env-id", "Pendulum-v1", cwd=tmp_path)
    wrong = cli("data", "validate", "one.npz", "--env-id", "MountainCarContinuous-v0", cwd=tmp_path)
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert "use data from the same environment" in wrong.stderr
    assert only_json("data", "inspect", str(run), cwd=tmp_path)["rows"] == 120
    ok("data", "convert", str(run), "replay.npz", cwd=tmp_path)
    assert len(np.load(tmp_path / "replay.npz")["rewards"]) == 120
    (tmp_path / "one.csv").touch()
    for bad, sentence in {
        ("inspect", "none.npz"): "no dataset file",
        ("inspect", "one.csv"): "must end in",
        ("inspect", str(tmp_path)): "neither a run nor a checkpoint",
        ("validate", "one.npz"): "set --env-id",
        ("convert", "one.npz", "two.npz"): "already exists",
        ("convert", "one.npz", "three.csv"): "must end in",
        ("collect", str(run), "--steps", "9"): "either --out",
        ("collect", "nowhere", "--steps", "9", "--out", "x.npz"): "does not exist",
        ("collect", str(run), "--steps", "9", "--seed", "-1", "--out", "x.npz"): "seed = -1",
    }.items():
        done = cli("data", *bad, cwd=tmp_path)
        assert (done.returncode, sentence in done.stderr) == (2, True), (bad, done.stderr)
        assert len(done.stderr.strip().splitlines()) == 1


MODULE = """
import gymnasium
from gymnasium.envs.classic_control import PendulumEnv
open("imported", "a").write("x")
gymnasium.register("Mine-v0", entry_point=PendulumEnv, max_episode_steps=40)
"""


def test_run_without_an_environment(recorded: Path, tmp_path: Path) -> None:
    """Suggested commands, listings and estimates refer to the data instead of episodes."""
    keys = {"action_low": -2.0, "action_high": 2.0, "num_epochs": 1, "hidden_sizes": [16]}
    keys |= {"dataset_kind": "npz", "dataset_path": str(recorded), "num_threads": 1}
    (tmp_path / "alone.yaml").write_text(json.dumps({"algo": "bc", "algo_kwargs": keys}))
    done = cli("train", "-c", "alone.yaml", cwd=tmp_path)
    printed = done.stdout
    assert (done.returncode, "Warning" in done.stderr) == (0, False), done.stderr
    assert "rl-training evaluate runs/bc_data_seed0 --fqe" in printed
    assert "Held-out loss" in printed
    assert re.search(r"loss 0\.\d+ .* completed", ok("runs", cwd=tmp_path))
    arguments = ("evaluate", "runs/bc_data_seed0", "--fqe", "--fqe-updates", "20")
    done = cli(*arguments, cwd=tmp_path)
    printed = done.stdout
    assert (done.returncode, done.stderr) == (0, "")
    assert re.match(r"Step 2, 20 updates on .*pendulum.npz: value -\d+\.\d\d ± ", printed)
    assert "discount 0.99" in printed
    assert f"{only_json(*arguments, cwd=tmp_path)['fqe_value']:.2f} ±" in printed
    for extra, sentence in {
        ("--video", "x.mp4"): "so no video can be recorded",
        ("--seed", "-1"): "seed = -1: should be at least 0",
    }.items():
        done = cli("evaluate", "runs/bc_data_seed0", *extra, cwd=tmp_path)
        assert (done.returncode, sentence in done.stderr) == (2, True), done.stderr
    stopping = "early_stopping={metric: eval_loss, mode: min, target_value: 1.0e+9}"
    longer = "eval_interval=1", "num_epochs=3"
    printed = ok("train", "-c", "alone.yaml", stopping, *longer, cwd=tmp_path)
    assert "rl-training resume runs/bc_data_seed0_2 early_stopping=null" in printed


def test_custom_environments_are_imported_only_with_import_option(tmp_path: Path) -> None:
    (tmp_path / "my_envs.py").write_text(MODULE)
    train = ["train", "-c", "sac/pendulum", *SMALL, "total_timesteps=60"]
    refused = cli(*train, "env_id=my_envs:Mine-v0", cwd=tmp_path)
    assert (refused.returncode, "--import my_envs" in refused.stderr) == (2, True)
    missing = cli("--import", "no_such", *train, cwd=tmp_path)
    assert (missing.returncode, "no_such" in missing.stderr) == (2, True)
    assert not (tmp_path / "imported").exists()
    printed = ok("--import", "my_envs", *train, "env_id=Mine-v0", cwd=tmp_path)
    suggested = [line for line in printed.splitlines() if line.startswith("  rl-training ")]
    assert all("--import my_envs " in line for line in suggested[:-1])  # all but `runs`
    assert any("data collect runs/sac_Mine-v0_seed0 --steps" in line for line in suggested)
    assert "  tensorboard --logdir runs/sac_Mine-v0_seed0" in printed or not extra("tensorboard")
    assert (tmp_path / "imported").exists()
    run_dir = "runs/sac_Mine-v0_seed0"
    assert cli("evaluate", run_dir, "--episodes", "1", cwd=tmp_path).returncode == 2
    ok("--import", "my_envs", "evaluate", run_dir, "--episodes", "1", cwd=tmp_path)


def extra(command: str) -> bool:
    """Return whether a command's optional dependency is installed."""
    module = {"plot": "matplotlib", "evaluate": "imageio"}.get(command, command)
    return importlib.util.find_spec(module) is not None


def test_printed_commands_can_be_pasted(run: Path, tmp_path: Path) -> None:
    copy = tmp_path / "my folder" / "my run's é"
    shutil.copytree(run, copy)
    printed = ok("resume", str(copy), "total_timesteps=121", cwd=tmp_path)
    lines = [line for line in printed.splitlines() if line.startswith("  rl-training ")]
    commands = [shlex.split(line)[1:] for line in lines]
    assert [words[:2] for words in commands if words[0] != "data"] == [
        ["evaluate", str(copy)],
        *[[name, str(copy)] for name in ("plot", "evaluate") if extra(name)],
        ["resume", str(copy)],
        ["runs", str(copy.parent)],
    ]


def test_checkpoint_is_found_from_inside_its_run(run: Path) -> None:
    checkpoints = run / "checkpoints"
    ok("evaluate", "step_000000120", "--episodes", "1", cwd=checkpoints)
    done = cli("resume", "step_000000120", cwd=checkpoints)
    assert (done.returncode, "finished at step 120" in done.stderr) == (2, True)
