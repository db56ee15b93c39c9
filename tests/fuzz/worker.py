"""Runs a parser on mutated input in a forked process, which the parent watches.

A finding is a signal, an exception that is not one of the package's, a message that is not one
printable line, more than 5 s of processor time, or more than 1 GB of memory.
"""

from __future__ import annotations

import ctypes
import faulthandler
import hashlib
import json
import mmap
import os
import re
import resource
import select
import signal
import sys
import time
import traceback
import unicodedata
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from tests.fuzz.mutation import MOST, mutate_bytes
from tests.fuzz.parsers import Parser, Target

MEMORY_LIMIT = 8 << 30
EXTRA_MIB = 1000.0
GENERATED_MIB = 250.0
"""Memory growth after which a process is replaced."""
CPU_SECONDS = 5.0
BLOCKED_SECONDS = 20.0
"""A worker that neither finishes an input nor uses the processor this long is blocked."""
FRESH_AFTER = 4000
"""Inputs per process; it is replaced then, since libraries keep memory."""
MOST_FINDINGS = 10
"""Number of different findings after which fuzzing a parser stops."""
LIBC = ctypes.CDLL(None)
EXAMPLES = 300
"""Inputs per round of hypothesis."""


@dataclass
class Report:
    """Results for one parser."""

    parser: str
    executions: int = 0
    outcomes: set[str] = field(default_factory=set)
    slowest: float = 0.0
    """Longest processor time of an input, in seconds."""
    findings: dict[str, Finding] = field(default_factory=dict)
    """Findings by signature."""


@dataclass(frozen=True)
class Finding:
    """An input that a parser does not handle correctly."""

    kind: str
    detail: str
    data: bytes

    def signature(self) -> str:
        """Return a text that is equal for inputs that show the same bug."""
        frames = re.findall(r'File "([^"]+)", line (\d+)', self.detail)
        own = [f"{Path(file).name}:{line}" for file, line in frames if "rl_training" in file][-2:]
        last = self.detail.strip().splitlines()[-1:] or [""]
        return f"{self.kind} {' '.join(own)} {last[0].partition(':')[0][:60]}"

    def save(self, folder: Path, parser: str) -> Path:
        """Save the input and the details."""
        folder.mkdir(exist_ok=True)
        digest = hashlib.sha256(self.data).hexdigest()[:8]
        file = folder / f"{parser}+{self.kind}-{digest}.bin"
        file.write_bytes(self.data)
        file.with_suffix(".txt").write_text(self.detail, errors="backslashreplace")
        return file


# --- Parent process -------------------------------------------------------------------


def fuzz(
    parser: Parser,
    ordinary: Path,
    scratch: Path,
    *,
    seconds: float,
    seed: str,
    inputs: int = sys.maxsize,
) -> Report:
    """Run a parser for a time or a number of inputs, in as many processes as necessary."""
    report, end, number = Report(parser.name), time.monotonic() + seconds, 0
    while time.monotonic() < end and len(report.findings) < MOST_FINDINGS:
        left = min(FRESH_AFTER, inputs - report.executions)
        if left <= 0:
            break
        folder = scratch / f"{parser.name}-{number}"
        folder.mkdir()
        name = f"{seed}/{parser.name}/{number}"
        worker = _Worker(parser, ordinary, folder, name, set(report.findings), most=left)
        worker.watch(report, end)
        number += 1
    return report


def replay(parser: Parser, ordinary: Path, scratch: Path, data: bytes) -> Report:
    """Run a parser on one input."""
    report = Report(parser.name)
    worker = _Worker(parser, ordinary, scratch, "replay", set(), only=data)
    worker.watch(report, time.monotonic() + 10 * CPU_SECONDS)
    return report


