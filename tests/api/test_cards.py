"""Model cards: metadata, contents, files, and what they do not contain."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import yaml

from rl_training import (
    SAC,
    ConfigError,
    EnvSpec,
    evaluate_checkpoint,
    model_card,
    train,
)
from rl_training.api.card_text import CardFacts, Returns, card_metadata, card_text, code, fenced
from rl_training.experiment.saved_run import SavedRun
from rl_training.generated import catalog

FIXTURES = Path(__file__).parents[1] / "fixtures" / "format_1"
RUN = FIXTURES / "sac"
Config = Callable[..., dict[str, Any]]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A copy of a run, whose last evaluation is older than its last checkpoint."""
    return shutil.copytree(RUN, tmp_path / "run")


def metadata_of(text: str) -> dict[str, Any]:
    found = re.match(r"---\n(.*?)\n---\n", text, re.S)
    assert found is not None
    metadata: dict[str, Any] = yaml.safe_load(found[1])
    return metadata


def block_of(text: str, language: str) -> str:
    found = re.search(rf"```{language}\n(.*?)\n```", text, re.S)
    assert found is not None
    return found[1]


# --- Contents -------------------------------------------------------------------


def test_the_hubs_client_reads_the_metadata(run: Path) -> None:
    """It finds the same task, environment and metric, and writes the same model index."""
    hub = pytest.importorskip("huggingface_hub")
    model_card(run, episodes=3, license="apache-2.0")
    text = (run / "README.md").read_text()
    played = evaluate_checkpoint(run, episodes=3)
    data = hub.ModelCard(text).data
    (result,) = data.eval_results
    assert (result.task_type, result.dataset_name) == ("reinforcement-learning", "Pendulum-v1")
    assert result.metric_type == "mean_reward"
    mean, std = played["eval_return_mean"], played["eval_return_std"]
    assert result.metric_value == f"{mean:.2f} +/- {std:.2f}"
    assert (data.library_name, data.license, data.model_name) == (
        "rl-training",
        "apache-2.0",
        "SAC",
    )
    assert {"reinforcement-learning", "sac", "Pendulum-v1"} <= set(data.tags)
    assert data.to_dict()["model-index"] == metadata_of(text)["model-index"]


def test_returns_have_an_interval_and_say_which_episodes_were_played(run: Path) -> None:
    result = model_card(run, episodes=5)
    played = evaluate_checkpoint(run, episodes=5)
    assert result["return_ci95"] == tuple(played["eval_return_ci95"])
    text = (run / "README.md").read_text()
    low, high = played["eval_return_ci95"]
    assert f"| 95% confidence interval of the mean | {low:,.2f} to {high:,.2f} |" in text
    assert "Returns of 5 episodes with the seeds 0 to 4, without exploration" in text


def test_settings_of_the_card_repeat_the_run(small_config: Config, tmp_path: Path) -> None:
    """The config in the card gives the same weights, bit for bit."""
    first = train(small_config(eval_episodes=1))
    model_card(first.run_dir, tmp_path / "card.md")
    text = (tmp_path / "card.md").read_text()
    config = yaml.safe_load(block_of(text, "yaml")) | {"output_dir": str(tmp_path / "again")}
    second = train(config)
    one, two = (
        (result.checkpoint_path / "model.safetensors").read_bytes() for result in (first, second)
    )
    assert one == two


def test_card_of_a_command_shows_it_with_versions_and_hardware(run: Path) -> None:
    info = {
        "command": ["rl-training", "train", "sac/pendulum", "seed=1"],
        "hardware": "A processor",
        "git": {"commit": "abc", "dirty": True},
    }
    (run / "run.json").write_text(json.dumps(info))
    model_card(run, episodes=0)
    text = (run / "README.md").read_text()
    assert block_of(text, "bash").startswith("rl-training ")
    assert "```bash\nrl-training train sac/pendulum seed=1\n```" in text
    for row in ("| Hardware | `A processor` |", "| `torch` | `2.13.0+cpu` |", "| Updates | 19 |"):
        assert row in text
    assert "| Git commit | `abc` with uncommitted changes |" in text


def test_training_records_the_hardware_for_the_card(small_config: Config) -> None:
    result = train(small_config(total_timesteps=40))
    model_card(result.run_dir, episodes=1)
    assert "| Hardware | `" in (result.run_dir / "README.md").read_text()


