"""Datasets of any origin are loaded correctly or rejected with a reason."""

from __future__ import annotations

import builtins
import json
import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from rl_training import train
from rl_training.api.datasets import convert_data, inspect_data, read_raw, validate_data
from rl_training.cli import app
from rl_training.data import DataConfig, EpochSampler, TransitionDataset, load_transition_dataset
from rl_training.data.column_names import ALIASES
from rl_training.data.dataset_writers import as_arrays, dataset_columns, write_arrays
from rl_training.data.recorded import RecordedData
from rl_training.envs import EnvConfig, describe_env
from rl_training.errors import ConfigError
from rl_training.experiment.build import build_algorithm
from rl_training.experiment.config import make_config
from rl_training.experiment.dataset_source import RunData, load_dataset, prepare_sampler
from rl_training.experiment.saved_run import SavedRun
from rl_training.experiment.task import check_config
from rl_training.runtime.checkpoint_writer import CheckpointWriter
from rl_training.runtime.engine import Engine
from rl_training.runtime.recording import record_random
from rl_training.types import EnvSpec

SPEC = EnvSpec(2, 1, (-2.0,), (6.0,))
Arrays = dict[str, Any]


def make_data(lengths: list[int], *, ends: str = "timeouts", seed: int = 0) -> Arrays:
    """Create episodes with observations (episode, time), which would reveal mixed-up rows."""
    rng = np.random.default_rng(seed)
    obs, following, terminals, timeouts = [], [], [], []
    for episode, length in enumerate(lengths):
        for time in range(length):
            obs.append([episode, time])
            following.append([episode, time + 1])
            last = time == length - 1
            terminals.append(last and ends == "terminals")
            timeouts.append(last and ends == "timeouts")
    n = len(obs)
    return {
        "observations": np.array(obs, dtype=np.float32),
        "actions": rng.uniform(-2, 6, (n, 1)).astype(np.float32),
        "rewards": rng.normal(size=n).astype(np.float32),
        "next_observations": np.array(following, dtype=np.float32),
        "terminals": np.array(terminals),
        "timeouts": np.array(timeouts),
    }


def without(data: Arrays, *keys: str) -> Arrays:
    return {key: value for key, value in data.items() if key not in keys}


LENGTHS = st.lists(st.integers(1, 6), min_size=1, max_size=6)


@settings(deadline=None)
@given(lengths=LENGTHS, ends=st.sampled_from(["timeouts", "terminals"]))
def test_from_dict_round_trips(lengths: list[int], ends: str) -> None:
    data = make_data(lengths, ends=ends)
    dataset = TransitionDataset.from_dict(data)
    assert len(dataset) == sum(lengths)
    for name, values in as_arrays(dataset_columns(dataset)).items():
        np.testing.assert_array_equal(values, data[name])
    assert np.diff(dataset.episode_bounds()).tolist() == lengths
    again = TransitionDataset.from_dict(as_arrays(dataset_columns(dataset)))
    assert torch.equal(again.rows, dataset.rows)


@settings(deadline=None)
@given(lengths=LENGTHS, ends=st.sampled_from(["timeouts", "terminals"]))
def test_implied_next_observations_equal_given_ones(lengths: list[int], ends: str) -> None:
    data = make_data(lengths, ends=ends)
    given_rows = TransitionDataset.from_dict(data)
    if ends == "timeouts" and max(lengths) == 1:
        with pytest.raises(ConfigError, match="every episode has a single row"):
            TransitionDataset.from_dict(without(data, "next_observations"))
        return
    implied = TransitionDataset.from_dict(without(data, "next_observations"))
    obs, following = implied.column("observations"), implied.column("next_observations")
    running = implied.column("terminations") == 0
    np.testing.assert_array_equal(following[running], obs[running] + [0, 1])
    kept = sum(lengths) if ends == "terminals" else sum(n - 1 for n in lengths)
    assert len(implied) == kept
    expected = lengths if ends == "terminals" else [n - 1 for n in lengths if n > 1]
    assert np.diff(implied.episode_bounds()).tolist() == expected
    assert len(given_rows) >= len(implied)


@pytest.mark.parametrize("field", list(ALIASES))
def test_every_alias_is_recognized(field: str) -> None:
    data = make_data([3, 2], ends="terminals")
    stored = {"terminations": "terminals", "truncations": "timeouts"}.get(field, field)
    expected = TransitionDataset.from_dict(data)
    for alias in ALIASES[field]:
        renamed = without(data, stored) | {alias: data[stored]}
        assert torch.equal(TransitionDataset.from_dict(renamed).rows, expected.rows)


