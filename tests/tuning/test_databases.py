"""Storages in a database server on the loopback, as docs/tuning.md describes them.

The servers come from Debian's packages: apt-get install postgresql mariadb-server.
"""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rl_training.boundary.yaml_codec import dump_yaml
from rl_training.errors import ConfigError
from rl_training.tuning.trials import TrialIndex
from tests.tuning.simulated import SimulatedExecutor, tuning
from tests.tuning.synthetic import CONFIG, SPACE
from tests.tuning.test_kills import Process
from tests.tuning.test_storage import STATES, Lines, load, run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


class Server:
    """A database server in a folder, which can be stopped and started again."""

    def __init__(self, command: list[str], url: str, owner: str, port: int) -> None:
        self.url = url
        self._command, self._owner, self._port = command, owner, port
        self.start()

    def start(self) -> None:
        """Start the server, and wait until it accepts connections."""
        self._process = subprocess.Popen(
            self._command,
            user=self._owner,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
        )
        deadline = time.monotonic() + 60
        while True:
            assert self._process.poll() is None, self._command
            assert time.monotonic() < deadline, self._command
            try:
                socket.create_connection(("127.0.0.1", self._port), timeout=1).close()
            except OSError:
                time.sleep(0.1)
            else:
                return

    def kill(self) -> None:
        """Kill the server."""
        self._process.kill()
        self._process.wait()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def owner_of_servers(name: str) -> str:
    """Return the user that runs a server, which must not be root."""
    if os.getuid() != 0:
        return pwd.getpwuid(os.getuid()).pw_name
    try:
        return pwd.getpwnam(name).pw_name
    except KeyError:
        pytest.skip(f"there is no user {name}, and servers do not run as root")


def start_postgresql(folder: Path) -> Server:
    pytest.importorskip("psycopg")
    programs = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    found = shutil.which("postgres") or (programs and str(programs[-1] / "postgres"))
    if not found:
        pytest.skip("no PostgreSQL server: apt-get install postgresql")
    owner, port, data = owner_of_servers("postgres"), free_port(), folder / "data"
    shutil.chown(folder, owner)
    initdb = [str(Path(found).with_name("initdb")), "-D", str(data), "-U", "tuner", "-N"]
    subprocess.run([*initdb, "-A", "trust"], user=owner, check=True, capture_output=True, cwd="/")
    command = [found, "-D", str(data), "-p", str(port), "-k", str(folder), "-F"]
    url = f"postgresql+psycopg://tuner@localhost:{port}/postgres"
    return Server([*command, "-c", "listen_addresses=127.0.0.1"], url, owner, port)


def start_mariadb(folder: Path) -> Server:
    pytest.importorskip("pymysql")
    found = shutil.which("mariadbd") or shutil.which("mysqld")
    if not found or not shutil.which("mariadb-install-db"):
        pytest.skip("no MySQL server: apt-get install mariadb-server")
    owner, port, data = owner_of_servers("mysql"), free_port(), folder / "data"
    shutil.chown(folder, owner)
    install = ["mariadb-install-db", "--no-defaults", f"--datadir={data}"]
    install += ["--auth-root-authentication-method=normal"]
    subprocess.run(install, user=owner, check=True, capture_output=True, cwd="/")
    command = [found, "--no-defaults", f"--datadir={data}", f"--socket={folder / 'sock'}"]
    command += [f"--port={port}", "--bind-address=127.0.0.1", f"--pid-file={folder / 'pid'}"]
    return Server(command, f"mysql+pymysql://root@127.0.0.1:{port}/test", owner, port)


STARTS: dict[str, Callable[[Path], Server]] = {
    "postgresql": start_postgresql,
    "mysql": start_mariadb,
}


@pytest.fixture(params=STARTS)
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    """A server with an empty database, in a folder that its user may open."""
    folder = Path(f"/tmp/rl-training-{request.param}-{os.getpid()}")
    folder.mkdir()
    try:
        server = STARTS[request.param](folder)
        yield server
        server.kill()
    finally:
        shutil.rmtree(folder)


def test_a_database_has_the_same_trials(tmp_path: Path, server: Server) -> None:
    """The command line in a process of its own; twice, since nothing may be copied twice."""
    folder = tmp_path / "tuning"
    for trials in (4, 6):
        Process(folder, trials=trials, seeds=1, storage=server.url).wait()
        index, copied = TrialIndex.open(folder), load(server.url).trials
        assert [trial.number for trial in copied] == list(range(trials))
        assert [STATES[trial.status] for trial in index] == [trial.state for trial in copied]
        assert [trial.params for trial in index] == [dict(trial.params) for trial in copied]


def test_the_database_of_another_tuning_is_refused(tmp_path: Path, server: Server) -> None:
    run(tmp_path / "one" / "tuning", server.url, trials=2)
    with pytest.raises(ConfigError, match="belongs to another tuning"):
        run(tmp_path / "two" / "tuning", server.url, trials=2)


def test_a_killed_database_does_not_stop_the_tuning(tmp_path: Path, server: Server) -> None:
    """The next session completes the copy."""
    folder, events, lines = tmp_path / "tuning", [0], Lines()

    def kill_once() -> None:
        events[0] += 1
        if events[0] == 40:
            server.kill()

    run(folder, server.url, executor=SimulatedExecutor(at_event=kill_once), watchers=[lines])
    assert sum("cannot be written" in line for line in lines.lines) >= 1
    assert "No trial is lost" in " ".join(lines.lines)
    with pytest.raises(ConfigError, match="cannot be opened"):
        run(folder, server.url)
    server.start()
    result = run(folder, server.url)
    assert [STATES[t.status] for t in result.trials] == [t.state for t in load(server.url).trials]


def test_a_server_that_is_not_there_is_one_sentence(tmp_path: Path) -> None:
    pytest.importorskip("psycopg")
    where = f"postgresql+psycopg://tuner:secret@127.0.0.1:{free_port()}/none"
    with pytest.raises(ConfigError) as caught:
        tuning(config=CONFIG, space=SPACE, trials=1).run(
            tmp_path / "t", storage=where, executor=SimulatedExecutor(), progress=False
        )
    assert "cannot be opened" in str(caught.value)
    assert "secret" not in str(caught.value) + dump_yaml({"all": str(caught.value)})
