"""Test the harness itself: it detects every kind of violation."""

from __future__ import annotations

import signal
from dataclasses import replace

import pytest

from tests.hostile.sandbox import Sandbox, Workspace, assert_safe

STOPPED = {
    "start_shell": "os.system",
    "start_process": "subprocess.Popen",
    "replace_process": "os.exec",
    "fork": "os.fork",
    "import_from_current_folder": "imports evil",
    "import_unexpected_module": "imports sqlite3",
    "connect": "socket.connect",
    "look_up_host": "socket.getaddrinfo",
    "unpickle": "unpickles",
    "write": "changes",
    "write_through_link": "changes",
    "truncate": "changes",
    "remove": "changes",
    "rename": "changes",
    "make_folder": "changes",
    "read_secret": "reads",
    "swallow_violation": "os.system",
    "sleep_forever": "blocked",
}


@pytest.mark.parametrize("probe", STOPPED)
def test_guard_stops_forbidden_operations(
    sandbox: Sandbox, workspace: Workspace, probe: str
) -> None:
    made = str(workspace.outside / "made")
    outcome = sandbox.run([made], workspace, probe=probe, blocked_seconds=1)
    assert len(outcome.found) == 1
    assert outcome.found[0].startswith(STOPPED[probe])
    for link in workspace.work.glob("link"):
        link.unlink()
    workspace.assert_untouched()


@pytest.mark.parametrize("probe", ["loop_forever", "crash"])
def test_killed_process_is_detected(sandbox: Sandbox, workspace: Workspace, probe: str) -> None:
    outcome = sandbox.run(["x"], workspace, probe=probe, cpu_seconds=0)
    assert outcome.status == {"loop_forever": -signal.SIGXCPU, "crash": -signal.SIGABRT}[probe]
    with pytest.raises(AssertionError, match="killed by signal"):
        assert_safe(outcome, workspace)


def test_allocated_memory_is_detected(sandbox: Sandbox, workspace: Workspace) -> None:
    for _ in range(2):  # the second measurement must not be hidden by the first
        outcome = sandbox.run(["x"], workspace, probe="allocate_memory")
        assert 290 < outcome.grown_mib < 320
    assert_safe(outcome, workspace)
    with pytest.raises(AssertionError, match="grew by 1300"):
        assert_safe(replace(outcome, grown_mib=1300), workspace)


def test_allowed_operations_pass(sandbox: Sandbox, workspace: Workspace) -> None:
    outcome = sandbox.run([str(workspace.given / "made")], workspace, probe="write")
    assert_safe(outcome, workspace)
    assert (outcome.status, (workspace.given / "made").read_text()) == (0, "written")


def test_planted_module_and_changed_file_are_detected(workspace: Workspace) -> None:
    workspace.assert_untouched()
    workspace.precious.write_text("changed")
    with pytest.raises(AssertionError):
        workspace.assert_untouched()
    workspace.precious.write_text("precious")
    workspace.marker.write_text("evil")
    with pytest.raises(AssertionError, match="evil was imported"):
        workspace.assert_untouched()
