"""The lessons of the site run from top to bottom and print what their pages show."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from tests.faults.zygote import shared_zygote
from tests.test_docs import FENCE, NOT_RUN, ROOT, read

TUTORIALS = sorted(path.name for path in (ROOT / "docs" / "tutorials").glob("*.md"))
NEEDS_GPU = "gpu.md"
NUMBER = re.compile(r"-?\d[\d,]*(\.\d+)?(e-?\d+)?")
MARK = "=== block {} ==="
QUICK = {
    "sac/pendulum": "total_timesteps=120 learning_starts=100 eval_interval=60 eval_episodes=1",
    "iql/pendulum": "total_timesteps=20 eval_interval=10 eval_episodes=1 hidden_sizes=[16]",
}
"""Overrides that shorten the runs of the page that shows realistic settings."""


def shortened(arguments: list[str]) -> list[str]:
    """A command of the first page with a budget of seconds."""
    for config, overrides in QUICK.items():
        if config in arguments:
            return [*arguments, *overrides.split(), "num_threads=1"]
    return [re.sub(r"^total_timesteps=\d+$", "total_timesteps=150", part) for part in arguments]


def script_of(page: str, *, quick: bool = False) -> tuple[str, dict[int, str]]:
    """A page's blocks as one program, and the output that it shows after some of them."""
    lines, shown = ["from tests.faults.zygote import run_command"], {}
    for number, match in enumerate(FENCE.finditer(read(page))):
        language, code = match["language"], match["code"]
        if NOT_RUN in match["before"]:
            continue
        if language == "text":
            shown[number - 1] = code
        elif language == "python":
            lines += [f"print({MARK.format(number)!r}, flush=True)", code]
        elif language == "bash":
            lines.append(f"print({MARK.format(number)!r}, flush=True)")
            for command in code.replace("\\\n", " ").splitlines():
                name, *arguments = shlex.split(command)
                assert name == "rl-training", command
                lines.append(f"run_command(*{shortened(arguments) if quick else arguments!r})")
    return "\n".join(lines), shown


def comparable(output: str) -> list[str]:
    """Lines without the digits of their numbers, which depend on the machine."""
    return [" ".join(NUMBER.sub("0", line).split()) for line in output.strip().splitlines()]


def run_page(page: str, folder: Path, *, quick: bool = False) -> None:
    script, shown = script_of(page, quick=quick)
    done = shared_zygote().run(code=script, cwd=folder)
    assert done.status == 0, done.err
    _, *parts = re.split(MARK.format(r"(\d+)") + "\n", done.out)
    printed = dict(zip(map(int, parts[::2]), parts[1::2], strict=True))
    for number, text in shown.items():
        assert comparable(printed[number]) == comparable(text), printed[number]


def test_get_started_leads_to_a_trained_resumed_evaluated_and_plotted_agent(
    tmp_path: Path,
) -> None:
    pytest.importorskip("matplotlib")
    run_page("docs/get_started.md", tmp_path, quick=True)
    assert {"runs", "curves.png", "mine.npz"} <= {path.name for path in tmp_path.iterdir()}


@pytest.mark.parametrize(
    "name", [name for name in TUTORIALS if name not in ("index.md", NEEDS_GPU)]
)
def test_tutorial_runs_and_prints_what_it_shows(name: str, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    run_page(f"docs/tutorials/{name}", tmp_path)


def test_gpu_tutorial_is_python() -> None:
    script, _ = script_of(f"docs/tutorials/{NEEDS_GPU}")
    compile(script, NEEDS_GPU, "exec")


@pytest.mark.gpu
def test_gpu_tutorial_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In this process: those that the other pages run in see no GPU."""
    monkeypatch.chdir(tmp_path)
    script, _ = script_of(f"docs/tutorials/{NEEDS_GPU}")
    exec(compile(script, NEEDS_GPU, "exec"), {"__name__": "__main__"})
    assert len(list((tmp_path / "runs").iterdir())) == 2
