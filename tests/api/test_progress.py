"""The live display: terminals, logs, notebooks, and the `progress` argument."""

from __future__ import annotations

import io
import sys
import time
import types
from collections.abc import Callable
from typing import Any

import pytest

from rl_training import SAC, finetune, resume, train
from rl_training.api import progress
from rl_training.api.progress import (
    Meter,
    ProgressCallback,
    Report,
    Stage,
    _number,
    notebook_bundle,
    terminal_text,
)
from rl_training.text import duration

Config = Callable[..., dict[str, Any]]


def report(**changes: Any) -> Report:
    facts: dict[str, Any] = {
        "stage": Stage(1_234_567, 10_000_000, "steps"),
        "started": time.perf_counter() - 754.0,
        "speed": 12_345.0,
        "left": 100_000.0,
        "results": ("return -1,234.5", "eval -1,234.5", "best -1,234.5"),
        "metrics": tuple(f"critic loss {n:.4f}" for n in range(20)),
    }
    return Report(**facts | changes)


class Terminal(io.StringIO):
    """A stream that claims to be a terminal."""

    def isatty(self) -> bool:
        return True


# --- Speed and time left ----------------------------------------------------------


def session(step: int, **changes: Any) -> Any:
    """The attributes of a session that a meter reads."""
    facts: dict[str, Any] = {"updates": step, "total": 10_000, "eval_interval": 0} | changes
    return types.SimpleNamespace(
        state=types.SimpleNamespace(
            step=step, updates=facts["updates"], evaluation={}, best_return=None
        ),
        settings=types.SimpleNamespace(
            total_timesteps=facts["total"], eval_interval=facts["eval_interval"]
        ),
        engine=types.SimpleNamespace(preparation_seconds=0.0),
        collector=None,
        evaluator=None,
        validation=None,
        last_log={},
    )


def measured(*samples: tuple[float, int], **changes: Any) -> tuple[Meter, Report]:
    meter = Meter()
    meter.start(session(samples[0][1], **changes), samples[0][0])
    for now, step in samples[1:]:
        meter.add(session(step, **changes), now)
    return meter, meter.report(session(samples[-1][1], **changes))


def test_speed_is_the_recent_one() -> None:
    """A slow start does not count for longer than the window."""
    slow = [(float(second), 12 * second) for second in range(1, 100)]
    fast = [(100.0 + second, 1_188 + 130 * second) for second in range(40)]
    _, shown = measured(*slow, *fast)
    assert shown.speed == pytest.approx(130, rel=0.01)
    assert shown.left == pytest.approx((10_000 - fast[-1][1]) / 130, rel=0.01)


def test_first_update_restarts_the_window() -> None:
    meter = Meter()
    meter.start(session(0, updates=0), 0.0)
    meter.add(session(5_000, updates=0), 1.0)
    for second in range(1, 4):
        meter.add(session(5_000 + 100 * second, updates=1), 1.0 + second)
    assert meter.report(session(5_300)).speed == pytest.approx(100)


def test_evaluations_affect_the_time_left_but_not_the_speed() -> None:
    meter = Meter()
    at = {"eval_interval": 1_000}
    meter.start(session(1, **at), 0.0)
    meter.add(session(1_001, **at), 10.0)
    meter.exclude_evaluation(25.0)
    meter.add(session(2_001, **at), 45.0)
    shown = meter.report(session(2_001, **at))
    assert shown.speed == pytest.approx(100)
    assert shown.left == pytest.approx(7_999 / 100 + 7 * 25.0)


def test_speed_is_unknown_before_the_first_steps() -> None:
    _, shown = measured((0.0, 1))
    assert (shown.speed, shown.left) == (None, None)
    assert shown.times()[0] == "– updates/s"


# --- Views ------------------------------------------------------------------------


@pytest.mark.parametrize("width", [20, 40, 79, 100, 200])
@pytest.mark.parametrize("phase", ["", "pretraining "])
def test_no_line_is_wider_than_the_terminal(width: int, phase: str) -> None:
    stage = Stage(1_234_567, 10_000_000, "updates", phase)
    text = terminal_text(report(stage=stage), width).plain
    assert max(map(len, text.splitlines())) <= width
    assert text.count("\n") == 2


def test_wider_terminal_shows_more() -> None:
    narrow, wide = (terminal_text(report(), width).plain for width in (79, 160))
    assert "eval" in narrow
    assert wide.count("critic loss") > narrow.count("critic loss") >= 3
    assert "12%" in narrow
    assert terminal_text(report(), 79, ascii_only=True).plain.isascii()


def test_log_has_lines_without_control_characters(
    small_config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "PLAIN_SECONDS", 0.0)
    stream = io.StringIO()
    kwargs = {"eval_interval": 60}
    train(small_config(eval_episodes=1, algo_kwargs=kwargs), callbacks=[ProgressCallback(stream)])
    lines = stream.getvalue().splitlines()
    assert all(line.isprintable() for line in lines)
    last = lines[-1]
    assert last.startswith("step 120/120  ")
    labels = ("steps/s", "elapsed 0:", "left 0:00", "return ", "eval -", "best -", "critic loss ")
    for label in (*labels, "actor loss ", "alpha ", "entropy "):
        assert label in last
    assert lines.count(last) == 1


