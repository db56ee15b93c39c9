"""Runs that do not fit into memory raise one sentence and leave no files."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from torch.utils._python_dispatch import TorchDispatchMode

from rl_training import evaluate_checkpoint, finetune, register_algorithm, resume, train
from rl_training.algorithms.registry import REGISTRY
from rl_training.algorithms.sac import SACAlgorithm
from rl_training.boundary.packaged_configs import config_names
from rl_training.data import ReplayBuffer
from rl_training.envs import CATCH, describe_env
from rl_training.errors import CheckpointError, ConfigError, TrainingError
from rl_training.experiment import machine, memory
from rl_training.experiment.build import build_algorithm, build_replay
from rl_training.experiment.config import TrainConfig, make_config
from rl_training.experiment.memory import check_memory, learner_bytes, report_out_of_memory
from rl_training.experiment.task import check_config
from rl_training.runtime.checkpointing import list_steps
from rl_training.types import EnvSpec
from tests.faults.runs import forge

GIB = 2**30
CPU = torch.device("cpu")
BOX = EnvSpec(3, 1, (-2.0,), (2.0,))
DISCRETE = EnvSpec(4, 2, discrete=True)
SPECS = {"continuous": BOX, "discrete": DISCRETE}
LEARNERS = [entry.name for entry in REGISTRY.values() if not entry.goals]
DATA = {"dataset_kind": "random", "dataset_size": 100}


@pytest.fixture(autouse=True)
def _small_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pretend that the machine has 8 GiB of memory."""
    monkeypatch.setattr(memory, "available_memory", lambda _device: 8 * GIB)


def run_of(folder: Path, algo: str = "sac", **kwargs: Any) -> dict[str, Any]:
    top = {key: kwargs.pop(key) for key in [*kwargs] if key in TrainConfig.model_fields}
    env_id = "CartPole-v1" if REGISTRY[algo].actions == "discrete" else "Pendulum-v1"
    base = {"algo": algo, "env_id": env_id, "total_timesteps": 10, "output_dir": str(folder / "r")}
    recorded = DATA if REGISTRY[algo].mode != "online" else {}
    return base | {"algo_kwargs": recorded | kwargs} | top


WIDE = [65_536] * 3