def test_actions_are_mapped_by_the_bounds() -> None:
    data = make_data([4])
    data["actions"] = np.array([[-2.0], [2.0], [6.0], [6.000001]])
    actions = TransitionDataset.from_dict(data, spec=SPEC).column("actions")
    np.testing.assert_allclose(actions[:, 0], [-1, 0, 1, 1], atol=1e-6)


def test_discrete_actions_stay_indices() -> None:
    data = make_data([3]) | {"actions": np.array([0, 2, 1])}
    spec = EnvSpec(2, 3, discrete=True)
    actions = TransitionDataset.from_dict(data, spec=spec).column("actions")
    assert actions[:, 0].tolist() == [0, 2, 1]
    with pytest.raises(ConfigError, match="should be an integer from 0 to 1"):
        TransitionDataset.from_dict(data, spec=EnvSpec(2, 2, discrete=True))
    shifted = EnvSpec(2, 3, discrete=True, action_start=4)
    with pytest.raises(ConfigError, match="should be an integer from 4 to 6"):
        TransitionDataset.from_dict(data, spec=shifted)
    data["actions"] += 4
    actions = TransitionDataset.from_dict(data, spec=shifted).column("actions")
    assert actions[:, 0].tolist() == [0, 2, 1]


def test_one_done_flag_is_read_and_reported(tmp_path: Path) -> None:
    data = without(make_data([4, 2, 4], ends="terminals"), "timeouts")
    dataset = TransitionDataset.from_dict(data)
    assert dataset.column("terminations").sum() == 3
    assert any("read as terminations" in note for note in dataset.notes)
    done = without(data, "terminals") | {"dones": data["terminals"]}
    np.savez(tmp_path / "d.npz", **done)
    config = DataConfig(dataset_kind="npz", dataset_path=str(tmp_path / "d.npz"))
    limited = load_transition_dataset(config, time_limit=4)
    assert limited.column("truncations").nonzero()[0].tolist() == [3, 9]
    assert limited.column("terminations").nonzero()[0].tolist() == [5]
    assert any(note.endswith("are read as truncations (2)") for note in limited.notes)
    no_flag = TransitionDataset.from_dict(without(data, "terminals"))
    assert any("one episode, and no row terminates" in note for note in no_flag.guesses)


def test_singular_and_next_names_are_recognized() -> None:
    """Otherwise, next observations would come from the next row, possibly of another episode."""
    data = make_data([3, 2], ends="terminals")
    named = {
        "state": data["observations"],
        "action": data["actions"],
        "reward": data["rewards"],
        "next_state": data["next_observations"] + 7,
        "done": data["terminals"],
    }
    dataset = TransitionDataset.from_dict(named)
    np.testing.assert_array_equal(dataset.column("next_observations"), named["next_state"])
    assert dataset.guesses == ()
    following = {f"next_{alias}" for alias in ALIASES["observations"]}
    assert set(ALIASES["next_observations"]) == following


def test_unused_columns_are_reported() -> None:
    data = make_data([3, 2], ends="terminals")
    assert TransitionDataset.from_dict(data).notes == ()
    odd = without(data, "terminals") | {"terminal_flags": data["terminals"], "when": np.arange(5)}
    odd["about"] = np.zeros(3)  # not one value per row, so not a column
    guesses = TransitionDataset.from_dict(odd).guesses
    assert guesses[-1] == "unused columns: 'terminal_flags', 'when'"
    assert any("'timeouts' is the only column for episode ends" in g for g in guesses)


def test_done_with_truncated_is_a_time_limit() -> None:
    data = make_data([3, 2])
    both = without(data, "terminals", "timeouts")
    both |= {"done": data["timeouts"], "truncated": data["timeouts"]}
    dataset = TransitionDataset.from_dict(both)
    assert dataset.column("terminations").sum() == 0
    assert dataset.column("truncations").sum() == 2


@pytest.mark.parametrize("name", ["data.npz", "data.pt", "data.hdf5"])
def test_all_formats_store_the_same_data(tmp_path: Path, name: str) -> None:
    data = make_data([5, 3, 4])
    write_arrays(data, tmp_path / name)
    loaded = load_transition_dataset(
        {"dataset_kind": Path(name).suffix[1:], "dataset_path": str(tmp_path / name)}
    )
    assert torch.equal(loaded.rows, TransitionDataset.from_dict(data).rows)
    with pytest.raises(ConfigError, match="already exists"):
        write_arrays(data, tmp_path / name)


