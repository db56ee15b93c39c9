"""Uploads to the Hugging Face hub: the real client with a local stand-in for the server."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rl_training import ConfigError, RLTrainingError, model_card, predict_checkpoint
from rl_training.boundary.hub import check_repo
from tests.faults.zygote import shared_zygote
from tests.hub_server import READ, WRITE, Hub, serve_hub

hub_client = pytest.importorskip("huggingface_hub")

RUN = Path(__file__).parents[1] / "fixtures" / "format_1" / "sac"
REPO = "me/sac-pendulum"
CHECKPOINT_FILES = {
    f"checkpoint/{name}"
    for name in ("manifest.json", "model.safetensors", "optimizers.safetensors", "state.json")
}


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Hub]:
    """An empty hub and a client with a token that may write."""
    from huggingface_hub import constants

    with serve_hub() as server:
        monkeypatch.setattr(constants, "ENDPOINT", server.url)
        template = "HUGGINGFACE_CO_URL_TEMPLATE"
        local = server.url + getattr(constants, template)[len("https://huggingface.co") :]
        monkeypatch.setattr(constants, template, local)
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
        monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "no_token"))
        monkeypatch.setenv("HF_TOKEN", WRITE)
        yield server


def pushed(**options: Any) -> dict[str, Any]:
    return model_card(RUN, push=REPO, **{"episodes": 0} | options)


def test_uploaded_policy_can_be_downloaded_and_used(hub: Hub, tmp_path: Path) -> None:
    result = pushed(best=True, onnx=True)
    assert result["url"] == f"{hub.url}/{REPO}"
    repository = hub.repositories[REPO]
    assert set(result["uploaded"]) == repository.files.keys()
    policy = {"policy.onnx", "policy.json", "policy.py"}
    assert repository.files.keys() == {"README.md", "README.png", *CHECKPOINT_FILES, *policy}
    assert repository.commits == ["Upload a SAC agent, step 20"]
    card = repository.files["README.md"].decode()
    assert f"hf download {REPO} --local-dir sac-pendulum" in card
    assert 'SAC.load("sac-pendulum/checkpoint")' in card
    assert "`policy.py` runs it with NumPy and onnxruntime alone" in card

    folder = tmp_path / "sac-pendulum"
    hub_client.snapshot_download(REPO, local_dir=folder)
    obs = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    expected = predict_checkpoint(RUN, obs, best=True)
    np.testing.assert_array_equal(predict_checkpoint(folder / "checkpoint", obs), expected)
    program = (
        "import sys, numpy as np\n"
        f"sys.path.insert(0, {str(folder)!r})\n"
        "from policy import Policy\n"
        f"print(Policy()(np.array({obs.tolist()}, dtype=np.float32)).tolist())"
    )
    printed = subprocess.check_output([sys.executable, "-I", "-c", program])
    np.testing.assert_allclose(json.loads(printed), expected, atol=4e-5)


def test_second_upload_replaces_the_first_one(hub: Hub) -> None:
    """A policy file of the first upload would not match the second checkpoint."""
    pushed(best=True)
    policy = dict.fromkeys(("policy.onnx", "policy.json", "policy.py"), b"of the first upload")
    hub.repositories[REPO].files |= policy | {"notes.md": b"mine", "checkpoint/extra.json": b"{}"}
    pushed()
    repository = hub.repositories[REPO]
    assert repository.files.keys() == {"README.md", "README.png", "notes.md", *CHECKPOINT_FILES}
    assert json.loads(repository.files["checkpoint/manifest.json"])["step"] == 31
    assert repository.commits == ["Upload a SAC agent, step 20", "Upload a SAC agent, step 31"]


def test_private_repository(hub: Hub) -> None:
    pushed(private=True)
    assert hub.repositories[REPO].private
    pushed(private=True)
    assert len(hub.repositories[REPO].commits) == 2


def test_nothing_is_uploaded_privately_to_a_public_repository(hub: Hub) -> None:
    pushed()
    hub.requests.clear()
    with pytest.raises(ConfigError, match=f"{REPO} already exists and is public"):
        pushed(private=True)
    assert not any("commit" in line or "lfs" in line for line in hub.requests)


def test_card_is_also_written_locally_with_out(hub: Hub, tmp_path: Path) -> None:
    result = pushed(out=tmp_path / "card.md")
    assert result["files"] == [str(tmp_path / "card.md"), str(tmp_path / "card.png")]
    assert hub.repositories[REPO].commits
    assert not (RUN / "README.md").exists()


# --- Errors ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("token", "message"),
    [
        (READ, r"could not be uploaded to http://127.*403.*use one with write access"),
        ("hf_unknown", r"401.*The token is not valid: log in again with hf auth login"),
    ],
)
def test_tokens_that_do_not_work_are_one_sentence(
    token: str, message: str, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", token)
    with pytest.raises(RLTrainingError, match=message) as error:
        pushed()
    assert token not in str(error.value)
    assert "\n" not in str(error.value)
    assert not hub.repositories


def test_missing_token_is_found_before_anything_is_computed(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HF_TOKEN")
    with pytest.raises(ConfigError, match="no Hugging Face token: log in with hf auth login"):
        model_card("no_run", push=REPO)
    assert not hub.requests


def test_missing_client_gives_the_install_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ConfigError, match=r"pip install 'rl-training\[hub\]'"):
        pushed()
    check_repo(REPO)


def test_unreachable_hub_is_one_sentence(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(RLTrainingError, match=r"Connection refused.*Check your network"):
        pushed()


def test_error_of_the_server_leaves_no_card(hub: Hub, tmp_path: Path) -> None:
    hub.failing = "/commit/"
    with pytest.raises(RLTrainingError, match="500 Internal Server Error"):
        pushed(out=tmp_path / "card.md")
    assert not hub.repositories[REPO].files
    assert not list(tmp_path.glob("card*"))


def test_metadata_that_the_hub_refuses_is_named(hub: Hub) -> None:
    with pytest.raises(RLTrainingError, match='"license" must be one of'):
        pushed(license="not-a-license")
    assert not hub.repositories[REPO].files


NOT_REPOSITORIES = [
    *("", "name", "a/b/c", "/b", "a/", "a b/c", "me/x--y", "me/x..y", "me/-x", "me/x.git", "ü/x"),
    *(3, "https://huggingface.co/me/x", "me/" + "x" * 97),
]


@pytest.mark.parametrize("name", NOT_REPOSITORIES)
def test_names_that_are_not_repositories(name: Any) -> None:
    with pytest.raises(ConfigError, match="should be the name of a repository, USER/NAME"):
        check_repo(name)


def test_names_of_repositories() -> None:
    for name in ("me/x", "my-team/SAC_v1.0", "A1/" + "x" * 96):
        assert check_repo(name) == name
        hub_client.utils.validate_repo_id(name)


# --- Command line ---------------------------------------------------------------


def card_command(url: str, *arguments: str, cwd: Path, token: str = WRITE) -> Any:
    """Run the command in a process in which the client reads its environment variables."""
    changes = {
        "HF_ENDPOINT": url,
        "HF_TOKEN": token,
        "HF_HUB_DISABLE_XET": "1",
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        "HF_HOME": str(cwd / "home"),
    }
    program = (
        f"import os, sys\nos.environ.update({changes!r})\nsys.path.append('')\n"
        "from tests.faults.zygote import run_command\n"
        f"run_command('card', {str(RUN)!r}, '--episodes', '0', *{arguments!r})"
    )
    return shared_zygote().run(code=program, cwd=cwd)


def test_push_on_the_command_line(hub: Hub, tmp_path: Path) -> None:
    done = card_command(hub.url, "--best", "--push", REPO, cwd=tmp_path)
    assert done.status == 0, done.err
    assert re.search(rf"Uploaded 6 files to {hub.url}/{REPO} \(step 20\)", done.out)
    assert hub.repositories[REPO].files.keys() == {"README.md", "README.png", *CHECKPOINT_FILES}
