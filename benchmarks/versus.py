"""Tables of our speed, compiled and eager, next to a peer with its default threads and with one.

Ratios use the faster of the peer's two thread counts, round by round.
"""

from rich.console import Console
from rich.table import Table

from benchmarks.describe import spread
from benchmarks.peering import Result, cell

OURS = ("compiled", "eager")
PEER = ("peer", "peer, 1 thread")


def summarize(rounds: list[dict[str, Result]], algos: list[str]) -> Result:
    """Return speeds of each algorithm, and ours relative to the faster peer, round by round."""
    return {algo: summarize_one(rounds, algo) for algo in algos}


def summarize_one(rounds: list[dict[str, Result]], algo: str) -> Result:
    """Return the numbers of one algorithm, without ratios if it has no peer."""
    found = {
        kind: [r[f"{algo} {kind}"] for r in rounds]
        for kind in OURS + PEER
        if f"{algo} {kind}" in rounds[0]
    }
    speeds = {kind: [r["speed"] for r in results] for kind, results in found.items()}
    peers = [speeds[kind] for kind in PEER if kind in speeds]
    best = [max(pair) for pair in zip(*peers, strict=True)]
    return {
        "speed": {kind: spread(values) for kind, values in speeds.items()},
        "over_better_peer": {
            kind: spread([a / b for a, b in zip(speeds[kind], best, strict=True)])
            for kind in OURS
            if best
        },
        "threads": {kind: results[0]["threads"] for kind, results in found.items()},
        "preparation_seconds": [r["preparation_seconds"] for r in found["compiled"]],
        "fell_back": any(r["engine"] != "compiled" for r in found["compiled"]),
    }


def show(report: Result, console: Console, title: str) -> None:
    """Print the table."""
    table = Table(title=f"{title}: median (minimum - maximum)")
    for heading in (
        "",
        "",
        "per second",
        "relative to the faster peer",
        "threads",
        "preparation, s",
    ):
        table.add_column(heading, justify="right" if heading else "left")
    for algo, entry in report["summary"].items():
        prepared = cell(spread(entry["preparation_seconds"]), ".0f")
        for kind, speed in entry["speed"].items():
            ratio = entry["over_better_peer"].get(kind)
            table.add_row(
                algo if kind == OURS[0] else "",
                f"ours, {kind}" if kind in OURS else kind,
                cell(speed, ".1f"),
                cell(ratio, ".2f") if ratio else "",
                str(entry["threads"][kind]),
                prepared if kind == "compiled" else "",
            )
        if entry["fell_back"]:
            console.print(f"{algo}: the compiled engine fell back to eager updates")
    console.print(table)