def test_compressed_and_fortran_archives(tmp_path: Path) -> None:
    data = make_data([5, 3])
    expected = TransitionDataset.from_dict(data).rows
    turned = {key: np.asfortranarray(value) for key, value in data.items()}
    np.savez_compressed(tmp_path / "c.npz", **turned)  # type: ignore[arg-type]
    loaded = load_transition_dataset(
        {"dataset_kind": "npz", "dataset_path": str(tmp_path / "c.npz")}
    )
    assert torch.equal(loaded.rows, expected)


def test_random_data_is_collected_from_size_and_seed() -> None:
    def collect(size: int, seed: int) -> Any:
        return record_random("Pendulum-v1", {}, size, seed)

    config = DataConfig(dataset_kind="random", dataset_size=250, dataset_seed=3)
    first = load_transition_dataset(config, collect_random=collect)
    second = load_transition_dataset(config, collect_random=collect)
    assert torch.equal(first.rows, second.rows)
    assert np.diff(first.episode_bounds()).tolist() == [200, 50]
    other = DataConfig(dataset_kind="random", dataset_size=250, dataset_seed=4)
    assert not torch.equal(load_transition_dataset(other, collect_random=collect).rows, first.rows)


def test_return_scaling_and_normalization() -> None:
    data = make_data([4, 4, 4])
    dataset = TransitionDataset.from_dict(data)
    spread = dataset.statistics().return_range
    scaled = load_transition_dataset(
        DataConfig(dataset_kind="random", return_scaling=True), collect_random=lambda *_: data
    )
    assert scaled.statistics().return_range == pytest.approx(1000.0, rel=1e-4)
    np.testing.assert_allclose(scaled.column("rewards"), data["rewards"] * 1000 / spread, rtol=1e-4)
    statistics = dataset.statistics()
    dataset.normalize_observations(statistics.obs_mean, statistics.obs_std + 1e-3)
    obs = dataset.column("observations")
    np.testing.assert_allclose(obs.mean(axis=0), 0, atol=1e-5)
    np.testing.assert_allclose(obs.std(axis=0), 1, atol=5e-3)


@pytest.mark.parametrize(
    ("lengths", "ends", "limit", "whole"),
    [
        ([4, 4, 2], "timeouts", None, False),  # the other episodes reveal the limit
        ([4, 4, 4], "timeouts", None, True),
        ([3, 3, 3], "timeouts", 4, True),  # a recorder that omits the last row of each episode
        ([4, 4, 2], "terminals", None, True),
        ([4, 2], "timeouts", 4, True),  # a single episode would have no range
        ([2], "timeouts", 4, True),
    ],
)
def test_incomplete_last_episode_does_not_scale_returns(
    lengths: list[int], ends: str, limit: int | None, whole: bool
) -> None:
    """Its return is far from the others and would determine the range."""
    data = make_data(lengths, ends=ends)
    data["rewards"][-lengths[-1] :] = 100.0
    statistics = TransitionDataset.from_dict(data).statistics(limit)
    assert statistics.whole.tolist() == [True] * (len(lengths) - 1) + [whole]
    returns = statistics.returns if whole else statistics.returns[:-1]
    assert statistics.return_range == pytest.approx(np.ptp(returns))


@pytest.mark.parametrize(("limit", "whole"), [(None, False), (4, False), (2, True)])
def test_time_limit_decides_if_no_other_episode_was_truncated(
    limit: int | None, whole: bool
) -> None:
    data = make_data([4, 3, 2], ends="terminals")
    data["terminals"][-1], data["timeouts"][-1] = False, True
    assert TransitionDataset.from_dict(data).statistics(limit).whole[-1] == whole
    data["rewards"][-1] = 100.0
    scaled = load_transition_dataset(
        DataConfig(dataset_kind="random", return_scaling=True),
        collect_random=lambda *_: data,
        time_limit=limit,
    )
    returns = TransitionDataset.from_dict(data).statistics().returns[: 3 if whole else 2]
    assert scaled.return_scale == pytest.approx(1000 / np.ptp(returns))


@pytest.mark.parametrize(
    ("lengths", "whole"),
    [
        ([4, 4, 1, 4, 4, 2], [1, 1, 0, 1, 1, 0]),  # two environments
        ([3, 4, 4, 4], [0, 1, 1, 1]),  # an overwritten ring buffer
        ([4, 3, 2, 4], [1, 1, 1, 1]),  # an environment that truncates at any time
    ],
)
def test_pieces_of_a_replay_do_not_scale_returns(lengths: list[int], whole: list[int]) -> None:
    statistics = TransitionDataset.from_dict(make_data(lengths, ends="timeouts")).statistics()
    assert statistics.whole.tolist() == [bool(each) for each in whole]


