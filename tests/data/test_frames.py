"""Images in the replay: every transition equals that of a slow reference that stores them all."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rl_training.data.frames import (
    FrameEncoder,
    FrameLayout,
    FrameList,
    FrameRing,
    Frames,
    num_places,
)
from rl_training.data.prioritized_replay import PrioritizedReplay
from rl_training.data.replay_buffer import ReplayBuffer
from rl_training.errors import CheckpointError, ConfigError
from rl_training.observations import Entry

SIDE = 3


def image(name: str, offset: int, stack: int, channels: int = 0) -> Entry:
    frame = (SIDE, SIDE, channels) if channels else (SIDE, SIDE)
    shape = frame if stack == 1 else (stack, *frame)
    return Entry(name, "image", shape, "uint8", offset, frames=stack, high=255)


def mixed(stack: int) -> tuple[Entry, ...]:
    """Vectors before, between and after two images of different sizes."""
    before = Entry("a", "vector", (2,), "float32", 0)
    one = image("b", 2, stack)
    between = Entry("c", "vector", (1,), "float32", one.place.stop)
    other = image("d", between.place.stop, stack, channels=2)
    return before, one, between, other, Entry("e", "vector", (1,), "float32", other.place.stop)


def only_image(stack: int) -> tuple[Entry, ...]:
    return (image("", 0, stack),)


@dataclass
class Reference:
    """Transitions of several environments, stored completely."""

    entries: tuple[Entry, ...]
    num_envs: int
    stack: int
    seed: int
    end_rate: float
    colors: int
    """Number of different frames; a small one gives frames that repeat."""
    rows: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.random = np.random.default_rng(self.seed)
        self.histories = [[self.frame()] * self.stack for _ in range(self.num_envs)]

    @property
    def width(self) -> int:
        return sum(entry.width for entry in self.entries)

    def frame(self) -> dict[str, Any]:
        """Return one frame of every image."""
        color = self.random.integers(0, self.colors)
        random = np.random.default_rng(int(color))
        sizes = {x.name: x.width // self.stack for x in self.entries if x.kind == "image"}
        return {name: random.integers(0, 256, size, np.uint8) for name, size in sizes.items()}

    def observe(self, history: list[dict[str, Any]]) -> Any:
        obs = np.empty(self.width, dtype=np.float32)
        for entry in self.entries:
            if entry.kind == "image":
                obs[entry.place] = np.concatenate([frame[entry.name] for frame in history])
            else:
                obs[entry.place] = self.random.normal(size=entry.width)
        return obs

    def step(self) -> list[Any]:
        """Return the arrays of one step, as `ReplayBuffer.add` takes them."""
        rows = []
        for env in range(self.num_envs):
            history = self.histories[env]
            obs = self.observe(history)
            history = [*history[1:], self.frame()]
            ended = self.random.random() < self.end_rate
            cut = bool(ended and self.random.random() < 0.5)
            row = {
                "obs": obs,
                "action": self.random.normal(size=2).astype(np.float32),
                "reward": np.float32(self.random.normal()),
                "next_obs": self.observe(history),
                "ended": ended and not cut,
                "cut": cut,
            }
            rows.append(row)
            self.histories[env] = [self.frame()] * self.stack if ended else history
        self.rows += rows
        keys = ("obs", "action", "reward", "next_obs", "ended", "cut")
        return [np.stack([row[key] for row in rows]) for key in keys]

    def expected(self, places: Any, total: int, capacity: int) -> list[dict[str, Any]]:
        """Return the newest rows at these places of a ring."""
        numbers = [total - 1 - (total - 1 - int(place)) % capacity for place in places]
        return [self.rows[number] for number in numbers]


def make(reference: Reference, capacity: int, kind: type[ReplayBuffer] = ReplayBuffer) -> Any:
    layout = FrameLayout.of(reference.entries)
    return kind(capacity, reference.width, 2, reference.num_envs, images=layout)


def check(buffer: ReplayBuffer, reference: Reference) -> None:
    places = buffer.drawn_rows
    batch = buffer.batch(places)
    rows = reference.expected(places, buffer.total, buffer.capacity)
    for name, values in (("obs", batch.obs), ("next_obs", batch.next_obs)):
        np.testing.assert_array_equal(values.numpy(), np.stack([row[name] for row in rows]))
    np.testing.assert_array_equal(batch.rewards, np.stack([row["reward"] for row in rows]))


def references() -> st.SearchStrategy[Reference]:
    return st.builds(
        lambda layout, stack, **options: Reference(layout(stack), stack=stack, **options),
        layout=st.sampled_from([mixed, only_image]),
        stack=st.integers(1, 4),
        num_envs=st.integers(1, 3),
        seed=st.integers(0, 100),
        end_rate=st.sampled_from([0.0, 0.1, 0.6, 1.0]),
        colors=st.sampled_from([1, 3, 10_000]),
    )


@settings(max_examples=40)
@given(reference=references(), capacity=st.integers(3, 20), steps=st.integers(1, 25))
def test_replay_returns_what_was_added(reference: Reference, capacity: int, steps: int) -> None:
    """Also where the rings of rows and frames wrap around, at different rows."""
    buffer = make(reference, capacity)
    for _ in range(steps):
        buffer.add(*reference.step())
        check(buffer, reference)
        assert 0 < buffer.frames.usable <= len(buffer)


@settings(max_examples=30)
@given(
    reference=references(),
    capacity=st.integers(3, 20),
    steps=st.tuples(st.integers(1, 15), st.integers(1, 15)),
)
def test_restored_replay_continues_exactly(
    reference: Reference, capacity: int, steps: tuple[int, int]
) -> None:
    whole, first, again = (make(reference, capacity) for _ in range(3))
    for _ in range(steps[0]):
        arrays = reference.step()
        whole.add(*arrays)
        first.add(*arrays)
    again.load_state_dict(first.state_dict())
    for kind, part in first.segmented().items():
        for index in range(part.num_segments()):
            again.segmented()[kind].load_segment(index, part.segment(index).copy())
    check(again, reference)
    for _ in range(steps[1]):
        arrays = reference.step()
        whole.add(*arrays)
        again.add(*arrays)
        check(again, reference)
    assert again.state_dict() == whole.state_dict()
    stored = min(whole.frames.written, whole.frames.num_places)
    assert torch.equal(again.frames.pixels[:stored], whole.frames.pixels[:stored])
    assert torch.equal(again.rows[: len(again)], whole.rows[: len(whole)])


def test_frames_are_stored_once() -> None:
    """An episode of n steps has n + 1 frames, with and without stacks."""
    for stack in (1, 4):
        reference = Reference(only_image(stack), 2, stack, 0, end_rate=0.0, colors=10_000)
        buffer = make(reference, 100)
        for _ in range(30):
            buffer.add(*reference.step())
        assert buffer.frames.written == 2 * 31


def test_last_observation_of_an_episode_is_stored() -> None:
    reference = Reference(only_image(1), 1, 1, 0, end_rate=1.0, colors=10_000)
    buffer = make(reference, 100)
    for _ in range(30):
        buffer.add(*reference.step())
    assert buffer.frames.written == 60
    check(buffer, reference)


def test_rows_keep_their_images_until_they_are_overwritten() -> None:
    """The spare places suffice for episodes of 16 steps and more."""
    reference = Reference(only_image(3), 2, 3, 0, end_rate=0.0, colors=10_000)
    buffer = make(reference, 200)
    for step in range(300):
        reference.end_rate = float(step % 17 == 16)
        buffer.add(*reference.step())
        assert buffer.frames.usable == len(buffer)


@pytest.mark.parametrize("end_rate", [0.0, 0.7])
def test_draws_are_uniform_over_rows_with_images(end_rate: float) -> None:
    reference = Reference(only_image(1), 1, 1, 0, end_rate=end_rate, colors=10_000)
    buffer = make(reference, 40)
    for _ in range(100):
        buffer.add(*reference.step())
    assert (buffer.frames.usable < len(buffer)) == (end_rate > 0)
    buffer.supply(("indices",))
    drawn = buffer.sample(20_000, torch.Generator().manual_seed(0)).indices
    counts = torch.bincount(drawn, minlength=40)
    assert set(np.flatnonzero(counts)) == set(buffer.drawn_rows.tolist())
    share = counts[counts > 0] / 20_000 * buffer.frames.usable
    assert (share - 1).abs().max() < 0.2


def test_every_row_with_images_has_one_index() -> None:
    reference = Reference(only_image(2), 2, 2, 0, end_rate=0.7, colors=10_000)
    buffer = make(reference, 40)
    lost = False
    for _ in range(60):
        buffer.add(*reference.step())
        places = buffer.places(torch.arange(int(buffer.filled)))
        assert sorted(places.tolist()) == sorted(buffer.drawn_rows.tolist())
        lost |= buffer.frames.usable < len(buffer)
    assert lost


def test_prioritized_replay_never_draws_lost_images() -> None:
    reference = Reference(only_image(2), 2, 2, 0, end_rate=0.7, colors=10_000)
    buffer = make(reference, 40, PrioritizedReplay)
    lost = False
    for _ in range(60):
        buffer.add(*reference.step())
        batch = buffer.sample(64, torch.Generator().manual_seed(0))
        assert set(batch.indices.tolist()) <= set(buffer.drawn_rows.tolist())
        rows = reference.expected(batch.indices, buffer.total, buffer.capacity)
        np.testing.assert_array_equal(batch.obs, np.stack([row["obs"] for row in rows]))
        buffer.feedback(batch, {"sample/td_error": torch.ones(64)})
        lost |= buffer.frames.usable < len(buffer)
    assert lost
    other = make(reference, 40, PrioritizedReplay)
    other.load_state_dict(buffer.state_dict())
    assert torch.equal(other.priorities.values, buffer.priorities.values)


@settings(max_examples=20)
@given(reference=references(), n_step=st.integers(2, 4))
def test_n_step_observations_are_those_of_the_last_step(reference: Reference, n_step: int) -> None:
    buffer = make(reference, 15)
    buffer.supply((), gamma=0.9, n_step=n_step)
    for _ in range(12):
        buffer.add(*reference.step())
    places = buffer.drawn_rows
    batch = buffer.batch(places)
    for index, place in enumerate(places.tolist()):
        number = buffer.total - 1 - (buffer.total - 1 - place) % buffer.capacity
        last = number
        for _ in range(n_step - 1):
            row = reference.rows[last]
            if row["ended"] or row["cut"] or last + reference.num_envs >= buffer.total:
                break
            last += reference.num_envs
        expected = reference.rows[last]["next_obs"]
        np.testing.assert_array_equal(batch.next_obs[index], expected)


def test_replay_of_images_is_within_a_tenth_of_their_bytes() -> None:
    """The issue's numbers: 100,000 frames of 84×84×3 take under 2.3 GB."""
    entry = Entry("", "image", (84, 84, 3), "uint8", 0, frames=1, high=255)
    layout = FrameLayout((entry,))
    rows = 100_000
    pixels = num_places(layout, rows) * layout.frame_size
    with torch.device("meta"):
        buffer = ReplayBuffer(rows, entry.width, 6, images=layout, device="meta")
        assert buffer.frames is not None
        size = buffer.frames.pixels.nbytes + buffer.rows.nbytes + 8 * rows
    assert size > pixels
    assert size < 2.3e9
    assert size < 1.1 * rows * 84 * 84 * 3


