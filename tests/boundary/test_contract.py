"""Files are opened, and environments made, in the modules that are there for it."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "rl_training"

FILES = {
    "open",
    "fdopen",
    "read_bytes",
    "read_text",
    "write_bytes",
    "write_text",
    "fromfile",
    "memmap",
    "genfromtxt",
    "loadtxt",
    "safe_load",
}
"""Functions and methods that open a file by its name."""

OWNED_FILES = {("np", "load"), ("numpy", "load"), ("torch", "load")}
ENVIRONMENTS = {("gym", "make"), ("gym", "spec"), ("gymnasium", "make"), ("gym", "register_envs")}

ALLOWED = {
    ("experiment/config.py", "config_text"): "a file of the package itself",
}


def calls(file: Path) -> list[tuple[str, str, str]]:
    """The enclosing function, the owner ("" for a plain name) and the name of each call."""
    found = []
    tree = ast.parse(file.read_text())
    homes = {
        child: node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef)
        for child in ast.walk(node)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            target = node.func
            if isinstance(target, ast.Attribute):
                owner = getattr(target.value, "id", "?")
                found.append((homes.get(node, ""), owner, target.attr))
            elif isinstance(target, ast.Name):
                found.append((homes.get(node, ""), "", target.id))
    return found


def modules(*but: str) -> list[Path]:
    return [
        file
        for file in sorted(SOURCE.rglob("*.py"))
        if not file.relative_to(SOURCE).as_posix().startswith(but)
    ]


@pytest.mark.parametrize(
    "file", modules("boundary/"), ids=lambda file: file.relative_to(SOURCE).as_posix()
)
def test_only_the_boundary_opens_files(file: Path) -> None:
    place = file.relative_to(SOURCE).as_posix()
    for function, owner, name in calls(file):
        opens = name == "open" or (owner and name in FILES) or (owner, name) in OWNED_FILES
        assert not opens or (place, function) in ALLOWED, f"{place}:{function} calls {owner}.{name}"


def test_only_the_resolver_makes_environments() -> None:
    for file in modules("envs/resolving.py"):
        for function, owner, name in calls(file):
            assert (owner, name) not in ENVIRONMENTS, f"{file.name}:{function} calls {name}"


def test_the_contract_sees_what_it_forbids() -> None:
    """The names above are those that the boundary itself uses."""
    used = {name for file in (SOURCE / "boundary").glob("*.py") for _, _, name in calls(file)}
    assert {"open", "fdopen", "write_bytes", "fromfile", "memmap"} <= used
