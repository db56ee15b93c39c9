"""Invalid states are rejected, and states that cannot be saved exactly are reported."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

from rl_training import resume, train
from rl_training.algorithms.dqn import DQNAlgorithm, DQNConfig
from rl_training.boundary import json_codec
from rl_training.data import EpochSampler, MixedSampler, ReplayBuffer, TransitionDataset
from rl_training.data.generators import STATE_BYTES, generator_state, restore_generator
from rl_training.data.rows import RowLayout
from rl_training.envs import CapturableEnv, CaptureError, capture_env, make_env, restore_env
from rl_training.errors import CheckpointError
from rl_training.runtime.acting import Explorer
from rl_training.runtime.checkpointing import STATE
from rl_training.types import EnvSpec
from tests.conftest import SMALL_KWARGS
from tests.envs.odd_envs import WALK, Walk
from tests.faults.runs import forge, newest

# --- Objects that cannot be saved ---------------------------------------------


def nested(depth: int) -> list[Any]:
    inner: list[Any] = []
    for _ in range(depth):
        inner = [inner]
    return inner


def list_of_itself() -> Any:
    loop: list[Any] = [1]
    loop.append(loop)
    return loop


def dict_of_itself() -> Any:
    loop: dict[str, Any] = {"a": 1}
    loop["b"] = {"c": loop}
    return loop


def two_lists() -> Any:
    one: list[Any] = []
    other = [one]
    one.append((other,))
    return one


class Unreadable:
    """An object that raises when its class is accessed."""

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        raise RuntimeError("do not look")


ENDLESS: dict[str, Callable[[Walk], Any]] = {
    "list": lambda _: list_of_itself(),
    "dict": lambda _: dict_of_itself(),
    "two lists": lambda _: two_lists(),
    "deep": lambda _: nested(5000),
    "the environment itself": lambda env: env,
    "a wrapper of the environment": lambda env: gym.wrappers.TimeLimit(env, 5),
    "unreadable": lambda _: Unreadable(),
}


@pytest.mark.parametrize("name", ENDLESS)
def test_self_references_are_reported_as_not_capturable(name: str) -> None:
    walk = Walk()
    walk.extra = ENDLESS[name](walk)  # type: ignore[attr-defined]
    env = CapturableEnv(walk)
    env.reset(seed=0)
    state = env.capture()
    assert set(state) == {"error"}
    assert state["error"].isprintable()


def test_environments_that_refer_to_each_other_are_reported() -> None:
    one, other = Walk(), Walk()
    one.other, other.other = other, one  # type: ignore[attr-defined]
    assert CapturableEnv(one).capture() == {
        "error": "Walk contains itself, which cannot be saved exactly"
    }


def test_a_hundred_levels_are_restored() -> None:
    one, other = Walk(), Walk()
    one.extra, other.extra = nested(99), []  # type: ignore[attr-defined]
    restore_env(other, json_codec.loads(json_codec.dumps(capture_env(one))))
    assert other.extra == one.extra  # type: ignore[attr-defined]


def test_boundary_is_not_part_of_the_state() -> None:
    """Layers are those of Gymnasium's environment, as in old checkpoints."""
    plain, guarded = gym.make("Pendulum-v1", disable_env_checker=True), make_env("Pendulum-v1")
    for env in (plain, guarded):
        env.reset(seed=3)
    states = [json_codec.dumps(capture_env(env)) for env in (plain, guarded)]
    assert states[0] == states[1]
    layers = json_codec.loads(states[0])["layers"]
    assert [layer["class"] for layer in layers] == ["TimeLimit", "OrderEnforcing", "PendulumEnv"]


# --- Generators ---------------------------------------------------------------


def test_generator_states_have_known_sizes() -> None:
    assert len(generator_state(torch.Generator())) == STATE_BYTES["cpu"]


CPU_STATE = generator_state(torch.Generator().manual_seed(5))
BAD_GENERATORS = {
    "shortened": CPU_STATE[:-1],
    "half": CPU_STATE[:2528],
    "lengthened": np.concatenate([CPU_STATE, CPU_STATE[:8]]),
    "empty": CPU_STATE[:0],
    "negative": -CPU_STATE.astype(np.int64),
    "out of range": CPU_STATE.astype(np.int64) + 256,
    "floats": CPU_STATE.astype(np.float64),
    "signed": CPU_STATE.astype(np.int8),
    "a table": CPU_STATE.reshape(2, -1),
    "a list": CPU_STATE.tolist(),
    "none": None,
    "text": "5056",
    "zeros": np.zeros_like(CPU_STATE),
}


@pytest.mark.parametrize("name", BAD_GENERATORS)
def test_damaged_generator_is_rejected(name: str) -> None:
    """A damaged state must not give a newly seeded generator or other numbers."""
    generator = torch.Generator().manual_seed(1)
    with pytest.raises(CheckpointError, match="the state of a random generator is"):
        restore_generator(generator, BAD_GENERATORS[name])


