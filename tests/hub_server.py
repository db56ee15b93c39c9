"""A stand-in for the Hugging Face hub on the loopback, for its real client."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import yaml

WRITE, READ = "hf_write", "hf_read"
"""Tokens with and without write access."""

COMMIT = "0" * 40


@dataclass
class Repository:
    """A repository with its files and the messages of its commits."""

    private: bool = False
    files: dict[str, bytes] = field(default_factory=dict)
    commits: list[str] = field(default_factory=list)


@dataclass
class Hub:
    """The state of the server."""

    url: str = ""
    repositories: dict[str, Repository] = field(default_factory=dict)
    stored: dict[str, bytes] = field(default_factory=dict)
    """Large files by their SHA-256, before a commit refers to them."""
    requests: list[str] = field(default_factory=list)
    failing: str = ""
    """Requests whose line contains this text are answered with status 500."""


def digest_of(data: bytes) -> str:
    """Return the SHA-256 of a file."""
    return hashlib.sha256(data).hexdigest()


@contextmanager
def serve_hub() -> Iterator[Hub]:
    """Serve an empty hub on a free port."""
    hub = Hub()
    handler = type("Handler", (_Handler,), {"hub": hub})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    hub.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    hub: Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        """Print nothing."""

    def do_POST(self) -> None:
        """Create a repository, prepare an upload, or commit."""
        body = self._body()
        if self._refuse(write=True):
            return
        path = self.path.partition("?")[0]
        if path == "/api/repos/create":
            self._create(json.loads(body))
        elif path == "/api/validate-yaml":
            self._validate(json.loads(body)["content"])
        elif match := re.fullmatch(r"/api/models/(.+)/preupload/main", path):
            files = json.loads(body)["files"]
            self._answer({"files": [self._upload_mode(match[1], item) for item in files]})
        elif path.endswith(".git/info/lfs/objects/batch"):
            self._answer_batch(json.loads(body)["objects"])
        elif match := re.fullmatch(r"/api/models/(.+)/commit/main", path):
            self._commit(match[1], body)
        else:
            self._answer({"error": f"unknown address {path}"}, 404)

    def do_PUT(self) -> None:
        """Store a large file."""
        body = self._body()
        digest = self.path.rpartition("/")[2]
        assert digest_of(body) == digest
        self.hub.stored[digest] = body
        self._answer({})

    def do_GET(self) -> None:
        """Describe a repository, or return a file."""
        if self._refuse(write=False):
            return
        path = self.path.partition("?")[0]
        if match := re.fullmatch(r"/api/models/([^/]+/[^/]+)(/revision/[^/]+)?", path):
            self._describe(match[1])
        elif match := re.fullmatch(r"/api/models/([^/]+/[^/]+)/tree/[^/]+", path):
            self._list(match[1])
        elif match := re.fullmatch(r"/([^/]+/[^/]+)/resolve/[^/]+/(.+)", path):
            self._send_file(match[1], match[2])
        else:
            self._answer({"error": f"unknown address {path}"}, 404)

    def do_HEAD(self) -> None:
        """Answer like a GET, without the contents."""
        self.do_GET()

    def _refuse(self, *, write: bool) -> bool:
        """Record a request, and refuse a token that is missing, unknown or too weak."""
        self.hub.requests.append(f"{self.command} {self.path}")
        token = self.headers.get("Authorization", "").removeprefix("Bearer ")
        if self.hub.failing and self.hub.failing in self.requestline:
            self._answer({"error": "internal error"}, 500)
        elif token not in (WRITE, READ):
            self._answer({"error": "Invalid credentials"}, 401)
        elif write and token == READ:
            self._answer({"error": "You need write access"}, 403)
        else:
            return False
        return True

    def _create(self, wanted: dict[str, Any]) -> None:
        name = "/".join(filter(None, (wanted.get("organization"), wanted["name"])))
        taken = name in self.hub.repositories
        if not taken:
            # The name of the field depends on the version of the client.
            private = wanted.get("private") is True or wanted.get("visibility") == "private"
            self.hub.repositories[name] = Repository(private=private)
        answer = {"url": f"{self.hub.url}/{name}", "name": name}
        if taken:
            answer["error"] = "You already created this model repo"
        self._answer(answer, 409 if taken else 200)

    def _validate(self, card: str) -> None:
        """Accept a card whose front matter is YAML with the fields of a model index."""
        found = re.match(r"---\n(.*?)\n---\n", card, re.S)
        metadata = yaml.safe_load(found[1]) if found else None
        errors = [] if isinstance(metadata, dict) else [{"message": "no metadata"}]
        for entry in (metadata or {}).get("model-index", []):
            for result in entry["results"]:
                if not {"task", "dataset", "metrics"} <= result.keys():
                    errors.append({"message": "incomplete model-index"})
        if (metadata or {}).get("license") == "not-a-license":
            errors.append({"message": '"license" must be one of [apache-2.0, mit]'})
        self._answer({"errors": errors, "warnings": []}, 400 if errors else 200)

    def _upload_mode(self, repo: str, item: dict[str, Any]) -> dict[str, Any]:
        large = item["path"].endswith((".safetensors", ".png", ".onnx"))
        mode = "lfs" if large else "regular"
        return {"path": item["path"], "uploadMode": mode, "shouldIgnore": False, "oid": None}

    def _answer_batch(self, objects: list[dict[str, Any]]) -> None:
        places = [{"href": f"{self.hub.url}/store/{item['oid']}"} for item in objects]
        answers = [
            {"oid": item["oid"], "size": item["size"], "actions": {"upload": place}}
            for item, place in zip(objects, places, strict=True)
        ]
        self._answer({"transfer": "basic", "objects": answers})

    def _commit(self, name: str, body: bytes) -> None:
        repository = self.hub.repositories[name]
        for line in body.splitlines():
            entry = json.loads(line)
            value = entry["value"]
            if entry["key"] == "header":
                repository.commits.append(value["summary"])
            elif entry["key"] == "file":
                repository.files[value["path"]] = base64.b64decode(value["content"])
            elif entry["key"] == "lfsFile":
                repository.files[value["path"]] = self.hub.stored[value["oid"]]
            else:
                assert entry["key"] == "deletedFile"
                del repository.files[value["path"]]
        url = f"{self.hub.url}/{name}/commit/{COMMIT}"
        self._answer({"success": True, "commitUrl": url, "commitOid": COMMIT})

    def _describe(self, name: str) -> None:
        if name not in self.hub.repositories:
            self._answer({"error": "Repository not found"}, 404)
            return
        repository = self.hub.repositories[name]
        siblings = [{"rfilename": path} for path in repository.files]
        private = repository.private
        self._answer({"id": name, "sha": COMMIT, "private": private, "siblings": siblings})

    def _list(self, name: str) -> None:
        files = self.hub.repositories[name].files.items()
        self._answer(
            [
                {"type": "file", "path": path, "size": len(data), "oid": digest_of(data)}
                for path, data in files
            ]
        )

    def _send_file(self, name: str, path: str) -> None:
        data = self.hub.repositories[name].files[path]
        headers = {"ETag": f'"{digest_of(data)}"', "X-Repo-Commit": COMMIT}
        self._send(data, 200, headers)

    def _body(self) -> bytes:
        if "chunked" in self.headers.get("Transfer-Encoding", ""):
            parts = []
            while size := int(self.rfile.readline(), 16):
                parts.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(parts)
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def _answer(self, data: Any, status: int = 200) -> None:
        self._send(json.dumps(data).encode(), status, {"Content-Type": "application/json"})

    def _send(self, data: bytes, status: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        for key, value in (headers | {"Content-Length": str(len(data))}).items():
            self.send_header(key, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)
