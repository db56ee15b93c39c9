"""The recipes of the page on clusters: commands, shell scripts and the Kubernetes manifest."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer.main
import yaml

from rl_training import cli
from rl_training.study.index import StudyIndex
from rl_training.study.records import RunStatus
from tests.pages import ROOT, blocks
from tests.study.small import write_study

PAGE = "docs/cluster.md"
SCRIPTS = [block.code for block in blocks(PAGE) if block.language == "bash"]
COMMANDS = [
    match[0]
    for script in SCRIPTS
    for match in re.finditer(r"rl-training [^\n]*", script.replace("\\\n", " "))
    if not match[0].startswith("rl-training the")
]


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_are_accepted(command: str) -> None:
    group: Any = typer.main.get_command(cli.app)
    _, name, *arguments = shlex.split(command, comments=True)
    assert name == "study"
    known = group.commands[name].commands[arguments[0]]
    known.make_context(name, arguments[1:])


def test_commands_are_found() -> None:
    text = "\n".join(COMMANDS)
    assert len(COMMANDS) >= 8
    for words in ("--executor ray", "--shard", "--detach", "study attach", "study stop"):
        assert words in text


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
@pytest.mark.parametrize("script", SCRIPTS)
def test_scripts_are_valid(script: str) -> None:
    done = subprocess.run(["bash", "-n"], input=script, text=True, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.slow
def test_the_array_job_trains_every_part(tmp_path: Path) -> None:
    """The tasks of the array, one after the other, as Slurm starts them."""
    (script,) = (text for text in SCRIPTS if "SLURM_ARRAY_TASK_ID" in text)
    script = script.replace("/shared/study", str(tmp_path / "study")).replace("/16", "/2")
    write_study(tmp_path / "study.yaml", algos=("sac",), seeds=2)
    command = tmp_path / "bin" / "rl-training"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m rl_training "$@"\n')
    command.chmod(0o755)
    path = f"{command.parent}{os.pathsep}{os.environ['PATH']}"
    for task, finished in (("1", 1), ("2", 2)):
        subprocess.run(
            ["bash", "-c", script],
            cwd=tmp_path,
            env=os.environ | {"PATH": path, "SLURM_ARRAY_TASK_ID": task},
            check=True,
        )
        statuses = [run.status for run in StudyIndex.open(tmp_path / "study")]
        assert statuses.count(RunStatus.FINISHED) == finished


def manifest() -> dict[str, Any]:
    """Return the documents of the manifest by kind."""
    (text,) = (block.code for block in blocks(PAGE) if block.language == "yaml")
    return {document["kind"]: document for document in yaml.safe_load_all(text)}


def pods() -> list[dict[str, Any]]:
    spec = manifest()["RayCluster"]["spec"]
    groups = [spec["headGroupSpec"], *spec["workerGroupSpecs"]]
    return [group["template"]["spec"] for group in groups]


def test_all_pods_share_a_volume_at_the_same_path() -> None:
    claim = manifest()["PersistentVolumeClaim"]
    assert claim["spec"]["accessModes"] == ["ReadWriteMany"]
    assert len(pods()) == 2
    for pod in pods():
        (volume,) = pod["volumes"]
        assert volume["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]
        (container,) = pod["containers"]
        assert container["volumeMounts"] == [{"name": volume["name"], "mountPath": "/shared"}]
        assert set(container["resources"]["limits"]) == {"cpu", "memory"}


def test_all_pods_have_the_pinned_version_of_ray() -> None:
    pinned = re.search(r"^ray==(\S+)$", (ROOT / "constraints.txt").read_text(), re.M)
    assert pinned is not None
    cluster = manifest()["RayCluster"]
    assert cluster["apiVersion"] == "ray.io/v1"
    assert cluster["spec"]["rayVersion"] == pinned[1]
    assert len({pod["containers"][0]["image"] for pod in pods()}) == 1


def test_nothing_outside_reaches_the_cluster() -> None:
    documents = manifest()
    name = documents["RayCluster"]["metadata"]["name"]
    policy = documents["NetworkPolicy"]["spec"]
    selector = {"matchLabels": {"ray.io/cluster": name}}
    assert policy["podSelector"] == selector
    assert policy["ingress"] == [{"from": [{"podSelector": selector}]}]
    parameters = documents["RayCluster"]["spec"]["headGroupSpec"]["rayStartParams"]
    assert parameters == {"num-cpus": "0", "dashboard-host": "127.0.0.1"}
    assert "0.0.0.0" not in (ROOT / PAGE).read_text()


def test_worker_groups_are_complete() -> None:
    """Fields that the operator requires of a group."""
    for group in manifest()["RayCluster"]["spec"]["workerGroupSpecs"]:
        assert group["minReplicas"] <= group["replicas"] <= group["maxReplicas"]
        assert {"groupName", "rayStartParams", "template"} <= group.keys()