def test_last_collected_episode_counts_as_incomplete() -> None:
    """The last row of an unfinished episode is marked as truncated."""
    dataset = TransitionDataset.from_dict(record_random("Pendulum-v1", {}, 450, 0))
    assert dataset.column("truncations")[-1] == 1
    assert dataset.statistics(200).whole.tolist() == [True, True, False]


# --- Sampling ---------------------------------------------------------------------


@settings(deadline=None)
@given(rows=st.integers(1, 40), share=st.floats(0.01, 1.0), rounds=st.integers(1, 12))
def test_epochs_visit_every_row_once(rows: int, share: float, rounds: int) -> None:
    batch = max(1, int(rows * share))
    dataset = TransitionDataset.from_dict(make_data([rows]))
    sampler, generator = EpochSampler(dataset), torch.Generator().manual_seed(0)
    drawn = [sampler.sample(batch, generator).obs[:, 1] for _ in range(rounds)]
    order = torch.cat(drawn).long().tolist()
    for start in range(0, len(order), rows):
        epoch = order[start : start + rows]
        assert len(set(epoch)) == len(epoch)
        if len(epoch) == rows:
            assert set(epoch) == set(range(rows))


def test_blocks_of_batches_equal_single_ones() -> None:
    """Like in a captured graph: prepared once for a block, then gathered without the host."""
    dataset = TransitionDataset.from_dict(make_data([50]))
    singles, generator = EpochSampler(dataset), torch.Generator().manual_seed(0)
    expected = [singles.sample(8, generator).obs.tolist() for _ in range(16)]
    blocks, generator = EpochSampler(dataset), torch.Generator().manual_seed(0)
    found = []
    for _ in range(4):
        blocks.prepare(8, generator, updates=4)
        found += [blocks.gather(8, generator).obs.tolist() for _ in range(4)]
    assert found == expected


def test_batch_larger_than_the_dataset_is_rejected() -> None:
    sampler = EpochSampler(TransitionDataset.from_dict(make_data([5])))
    with pytest.raises(ConfigError, match="batch_size = 8: a block needs 8 rows"):
        sampler.sample(8, torch.Generator())


def test_sampling_with_replacement_draws_exactly_the_rows() -> None:
    dataset = TransitionDataset.from_dict(make_data([30]))
    batch = dataset.sample(2000, torch.Generator().manual_seed(0))
    assert set(batch.obs[:, 1].long().tolist()) == set(range(30))


@pytest.mark.parametrize("cut", [1, 3, 4, 7])
def test_epochs_resume_at_the_exact_position(cut: int) -> None:
    dataset = TransitionDataset.from_dict(make_data([25]))

    def draw(sampler: EpochSampler, generator: torch.Generator, times: int) -> list[Any]:
        return [sampler.sample(8, generator).obs.tolist() for _ in range(times)]

    whole = draw(EpochSampler(dataset), torch.Generator().manual_seed(0), 10)
    first, generator = EpochSampler(dataset), torch.Generator().manual_seed(0)
    head = draw(first, generator, cut)
    second, later = EpochSampler(dataset), torch.Generator()
    second.load_state_dict(first.state_dict())
    later.set_state(generator.get_state())
    assert head + draw(second, later, 10 - cut) == whole


# --- Bad input --------------------------------------------------------------------


