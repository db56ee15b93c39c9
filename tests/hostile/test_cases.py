"""Every hostile case, under guard."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.hostile.bases import Bases
from tests.hostile.case import Case, run_case
from tests.hostile.cases import CASES
from tests.hostile.sandbox import Place, Sandbox

PARAMETERS = [
    pytest.param(case, id=case.name, marks=[pytest.mark.slow] if case.slow else [])
    for case in CASES
]


@pytest.mark.parametrize("case", PARAMETERS)
def test_hostile(case: Case, sandbox: Sandbox, bases: Bases, place: Place) -> None:
    run_case(case, sandbox, bases, place)


def test_there_are_many_cases_with_unique_names() -> None:
    assert len([case for case in CASES if not case.slow]) >= 1000
    assert [name for name, times in Counter(case.name for case in CASES).items() if times > 1] == []
