"""TensorBoard, CSV, failures of loggers, and which servers a run may contact."""

from __future__ import annotations

import csv
import io
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import imageio.v3 as imageio
import numpy as np
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from rl_training import Callback, finetune, resume, train
from rl_training.errors import ConfigError
from rl_training.runtime.loggers import config as logging_config
from rl_training.runtime.loggers.background import BackgroundLogger
from rl_training.runtime.loggers.base import GuardedLogger, LoggedRun, Logger
from rl_training.runtime.loggers.build import build_loggers, flat_settings
from rl_training.runtime.loggers.config import LoggingConfig, may_send, name_destinations
from rl_training.runtime.loggers.csv_table import CSVLogger
from rl_training.runtime.loggers.identifiers import read_identifier, write_identifier
from rl_training.runtime.loggers.video import Film
from rl_training.runtime.logging import read_metrics
from rl_training.runtime.session import Session

Config = Callable[..., dict[str, Any]]


def events_of(run_dir: Path) -> EventAccumulator:
    events = EventAccumulator(
        str(run_dir / "tensorboard"), size_guidance={"histograms": 0, "images": 0}
    )
    events.Reload()
    return events


# --- TensorBoard --------------------------------------------------------------------


def test_tensorboard_has_hyperparameters_and_histograms_of_returns(small_config: Config) -> None:
    config = small_config(
        logging={"tensorboard": True}, eval_episodes=3, algo_kwargs={"eval_interval": 60}
    )
    del config["algo_kwargs"]["tensorboard"]
    result = train(config)
    events = events_of(result.run_dir)
    content = events.SummaryMetadata("_hparams_/session_start_info").plugin_data.content
    assert b"algo_kwargs.learning_rate" in content
    assert b"Pendulum-v1" in content
    histograms = events.Histograms("eval_returns")
    assert [event.step for event in histograms] == [60, 120]
    last = histograms[-1].histogram_value
    assert last.num == 3
    assert last.sum / 3 == pytest.approx(result.metrics["eval_return_mean"])


def test_tensorboard_has_hyperparameters_of_a_fine_tuned_run_once(small_config: Config) -> None:
    """It is a new run, although its first step is not 0; a resume is not."""
    source = train(small_config()).run_dir
    options = ["total_timesteps=20", "eval_episodes=0", "tensorboard=true"]
    tuned = finetune(source, overrides=options).run_dir
    resume(tuned, ["total_timesteps=30"])
    (first, *later) = sorted((tuned / "tensorboard").iterdir())
    assert b"finetuned_step" in first.read_bytes()
    assert len(later) == 1
    assert b"_hparams_" not in later[0].read_bytes()


def test_tensorboard_shows_a_video_of_an_evaluation(small_config: Config) -> None:
    config = small_config(
        total_timesteps=40,
        env_kwargs={"max_episode_steps": 30},
        logging={"tensorboard": True, "videos": 1},
        eval_episodes=2,
    )
    del config["algo_kwargs"]["tensorboard"]
    result = train(config)
    (image,) = events_of(result.run_dir).Images("eval_video")
    frames = imageio.imread(io.BytesIO(image.encoded_image_string), extension=".gif", index=None)
    assert frames.shape == (31, 250, 250, 3)
    assert frames.std() > 0


def test_environment_that_cannot_be_rendered_is_one_warning() -> None:
    class Blind:
        metadata: Mapping[str, Any] = {"render_fps": 12}
        calls = 0

        def render(self) -> None:
            self.calls += 1

    heard: list[str] = []
    film, blind = Film(1, heard.append), Blind()
    for _ in range(3):
        film.capture(blind)  # type: ignore[arg-type]
    assert film.cut() is None
    assert blind.calls == 1
    assert len(heard) == 1
    assert "cannot be filmed" in heard[0]


def test_long_episodes_and_large_frames_are_reduced() -> None:
    class Screen:
        metadata: Mapping[str, Any] = {}

        def render(self) -> Any:
            return np.zeros((600, 400, 3), np.uint8)

    film = Film(1, pytest.fail)
    for _ in range(450):
        film.capture(Screen())  # type: ignore[arg-type]
    frames = film.cut()
    assert frames is not None
    assert frames.shape == (150, 200, 134, 3)
    assert film.frames_per_second == 30.0


