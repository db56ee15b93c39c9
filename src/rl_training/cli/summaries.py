"""What the commands say of results, in words."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rl_training.experiment.config import TrainConfig
    from rl_training.runtime.training_loop import TrainResult


def evaluation_text(result: dict[str, Any]) -> str:
    """Episodes that were played, a loss on rows that were held out, or an estimated value."""
    if "fqe_value" in result:
        return estimate_text(result)
    if result["env_id"] is None:
        rows = f"Step {result['step']:,}, {result['eval_rows']:,} rows held out"
        return f"{rows}: loss {result['eval_loss']:.6g}"
    bounds = result["eval_return_ci95"]
    interval = bounds and f" (95 % interval of the mean {bounds[0]:.2f} to {bounds[1]:.2f})"
    return (
        f"{result['env_id']}, step {result['step']:,}, {result['eval_episodes']} episodes: "
        f"return {result['eval_return_mean']:.2f} ± {result['eval_return_std']:.2f}"
        f"{interval or ''}, length {result['eval_length_mean']:.1f}{success_text(result)}"
    )


def estimate_text(result: dict[str, Any]) -> str:
    """A fitted Q evaluation."""
    return (
        f"Step {result['step']:,}, {result['fqe_updates']:,} updates on {result['dataset']}: "
        f"value {result['fqe_value']:.2f} ± {result['fqe_value_std']:.2f} over "
        f"{result['fqe_episodes']:,} first observations (discount {result['gamma']:g}; critics "
        f"{result['fqe_critic_spread']:.2g} apart; held-out squared error "
        f"{result['fqe_loss']:.4g}); the data's own episodes {result['fqe_return_mean_data']:.2f}"
    )


def training_lines(result: TrainResult, imports: Sequence[str]) -> Iterator[str]:
    """How a training ended, and what to do next."""
    from rl_training.experiment.run_directory import folder_of, read_config_file

    metrics, run_dir = result.metrics, shlex.quote(str(result.run_dir))
    config = read_config_file(result.run_dir)
    again = repeated_names(config, imports)
    if result.interrupted_by is not None:
        yield f"Interrupted at step {metrics['step']:,}; the checkpoint is saved."
        yield f"Continue with: rl-training {again.imports}resume {run_dir}{again.overrides}"
        return
    yield f"Stopped at step {metrics['step']:,}: {result.stop_reason}"
    if "eval_return_mean" in metrics:
        yield (
            f"Evaluation return: {metrics['eval_return_mean']:.2f} ± "
            f"{metrics['eval_return_std']:.2f}{best_text(metrics, 'best_return')}"
            f"{success_text(metrics)}"
        )
        if metrics.get("return_before") is not None:
            yield (
                f"Fine-tuning: return {number_text(metrics['return_before'])} before, "
                f"{number_text(metrics['return_lowest'])} at its lowest, "
                f"{number_text(metrics['return_after'])} now"
            )
    elif "eval_loss" in metrics:
        yield f"Held-out loss: {metrics['eval_loss']:.6g}{best_text(metrics, 'best_loss')}"
    more = f"total_timesteps={2 * metrics.get('env_steps', metrics['step'])}"
    if result.stop.is_early_stopping:
        more = "early_stopping=null"
    yield f"Run folder: {result.run_dir}"
    yield "Next:"
    how = "--fqe" if config.env_id is None else f"--episodes 20{again.options}"
    for line in (
        f"{again.imports}evaluate {run_dir} {how}",
        f"{again.imports}resume {run_dir} {more}{again.overrides}",
        f"runs {shlex.quote(str(folder_of(result.run_dir)))}",
    ):
        yield f"  rl-training {line}"


def success_text(metrics: dict[str, Any]) -> str:
    """The share of episodes that succeeded, where the environment tells it."""
    rate = metrics.get("eval_success_rate")
    return "" if rate is None else f"; success {rate:.0%}"


def best_text(metrics: dict[str, Any], key: str) -> str:
    """The best so far; a run that branched off and evaluated nothing since has none."""
    value, form = metrics[key], ".2f" if key == "best_return" else ".6g"
    return "" if value is None else f"; best {value:{form}} at step {metrics['best_step']:,}"


def score_text(mean_return: float | None, loss: float | None) -> str:
    """A run's return; the held-out loss of one that played no episodes."""
    if mean_return is None:
        return "–" if loss is None else f"loss {loss:.4g}"
    return f"{mean_return:.1f}"


def number_text(value: float | None) -> str:
    """A number, or a dash for none."""
    return "–" if value is None else f"{value:.1f}"


@dataclass(frozen=True)
class RepeatedNames:
    """What the next command must name again, since it takes that from no file."""

    imports: str = ""
    """Before the command: ``--import my_envs``."""
    options: str = ""
    """Of `evaluate`: ``--env-kwarg xml_file=mine.xml``."""
    overrides: str = ""
    """Of `resume`: ``env_kwargs.xml_file=mine.xml``."""


def repeated_names(config: TrainConfig, imports: Sequence[str]) -> RepeatedNames:
    """The words of the next command that name a run's environment."""
    from rl_training.envs.resolving import import_to_name, is_compatibility_env, kwargs_to_name

    env_id, modules = config.env_id, list(imports)
    named, kwargs = [], []
    if env_id is not None:
        needed = import_to_name(env_id)
        modules += [needed] if needed is not None and needed not in modules else []
        named += [env_id] if is_compatibility_env(env_id) else []
        refused = kwargs_to_name(config.parts.env.make_kwargs)
        kwargs += [f"{key}={_yaml_text(value)}" for key, value in refused.items()]
    return RepeatedNames(
        imports="".join(f"--import {shlex.quote(module)} " for module in modules),
        options="".join(
            [f" --env-id {shlex.quote(name)}" for name in named]
            + [f" --env-kwarg {shlex.quote(text)}" for text in kwargs]
        ),
        overrides="".join(
            f" {shlex.quote(text)}"
            for text in [f"env_id={name}" for name in named]
            + [f"env_kwargs.{text}" for text in kwargs]
        ),
    )


def _yaml_text(value: Any) -> str:
    """A value as a person would write it behind KEY=; JSON is YAML too."""
    from rl_training.boundary.yaml_codec import parse_yaml

    bare = isinstance(value, str) and re.fullmatch(r"[A-Za-z/.][A-Za-z0-9_/.-]*", value)
    return value if bare and parse_yaml(value, value) == value else json.dumps(value)
