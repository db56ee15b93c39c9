"""`study report`, `study compare` and `study serve` on the command line."""

from __future__ import annotations

import http.client
import os
import re
import signal
import socket
import time
from pathlib import Path
from typing import Any

from tests.cli.test_cli import cli, ok, only_json
from tests.faults.zygote import shared_zygote
from tests.study.report.building import study_of

SCORES: dict[str, Any] = {
    "sac": {"Pendulum-v1": [-200.0, -180.0, -150.0]},
    "td3": {"Pendulum-v1": [-300.0, -320.0, "failed"]},
}


def test_report_prints_the_scores_and_writes_the_page(tmp_path: Path) -> None:
    study_of(tmp_path / "s", SCORES)
    lines = ok("study", "report", "s", cwd=tmp_path).splitlines()
    assert lines[0].split() == ["label", "task", "ended", "mean", "[95%]"]
    assert re.fullmatch(r"sac +Pendulum-v1 +3/3 +−176\.7 \[−239\.2, −114\.2\] +\*", lines[1])
    assert re.match(r"td3 +Pendulum-v1 +2/3 +−310\.0 ", lines[2])
    assert any(line.startswith("Note: Failed runs have no score (1 of td3)") for line in lines)
    assert lines[-1] == "Wrote s/report.html and the tables in s/report_tables"
    page = (tmp_path / "s" / "report.html").read_text()
    assert "rl-training study report s" in page


def test_options_reach_the_report(tmp_path: Path) -> None:
    study_of(tmp_path / "s", SCORES)
    (tmp_path / "mine.yaml").write_text("Pendulum-v1: {random: -1000, expert: 0}")
    words = ["study", "report", "s", "--out", "mine.html", "--references", "mine.yaml"]
    words += ["--baseline", "td3", "--score", "best", "--threshold", "0.5"]
    found = only_json(*words, cwd=tmp_path)
    assert (found["path"], found["tables"]) == ("mine.html", "mine_tables")
    mean = [r["value"] for r in found["aggregates"] if r["statistic"] == "mean"]
    assert abs(mean[0] - (1 - 0.5300 / 3)) < 1e-9
    assert "its best evaluation" in " ".join(found["notes"])
    wrong = cli("study", "report", "s", "--baseline", "ppo", cwd=tmp_path)
    assert wrong.returncode == 2
    assert "baseline = 'ppo': should be a label: 'sac', 'td3'" in wrong.stderr


def test_compare_distinguishes_the_labels(tmp_path: Path) -> None:
    study_of(tmp_path / "a", SCORES)
    study_of(tmp_path / "b", {"sac": SCORES["td3"]})
    found = only_json("study", "compare", "a", "b", cwd=tmp_path)
    assert [record["label"] for record in found["scores"]] == ["sac (a)", "td3", "sac (b)"]
    assert (tmp_path / "comparison.html").is_file()
    assert cli("study", "compare", "a", cwd=tmp_path).returncode == 2


def test_serve_shows_the_report_until_ctrl_c(tmp_path: Path) -> None:
    study_of(tmp_path / "s", SCORES)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    child = shared_zygote().start("study", "serve", "s", "--port", str(port), cwd=tmp_path)
    assert "data-live" in page_of(port, child)
    taken = cli("study", "serve", "s", "--port", str(port), cwd=tmp_path)
    assert taken.returncode == 2
    assert "choose another one with --port" in taken.stderr
    os.kill(child.pid, signal.SIGINT)
    done = child.wait()
    assert done.status == 0, done.err
    first, last = done.out.splitlines()
    assert first == f"Showing s at http://127.0.0.1:{port}/ (Ctrl-C to stop)"
    assert last == "Stopped."


def page_of(port: int, child: Any) -> str:
    """Return the page of a server, once it answers."""
    while True:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        try:
            connection.request("GET", "/")
            return connection.getresponse().read().decode()
        except ConnectionRefusedError:
            assert child.is_running()
            time.sleep(0.05)
        finally:
            connection.close()
