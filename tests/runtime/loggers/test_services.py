"""W&B and MLflow with their real clients, inspected through their own APIs (make test-slow)."""

from __future__ import annotations

import json
import logging
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from rl_training import Callback, resume, train
from rl_training.runtime.loggers.base import LoggedRun
from rl_training.runtime.loggers.config import WandbConfig
from rl_training.runtime.loggers.wandb_run import WandbLogger
from rl_training.runtime.logging import read_metrics
from rl_training.runtime.session import Session

Config = Callable[..., dict[str, Any]]

pytestmark = pytest.mark.slow


class Stops(Callback):
    """Stops at a step, in the middle of a logging interval."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_step(self, session: Session) -> None:
        if session.state.step == self.step:
            session.log({"my/metric": 2.5, "my/speed (m/s), mean": 1.5})
            session.state.request_stop("enough")


def logged_config(small_config: Config, **logging: Any) -> dict[str, Any]:
    config = small_config(
        tags=["first", "second"],
        eval_episodes=2,
        logging={"tensorboard": False, **logging},
        algo_kwargs={"eval_interval": 60},
    )
    del config["algo_kwargs"]["tensorboard"]
    return config


# --- W&B --------------------------------------------------------------------------------


def offline_records(run_dir: Path) -> list[Any]:
    """Return the records of all sessions that W&B stored in the run folder."""
    from wandb.proto.wandb_internal_pb2 import Record

    files = sorted((run_dir / "wandb").glob("offline-run-*/*.wandb"))
    return [Record.FromString(data) for file in files for data in scan(file.read_bytes())]


def scan(data: bytes) -> Iterator[bytes]:
    """Yield the records of a W&B file, which has the format of LevelDB's logs."""
    position, block, parts = 7, 32_768, b""
    while position + 7 <= len(data):
        left = block - position % block
        if left < 7:  # a block ends with zeros if no header fits
            position += left
            continue
        length = int.from_bytes(data[position + 4 : position + 6], "little")
        kind = data[position + 6]  # 1: whole, 2: first, 3: middle, 4: last part of a record
        parts += data[position + 7 : position + 7 + length]
        position += 7 + length
        if kind in (1, 4):
            yield parts
            parts = b""


def test_wandb_run_has_all_metrics_and_is_continued(small_config: Config) -> None:
    wandb = pytest.importorskip("wandb")
    settings = {"project": "my-project", "group": "my-group", "mode": "offline"}
    result = train(logged_config(small_config, wandb=settings), callbacks=[Stops(73)])
    resume(result.run_dir)
    wandb.teardown()  # waits until its service has written everything
    records = offline_records(result.run_dir)
    runs = [record.run for record in records if record.HasField("run")]
    assert len({run.run_id for run in runs}) == 1
    assert {run.project for run in runs} == {"my-project"}
    assert {run.run_group for run in runs} == {"my-group"}
    assert {run.display_name for run in runs} == {result.run_dir.name}
    assert set(runs[0].tags) == {"first", "second"}
    keys = {item.key for record in records for item in record.run.config.update}
    assert {"algo", "algo_kwargs.learning_rate"} <= keys
    history = [
        {
            (item.key or "/".join(item.nested_key)): json.loads(item.value_json)
            for item in record.history.item
        }
        for record in records
        if record.HasField("history")
    ]
    steps = [row["step"] for row in history if "loss/critic" in row]
    assert steps == [40, 60, 73, 80, 100, 120]
    assert [row["my/metric"] for row in history if "my/metric" in row] == [2.5]
    written = [row for row in read_metrics(result.run_dir) if "loss/critic" in row]
    sent = {row["step"]: row for row in history if "loss/critic" in row}
    for row in written:
        assert sent[row["step"]]["loss/critic"] == row["loss/critic"]
    evaluations = [row for row in history if any(key.startswith("eval_returns") for key in row)]
    assert [row["step"] for row in evaluations] == [60, 120]
    exits = [record.exit.exit_code for record in records if record.HasField("exit")]
    assert exits == [0, 0]


