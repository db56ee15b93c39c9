"""`study run` and `study status` on the command line."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from rl_training.boundary.yaml_codec import dump_yaml
from rl_training.cli.study import continue_command
from rl_training.cli.study_arguments import default_folder, parse_study_arguments
from rl_training.errors import ConfigError
from rl_training.study.index import StudyIndex
from rl_training.study.study import StudyResult
from tests.cli.test_cli import cli, ok, only_json
from tests.faults.runs import CONFIG
from tests.faults.zygote import shared_zygote
from tests.study.simulated import ended, group, header, simulate_study, started, write_index
from tests.study.small import write_study

SMALL = [
    *("total_timesteps=60", "hidden_sizes=[16,16]", "batch_size=16", "learning_starts=30"),
    *("buffer_capacity=1000", "eval_episodes=1", "eval_interval=30", "tensorboard=false"),
]


# --- Arguments ------------------------------------------------------------------


def test_configs_and_settings() -> None:
    words = ["sac/pendulum", "td3/pendulum", "total_timesteps=20000", "tags=[a, b]"]
    study = parse_study_arguments(words, seeds="0,7", threads=2, retries=0)
    assert study.description is not None
    assert [entry.config for entry in study.description.runs] == ["sac/pendulum", "td3/pendulum"]
    assert study.description.set == {"total_timesteps": 20_000, "tags": ["a", "b"]}
    assert study.description.seeds == (0, 7)
    assert (study.description.threads, study.description.retries) == (2, 0)


def test_a_study_file_can_be_changed(tmp_path: Path) -> None:
    file = str(write_study(tmp_path / "mine.yaml", settings={"gamma": 0.9}))
    study = parse_study_arguments([file, "tau=0.5"], seeds="3")
    assert study.description is not None
    assert study.description.set == {"gamma": 0.9, "tau": 0.5}
    assert study.description.seeds == (0, 1, 2)
    assert default_folder(study) == Path("studies/mine")


def test_a_config_file_is_not_a_study(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(dump_yaml(CONFIG))
    study = parse_study_arguments([str(file)])
    assert study.description is not None
    assert study.description.runs[0].config == str(file)


def test_wrong_arguments_are_one_sentence(tmp_path: Path) -> None:
    runs = [{"config": CONFIG, "set": {"gamma": 0.5}, "seeds": 1}]
    file = tmp_path / "s.yaml"
    file.write_text(dump_yaml({"runs": runs, "grid": {"tau": [0.1]}}))
    folder = str(simulate_study(tmp_path / "study"))
    cases: dict[str, tuple[list[str], dict[str, str]]] = {
        "Pass configs": ([], {}),
        "write key=value": (["=3"], {}),
        "sets gamma as well": ([str(file), "gamma=0.9"], {}),
        "sets tau as well": ([str(file), "tau=0.9"], {}),
        "has seeds of its own": ([str(file)], {"seeds": "3"}),
        "cannot be combined with 'sac/pendulum'": ([str(file), "sac/pendulum"], {}),
        "gamma: the runs in the folder": ([folder, "gamma=0.9"], {}),
        "--seeds: the runs in the folder": ([folder], {"seeds": "9"}),
        "--seeds = 'many'": (["sac/pendulum"], {"seeds": "many"}),
        "cannot contain seed: use seeds": (["sac/pendulum", "seed=1"], {}),
    }
    for message, (words, options) in cases.items():
        with pytest.raises(ConfigError) as caught:
            parse_study_arguments(words, seeds=options.get("seeds"))
        assert message in str(caught.value)
    with pytest.raises(ConfigError, match="Pass a folder for the study: --out FOLDER"):
        default_folder(parse_study_arguments(["sac/pendulum"]))


# --- Commands -------------------------------------------------------------------


def test_a_study_from_one_command(tmp_path: Path) -> None:
    words = ["study", "run", "sac/pendulum", "td3/pendulum", "--seeds", "1", "--out", "s", *SMALL]
    done = cli(*words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Study s: 2 runs (2 labels, 1 task), in s" in done.stderr
    assert "[2/2] " in done.stderr
    assert done.stdout.startswith("2 of 2 runs finished")
    assert "rl-training study status s" in done.stdout
    status = ok("study", "status", "s", cwd=tmp_path).splitlines()
    assert status[0].split()[:4] == ["label", "task", "planned", "running"]
    assert status[1].split()[:5] == ["sac", "Pendulum-v1", "–", "–", "1"]
    rows = only_json("study", "status", "s", cwd=tmp_path)["runs"]
    assert [row["status"] for row in rows] == ["finished"] * 2
    assert rows[1]["run"] == "td3/Pendulum-v1/seed0"
    again = only_json("study", "run", "s", cwd=tmp_path)
    assert (again["finished"], again["failed"], again["failures"]) == (2, 0, [])
    (first, _) = StudyIndex.open(tmp_path / "s").sessions
    assert first.command == ["rl-training", *words]
    (tmp_path / "s").rename(tmp_path / "moved")
    rows = only_json("study", "status", "moved", cwd=tmp_path)["runs"]
    assert rows[0]["path"] == "moved/runs/sac/Pendulum-v1/seed0"
    (tmp_path / "moved").rename(tmp_path / "s")
    wrong = cli(*words, "gamma=0.5", cwd=tmp_path)
    assert wrong.returncode == 2
    assert "results of different settings never share a label" in wrong.stderr


def test_ctrl_c_saves_and_prints_how_to_continue(tmp_path: Path) -> None:
    settings = {"total_timesteps": 1_000_000, "engine": "eager"}
    file = write_study(tmp_path / "mine.yaml", algos=("sac",), seeds=2, settings=settings)
    child = shared_zygote().start("study", "run", file, "--out", "s", cwd=tmp_path)
    child.wait_for_line("Study mine: 2 runs")
    # Hidden folders are not looked into: a run gets its final name while this loop runs.
    while not list((tmp_path / "s" / "runs").glob("*/*/seed*/checkpoints/step_000000100")):
        assert child.is_running()
    running = only_json("study", "status", "s", cwd=tmp_path)["runs"]
    assert running[0]["status"] == "running"
    assert "Running: sac/Pendulum-v1/seed0  step" in ok("study", "status", "s", cwd=tmp_path)
    refused = cli("study", "run", "s", cwd=tmp_path)
    assert refused.returncode == 2
    assert "is being run by another process" in refused.stderr
    os.kill(child.pid, signal.SIGINT)
    done = child.wait()
    assert done.status == 130, done.err
    assert "Interrupted. Continue with: rl-training study run s" in done.out
    assert "Traceback" not in done.err
    assert {run.status.value for run in StudyIndex.open(tmp_path / "s")} == {"interrupted"}


def test_dry_run_writes_nothing(tmp_path: Path) -> None:
    words = ["study", "run", "sac/pendulum", "--seeds", "3", "--dry-run", "--out", "s", *SMALL]
    lines = ok(*words, cwd=tmp_path).splitlines()
    assert lines[0].split()[:4] == ["label", "task", "seeds", "to"]
    assert lines[1].split()[:4] == ["sac", "Pendulum-v1", "3", "3"]
    assert lines[-1].startswith("3 runs to train, ")
    assert list(tmp_path.iterdir()) == []


def test_dry_run_on_a_machine_where_no_run_fits(tmp_path: Path) -> None:
    words = ["study", "run", "sac/pendulum", "--seeds", "3", "--dry-run", "--memory", "1KB", *SMALL]
    *_, problem, total = ok(*words, cwd=tmp_path).splitlines()
    assert problem.startswith("Note: A run of sac needs")
    assert total.startswith("3 runs to train: an unknown time, about ")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["study", "run", "sac/pendulm", "--out", "s"], "did you mean 'sac/pendulum'?"),
        (["study", "run", "sac/pendulum"], "Pass a folder for the study: --out FOLDER."),
        (["study", "run", "none.yaml"], "'none.yaml'"),
        (["study", "run", "none"], "'none' is not a packaged config, a file or the folder of"),
        (["study", "run", "sac/pendulum", "--out", "s", "gama=1"], "set.gama: Unknown key 'gama'"),
        (["study", "run", "sac/pendulum", "--out", "s", "--shard", "3"], "such as 3/16"),
        (["study", "status", "none"], "is not a folder with an index.jsonl"),
        (["study", "status", "."], "is not a study: it has no index.jsonl"),
    ],
)
def test_bad_input_is_one_line(words: list[str], message: str, tmp_path: Path) -> None:
    done = cli(*words, cwd=tmp_path)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("Error: ")
    assert message in line
    assert list(tmp_path.iterdir()) == []


def test_status_lists_failures(tmp_path: Path) -> None:
    keys = [f"sac/Pendulum-v1/seed{seed}" for seed in (0, 1)]
    bad = [started(keys[0]), ended(keys[0], status="failed", reason="because\x1b[31m")]
    write_index(tmp_path, [header(), group(), *bad, started(keys[1])])
    (tmp_path / "index.jsonl").open("ab").write(b'{"torn')
    done = cli("study", "status", str(tmp_path), cwd=tmp_path)
    assert done.returncode == 0
    assert r"Failed: sac/Pendulum-v1/seed0 (1 attempt): because\x1b[31m" in done.stdout
    assert "1 damaged line of the index skipped" in done.stderr


def test_continuing_repeats_what_a_file_must_not_choose(tmp_path: Path) -> None:
    def command(imports: list[str], **changes: object) -> str:
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        config = CONFIG | changes
        write_index(folder, [header(), group(config=config)])
        result = StudyResult(folder, "x", list(StudyIndex.open(folder)), 1.0)
        words = ["rl-training", "study", "run", "my.yaml", "--retry-failed"]
        return continue_command(result, words, imports).replace(str(folder), "S")

    assert command([]) == "rl-training study run S"
    assert command(["mine"]) == "rl-training --import mine study run S"
    robot = command([], env_id="FetchReach-v4", algo="her")
    assert robot == "rl-training --import gymnasium_robotics study run S"
    file = command([], env_kwargs={"xml_file": "mine.xml"})
    assert file == "rl-training study run my.yaml"


def test_help_shows_every_option() -> None:
    text = ok("study", "run", "--help", cwd=Path.cwd())
    for option in ("--out", "--seeds", "--shard", "--retry-failed", "--dry-run", "--cores"):
        assert option in text
