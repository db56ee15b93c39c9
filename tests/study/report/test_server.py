"""The live report: only for this machine, up to date, and with clear errors."""

from __future__ import annotations

import http.client
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from rl_training.errors import ConfigError
from rl_training.study.report.server import LiveReport, ReportServer
from rl_training.study.report.writing import ReportSettings
from tests.study.report.building import page_data, study_of
from tests.study.simulated import ended, write_index

SCORES = {"sac": {"Pendulum-v1": [-200.0, -180.0, "running"]}}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ReportServer]:
    server = ReportServer(study_of(tmp_path / "study", SCORES), port=0)
    server.start()
    yield server
    server.close()


def ask(
    server: ReportServer, path: str = "/", method: str = "GET", **headers: str
) -> tuple[int, dict[str, str], str]:
    """Return the status, the headers and the text of an answer."""
    host = server.url.removeprefix("http://").removesuffix("/")
    connection = http.client.HTTPConnection(host, timeout=30)
    given = {key.replace("_", "-"): value for key, value in headers.items()}
    connection.request(method, path, headers=given)
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, dict(answer.getheaders()), text


def test_the_page_is_shown(server: ReportServer) -> None:
    status, headers, page = ask(server)
    assert status == 200
    assert headers["Content-Type"] == "text/html; charset=utf-8"
    assert 'data-live="5"' in page
    assert "connect-src 'self'" in page
    assert page_data(page)["labels"] == ["sac"]
    assert server.url.startswith("http://127.0.0.1:")


def test_an_unchanged_page_is_not_sent_again(server: ReportServer) -> None:
    _, headers, _ = ask(server)
    assert ask(server, If_None_Match=headers["ETag"])[::2] == (304, "")
    status, _, page = ask(server, If_None_Match='"other"')
    assert (status, page[:15]) == (200, "<!doctype html>")


def test_other_hosts_and_pages_are_refused(server: ReportServer) -> None:
    port = server.url.rpartition(":")[2].strip("/")
    assert ask(server, Host=f"localhost:{port}")[0] == 200
    for host in ("evil.example", f"evil.example:{port}", "127.0.0.1", ""):
        status, _, text = ask(server, Host=host)
        assert (status, text) == (421, "This server answers to localhost only.\n")
    for path in ("/index.jsonl", "/../study/study.yaml", "/runs/", "//etc/passwd"):
        assert ask(server, path)[0] == 404
    assert ask(server, method="POST")[0] == 501
    assert ask(server, method="HEAD")[::2] == (200, "")


def test_only_the_loopback_is_bound(server: ReportServer) -> None:
    assert server._server.server_address[0] == "127.0.0.1"


def test_the_page_follows_the_study(tmp_path: Path) -> None:
    study = study_of(tmp_path / "study", SCORES)
    now = [0.0]
    report = LiveReport(study, ReportSettings(), seconds=2.0, clock=lambda: now[0])
    first, tag = report.page()
    assert "2 of 3 runs ended" in first.decode()
    write_index(study, [ended("label0/task0/seed2")])
    assert report.page() == (first, tag)
    now[0] = 2.0
    second, other = report.page()
    assert "3 of 3 runs ended" in second.decode()
    assert other != tag


def test_a_study_that_breaks_gives_a_page_that_says_so(tmp_path: Path) -> None:
    study = study_of(tmp_path / "study", SCORES)
    report = LiveReport(study, ReportSettings(), seconds=0.0, clock=lambda: 0.0)
    report.page()
    (study / "index.jsonl").unlink()
    page = report.page()[0].decode()
    assert "is not a study" in page
    assert 'http-equiv="refresh"' in page


def test_a_port_in_use_is_one_sentence(tmp_path: Path, server: ReportServer) -> None:
    port = int(server.url.rpartition(":")[2].strip("/"))
    with pytest.raises(ConfigError, match=f"Port {port} cannot be used .*--port 0"):
        ReportServer(tmp_path / "study", port=port)
    with pytest.raises(ConfigError, match="port = 70000: should be from 0"):
        ReportServer(tmp_path / "study", port=70000)
    with pytest.raises(ConfigError, match="is not a folder with an"):
        ReportServer(tmp_path / "missing", port=0)


def test_closing_frees_the_port(tmp_path: Path) -> None:
    study = study_of(tmp_path / "study", SCORES)
    server = ReportServer(study, port=0)
    server.start()
    port = int(server.url.rpartition(":")[2].strip("/"))
    server.close()
    with (
        pytest.raises(ConnectionRefusedError),
        socket.create_connection(("127.0.0.1", port), timeout=1),
    ):
        pass