def bad_data() -> dict[str, tuple[Arrays, str]]:
    data = make_data([4, 4])
    nan = data["rewards"].copy()
    nan[5] = np.nan
    far = data["actions"] * 3
    return {
        "unequal lengths": (data | {"rewards": np.zeros(3)}, "'rewards' has 3 rows"),
        "two-dimensional rewards": (
            data | {"rewards": np.zeros((8, 2))},
            r"should have shape \(8,\)",
        ),
        "other shapes": (data | {"observations": np.zeros((8, 4, 4))}, r"\(2,\), but .* \(4, 4\)"),
        "next observations with another size": (
            data | {"next_observations": np.zeros((8, 3))},
            r"next observations have shape \(3,\)",
        ),
        "nan": (data | {"rewards": nan}, "rewards has values that are not finite in row 5"),
        "infinite": (data | {"observations": np.full((8, 2), np.inf)}, "not finite"),
        "too large for float32": (data | {"rewards": np.full(8, 1e300)}, "not finite"),
        "out of bounds": (data | {"actions": far}, "outside its bounds -2 to 6"),
        "flags equal to 255": (
            data | {"terminals": 255 * data["timeouts"].astype(np.uint8)},
            r"'terminals' has values other than 0 and 1 in 2 rows, first 255 in row 3: store",
        ),
        "a negative flag": (
            data | {"timeouts": -data["timeouts"].astype(np.float32)},
            "'timeouts' .* first -1 in row 3",
        ),
        "a fractional flag": (
            without(data, "terminals") | {"done": 0.5 * data["timeouts"]},
            "'done' .* first 0.5 in row 3",
        ),
        "text": (data | {"actions": np.array(["a"] * 8)}, "should contain numbers"),
        "complex": (data | {"rewards": np.ones(8) * 1j}, "should contain numbers"),
        "empty": ({k: v[:0] for k, v in data.items()}, "has no rows"),
        "no actions": (
            without(data, "actions"),
            "has no column for actions. It should be named actions or action; the",
        ),
        "twice": (
            data | {"obs": data["observations"]},
            "has both 'observations' and 'obs' for observations: remove one",
        ),
        "other environment": (
            data | {"observations": np.zeros((8, 5)), "next_observations": np.zeros((8, 5))},
            "has 5 observation values and 1 action value, but the environment has 2 obs",
        ),
    }


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize(("data", "sentence"), bad_data().values(), ids=list(bad_data()))
def test_bad_data_gets_a_clear_error(data: Arrays, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence) as caught:
        TransitionDataset.from_dict(data, spec=SPEC)
    assert "\n" not in str(caught.value)