# --- CSV ----------------------------------------------------------------------------


def table_of(run_dir: Path) -> list[dict[str, Any]]:
    with (run_dir / "metrics.csv").open(newline="") as stream:
        rows = csv.DictReader(stream)
        return [{k: float(v) for k, v in row.items() if v != ""} for row in rows]


def test_csv_has_the_lines_of_the_metrics_file(small_config: Config) -> None:
    """New columns appear during the run, and a resume continues the table."""
    config = small_config(logging={"csv": True}, eval_episodes=1, algo_kwargs={"eval_interval": 60})

    class Stops(Callback):
        def on_step(self, session: Session) -> None:
            if session.state.step == 70:
                session.log({"my/metric, quoted": 2})
                session.state.request_stop("enough")

    stopped = train(config, callbacks=[Stops()])
    assert table_of(stopped.run_dir) == list(read_metrics(stopped.run_dir))
    resumed = resume(stopped.run_dir)
    rows = list(read_metrics(resumed.run_dir))
    assert table_of(resumed.run_dir) == rows
    assert any("my/metric, quoted" in row for row in rows)
    assert any("eval_return_mean" in row for row in rows)


def test_csv_is_only_rewritten_for_new_columns(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = []
    reads = []

    def read(_run_dir: Path) -> Iterator[dict[str, Any]]:
        reads.append(len(rows))
        return iter(rows)

    logger = CSVLogger(read)
    logger.start(LoggedRun(tmp_path))
    for step, metrics in enumerate([{"a": 1.0}, {"a": 2.0}, {"b": 3.0}, {"a": 4.0}]):
        rows.append({"step": step, **metrics})
        logger.write(step, metrics)
    assert (tmp_path / "metrics.csv").read_text() == "step,a,b\n0,1.0,\n1,2.0,\n2,,3.0\n3,4.0,\n"
    assert set(reads) == {0, 1, 3}


# --- Failures -------------------------------------------------------------------------


class Fails(Logger):
    """Raises in one method and counts all calls."""

    name = "Nowhere"

    def __init__(self, method: str) -> None:
        self.method, self.calls = method, 0

    def _call(self, method: str) -> None:
        self.calls += 1
        if method == self.method:
            raise ConnectionError("no network")

    def start(self, run: LoggedRun) -> None:
        self._call("start")

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        self._call("write")

    def close(self, outcome: str) -> None:
        self._call("close")


@pytest.mark.parametrize("method", ["start", "write", "close"])
@pytest.mark.parametrize("in_background", [False, True])
def test_logger_that_fails_warns_once(method: str, in_background: bool, tmp_path: Path) -> None:
    failing = Fails(method)
    heard: list[str] = []
    guarded = GuardedLogger(BackgroundLogger(failing) if in_background else failing, heard.append)
    guarded("start", LoggedRun(tmp_path))
    for step in range(50):
        guarded("write", step, {"a": 1.0})
        if in_background and step == 10:
            time.sleep(0.05)
    guarded("close", "completed")
    text = "logging to Nowhere failed (ConnectionError: no network). Training continues without it."
    assert heard == [text]
    assert failing.calls <= 52


def test_server_that_hangs_does_not_delay_training(tmp_path: Path) -> None:
    waiting = threading.Event()

    class Hangs(Logger):
        name = "Nowhere"

        def start(self, run: LoggedRun) -> None:
            waiting.wait(30)

    heard: list[str] = []
    guarded = GuardedLogger(BackgroundLogger(Hangs(), close_seconds=0.1), heard.append)
    began = time.perf_counter()
    guarded("start", LoggedRun(tmp_path))
    guarded("write", 1, {"a": 1.0})
    assert time.perf_counter() - began < 5
    guarded("close", "completed")
    waiting.set()
    assert len(heard) == 1
    assert "not everything was sent within 0.1 seconds" in heard[0]


def test_background_logger_keeps_the_order_and_copies_metrics(tmp_path: Path) -> None:
    seen: list[Any] = []

    class Records(Logger):
        name = "Records"

        def write(self, step: int, metrics: Mapping[str, float]) -> None:
            time.sleep(0.001)
            seen.append((step, dict(metrics)))

        def close(self, outcome: str) -> None:
            seen.append(outcome)

    logger = BackgroundLogger(Records())
    logger.start(LoggedRun(tmp_path))
    metrics = {"a": 0.0}
    for step in range(20):
        metrics["a"] = float(step)
        logger.write(step, metrics)
    logger.close("stopped")
    assert seen == [*((step, {"a": float(step)}) for step in range(20)), "stopped"]


def test_run_trains_without_a_server(
    small_config: Config, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lines of metrics are complete, and one warning says why MLflow has none."""
    from rl_training.runtime.loggers import mlflow_run

    def refuse(self: Any, run: LoggedRun) -> None:
        raise ConnectionError("no network")

    monkeypatch.setattr(logging_config, "find_spec", lambda name: True)
    monkeypatch.setattr(mlflow_run.MLflowLogger, "start", refuse)
    config = small_config(logging={"mlflow": {"tracking_uri": "http://127.0.0.1:9"}})
    result = train(config)
    assert result.stop_reason == "completed"
    steps = [row["step"] for row in read_metrics(result.run_dir)]
    assert steps == [20, 40, 60, 80, 100, 120]
    warnings = [line for line in capfd.readouterr().err.splitlines() if "MLflow" in line]
    assert len(warnings) == 1
    assert "ConnectionError: no network" in warnings[0]


# --- Settings ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "value", "extra"),
    [("wandb", {}, "wandb"), ("mlflow", {}, "mlflow"), ("videos", 1, "video")],
)
def test_missing_package_gives_the_install_line(
    small_config: Config, monkeypatch: pytest.MonkeyPatch, key: str, value: Any, extra: str
) -> None:
    monkeypatch.setattr(logging_config, "find_spec", lambda name: None)
    with pytest.raises(ConfigError) as caught:
        train(small_config(logging={key: value}))
    assert f"logging.{key} requires" in str(caught.value)
    assert f"pip install 'rl-training[{extra}]'" in str(caught.value)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"wanbd": {}}, "Unknown key 'wanbd' in logging; did you mean 'wandb'?"),
        ({"wandb": {"projekt": "x"}}, "did you mean 'project'?"),
        ({"wandb": {"mode": "on"}}, "logging.wandb.mode = 'on'"),
        ({"csv": 1}, "logging.csv = 1: should be true or false"),
        ({"videos": -1}, "logging.videos = -1: should be greater than or equal to 0"),
        ({"tensorboard": False, "videos": 1}, "logging.videos = 1: videos are written for"),
        ({"tensorboard": True}, "tensorboard = False contradicts logging.tensorboard = True"),
    ],
    ids=["key", "nested", "mode", "csv", "videos", "off", "contradiction"],
)
def test_wrong_settings_are_one_sentence(
    small_config: Config, settings: dict[str, Any], words: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        train(small_config(logging=settings))
    assert words in str(caught.value)


def test_key_of_earlier_versions_is_moved(small_config: Config) -> None:
    config = small_config(algo_kwargs={"tensorboard": True})
    result = train(config)
    assert (result.run_dir / "tensorboard").is_dir()
    text = (result.run_dir / "config.yaml").read_text()
    assert text.count("tensorboard") == 1
    again = resume(result.run_dir, ["tensorboard=false", "total_timesteps=130"])
    assert "tensorboard: false" in (again.run_dir / "config.yaml").read_text()


def test_flat_settings() -> None:
    nested = {"a": {"b": 1, "c": {"d": [1, 2]}}, "e": None, "f": "text", "g": True}
    assert flat_settings(nested) == {"a.b": 1, "a.c.d": "[1, 2]", "f": "text", "g": True}


# --- Trust ------------------------------------------------------------------------------


def test_server_of_a_run_folder_is_not_contacted(
    small_config: Config, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """A run folder may come from someone else: the user names the server again."""
    from rl_training.runtime.loggers import mlflow_run

    opened: list[str | None] = []

    def record(self: Any, run: LoggedRun) -> None:
        opened.append(self._config.tracking_uri)

    for method in ("write", "close"):
        monkeypatch.setattr(mlflow_run.MLflowLogger, method, lambda self, *_: None)
    monkeypatch.setattr(mlflow_run.MLflowLogger, "start", record)
    monkeypatch.setattr(logging_config, "find_spec", lambda name: True)
    uri = "http://127.0.0.1:9/elsewhere"
    source = train(small_config(logging={"mlflow": {"tracking_uri": uri}})).run_dir
    assert opened == [uri]
    monkeypatch.setattr(logging_config, "_named", set())  # as in another process
    resume(source, ["total_timesteps=130"])
    assert opened == [uri]
    assert f"pass logging.mlflow.tracking_uri={uri}" in capfd.readouterr().err
    resume(source, ["total_timesteps=140", f"logging.mlflow.tracking_uri={uri}"])
    assert opened == [uri, uri]
    monkeypatch.setattr(logging_config, "_named", set())
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    finetune(source, env_id="Pendulum-v1", overrides=["total_timesteps=20", "eval_episodes=0"])
    assert opened == [uri, uri, uri]


def test_another_override_does_not_name_the_server_of_a_run_folder(
    small_config: Config, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """``logging.csv=true`` says nothing about the address in the folder."""
    uri = "http://127.0.0.1:9/elsewhere"
    source = train(small_config()).run_dir
    file = source / "config.yaml"
    text = file.read_text()
    assert "  mlflow: null" in text
    file.write_text(text.replace("  mlflow: null", f"  mlflow:\n    tracking_uri: {uri}"))
    monkeypatch.setattr(logging_config, "find_spec", lambda name: True)
    monkeypatch.setattr(logging_config, "_named", set())
    resume(source, ["total_timesteps=130", "logging.csv=true"])
    assert f"names the MLflow server {uri}, to which nothing is sent" in capfd.readouterr().err


def test_entity_of_a_run_folder_gets_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Anyone may write to an open W&B project, so a folder could send a run to a stranger."""
    monkeypatch.setattr(logging_config, "_named", set())
    monkeypatch.delenv("WANDB_ENTITY", raising=False)
    heard: list[str] = []

    def names(**wandb: Any) -> list[str]:
        config = LoggingConfig.model_validate({"tensorboard": False, "wandb": wandb})
        return [logger.name for logger in build_loggers(config, lambda _: [], heard.append)]

    assert names(entity="stranger") == []
    assert "pass logging.wandb.entity=stranger, or set WANDB_ENTITY" in heard[0]
    assert names() == names(entity="stranger", mode="offline") == ["W&B"]
    monkeypatch.setenv("WANDB_ENTITY", "stranger")
    assert names(entity="stranger") == ["W&B"]
    assert len(heard) == 1


def test_destinations_that_may_be_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging_config, "_named", set())
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    assert may_send("mlflow", None)
    assert not may_send("mlflow", "http://example.com")
    name_destinations(LoggingConfig.model_validate({"mlflow": {"tracking_uri": "http://a"}}))
    assert may_send("mlflow", "http://a")
    assert not may_send("mlflow", "http://b")
    assert not may_send("wandb", "http://a")


def test_identifiers_survive_each_other(tmp_path: Path) -> None:
    assert read_identifier(tmp_path, "wandb") is None
    write_identifier(tmp_path, "wandb", "abc123")
    write_identifier(tmp_path, "mlflow", "def456")
    write_identifier(tmp_path, "wandb", "abc789")
    assert read_identifier(tmp_path, "wandb") == "abc789"
    assert read_identifier(tmp_path, "mlflow") == "def456"


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{", '{"wandb": 3}', '{"wandb": "../../x"}', '{"wandb": "a b"}', '{"wandb": ""}'],
)
def test_invalid_identifiers_are_ignored(tmp_path: Path, text: str) -> None:
    (tmp_path / "loggers.json").write_text(text)
    assert read_identifier(tmp_path, "wandb") is None