# --- Recorded data -----------------------------------------------------------------


@settings(max_examples=30)
@given(reference=references(), chunk=st.integers(1, 9), rows=st.sampled_from([4, 20]))
def test_recorded_frames_are_found(reference: Reference, chunk: int, rows: int) -> None:
    """The list grows if there are more frames than expected."""
    reference.num_envs = 1
    for _ in range(20):
        reference.step()
    layout = FrameLayout.of(reference.entries)
    assert layout is not None
    frames = FrameList(layout, rows=rows, episodes=1)
    obs, following = (np.stack([row[k] for row in reference.rows]) for k in ("obs", "next_obs"))
    stored: list[Any] = []
    stored_next: list[Any] = []
    for start in range(0, 20, chunk):
        parts = [layout.split(x[start : start + chunk]) for x in (obs, following)]
        places = frames.add(parts[0][1], parts[1][1])
        for part, (vectors, _), place in zip((stored, stored_next), parts, places, strict=True):
            part.append(np.concatenate([vectors, place], axis=1, dtype=np.float32))
    found = frames.frames()
    for part, expected in ((stored, obs), (stored_next, following)):
        decoded = found.decode(torch.from_numpy(np.concatenate(part)))
        np.testing.assert_array_equal(decoded, expected)


# --- Damage --------------------------------------------------------------------------