class Evil:
    """Unpickling it would write a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return (Path.write_text, (self.path, "ran"))


def load(path: Path) -> RecordedData:
    kind: Any = {".npz": "npz", ".pt": "pt", ".hdf5": "hdf5"}[path.suffix]
    return load_transition_dataset(DataConfig(dataset_kind=kind, dataset_path=str(path)))


def test_files_never_run_code(tmp_path: Path) -> None:
    sentinel = tmp_path / "sentinel"
    objects = np.array([Evil(sentinel)], dtype=object)
    np.savez(tmp_path / "o.npz", observations=objects, allow_pickle=True)
    (tmp_path / "o.pt").write_bytes(pickle.dumps({"observations": Evil(sentinel)}))
    torch.save({"observations": Evil(sentinel)}, tmp_path / "t.pt")
    for name in ("o.npz", "o.pt", "t.pt"):
        with pytest.raises(
            ConfigError, match=r"Python objects|not a pt file|dict of tensors, the only"
        ) as caught:
            load(tmp_path / name)
        assert "\n" not in str(caught.value)
    assert not sentinel.exists()


@pytest.mark.parametrize("name", ["d.npz", "d.pt", "d.hdf5"])
@pytest.mark.parametrize("damage", ["empty", "cut", "garbage", "missing"])
def test_damaged_files_get_a_clear_error(tmp_path: Path, name: str, damage: str) -> None:
    path = tmp_path / name
    write_arrays(make_data([300, 300]), path)
    whole = path.read_bytes()
    if damage == "missing":
        path.unlink()
    else:
        path.write_bytes(
            {"empty": b"", "cut": whole[: len(whole) // 2], "garbage": b"\x07" * 999}[damage]
        )
    with pytest.raises(ConfigError) as caught:
        load(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_pt_file_must_contain_tensors(tmp_path: Path) -> None:
    torch.save([torch.zeros(3)], tmp_path / "list.pt")
    with pytest.raises(ConfigError, match="dict of tensors"):
        load(tmp_path / "list.pt")


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"dataset_kind": "npz"}, "needs dataset_path"),
        ({"dataset_kind": "minari"}, "needs dataset_id"),
        ({"dataset_kind": "npy"}, "needs dataset_path"),
        ({"dataset_path": "x.csv"}, "'x.csv' is neither a dataset file"),
        ({"dataset_path": "x"}, "nor a folder of .npy files, nor a Minari id"),
        ({"dataset_path": "x.npz", "dataset_id": "a/b-v0"}, "are both set: set only one"),
        (
            {"dataset_path": "x.h5", "dataset_kind": "npz"},
            "dataset_path = 'x.h5' contradicts dataset_kind = npz: remove one",
        ),
        (
            {"dataset_id": "a/b-v0", "dataset_kind": "npz", "dataset_path": "x.npz"},
            "dataset_id = 'a/b-v0' contradicts dataset_kind = npz: remove one",
        ),
        ({"dataset_path": "x.npz", "dataset_kind": "random"}, "contradicts dataset_kind = random"),
        ({"dataset_kind": "csv"}, "dataset_kind"),
        ({"dataset_size": 0}, "dataset_size"),
        (
            {"reward_clip_min": 2, "reward_clip_max": 1},
            "clip_min = 2.0 must be below clip_max = 1.0",
        ),
    ],
)
def test_incomplete_settings(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        DataConfig(**settings)


def test_missing_minari_error_has_the_install_command(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    real = builtins.__import__

    def refuse(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.split(".")[0] in ("minari", "h5py"):
            raise ImportError(name)
        return real(name, *args, **kwargs)

    for module in [name for name in sys.modules if name.split(".")[0] == "minari"]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(ConfigError, match=r"pip install 'rl-training\[offline\]'"):
        load_transition_dataset(
            {"dataset_kind": "minari", "dataset_id": "x/y-v0", "dataset_download": True}
        )


def test_unknown_minari_id(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    with pytest.raises(ConfigError, match=r"'no/such-v0' is not on this machine.*dataset_download"):
        load_transition_dataset(DataConfig(dataset_kind="minari", dataset_id="no/such-v0"))


def test_minari_round_trip(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("minari")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    (tmp_path / "minari").mkdir()
    data = record_random("Pendulum-v1", {}, 450, 0)
    write_arrays(data, tmp_path / "p.npz")
    convert_data(str(tmp_path / "p.npz"), "minari:tests/pendulum-v0", env_id="Pendulum-v1")
    loaded = read_raw("tests/pendulum-v0")
    assert torch.equal(loaded.rows, read_raw(str(tmp_path / "p.npz")).rows)
    report, problems = validate_data("tests/pendulum-v0")
    assert (report.rows, report.episodes, problems) == (450, 3, [])


# --- Replay data of a run -----------------------------------------------------------


@pytest.mark.parametrize(("num_envs", "capacity", "rows"), [(1, 5_000, 270), (3, 200, 200)])
def test_replay_becomes_a_dataset(
    small_config: Callable[..., Any], tmp_path: Path, num_envs: int, capacity: int, rows: int
) -> None:
    """Rows are in order, also after wrap-around and for interleaved environments, and unscaled."""
    config = small_config(total_timesteps=270 * num_envs, num_envs=num_envs)
    config["algo_kwargs"] |= {"learning_starts": 10_000, "buffer_capacity": capacity}
    run = str(train(config).run_dir)
    file = convert_data(run, str(tmp_path / "replay.npz"))
    with np.load(file) as data:
        columns = dict(data)
    obs, following = columns["observations"], columns["next_observations"]
    ended = columns["terminals"] | columns["timeouts"]
    assert len(obs) == rows
    assert not columns["terminals"].any()
    np.testing.assert_array_equal(following[:-1][~ended[:-1]], obs[1:][~ended[:-1]])
    ends = np.flatnonzero(ended) + 1
    if num_envs == 1:
        assert ends.tolist() == [200, 270]
    else:  # the newest 200 of 810 rows: steps 204 to 269 of environment 0, from 203 on of others
        assert ends.tolist() == [66, 133, 200]
    angle = np.arctan2(obs[:, 1], obs[:, 0])
    torque = columns["actions"][:, 0]
    assert np.abs(torque).max() > 1.5
    cost = angle**2 + 0.1 * obs[:, 2] ** 2 + 0.001 * torque**2
    np.testing.assert_allclose(columns["rewards"], -cost, rtol=1e-4, atol=1e-5)
    report, problems = validate_data(run)
    assert (report.rows, report.discontinuities, problems) == (rows, 0, [])


def test_replay_of_discrete_actions_starts_at_the_space_start(
    small_config: Callable[..., Any], tmp_path: Path
) -> None:
    run = str(train(small_config(algo="dqn")).run_dir)
    with np.load(convert_data(run, str(tmp_path / "replay.npz"))) as data:
        assert set(data["actions"].tolist()) == {0, 1}
        assert (data["actions"].dtype, data["actions"].shape) == (np.int64, (120,))
    assert validate_data(run)[1] == []


def test_integers_stay_integers_from_file_to_file(tmp_path: Path) -> None:
    data = record_random("CartPole-v1", {}, 30, 0)
    write_arrays(data, tmp_path / "a.npz")
    with np.load(convert_data(str(tmp_path / "a.npz"), str(tmp_path / "b.npz"))) as copied:
        assert copied["actions"].dtype == np.int64
        assert np.array_equal(copied["actions"], data["actions"])


@pytest.mark.parametrize(
    ("changes", "kwargs", "sentence"),
    [
        ({"algo": "bc"}, {}, "was trained on recorded data and has no replay"),
        ({"algo": "her"}, {}, "a replay with goals"),
        ({}, {"reward_scale": 0.1}, "a replay with transformed rewards"),
    ],
)
def test_replay_that_is_not_a_dataset_is_rejected(
    small_config: Callable[..., Any],
    tmp_path: Path,
    changes: dict[str, Any],
    kwargs: dict[str, Any],
    sentence: str,
) -> None:
    config = small_config(**changes)
    config["algo_kwargs"] |= kwargs
    run = train(config).run_dir
    with pytest.raises(ConfigError, match=sentence):
        convert_data(str(run), str(tmp_path / "replay.npz"))
    assert not (tmp_path / "replay.npz").exists()


# --- Checking ---------------------------------------------------------------------


def test_inspection_counts_problems(tmp_path: Path) -> None:
    data = make_data([5, 5])
    data["rewards"][2] = np.nan
    for key in data:
        data[key] = np.concatenate([data[key], data[key][:1]])
    data["next_observations"][7] += 3
    write_arrays(data, tmp_path / "d.npz")
    report = inspect_data(str(tmp_path / "d.npz"), tmp_path / "d.png")
    assert (report.rows, report.not_finite, report.duplicates) == (11, 1, 1)
    assert report.discontinuities == 1
    assert (tmp_path / "d.png").read_bytes()[:4] == b"\x89PNG"
    told = CliRunner().invoke(app, ["data", "inspect", str(tmp_path / "d.npz"), "--json"]).stdout

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    figures = json.loads(told, parse_constant=refuse)
    assert (figures["reward_mean"], figures["not_finite"]) == (None, 1)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({}, None),
        ({"actions": 3.0}, "actions: "),
        ({"observations": 9.0}, "observations: "),
        ({"next_observations": 0.5}, "discontinuities: "),
        ({"rewards": np.nan}, "not finite: "),
    ],
)
def test_validation_reports_each_problem(tmp_path: Path, change: Any, problem: str | None) -> None:
    data = record_random("Pendulum-v1", {}, 400, 0)
    for key, value in change.items():
        data[key][10] = value
    write_arrays(data, tmp_path / "d.npz")
    _, problems = validate_data(str(tmp_path / "d.npz"), "Pendulum-v1")
    if problem is None:
        assert problems == []
    else:
        assert any(text.startswith(problem) for text in problems)


@pytest.mark.parametrize("column", ["terminals", "timeouts"])
def test_flags_other_than_0_and_1_are_read_and_reported(tmp_path: Path, column: str) -> None:
    """Also if the row of the flag is dropped because its next observation is missing."""
    data = without(record_random("Pendulum-v1", {}, 400, 0), "next_observations")
    data[column] = 255 * data["timeouts"].astype(np.uint8)
    file = str(write_arrays(data, tmp_path / "d.npz"))
    found = f"{column!r} has values other than 0 and 1 in 2 rows, first 255 in row 199"
    report, problems = validate_data(file, "Pendulum-v1")
    assert [odd.split(":")[0] for odd in report.odd_flags] == [found]
    assert any(text.startswith(f"flags: {found}") for text in problems)
    assert f"Problem: flags: {found}" in CliRunner().invoke(app, ["data", "inspect", file]).output
    with pytest.raises(ConfigError, match="other than 0 and 1"):
        convert_data(file, str(tmp_path / "other.npz"))
    assert not (tmp_path / "other.npz").exists()


def test_time_limits_stored_as_terminations_are_reported(tmp_path: Path) -> None:
    data = record_random("Pendulum-v1", {}, 400, 0)
    data["terminals"], data["timeouts"] = data["timeouts"], data["terminals"]
    write_arrays(data, tmp_path / "d.npz")
    _, problems = validate_data(str(tmp_path / "d.npz"), "Pendulum-v1")
    assert any("limits seem to be stored as terminations" in text for text in problems)
    with pytest.raises(
        ConfigError, match=r"has 3 observation values .* but Mount.* has 2 observation"
    ):
        validate_data(str(tmp_path / "d.npz"), "MountainCarContinuous-v0")


# --- Training -----------------------------------------------------------------------


def test_normalization_is_saved_and_applied_at_prediction(tmp_path: Path) -> None:
    """The checkpoint contains the dataset's statistics; prediction takes raw observations."""
    settings = {"dataset_kind": "random", "dataset_size": 300, "normalize_states": True}
    settings |= {
        "hidden_sizes": [8],
        "batch_size": 16,
        "sampling": "epochs",
        "return_scaling": True,
    }
    config = make_config(
        {
            "algo": "sac",
            "env_id": "Pendulum-v1",
            "total_timesteps": 10,
            "algo_kwargs": settings,
        }
    ).resolved()
    spec = describe_env("Pendulum-v1", EnvConfig())
    learner = build_algorithm(config, spec, torch.device("cpu"))
    dataset = load_dataset(config, spec)
    raw = dataset.column("observations").copy()
    sampler = prepare_sampler(config, RunData(dataset, None, {}), learner)
    assert isinstance(sampler, EpochSampler)
    assert dataset.column("observations").std(axis=0) == pytest.approx(np.ones(3), abs=0.02)
    assert dataset.statistics().return_range == pytest.approx(1000, rel=1e-3)
    Engine(learner, sampler, seed=0).run(3)
    path = CheckpointWriter(tmp_path, keep=2).save(
        step=1,
        tensors=learner.state_dict(),
        state={},
        storage=None,
        manifest={
            "config": {k: v for k, v in config.to_dict().items() if k != "output_dir"},
            "env_spec": spec.to_dict(),
            "algorithm": "sac",
        },
    )
    policy = SavedRun.load(path).load_policy()
    normalized = torch.from_numpy(dataset.column("observations"))
    inside = learner.choose_actions(normalized, deterministic=True, noise=None)
    np.testing.assert_allclose(policy(raw), 2.0 * inside.detach().numpy(), atol=1e-4)


