"""Stop reasons and their text."""

from __future__ import annotations

import pytest

from rl_training.runtime.stop_reason import COMPLETED, StopKind, StopReason
from rl_training.runtime.trainer_state import TrainerState


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("completed", StopKind.COMPLETED),
        ("signal: SIGTERM", StopKind.SIGNAL),
        ("early_stopping: eval_return_mean -150.3 reached -200", StopKind.TARGET_REACHED),
        (
            "early_stopping: eval_return_mean did not improve for 4 evaluations",
            StopKind.NO_IMPROVEMENT,
        ),
        ("the goal was reached", StopKind.REQUESTED),
        ("completed my study", StopKind.REQUESTED),
        ("", StopKind.REQUESTED),
    ],
)
def test_stop_reason_round_trips_through_text(text: str, kind: StopKind) -> None:
    reason = StopReason.parse(text)
    assert (reason.kind, str(reason)) == (kind, text)


def test_checkpoint_saves_the_stop_reason_as_text() -> None:
    state, restored = TrainerState(), TrainerState()
    state.request_stop("signal: SIGINT")
    saved = state.state_dict()
    assert (saved["should_stop"], saved["stop_reason"]) == (True, "signal: SIGINT")
    restored.load_state_dict(saved)
    assert restored == state
    restored.complete()
    assert (restored.stop, restored.stop_reason) == (COMPLETED, "completed")
