"""Generate the files that are derived from the learner classes (`make generate`).

- `src/rl_training/generated/catalog.py`: the declarations, which can be read without torch;
- `src/rl_training/generated/*.pyi`: exports and managed classes, for type checkers and editors;
- `docs/generated/algorithms.md`: every algorithm with its options;
- `docs/generated/api_algorithms.md`: every algorithm's section of the API reference;
- the table of algorithms in README.md, and the values in the settings of `docs/algorithms/*.md`.

`tests/test_generated.py` fails when one of them is out of date.
"""

from __future__ import annotations

import pkgutil
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from pprint import pformat
from typing import Any

from pydantic.fields import FieldInfo

import rl_training.algorithms
import rl_training.api
import rl_training.data
import rl_training.envs
import rl_training.models
import rl_training.runtime
from rl_training.algorithms.registry import REGISTRY, AlgorithmEntry, action_kind
from rl_training.api.managed_classes import describe, signature
from rl_training.boundary.yaml_codec import yaml_text
from rl_training.experiment.config import TrainConfig, kwargs_models
from rl_training.experiment.config_keys import allowed_text, default_text
from rl_training.lazy import EXPORTS
from tools.api_page import api_page

ROOT = Path(__file__).parents[1]
CODE = ROOT / "src" / "rl_training" / "generated"
CATALOG = CODE / "catalog.py"
NOTE = "Written by `make generate`. Do not edit."
MODES = ["online", "offline", "offline_to_online"]


def main() -> None:
    """Write every file that is out of date."""
    if write(CATALOG, catalog()):
        # The other files depend on the catalog, so a new process imports the new one.
        subprocess.run([sys.executable, "-m", "tools.generate"], cwd=ROOT, check=True)
        return
    for path, text in derived().items():
        write(path, text)


def write(path: Path, text: str) -> bool:
    """Write a file if its text has changed; return whether it had."""
    if path.exists() and path.read_text(encoding="utf-8") == text:
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    print(f"Wrote {path.relative_to(ROOT)}")
    return True


def derived() -> dict[Path, str]:
    """Return the path and expected text of every generated file except the catalog."""
    files = {CODE / f"{package.rpartition('.')[2]}.pyi": exports(package) for package in EXPORTS}
    files[CODE / "managed.pyi"] = managed_stub()
    files[ROOT / "docs" / "generated" / "algorithms.md"] = algorithms_page()
    api = ROOT / "docs" / "generated" / "api_algorithms.md"
    files[api] = formatted(api, api_page(NOTE))
    files[ROOT / "README.md"] = readme()
    for entry in REGISTRY.values():
        page = ROOT / "docs" / "algorithms" / f"{entry.name}.md"
        if page.exists():  # a test requires a page for every algorithm
            files[page] = with_settings(page.read_text(encoding="utf-8"), entry)
    return files


def formatted(path: Path, text: str) -> str:
    """Return text as ruff formats it: Python code with sorted imports, or Markdown."""
    ruff = [sys.executable, "-m", "ruff"]
    sort = [] if path.suffix == ".md" else [["check", "--quiet", "--fix", "--select", "I"]]
    for command in (*sort, ["format"]):
        line = [*ruff, *command, "--stdin-filename", str(path), "-"]
        text = subprocess.run(line, input=text, capture_output=True, text=True, check=True).stdout
    return text


# --- The catalog ----------------------------------------------------------------


def declarations() -> list[type[Any]]:
    """Return the classes that declare an algorithm, which are those that define a title."""
    found = []
    for module in pkgutil.iter_modules(rl_training.algorithms.__path__):
        for declared in vars(import_module(f"rl_training.algorithms.{module.name}")).values():
            own = isinstance(declared, type) and declared.__module__.endswith(f".{module.name}")
            if own and vars(declared).get("title"):
                check(declared, module.name)
                found.append(declared)
    return sorted(found, key=lambda declared: (MODES.index(declared.mode), declared.name))


def check(declared: type[Any], module: str) -> None:
    """Check that a learner declares everything itself instead of inheriting part of it."""
    for key in ("name", "title", "paper", "mode", "summary", "config_class"):
        if not vars(declared).get(key):
            raise SystemExit(f"{declared.__name__} in algorithms/{module}.py has no {key}.")
    if declared.name != module:
        raise SystemExit(f"{declared.__name__} should be in algorithms/{declared.name}.py.")


def catalog() -> str:
    """Return the text of catalog.py."""
    rows, exported, short = [], {}, {}
    for declared in declarations():
        row = {key: getattr(declared, key) for key in ("name", "title", "paper", "mode")}
        row["actions"] = action_kind(declared)
        goals = getattr(declared, "goals", False)
        name, class_name = declared.name, declared.__name__
        rows.append(row | {"summary": declared.summary, "class_name": class_name, "goals": goals})
        if not goals:
            config = declared.config_class.__name__
            exported[name] = [class_name, config, f"{name}_loss", *declared.exports]
            short[name] = f"{class_name} as {class_name.removesuffix('Algorithm')}"
    managed = [row["class_name"].removesuffix("Algorithm") for row in rows]
    managed += [f"train_{row['name']}" for row in rows]
    text = f'''"""The algorithms of the package. {NOTE}"""

from typing import Any

ALGORITHMS: list[dict[str, Any]] = {pformat(rows, sort_dicts=False)}

EXPORTS = {pformat(exported, sort_dicts=False)}
"""What each algorithm's module exports."""

SHORT = {pformat(short, sort_dicts=False)}
"""The learners' short names, in `rl_training.algorithms`."""

MANAGED = {managed!r}
"""The managed classes and their functions."""
'''
    return formatted(CATALOG, text)


# --- Stubs ----------------------------------------------------------------------


