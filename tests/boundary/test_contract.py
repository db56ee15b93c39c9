"""Only dedicated modules open files and create environments."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
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

ALLOWED = {
    ("experiment/config.py", "config_text"): "a file of the package itself",
    ("scores.py", "_packaged"): "a file of the package itself",
    ("study/report/page.py", "asset"): "a file of the package itself",
    ("tuning/space.py", "packaged_space"): "a file of the package itself",
}

INDEXES = {("StudyIndex", "open"), ("TrialIndex", "open")}
"""Methods that read journals through the boundary."""


def calls(file: Path) -> list[tuple[str, str, str]]:
    """Return the enclosing function, owner ("" for a plain name) and name of each call."""
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
    module = file.relative_to(SOURCE).as_posix()
    for function, owner, name in calls(file):
        if (owner, name) in INDEXES:
            continue
        opens = name == "open" or (owner and name in FILES) or (owner, name) in OWNED_FILES
        assert not opens or (module, function) in ALLOWED, (
            f"{module}:{function} calls {owner}.{name}"
        )


def test_scan_finds_file_access_in_the_boundary() -> None:
    """The boundary itself opens files, so a scan of it must find such calls."""
    used = {name for file in (SOURCE / "boundary").glob("*.py") for _, _, name in calls(file)}
    assert {"open", "fdopen", "write_bytes", "fromfile", "memmap"} <= used


# --- Environments -----------------------------------------------------------------

MAKING = {"make", "make_vec", "spec", "register_envs", "load_env_creator"}
IMPORTING = {
    "experiment/user_imports.py": "--import, given by the user",
    "lazy.py": "the package's own modules",
    "algorithms/registry.py": "the package's own modules",
    "envs/resolving.py": "environments",
    "cli/summaries.py": "nothing: it only asks which extras are installed",
    "runtime/loggers/config.py": "nothing: it only asks which extras are installed",
}


def names_used(tree: ast.AST) -> Iterator[str]:
    """Yield the gymnasium and importlib functions that a module uses, in any import style."""
    names = {"__import__": "importlib.__import__"}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {
                alias.asname or alias.name.partition(".")[0]: alias.name for alias in node.names
            }
        if isinstance(node, ast.ImportFrom) and node.module:
            names |= {a.asname or a.name: f"{node.module}.{a.name}" for a in node.names}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id in names:
            yield names[node.id]
        if isinstance(node, ast.Attribute):
            chain = ast.unparse(node)
            first, dot, rest = chain.partition(".")
            yield names.get(first, first) + dot + rest


@pytest.mark.parametrize("file", modules(), ids=lambda file: file.relative_to(SOURCE).as_posix())
def test_only_one_module_creates_and_imports_environments(file: Path) -> None:
    module = file.relative_to(SOURCE).as_posix()
    found = set(names_used(ast.parse(file.read_text())))
    makes = {c for c in found if c.startswith("gymnasium.") and c.rpartition(".")[2] in MAKING}
    imports = {
        c
        for c in found
        if re.match(r"importlib\.(import_module|__import__|util|machinery)|(runpy|pkgutil)\.", c)
    }
    if module == "envs/resolving.py":
        assert makes == {"gymnasium.make", "gymnasium.spec", "gymnasium.register_envs"}
    else:
        assert not makes, f"{module} creates environments"
    assert bool(imports) == (module in IMPORTING), f"{module}: {imports}"


def test_scan_recognizes_every_import_style() -> None:
    for text in (
        "import gymnasium as gym\ngym.make('x')",
        "from gymnasium import make as m\nm('x')",
        "import gymnasium\nf = gymnasium.make",
        "from gymnasium.envs import registration as r\nr.load_env_creator('x')",
        "import gymnasium.envs.registration\ngymnasium.envs.registration.make('x')",
    ):
        assert {c.rpartition(".")[2] for c in names_used(ast.parse(text))} & MAKING, text
    assert "importlib.__import__" in set(names_used(ast.parse("__import__('x')")))
