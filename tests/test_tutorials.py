"""The tutorials run from top to bottom and print the output that their pages show."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.pages import ROOT, run_page, script_of

GPU_PAGE = "docs/tutorials/gpu.md"
TUTORIALS = sorted(
    path.relative_to(ROOT).as_posix()
    for path in (ROOT / "docs" / "tutorials").glob("*.md")
    if path.name not in ("index.md", "gpu.md")
)
QUICK = {
    "sac/pendulum": "total_timesteps=120 learning_starts=100 eval_interval=60 eval_episodes=1",
    "iql/pendulum": "total_timesteps=20 eval_interval=10 eval_episodes=1 hidden_sizes=[16]",
}
"""Overrides that shorten the runs of the page that shows realistic settings."""


def shortened(arguments: list[str]) -> list[str]:
    """Shorten a command of the first page to run in seconds."""
    for config, overrides in QUICK.items():
        if config in arguments:
            return [*arguments, *overrides.split(), "num_threads=1"]
    return [re.sub(r"^total_timesteps=\d+$", "total_timesteps=150", part) for part in arguments]


def test_get_started_trains_resumes_evaluates_and_plots(
    tmp_path: Path,
) -> None:
    pytest.importorskip("matplotlib")
    run_page("docs/get_started.md", tmp_path, shortened)
    assert {"runs", "curves.png", "mine.npz"} <= {path.name for path in tmp_path.iterdir()}


@pytest.mark.parametrize("page", TUTORIALS)
def test_tutorial_runs_and_prints_what_it_shows(page: str, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    run_page(page, tmp_path)


def test_gpu_tutorial_is_python() -> None:
    compile(script_of(GPU_PAGE), GPU_PAGE, "exec")


@pytest.mark.gpu
def test_gpu_tutorial_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run in this process, since the processes of the other pages see no GPU."""
    monkeypatch.chdir(tmp_path)
    exec(compile(script_of(GPU_PAGE), GPU_PAGE, "exec"), {"__name__": "__main__"})
    assert len(list((tmp_path / "runs").iterdir())) == 2
