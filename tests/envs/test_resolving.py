"""Allowed environments: files are more restricted than users."""

from __future__ import annotations

import inspect
import json
import os
import pickle
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import yaml
from gymnasium.envs.classic_control.pendulum import PendulumEnv
from typer.testing import CliRunner

import rl_training
from rl_training import SAC, evaluate_checkpoint, train
from rl_training.api.datasets import collect_data, validate_data
from rl_training.boundary import minari_format
from rl_training.cli import app
from rl_training.config_model import validated
from rl_training.data import DataConfig
from rl_training.data.dataset_loaders import config_for
from rl_training.envs import make_env, name_env, resolve_env, resolving, time_limit
from rl_training.errors import ConfigError
from rl_training.experiment.build import versions
from tests.faults.runs import forge, newest

ENV = "tests/Argued-v0"
SOURCES = Path(rl_training.__file__).parent


class Argued(PendulumEnv):
    """A pendulum with arguments of many types."""

    def __init__(
        self,
        render_mode: str | None = None,
        g: float = 10.0,
        maze_map: Any = None,
        options: Any = None,
        xml_file: str | None = None,
    ) -> None:
        super().__init__(render_mode=render_mode, g=g)
        self.arguments = {"maze_map": maze_map, "options": options, "xml_file": xml_file}