def test_online_algorithm_rejects_a_dataset() -> None:
    config = make_config(
        {
            "algo": "sac",
            "env_id": "Pendulum-v1",
            "total_timesteps": 10,
            "algo_kwargs": {"dataset_kind": "random"},
        }
    )
    with pytest.raises(ConfigError, match="dataset_kind = random is for recorded data, but sac"):
        check_config(config)


@pytest.mark.parametrize(
    ("key", "value"),
    [("normalize_states", True), ("return_scaling", True), ("sampling", "epochs")],
)
def test_options_for_recorded_data_are_rejected_online(
    small_config: Callable[..., Any], key: str, value: Any
) -> None:
    config = small_config()
    config["algo_kwargs"][key] = value
    with pytest.raises(ConfigError, match=f"{key} = {value} is for recorded data"):
        check_config(make_config(config))


def test_dataset_path_may_be_a_path_object(recorded: Path) -> None:
    loaded = load_transition_dataset({"dataset_kind": "npz", "dataset_path": recorded})
    assert len(loaded) == 450


def test_dataset_size_is_rejected_for_a_file(
    small_config: Callable[..., Any],
) -> None:
    config = small_config(algo="iql")
    config["algo_kwargs"]["dataset_size"] = 100
    with pytest.raises(ConfigError, match="dataset_size only applies to dataset_kind 'random'"):
        check_config(make_config(config))


