"""Mutants of studies on clusters."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

EXECUTOR = "study/cluster_executor.py"
WORKER = "study/worker.py"
SIMULATED = "tests/study/test_cluster_executor.py"
SLOTS = "tests/study/test_slot.py"
LEASES = "tests/study/test_lease.py"

MUTANTS = [
    Mutant(
        "a run of a lost node starts elsewhere before its lease has expired",
        EXECUTOR,
        "until = self._clock() if slot.heard is None else slot.heard + self.patience",
        "until = self._clock()",
        f"{SIMULATED} -k dead_node",
    ),
    Mutant(
        "the margin between the lease and the next attempt is negative",
        EXECUTOR,
        "MARGIN = 1.25",
        "MARGIN = 0.5",
        f"{SIMULATED} -k moves_to_another",
    ),
    Mutant(
        "an answer in another folder counts",
        EXECUTOR,
        "if problem is None and not self._token.was_answered(answer):",
        "if False:",
        f"{SIMULATED} -k do_not_share",
    ),
    Mutant(
        "idle slots keep the room that another run needs",
        EXECUTOR,
        "for slot in [slot for slot in self._slots if slot.is_idle]:  # others",
        "for slot in list[_Slot]():  # others",
        f"{SIMULATED} -k room_of_idle",
    ),
    Mutant(
        "an acknowledgment renews the lease from now, not from its heartbeat",
        "study/lease.py",
        "self._timer.set(sent + self._seconds)",
        "self._timer.set(boot_time() + self._seconds)",
        f"{LEASES} -k only_the_time",
    ),
    Mutant(
        "a worker trains before its first heartbeat is acknowledged",
        "study/serving.py",
        "        lease.wait()",
        "        pass",
        f"{SLOTS} -k nobody_acknowledges",
    ),
    Mutant(
        "a fenced worker still saves a checkpoint",
        WORKER,
        "session.checkpoints.before_commit = self._fence.check",
        "pass",
        f"{SLOTS} -k fenced_worker",
    ),
    Mutant(
        "workers inherit the variables of Ray",
        "study/launching.py",
        'HIDDEN = ("RAY_",)',
        "HIDDEN = ()",
        f"{SLOTS} -k inherit",
    ),
]
