"""Everything people read is American English, without phrases that sound translated."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

BRITISH = (
    r"\b\w*(?:normalis|initialis|optimis|summaris|regularis|generalis|serialis|vectoris|realis)"
    r"(?:e[drs]?|ing|ation)\b"
    r"|\b(?:un|mis)?(?:behaviour|colour|favour|neighbour|labour|honour)\w*|\bcentre\b|\bgrey\b"
    r"|\b(?:artefact|catalogue|whilst|analyse|modelled|modelling|labelled|labelling)\w*\b"
    r"|\b(?:relabelled|relabelling|cancelled|travelled|fulfil|licence|defence|maximise|minimise)\b"
    r"|\bmisspelt\b|\blearnt\b|\bspelt\b"
)
TRANSLATED = (
    # Square brackets keep these lines from matching themselves.
    r"not to be h[a]d|of y[o]urs\b|goes o[n] with|are t[o]ld|is t[o]ld|is nobod[y]'s|known a[r]e"
    r"|belongs? int[o]|used u[p]\b|\ban[e]w\b|has t[o] do for|stands? b[e]side|stands? betw[e]en"
    r"|between them st[a]nd|a slip of th[e] hand|memory is as[k]ed|running episodes' b[o]oks"
    r"|whole or not ther[e]|whoever m[e]nds|m[e]nd the env|nothing is no err[o]r|is no learn[e]r"
    r"|that cannot b[e]\.|to as[k]\b.*by what|mistakes are n[a]med|a loss of crit[i]cs"
    r"|what actions ma[y] be"
    r"|gives? the program its own thr[e]ads"
)
FORBIDDEN = re.compile(f"{BRITISH}|{TRANSLATED}", re.IGNORECASE)
TEXT = {".md", ".py", ".pyi", ".yaml", ".yml", ".toml", ".cff", ".txt"}


def tracked_files() -> list[Path]:
    """Text files under version control, or in a source distribution all of them."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode != 0:
        pytest.skip("not a git checkout")
    names = [name for name in listed.stdout.splitlines() if "fixtures" not in name]
    return [ROOT / name for name in names if Path(name).suffix in TEXT]


def test_prose_is_plain_american_english() -> None:
    files = tracked_files()
    assert len(files) > 300
    found = [
        f"{file.relative_to(ROOT)}:{number}: {match.group()}"
        for file in files
        if file != Path(__file__) and file.is_file()
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), start=1)
        for match in FORBIDDEN.finditer(line)
    ]
    assert not found, "\n".join(found[:40])


@pytest.mark.parametrize(
    "text", ["the behaviour", "misspelt", " ".join(("known", "are: a, b")), "begins anew"]
)
def test_pattern_finds_phrases(text: str) -> None:
    assert FORBIDDEN.search(text)
