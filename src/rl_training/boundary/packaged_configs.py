"""The configs that are packaged, such as ``sac/pendulum``."""

from __future__ import annotations

from importlib import resources

_ROOT = resources.files("rl_training") / "assets" / "configs"


def config_names() -> list[str]:
    """The names of the packaged configs, sorted."""
    return sorted(
        f"{folder.name}/{file.name.removesuffix('.yaml')}"
        for folder in _ROOT.iterdir()
        if folder.is_dir()
        for file in folder.iterdir()
        if file.name.endswith(".yaml")
    )


def packaged_config(name: str) -> str:
    """The text of a packaged config, by one of the `config_names`."""
    return (_ROOT / f"{name}.yaml").read_text(encoding="utf-8")
