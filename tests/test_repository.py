"""The repository's files are consistent: workflows, citation, hooks, container."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

import rl_training

ROOT = Path(__file__).parents[1]
tomllib = pytest.importorskip("tomllib")  # in the standard library since Python 3.11


def read(path: str) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


def project() -> dict[str, Any]:
    metadata: dict[str, Any] = tomllib.loads(read("pyproject.toml"))["project"]
    return metadata


def test_citation_has_version_license_and_url() -> None:
    citation = yaml.safe_load(read("CITATION.cff"))
    assert citation["version"] == rl_training.__version__
    assert citation["license"] == project()["license"]
    assert citation["repository-code"] == project()["urls"]["Repository"]


def test_pre_commit_uses_pinned_ruff() -> None:
    hooks = yaml.safe_load(read(".pre-commit-config.yaml"))["repos"]
    (revision,) = (hook["rev"] for hook in hooks if hook["repo"].endswith("ruff-pre-commit"))
    assert f"ruff=={revision.removeprefix('v')}" in read("constraints.txt")


def test_workflow_tests_supported_python_versions() -> None:
    jobs = yaml.safe_load(read(".github/workflows/ci.yml"))["jobs"]
    versions = jobs["tests"]["strategy"]["matrix"]["python-version"]
    supported = [
        line.rpartition(" :: ")[2]
        for line in project()["classifiers"]
        if re.search(r":: 3\.\d+$", line)
    ]
    assert versions == supported
    assert project()["requires-python"] == f">={versions[0]}"


def test_workflow_calls_existing_make_targets() -> None:
    targets = set(re.findall(r"^([a-z-]+):", read("Makefile"), re.M))
    called = set(re.findall(r"run: make ([a-z-]+)", read(".github/workflows/ci.yml")))
    assert {"lint", "test", "docs"} <= called <= targets


def test_container_runs_quick_start() -> None:
    (command,) = re.findall(r"^CMD (.*)$", read("Dockerfile"), re.M)
    line = " ".join(["rl-training", *json.loads(command)])
    assert f"\n{line}\n" in read("README.md")
    ignored = read(".dockerignore").splitlines()
    for copied in re.findall(r"^COPY (.*) \S+$", read("Dockerfile"), re.M):
        for path in copied.split():
            assert (ROOT / path).exists()
            assert f"!{path}" in ignored


def test_manifest_names_existing_paths() -> None:
    for line in read("MANIFEST.in").splitlines():
        command, *paths = line.split()
        if command in ("include", "graft"):
            for path in paths:
                assert (ROOT / path).exists(), path
