"""Compare the training speed of this tree with that of another commit, interleaved in one run.

    python -m benchmarks.versions_cpu --against 90d7648 --rounds 5

Every measurement is a process of its own. The two versions take turns, in rounds of rotated order.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console

from benchmarks.describe import ROOT, describe, spread
from benchmarks.peering import Result, take_turns
from benchmarks.sac_cpu import measure_ours
from benchmarks.snapshots import checked_out


@contextmanager
def sources(folder: Path) -> Iterator[None]:
    """Let new processes import the package from a folder."""
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = str(folder)
    try:
        yield
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before


def main() -> None:
    """Measure in rounds, print the ratio, write the JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--against", default="90d7648", help="the commit to compare with")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=2600, help="environment steps of each run")
    parser.add_argument("--warmup", type=int, default=600, help="steps before the clock starts")
    parser.add_argument("--engine", default="compiled", choices=["compiled", "eager"])
    parser.add_argument("--out", type=Path, metavar="FILE.json", help="where to write the result")
    args = parser.parse_args()
    console = Console()
    with checked_out(args.against) as tree, tempfile.TemporaryDirectory() as neutral:
        folders = {"new": ROOT / "src", "old": tree / "src"}
        os.chdir(neutral)  # the present folder must not decide which version is imported

        def measure(name: str) -> Result:
            with sources(folders[name]):
                result = measure_ours(args.steps, args.warmup, args.engine)
            return {"speed": result.pop("steps_per_second"), **result}

        for rounds in take_turns(("new", "old"), args.rounds, measure, console):
            ratios = [r["new"]["speed"] / r["old"]["speed"] for r in rounds]
            report = {**describe(), "against": args.against, "engine": args.engine}
            report |= {"ratio": spread(ratios), "rounds": rounds}
            if args.out:
                args.out.write_text(json.dumps(report, indent=2) + "\n")
    ratio = report["ratio"]
    console.print(
        f"new / old, {len(ratios)} rounds: median {ratio['median']:.3f} "
        f"({ratio['min']:.3f} - {ratio['max']:.3f})"
    )


if __name__ == "__main__":
    main()