def test_program_of_the_card_runs(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model_card(run, episodes=0)
    program = block_of((run / "README.md").read_text(), "python")
    assert "path/to/checkpoint" in program
    program = program.replace("path/to/checkpoint", str(run)).replace("episodes=10", "episodes=1")
    names: dict[str, Any] = {"observation": np.zeros(3, dtype=np.float32)}
    exec(program, names)
    assert names["action"].shape == (1,)
    assert "eval_return_mean" in capsys.readouterr().out


def test_own_algorithm_is_loaded_without_a_managed_class(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog, "MANAGED", [])
    program = block_of(card_text(CardFacts(SavedRun.load(RUN), {})), "python")
    assert "import my_module  # registers sac" in program
    assert 'predict_checkpoint("path/to/checkpoint", observation)' in program


def test_data_is_identified_by_its_hash(tmp_path: Path) -> None:
    """A run without an environment has no returns, but a loss on held-out data."""
    file = tmp_path / "card.md"
    result = model_card(FIXTURES / "bc", file)
    text, manifest = file.read_text(), SavedRun.load(FIXTURES / "bc").manifest
    assert f"| SHA-256 | `{manifest['dataset']['sha256']}` |" in text
    assert "| Source | `pendulum.npz` |" in text
    assert "model-index" not in metadata_of(text)
    assert "Lowest loss on held-out data" in text
    assert result["return_mean"] is None
    with pytest.raises(ConfigError, match="no episodes can be played"):
        model_card(FIXTURES / "bc", tmp_path / "other.md", episodes=2)


def test_an_evaluation_of_other_weights_is_not_the_policys_return(run: Path) -> None:
    """The last checkpoint of this run was never evaluated; the best one was."""
    model_card(run, episodes=0)
    text = (run / "README.md").read_text()
    assert "model-index" not in metadata_of(text)
    assert "| Best evaluation during training | -121.06 at step 20 |" in text
    model_card(run, run / "best.md", episodes=0, best=True)
    assert "-121.06 +/- 0.00" in (run / "best.md").read_text()


def test_success_rate_is_a_metric() -> None:
    returns = Returns(-20.0, 1.0, how="10 episodes", success_rate=0.25)
    facts = CardFacts(SavedRun.load(FIXTURES / "her"), {}, returns)
    (entry,) = card_metadata(facts)["model-index"]
    metrics = entry["results"][0]["metrics"]
    assert [(item["type"], item["value"]) for item in metrics] == [
        ("mean_reward", "-20.00 +/- 1.00"),
        ("success_rate", "0.25"),
    ]
    assert "| Success rate | 25.0% |" in card_text(facts)


@pytest.mark.parametrize("name", sorted(path.name for path in FIXTURES.glob("*/")))
def test_runs_of_format_1_have_a_card(name: str) -> None:
    facts = CardFacts(SavedRun.load(FIXTURES / name), {})
    text = card_text(facts)
    assert metadata_of(text)["library_name"] == "rl-training"
    assert f"{facts.algorithm.short_name}.load(" in text


def test_spaces_are_described(tmp_path: Path) -> None:
    facts = CardFacts(SavedRun.load(FIXTURES / "dqn"), {})
    text = card_text(facts)
    assert "| Observation | `observation`: float32 of shape [4] |" in text
    assert "| Action | `action`: int64, from 0 to 1 |" in text
    vars(facts.checkpoint)["spec"] = EnvSpec(4, 2, (-1.0, -3.0), (1.0, 5.0))
    assert "float32 of shape [2], from [-1, -3] to [1, 5] |" in card_text(facts)


# --- Learning curve -------------------------------------------------------------


def test_learning_curve_is_an_image_next_to_the_card(run: Path) -> None:
    pytest.importorskip("matplotlib")
    result = model_card(run, run / "my card.md", episodes=0)
    assert result["files"] == [str(run / "my card.md"), str(run / "my card.png")]
    assert (run / "my card.png").read_bytes().startswith(b"\x89PNG")
    assert "![Evaluation return during training](my%20card.png)" in (run / "my card.md").read_text()


def test_learning_curve_is_a_table_without_matplotlib(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    result = model_card(run, episodes=0)
    assert result["files"] == [str(run / "README.md")]
    assert "pip install 'rl-training[plot]'" in result["notes"][0]
    assert (
        "| Step | Evaluation return |\n| --- | --- |\n| 20 | -121.06 |"
        in (run / "README.md").read_text()
    )


def test_copy_of_a_checkpoint_has_a_card_without_a_curve(run: Path, tmp_path: Path) -> None:
    SAC.load(run).save(tmp_path / "copy")
    with pytest.raises(ConfigError, match=r"not part of a run: name a file with --out \(out=…\)"):
        model_card(tmp_path / "copy")
    result = model_card(tmp_path / "copy", tmp_path / "card.md", episodes=1)
    assert result["files"] == [str(tmp_path / "card.md")]
    assert "Learning curve" not in (tmp_path / "card.md").read_text()


# --- Environments ---------------------------------------------------------------


def test_card_of_an_environment_object(tmp_path: Path) -> None:
    def make() -> gym.Env[Any, Any]:
        return gym.wrappers.TransformReward(
            gym.make("Pendulum-v1"), lambda reward: 0.1 * float(reward)
        )

    model = SAC(
        make,
        hidden_sizes=[8],
        learning_starts=10,
        batch_size=8,
        num_threads=1,
        eval_episodes=0,
        output_dir=tmp_path / "runs",
    ).learn(30)
    result = model.card(tmp_path / "card.md", episodes=2)
    assert result["return_mean"] == model.evaluate(episodes=2)["eval_return_mean"]
    text = (tmp_path / "card.md").read_text()
    assert "was passed as an object: pass it to `train` as well" in text
    without = model_card(model.checkpoint.path, tmp_path / "without.md")
    assert without["return_mean"] is None
    assert without["notes"][0].startswith("no episodes were played: ")
    with pytest.raises(ConfigError):
        model_card(model.checkpoint.path, tmp_path / "required.md", episodes=3)


# --- Files and arguments --------------------------------------------------------


def test_existing_files_are_replaced_only_with_overwrite(run: Path) -> None:
    (run / "README.md").write_text("my notes")
    with pytest.raises(ConfigError, match=r"README.md already exists: .* --force"):
        model_card(run, episodes=0)
    model_card(run, episodes=0, overwrite=True)
    with pytest.raises(ConfigError, match=r"README.png already exists|README.md already exists"):
        model_card(run, episodes=0)


def test_run_with_a_card_can_be_resumed_and_listed(run: Path) -> None:
    from rl_training import resume
    from rl_training.experiment.run_directory import list_runs

    model_card(run, episodes=0)
    assert resume(run, ["num_threads=1"], on_warning=lambda _: None).metrics["step"] == 60
    assert [row.path for row in list_runs(run.parent)] == [run]
    assert (run / "README.md").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"license": "My License"}, "license = 'My License': should be a name that the hub knows"),
        ({"license": 3}, "license = 3"),
        ({"out": "card.txt"}, r"out = 'card.txt': the file name must end in \.md"),
        ({"out": "missing/card.md"}, "the folder 'missing' does not exist"),
        ({"episodes": -1}, "episodes = -1: should be at least 0"),
        ({"episodes": "ten"}, "episodes = 'ten': should be a whole number"),
        ({"onnx": True}, "onnx requires push: name a repository, as in USER/NAME"),
        ({"private": True}, "private requires push"),
        ({"push": "pendulum"}, "push = 'pendulum': should be the name of a repository, USER/NAME"),
    ],
)
def test_mistakes_are_one_sentence(options: dict[str, Any], message: str, run: Path) -> None:
    before = sorted(run.rglob("*"))
    with pytest.raises(ConfigError, match=message):
        model_card(run, **options)
    assert sorted(run.rglob("*")) == before