def test_altered_segments_and_counters_are_rejected() -> None:
    reference = Reference(only_image(2), 1, 2, 0, end_rate=0.2, colors=10_000)
    buffer, other = make(reference, 20), make(reference, 20)
    for _ in range(10):
        buffer.add(*reference.step())
    state, rows, frames = buffer.state_dict(), buffer.segment(0).copy(), buffer.frames.segment(0)
    other.load_state_dict(state)
    for wrong in (frames[:-1], frames.astype(np.float32), frames[:, :-1], frames.view(np.int8)):
        with pytest.raises(CheckpointError, match=r"frame segment 0 contains .* uint8"):
            other.frames.load_segment(0, wrong)
    for value in (-1.0, 0.5, 1e6, float("nan")):
        altered = rows.copy()
        altered[3, 1] = value
        with pytest.raises(CheckpointError, match="refers to frames other than 0 to"):
            other.load_segment(0, altered)
    for change in ({"frames": 0}, {"frames": -1}, {"usable": 99}, {"usable": 0}, {"frames": 1.5}):
        with pytest.raises(CheckpointError):
            other.load_state_dict(state | {"images": state["images"] | change})
    with pytest.raises(KeyError):
        other.load_state_dict({k: v for k, v in state.items() if k != "images"})


def test_capacity_is_limited_by_the_numbers_of_frames() -> None:
    layout = FrameLayout(only_image(1))
    with pytest.raises(ConfigError, match="buffer_capacity = 16000000: should be at most 15,728,"):
        FrameRing(layout, 16_000_000)


def test_encoder_is_exact_for_observations_that_do_not_continue_each_other() -> None:
    layout = FrameLayout(only_image(3))
    encoder = FrameEncoder(layout)
    random = np.random.default_rng(0)
    pixels: list[Any] = []
    for _ in range(5):
        obs, following = random.integers(0, 256, (2, 1, 3, 9), np.uint8)
        numbers, next_numbers, fresh = encoder.encode(obs, following)
        pixels += list(fresh)
        store = Frames(layout, torch.from_numpy(np.stack(pixels)))
        for found, expected in ((numbers, obs), (next_numbers, following)):
            decoded = store.decode(torch.from_numpy(found.astype(np.float32)))
            np.testing.assert_array_equal(decoded, expected.reshape(1, -1))
    assert encoder.written == 30