def test_environment_with_a_custom_time_limit(
    small_config: Callable[..., Any], tmp_path: Path
) -> None:
    """With a single done flag, episodes that end at the requested limit are truncations."""
    data = record_random("Pendulum-v1", {"max_episode_steps": 100}, 400, 0)
    data["dones"] = data.pop("timeouts") | data.pop("terminals")
    np.savez(tmp_path / "d.npz", **data)  # type: ignore[arg-type]
    config = small_config(algo="iql", env_kwargs={"max_episode_steps": 100})
    config["algo_kwargs"] |= {"dataset_path": str(tmp_path / "d.npz")}
    task = check_config(make_config(config))
    assert task.data is not None
    assert task.data.train.column("terminations").sum() == 0
    assert task.data.train.column("truncations").sum() == 4


def test_replay_is_validated_with_the_time_limit_of_its_run(
    small_config: Callable[..., Any],
) -> None:
    config = small_config(total_timesteps=320, env_kwargs={"max_episode_steps": 300})
    config["algo_kwargs"]["learning_starts"] = 10_000
    report, problems = validate_data(str(train(config).run_dir))
    assert (report.episodes, problems) == (2, [])


def test_dataset_is_written_into_a_new_folder(tmp_path: Path) -> None:
    arrays = record_random("Pendulum-v1", {}, 20, 0)
    written = write_arrays(arrays, tmp_path / "new" / "deep" / "mine.npz")
    assert len(np.load(written)["rewards"]) == 20
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="is a file, not a folder"):
        write_arrays(arrays, tmp_path / "file" / "mine.npz")


def test_misspelled_dataset_key_gets_a_suggestion() -> None:
    with pytest.raises(ConfigError, match=r"^Unknown key 'dataset_pth'; did you mean"):
        load_transition_dataset({"dataset_kind": "npz", "dataset_pth": "a.npz"})
