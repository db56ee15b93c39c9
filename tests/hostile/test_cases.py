"""Every hostile case, under guard."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.hostile.bases import Bases
from tests.hostile.case import Case, run_case
from tests.hostile.cases import CASES
from tests.hostile.pending import HANGS, PENDING
from tests.hostile.sandbox import Place, Sandbox


def _parameter(case: Case) -> object:
    marks = [pytest.mark.slow] if case.slow else []
    if case.name in PENDING | HANGS:
        runs = case.name not in HANGS
        marks.append(pytest.mark.xfail(strict=runs, run=runs, reason="not fixed yet"))
    return pytest.param(case, id=case.name, marks=marks)


@pytest.mark.parametrize("case", [_parameter(case) for case in CASES])
def test_hostile(case: Case, sandbox: Sandbox, bases: Bases, place: Place) -> None:
    run_case(case, sandbox, bases, place)


def test_there_are_many_cases_with_names_of_their_own() -> None:
    assert len([case for case in CASES if not case.slow]) >= 1000
    assert [name for name, times in Counter(case.name for case in CASES).items() if times > 1] == []
    assert {case.name for case in CASES} >= PENDING | HANGS