# --- Hostile contents -----------------------------------------------------------


@pytest.mark.parametrize("text", ["a`b", "``", "`", "", "a|b", "a\nb\x1b[31m", "x" * 999])
def test_inline_code_ends_where_it_should(text: str) -> None:
    found = code(text)
    marks = re.match("`+", found)
    assert marks is not None
    inner = found[len(marks[0]) : -len(marks[0])]
    assert marks[0] not in inner
    assert found.endswith(marks[0])
    assert "\n" not in found
    assert "\x1b" not in found
    assert not re.search(r"(?<!\\)\|", found)
    assert len(found) < 250


def test_code_block_contains_any_text() -> None:
    text = "a: ```\n````\n<script>"
    assert fenced(text, "yaml") == f"`````yaml\n{text}\n`````"


def test_facts_of_a_hostile_run_are_inert() -> None:
    """A record of a run cannot add markup, or a command of another program."""
    checkpoint = SavedRun.load(FIXTURES / "bc")
    nasty = "<img src=http://evil.example/x.png> [click](http://evil.example) `x` | --- \n# Heading"
    manifest = checkpoint.manifest | {
        "dataset": {"source": nasty, "rows": [[]], "sha256": {"a": 1}},
        "versions": {nasty: nasty},
        "device": nasty,
        "engine": {"a": nasty},
    }
    info = {"hardware": nasty, "git": {"commit": nasty}, "command": ["rm", "-rf", "~"]}
    text = card_text(CardFacts(SavedRun(checkpoint.path, manifest), info))
    assert "rm -rf" not in text
    body = text.partition("\n---\n")[2]
    outside = re.sub(r"(`+)(?!`).*?(?<!`)\1(?!`)", "", body)
    assert "evil.example" not in outside
    assert "\n# Heading" not in body
    assert metadata_of(text)["library_name"] == "rl-training"