class _Worker:
    """A forked process, its messages and its current input."""

    def __init__(
        self,
        parser: Parser,
        ordinary: Path,
        folder: Path,
        seed: str,
        known: set[str],
        *,
        only: bytes | None = None,
        most: int = 1,
    ) -> None:
        self._counter = mmap.mmap(-1, 8)
        self._folder = folder
        self._messages, ours = os.pipe()
        sys.stdout.flush()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self._messages)
            _Child(parser, folder, self._counter, ours, known, most).run(ordinary, seed, only)
        os.close(ours)

    def watch(self, report: Report, end: float) -> None:
        """Collect messages until the process ends or reaches its time limit."""
        buffer, count, since, cpu = b"", -1, time.monotonic(), -1.0
        problem = None
        while True:
            if select.select([self._messages], [], [], 0.2)[0]:
                part = os.read(self._messages, 1 << 16)
                if not part:
                    break
                *lines, buffer = (buffer + part).split(b"\n")
                for line in lines:
                    _handle_message(json.loads(line), report)
            now, found = time.monotonic(), int.from_bytes(self._counter[:], "little")
            used = self._cpu()
            if found != count or used != cpu:
                count, since, cpu = found, now, used
            if now - since > BLOCKED_SECONDS:
                problem = f"neither finished nor used the processor for {BLOCKED_SECONDS:g} s"
            if problem or now > end:
                os.kill(self.pid, signal.SIGKILL)
                break
        os.close(self._messages)
        status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        if problem or (status < 0 and status != -signal.SIGKILL):
            self._record_exit(report, status, problem)
        elif status > 0:
            raise RuntimeError(f"the worker of {report.parser} failed: {self._text('errors')}")

    def _cpu(self) -> float:
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return float(fields[11]) + float(fields[12])

    def _text(self, name: str) -> str:
        file = self._folder / name
        return file.read_text(errors="replace") if file.exists() else ""

    def _record_exit(self, report: Report, status: int, problem: str | None) -> None:
        kind = {-signal.SIGPROF: "hang"}.get(status, "crash")
        if problem is None:
            problem = f"{signal.Signals(-status).name}"
        else:
            kind = "blocked"
        detail = f"{self._text('stacks')}\n{problem}"
        data = (self._folder / "input").read_bytes()
        finding = Finding(kind, detail, data)
        report.findings.setdefault(finding.signature(), finding)


def _handle_message(message: dict[str, Any], report: Report) -> None:
    report.executions += message.get("executions", 0)
    report.slowest = max(report.slowest, message.get("slowest", 0.0))
    report.outcomes.update(message.get("outcomes", ()))
    if "kind" in message:
        data = bytes.fromhex(message["data"])
        finding = Finding(message["kind"], message["detail"], data)
        report.findings[finding.signature()] = finding  # the smallest comes last


# --- Child process --------------------------------------------------------------------


class _FoundError(Exception):
    """Signals a new finding to hypothesis, which then searches for a smaller input."""


class _ProcessLimitReached(BaseException):
    """Raised to end a process that has reached a limit."""


