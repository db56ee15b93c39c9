"""Run every hostile case under the guard."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.hostile.bases import Bases
from tests.hostile.case import Case, run_case
from tests.hostile.cases import CASES
from tests.hostile.sandbox import Sandbox, Workspace

PARAMETERS = [
    pytest.param(case, id=case.name, marks=[pytest.mark.slow] if case.slow else [])
    for case in CASES
]


@pytest.mark.parametrize("case", PARAMETERS)
def test_hostile(case: Case, sandbox: Sandbox, bases: Bases, workspace: Workspace) -> None:
    run_case(case, sandbox, bases, workspace)


def test_case_names_are_unique() -> None:
    assert len([case for case in CASES if not case.slow]) >= 1000
    assert [name for name, times in Counter(case.name for case in CASES).items() if times > 1] == []
