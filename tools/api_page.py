"""The page of the API reference with one section per algorithm."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from typing import Any

import rl_training
from rl_training.algorithms.registry import REGISTRY, AlgorithmEntry
from rl_training.envs import POINT_GOAL
from rl_training.generated import catalog
from rl_training.types import EnvSpec

INTRODUCTION = """\
Every algorithm has the same parts:

- the **managed class**, such as `SAC`, trains with an environment or a dataset and saves the run;
- **`train_<algo>`** does the same from a config;
- the **learner class** with its **config class** is the update alone, for your own training loop;
- the **loss function** computes all losses of the learner without changing it.

HER has only the first two, because it relabels the batches of another learner.

The managed classes share the methods of [`ManagedAlgorithm`](../api/training.md#managed-classes).
The examples use tiny budgets, so that each runs in about a second, and `eval_episodes=0` turns
evaluation off."""


def api_page(note: str) -> str:
    """Return the text of the page, with unformatted code."""
    parts = ["# Algorithm classes", f"<!-- {note} -->", INTRODUCTION]
    for entry in REGISTRY.values():
        parts += section(entry)
    return "\n\n".join(parts) + "\n"


def section(entry: AlgorithmEntry) -> Iterator[str]:
    """Yield an algorithm's example and reference."""
    short, name = entry.short_name, entry.name
    exported: list[str] = catalog.EXPORTS.get(name, [])
    yield f"## {short}"
    yield (
        f"{entry.title}: [how it works](../algorithms/{name}.md), "
        f"[options](algorithms.md#{short.lower()})."
    )
    yield "```python\n" + "\n".join(example(entry, exported)) + "\n```"
    names = [short, f"train_{name}", *exported]
    yield "```{eval-rst}\n" + "\n\n".join(map(directive, names)) + "\n```"


def directive(name: str) -> str:
    """Return the directive that documents a name."""
    if inspect.isclass(getattr(rl_training, name)):
        return f".. autoclass:: rl_training.{name}\n   :no-members:"
    return f".. autofunction:: rl_training.{name}"


def example(entry: AlgorithmEntry, exported: list[str]) -> Iterator[str]:
    """Yield code that uses each of an algorithm's names."""
    short, name = entry.short_name, entry.name
    env_id = "CartPole-v1" if entry.actions == "discrete" else "Pendulum-v1"
    if entry.goals:
        env_id = POINT_GOAL
    steps, settings = 5, {"hidden_sizes": [32, 32], "num_threads": 1}
    if entry.mode != "offline":
        steps, settings["learning_starts"] = 40, 30
    if entry.mode != "online":
        settings |= {"dataset_kind": "random", "dataset_size": 300, "batch_size": 64}
    if entry.mode == "offline_to_online":
        settings["offline_pretrain_updates"] = 5
    names = [short, f"train_{name}", *exported, *(["Batch", "EnvSpec"] if exported else [])]
    if exported:
        yield "import torch"
    yield f"from rl_training import {', '.join(sorted(names, key=import_order))}"
    if exported and takes_noise(exported):
        yield "from rl_training.algorithms import draw_noise"
    yield ""
    yield f"settings = {settings!r}"
    yield f"model = {short}({env_id!r}, eval_episodes=0, **settings).learn({steps})"
    config = {"algo": name, "env_id": env_id, "total_timesteps": steps, "eval_episodes": 0}
    yield f"config = {config!r}"
    yield f"result = train_{name}(config | {{'seed': 1, 'algo_kwargs': settings}})"
    yield "print(model.result.stop_reason, result.stop_reason)"
    if exported:
        yield ""
        yield from loss_example(entry, exported)


def import_order(name: str) -> tuple[int, str]:
    """Return the sort key of an imported name in ruff's order: constants, classes, functions."""
    return (0 if name.isupper() else 1 if name[0].isupper() else 2), name


def loss_example(entry: AlgorithmEntry, exported: list[str]) -> Iterator[str]:
    """Yield code that builds the learner and computes its losses on a random batch."""
    learner_class, config_class, loss, *others = exported
    discrete = entry.actions == "discrete"
    spec = EnvSpec(3, 2, discrete=True) if discrete else EnvSpec(3, 2)
    learner: Any = entry.learner_class().build(spec)
    flag = ", discrete=True" if discrete else ""
    yield f"spec = EnvSpec(obs_dim=3, action_dim=2{flag})"
    yield f"learner = {learner_class}.build(spec, {config_class}(hidden_sizes=(32, 32)), seed=0)"
    yield "actions = " + ("torch.randint(2, (64, 1))" if discrete else "torch.rand(64, 2) * 2 - 1")
    yield "batch = Batch("
    yield "obs=torch.randn(64, 3), actions=actions, rewards=torch.randn(64),"
    yield "next_obs=torch.randn(64, 3), terminations=torch.zeros(64),"
    if learner.fields():
        yield "extra={'next_actions': actions.roll(-1, 0), 'next_action_mask': torch.ones(64)},"
    yield ")"
    arguments = ["learner.model", "batch"]
    if takes_noise(exported):
        yield "noise = draw_noise(learner.noise(64), torch.Generator().manual_seed(0))"
        arguments.append("noise")
    alpha = loss_parameters(exported).get("alpha")
    if alpha is not None and alpha.default is inspect.Parameter.empty:
        arguments.append("alpha=learner.alpha")
    yield f"losses = {loss}({', '.join(arguments)})"
    yield "print({name: round(loss.item(), 3) for name, loss in losses.items()})"
    for other in others:
        yield EXTRA_EXAMPLES[other]


def loss_parameters(exported: list[str]) -> Mapping[str, inspect.Parameter]:
    """Return the parameters of an algorithm's loss function."""
    return inspect.signature(getattr(rl_training, exported[2])).parameters


def takes_noise(exported: list[str]) -> bool:
    """Return whether the loss takes random numbers as an input."""
    return "noise" in loss_parameters(exported)


EXTRA_EXAMPLES = {
    "critic_diversity_loss": "print(critic_diversity_loss(torch.randn(10, 64, 2)))",
}
"""Examples of the functions that only one algorithm exports."""