@pytest.fixture(autouse=True)
def new_process(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Start each test without trusted environments; the function resets them again."""

    def forget() -> None:
        monkeypatch.setattr(resolving, "_named", resolving._Named())

    forget()
    return forget


@pytest.fixture(scope="module", autouse=True)
def _registered() -> Iterator[None]:
    gym.register(ENV, entry_point=Argued, max_episode_steps=50)  # type: ignore[arg-type]
    yield
    del gym.registry[ENV]


# --- Arguments ------------------------------------------------------------------------

HARMLESS: list[dict[str, Any]] = [
    {},
    {"g": 9.81},
    {"g": -1, "max_episode_steps": 20},
    {"render_mode": "rgb_array", "ctrl_cost_weight": 0.5, "seed": 2**63, "flag": True, "no": None},
    {"maze_map": [[1, 1, 1], [1, "r", 0], [1, "g", 1]], "reward_type": "sparse"},
    {"options": {"range": [-1.0, 1.0], "goal_direction": {"x": 1}, "importance": 2}},
    {"tasks_to_complete": ["microwave", "kettle"], "name": "a_b+c-d"},
]

HOSTILE: dict[str, Any] = {
    "xml_file": {"xml_file": "/etc/passwd"},
    "xml_file with a word": {"xml_file": "x"},
    "a path": {"model": "/etc/passwd"},
    "a relative path": {"model": "../evil"},
    "a file name": {"model": "evil.xml"},
    "a Windows path": {"model": "C:\\evil"},
    "a home folder": {"model": "~"},
    "an address": {"model": "http://evil"},
    "an entry point": {"model": "os:system"},
    "a module": {"model": "os.system"},
    "a sentence": {"model": "rm -rf x"},
    "a line": {"model": "a\nb"},
    "a null byte": {"model": "a\0"},
    "an empty word": {"model": ""},
    "a long word": {"model": "a" * 65},
    "not a letter": {"model": "é"},
    "infinity": {"g": float("inf")},
    "not a number": {"g": float("nan")},
    "a huge integer": {"g": 10**100},
    "nested in a mapping": {"options": {"inner": {"model_path": "x"}}},
    "nested in a list": {"maze_map": [[1, ["/etc/passwd"]]]},
    "nested entry point": {"options": {"entry_point": "evil"}},
    "a class": {"env_class": "Evil"},
    "a wrapper": {"my_wrapper": "Evil"},
    "an import": {"imports": ["evil"]},
    "a folder": {"data_dir": "evil"},
    "a URL": {"base_url": "evil"},
    "an invalid key": {"a.b": 1},
    "an invalid nested key": {"options": {"../x": 1}},
    "too deep": {"options": [[[[[[[[[1]]]]]]]]]},
    "too many": {"options": [0] * 20_000},
}


@pytest.mark.parametrize("kwargs", HARMLESS, ids=str)
def test_numbers_and_words_from_a_file_are_accepted(kwargs: dict[str, Any]) -> None:
    assert resolve_env(ENV, kwargs).kwargs == kwargs


@pytest.mark.parametrize("name", HOSTILE)
def test_other_arguments_from_a_file_are_rejected(name: str) -> None:
    kwargs = HOSTILE[name]
    with pytest.raises(ConfigError) as caught:
        resolve_env(ENV, kwargs)
    (key,), told = kwargs, str(caught.value)
    assert told.startswith(f"env_kwargs.{key}")
    assert f"--env-kwarg {key}=VALUE" in told
    assert "\n" not in told
    assert "\0" not in told
    assert len(told) < 500


@pytest.mark.parametrize("name", HOSTILE)
def test_arguments_from_the_user_are_accepted(name: str, new_process: Callable[[], None]) -> None:
    kwargs = HOSTILE[name]
    name_env(ENV, kwargs)
    assert resolve_env(ENV, kwargs).kwargs == kwargs
    with pytest.raises(ConfigError, match="Pendulum"):  # it was trusted for another environment
        resolve_env("Pendulum-v1", kwargs)
    new_process()
    name_env(ENV)  # trusting the environment does not trust its arguments
    with pytest.raises(ConfigError, match="If you trust it, specify it"):
        resolve_env(ENV, kwargs)


def test_trusted_argument_covers_only_its_value_and_position() -> None:
    name_env(ENV, {"xml_file": "mine.xml", "options": {"path": "mine"}})
    resolve_env(ENV, {"xml_file": "mine.xml", "g": 1.0, "options": {"path": "mine"}})
    for kwargs in (
        {"xml_file": "/etc/passwd"},
        {"options": {"path": "other"}},
        {"options": {"path": "mine", "file": "other"}},
        {"options": {"xml_file": "mine.xml"}},
        {"path": "mine"},
    ):
        with pytest.raises(ConfigError, match="If you trust it, specify it"):
            resolve_env(ENV, kwargs)


@pytest.mark.parametrize("key", sorted(resolving.RESERVED_KWARGS))
def test_registration_keywords_are_always_rejected(key: str) -> None:
    name_env(ENV, {key: "os:system"})
    with pytest.raises(ConfigError, match=rf"^env_kwargs.{key} .*remove it\.$"):
        resolve_env(ENV, {key: "os:system"})


def test_every_keyword_of_the_registration_is_known() -> None:
    known = {"max_episode_steps"} | resolving.RESERVED_KWARGS
    for function in (gym.register, gym.make, gym.make_vec):
        parameters = set(inspect.signature(function).parameters)
        assert parameters - {"num_envs", "wrappers"} <= known


@pytest.mark.parametrize("limit", ["20", 2.0, True, 0, -2, [1]])
def test_time_limit_must_be_an_integer(limit: Any) -> None:
    name_env(ENV, {"max_episode_steps": limit})
    for use in (resolve_env, time_limit):
        with pytest.raises(ConfigError, match=r"max_episode_steps = .*a positive integer"):
            use(ENV, {"max_episode_steps": limit})
    assert (time_limit(ENV, {}), time_limit(ENV, {"max_episode_steps": -1})) == (50, None)


def test_worker_creates_the_environment_that_the_parent_resolved(
    new_process: Callable[[], None],
) -> None:
    """A separate process does not know what was specified or registered."""
    kwargs = {"xml_file": "/mine.xml"}
    name_env(ENV, kwargs)
    sent = pickle.dumps(resolve_env(ENV, kwargs))
    new_process()
    env: Any = pickle.loads(sent).make().unwrapped
    assert env.arguments["xml_file"] == "/mine.xml"


# --- Ids ------------------------------------------------------------------------------


@pytest.mark.parametrize("env_id", ["os:system", "evil:Env-v0", "a:b:c-v1", ":Env-v0", "evil:"])
def test_id_never_imports_a_module(env_id: str) -> None:
    name_env(env_id)
    with pytest.raises(ConfigError, match="contains a module: import it explicitly"):
        resolve_env(env_id)


@pytest.mark.parametrize("env_id", ["GymV21Environment-v0", "GymV26Environment-v0"])
def test_compatibility_environment_is_for_users_only(env_id: str) -> None:
    with pytest.raises(ConfigError, match=rf"specify it with --env-id.*env_id={env_id}"):
        resolve_env(env_id)
    name_env(env_id)
    assert resolve_env(env_id).spec.id == env_id


@pytest.mark.parametrize("env_id", ["x" * 5000, "a\x1b[2J", "a\nb", "", 7])
def test_odd_id_is_a_short_error(env_id: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        resolve_env(env_id)
    assert len(str(caught.value)) < 700
    assert str(caught.value).isprintable()


# --- gymnasium-robotics ---------------------------------------------------------------

MAZE = "PointMaze_UMaze-v3"
PACKAGE = f"""
import gymnasium
from pathlib import Path
Path(__file__).with_suffix(".ran").touch()
gymnasium.register("{MAZE}", entry_point="gymnasium.envs.classic_control:PendulumEnv")
"""


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Path, Path]]:
    """Search for modules in a folder of installed packages and in the current folder."""
    here, site = tmp_path / "here", tmp_path / "site"
    for folder in (here, site):
        folder.mkdir()
    monkeypatch.chdir(here)
    others = [path for path in sys.path if path]
    monkeypatch.setattr(sys, "path", ["", str(site), *others])
    monkeypatch.delitem(sys.modules, resolving.ROBOTICS, raising=False)
    saved = {key: gym.registry.pop(key) for key in list(gym.registry) if "PointMaze" in key}
    yield here, site
    gym.registry.pop(MAZE, None)
    sys.modules.pop(resolving.ROBOTICS, None)
    gym.registry.update(saved)


def install(folder: Path) -> Path:
    """Install the package in a folder and return the file that its import creates."""
    package = folder / resolving.ROBOTICS
    package.mkdir()
    (package / "__init__.py").write_text(PACKAGE)
    record = folder / f"{resolving.ROBOTICS}-9.9.dist-info"
    record.mkdir()
    (record / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: gymnasium-robotics\nVersion: 9.9"
    )
    return package / "__init__.ran"


def test_robotics_is_imported_for_users_only(folders: tuple[Path, Path]) -> None:
    ran = install(folders[1])
    way = r"rl-training --import gymnasium_robotics evaluate RUN.*or import gymnasium_robotics in"
    with pytest.raises(ConfigError, match=way):
        resolve_env(MAZE)
    assert not ran.exists()
    name_env(MAZE)
    assert resolve_env(MAZE).spec.id == MAZE
    assert ran.exists()


def test_registered_robotics_may_come_from_a_file(folders: tuple[Path, Path]) -> None:
    install(folders[1])
    __import__(resolving.ROBOTICS)
    assert resolve_env(MAZE).spec.id == MAZE


@pytest.mark.parametrize("installed", [True, False])
@pytest.mark.parametrize("planted", ["a module", "a package", "a package with a record"])
def test_file_in_the_current_folder_is_not_robotics(
    folders: tuple[Path, Path], installed: bool, planted: str
) -> None:
    here, site = folders
    if installed:
        install(site)
    if planted == "a package with a record":
        install(here)
    elif planted == "a package":
        (here / resolving.ROBOTICS).mkdir()
        (here / resolving.ROBOTICS / "__init__.py").write_text(PACKAGE)
    else:
        (here / f"{resolving.ROBOTICS}.py").write_text(PACKAGE)
    name_env(MAZE)
    with pytest.raises(ConfigError, match=r"not the installed package|pip install") as caught:
        resolve_env(MAZE)
    assert "\n" not in str(caught.value)
    assert not list(here.rglob("*.ran"))


def test_versions_are_read_without_importing(
    folders: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    here, site = folders
    monkeypatch.setattr(sys, "path", ["", str(site)])
    monkeypatch.delitem(sys.modules, "mujoco", raising=False)
    (here / "mujoco").mkdir()
    (here / "mujoco" / "__init__.py").write_text("raise SystemExit('imported')")
    assert "mujoco" not in versions()
    ran = install(site)
    assert versions()[resolving.ROBOTICS] == "9.9"
    assert not ran.exists()


# --- Forged checkpoints ---------------------------------------------------------------

Events = list[tuple[str, str]]
_events: Events | None = None
_WATCHED = {"import", "open", "os.system", "os.exec", "os.fork", "os.forkpty", "os.posix_spawn"}
_WATCHED |= {"subprocess.Popen", "socket.connect", "socket.getaddrinfo", "pty.spawn"}


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    if _events is not None and event in _WATCHED:
        _events.append((event, str(arguments[0]) if arguments else ""))


@pytest.fixture(scope="module")
def audited() -> Callable[[Callable[[], Any]], tuple[Any, Events]]:
    """Call a function and return what it imported, opened and started."""
    sys.addaudithook(_hook)  # cannot be removed

    def call(function: Callable[[], Any]) -> tuple[Any, Events]:
        global _events
        events: Events = []
        _events = events
        try:
            return function(), events
        finally:
            _events = None

    return call


KNOWN = {"rl_training", "torch", "numpy", "gymnasium", "pydantic", "pydantic_core", "yaml", "rich"}
KNOWN |= {
    "typer",
    "click",
    "safetensors",
    "tests",
    "_pytest",
    "pygments",
    "shellingham",
    "markdown_it",
}


def assert_harmless(events: Events) -> None:
    """Assert that no process, connection, foreign module or file from a config was used."""
    for event, what in events:
        assert event in ("import", "open"), f"{event} {what}"
        if event == "import":
            top = what.partition(".")[0]
            assert top in KNOWN | set(sys.stdlib_module_names), f"import {what}"
        else:
            assert "passwd" not in what


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Train a run with remaining steps and harmless arguments."""
    config = {
        "algo": "sac",
        "env_id": ENV,
        "total_timesteps": 40,
        "output_dir": str(tmp_path_factory.mktemp("runs")),
        "device": "cpu",
        "eval_episodes": 0,
        "env_kwargs": {"g": 9.81, "maze_map": [[1, "r"], [0, "g"]]},
        "algo_kwargs": {
            "hidden_sizes": [8],
            "batch_size": 8,
            "learning_starts": 20,
            "buffer_capacity": 200,
            "tensorboard": False,
            "num_threads": 1,
        },
    }
    return train(config).run_dir


Change = dict[str, Any]


def edit(run_dir: Path, folder: Path, **changes: Any) -> Path:
    """Copy a run and change its config in its file and in its checkpoints."""
    copy = folder / "runs" / run_dir.name
    shutil.copytree(run_dir, copy)

    def change(config: dict[str, Any]) -> None:
        for key, value in changes.items():
            target = config if key in ("env_id", "env_kwargs") else config["algo_kwargs"]
            target[key] = value

    file = copy / "config.yaml"
    config = yaml.safe_load(file.read_text())
    change(config)
    file.write_text(yaml.safe_dump(config))
    for path in (copy / "checkpoints").glob("step_*"):
        forge(path, lambda manifest: change(manifest["config"]))
    return copy


def invoke(*arguments: str | Path) -> tuple[int, str, str]:
    """Run a command in this process; return exit code, standard output and standard error."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout, result.stderr


def commands(run_dir: Path, folder: Path) -> dict[str, list[str | Path]]:
    """Return every command that creates a run's environment."""
    lone = folder / "lone"
    shutil.copytree(newest(run_dir), lone)
    return {
        "evaluate": ["evaluate", run_dir, "--episodes", "1"],
        "evaluate a checkpoint": ["evaluate", lone, "--episodes", "1"],
        "resume": ["resume", run_dir, "total_timesteps=60"],
        "finetune": ["finetune", run_dir, "total_timesteps=20"],
        "data collect": ["data", "collect", run_dir, "--steps", "5", "--out", folder / "data.npz"],
        "data validate": ["data", "validate", run_dir],
    }


ATTACKS: dict[str, tuple[Change, str]] = {
    "os:system": ({"env_id": "os:system"}, "contains a module"),
    "evil:Env-v0": ({"env_id": "evil:Env-v0"}, "contains a module"),
    "GymV21Environment-v0": (
        {"env_id": "GymV21Environment-v0", "env_kwargs": {"env_id": "evil"}},
        "another library",
    ),
    MAZE: ({"env_id": MAZE}, "--import gymnasium_robotics"),
    "entry_point": ({"env_kwargs": {"entry_point": "os:system"}}, "env_kwargs.entry_point is"),
    "wrappers": ({"env_kwargs": {"additional_wrappers": ["os:system"]}}, "additional_wrappers is"),
    "xml_file": ({"env_kwargs": {"xml_file": "/etc/passwd"}}, "env_kwargs.xml_file may refer"),
    "nested": ({"env_kwargs": {"options": {"file": "/etc/passwd"}}}, "env_kwargs.options.file may"),
    "a value": (
        {"env_kwargs": {"options": ["/etc/passwd"]}},
        "env_kwargs.options = '/etc/passwd' is neither",
    ),
}


@pytest.mark.parametrize("name", ATTACKS)
def test_commands_do_not_create_environments_from_a_forged_config(
    trained: Path, tmp_path: Path, audited: Any, name: str
) -> None:
    changes, sentence = ATTACKS[name]
    run_dir = edit(trained, tmp_path, **changes)
    before = {file: file.read_bytes() for file in run_dir.rglob("*") if file.is_file()}
    for command, words in commands(run_dir, tmp_path).items():
        (code, _, told), events = audited(lambda words=words: invoke(*words))
        assert code == 2, f"{command}: {told}"
        (line,) = [line for line in told.splitlines() if line.startswith("Error: ")]
        assert sentence in line, f"{command}: {line}"
        assert any(event == "open" for event, _ in events)  # the hook is active
        assert_harmless(events)
    assert list(run_dir.parent.iterdir()) == [run_dir]
    lock = run_dir / ".lock"
    assert before == {
        f: f.read_bytes() for f in run_dir.rglob("*") if f.is_file() and f != lock
    } | {f: b"" for f in before if f == lock}


@pytest.mark.parametrize("name", ATTACKS)
def test_predict_needs_no_environment(
    trained: Path, tmp_path: Path, audited: Any, name: str
) -> None:
    run_dir, obs = edit(trained, tmp_path, **ATTACKS[name][0]), tmp_path / "obs.npy"
    np.save(obs, np.zeros(3, dtype=np.float32))
    loaded = set(sys.modules)
    (code, told, _), events = audited(lambda: invoke("predict", run_dir, "--obs", obs, "--json"))
    assert code == 0
    assert len(json.loads(told)["actions"]) == 1
    assert_harmless(events)
    assert not [
        module for module in set(sys.modules) - loaded if module.startswith("gymnasium.envs")
    ]


def test_harmless_arguments_may_come_from_a_file(
    trained: Path, tmp_path: Path, new_process: Callable[[], None]
) -> None:
    for command, words in commands(edit(trained, tmp_path), tmp_path).items():
        code, _, told = invoke(*words)
        assert code == 0, f"{command}: {told}"


# --- Trusted by the user --------------------------------------------------------------


@pytest.fixture
def with_file(trained: Path, tmp_path: Path) -> Path:
    """Train a run with a path in its environment arguments."""
    return edit(trained, tmp_path, env_kwargs={"g": 9.81, "xml_file": "/my/arm.xml"})


def test_arguments_are_trusted_on_the_command_line(
    with_file: Path, tmp_path: Path, new_process: Callable[[], None]
) -> None:
    option, override = ["--env-kwarg", "xml_file=/my/arm.xml"], ["env_kwargs.xml_file=/my/arm.xml"]
    for command, words in commands(with_file, tmp_path).items():
        new_process()
        code, _, told = invoke(*words)
        assert (code, "xml_file" in told) == (2, True), command
        more = override if words[0] in ("resume", "finetune") else option
        code, _, told = invoke(*words, *more)
        assert code == 0, f"{command}: {told}"


def test_arguments_are_trusted_in_python(
    with_file: Path, tmp_path: Path, new_process: Callable[[], None]
) -> None:
    kwargs = {"xml_file": "/my/arm.xml"}
    uses: list[Callable[[dict[str, Any] | None], Any]] = [
        lambda kwargs: evaluate_checkpoint(with_file, episodes=1, env_kwargs=kwargs),
        lambda kwargs: SAC.load(with_file).evaluate(1, env_kwargs=kwargs),
        lambda kwargs: validate_data(str(with_file), env_kwargs=kwargs),
        lambda kwargs: collect_data(
            with_file, steps=1, out=tmp_path / "named.npz", env_kwargs=kwargs
        ),
    ]
    for use in uses:
        new_process()
        with pytest.raises(ConfigError, match="xml_file may refer to a file"):
            use(None)
        assert use(kwargs)
        if use is uses[0]:
            assert use(None)  # trusted in this process


def test_given_arguments_override_those_of_the_run(trained: Path) -> None:
    """`g` changes the rewards, and the run's `maze_map` is kept."""
    own = evaluate_checkpoint(trained, episodes=1)
    other = evaluate_checkpoint(trained, episodes=1, env_kwargs={"g": 1.0})
    assert own["eval_returns"] != other["eval_returns"]
    again = evaluate_checkpoint(trained, episodes=1, env_id=ENV, env_kwargs={"g": 9.81})
    assert own["eval_returns"] == again["eval_returns"]
    plain = evaluate_checkpoint(trained, episodes=1, env_id="Pendulum-v1", env_kwargs={"g": 1.0})
    assert plain["eval_length_mean"] == 200


@pytest.mark.parametrize(
    ("text", "sentence"),
    [("g", "write key=value"), ("entry_point=x", "remove it"), ("gravity=1", "gravity")],
)
def test_wrong_argument_gets_a_clear_error(trained: Path, text: str, sentence: str) -> None:
    code, _, told = invoke("evaluate", trained, "--env-kwarg", text)
    assert (code, sentence in told) == (2, True), told
    with pytest.raises(ConfigError, match="env_kwargs = 'g=1': should be a mapping"):
        evaluate_checkpoint(trained, env_kwargs="g=1")  # type: ignore[arg-type]


def test_new_run_can_be_evaluated(
    tmp_path: Path,
    trained: Path,
    new_process: Callable[[], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The printed next commands also work in a new process."""
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "mine.yaml"
    config = yaml.safe_load((trained / "config.yaml").read_text())
    config |= {"env_kwargs": {"xml_file": "my arm.xml", "options": {"path": "/x"}}}
    file.write_text(yaml.safe_dump(config | {"output_dir": str(tmp_path)}))
    code, told, problems = invoke("train", "--config", file)
    assert code == 0, problems
    lines = [shlex.split(line)[1:] for line in told.splitlines() if line.startswith("  rl-tr")]
    assert [line[0] for line in lines] == ["evaluate", "evaluate", "data", "resume", "runs"]
    assert invoke("evaluate", lines[0][1], "--episodes", "1")[0] == 0
    for line in lines:
        new_process()
        code, _, problems = invoke(*line)
        assert code == 0, f"{line}: {problems}"
    new_process()
    assert invoke("evaluate", lines[0][1], "--episodes", "1")[0] == 2


def test_next_commands_include_the_required_imports(
    folders: tuple[Path, Path], trained: Path, new_process: Callable[[], None]
) -> None:
    here, site = folders
    install(site)
    (here / "my_envs.py").write_text("")
    config = yaml.safe_load((trained / "config.yaml").read_text())
    config |= {"env_id": MAZE, "env_kwargs": {"max_episode_steps": 20}, "output_dir": str(here)}
    (here / "mine.yaml").write_text(yaml.safe_dump(config))
    code, told, problems = invoke("--import", "my_envs", "train", "--config", "mine.yaml")
    assert code == 0, problems
    lines = [shlex.split(line)[1:] for line in told.splitlines() if line.startswith("  rl-tr")]
    imports = ["--import", "my_envs", "--import", resolving.ROBOTICS]
    assert [line[:4] for line in lines[:2]] == [imports, imports]
    new_process()
    del gym.registry[MAZE], sys.modules[resolving.ROBOTICS]
    code, _, problems = invoke(*lines[0][4:])
    assert (code, f"--import {resolving.ROBOTICS}" in problems) == (2, True)
    for line in lines[:2]:
        code, _, problems = invoke(*line)
        assert code == 0, problems


# --- The current folder ---------------------------------------------------------------


def run_in(folder: Path, *words: str | Path) -> str:
    """Return the output of a Python program that runs in a folder."""
    done = subprocess.run(
        [sys.executable, *map(str, words)],
        cwd=folder,
        env={k: v for k, v in os.environ.items() if k != "PYTHONSAFEPATH"}
        | {"PYTHONPATH": str(SOURCES.parent)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_modules_are_not_imported_from_the_current_folder(tmp_path: Path) -> None:
    """`python -m` searches it for every module before the installed packages."""
    for name in ("typer", "mujoco"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('imported')")
    told = run_in(tmp_path, "-m", "rl_training", "--version")
    assert told == f"rl-training {rl_training.__version__}\n"


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python has no such option before 3.11")
def test_workers_do_not_import_from_the_current_folder(tmp_path: Path) -> None:
    """The process that starts workers is `python -c`, which also searches it first."""
    here, program = tmp_path / "here", tmp_path / "program.py"
    here.mkdir()
    for name in ("selectors", "socket"):
        (here / f"{name}.py").write_text("open('imported', 'w').close()")
    program.write_text(
        "import multiprocessing, sys\n"
        "if __name__ == '__main__':\n"
        "    from rl_training.cli import main\n"
        "    sys.argv = ['rl-training', '--version']\n"
        "    try: main()\n"
        "    except SystemExit: pass\n"
        "    worker = multiprocessing.get_context('forkserver').Process(target=int)\n"
        "    worker.start(); worker.join(); print(worker.exitcode)\n"
    )
    assert run_in(here, program).splitlines()[-1] == "0"
    assert not (here / "imported").exists()


# --- Downloads ------------------------------------------------------------------------


@pytest.fixture
def offline(tmp_path: Path, recorded: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Create a run from recorded data whose files refer to data on Minari's server."""
    config = {
        "algo": "bc",
        "total_timesteps": 4,
        "output_dir": str(tmp_path / "first"),
        "device": "cpu",
        "algo_kwargs": {
            "hidden_sizes": [8],
            "batch_size": 8,
            "dataset_kind": "npz",
            "dataset_path": str(recorded),
            "action_low": -2.0,
            "action_high": 2.0,
            "tensorboard": False,
            "num_threads": 1,
        },
    }
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    minari = {"dataset_kind": "minari", "dataset_path": None, "dataset_id": "D4RL/pen/human-v2"}
    return edit(train(config).run_dir, tmp_path, **minari, dataset_download=True)


def test_file_cannot_start_a_download(
    offline: Path, monkeypatch: pytest.MonkeyPatch, audited: Any
) -> None:
    asked: list[str] = []

    def download(dataset_id: str) -> None:
        asked.append(dataset_id)
        raise ConfigError("no network")

    monkeypatch.setattr(minari_format, "download_minari", download)
    more = "total_timesteps=8"
    for words in (
        ["evaluate", offline],
        ["evaluate", offline, "--fqe", "--fqe-updates", "1"],
        ["resume", offline, more],
        ["resume", newest(offline), more],
        ["finetune", offline, "--env-id", "Pendulum-v1"],
    ):
        (code, _, told), events = audited(lambda words=words: invoke(*words))
        assert code == 2
        assert_harmless(events)
        assert asked == []
        assert "is not on this machine" in told or "bc does not learn from rewards" in told
    code, _, told = invoke("resume", offline, more, "dataset_download=true")
    assert (code, asked) == (2, ["D4RL/pen/human-v2"])
    assert "no network" in told


@pytest.mark.parametrize(
    "dataset_id", ["/etc/x-v0", "../x-v0", "a/../x-v0", "hf://a/x-v0", "a\\b-v0", "a\nb-v0", "x"]
)
def test_dataset_id_must_be_a_minari_id(dataset_id: str) -> None:
    with pytest.raises(ConfigError, match=r"should be (a Minari id|text without)") as caught:
        validated(DataConfig, {"dataset_kind": "minari", "dataset_id": dataset_id})
    assert "\n" not in str(caught.value)
    with pytest.raises(ConfigError, match=r"neither a dataset file .* nor a Minari id"):
        config_for(dataset_id)


def test_make_env_resolves_first() -> None:
    with pytest.raises(ConfigError, match="xml_file may refer to a file"):
        make_env(ENV, {"xml_file": "/etc/passwd"})