def test_lines_of_a_log_are_seconds_apart(small_config: Config) -> None:
    stream = io.StringIO()
    train(small_config(), callbacks=[ProgressCallback(stream)])
    assert [line for line in stream.getvalue().splitlines() if line.startswith("step ")] == [
        stream.getvalue().splitlines()[-1]
    ]


def test_terminal_shows_a_bar(small_config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal()
    display = ProgressCallback(stream, settings="settings:\n  seed  1")
    train(small_config(), callbacks=[display])
    text = stream.getvalue()
    assert "settings:\n  seed  1\nTraining sac on Pendulum-v1" in text
    assert "120/120 steps" in text
    assert "100%" in text
    assert text.rstrip().endswith("\x1b[?25h")  # the cursor is visible again


def test_dumb_terminal_shows_lines(small_config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    stream = Terminal()
    train(small_config(), callbacks=[ProgressCallback(stream)])
    assert "\x1b" not in stream.getvalue()


class Handle:
    """IPython's handle for an output that can be replaced."""

    def __init__(self, first: dict[str, str]) -> None:
        self.shown = [first]

    def update(self, bundle: dict[str, str], *, raw: bool) -> None:
        assert raw
        self.shown.append(bundle)


@pytest.fixture
def notebook(monkeypatch: pytest.MonkeyPatch) -> list[Handle]:
    """Simulate a Jupyter kernel and collect its outputs."""
    outputs: list[Handle] = []

    def display(bundle: dict[str, str], *, raw: bool, display_id: bool) -> Handle:
        assert raw
        assert display_id
        outputs.append(Handle(bundle))
        return outputs[-1]

    ipython: Any = types.ModuleType("IPython")
    ipython.get_ipython = lambda: types.SimpleNamespace(kernel=object())
    shown: Any = types.ModuleType("IPython.display")
    shown.display = display
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", shown)
    return outputs


def test_notebook_shows_a_bar_by_default(
    notebook: list[Handle], small_config: Config, capsys: pytest.CaptureFixture[str]
) -> None:
    train(small_config())
    (output,) = notebook
    assert '<progress value="0" max="120"' in output.shown[0]["text/html"]
    assert '<progress value="120" max="120"' in output.shown[-1]["text/html"]
    assert "critic loss" in output.shown[-1]["text/plain"]
    assert "Training sac" in capsys.readouterr().out
    train(small_config(), progress=False)
    assert len(notebook) == 1


def test_html_is_escaped() -> None:
    assert "<b>" not in notebook_bundle(report(metrics=("<b> 1",)))["text/html"]


@pytest.mark.parametrize(
    ("shell", "expected"), [(None, False), (object(), False)], ids=["none", "ipython"]
)
def test_ipython_in_a_terminal_is_not_a_notebook(
    shell: object, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    ipython: Any = types.ModuleType("IPython")
    ipython.get_ipython = lambda: shell
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    assert progress.in_notebook() is expected


# --- The argument -----------------------------------------------------------------


def test_every_function_shows_a_display_on_request(
    small_config: Config, capsys: pytest.CaptureFixture[str]
) -> None:
    def shown() -> bool:
        return "Training " in capsys.readouterr().err

    config = small_config(algo="iql", total_timesteps=20)
    run = train(config, progress=True).run_dir
    assert shown()
    train(config)
    assert not shown()  # standard error is not a terminal here
    resume(run, ["total_timesteps=40"], progress=True)
    assert shown()
    finetune(run, "Pendulum-v1", ["total_timesteps=20", "learning_starts=10"], progress=True)
    assert shown()
    kwargs = small_config()
    options = kwargs["algo_kwargs"] | {"output_dir": kwargs["output_dir"], "eval_episodes": 0}
    model = SAC("Pendulum-v1", **options).learn(40, progress=True)
    assert shown()
    model.learn(20)
    assert not shown()


def test_failing_display_does_not_stop_training(
    small_config: Config, capsys: pytest.CaptureFixture[str]
) -> None:
    class Broken(io.StringIO):
        def write(self, text: str) -> int:
            raise RuntimeError("no ink")

    result = train(small_config(), callbacks=[ProgressCallback(Broken())])
    assert result.stop_reason == "completed"
    warning = "Warning: the progress display failed (RuntimeError: no ink). Training continues"
    assert capsys.readouterr().err.count(warning) == 1


# --- Numbers ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "text"),
    [
        *[(0.0, "0"), (1234.5678, "1,235"), (-12.345, "-12.35"), (0.03217, "0.0322")],
        *[(1.5e-5, "1.50e-05"), (2.5e7, "2.50e+07"), (float("nan"), "nan"), (1.23456, "1.235")],
    ],
)
def test_numbers_are_short(value: float, text: str) -> None:
    assert _number(value) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(7.4, "0:07"), (96, "1:36"), (7_509, "2:05:09"), (3 * 86_400 + 14_400, "3d 04:00:00")],
)
def testdurations(seconds: float, text: str) -> None:
    assert duration(seconds) == text
