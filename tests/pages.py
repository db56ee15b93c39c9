"""Run the code blocks of a documentation page as one program."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from tests.faults.zygote import shared_zygote

ROOT = Path(__file__).parents[1]
FENCE = re.compile(
    r"(?P<before><!--[^\n]*-->\n+)?^```(?P<language>[^\n]*)\n(?P<code>.*?)^```$", re.M | re.S
)
NUMBER = re.compile(r"-?\d[\d,]*(\.\d+)?(e-?\d+)?")
MARK = "=== block {} ==="

Change = Callable[[list[str]], list[str]]


class Block(NamedTuple):
    """A fenced block."""

    language: str
    code: str
    runs: bool


def blocks(page: str) -> list[Block]:
    """Return a page's fenced blocks; those after a comment ``<!-- not run`` are not run."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return [
        Block(match["language"], match["code"], "not run" not in (match["before"] or ""))
        for match in FENCE.finditer(text)
    ]


def script_of(page: str, change: Change = list) -> str:
    """Return the Python blocks and commands as a script; ``change`` may shorten a command."""
    lines = ["import sys", "sys.path.append('')", "from tests.faults.zygote import run_command"]
    for number, block in enumerate(blocks(page)):
        if block.runs and block.language in ("python", "bash"):
            lines.append(f"print({MARK.format(number)!r}, flush=True)")
            code = block.code if block.language == "python" else "\n".join(calls(block, change))
            lines.append(code)
    return "\n".join(lines)


def calls(block: Block, change: Change) -> Iterator[str]:
    """Yield the commands of a shell block as Python calls."""
    for command in block.code.replace("\\\n", " ").splitlines():
        name, *arguments = shlex.split(command)
        assert name == "rl-training", command
        yield f"run_command(*{change(arguments)!r})"


def run_page(page: str, folder: Path, change: Change = list) -> None:
    """Run a page in a folder; its output must match the output that the page shows."""
    done = shared_zygote().run(code=script_of(page, change), cwd=folder)
    assert done.status == 0, done.err
    _, *parts = re.split(MARK.format(r"(\d+)") + "\n", done.out)
    printed = dict(zip(map(int, parts[::2]), parts[1::2], strict=True))
    for number, block in enumerate(blocks(page)):
        if block.language == "text":
            found = printed[number - 1]
            assert comparable(found) == comparable(block.code), found


def comparable(output: str) -> list[str]:
    """Return the lines without digits, which depend on the machine."""
    return [" ".join(NUMBER.sub("0", line).split()) for line in output.strip().splitlines()]
