"""Sphinx configuration of the documentation site: `make docs`."""

from __future__ import annotations

import inspect
import os
import re
import sys
from pathlib import Path
from typing import Any

import tomllib
from pydantic import BaseModel
from sphinx.application import Sphinx
from sphinx.ext.napoleon import Config, GoogleDocstring

DOCS = Path(__file__).parent
ROOT = DOCS.parent
sys.path.insert(0, str(ROOT / "src"))

from rl_training.api import ManagedAlgorithm  # noqa: E402
from rl_training.version import __version__  # noqa: E402

REPOSITORY = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]["Repository"]
BRANCH = "main"
GOOGLE = Config(napoleon_use_rtype=False)

project = "rl_training"
author = "the rl_training authors"
project_copyright = "the rl_training authors, Apache-2.0"
release = version = __version__
language = "en"

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx_copybutton"]
exclude_patterns = ["_build"]
myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence", "attrs_inline"]
default_role = "code"
nitpicky = True

# --- Appearance ------------------------------------------------------------------

html_theme = "furo"
html_title = "rl_training"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
html_theme_options = {
    "source_repository": REPOSITORY,
    "source_branch": BRANCH,
    "source_directory": "docs/",
    "light_css_variables": {"color-brand-primary": "#0b5cad", "color-brand-content": "#0b5cad"},
    "dark_css_variables": {"color-brand-primary": "#7cb8f5", "color-brand-content": "#7cb8f5"},
}
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
pygments_style = "friendly"
pygments_dark_style = "github-dark"

# --- Files of the repository -----------------------------------------------------

PAGES_FROM_ROOT = {
    "CHANGELOG.md": "changelog",
    "CONTRIBUTING.md": "contributing",
    "README.md": "index",
}
"""Files outside docs/ that have a page in the site; the others are linked in the repository."""
LINK = re.compile(r"(\]\()([^)\s:#]+)(#[^)\s]*)?(\))")


def site_target(target: str, folder: Path, page: str) -> str:
    """A link's target in the site, or in the repository if the site does not have the file.

    ``folder`` is where the link is written, ``page`` the name of the page that shows it.
    """
    file = Path(os.path.normpath(folder / target))
    if not file.is_relative_to(ROOT) or not file.exists():
        return target
    path = file.relative_to(ROOT).as_posix()
    if path in PAGES_FROM_ROOT:
        file = DOCS / f"{PAGES_FROM_ROOT[path]}.md"
    elif file.is_dir() or not file.is_relative_to(DOCS):
        return f"{REPOSITORY}/{'tree' if file.is_dir() else 'blob'}/{BRANCH}/{path}"
    return os.path.relpath(file, (DOCS / page).parent)


def read_source(app: Sphinx, page: str, source: list[str]) -> None:
    """Show files from the root as pages, and make links to the repository work in the site."""
    folder = (DOCS / page).parent
    for path, name in PAGES_FROM_ROOT.items():
        if page == name and page != "index":
            source[0], folder = (ROOT / path).read_text(encoding="utf-8"), ROOT

    def rewritten(match: re.Match[str]) -> str:
        start, target, anchor, end = match.groups(default="")
        return f"{start}{site_target(target, folder, page)}{anchor}{end}"

    source[0] = LINK.sub(rewritten, source[0])
    if page == "decisions/README":
        source[0] += "\n```{toctree}\n:hidden:\n:glob:\n\n0*\n```\n"


# --- API reference ---------------------------------------------------------------

autodoc_default_options = {"members": True, "member-order": "bysource"}
autodoc_typehints = "none"
autodoc_class_signature = "mixed"
maximum_signature_line_length = 88
python_use_unqualified_type_names = True
toc_object_entries_show_parents = "hide"
nitpick_ignore_regex = [("py:(class|exc)", ".*")]  # errors and types that docstrings mention


def shorten_signature(
    app: Sphinx, what: str, name: str, thing: Any, options: Any, signature: str | None, returns: Any
) -> tuple[str | None, Any]:
    """Config and managed classes have dozens of options, which other pages list in tables."""
    if inspect.isclass(thing) and issubclass(thing, ManagedAlgorithm):
        return "(env, **options)", None
    if inspect.isclass(thing) and issubclass(thing, BaseModel):
        return "(**options)", None
    return signature, returns


def convert_docstring(
    app: Sphinx, what: str, name: str, thing: Any, options: Any, lines: list[str]
) -> None:
    """Docstrings are plain text with code in backticks and Google's sections."""
    text = "\n".join(lines)
    if inspect.isclass(thing) and issubclass(thing, ManagedAlgorithm):
        text = re.split(r"\n(?:Environments|\S+ options):", text)[0].rstrip() + "\n"
    parts = re.split(r"(`+[^`]*`+)", text)
    parts[::2] = [re.sub(r"([*|]|(?<=\w)_(?!\w))", r"\\\1", part) for part in parts[::2]]
    parts[::2] = [re.sub(r"\bdocs/([\w/]+)\.md", r":doc:`/\1`", part) for part in parts[::2]]
    # Its treatment of attributes would take the words before a colon for a type.
    kind = "method" if what in ("attribute", "property") else what
    lines[:] = str(GoogleDocstring("".join(parts), GOOGLE, app, kind, name, thing)).split("\n")


def skip_member(
    app: Sphinx, what: str, name: str, thing: Any, skip: bool, options: Any
) -> bool | None:
    """Fields of config classes are listed in the tables of the configuration page."""
    return True if name in ("model_config", "model_fields", "algo") else None


def setup(app: Sphinx) -> None:
    """Connect the functions above."""
    app.connect("source-read", read_source)
    app.connect("autodoc-process-signature", shorten_signature)
    app.connect("autodoc-process-docstring", convert_docstring)
    app.connect("autodoc-skip-member", skip_member)
