"""The programs in `examples/`."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from runpy import run_path
from typing import Any

import numpy as np
import pytest
import torch

from rl_training import resume, train
from rl_training.algorithms import registry
from tests.comparing import CrashAt, CrashError, assert_same_run
from tests.faults.zygote import shared_zygote
from tests.golden import (
    ACT,
    OBS,
    SPEC,
    TOLERANCE,
    assert_trace_is_the_update,
    make_batch,
    make_noise,
)
from tests.reference.trunks import BatchNorm

EXAMPLES = Path(__file__).parents[1] / "examples"
TINY: dict[str, Any] = {"hidden_sizes": [16], "critic_hidden_sizes": [16, 8], "policy_delay": 3}
LIMITS = {"renorm_r_max": 1.3, "renorm_d_max": 0.4, "momentum": 0.2}


@pytest.fixture
def crossq() -> Iterator[Any]:
    """Register the learner class for the duration of a test."""
    yield run_path(str(EXAMPLES / "crossq.py"))["CrossQ"]
    del registry.REGISTRY["my_crossq"], registry._CUSTOM["my_crossq"]


def make_learner(crossq: Any, **options: Any) -> Any:
    config = crossq.config_class(
        hidden_sizes=(16,), critic_hidden_sizes=(16, 8), networks={"all": options}
    )
    return crossq.build(SPEC, config, seed=3).double()


def test_crossq_uses_the_settings_of_the_paper(crossq: Any) -> None:
    learner = crossq.build(SPEC)
    trunks = learner.config.trunks()
    assert (trunks["actor"].trunk, trunks["critic"].trunk) == ("batch_norm", "batch_norm")
    assert (trunks["actor"].hidden_sizes, trunks["critic"].hidden_sizes) == (
        (256, 256),
        (2048,) * 2,
    )
    assert learner.intervals == {"actor": 3}
    assert not any("target" in name for name in learner.state_dict())
    for key in ("actor", "critic", "temperature"):
        assert learner.optimizer(key).betas == (0.5, 0.999)
        assert learner.optimizer(key).base_learning_rate == 1e-3


def test_crossq_critics_process_both_states_in_one_batch(crossq: Any) -> None:
    """Compare with NumPy: joint statistics, and next values without gradient or target network."""
    learner = make_learner(crossq, renorm_warmup=1, **LIMITS)
    options = {"eps": 1e-3, "renormalize": True, "renorm_warmup": 1, **LIMITS}
    theirs = [BatchNorm([OBS + ACT, 16, 8], **options) for _ in range(2)]
    critic = learner.model.critic
    for step in range(2):
        batch, noise = make_batch(step), make_noise(learner, step)
        views = [view.detach().numpy() for view in critic.views(critic.flat)]
        with torch.no_grad():
            following = learner.model.sample(batch.next_obs, noise["next_action"])
        now = np.hstack((batch.obs, batch.actions))
        then = np.hstack((batch.next_obs, following.actions))
        joint, values = np.vstack((now, then)), []
        for i, member in enumerate(theirs):
            params = [view[i] if view.shape[1] > 1 else view[i, 0] for view in views]
            values.append(member(joint, params, training=True)[:, 0])
        q, next_q = np.split(np.stack(values), 2, axis=1)
        soft = next_q.min(0) - float(learner.alpha) * following.log_prob.numpy()
        target = batch.rewards.numpy() + 0.99 * (1 - batch.terminations.numpy()) * soft
        found = learner.critic_stage(batch, noise).terms.loss
        np.testing.assert_allclose(found.item(), ((q - target) ** 2).mean(1).sum(), **TOLERANCE)


def test_crossq_updates_can_be_replayed(crossq: Any) -> None:
    assert_trace_is_the_update(make_learner(crossq, renorm_warmup=1))


def test_crossq_resumes_bit_for_bit(crossq: Any, small_config: Callable[..., Any]) -> None:
    config = small_config(algo="my_crossq", algo_kwargs=TINY)
    whole = train(config)
    with pytest.raises(CrashError):
        train(config, callbacks=[CrashAt(97)])
    assert_same_run(whole, resume(f"{whole.run_dir}_2"))


@pytest.mark.slow
@pytest.mark.filterwarnings("error:the compiled engine")
@pytest.mark.usefixtures("crossq")
def test_crossq_learns_pendulum(small_config: Callable[..., Any]) -> None:
    """Train with compiled updates; a fallback would warn, which is an error here."""
    kwargs = {"hidden_sizes": [256, 256], "critic_hidden_sizes": [256, 256], "batch_size": 256}
    kwargs |= {"learning_starts": 500, "networks": {"all": {"renorm_warmup": 2_000}}}
    config = small_config(algo="my_crossq", total_timesteps=6_000, eval_episodes=10)
    config["algo_kwargs"] |= kwargs | {"engine": "compiled"}
    assert train(config).metrics["eval_return_mean"] > -300


def test_crossq_runs_from_the_command_line(tmp_path: Path) -> None:
    settings = ["algo=my_crossq", "critic_hidden_sizes=[16]", "total_timesteps=60"]
    settings += ["learning_starts=40", "eval_episodes=0", f"output_dir={tmp_path}"]
    command = [sys.executable, "-m", "rl_training", "--import", "crossq", "train"]
    done = subprocess.run(
        [*command, "--config", "sac/pendulum", *settings, "tensorboard=false", "num_threads=1"],
        cwd=EXAMPLES,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("name", "lines"), [("own_network", 40), ("crossq", 90)])
def test_examples_are_short_and_use_the_public_api(name: str, lines: int) -> None:
    text = (EXAMPLES / f"{name}.py").read_text()
    assert len(text.splitlines()) < lines
    assert " _" not in "".join(line for line in text.splitlines() if "import" in line)


@pytest.mark.parametrize(
    ("name", "arguments", "written"),
    [
        ("offline_to_online", ["--steps", "300", "--updates", "30"], "replay.npz"),
        ("own_dataset", ["--rows", "600", "--updates", "30"], "runs"),
        ("compare_seeds", ["--steps", "150", "--seeds", "2"], "comparison.png"),
    ],
)
def test_examples_run(name: str, arguments: list[str], written: str, tmp_path: Path) -> None:
    code = (
        "import runpy, sys\n"
        f"sys.argv = {[name, *arguments]!r}\n"
        f"runpy.run_path({str(EXAMPLES / name)!r} + '.py', run_name='__main__')"
    )
    done = shared_zygote().run(code=code, cwd=tmp_path)
    assert done.status == 0, done.err
    assert (tmp_path / written).exists()


def test_every_example_is_listed() -> None:
    listed = (EXAMPLES / "README.md").read_text()
    for file in EXAMPLES.glob("*.py"):
        assert f"({file.name})" in listed