def test_generator_of_another_device_is_used_as_a_seed() -> None:
    drawn = []
    for _ in range(2):
        generator = torch.Generator()
        restore_generator(generator, np.arange(STATE_BYTES["cuda"], dtype=np.uint8))
        drawn.append(torch.rand(3, generator=generator).tolist())
    assert drawn[0] == drawn[1]


def pcg64(**changes: Any) -> dict[str, Any]:
    state: dict[str, Any] = json.loads(json.dumps(np.random.PCG64(0).state))
    for key, value in changes.items():
        target = state["state"] if key in ("inc", "word") else state
        target["state" if key == "word" else key] = value
    return state


WORD, INC = (pcg64()["state"][key] for key in ("state", "inc"))
BAD_PCG64 = {
    "another generator": pcg64(bit_generator="MT19937"),
    "negative": pcg64(word=-WORD),
    "too large": pcg64(word=2**128),
    "a float": pcg64(word=float(WORD)),
    "a bool": pcg64(word=True),
    "text": pcg64(word=str(WORD)),
    "an even increment": pcg64(inc=INC - 1),
    "a negative increment": pcg64(inc=-INC),
    "a large increment": pcg64(inc=2**128 + 1),
    "a cached-word flag of 2": pcg64(has_uint32=2),
    "a cached-word flag as a bool": pcg64(has_uint32=True),
    "a cached word beyond 32 bits": pcg64(uinteger=2**32),
    "a missing key": {key: value for key, value in pcg64().items() if key != "uinteger"},
    "an extra key": pcg64(more=1),
    "a list": [WORD, INC],
    "none": None,
}


@pytest.mark.parametrize("name", BAD_PCG64)
def test_damaged_generator_of_an_environment_is_rejected(name: str) -> None:
    env = make_env("Pendulum-v1")
    env.reset(seed=0)
    state = capture_env(env)
    state["layers"][-1]["generators"]["_np_random"] = BAD_PCG64[name]
    with pytest.raises(CaptureError, match="a random generator of the saved environment is dam"):
        restore_env(env, state)


