"""`make docs` succeeds: a strict build of the site that needs no network."""

from __future__ import annotations

import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tests.test_docs import ROOT, read

pytestmark = pytest.mark.skipif(sys.version_info < (3, 11), reason="conf.py reads TOML")
STRICT = ("-W", "--keep-going", "-n", "-q")


class Resources(HTMLParser):
    """Collects the resources that a browser loads for a page, and the page's links."""

    def __init__(self) -> None:
        super().__init__()
        self.loaded: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        if "src" in values:
            self.loaded.append(values["src"])
        if tag == "link" and values.get("rel") in ("stylesheet", "preload", "icon"):
            self.loaded.append(values["href"])
        if tag == "a" and "href" in values:
            self.links.append(values["href"])


def test_site_builds_strictly_and_is_complete(tmp_path: Path) -> None:
    """One test, so that parallel workers build the site once."""
    site = build(tmp_path)
    check_pages(site)
    check_navigation(site)
    check_links(site)


def test_landing_page_has_the_figures_of_the_results() -> None:
    landing, results = (" ".join(read(f"docs/{page}.md").split()) for page in ("index", "results"))
    for figure in ("1.5 to 4.1 times as fast", "2.1 times the return of SAC"):
        assert figure in landing
        assert figure in results


def build(folder: Path) -> Path:
    pytest.importorskip("sphinx")
    line = [sys.executable, "-m", "sphinx", *STRICT, "-d", str(folder / "cache")]
    done = subprocess.run(
        [*line, str(ROOT / "docs"), str(folder / "html")], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return folder / "html"


def read_page(page: Path) -> Resources:
    found = Resources()
    found.feed(page.read_text(encoding="utf-8"))
    return found


def test_make_builds_as_strictly_as_this_test() -> None:
    assert f"sphinx-build {' '.join(STRICT)} docs docs/_build/html" in read("Makefile")


def check_pages(site: Path) -> None:
    """Check that every source has a page and that pages load no external resources."""
    pages = {path.relative_to(site).with_suffix("") for path in site.rglob("*.html")}
    sources = (ROOT / "docs").rglob("*.md")
    assert {path.relative_to(ROOT / "docs").with_suffix("") for path in sources} <= pages
    classes = (site / "generated" / "api_algorithms.html").read_text(encoding="utf-8")
    assert "Run options" not in classes, "tables list the options, see convert_docstring"
    for page in site.rglob("*.html"):
        elsewhere = [url for url in read_page(page).loaded if re.match(r"(https?:)?//", url)]
        assert not elsewhere, page


def check_navigation(site: Path) -> None:
    """Check the order of the sections in the sidebar."""
    sidebar = (site / "index.html").read_text(encoding="utf-8").partition("sidebar-tree")[2]
    titles = re.findall(r'toctree-l1[^>]*><a class="reference internal" href="([^"]+)"', sidebar)
    names = [title.removesuffix(".html").removesuffix("/index") for title in titles]
    expected = ["get_started", "tutorials", "guides", "algorithms", "api", "results", "design"]
    assert names[: len(expected)] == expected


def check_links(site: Path) -> None:
    """Check that links to files outside docs/ lead to the site or to the repository."""
    links = [link for page in site.rglob("*.html") for link in read_page(page).links]
    assert not [link for link in links if re.search(r"\.(md|py|json)$", link) and "://" not in link]
    assert any(link.endswith("/blob/main/examples/crossq.py") for link in links)
    changelog = (site / "changelog.html").read_text(encoding="utf-8")
    assert "Keep a Changelog" in changelog
    assert read_page(site / "changelog.html").links.count("extending.html") >= 1
