"""The docs match the code: keys, defaults, metrics, links, names, and code blocks."""

from __future__ import annotations

import ast
import importlib
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from pydantic import BaseModel

from rl_training import cli
from rl_training.algorithms.config import OptimizerConfig
from rl_training.algorithms.finetuning_config import FinetuningConfig
from rl_training.algorithms.registry import REGISTRY
from rl_training.api import train
from rl_training.api.resuming import RESUMABLE_KEYS
from rl_training.cli.train_arguments import parse_train_arguments
from rl_training.data.config import DataConfig
from rl_training.envs.factory import EnvConfig, WrappersConfig
from rl_training.experiment.config import TrainConfig, apply_override, make_config, read_config
from rl_training.models.network_config import TRUNKS
from rl_training.rewards import RewardTransformConfig
from rl_training.runtime.callbacks import Callback, EarlyStoppingConfig
from rl_training.runtime.control_config import ControlsConfig
from rl_training.runtime.logging import read_metrics
from rl_training.study.config import RunEntry, StudyConfig
from rl_training.study.resources import ResourcesConfig
from tests.faults.zygote import shared_zygote
from tests.pages import run_page

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "rl_training"
PAGES = [
    *(ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
MODELS: list[type[BaseModel]] = [
    *(TrainConfig, ControlsConfig, EarlyStoppingConfig, EnvConfig, DataConfig),
    *(RewardTransformConfig, WrappersConfig, FinetuningConfig, OptimizerConfig),
    *(entry.config_class() for entry in REGISTRY.values()),
]
METRIC = re.compile(
    r"(?:loss|q|v|advantage|policy|rollout|time|updates|rows)/\w+|return_(?:before|lowest|after)"
    r"|eval_(?:return|length|success)_\w+|eval_loss|fqe_\w+"
)
FENCE = re.compile(r"(?P<before>[^\n]*)\n+```(?P<language>\w*)\n(?P<code>.*?)^```$", re.M | re.S)
NOT_RUN = "<!-- not run"

page_ids = [str(page.relative_to(ROOT)) for page in PAGES]


def read(path: str) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


def shown(value: Any) -> str:
    """Format a value as in the tables: YAML on one line, as inline code."""
    if isinstance(value, BaseModel):
        return "`{}`"
    plain = list(value) if isinstance(value, tuple) else value
    text = yaml.safe_dump(plain, default_flow_style=True, allow_unicode=True)
    return f"`{text.removesuffix('...' + chr(10)).strip()}`"


def rows(text: str) -> list[list[str]]:
    """Return the cells of every table row."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]


def blocks(language: str, page: str = "README.md") -> list[tuple[bool, str]]:
    """Return a page's fenced blocks of a language, each with whether to run it."""
    return [
        (NOT_RUN not in match["before"], match["code"])
        for match in FENCE.finditer(read(page))
        if match["language"] == language
    ]


# --- Keys and metrics ---------------------------------------------------------

CONFIGURATION = read("docs/configuration.md") + read("docs/generated/algorithms.md")


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
def test_every_key_is_listed_with_its_default(model: type[BaseModel]) -> None:
    table = {(row[0], row[1]) for row in rows(CONFIGURATION)}
    for name, field in model.model_fields.items():
        default = field.get_default(call_default_factory=True)
        cell = "required" if field.is_required() else shown(default)
        assert (f"`{name}`", cell) in table, f"{name} with default {cell} is missing"


def test_configuration_page_lists_only_existing_keys() -> None:
    models = (*MODELS, *TRUNKS.values())
    known = {f"`{name}`" for model in models for name in model.model_fields}
    keys = {row[0] for row in rows(CONFIGURATION) if row[0].startswith("`")}
    assert keys <= known


def test_resume_page_lists_every_key_that_can_be_changed() -> None:
    section = read("docs/resume.md").partition("\n## What can be changed on resume\n")[2]
    section = section.strip().split("\n\n")[0]
    assert set(re.findall(r"`(\w+)`", section)) == RESUMABLE_KEYS


def string_constants(file: Path) -> set[str]:
    tree = ast.parse(file.read_text(encoding="utf-8"))
    nodes = (node.value for node in ast.walk(tree) if isinstance(node, ast.Constant))
    return {value for value in nodes if isinstance(value, str)}


def test_every_metric_is_documented(small_config: Callable[..., dict[str, Any]]) -> None:
    """In metrics.md, in evaluation.md, or in a table on the algorithm's page."""
    own = (f"docs/algorithms/{algo}.md" for algo in REGISTRY)
    pages = map(read, ("docs/metrics.md", "docs/evaluation.md", *own))
    named = {row[0].strip("`") for page in pages for row in rows(page)}
    constants = set().union(*(string_constants(file) for file in SOURCE.rglob("*.py")))
    assert {text for text in constants if METRIC.fullmatch(text)} <= named
    result = train(
        small_config(
            total_timesteps=220,
            log_interval=70,
            eval_episodes=1,
            algo_kwargs={"eval_interval": 100, "learning_rate_schedule": "linear"},
        )
    )
    written = set().union(*(row.keys() for row in read_metrics(result.run_dir)))
    assert {"loss/critic", "eval_return_mean", "rollout/return_mean"} <= written
    assert written | result.metrics.keys() <= named


# --- Links and names ----------------------------------------------------------


def anchors(page: Path) -> set[str]:
    heads = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.M)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


@pytest.mark.parametrize("page", PAGES, ids=page_ids)
def test_internal_links_have_a_target(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        file = page.parent / path if path else page
        assert file.exists(), f"{target} does not exist"
        assert not anchor or anchor in anchors(file), f"{target} has no such heading"


def defined_names(file: Path) -> set[str]:
    """Return top-level functions and classes, and ``Class.method``."""
    names: set[str] = set()
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        if isinstance(node, ast.ClassDef):
            methods = (item.name for item in node.body if isinstance(item, ast.FunctionDef))
            names.update(f"{node.name}.{method}" for method in methods)
    return names


@pytest.mark.parametrize("page", PAGES, ids=page_ids)
def test_mentioned_functions_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for path, name in re.findall(r"`([\w/]+\.py):([\w.]+)`", text):
        assert name in defined_names(SOURCE / path), f"{path}:{name} does not exist"


# --- Code and commands on the pages ----------------------------------------------


def run_python(code: str, folder: Path) -> None:
    """Run code in a separate process and require success."""
    done = shared_zygote().run(code=code, cwd=folder)
    assert done.status == 0, done.err


def test_evaluation_page_python_blocks_are_valid() -> None:
    for _, code in blocks("python", "docs/evaluation.md"):
        compile(code, "docs/evaluation.md", "exec")


def commands(page: str) -> list[str]:
    """Return the lines of a page that call the command line."""
    lines = [line for _, code in blocks("bash", page) for line in code.splitlines()]
    return [line for line in lines if line.startswith("rl-training ")]


PAGES_WITH_COMMANDS = (
    *("configuration", "evaluation", "extending", "finetuning"),
    *("performance", "resume", "roadmap", "security"),
)


@pytest.mark.parametrize(
    "line", [line for page in PAGES_WITH_COMMANDS for line in commands(f"docs/{page}.md")]
)
def test_commands_are_accepted(line: str) -> None:
    """Parse each command as the command line does, including configs and overrides."""
    group: Any = typer.main.get_command(cli.app)
    words = shlex.split(line, comments=True)[1:]
    name, *arguments = words[2:] if words[0] == "--import" else words
    command = group.commands[name]
    while arguments and arguments[0] in getattr(command, "commands", {}):
        command = command.commands[arguments.pop(0)]
    values = command.make_context(name, arguments).params
    if name == "train" and values["config"] != "my.yaml":
        parse_train_arguments(values["config"], values["words"] or ())
        return
    data = read_config(values.get("name") or "sac/pendulum")
    for override in values.get("overrides") or values.get("words") or ():
        apply_override(data, override)
    make_config(data)


def test_make_targets_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", read("Makefile"), re.M))
    for page in ("README.md", "CONTRIBUTING.md"):
        assert set(re.findall(r"(?:^|`)make ([a-z-]+)", read(page), re.M)) <= targets


def test_dataset_page_runs_from_top_to_bottom(tmp_path: Path) -> None:
    """Its Python blocks and commands run in order, in one folder."""
    pytest.importorskip("h5py")
    pytest.importorskip("matplotlib")
    script = ["from tests.faults.zygote import run_command"]
    for match in FENCE.finditer(read("docs/datasets.md")):
        if match["language"] == "python":
            script.append(match["code"])
        elif match["language"] == "bash":
            for line in match["code"].splitlines():
                script.append(f"run_command(*{shlex.split(line)[1:]!r})")
    run_python("\n".join(script), tmp_path)
    assert {"mine.png", "again.npz", "policy.npz"} <= {path.name for path in tmp_path.iterdir()}


def test_callbacks_page_runs_and_lists_every_hook(tmp_path: Path) -> None:
    run_python("\n".join(code for _, code in blocks("python", "docs/callbacks.md")), tmp_path)
    hooks = {name for name in vars(Callback) if name.startswith("on_")}
    named = {row[0].strip("`").partition("(")[0] for row in rows(read("docs/callbacks.md"))}
    assert hooks <= named


@pytest.mark.parametrize(
    "page",
    [
        "action_masks",
        "environments",
        "logging",
        "model_cards",
        "observations",
        "pixels",
        "statistics",
    ],
)
def test_guide_runs_from_top_to_bottom(tmp_path: Path, page: str) -> None:
    run_page(f"docs/{page}.md", tmp_path)


def brief_study(arguments: list[str]) -> list[str]:
    """Shorten a command of the page on studies to run in seconds."""
    if arguments[:2] != ["study", "run"]:
        return arguments
    words = ["1" if word == "5" else word for word in arguments]
    tiny = "total_timesteps=40 learning_starts=30 hidden_sizes=[16] eval_episodes=1"
    return [*words, *tiny.split()]


def test_studies_page_runs_from_top_to_bottom(tmp_path: Path) -> None:
    run_page("docs/studies.md", tmp_path, brief_study)


def brief_training(arguments: list[str]) -> list[str]:
    """Shorten a command of the page on many seeds."""
    if arguments[0] != "train":
        return arguments
    tiny = "total_timesteps=40 learning_starts=30 hidden_sizes=[16] eval_episodes=1"
    return [*arguments, *tiny.split()]


@pytest.mark.slow
def test_populations_page_runs_from_top_to_bottom(tmp_path: Path) -> None:
    run_page("docs/populations.md", tmp_path, brief_training)


def test_studies_page_lists_every_key_with_its_default() -> None:
    table = {(row[0], row[1]) for row in rows(read("docs/studies.md"))}
    known = set()
    for model in (StudyConfig, RunEntry, ResourcesConfig):
        for name, field in model.model_fields.items():
            default = field.get_default(call_default_factory=True)
            known.add((f"`{name}`", "required" if field.is_required() else shown(default)))
    assert known == {row for row in table if row[0].startswith("`")}


def test_export_page_runs_from_top_to_bottom(tmp_path: Path) -> None:
    for package in ("onnx", "onnxscript", "onnxruntime"):
        pytest.importorskip(package)
    run_page("docs/export.md", tmp_path)
    files = {path.name for path in tmp_path.iterdir()}
    assert {"policy.onnx", "policy.json", "policy.py", "policy.pt2"} <= files


def test_own_algorithm_page_runs(tmp_path: Path) -> None:
    """The page's learners train, resume and are evaluated like the package's."""
    run_python("\n".join(code for _, code in blocks("python", "docs/own_algorithm.md")), tmp_path)
    runs = {path.name for path in (tmp_path / "runs").iterdir()}
    assert runs == {"mean_sac_Pendulum-v1_seed0", "regression_Pendulum-v1_seed0"}


COMPARE_WITH_PACKAGED_REBRAC = """
import torch
from rl_training import Batch, EnvSpec, ReBRACAlgorithm

rows, generator = 64, torch.Generator().manual_seed(0)
normal = lambda *shape: torch.randn(*shape, generator=generator)
flags = lambda share: (torch.rand(rows, generator=generator) < share).float()
extra = {"next_actions": normal(rows, 2).tanh(), "next_action_mask": flags(0.8)}
batch = Batch(
    normal(rows, 3), normal(rows, 2).tanh(), normal(rows), normal(rows, 3), flags(0.2), extra
)
settings = dict(hidden_sizes=(32, 32), learning_rate=1e-3, actor_penalty=0.3, critic_penalty=0.2)
learners = [
    kind.build(EnvSpec(3, 2), kind.config_class(**settings), seed=0)
    for kind in (MyReBRAC, ReBRACAlgorithm)
]
for number in range(4):
    noise = {"smoothing": normal(rows, 2)}
    for learner in learners:
        learner.update(batch, noise, learner.due(number))
mine, theirs = (torch.cat([p.flatten() for p in learner.parameters()]) for learner in learners)
assert torch.equal(mine, theirs)
"""


def test_extending_page_runs_and_its_rebrac_equals_ours(tmp_path: Path) -> None:
    page = "docs/extending.md"
    code = [code for run, code in blocks("python", page) if run]
    run_python("\n".join([*code, COMPARE_WITH_PACKAGED_REBRAC]), tmp_path)
    for _, part in blocks("python", page):
        compile(part, page, "exec")


def test_stable_imports_exist() -> None:
    table = read("docs/extending.md").partition("## Stable imports")[2]
    for module, names in rows(table)[2:]:
        exported = importlib.import_module(module.strip("`"))
        for name in re.findall(r"`(\w+)`", names):
            assert hasattr(exported, name), f"{module} has no {name}"


def test_migrating_page_runs_and_uses_existing_keys(tmp_path: Path) -> None:
    page = "docs/migrating.md"
    run_python("\n".join(code for run, code in blocks("python", page) if run), tmp_path)
    for run, code in blocks("python", page):
        if not run:
            compile(code, page, "exec")
    known = {name for model in MODELS for name in model.model_fields}
    keys = re.compile(r"`(\w+)(?:=[^`]*)?`")
    named = {key for row in rows(read(page))[2:] for key in keys.findall(row[1])}
    assert {"alpha", "learning_starts", "num_envs", "hidden_sizes"} <= named <= known


def test_migrating_page_covers_four_libraries_with_existing_imports() -> None:
    text = read("docs/migrating.md")
    for library in ("Stable-Baselines3", "d3rlpy", "CleanRL", "axiomrl"):
        section = text.partition(f"\n## {library}\n")[2].partition("\n## ")[0]
        imports = re.findall(r"`rl_training((?:\.\w+)+)", section)
        assert imports, f"{library} maps no imports"
        for dotted in imports:
            found: Any = importlib.import_module("rl_training")
            for name in dotted.strip(".").split("."):
                assert hasattr(found, name), f"rl_training{dotted} does not exist"
                found = getattr(found, name)


@pytest.mark.parametrize("text", [code for _, code in blocks("yaml", "docs/datasets.md")])
def test_configs_on_pages_are_valid(text: str) -> None:
    make_config(yaml.safe_load(text))
