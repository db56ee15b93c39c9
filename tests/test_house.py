"""Repository rules: imports, package metadata and mutants."""

from __future__ import annotations

import ast
import re
import sys
from importlib import metadata
from pathlib import Path

import pytest

import rl_training
from rl_training import api
from tests.mutants import MUTANTS
from tests.mutants.mutant import Mutant

ROOT = Path(__file__).parents[1]
CORE = {
    *("torch", "gymnasium", "numpy", "pydantic", "pyyaml", "safetensors", "typer", "rich"),
    *("tensorboard", "filelock"),
}


def imported_modules(file: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names.add(str(node.module).split(".")[0])
    return names


def test_reference_does_not_import_the_package() -> None:
    files = list((ROOT / "tests" / "reference").glob("*.py"))
    assert len(files) >= 3
    for file in files:
        assert imported_modules(file) <= {"numpy"} | set(sys.stdlib_module_names), file


def test_no_module_imports_posix_only_modules() -> None:
    posix = {"fcntl", "grp", "posix", "pty", "pwd", "resource", "syslog", "termios", "tty"}
    only_on_linux = {"hdf5_process.py": {"resource"}}  # imported only if /proc exists
    files = list((ROOT / "src").rglob("*.py"))
    assert len(files) >= 100
    for file in files:
        assert imported_modules(file) & posix == only_on_linux.get(file.name, set()), file


POSIX_ONLY = {
    "os": {"fork", "getloadavg", "getuid", "killpg", "sched_getaffinity", "sync", "sysconf"}
    | {"O_CLOEXEC", "O_DIRECTORY", "O_NOFOLLOW", "O_NONBLOCK", "wait", "waitpid", "pread"},
    "signal": {"SIGALRM", "SIGHUP", "SIGKILL", "SIGQUIT", "SIGUSR1", "alarm", "setitimer"}
    | {"ITIMER_PROF", "ITIMER_REAL", "pthread_sigmask", "pause"},
}


def test_posix_functions_are_guarded() -> None:
    """Every function that uses a name that Windows lacks checks for it."""
    found = 0
    for file in (ROOT / "src").rglob("*.py"):
        for function in ast.walk(ast.parse(file.read_text())):
            if not isinstance(function, ast.FunctionDef):
                continue
            for node in ast.walk(function):
                if not isinstance(node, ast.Attribute) or not isinstance(node.value, ast.Name):
                    continue
                if node.attr in POSIX_ONLY.get(node.value.id, ()):
                    text = ast.unparse(function)
                    guards = (f"hasattr({node.value.id}", "AttributeError", "os.name")
                    assert any(guard in text for guard in guards), (file, node.lineno, node.attr)
                    found += 1
    assert found >= 5


def test_no_module_imports_private_names() -> None:
    for file in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ImportFrom) and str(node.module).startswith("rl_training"):
                assert not [a.name for a in node.names if re.match(r"_[a-z]", a.name)], file


def test_dir_lists_lazy_names() -> None:
    for module in (rl_training, api):
        assert set(module.__all__) <= set(dir(module))


def test_no_duplicated_blocks() -> None:
    """No six consecutive lines occur in two files, except for imports and export tables."""
    homes: dict[tuple[str, ...], Path] = {}
    for file in sorted((ROOT / "src").rglob("*.py")):
        if "generated" in file.parts or file.name == "__init__.py":
            continue
        source = file.read_text()
        code = [line.strip() for line in source.splitlines()]
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Import | ast.ImportFrom):
                for number in range(node.lineno, (node.end_lineno or 0) + 1):
                    code[number - 1] = ""
        lines = [line for line in code if line]
        for start in range(len(lines) - 5):
            block = tuple(lines[start : start + 6])
            assert homes.setdefault(block, file) == file, (file, homes[block], block)


def test_loading_executes_no_code() -> None:
    forbidden = re.compile(
        r"\b(pickle|cloudpickle|dill|joblib)\b|allow_pickle=True|weights_only=False|yaml\.load\("
    )
    for file in (ROOT / "src").rglob("*.py"):
        code = "\n".join(
            line for line in file.read_text().splitlines() if not line.lstrip().startswith("#")
        )
        found = [m.group() for m in forbidden.finditer(code) if "No pickle" not in code[: m.end()]]
        assert not found or file.name in ("json_codec.py",), (file, found)


def test_metadata_is_coherent() -> None:
    package = metadata.metadata("rl-training")
    assert package["Version"] == rl_training.__version__
    assert package["Requires-Python"] == ">=3.10"
    extras = set(package.get_all("Provides-Extra") or ())
    assert {"mujoco", "offline", "dev"} <= extras
    declared = (ROOT / "pyproject.toml").read_text()
    assert 'robotics = ["gymnasium-robotics' in declared
    assert "robotics" not in declared.partition("dev = [")[2].partition("]\n")[0]
    required = {
        re.split(r"[ ;<>=\[!]", line)[0].lower()
        for line in metadata.requires("rl-training") or []
        if "extra ==" not in line
    }
    assert required == CORE
    (script,) = (
        point
        for point in metadata.entry_points(group="console_scripts")
        if point.name == "rl-training"
    )
    assert script.value == "rl_training.cli:main"


def test_pins_cover_the_dependencies() -> None:
    pins = (ROOT / "constraints.txt").read_text().lower()
    for name in CORE:
        assert re.search(rf"^{name}==", pins, re.MULTILINE), name


@pytest.mark.parametrize("module", [rl_training, api], ids=lambda module: module.__name__)
def test_every_export_exists(module: object) -> None:
    for name in module.__all__:  # type: ignore[attr-defined]
        assert getattr(module, name) is not None
    with pytest.raises(AttributeError, match="no attribute"):
        _ = module.no_such_name  # type: ignore[attr-defined]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.trap)
def test_mutants_match_the_sources(mutant: Mutant) -> None:
    """The source line of each mutant and its test file exist."""
    text = (ROOT / "src" / "rl_training" / mutant.file).read_text()
    assert mutant.old in text
    compile(text.replace(mutant.old, mutant.new), mutant.file, "exec")
    assert (ROOT / mutant.tests.split()[0].split("::")[0]).is_file()


def test_defaults_are_visible_to_type_checkers() -> None:
    """A positional default is not visible, which would make every key required."""
    for file in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Field":
                assert not node.args, f"{file.name}:{node.lineno}: write Field(default=...)"
