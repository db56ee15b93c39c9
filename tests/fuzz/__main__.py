"""``python -m tests.fuzz``: mutate the input of every parser and report failures.

``FUZZ_SECONDS`` (3600) is divided among the parsers, and ``FUZZ_SEED`` (0) determines the inputs.
Findings are saved in ``.fuzz``.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from pathlib import Path

from tests.fuzz.parsers import PARSERS, make_ordinary
from tests.fuzz.worker import Report, fuzz, replay

REPOSITORY = Path(__file__).parents[2]
FOUND = REPOSITORY / ".fuzz"


def main() -> None:
    """Fuzz some or all parsers, or replay one input."""
    options = _options()
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as scratch:
        ordinary, work = Path(scratch, "ordinary"), Path(scratch, "work")
        for folder in (ordinary, work):
            folder.mkdir()
        _import_everything()
        _in_child(ordinary)
        if options.replay is not None:
            sys.exit(_replay(options.replay, ordinary, work))
        sys.exit(_fuzz(options, ordinary, work))


def _options() -> argparse.Namespace:
    names = [parser.name for parser in PARSERS]
    options = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    options.add_argument("parsers", nargs="*", metavar="PARSER", help=f"any of {', '.join(names)}")
    options.add_argument(
        "--seconds", type=float, default=float(os.environ.get("FUZZ_SECONDS", "3600"))
    )
    options.add_argument("--inputs", type=int, default=sys.maxsize, help="limit per parser")
    options.add_argument("--seed", default=os.environ.get("FUZZ_SEED", "0"))
    options.add_argument("--replay", type=Path, help="an input saved in .fuzz")
    options.add_argument("--outcomes", action="store_true", help="list all outcomes")
    found = options.parse_args()
    for name in found.parsers:
        if name not in names:
            options.error(f"unknown parser {name!r}")
    return found


def _import_everything() -> None:
    import h5py  # noqa: F401
    import hypothesis  # noqa: F401
    import torch

    import rl_training.api.checkpoints
    import rl_training.api.datasets
    import rl_training.api.plots
    import rl_training.api.training  # noqa: F401

    torch.set_num_threads(1)


def _in_child(ordinary: Path) -> None:
    """Create the ordinary files in a separate process, so that this one has no threads."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            make_ordinary(ordinary)
            status = 0
        finally:
            os._exit(status)
    if os.waitpid(pid, 0)[1] != 0:
        raise SystemExit("the ordinary files could not be created")


def _fuzz(options: argparse.Namespace, ordinary: Path, work: Path) -> int:
    chosen = [p for p in PARSERS if p.name in (options.parsers or [q.name for q in PARSERS])]
    print(f"{options.seconds:g} s for {len(chosen)} parsers, seed {options.seed}")
    print(f"{'parser':<16} {'inputs':>9} {'outcomes':>9} {'slowest':>9} {'findings':>9}")
    failed = 0
    for parser in chosen:
        seconds = options.seconds / len(chosen)
        report = fuzz(
            parser, ordinary, work, seconds=seconds, seed=options.seed, inputs=options.inputs
        )
        _print(report, outcomes=options.outcomes)
        failed += len(report.findings)
        for folder in work.iterdir():
            shutil.rmtree(folder)
    print(f"{failed} findings" if failed else "No findings")
    return 1 if failed else 0


def _print(report: Report, *, outcomes: bool) -> None:
    slowest = f"{report.slowest * 1000:.0f} ms"
    print(
        f"{report.parser:<16} {report.executions:>9,} {len(report.outcomes):>9,} {slowest:>9} "
        f"{len(report.findings):>9,}",
        flush=True,
    )
    for signature, finding in report.findings.items():
        file = finding.save(FOUND, report.parser)
        print(f"  {signature}")
        print(
            f"    {sys.executable} -m tests.fuzz --replay {file.relative_to(REPOSITORY)}",
            flush=True,
        )
    if outcomes:
        for outcome in sorted(report.outcomes):
            print(f"  {outcome!r}")


def _replay(file: Path, ordinary: Path, work: Path) -> int:
    name = file.name.partition("+")[0]
    parser = next((parser for parser in PARSERS if parser.name == name), None)
    if parser is None:
        raise SystemExit(f"{file.name} does not start with the name of a parser")
    report = replay(parser, ordinary, work, file.read_bytes())
    for finding in report.findings.values():
        print(f"{finding.kind}\n{finding.detail}")
    if not report.findings:
        print(f"No finding: {', '.join(report.outcomes)}")
    return 1 if report.findings else 0


if __name__ == "__main__":
    main()
