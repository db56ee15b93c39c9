"""Mutants of model cards, and of what is published."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

PUBLISHING = "api/publishing.py"
TEXT = "api/card_text.py"
HUB = "boundary/hub.py"
PUBLISHED = "tests/api/test_publishing.py"
CARDS = "tests/api/test_cards.py"
UPLOADS = "tests/boundary/test_hub.py"

MUTANTS = [
    Mutant(
        "paths with spaces are only partly removed",
        PUBLISHING,
        "    if _is_path(value):",
        "    if False:",
        f"{PUBLISHED} -k absolute_paths",
    ),
    Mutant(
        "a card shows private overrides",
        PUBLISHING,
        "not in PRIVATE_KEYS]",
        "not in ()]",
        f"{PUBLISHED} -k private",
    ),
    Mutant(
        "a card shows a command of another program",
        PUBLISHING,
        '    if words[:1] != ["rl-training"]:',
        "    if not words:",
        f"{PUBLISHED} -k only_commands",
    ),
    Mutant(
        "a published checkpoint contains the state of callbacks",
        PUBLISHING,
        'json_codec.dumps({"trainer": strip_paths(trainer)})',
        "json_codec.dumps(checkpoint.state())",
        f"{PUBLISHED} -k nothing_private",
    ),
    Mutant(
        "a card reports the evaluation of other weights",
        "api/cards.py",
        "if step != checkpoint.step or",
        "if step is None or",
        f"{CARDS} -k other_weights",
    ),
    Mutant(
        "inline code ends at a backtick",
        TEXT,
        '    marks = "`" * (1 + _longest_run(line))',
        '    marks = "`"',
        f"{CARDS} -k inline_code",
    ),
    Mutant(
        "a code block ends at a fence in its text",
        TEXT,
        '    marks = "`" * max(3, 1 + _longest_run(text))',
        '    marks = "```"',
        f"{CARDS} -k code_block",
    ),
    Mutant(
        "a private upload goes to a public repository",
        HUB,
        "if private and not info.private:",
        "if private is None:",
        f"{UPLOADS} -k privately",
    ),
    Mutant(
        "files of an earlier upload remain",
        HUB,
        "if owned.fullmatch(name) and name not in contents",
        "if name is None",
        f"{UPLOADS} -k second_upload",
    ),
]
