"""Planning: labels, tasks, grids, seeds, and errors before anything is written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from rl_training.errors import ConfigError
from rl_training.study.config import StudyConfig, make_study_config, read_study_file
from rl_training.study.naming import distinct_names, folder_name, is_task_key
from rl_training.study.planning import StudyPlan, expand, plan_study

TINY = {"algo": "sac", "env_id": "Pendulum-v1", "total_timesteps": 100}


def plan(**study: Any) -> StudyPlan:
    return plan_study(make_study_config(study, "Study"))


def names(planned: StudyPlan) -> list[tuple[str, str]]:
    return [(group.label, group.task) for group in planned.groups]


# --- Expansion ----------------------------------------------------------------


def test_every_config_gets_every_seed() -> None:
    planned = plan(runs=["sac/pendulum", "td3/pendulum"], seeds=3)
    runs = [(run.label, run.task, run.seed, run.config["seed"]) for run in planned.runs]
    assert runs == [(a, "Pendulum-v1", s, s) for a in ("sac", "td3") for s in range(3)]
    assert len(planned) == 6


def test_seeds_default_to_five_and_can_be_listed() -> None:
    assert plan(runs=["sac/pendulum"]).groups[0].seeds == (0, 1, 2, 3, 4)
    entries = [{"config": "sac/pendulum", "seeds": 1}, {"config": "td3/pendulum"}]
    assert [g.seeds for g in plan(runs=entries, seeds=[7, 9]).groups] == [(0,), (7, 9)]


def test_a_grid_runs_every_combination_with_readable_labels() -> None:
    planned = plan(runs=["sac/pendulum"], grid={"batch_size": [64, 128], "gamma": [0.9]}, seeds=1)
    assert names(planned) == [
        ("sac batch_size=64 gamma=0.9", "Pendulum-v1"),
        ("sac batch_size=128 gamma=0.9", "Pendulum-v1"),
    ]
    assert [g.config.algo_kwargs["batch_size"] for g in planned.groups] == [64, 128]
    assert {g.config.algo_kwargs["gamma"] for g in planned.groups} == {0.9}


def test_an_entry_can_have_its_own_grid() -> None:
    own = {"config": "rebrac/pendulum", "grid": {"actor_penalty": [0.05, 0.1]}}
    planned = plan(runs=["iql/pendulum", own], set={"dataset_kind": "random"}, seeds=1)
    assert [g.label for g in planned.groups] == [
        *("iql", "rebrac actor_penalty=0.05", "rebrac actor_penalty=0.1")
    ]


def test_nested_keys_have_short_names_unless_they_are_ambiguous() -> None:
    one = plan(runs=["sac/pendulum"], grid={"optimizers.actor.eps": [1e-6]}, seeds=1)
    assert one.groups[0].label == "sac eps=1.0e-06"
    keys = {"optimizers.actor.eps": [1e-6], "optimizers.critic.eps": [1e-7]}
    two = plan(runs=["sac/pendulum"], grid=keys, seeds=1)
    assert two.groups[0].label == "sac optimizers.actor.eps=1.0e-06 optimizers.critic.eps=1.0e-07"


def test_settings_of_an_entry_are_part_of_its_label() -> None:
    entry = {"config": "sac/pendulum", "set": {"gamma": 0.9}}
    assert plan(runs=[entry], seeds=1).groups[0].label == "sac gamma=0.9"
    assert plan(runs=[entry | {"label": "short"}], seeds=1).groups[0].label == "short"


def test_settings_of_the_study_are_not_part_of_labels() -> None:
    planned = plan(runs=["sac/pendulum"], set={"gamma": 0.9}, seeds=1)
    assert planned.groups[0].label == "sac"
    assert planned.groups[0].config.algo_kwargs["gamma"] == 0.9


def test_an_entry_overrides_the_study_and_a_grid_overrides_both() -> None:
    entry = {"config": "sac/pendulum", "set": {"gamma": 0.8, "tau": 0.1}}
    planned = plan(runs=[entry], set={"gamma": 0.7, "batch_size": 8}, grid={"tau": [0.2]}, seeds=1)
    kwargs = planned.groups[0].config.algo_kwargs
    assert (kwargs["gamma"], kwargs["tau"], kwargs["batch_size"]) == (0.8, 0.2, 8)


def test_long_values_stay_distinct() -> None:
    sizes = [[256] * 12, [256] * 11 + [255]]
    labels = [g.label for g in plan(runs=[TINY_ENTRY], grid={"hidden_sizes": sizes}).groups]
    assert len(set(labels)) == 2
    assert all(len(label) < 80 for label in labels)


TINY_ENTRY = {"config": TINY}


def test_a_file_is_labeled_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "my_sac.yaml").write_text(yaml.safe_dump(TINY))
    assert plan(runs=[str(tmp_path / "my_sac.yaml")], seeds=1).groups[0].label == "my_sac"


def test_algorithms_can_be_a_grid() -> None:
    planned = plan(runs=[TINY_ENTRY], grid={"gamma": [0.9], "algo": ["sac", "td3"]}, seeds=1)
    assert [g.label for g in planned.groups] == ["sac gamma=0.9", "td3 gamma=0.9"]
    assert [g.config.algo for g in planned.groups] == ["sac", "td3"]


# --- Tasks --------------------------------------------------------------------


def test_environments_are_tasks() -> None:
    entry = {"config": TINY, "env_id": ["Pendulum-v1", "MountainCarContinuous-v0"]}
    assert names(plan(runs=[entry])) == [
        ("sac", "Pendulum-v1"),
        ("sac", "MountainCarContinuous-v0"),
    ]


def test_arguments_of_an_environment_in_a_grid_are_tasks() -> None:
    planned = plan(runs=[TINY_ENTRY], grid={"env_kwargs.g": [9.8, 5.0]}, seeds=1)
    assert names(planned) == [("sac", "Pendulum-v1 g=9.8"), ("sac", "Pendulum-v1 g=5.0")]


def test_datasets_are_tasks_of_offline_methods(
    small_config: Callable[..., dict[str, Any]], recorded: Path, tmp_path: Path
) -> None:
    config = small_config(algo="bc")
    for name in ("medium", "replay"):
        (tmp_path / f"{name}.npz").symlink_to(recorded)
    paths = [str(tmp_path / f"{name}.npz") for name in ("medium", "replay")]
    planned = plan(runs=[{"config": config}], grid={"dataset_path": paths}, seeds=1)
    assert names(planned) == [("bc", "Pendulum-v1/medium"), ("bc", "Pendulum-v1/replay")]


def test_prior_data_is_not_a_task(small_config: Callable[..., dict[str, Any]]) -> None:
    planned = plan(runs=[{"config": small_config(algo="rlpd")}, TINY_ENTRY], seeds=1)
    assert names(planned) == [("rlpd", "Pendulum-v1"), ("sac", "Pendulum-v1")]


def test_paths_are_told_apart_by_their_shortest_end() -> None:
    assert distinct_names(["a/x.npz", "b/x.npz"]) == {"a/x.npz": "a/x", "b/x.npz": "b/x"}
    assert distinct_names(["a/x.npz", "a/y.npz"]) == {"a/x.npz": "x", "a/y.npz": "y"}


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        *(("env_id", True), ("env_kwargs.g", True), ("env_kwargs.wrappers.reward", False)),
        *(("env_kwargs.vectorization", False), ("dataset_path", True), ("gamma", False)),
        *(("algo_kwargs.dataset_id", True), ("dataset_download", False)),
    ],
)
def test_task_keys(key: str, expected: bool) -> None:
    assert is_task_key(key) is expected


def test_two_tasks_with_one_name_are_refused(
    small_config: Callable[..., dict[str, Any]], recorded: Path, tmp_path: Path
) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / recorded.name).symlink_to(recorded)
    other = small_config(algo="bc", algo_kwargs={"dataset_path": f"{tmp_path}/other/pendulum.npz"})
    runs: list[dict[str, Any]] = [
        {"config": small_config(algo="td3_bc")},
        {"config": other},
    ]
    with pytest.raises(ConfigError, match=r"both on the task 'Pendulum-v1/pendulum', but dataset_"):
        plan(runs=runs)
    runs[1]["task"] = "other data"
    assert names(plan(runs=runs))[1] == ("bc", "other data")


# --- What is fixed by the plan ------------------------------------------------


def test_threads_are_fixed_and_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    entries: list[Any] = [TINY_ENTRY, {"config": TINY, "label": "b", "set": {"num_threads": 3}}]
    one, three = plan(runs=entries, seeds=1).groups
    assert one.config.algo_kwargs["num_threads"] == 1
    assert three.config.algo_kwargs["num_threads"] == 3
    assert (one.resources.cpus, three.resources.cpus) == (1.0, 3.0)
    assert plan(runs=entries[:1], threads=2).groups[0].config.algo_kwargs["num_threads"] == 2


def test_the_device_is_fixed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine that plans needs no GPU, and one that has a GPU does not change a CPU study."""

    def device(**study: Any) -> tuple[str, float]:
        (group,) = expand(make_study_config({"runs": [TINY_ENTRY], "seeds": 1} | study, "Study"))
        return group.config.device, group.resources.gpus

    assert device() == ("cpu", 0.0)
    assert device(resources={"gpus": 0.25}) == ("cuda", 0.25)
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    assert device() == ("cuda", 1.0)
    assert device(resources={"gpus": 0}) == ("cpu", 0.0)
    for study, message in (
        ({"set": {"device": "cuda:1"}}, "assigns the GPUs itself"),
        ({"set": {"device": "cuda"}, "resources": {"gpus": 0}}, r"resources\.gpus is 0"),
        ({"set": {"device": "cpu"}, "resources": {"gpus": 1}}, "uses no CUDA GPU"),
    ):
        with pytest.raises(ConfigError, match=message):
            device(**study)