@pytest.mark.parametrize(
    ("algo", "kwargs", "sentence"),
    [
        ("sac", {"hidden_sizes": WIDE}, r"hidden_sizes = \[65536, 65536, 65536\].*: the learner"),
        ("dqn", {"hidden_sizes": WIDE}, r"hidden_sizes = \[65536, 65536, 65536\].*: the learner"),
        ("bc", {"hidden_sizes": WIDE}, r"hidden_sizes = \[65536, 65536, 65536\].*: the learner"),
        ("iql", {"hidden_sizes": WIDE}, r"hidden_sizes = \[65536, 65536, 65536\].*: the learner"),
        ("awac", {"critic_hidden_sizes": WIDE}, r"critic_hidden_sizes = \[65536, 65536, 65536\]"),
        ("redq", {"num_critics": 65_536}, "num_critics = 65536: the learner would need at least"),
        ("edac", {"num_critics": 65_536}, "num_critics = 65536: the learner would need at least"),
        ("tqc", {"num_quantiles": 65_536, "num_critics": 99}, "num_quantiles = 65536.*the learner"),
        ("sac", {"batch_size": 2**24}, "batch_size = 16777216: an update would need at least 64.9"),
        ("cql", {"num_sampled_actions": 65_536, "batch_size": 2**16}, "num_sampled_actions = 6553"),
        ("sac", {"buffer_capacity": 10**9}, "buffer_capacity = 1000000000: the replay would need "),
        ("bc", {"dataset_size": 10**9}, "dataset_size = 1000000000: the dataset would need at le"),
        ("sac", {"num_envs": 65_536, "env_kwargs": {"vectorization": "async"}}, "num_envs = 65536"),
    ],
)
def test_runs_that_do_not_fit_are_refused_early(
    tmp_path: Path, algo: str, kwargs: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ConfigError, match=sentence) as caught:
        train(run_of(tmp_path, algo, **kwargs))
    found = re.search(r"at least ([\d,.]+) GiB.* has 8\.0 GiB of memory\.", str(caught.value))
    assert found is not None
    assert float(found[1].replace(",", "")) > 8.0
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize(
    ("algo", "key", "value"),
    [
        ("redq", "num_critics", 10**9),
        ("tqc", "num_quantiles", 10**9),
        ("sac", "batch_size", 10**9),
        ("sac", "buffer_capacity", 10**10),
        ("sac", "num_envs", 10**6),
        ("bc", "dataset_size", 10**10),
        ("sac", "hidden_sizes", [8] * 1000),
        ("sac", "learning_rate", 1e300),
        ("sac", "engine", "steam"),
        ("sac", "engine", "cuda_graph"),
        ("sac", "device", "cuda:99"),
        ("sac", "device", "cuda:200"),  # PyTorch reads the index -56
        ("sac", "device", "x" * 5_000),
        ("bc", "dataset_path", "nowhere.npz"),
        ("sac", "output_dir", "a\0b"),
        ("sac", "output_dir", "..."),
        ("sac", "env_kwargs", {"nope": 1}),
    ],
)
def test_refused_start_leaves_no_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, algo: str, key: str, value: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    extra = {"dataset_kind": "npz"} if key == "dataset_path" else {}
    with pytest.raises(ConfigError) as caught:
        train(run_of(tmp_path, algo, **{**extra, key: value}))
    assert len(str(caught.value)) < 300
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize("name", ["x" * 300, "file", "file/below"])
def test_unwritable_output_dir_raises_one_sentence(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(
        ConfigError, match=r"output_dir .* cannot be written \(.*\): choose"
    ) as caught:
        train(run_of(tmp_path, output_dir=str(tmp_path / name)))
    assert len(str(caught.value)) < 300
    assert caught.value.exit_code == 2
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("algo", LEARNERS)
def test_estimate_of_a_learner_is_exact(algo: str) -> None:
    spec = SPECS[REGISTRY[algo].kinds[0]]
    widths = [8, 8] if algo == "flash_sac" else [8, 16]  # its blocks have equal widths
    config = make_config(run_of(Path(), algo, hidden_sizes=widths))
    real = build_algorithm(config, spec, CPU)
    settings = config.parts.algorithm
    with torch.device("meta"):
        planned = REGISTRY[algo].learner_class().build(spec, settings)
    assert learner_bytes(planned) == learner_bytes(real) > 0
    optimizers = sum(x.numel() for name, x in real.named_buffers() if ".moment" in name)
    weights = sum(x.numel() for x in real.parameters())
    assert optimizers == 2 * weights
    assert learner_bytes(real) >= 4 * (optimizers + weights)


def test_run_that_just_fits_is_accepted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The sum of replay, learner and one update; one byte less is refused."""
    config = make_config(run_of(tmp_path, buffer_capacity=1_000, batch_size=64))
    replay = build_replay(config, BOX, CPU).rows.nbytes
    learner = build_algorithm(config, BOX, CPU)
    assert isinstance(learner, SACAlgorithm)
    critic = learner.model.critic.flat.nbytes + 64 * 4 * 2 * (256 + 256 + 1)
    update = 64 * 4 * (10 + 2) + critic  # a row has ten numbers, its noise two
    total = replay + learner_bytes(learner) + update
    monkeypatch.setattr(memory, "available_memory", lambda _device: total)
    check_memory(config, BOX, CPU)
    monkeypatch.setattr(memory, "available_memory", lambda _device: total - 1)
    with pytest.raises(ConfigError, match=r"the learner would .*, and the whole run 0\.0 GiB, but"):
        check_memory(config, BOX, CPU)


@pytest.mark.parametrize(
    ("algo", "kwargs", "sentence"),
    [
        ("sac", {"buffer_capacity": 10**8}, r"the replay would need .* but cuda has 1\.0 GiB"),
        ("sac", {"hidden_sizes": [9_000] * 2}, r"the learner would need .* but cuda has 1\.0 GiB"),
        ("bc", {"dataset_size": 10**8}, r"the dataset would need .* but cuda has 1\.0 GiB"),
        ("her", {"buffer_capacity": 10**8}, None),  # which is in host memory
        ("her", {"buffer_capacity": 10**9}, r"the replay would .* this machine has 8\.0 GiB"),
    ],
)
def test_gpu_memory_is_checked_separately(
    monkeypatch: pytest.MonkeyPatch, algo: str, kwargs: dict[str, Any], sentence: str | None
) -> None:
    sizes = {"cpu": 8 * GIB, "cuda": GIB}
    monkeypatch.setattr(memory, "available_memory", lambda device: sizes[device.type])
    config, rows = make_config(run_of(Path(), algo, **kwargs)), kwargs.get("dataset_size", 0)
    if sentence is None:
        check_memory(config, BOX, torch.device("cuda"), rows=rows)
        return
    with pytest.raises(ConfigError, match=sentence):
        check_memory(config, BOX, torch.device("cuda"), rows=rows)


@pytest.mark.parametrize("name", config_names())
def test_packaged_configs_fit_a_small_machine(name: str) -> None:
    config = TrainConfig.load(name)
    spec = DISCRETE if config.algo == "dqn" else EnvSpec(17, 6, (-1.0,) * 6, (1.0,) * 6)
    if config.env_id == CATCH:  # the only one with images
        spec = describe_env(CATCH, config.parts.env)
    check_memory(config, spec, CPU, rows=10**6)


class Shapes(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Records the operations on meta tensors."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.seen: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, tuple | list) else (result,):
            if tensor.device.type == "meta":
                self.seen.add(func.name().removeprefix("aten::").partition(".")[0])
        return result


QUICK = {
    *("clone", "copy_", "detach", "empty", "fill_", "full", "lift_fresh", "ones", "slice"),
    *("split_with_sizes", "uniform_", "view", "zero_", "zeros", "zeros_like"),
}
"""Some other operations import PyTorch's compiler to compute the shape of their result.

That takes two seconds: `python -c "import sys, torch; torch.ones(2, device='meta').log();
print('torch._dynamo' in sys.modules)"` shows whether an operation does.
"""


@pytest.mark.parametrize("algo", LEARNERS)
def test_estimate_does_not_import_the_compiler(algo: str) -> None:
    settings = REGISTRY[algo].config_class()()
    with torch.device("meta"), Shapes() as shapes:
        REGISTRY[algo].learner_class().build(SPECS[REGISTRY[algo].kinds[0]], settings)
    assert {"uniform_", "fill_"} & shapes.seen
    assert shapes.seen <= QUICK


def test_custom_learner_is_not_built_twice(tmp_path: Path) -> None:
    class Mine(SACAlgorithm):
        name = "mine"

        def __init__(self, *arguments: Any) -> None:
            raise AssertionError("built")

    register_algorithm(Mine)
    try:
        config = make_config(run_of(tmp_path, "mine"))
        check_memory(config, BOX, CPU)
        with pytest.raises(ConfigError, match="the replay"):
            check_memory(make_config(run_of(tmp_path, "mine", buffer_capacity=10**9)), BOX, CPU)
    finally:
        del REGISTRY["mine"]


def test_huge_spaces_are_refused(tmp_path: Path) -> None:
    config = make_config(run_of(tmp_path, "dqn"))
    spec = EnvSpec(4, 2**62, discrete=True)
    with pytest.raises(
        ConfigError, match="env_id = 'CartPole-v1': a network layer for its spaces would"
    ):
        check_memory(config, spec, CPU)


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("can't allocate memory: 1 bytes")])
def test_failed_allocation_raises_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fails(*_arguments: Any, **_options: Any) -> None:
        raise error

    config = make_config(run_of(tmp_path))
    monkeypatch.setattr(SACAlgorithm, "build", fails)
    monkeypatch.setattr(ReplayBuffer, "build", fails)
    with pytest.raises(ConfigError, match=r"^hidden_sizes = \[256, 256\]: the learner does not"):
        build_algorithm(config, BOX, CPU)
    with pytest.raises(ConfigError, match=r"^buffer_capacity = 1000000: the replay does not fit"):
        build_replay(config, BOX, CPU)
    with pytest.raises(RuntimeError, match="other"), report_out_of_memory("x", CPU):
        raise RuntimeError("other")


def test_update_that_does_not_fit_ends_the_run(
    monkeypatch: pytest.MonkeyPatch, small_config: Callable[..., dict[str, Any]]
) -> None:
    def fails(*_arguments: Any, **_options: Any) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")

    monkeypatch.setattr(SACAlgorithm, "update", fails)
    with pytest.raises(TrainingError, match=r"^batch_size = \d+: an update does not fit into the"):
        train(small_config(algo_kwargs={"engine": "eager"}))


def test_forged_config_cannot_allocate_more_than_the_checkpoint(
    monkeypatch: pytest.MonkeyPatch, small_config: Callable[..., dict[str, Any]]
) -> None:
    """Evaluation, resume and fine-tuning do not build the learner of a forged config."""
    run_dir = train(small_config(total_timesteps=40)).run_dir
    path = list_steps(run_dir)[-1]

    def widen(data: dict[str, Any]) -> None:
        data["algo_kwargs"]["hidden_sizes"] = [4_096, 4_096]

    forge(path, lambda manifest: widen(manifest["config"]))
    saved = yaml.safe_load((run_dir / "config.yaml").read_text())
    widen(saved)
    (run_dir / "config.yaml").write_text(yaml.safe_dump(saved))

    def built(*_arguments: Any, **_options: Any) -> None:
        raise AssertionError("built")

    monkeypatch.setattr(SACAlgorithm, "to", built)
    calls: list[Callable[[], Any]] = [
        lambda: evaluate_checkpoint(path, episodes=1),
        lambda: resume(run_dir, ["total_timesteps=60"]),
        lambda: finetune(path, overrides=["total_timesteps=60"]),
    ]
    for call in calls:
        with pytest.raises(CheckpointError, match=r"describes [\d,]+ bytes of weights, but mod"):
            call()


def test_available_memory_of_this_machine() -> None:
    assert GIB / 4 < machine.available_memory(CPU) < 2**50


# --- Warm-up ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kwargs", "horizon"),
    [
        ({"learning_rate_warmup": 11}, 10),
        ({"learning_rate_warmup": 11, "learning_rate_schedule": "cosine"}, 10),
        ({"learning_rate_warmup": 11, "schedule_horizon": 7}, 7),
    ],
)
def test_warm_up_longer_than_the_schedule_is_refused(
    tmp_path: Path, kwargs: dict[str, Any], horizon: int
) -> None:
    with pytest.raises(ConfigError) as caught:
        train(run_of(tmp_path, **kwargs))
    assert (
        f"learning_rate_warmup = 11: should be at most the schedule's horizon, which is {horizon}"
        in str(caught.value)
    )
    assert [*tmp_path.iterdir()] == []
    check_config(make_config(run_of(tmp_path, **(kwargs | {"learning_rate_warmup": horizon}))))


def test_warm_up_is_checked_against_epochs(tmp_path: Path) -> None:
    kwargs = {"num_epochs": 2, "batch_size": 20, "learning_rate_warmup": 11}
    with pytest.raises(ConfigError, match=r"= 11: should be at most .* which is 10 steps"):
        check_config(make_config(run_of(tmp_path, "bc", **kwargs) | {"total_timesteps": None}))


def test_old_run_with_a_long_warm_up_resumes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small_config: Callable[..., dict[str, Any]]
) -> None:
    """Earlier versions accepted it; a new horizon is checked."""
    monkeypatch.setattr("rl_training.experiment.task._check_schedule", lambda _config: None)
    kwargs = {"learning_rate_warmup": 50}
    run_dir = train(small_config(total_timesteps=40, algo_kwargs=kwargs)).run_dir
    monkeypatch.undo()
    resume(run_dir, ["total_timesteps=44"], on_warning=lambda _text: None)
    with pytest.raises(ConfigError, match=r"= 50: should be at most .* which is 45 steps"):
        resume(run_dir, ["total_timesteps=60", "schedule_horizon=45"])