def exports(package: str) -> str:
    """Return the stub of a package's exports."""
    lines = [f'"""The exports of `{package}`. {NOTE}"""', ""]
    for name, (module, original) in EXPORTS[package].items():
        if module == "rl_training.api.managed_classes":
            module = "rl_training.generated.managed"
        if not name.startswith("_"):
            lines.append(f"from {module} import {original} as {name}")
    return formatted(CODE / "exports.pyi", "\n".join(lines) + "\n")


def managed_stub() -> str:
    """Return the stub of the managed classes and `train_<name>` functions."""
    parts = [
        f'"""The managed classes. {NOTE}"""',
        "from collections.abc import Sequence",
        "from os import PathLike",
        "from pathlib import Path",
        "from typing import Any, ClassVar, Literal",
        "from rl_training.api.managed import ManagedAlgorithm",
        "from rl_training.data.given_data import DatasetLike",
        "from rl_training.envs import EnvLike",
        "from rl_training.experiment.config import TrainConfig",
        "from rl_training.runtime.callbacks import Callback",
        "from rl_training.runtime.training_loop import TrainResult",
    ]
    for entry in REGISTRY.values():
        keywords = str(signature(entry)).replace("Ellipsis", "...").removeprefix("(")
        doc = describe(entry).rstrip().replace("\n", "\n    ").replace("\n    \n", "\n\n")
        parts += [
            f"class {entry.short_name}(ManagedAlgorithm):",
            f'    """{doc}\n    """',
            "    algo: ClassVar[str]",
            f"    def __init__(self, {keywords}: ...",
            f"def train_{entry.name}(config: TrainConfig | dict[str, Any] | str | Path, *, "
            "env: EnvLike | None = None, eval_env: EnvLike | None = None, "
            "dataset: DatasetLike | None = None, callbacks: Sequence[Callback] = (), "
            "progress: bool | None = None) -> TrainResult:",
            f'    """Train {entry.short_name} from a config with `algo: {entry.name}`."""',
        ]
    return formatted(CODE / "managed.pyi", "\n".join(parts) + "\n")


# --- Documentation --------------------------------------------------------------


def algorithms_page() -> str:
    """Return the page that lists the algorithms and their options."""
    parts = [
        "# Algorithms and their options",
        f"<!-- {NOTE} -->",
        "These keys go in `algo_kwargs` of a config, or are keyword arguments of the managed "
        "classes. All algorithms share the keys in [configuration.md](../configuration.md).",
        algorithms_table("../algorithms/"),
    ]
    for entry in REGISTRY.values():
        parts += [f"## {entry.short_name}", *option_tables(entry)]
    return "\n\n".join(parts) + "\n"


def readme() -> str:
    """Return the README with an updated table of algorithms."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    before, begin, rest = text.partition("<!-- algorithms: written by `make generate` -->\n")
    _, end, after = rest.partition("<!-- end of algorithms -->")
    table = algorithms_table(f"{repository_url()}/blob/main/docs/algorithms/")
    return f"{before}{begin}\n{table}\n\n{end}{after}"


def repository_url() -> str:
    """Return the project's URL; links must be absolute to work on a package index."""
    match = re.search(r'^Repository = "(.*)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert match is not None
    return match[1]


def algorithms_table(folder: str) -> str:
    """Return a table of all algorithms with links to their pages."""
    lines = ["| `algo` | name | mode | actions | summary |", "|---|---|---|---|---|"]
    for entry in REGISTRY.values():
        link = f"[`{entry.name}`]({folder}{entry.name}.md)"
        mode = entry.mode.replace("_", "-")
        actions = "continuous, discrete" if entry.actions == "both" else entry.actions
        lines.append(f"| {link} | {entry.title} | {mode} | {actions} | {entry.summary} |")
    return "\n".join(lines)


def option_tables(entry: AlgorithmEntry) -> Iterator[str]:
    """Yield an algorithm's option tables; HER's options depend on `base_algo`."""
    fields = entry.config_class().model_fields
    page = f"[algorithms/{entry.name}.md](../algorithms/{entry.name}.md)"
    if entry.goals:
        fields = import_module(f"rl_training.algorithms.{entry.name}").HindsightConfig.model_fields
        yield f"HER also accepts the options of its base algorithm (`base_algo`). See {page}."
    else:
        yield f"{entry.summary} See {page}."
    lines = ["| key | default | allowed | meaning |", "|---|---|---|---|"]
    for name, field in fields.items():
        meaning = " ".join((field.description or "").split()).replace("|", r"\|")
        cells = [f"`{name}`", default_text(field, "`"), allowed_text(field, "`"), meaning]
        lines.append(f"| {' | '.join(cells)} |")
    yield "\n".join(lines)


def with_settings(page: str, entry: AlgorithmEntry) -> str:
    """Return an algorithm's page with updated values in its table of settings.

    The page says which keys are rows and which packaged configs are columns.
    """
    before, section, rest = page.partition("## Settings\n\n")
    table, _, after = rest.partition("\n\n")
    head, line, *rows = table.splitlines()
    configs = [TrainConfig.load(name).resolved() for name in re.findall(r"`(\S+)`", head)]
    fields: dict[str, FieldInfo] = {}
    for model in (TrainConfig, *kwargs_models(entry.name)):
        fields |= model.model_fields
    lines = [head, line]
    for name in re.findall(r"^\| `(\w+)`", "\n".join(rows), re.MULTILINE):
        values = [(config.to_dict() | config.algo_kwargs)[name] for config in configs]
        cells = [
            f"`{name}`",
            default_text(fields[name], "`"),
            *(f"`{yaml_text(v)}`" for v in values),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return before + section + "\n".join(lines) + "\n\n" + after


if __name__ == "__main__":
    main()
