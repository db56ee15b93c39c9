"""The harness itself: what must not happen is noticed, each kind of it."""

from __future__ import annotations

import signal
from dataclasses import replace

import pytest

from tests.hostile.sandbox import Place, Sandbox, assert_safe

STOPPED = {
    "start_a_shell": "os.system",
    "start_a_process": "subprocess.Popen",
    "replace_this_process": "os.exec",
    "fork": "os.fork",
    "import_from_the_current_folder": "imports evil",
    "import_what_no_ordinary_run_does": "imports sqlite3",
    "connect": "socket.connect",
    "look_up_a_host": "socket.getaddrinfo",
    "unpickle": "unpickles",
    "write": "changes",
    "write_through_a_link": "changes",
    "truncate": "changes",
    "remove": "changes",
    "rename": "changes",
    "make_a_folder": "changes",
    "read_a_secret": "reads",
    "swallow_the_violation": "os.system",
    "wait_for_nothing": "waited",
}


@pytest.mark.parametrize("probe", STOPPED)
def test_the_guard_stops(sandbox: Sandbox, place: Place, probe: str) -> None:
    made = str(place.outside / "made")
    outcome = sandbox.run([made], place, probe=probe, blocked_seconds=1)
    assert len(outcome.found) == 1
    assert outcome.found[0].startswith(STOPPED[probe])
    for link in place.work.glob("link"):
        link.unlink()
    place.assert_untouched()


@pytest.mark.parametrize("probe", ["take_time", "crash"])
def test_a_process_that_is_killed_is_noticed(sandbox: Sandbox, place: Place, probe: str) -> None:
    outcome = sandbox.run(["x"], place, probe=probe, cpu_seconds=0)
    assert outcome.status == {"take_time": -signal.SIGXCPU, "crash": -signal.SIGABRT}[probe]
    with pytest.raises(AssertionError, match="killed by signal"):
        assert_safe(outcome, place)


def test_allocated_memory_is_noticed(sandbox: Sandbox, place: Place) -> None:
    for _ in range(2):  # also after a command that took as much
        outcome = sandbox.run(["x"], place, probe="take_memory")
        assert 290 < outcome.grown_mib < 320
    assert_safe(outcome, place)
    with pytest.raises(AssertionError, match="grew by 1300"):
        assert_safe(replace(outcome, grown_mib=1300), place)


def test_allowed_operations_pass(sandbox: Sandbox, place: Place) -> None:
    outcome = sandbox.run([str(place.given / "made")], place, probe="write")
    assert_safe(outcome, place)
    assert (outcome.status, (place.given / "made").read_text()) == (0, "written")


def test_a_planted_module_and_a_changed_file_are_noticed(place: Place) -> None:
    place.assert_untouched()
    place.precious.write_text("changed")
    with pytest.raises(AssertionError):
        place.assert_untouched()
    place.precious.write_text("precious")
    place.marker.write_text("evil")
    with pytest.raises(AssertionError, match="evil was imported"):
        place.assert_untouched()