def test_environment_processes_need_cores() -> None:
    settings = {"num_envs": 4, "env_kwargs.vectorization": "async"}
    assert plan(runs=[TINY_ENTRY], set=settings, seeds=1).groups[0].resources.cpus == 4.0


def test_epochs_are_converted_to_updates(small_config: Callable[..., dict[str, Any]]) -> None:
    config = small_config(algo="bc", total_timesteps=None, algo_kwargs={"num_epochs": 2})
    (group,) = plan(runs=[{"config": config}], seeds=1).groups
    assert group.config.total_timesteps == 57  # 2 × 450 / 16, rounded up
    assert group.config.algo_kwargs["schedule_horizon"] == 57


def test_the_seed_and_folder_of_a_config_are_ignored(tmp_path: Path) -> None:
    config = TINY | {"seed": 17, "output_dir": "elsewhere"}
    settings = plan(runs=[{"config": config}], seeds=1).groups[0].settings
    assert not {"seed", "output_dir"} & settings.keys()


# --- Errors -------------------------------------------------------------------

ERRORS: dict[str, tuple[dict[str, Any], str]] = {
    "unknown key": ({"sedes": 3}, "Study: Unknown key 'sedes'; did you mean 'seeds'?"),
    "unknown key of a run": (
        {"runs": [{"confg": "sac/pendulum"}]},
        "Study: Unknown key 'confg' in runs.0; did you mean 'config'?",
    ),
    "unknown resource": ({"resources": {"ram": 1}}, "Study: Unknown key 'ram' in resources"),
    "no runs": ({"runs": []}, "runs = []: should list at least one config"),
    "not a list": ({"runs": "sac/pendulum"}, "runs = 'sac/pendulum': should be a list"),
    "unknown config": ({"runs": ["sac/pendulm"]}, "did you mean 'sac/pendulum'?"),
    "unknown grid key": (
        {"grid": {"lerning_rate": [1]}},
        "grid.lerning_rate: Unknown key 'lerning_rate' for sac; did you mean 'learning_rate'?",
    ),
    "grid key of another algorithm": (
        {"grid": {"actor_penalty": [1.0]}},
        "grid.actor_penalty: 'actor_penalty' is not an option of SAC",
    ),
    "unknown key to set": ({"set": {"gama": 0.9}}, "set.gama: Unknown key 'gama' for sac"),
    "bad value in a grid": ({"grid": {"gamma": [0.9, 2.0]}}, "gamma = 2.0: should be less than"),
    "grid without a list": ({"grid": {"gamma": 0.9}}, "grid.gamma = 0.9: should be a list"),
    "empty grid": ({"grid": {"gamma": []}}, "gamma has no values"),
    "value twice": ({"grid": {"gamma": [0.9, 0.9]}}, "gamma lists a value twice"),
    "seed in a grid": ({"grid": {"seed": [1]}}, "cannot contain seed: use seeds"),
    "folder to set": ({"set": {"output_dir": "x"}}, "a study chooses the folders of its runs"),
    "bad seeds": ({"seeds": "many"}, "Study: seeds = 'many': should be a count"),
    "too few cores": (
        {"threads": 2, "resources": {"cpus": 1}},
        "resources.cpus = 1 is less than the 2 threads",
    ),
    "label": ({"runs": [{"config": "sac/pendulum", "label": "a\nb"}]}, "runs.0.label = 'a\\nb'"),
    "label used twice": (
        {
            "runs": [
                "sac/pendulum",
                {"config": "sac/pendulum", "label": "sac", "set": {"gamma": 0.5}},
            ]
        },
        "Run 1 (sac/pendulum) and Run 2 (sac/pendulum) have the same label 'sac' on Pendulum-v1, "
        "but gamma is 0.99 and 0.5: give them different labels.",
    ),
    "unknown environment": (
        {"set": {"env_id": "Pendulm-v1"}},
        "Run 1 (sac/pendulum): Unknown environment 'Pendulm-v1'; did you mean 'Pendulum-v1'?",
    ),
    "missing data": (
        {"runs": ["iql/pendulum"], "set": {"dataset_kind": "npz", "dataset_path": "none.npz"}},
        "There is no dataset file 'none.npz'",
    ),
    "too many runs": ({"seeds": 100_000, "grid": {"gamma": [0.9, 0.8]}}, "at most 100,000"),
}