# --- States of a run ----------------------------------------------------------


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Create a run in its second episode, with a callback and actions for the next step."""
    return _small_run(tmp_path_factory.mktemp("run"))


@pytest.fixture(scope="module")
def async_run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("async")
    return _small_run(folder, num_envs=2, env_kwargs={"vectorization": "async"})


def _small_run(folder: Path, **changes: Any) -> Path:
    stopping = {"early_stopping": {"metric": "eval_return_mean", "patience": 9}}
    config = {
        "algo": "sac",
        "env_id": WALK,
        "seed": 0,
        "total_timesteps": 46,
        "output_dir": str(folder),
        "device": "cpu",
        "eval_episodes": 1,
        "log_interval": 20,
        "algo_kwargs": SMALL_KWARGS | stopping | {"eval_interval": 20},
    }
    return train(config | changes).run_dir


def resume_changed(
    run: Path, folder: Path, change: Callable[[dict[str, Any]], Any], *overrides: str
) -> Any:
    """Resume a copy with a changed state and matching digests."""
    copy = Path(shutil.copytree(run, folder / run.name))
    path = newest(copy)
    state = json_codec.loads((path / STATE).read_bytes())
    change(state)
    (path / STATE).write_bytes(json_codec.dumps(state))
    forge(path)
    return resume(copy, ["total_timesteps=60", *overrides], on_warning=lambda _: None)


def at(*place: Any) -> Callable[[Any], Callable[[dict[str, Any]], None]]:
    """Return a change of one entry of the state."""

    def to(value: Any) -> Callable[[dict[str, Any]], None]:
        def change(state: Any) -> None:
            for part in place[:-1]:
                state = state[part]
            state[place[-1]] = value(state[place[-1]]) if callable(value) else value

        return change

    return to


ENVS = ("collector", "environments")
CORE = (*ENVS, 0, "layers", 2)
CALLBACK = ("callbacks", "EarlyStoppingCallback-1")
DAMAGED: dict[str, Callable[[dict[str, Any]], Any]] = {
    "truncated engine generator": at("engine", "generator")(lambda x: x[:-8]),
    "negative engine generator": at("engine", "generator")(lambda x: -x.astype(np.int64)),
    "updates as text": at("engine", "updates")("16"),
    "updates as a float": at("engine", "updates")(16.0),
    "negative updates": at("engine", "updates")(-1),
    "updates as a bool": at("engine", "updates")(True),
    "sums without counts": at("engine", "sums")({"loss/critic": 1.0}),
    "a count of 0": at("engine")(lambda x: x | {"sums": {"a": 1.0}, "counts": {"a": 0}}),
    "a sum as text": at("engine")(lambda x: x | {"sums": {"a": "1"}, "counts": {"a": 1}}),
    "truncated explorer generator": at("collector", "explorer", "generator")(lambda x: x[1:]),
    "actions with another shape": at("collector", "explorer", "answer")(
        np.zeros((2, 1), np.float32)
    ),
    "nonfinite actions": at("collector", "explorer", "answer")(np.full((1, 1), np.nan, np.float32)),
    "actions as a list": at("collector", "explorer", "answer")([[0.0]]),
    "observations with another shape": at("collector", "obs")(lambda x: x[:, :2]),
    "observations with another type": at("collector", "obs")(lambda x: x.astype(np.float64)),
    "observations as text": at("collector", "obs")("zeros"),
    "nonfinite returns": at("collector", "returns")(lambda x: x * np.nan),
    "lengths as floats": at("collector", "lengths")(lambda x: x.astype(np.float64)),
    "negative lengths": at("collector", "lengths")(lambda x: x - 100),
    "episodes as a float": at("collector", "episodes")(9.5),
    "a finished episode without a length": at("collector", "finished")([(1.0, 0)]),
    "a last return as text": at("collector", "last_return")("best"),
    "replay total as text": at("storage", "total")("46"),
    "replay total as a float": at("storage", "total")(46.0),
    "early-stopping best as text": at(*CALLBACK, "best")("0"),
    "negative early-stopping wait": at(*CALLBACK, "waited")(-5),
    "early-stopping wait as a float": at(*CALLBACK, "waited")(0.5),
    "no environments": at(*ENVS)([]),
    "environments that are not a list": at(*ENVS)(3),
    "no layers": at(*ENVS, 0, "layers")([]),
    "layers that are not a list": at(*ENVS, 0, "layers")("TimeLimit"),
    "an extra layer": at(*ENVS, 0, "layers")(lambda x: [*x, x[-1]]),
    "layers in another order": at(*ENVS, 0, "layers")(lambda x: x[::-1]),
    "a layer without its class": at(*CORE)({}),
    "attributes that are not a dict": at(*CORE, "attributes")([1]),
    "an attribute that is a method": at(*CORE, "attributes", "step")(1),
    "an attribute that is constant": at(*CORE, "attributes", "spec")(None),
    "an attribute of every object": at(*CORE, "attributes", "__dict__")({}),
    "a dict instead of a number": at(*CORE, "attributes", "buffer")({"a": 1}),
    "a generator instead of a method": at(*CORE, "generators", "step")(pcg64()),
    "a number instead of a generator": at(*CORE, "attributes", "_np_random")(1),
    "a missing shared value": at(*CORE, "attributes", "clock")({"@shared": 7}),
    "a shared value as text": at(*CORE, "attributes", "clock")({"@shared": "0"}),
    "a simulator": at(*ENVS, 0, "simulator")({"integration": np.zeros(3)}),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_damaged_state_gets_a_clear_error(name: str, run_dir: Path, tmp_path: Path) -> None:
    """None may continue with other numbers or end in a traceback."""
    with pytest.raises(CheckpointError, match=r"state\.json does not match this run: ") as caught:
        resume_changed(run_dir, tmp_path, DAMAGED[name])
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 500


def test_unchanged_state_continues(run_dir: Path, tmp_path: Path) -> None:
    assert resume_changed(run_dir, tmp_path, lambda _: None).stop_reason == "completed"


def test_array_that_changes_its_type_in_a_step_is_restored() -> None:
    """The array has another type right after a reset, so the first restore fails."""

    class Contacts(Walk):
        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            self.contacts = np.zeros(2)
            return super().reset(seed=seed)

        def step(self, action: Any) -> Any:
            self.contacts = np.array([self.position > 0.0, True])
            return super().step(action)

    first, second = CapturableEnv(Contacts()), CapturableEnv(Contacts())
    for env, seed in ((first, 1), (second, 2)):
        env.reset(seed=seed)
    first.step(np.ones(1, np.float32))
    state = json_codec.loads(json_codec.dumps(first.capture()))
    second.restore([state])
    assert json_codec.dumps(second.capture()) == json_codec.dumps(first.capture())


def test_array_of_floats_saved_as_integers_is_rejected() -> None:
    env = CapturableEnv(Walk())
    env.reset(seed=0)
    state = env.capture()
    state["layers"][0]["attributes"]["buffer"] = np.zeros(3, np.int64)
    with pytest.raises(CaptureError, match=r"Walk\.buffer is int64, not float"):
        env.restore([state])


WRONG_STATES: dict[str, Callable[[dict[str, Any]], Any]] = {
    "a list": at(*CORE, "attributes", "position")([1.0, 2.0]),
    "text": at(*CORE, "attributes", "clock")((1, 2)),
    "an array with another shape": at(*CORE, "attributes", "position")(np.zeros(3)),
}


@pytest.mark.parametrize("name", WRONG_STATES)
def test_state_that_fails_in_the_next_step_gets_a_clear_error(
    name: str, run_dir: Path, tmp_path: Path
) -> None:
    """Only the environment knows the valid values of its attributes."""
    sentence = "^at step 47, an environment could not continue from its saved state: odd/Walk-v0: "
    with pytest.raises(CheckpointError, match=sentence):
        resume_changed(run_dir, tmp_path, WRONG_STATES[name])


@pytest.mark.parametrize(
    "name", ["an extra layer", "an attribute that is a method", "no environments"]
)
def test_damaged_state_in_a_worker_gets_a_clear_error(
    name: str, async_run_dir: Path, tmp_path: Path
) -> None:
    with pytest.raises(CheckpointError, match=r"state\.json does not match this run: ") as caught:
        resume_changed(async_run_dir, tmp_path, DAMAGED[name])
    assert "\n" not in str(caught.value)


def test_wrong_state_in_a_worker_gets_a_clear_error(async_run_dir: Path, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="could not continue from its saved state"):
        resume_changed(async_run_dir, tmp_path, WRONG_STATES["a list"])


SIMULATORS: dict[str, Any] = {
    "longer": lambda x: np.append(x, 0.0),
    "shorter": lambda x: x[:-1],
    "a single number": lambda x: x[:1],
    "another type": lambda x: x.astype(np.float32),
    "a list": lambda x: x.tolist(),
    "nothing": lambda _: None,
}


@pytest.mark.parametrize("part", ["integration", "xpos"])
@pytest.mark.parametrize("name", SIMULATORS)
def test_simulator_of_another_size_is_rejected(part: str, name: str) -> None:
    """A single row of positions must not be broadcast to all bodies."""
    pytest.importorskip("mujoco")
    env = make_env("Hopper-v5")
    env.reset(seed=0)
    state = capture_env(env)
    state["simulator"][part] = SIMULATORS[name](state["simulator"][part])
    with pytest.raises(CaptureError, match=f"{part} of the simulator is .* in the saved environm"):
        restore_env(env, state)


# --- Positions in data --------------------------------------------------------


def epochs() -> EpochSampler:
    """Create a sampler in its second epoch of ten rows."""
    layout = RowLayout(2, 1)
    sampler = EpochSampler(TransitionDataset(torch.zeros(10, layout.width), layout))
    generator = torch.Generator().manual_seed(0)
    for _ in range(4):
        sampler.prepare(4, generator)
        sampler.gather(4, generator)
    return sampler


PLACES: dict[str, dict[str, Any]] = {
    "before the first row": {"position": -1},
    "beyond the second order": {"position": 20},
    "between two rows": {"position": 6.0},
    "as text": {"position": "6"},
    "no epoch": {"epoch": 0},
    "half an epoch": {"epoch": 1.5},
    "one order": {"drawn_from": [CPU_STATE]},
    "three orders": {"drawn_from": [CPU_STATE] * 3},
    "a shortened order": {"drawn_from": [CPU_STATE, CPU_STATE[:-1]]},
    "rows without an order": {"drawn_from": []},
}


@pytest.mark.parametrize("name", PLACES)
def test_invalid_sampler_position_is_rejected(name: str) -> None:
    sampler = epochs()
    assert (sampler.epoch, sampler.position) == (2, 6)
    sampler.load_state_dict(sampler.state_dict())
    with pytest.raises(CheckpointError):
        sampler.load_state_dict(sampler.state_dict() | PLACES[name])


@pytest.mark.parametrize(
    "changes", [{"offline_rows": -1}, {"online_rows": 1.0}, {"pretraining": 1}]
)
def test_invalid_mixture_counts_are_rejected(changes: dict[str, Any]) -> None:
    sampler = MixedSampler(epochs(), ReplayBuffer(10, 2, 1), 0.5)
    sampler.load_state_dict(sampler.state_dict())
    with pytest.raises(CheckpointError):
        sampler.load_state_dict(sampler.state_dict() | changes)


@pytest.mark.parametrize("answer", [[[2.0]], [[-1.0]], [[0.5]]])
def test_pending_action_outside_the_space_is_rejected(answer: list[list[float]]) -> None:
    spec = EnvSpec(4, 2, discrete=True)
    learner = DQNAlgorithm.build(spec, DQNConfig(hidden_sizes=(8,)))
    explorer = Explorer(learner, 1, torch.Generator())
    state = explorer.state_dict()
    explorer.load_state_dict(state | {"answer": np.ones((1, 1), np.float32)})
    assert explorer.take_actions().tolist() == [[1.0]]
    with pytest.raises(CheckpointError, match="actions outside 0 to 1"):
        explorer.load_state_dict(state | {"answer": np.array(answer, np.float32)})
