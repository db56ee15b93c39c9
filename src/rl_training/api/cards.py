"""Model cards: what a policy is, how good it is, and how to use and reproduce it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rl_training.api.arguments import as_output, as_path, whole_number
from rl_training.api.card_text import (
    CHECKPOINT,
    POLICY,
    CardFacts,
    LearningCurve,
    Returns,
    card_text,
)
from rl_training.api.checkpoints import EPISODES, evaluate_checkpoint
from rl_training.api.exporting import export_checkpoint
from rl_training.api.publishing import published_checkpoint
from rl_training.api.run_curves import Run
from rl_training.api.run_plots import draw_runs
from rl_training.boundary.hub import check_login, check_repo, upload
from rl_training.boundary.onnx_format import require_onnx
from rl_training.boundary.reading import read_bytes
from rl_training.boundary.writing import replace_files
from rl_training.curves import EVALUATION_RETURN
from rl_training.envs import EnvLike
from rl_training.errors import ConfigError, RLTrainingError
from rl_training.experiment.run_directory import is_run, read_run_info
from rl_training.experiment.saved_run import SavedRun
from rl_training.runtime.logging import read_metrics
from rl_training.text import counted, shown

README = "README.md"
OWNED = re.compile(rf"{CHECKPOINT}/.+|policy\.(onnx|json|py)|README\.png")
"""Files of an earlier upload that are deleted if the new one does not contain them."""

CURVES = {
    EVALUATION_RETURN: "Evaluation return",
    "rollout/return_mean": "Training return",
    "eval_loss": "Loss on held-out data",
}
"""Metrics for the learning curve; the first one that the run has is used."""


def model_card(
    path: str | Path,
    out: str | Path | None = None,
    *,
    best: bool = False,
    episodes: int | None = None,
    env: EnvLike | None = None,
    license: str | None = None,
    push: str | None = None,
    private: bool = False,
    onnx: bool = False,
    overwrite: bool = False,
) -> dict[str, Any]:
    """Write a model card for a run or checkpoint, in the layout of the Hugging Face hub.

    The card is Markdown: the task, the algorithm, returns with a confidence interval, the learning
    curve, how to use the policy, and the command, settings, versions and data of the run. Absolute
    paths are replaced with file names (docs/model_cards.md).

    Args:
        path: A run, whose last checkpoint is described, or a checkpoint.
        out: File to write. The learning curve is written next to it, with the suffix .png. By
            default ``README.md`` in the run's folder, or no file with ``push``.
        best: Describe the best checkpoint of the run instead of the last one.
        episodes: Number of evaluation episodes, 10 by default if the environment can be created;
            0 to use the evaluation of this checkpoint during training, if there was one.
        env: The environment of the run, if it was passed as an object.
        license: License of the weights, as the hub names it, such as ``"apache-2.0"``.
        push: Repository on the hub, ``"USER/NAME"``, to which the card and the checkpoint are
            uploaded. It is created if it does not exist.
        private: Upload only to a private repository.
        onnx: Also upload the policy as an ONNX model.
        overwrite: Replace existing files.

    Returns:
        The files, the returns, and the address of the repository.

    Raises:
        ConfigError: An argument is invalid, or a file cannot be written.
        RLTrainingError: The upload failed.
    """
    _check_license(license)
    repo = _check_upload(push, private=private, onnx=onnx)
    if episodes is not None:
        episodes = whole_number("episodes", episodes, least=0)
    checkpoint = SavedRun.load(as_path("path", path), best=best)
    file = _destination(checkpoint, out, pushed=repo is not None, overwrite=overwrite)
    notes: list[str] = []
    returns = _evaluate(checkpoint, episodes, env, notes)
    curve, image = _learning_curve(checkpoint, notes)
    facts = CardFacts(
        checkpoint,
        info=_run_info(checkpoint),
        returns=returns,
        curve=curve,
        license=license,
        repo=repo,
        has_policy=onnx,
    )
    uploaded: list[str] = []
    url = None
    if repo is not None:
        contents = _card_files(facts, image, README)
        contents |= {f"{CHECKPOINT}/{k}": x for k, x in published_checkpoint(checkpoint).items()}
        contents |= _exported_policy(checkpoint) if onnx else {}
        message = f"Upload a {facts.algorithm.short_name} agent, step {checkpoint.step:,}"
        url = upload(repo, contents, owned=OWNED, private=private, message=message)
        uploaded = list(contents)
    written: list[str] = []
    if file is not None:
        named = _card_files(facts, image, file.name)
        with replace_files({file.with_name(name): data for name, data in named.items()}):
            written = [str(file.with_name(name)) for name in named]
    return {
        "checkpoint_path": str(checkpoint.path),
        "step": checkpoint.step,
        "files": written,
        "return_mean": None if returns is None else returns.mean,
        "return_std": None if returns is None else returns.std,
        "return_ci95": None if returns is None else returns.interval,
        "uploaded": uploaded,
        "url": url,
        "notes": notes,
    }


# --- Arguments ------------------------------------------------------------------


def _check_license(license: Any) -> None:
    valid = isinstance(license, str) and re.fullmatch(r"[a-z0-9][a-z0-9.+-]*", license)
    if license is not None and not valid:
        raise ConfigError(
            f"license = {shown(license)}: should be a name that the hub knows, such as apache-2.0, "
            "mit or cc-by-4.0."
        )


def _check_upload(push: Any, *, private: bool, onnx: bool) -> str | None:
    """Return the name of the repository; everything that an upload needs is checked here."""
    if push is None:
        if private or onnx:
            option = "private" if private else "onnx"
            raise ConfigError(f"{option} requires push: name a repository, as in USER/NAME.")
        return None
    repo = check_repo(push)
    check_login()
    if onnx:
        require_onnx()
    return repo


def _destination(checkpoint: SavedRun, out: Any, *, pushed: bool, overwrite: bool) -> Path | None:
    """Return the file to write; None if the card is only uploaded."""
    if out is None and pushed:
        return None
    if out is None:
        if checkpoint.run_dir is None:
            raise ConfigError(
                f"{checkpoint.path} is not part of a run: name a file with --out (out=…)."
            )
        out = checkpoint.run_dir / README
    file = as_output("out", out, [".md"])
    for name in (file, file.with_suffix(".png")):
        if name.is_dir():
            raise ConfigError(f"{name} is a folder: pass the name of a file.")
        if name.exists() and not overwrite:
            raise ConfigError(
                f"{name} already exists: choose another name with --out (out=…), or replace it "
                "with --force (overwrite=True)."
            )
    return file


# --- Contents -------------------------------------------------------------------


def _card_files(facts: CardFacts, image: bytes | None, name: str) -> dict[str, bytes]:
    """Return the card, and the image of its learning curve if there is one."""
    if facts.curve is None or image is None:
        return {name: card_text(facts).encode()}
    figure = Path(name).with_suffix(".png").name
    text = card_text(replace(facts, curve=replace(facts.curve, figure=figure)))
    return {name: text.encode(), figure: image}


def _evaluate(
    checkpoint: SavedRun, episodes: int | None, env: EnvLike | None, notes: list[str]
) -> Returns | None:
    """Play episodes; if that is not possible or not wanted, return the last recorded evaluation."""
    has_env = env is not None or checkpoint.config.env_id is not None
    if episodes != 0 and has_env:
        try:
            played = evaluate_checkpoint(checkpoint.path, episodes=episodes or EPISODES, env=env)
        except RLTrainingError as error:
            if episodes is not None:
                raise
            notes.append(f"no episodes were played: {error}")
        else:
            count, interval = played["eval_episodes"], played["eval_return_ci95"]
            seeds = f"the seeds 0 to {count - 1}" if count > 1 else "seed 0"
            return Returns(
                mean=played["eval_return_mean"],
                std=played["eval_return_std"],
                how=f"{counted(count, 'episode')} with {seeds}",
                interval=None if interval is None else (interval[0], interval[1]),
                success_rate=played.get("eval_success_rate"),
            )
    elif episodes:
        raise ConfigError(
            f"{checkpoint.path} was trained without an environment, so no episodes can be played."
        )
    return _recorded_returns(checkpoint)


def _recorded_returns(checkpoint: SavedRun) -> Returns | None:
    """Return the evaluation of this checkpoint during training; one of other weights is ignored."""
    trained = checkpoint.trainer_state()
    found, step = trained.evaluation, trained.evaluation_step
    if step != checkpoint.step or not {"eval_return_mean", "eval_return_std"} <= found.keys():
        return None
    return Returns(
        mean=found["eval_return_mean"],
        std=found["eval_return_std"],
        how=f"{counted(checkpoint.config.eval_episodes, 'episode')} during training",
        success_rate=found.get("eval_success_rate"),
    )


def _run_info(checkpoint: SavedRun) -> dict[str, Any]:
    """Return ``run.json`` and the training time until the checkpoint; empty for a copy."""
    run_dir = checkpoint.run_dir
    if run_dir is None:
        return {}
    seconds = None
    for row in read_metrics(run_dir):
        if row["step"] <= checkpoint.step:
            seconds = row.get("time/seconds", seconds)
    return read_run_info(run_dir) | {"seconds": seconds}


def _learning_curve(
    checkpoint: SavedRun, notes: list[str]
) -> tuple[LearningCurve | None, bytes | None]:
    """Return the run's learning curve and its image; None without metrics or without matplotlib."""
    run_dir = checkpoint.run_dir
    if run_dir is None or not is_run(run_dir):
        return None, None
    run = Run(run_dir)
    for metric, name in CURVES.items():
        with suppress(ConfigError):  # the run does not have this metric
            found = run.curve(metric, "steps")
            points = [(int(x), float(y)) for x, y in zip(found.x, found.y, strict=True)]
            return LearningCurve(name, points), _plot(run_dir, metric, name, notes)
    return None, None


def _plot(run_dir: Path, metric: str, name: str, notes: list[str]) -> bytes | None:
    try:
        return draw_runs(run_dir, ".png", metric=metric, ylabel=name)[0]
    except ConfigError as error:
        notes.append(f"the card has a table instead of a plot: {error}")
        return None


def _exported_policy(checkpoint: SavedRun) -> dict[str, bytes]:
    """Return the files of the standalone policy."""
    with TemporaryDirectory() as folder:
        result = export_checkpoint(checkpoint.path, Path(folder) / POLICY, standalone=True)
        files: Sequence[Path] = [Path(name) for name in result["files"]]
        return {file.name: read_bytes(file, limit=file.stat().st_size) for file in files}