class _Child:
    """The forked process."""

    def __init__(
        self,
        parser: Parser,
        folder: Path,
        counter: mmap.mmap,
        messages: int,
        known: set[str],
        most: int,
    ) -> None:
        self._most = most
        self._parser, self._folder = parser, folder
        self._counter, self._messages = counter, messages
        self._known = known
        self._smallest: dict[str, Finding] = {}
        self._outcomes: set[str] = set()
        self._executions = self._told = 0
        self._slowest = 0.0
        self._next_message = 0.0
        self._memory = 0.0
        self._signature: str | None = None
        self._parse: Any = None

    def run(self, ordinary: Path, seed: str, only: bytes | None) -> None:
        """Run inputs until the process reaches a limit; never returns."""
        status = 1
        try:
            self._prepare()
            target = self._parser.make(ordinary, self._folder)
            self._parse = target.parse
            if only is not None:
                self._run_one(only)
            elif self._parser.render is not None:
                self._run_trees(target, Random(seed))
            else:
                self._run_files(target, Random(seed))
            status = 0
        except _ProcessLimitReached:
            status = 0
        except BaseException:
            (self._folder / "errors").write_text(traceback.format_exc())
        finally:
            self._send(self._progress())
            os._exit(status)

    def _prepare(self) -> None:
        warnings.simplefilter("ignore")
        nowhere = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(nowhere, descriptor)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_LIMIT, MEMORY_LIMIT))
        stacks = (self._folder / "stacks").open("w")
        faulthandler.enable(stacks)
        faulthandler.register(signal.SIGPROF, stacks, all_threads=False, chain=True)

    def _run_one(self, data: bytes) -> None:
        self._memory = _fresh_peak_mib()
        self._execute(data)

    def _warm_up(self, seeds: list[bytes]) -> None:
        """Run the valid inputs, which must be accepted and show the usual memory use."""
        for data in seeds:
            self._parse(data)
        self._memory = _fresh_peak_mib()

    def _run_files(self, target: Target, rng: Random) -> None:
        self._warm_up(target.seeds)
        pool = list(target.seeds)
        while True:
            data = self._parser.mutate(rng.choice(pool), rng)
            if self._execute(data) and len(pool) < 300:
                pool.append(data)  # a new outcome: also mutate this input

    def _run_trees(self, target: Target, rng: Random) -> None:
        from hypothesis import HealthCheck, Phase, given, settings
        from hypothesis import seed as seeded
        from hypothesis import strategies as st

        from tests.fuzz.trees import edited, edits

        render = self._parser.render
        assert render is not None
        self._warm_up([render(seed) for seed in target.seeds])

        def once(seed: Any, changes: Any, noise: int) -> None:
            try:
                data = render(edited(seed, changes))[:MOST]
            except (ValueError, TypeError, RecursionError):
                return  # cannot be serialized
            if noise < 20:  # in 20 % of the cases, also mutate the bytes
                data = mutate_bytes(data, Random(noise))
            self._execute(data)
            if self._signature is not None and self._signature not in self._known:
                raise _FoundError(self._signature)

        strategies = (st.sampled_from(target.seeds), edits, st.integers(0, 99))
        while True:
            test = settings(
                max_examples=EXAMPLES,
                database=None,
                deadline=None,
                phases=(Phase.generate, Phase.shrink),
                suppress_health_check=list(HealthCheck),
            )(seeded(rng.getrandbits(32))(given(*strategies)(once)))
            try:
                test()
            except _FoundError:
                self._known.update(self._smallest)

    def _execute(self, data: bytes) -> bool:
        """Run one input and return whether its outcome is new."""
        before = _fresh_peak_mib()
        if before - self._memory > GENERATED_MIB:
            raise _ProcessLimitReached  # replace the process
        (self._folder / "input").write_bytes(data)
        self._executions += 1
        self._counter[:] = self._executions.to_bytes(8, "little")
        began = time.process_time()
        signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS)
        finding, outcome = _outcome(self._parse, data)
        signal.setitimer(signal.ITIMER_PROF, 0)
        self._slowest = max(self._slowest, time.process_time() - began)
        grown = _peak_mib() - before
        if grown > EXTRA_MIB:
            finding = Finding("memory", f"grew by {grown:.0f} MiB\n{outcome}", data)
        self._signature = None if finding is None else finding.signature()
        if finding is not None:
            self._keep(finding, str(self._signature))
        fresh = outcome not in self._outcomes
        self._outcomes.add(outcome)
        if time.monotonic() > self._next_message:
            self._send(self._progress())
            self._next_message = time.monotonic() + 0.5
        if grown > EXTRA_MIB or self._executions >= self._most:
            raise _ProcessLimitReached
        return fresh

    def _keep(self, finding: Finding, signature: str) -> None:
        present = self._smallest.get(signature)
        if signature not in self._known and (
            present is None or len(finding.data) < len(present.data)
        ):
            self._smallest[signature] = finding
            self._send({"kind": finding.kind, "detail": finding.detail, "data": finding.data.hex()})

    def _progress(self) -> dict[str, Any]:
        done, self._told = self._executions - self._told, self._executions
        return {"executions": done, "slowest": self._slowest, "outcomes": sorted(self._outcomes)}

    def _send(self, message: dict[str, Any]) -> None:
        data = (json.dumps(message) + "\n").encode()
        while data:
            data = data[os.write(self._messages, data) :]


def _outcome(parse: Any, data: bytes) -> tuple[Finding | None, str]:
    """Run a parser on an input; return a finding if there is one, and the outcome."""
    from rl_training.errors import RLTrainingError

    try:
        parse(data)
    except RLTrainingError as error:
        text = str(error)
        flaw = next(_flaws(text), None)
        shown = re.sub(r"/[^ :]*|\d+|'[^']*'", "_", text)[:80]
        found = (
            None if flaw is None else Finding("message", f"{traceback.format_exc()}\n{flaw}", data)
        )
        return found, shown
    except _ProcessLimitReached:
        raise
    except BaseException as error:
        detail = traceback.format_exc(limit=-12)
        return Finding("exception", detail, data), f"{type(error).__name__}"
    return None, "accepted"


def _flaws(text: str) -> Iterator[str]:
    """Yield the flaws of an error message."""
    if len(text) > 1000:
        yield "the message has more than 1000 characters"
    if "\n" in text:
        yield "the message has several lines"
    if any(unicodedata.category(char) in ("Cc", "Cf", "Cs") for char in text):
        yield "the message has control characters"


def _peak_mib() -> float:
    """Peak memory of this process since the last reset."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _fresh_peak_mib() -> float:
    """Reset the peak memory to the current use, without freed memory, and return it.

    A process forked from a large one may hold much freed memory, which would hide the allocations
    of an input up to that amount.
    """
    LIBC.malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")
    return _peak_mib()
