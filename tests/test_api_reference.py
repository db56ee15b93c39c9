"""The API reference covers every public name, with a summary and an example that runs."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from pathlib import Path
from typing import Any

import pytest

from tests.pages import ROOT, blocks, run_page

SUBPACKAGES = ("api", "algorithms", "data", "envs", "models", "runtime", "scores", "statistics")
PACKAGES = [
    "rl_training",
    *(f"rl_training.{name}" for name in SUBPACKAGES),
]
PAGES = [
    "docs/generated/api_algorithms.md",
    *(
        path.relative_to(ROOT).as_posix()
        for path in sorted((ROOT / "docs" / "api").glob("*.md"))
        if path.name != "index.md"
    ),
]
DIRECTIVE = re.compile(r"^\.\. (?:auto\w+|py:data):: (\S+)$", re.M)


def public_names() -> dict[str, Any]:
    """Return every exported name with its object."""
    found: dict[str, Any] = {}
    for package in PACKAGES:
        module = importlib.import_module(package)
        found |= {f"{package}.{name}": getattr(module, name) for name in module.__all__}
    return found


def documented() -> list[str]:
    """Return the names that the pages document."""
    codes = (block.code for page in PAGES for block in blocks(page))
    return [name for code in codes for name in DIRECTIVE.findall(code)]


def used_names() -> set[str]:
    """Return the names that the examples use; an import alone does not count."""
    used = set()
    for page in PAGES:
        for block in blocks(page):
            if block.language == "python" and block.runs:
                nodes = ast.walk(ast.parse(block.code))
                used |= {node.id for node in nodes if isinstance(node, ast.Name)}
    return used


def test_every_public_name_has_a_summary() -> None:
    for name, thing in public_names().items():
        if inspect.isclass(thing) or inspect.isroutine(thing):
            first = (thing.__doc__ or "").strip().partition("\n")[0]
            assert first.endswith("."), f"{name}: the docstring needs a one-line summary"


def test_every_public_name_is_documented_once() -> None:
    names, pages = public_names(), documented()
    assert len(pages) == len(set(pages))
    unknown = set(pages) - set(names)
    assert not unknown, f"documented, but not exported: {sorted(unknown)}"
    known = [names[name] for name in pages]
    missing = [
        name
        for name, thing in names.items()
        if name not in pages and not any(thing is other for other in known)
    ]
    assert not missing, "add them to a page in docs/api"


def test_every_public_name_has_an_example() -> None:
    used = used_names()
    missing = {name for name in public_names() if name.rpartition(".")[2] not in used}
    assert not missing, "use them in an example in docs/api"


@pytest.mark.parametrize("page", PAGES)
def test_examples_run_and_print_what_the_page_shows(page: str, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    run_page(page, tmp_path)
