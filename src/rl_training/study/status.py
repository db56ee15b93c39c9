"""The state of the runs of a study, for people and programs."""

from __future__ import annotations

from typing import Any

from rl_training.study.index import StudyIndex, StudyRun
from rl_training.study.records import RunStatus


def run_rows(index: StudyIndex) -> list[dict[str, Any]]:
    """Return what is known about each run, as plain data."""
    return [
        {
            "run": run.key,
            "label": run.label,
            "task": run.task,
            "seed": run.seed,
            "status": run.status.value,
            "path": str(run.path),
            "attempts": run.attempts,
            "step": current_info(run).get("step", run.step),
            "total_timesteps": run.group.config.get("total_timesteps"),
            "threads": run.threads,
            "seconds": run.seconds,
            "results": dict(run.results),
            "reason": run.reason,
            "failures": [
                {"attempt": failure.attempt, "step": failure.step, "reason": failure.reason}
                for failure in run.failures
            ],
        }
        for run in index
    ]


def current_info(run: StudyRun) -> dict[str, Any]:
    """Return the ``run.json`` of a run that has started but not ended, else an empty mapping."""
    if run.status not in (RunStatus.RUNNING, RunStatus.INTERRUPTED):
        return {}
    from rl_training.experiment.run_directory import read_run_info

    return read_run_info(run.path)


def run_progress(run: StudyRun) -> str:
    """Describe the progress of a running run, as of its last log entry."""
    info = current_info(run)
    step, total = info.get("step"), run.group.config.get("total_timesteps")
    parts = [f"step {step:,}/{total:,}"] if isinstance(step, int) and isinstance(total, int) else []
    last = info.get("last_return")
    if isinstance(last, int | float):
        parts.append(f"eval {last:,.1f}")
    return "  ".join(parts) or "starting"
