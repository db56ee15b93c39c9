"""Files written by `make generate` are up to date and match the classes."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

import pytest
from tools import generate

import rl_training
from rl_training.algorithms.registry import REGISTRY, AlgorithmEntry, check_learner
from rl_training.experiment.config import TrainConfig, kwargs_models

SOURCE = Path(__file__).parents[1] / "src" / "rl_training"

entries = pytest.mark.parametrize("entry", REGISTRY.values(), ids=lambda entry: entry.name)


def test_generated_files_are_up_to_date() -> None:
    files = {generate.CATALOG: generate.catalog()} | generate.derived()
    stale = [path.name for path, text in files.items() if path.read_text(encoding="utf-8") != text]
    assert not stale, "run make generate"
    assert set(generate.CODE.glob("*.pyi")) == {path for path in files if path.suffix == ".pyi"}


@entries
def test_algorithm_name_appears_only_in_its_file_and_the_catalog(entry: AlgorithmEntry) -> None:
    """Other files in algorithms/ may derive from it."""
    allowed = {SOURCE / "algorithms" / f"{entry.name}.py", generate.CATALOG}
    for file in {*SOURCE.rglob("*.py")} - allowed:
        if file.parent.name != "algorithms":
            tree = ast.walk(ast.parse(file.read_text(encoding="utf-8")))
            texts = [node.value for node in tree if isinstance(node, ast.Constant)]
            assert entry.name not in texts, file


@entries
def test_signature_and_help_have_every_option(entry: AlgorithmEntry) -> None:
    managed = getattr(rl_training, entry.short_name)
    shown = inspect.signature(managed).parameters
    expected = set(TrainConfig.model_fields) - {"algo", "total_timesteps", "algo_kwargs"}
    expected |= {"env", "eval_env"}
    for base in getattr(entry, "bases", lambda: ["sac"])():
        for model in kwargs_models(entry.name, {"base_algo": base}):
            expected |= set(model.model_fields)
    expected |= set() if entry.mode == "online" else {"dataset"}
    assert set(shown) == expected
    for model in kwargs_models(entry.name):
        for name, field in model.model_fields.items():
            default = field.get_default(call_default_factory=True)
            assert shown[name].default == default
            assert f"{name} (default {default!r}): " in managed.__doc__
    assert next(iter(shown)) == "env"
    assert "env: An environment id, a gymnasium.Env, a class or a function" in managed.__doc__


@entries
def test_every_option_has_a_description(entry: AlgorithmEntry) -> None:
    for model in kwargs_models(entry.name):
        for name, field in model.model_fields.items():
            assert str(field.description).endswith("."), name


@entries
def test_packaged_learners_pass_registration_checks(entry: AlgorithmEntry) -> None:
    check_learner(entry.learner_class(), entry.mode, entry.actions)
