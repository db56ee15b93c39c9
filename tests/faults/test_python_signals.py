"""Signals in a Python script: a checkpoint is saved, and the script does not simply continue."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rl_training import SAC, Callback, finetune, resume, train
from rl_training.experiment.run_directory import read_run_info
from rl_training.runtime.session import Session
from tests.comparing import assert_same_run
from tests.faults.runs import config_for
from tests.faults.zygote import Zygote

LOOP = """
from rl_training import train
for seed in (1, 2):
    config = {config!r} | {{"seed": seed}}
    try:
        train(config, progress=True)
    finally:
        print("left", seed)
    print("finished", seed)
"""
RAISED: dict[str, type[BaseException]] = {"SIGINT": KeyboardInterrupt, "SIGTERM": SystemExit}


@pytest.mark.parametrize("name", RAISED)
def test_signal_ends_a_loop_over_seeds(zygote: Zygote, tmp_path: Path, name: str) -> None:
    config = config_for(tmp_path, total_timesteps=100_000, engine="eager")
    child = zygote.start(code=LOOP.format(config=config))
    child.wait_for_line("step 100/")
    os.kill(child.pid, signal.Signals[name])
    outcome = child.wait()
    assert outcome.out == "left 1\n"
    assert [path.name for path in tmp_path.iterdir()] == ["sac_Pendulum-v1_seed1"]
    if name == "SIGINT":
        assert outcome.status == 1
        assert f"KeyboardInterrupt: The run in {tmp_path}" in outcome.err
        assert "and a checkpoint was saved." in outcome.err
    else:
        assert (outcome.status, "Traceback" in outcome.err) == (143, False)
    run_dir = tmp_path / "sac_Pendulum-v1_seed1"
    info = read_run_info(run_dir)
    assert (info["state"], info["stop_reason"]) == ("interrupted", f"signal: {name}")
    step = info["step"]
    continued = resume(run_dir, [f"total_timesteps={step + 25}"])
    assert continued.metrics["step"] == step + 25


class SendAt(Callback):
    """Sends a signal to this process after a step."""

    def __init__(self, step: int, name: str = "SIGINT") -> None:
        self.step, self.name = step, name

    def on_step(self, session: Session) -> None:
        if session.state.step == self.step:
            os.kill(os.getpid(), signal.Signals[self.name])


@pytest.mark.parametrize("name", RAISED)
def test_every_function_raises_and_can_be_continued(tmp_path: Path, name: str) -> None:
    config = config_for(tmp_path / "cut")
    with pytest.raises(RAISED[name]):
        train(config, callbacks=[SendAt(40, name)])
    (run_dir,) = (tmp_path / "cut").iterdir()
    with pytest.raises(RAISED[name]):
        resume(run_dir, callbacks=[SendAt(90, name)])
    assert read_run_info(run_dir)["step"] == 90
    assert_same_run(train(config_for(tmp_path / "whole")), resume(run_dir))
    with pytest.raises(RAISED[name]):
        finetune(run_dir, overrides=["total_timesteps=100"], callbacks=[SendAt(220, name)])
    assert {path.name for path in (tmp_path / "cut").iterdir()} == {
        run_dir.name,
        f"{run_dir.name}_finetuned",
    }


@pytest.mark.parametrize("name", RAISED)
def test_agent_refers_to_its_run_after_a_signal(tmp_path: Path, name: str) -> None:
    config = config_for(tmp_path)
    options: dict[str, Any] = config["algo_kwargs"] | {"seed": 1, "eval_episodes": 0}
    make: Callable[[], SAC] = lambda: SAC("Pendulum-v1", output_dir=tmp_path, **options)  # noqa: E731
    agent = make()
    with pytest.raises(RAISED[name]):
        agent.learn(200, callbacks=[SendAt(60, name)])
    assert agent.checkpoint.step == 60
    assert agent.run_dir == tmp_path / "sac_Pendulum-v1_seed1"
    with pytest.raises(RAISED[name]):
        agent.learn(140, callbacks=[SendAt(100, name)])
    agent.learn(100)
    assert agent.result is not None
    whole = make().learn(200).result
    one, two = (r.checkpoint_path / "model.safetensors" for r in (agent.result, whole) if r)
    assert one.read_bytes() == two.read_bytes()
