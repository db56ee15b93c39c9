"""Check that another machine sees the folder of a study, at the same path, and can write to it."""

from __future__ import annotations

import os
import secrets
import time
from dataclasses import dataclass
from pathlib import Path

from rl_training.boundary.reading import read_text
from rl_training.boundary.writing import write_atomically
from rl_training.errors import ConfigError
from rl_training.study.records import LOCKS
from rl_training.text import reason
from rl_training.version import __version__

PATIENCE_SECONDS = 5.0
"""How long a new file may take to appear on another machine."""
_POLL_SECONDS = 0.2


@dataclass(frozen=True)
class Token:
    """A file in a study's folder whose random contents other machines read and answer."""

    study: str
    """Folder of the study, as an absolute path."""
    text: str
    version: str = __version__
    """Version of the package that has written the token."""

    @classmethod
    def create(cls, study: Path) -> Token:
        """Write a token."""
        token = cls(os.path.abspath(study), secrets.token_hex(16))
        token.file.parent.mkdir(exist_ok=True)
        write_atomically(token.file, token.text.encode())
        return token

    @property
    def file(self) -> Path:
        """The file, whose name is new, so that no machine remembers that it does not exist."""
        return Path(self.study) / LOCKS / f"shared-{self.text}.token"

    def reply(self, name: str) -> Path:
        """Return the file with which a process on a machine answers."""
        return self.file.with_suffix(f".{name}")

    def answer(self, name: str) -> str | None:
        """Read the token on another machine and answer it; return what is wrong, if anything.

        ``name`` is unique among all processes that answer.
        """
        if self.version != __version__:
            return (
                f"has rl-training {__version__}, but this command is version {self.version}: "
                "install the same version on every node."
            )
        if not _has_text(self.file, self.text):
            return f"does not see {self.study}: {ADVICE}"
        try:
            write_atomically(self.reply(name), self.text.encode())
        except OSError as error:
            return f"cannot write to {self.study} ({reason(error)}): {ADVICE}"
        return None

    def was_answered(self, name: str) -> bool:
        """Return whether an answer is visible here; its file is removed."""
        file = self.reply(name)
        found = _has_text(file, self.text)
        file.unlink(missing_ok=True)
        return found

    def remove(self) -> None:
        """Remove the file."""
        self.file.unlink(missing_ok=True)


ADVICE = "choose a folder with --out on storage that all nodes mount at the same path, such as NFS."


def _has_text(file: Path, text: str) -> bool:
    """Wait a moment for a file with this text."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            if read_text(file, limit=200) == text:
                return True
        except ConfigError:  # it does not exist, or not yet
            pass
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_SECONDS)