@pytest.mark.parametrize("case", ERRORS)
def test_bad_input_is_one_sentence(case: str, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    study, message = ERRORS[case]
    with pytest.raises(ConfigError) as caught:
        plan(**{"runs": ["sac/pendulum"]} | study)
    assert message in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_equal_entries_are_one() -> None:
    entries = [
        {"config": "sac/pendulum", "seeds": [0, 1]},
        {"config": "sac/pendulum", "seeds": [1, 2]},
    ]
    (group,) = plan(runs=entries).groups
    assert group.seeds == (0, 1, 2)


def test_a_study_file_is_read(tmp_path: Path) -> None:
    file = tmp_path / "my.yaml"
    file.write_text("runs: [sac/pendulum]\nseeds: 2\nresources: {memory: 2GiB, cpus: 1}\n")
    description = read_study_file(file)
    assert description.resources.memory == 2 << 30
    assert StudyConfig.model_validate(description.to_dict()).to_dict() == description.to_dict()
    file.write_text("- sac/pendulum\n")
    with pytest.raises(ConfigError, match="should contain a mapping"):
        read_study_file(file)
    file.write_text("1: 2\nruns: [sac/pendulum]\n")
    with pytest.raises(ConfigError, match="has the key 1, but keys should be strings"):
        read_study_file(file)


# --- Folders ------------------------------------------------------------------


def test_folder_names_are_safe_and_distinct() -> None:
    assert folder_name("ReBRAC 0.05", []) == "ReBRAC_0.05"
    assert folder_name("../../etc/passwd", []) == "etc_passwd"
    assert folder_name("γ", []) == "run"
    taken: list[str] = []
    for name in ("a b", "a/b", "A b", "x" * 300, "x" * 299 + "y", ".", "..", "", "-"):
        taken.append(folder_name(name, taken))
    assert len({name.lower() for name in taken}) == len(taken)
    assert all(len(name) <= 80 and name[0] not in ".-" for name in taken)
