"""The packaged configs, such as ``sac/pendulum``."""

from __future__ import annotations

from importlib import resources

_ROOT = resources.files("rl_training") / "assets" / "configs"


def config_names() -> list[str]:
    """Return the sorted names of the packaged configs."""
    return sorted(
        f"{folder.name}/{file.name.removesuffix('.yaml')}"
        for folder in _ROOT.iterdir()
        if folder.is_dir()
        for file in folder.iterdir()
        if file.name.endswith(".yaml")
    )


def packaged_config(name: str) -> str:
    """Return the text of a packaged config; ``name`` is one of `config_names`."""
    return (_ROOT / f"{name}.yaml").read_text(encoding="utf-8")
