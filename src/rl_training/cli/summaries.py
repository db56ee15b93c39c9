"""Results as text: evaluations, settings and the outcome of a run."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from rl_training.text import counted

if TYPE_CHECKING:
    from rl_training.experiment.config import TrainConfig
    from rl_training.runtime.training_loop import TrainResult


def evaluation_text(result: dict[str, Any]) -> str:
    """Describe an evaluation: returns of episodes, a held-out loss, or a fitted Q evaluation."""
    step = f"step {result['step']:,}"
    if "fqe_value" in result:
        return (
            f"{step.capitalize()}, {result['fqe_updates']:,} updates on {result['dataset']}: "
            f"value {result['fqe_value']:.2f} ± {result['fqe_value_std']:.2f} over "
            f"{result['fqe_episodes']:,} first observations (discount {result['gamma']:g}, critic "
            f"spread {result['fqe_critic_spread']:.2g}, held-out squared error "
            f"{result['fqe_loss']:.4g}); mean discounted return of the data "
            f"{result['fqe_return_mean_data']:.2f}"
        )
    if result["env_id"] is None:
        rows = f"{step.capitalize()}, {result['eval_rows']:,} held-out rows"
        return f"{rows}: loss {result['eval_loss']:.6g}"
    bounds = result["eval_return_ci95"]
    interval = bounds and f" (95% interval of the mean {bounds[0]:.2f} to {bounds[1]:.2f})"
    return (
        f"{result['env_id']}, {step}, {counted(result['eval_episodes'], 'episode')}: "
        f"return {result['eval_return_mean']:.2f} ± {result['eval_return_std']:.2f}"
        f"{interval or ''}, length {result['eval_length_mean']:.1f}{_success_text(result)}"
    )


def settings_text(config: TrainConfig, note: str = "") -> str:
    """List the settings of a config that differ from the defaults, one per line, and a note."""
    from rl_training.boundary.yaml_codec import yaml_text
    from rl_training.experiment.config_keys import changed_settings

    changed = changed_settings(config)
    width = max(map(len, changed), default=0)
    lines = [f"  {key:<{width}}  {yaml_text(value)}" for key, value in changed.items()]
    head = "Settings that differ from the defaults (--show-config prints all):"
    return "\n".join([head, *lines, *filter(None, [note])])


def training_lines(result: TrainResult, imports: Sequence[str]) -> Iterator[str]:
    """Yield lines about the outcome of a run, and commands to run next."""
    from rl_training.experiment.run_directory import parent_folder, read_config_file
    from rl_training.runtime.stop_reason import COMPLETED

    metrics, run_dir = result.metrics, shlex.quote(str(result.run_dir))
    config = read_config_file(result.run_dir)
    again = repeated_arguments(config, imports)
    if result.interrupted_by is not None:
        yield f"Interrupted at {_step_text(metrics)}; a checkpoint was saved."
        yield f"Continue with: rl-training {again.imports}resume {run_dir}{again.overrides}"
        return
    if result.stop == COMPLETED:
        yield f"Finished at {_step_text(metrics)}."
    else:
        yield f"Stopped at {_step_text(metrics)}: {result.stop_reason}"
    if "eval_return_mean" in metrics:
        yield (
            f"Evaluation return: {metrics['eval_return_mean']:.2f} ± "
            f"{metrics['eval_return_std']:.2f}{_best_text(metrics, 'best_return', '.2f')}"
            f"{_success_text(metrics)}"
        )
        if metrics.get("return_before") is not None:
            yield (
                f"Fine-tuning: return {score_text(metrics['return_before'])} before, "
                f"{score_text(metrics['return_lowest'])} at its lowest, "
                f"{score_text(metrics['return_after'])} now"
            )
    elif "eval_loss" in metrics:
        best = _best_text(metrics, "best_loss", ".6g")
        yield f"Held-out loss: {metrics['eval_loss']:.6g}{best}"
    more = f"total_timesteps={2 * metrics.get('env_steps', metrics['step'])}"
    if result.stop.is_early_stopping:
        more = "early_stopping=null"
    yield f"Run folder: {result.run_dir}"
    yield "Next:"
    for words in _next_commands(config, result, again):
        yield f"  rl-training {again.imports}{words}"
    yield f"  rl-training {again.imports}resume {run_dir} {more}{again.overrides}"
    if config.logging.tensorboard and find_spec("tensorboard"):
        yield f"  tensorboard --logdir {run_dir}"
    yield f"  rl-training runs {shlex.quote(str(parent_folder(result.run_dir)))}"


def _step_text(metrics: dict[str, Any]) -> str:
    """Return the step, with the environment steps if updates before collection count as well."""
    step, env_steps = metrics["step"], metrics.get("env_steps")
    collected = "" if env_steps in (None, step) else f" ({env_steps:,} environment steps)"
    return f"step {step:,}{collected}"


def _next_commands(
    config: TrainConfig, result: TrainResult, again: RepeatedArguments
) -> Iterator[str]:
    """Yield commands that work for this kind of run with the installed extras."""
    from rl_training.algorithms.registry import get_algorithm
    from rl_training.envs.resolving import is_compatibility_env

    run_dir = shlex.quote(str(result.run_dir))
    evaluated = {"eval_return_mean", "eval_loss"} & result.metrics.keys()
    if config.env_id is None:
        yield f"evaluate {run_dir} --fqe"
    else:
        yield f"evaluate {run_dir} --episodes 20{again.options}"
    if evaluated and find_spec("matplotlib"):
        yield f"plot {run_dir} --out plot.png"
    if config.env_id is None:
        return
    if _can_record_video(config.env_id):
        yield f"evaluate {run_dir} --episodes 1 --video video.gif{again.options}"
    entry = get_algorithm(config.algo)
    if entry.mode == "offline" and entry.learner_class().learns_from_rewards:
        yield f"finetune {run_dir} total_timesteps=5000{again.overrides}"
    # `data collect` has no --env-id, which a compatibility environment requires.
    elif entry.mode != "offline" and not entry.goals and not is_compatibility_env(config.env_id):
        yield f"data collect {run_dir} --steps 10000 --out data.npz{again.options}"


def _can_record_video(env_id: str) -> bool:
    """Return whether the video extra is installed and the environment can render frames."""
    from rl_training.envs.resolving import find_env_class

    env_class = find_env_class(env_id)
    if env_class is None or find_spec("imageio") is None:
        return False
    if env_class.__module__.startswith("gymnasium.envs.") and find_spec("pygame") is None:
        return False
    return "rgb_array" in getattr(env_class, "metadata", {}).get("render_modes", [])


def _success_text(metrics: dict[str, Any]) -> str:
    """Describe the share of successful episodes, if the environment reports it."""
    rate = metrics.get("eval_success_rate")
    return "" if rate is None else f"; success {rate:.0%}"


def _best_text(metrics: dict[str, Any], key: str, form: str) -> str:
    """Describe the best result; a run that was branched from a checkpoint may not have one."""
    value = metrics[key]
    return "" if value is None else f"; best {value:{form}} at step {metrics['best_step']:,}"


def score_text(mean_return: float | None, loss: float | None = None) -> str:
    """Format a return, or else a held-out loss, or else a dash."""
    if mean_return is None:
        return "–" if loss is None else f"loss {loss:.4g}"
    return f"{mean_return:.1f}"


@dataclass(frozen=True)
class RepeatedArguments:
    """Arguments that the next command must repeat, since files must not choose code to run."""

    imports: str
    """Before the command: ``--import my_envs``."""
    options: str
    """For `evaluate`: ``--env-id GymV21Environment-v0 --env-kwarg xml_file=mine.xml``."""
    overrides: str
    """For `resume`: ``env_kwargs.xml_file=mine.xml``."""


def repeated_arguments(config: TrainConfig, imports: Sequence[str]) -> RepeatedArguments:
    """Return the arguments that the next command on a run must repeat."""
    from rl_training.envs.resolving import import_to_name, is_compatibility_env, kwargs_to_name

    modules = list(imports)
    options: list[tuple[str, str]] = []
    overrides: list[str] = []
    if config.env_id is not None:
        needed = import_to_name(config.env_id)
        if needed is not None and needed not in modules:
            modules.append(needed)
        if is_compatibility_env(config.env_id):
            options.append(("--env-id", config.env_id))
            overrides.append(f"env_id={config.env_id}")
        for key, value in kwargs_to_name(config.parts.env.make_kwargs).items():
            options.append(("--env-kwarg", f"{key}={_yaml_text(value)}"))
            overrides.append(f"env_kwargs.{key}={_yaml_text(value)}")
    return RepeatedArguments(
        imports="".join(f"--import {shlex.quote(module)} " for module in modules),
        options="".join(f" {option} {shlex.quote(text)}" for option, text in options),
        overrides="".join(f" {shlex.quote(text)}" for text in overrides),
    )


def _yaml_text(value: Any) -> str:
    """Format a value as it would be written after KEY=; JSON is valid YAML."""
    from rl_training.boundary.yaml_codec import parse_yaml

    bare = isinstance(value, str) and re.fullmatch(r"[A-Za-z/.][A-Za-z0-9_/.-]*", value)
    return value if bare and parse_yaml(value, value) == value else json.dumps(value)
