"""Upload files to the Hugging Face hub."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from rl_training.errors import ConfigError, RLTrainingError
from rl_training.text import shorten, shown

INSTALL = "pip install 'rl-training[hub]'"


def check_repo(repo: Any) -> str:
    """Return the name of a repository, ``USER/NAME``."""
    parts = repo.split("/") if isinstance(repo, str) else []
    valid = all(
        re.fullmatch(r"[A-Za-z0-9](?:[\w.-]{0,94}\w)?", part, re.ASCII)
        and not re.search(r"--|\.\.|\.git$", part)
        for part in parts
    )
    if len(parts) != 2 or not valid:
        raise ConfigError(
            f"push = {shown(repo)}: should be the name of a repository, USER/NAME, with letters, "
            "digits, '-', '_' and '.'."
        )
    return "/".join(parts)


def check_login() -> None:
    """Raise an error if the client is not installed or there is no token."""
    try:
        from huggingface_hub import get_token
    except ImportError:
        raise ConfigError(f"Uploads require huggingface_hub. Install it with: {INSTALL}") from None
    if get_token() is None:
        raise ConfigError(
            "There is no Hugging Face token: log in with hf auth login, or set HF_TOKEN to a token "
            "with write access."
        )


def upload(
    repo: str, contents: Mapping[str, bytes], *, owned: re.Pattern[str], private: bool, message: str
) -> str:
    """Upload files in one commit, and return the address of the repository.

    Args:
        repo: The repository, ``USER/NAME``; created if it does not exist.
        contents: The files by their names.
        owned: Files in the repository that match, but are not in ``contents``, are deleted.
        private: Whether the repository must be private.
        message: Message of the commit.

    Raises:
        RLTrainingError: The hub cannot be reached, or refuses the upload.
    """
    from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi

    api = HfApi()
    with _report_errors(repo, api.endpoint):
        created = api.create_repo(repo, private=private or None, exist_ok=True)
        info = api.model_info(repo)
        if private and not info.private:
            raise ConfigError(
                f"{repo} already exists and is public: make it private on the hub, or choose "
                "another name."
            )
        there = [item.rfilename for item in info.siblings or ()]
        stale = [name for name in there if owned.fullmatch(name) and name not in contents]
        api.create_commit(
            repo,
            [
                *(CommitOperationAdd(name, data) for name, data in contents.items()),
                *(CommitOperationDelete(name) for name in stale),
            ],
            commit_message=message,
        )
    return str(created.url)


@contextmanager
def _report_errors(repo: str, endpoint: str) -> Iterator[None]:
    """Turn an error of the client into one sentence."""
    try:
        yield
    except RLTrainingError:
        raise
    except Exception as error:  # the client raises many types
        status = getattr(getattr(error, "response", None), "status_code", None)
        if status == 401:
            advice = "The token is not valid: log in again with hf auth login, or set HF_TOKEN."
        elif status == 403:
            advice = "The token does not allow it: use one with write access, or another name."
        elif status is None and not isinstance(error, ValueError):
            advice = "Check your network connection, and HF_ENDPOINT if it is set."
        else:
            advice = ""  # a server error, or metadata that the hub does not accept
        found = shorten(f"{type(error).__name__}: {error}", 300)
        what = f"{repo} could not be uploaded to {endpoint} ({found})."
        raise RLTrainingError(f"{what} {advice}".strip()) from error