def test_debug_log_of_wandb_prints_nothing_on_a_full_disk(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The failure of the logger itself is one warning, but `logging` would print tracebacks."""
    pytest.importorskip("wandb")

    def refuse() -> None:
        raise OSError(28, "No space left on device")

    logger = WandbLogger(WandbConfig(mode="offline"))
    logger.start(LoggedRun(tmp_path))
    files = [x for x in logging.getLogger("wandb").handlers if isinstance(x, logging.FileHandler)]
    assert files
    for handler in files:
        monkeypatch.setattr(handler, "flush", refuse)
    logging.getLogger("wandb").error("a line")
    monkeypatch.undo()
    logger.close("completed")
    assert "Traceback" not in capfd.readouterr().err


ONLINE = """
import sys
from pathlib import Path
from rl_training.runtime.loggers.base import LoggedRun
from rl_training.runtime.loggers.config import WandbConfig
from rl_training.runtime.loggers.wandb_run import WandbLogger

WandbLogger(WandbConfig(mode="online")).start(LoggedRun(Path(sys.argv[1])))
"""


def test_wandb_without_an_api_key_is_an_error_and_not_a_question(tmp_path: Path) -> None:
    """In a terminal, W&B would ask for the key, and a run would wait for an answer."""
    pytest.importorskip("wandb")
    import pty

    environment = {k: v for k, v in os.environ.items() if not k.startswith("WANDB_")}
    main, terminal = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", ONLINE, str(tmp_path)],
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        env=environment | {"HOME": str(tmp_path), "NETRC": str(tmp_path / "none")},
        cwd=tmp_path,
    )
    os.close(terminal)
    printed = b""
    try:
        while part := os.read(main, 65_536):
            printed += part
            assert b"choice" not in printed
    except OSError:  # Linux reports the end of a terminal as an error
        pass
    finally:
        process.kill()
        process.wait(30)
        os.close(main)
    assert b"no API key is configured: log in with wandb login" in printed


# --- MLflow -----------------------------------------------------------------------------


@contextmanager
def serve_mlflow(folder: Path, port: int) -> Iterator[str]:
    """Serve MLflow on the loopback, with a database in a folder."""
    uri = f"http://127.0.0.1:{port}"
    command = [
        *(sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port)),
        *("--workers", "1", "--backend-store-uri", f"sqlite:///{folder / 'store.db'}"),
        *("--default-artifact-root", str(folder / "artifacts")),
    ]
    environment = os.environ | {"MLFLOW_DISABLE_TELEMETRY": "true"}
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            command, stdout=log, stderr=log, env=environment, start_new_session=True
        )
    try:
        for _ in range(600):
            try:
                urllib.request.urlopen(f"{uri}/health", timeout=1).read()
                break
            except OSError:
                assert process.poll() is None, (folder / "log").read_text()
                time.sleep(0.2)
        yield uri
    finally:
        os.killpg(process.pid, 15)
        process.wait(30)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """MLflow's own server on the loopback."""
    pytest.importorskip("mlflow")
    with serve_mlflow(tmp_path_factory.mktemp("mlflow"), free_port()) as uri:
        yield uri


def test_mlflow_run_has_all_metrics_and_is_continued(small_config: Config, server: str) -> None:
    from mlflow import MlflowClient

    settings = {"tracking_uri": server, "experiment": "my-experiment", "name": "my-run"}
    result = train(logged_config(small_config, mlflow=settings), callbacks=[Stops(73)])
    client = MlflowClient(server)
    experiment = client.get_experiment_by_name("my-experiment")
    (first,) = client.search_runs([experiment.experiment_id])
    assert first.info.status == "FINISHED"
    resume(result.run_dir, [f"logging.mlflow.tracking_uri={server}"])
    (run,) = client.search_runs([experiment.experiment_id])
    assert run.info.run_id == first.info.run_id
    assert run.info.run_name == "my-run"
    assert run.data.params["algo"] == "sac"
    assert run.data.params["algo_kwargs.batch_size"] == "16"
    assert run.data.tags["tag.first"] == "true"
    history = client.get_metric_history(run.info.run_id, "loss/critic")
    assert [metric.step for metric in history] == [40, 60, 73, 80, 100, 120]
    for name, value in (("my/metric", 2.5), ("my/speed _m/s__ mean", 1.5)):
        assert [m.value for m in client.get_metric_history(run.info.run_id, name)] == [value]
    sent = {metric.step: metric.value for metric in history}
    for row in read_metrics(result.run_dir):
        if "loss/critic" in row:
            assert sent[row["step"]] == row["loss/critic"]
    assert run.info.status == "FINISHED"


def test_failed_run_is_failed_in_mlflow(small_config: Config, server: str) -> None:
    from mlflow import MlflowClient

    class Fails(Callback):
        def on_step(self, session: Session) -> None:
            if session.state.step == 30:
                raise ValueError("on purpose")

    settings = {"tracking_uri": server, "experiment": "failing"}
    with pytest.raises(ValueError, match="on purpose"):
        train(logged_config(small_config, mlflow=settings), callbacks=[Fails()])
    client = MlflowClient(server)
    experiment = client.get_experiment_by_name("failing")
    (run,) = client.search_runs([experiment.experiment_id])
    assert run.info.status == "FAILED"


def test_unreachable_server_warns_once_and_does_not_delay_training(
    small_config: Config, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
    began = time.perf_counter()
    result = train(logged_config(small_config, mlflow={"tracking_uri": "http://127.0.0.1:9"}))
    assert result.stop_reason == "completed"
    warnings = [line for line in capfd.readouterr().err.splitlines() if "logging to MLflow" in line]
    assert len(warnings) == 1
    assert time.perf_counter() - began < 60


def test_server_that_dies_warns_once_and_a_later_resume_continues_the_run(
    small_config: Config,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("mlflow")
    from mlflow import MlflowClient

    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    port = free_port()
    with ExitStack() as running:
        uri = running.enter_context(serve_mlflow(tmp_path, port))
        client = MlflowClient(uri)

        def steps() -> list[int]:
            found = client.get_experiment_by_name("dying")
            runs = client.search_runs([found.experiment_id]) if found else []
            history = [client.get_metric_history(run.info.run_id, "updates") for run in runs]
            return [metric.step for metrics in history for metric in metrics]

        class Kills(Callback):
            def on_step(self, session: Session) -> None:
                if session.state.step == 50:
                    while 40 not in steps():
                        time.sleep(0.2)
                    running.close()

        settings = {"tracking_uri": uri, "experiment": "dying"}
        result = train(logged_config(small_config, mlflow=settings), callbacks=[Kills()])
    assert result.stop_reason == "completed"
    printed = capfd.readouterr().err.splitlines()
    assert len([line for line in printed if "logging to MLflow" in line]) == 1
    with serve_mlflow(tmp_path, port):
        assert steps() == [20, 40]
        resume(result.run_dir, ["total_timesteps=160", f"logging.mlflow.tracking_uri={uri}"])
        assert steps() == [20, 40, 140, 160]
