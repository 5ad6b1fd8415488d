"""A server on 127.0.0.1 that speaks as much of the API of huggingface.co as `huggingface_hub` needs to get a model."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from urllib.parse import unquote, urlsplit


@dataclass
class Repository:
    """The files of a model by commit, and its branches and tags. refuse: an error code of the hub for all requests."""

    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)
    refs: dict[str, str] = field(default_factory=dict)
    card: dict[str, str] = field(default_factory=dict)
    refuse: str = ""
    token: str = ""  # that a request must have
    cut: dict[str, int] = field(default_factory=dict)  # files that end too early, how many times more
    wrong: set[str] = field(default_factory=set)  # files that arrive with other content

    def commit(self, files: dict[str, bytes], ref: str = "main") -> str:
        names = "".join(f"{name}{hashlib.sha1(content).hexdigest()}" for name, content in files.items())
        sha = hashlib.sha1(names.encode()).hexdigest()
        self.commits[sha], self.refs[ref] = files, sha
        return sha

    def commit_folder(self, folder: Path, ref: str = "main", **others: bytes) -> str:
        files = {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
        return self.commit({**files, **others}, ref)


@dataclass
class Hub:
    """The server: its address, its models by name, and the requests that it got, as "GET name/of/model file"."""

    address: str
    repositories: dict[str, Repository] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)

    def files(self) -> set[str]:
        """The files that were downloaded."""
        gets = [one.removeprefix("GET ") for one in self.requests if one.startswith("GET ")]
        return {one for one in gets if one.split(" ")[0] in self.repositories}


@contextmanager
def hub_server() -> Iterator[Hub]:
    """Run a server inside the block."""
    hub = Hub("")

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *args: object) -> None:
            """Print nothing."""

        def do_HEAD(self) -> None:
            self.answer()

        def do_GET(self) -> None:
            self.answer()

        def answer(self) -> None:
            path = unquote(urlsplit(self.path).path).strip("/")
            if path.startswith("api/models/"):
                repo, _, revision = path.removeprefix("api/models/").partition("/revision/")
                name = "/api"
            else:
                repo, _, rest = path.partition("/resolve/")
                known = hub.repositories.get(repo, Repository())
                revision = next((r for r in [*known.refs, *known.commits] if rest.startswith(r + "/")), "")
                name = rest.removeprefix(revision + "/")
            hub.requests.append(f"{self.command} {repo}{name if name == '/api' else ' ' + name}")
            repository = hub.repositories.get(repo)
            if repository is None:
                return self.send(404, {"X-Error-Code": "RepoNotFound"})
            if repository.refuse:
                return self.send(403, {"X-Error-Code": repository.refuse})
            if repository.token and self.headers.get("Authorization") != f"Bearer {repository.token}":
                return self.send(401, {})
            commit = repository.refs.get(revision, revision)
            if commit not in repository.commits:
                return self.send(404, {"X-Error-Code": "RevisionNotFound"})
            files = repository.commits[commit]
            if name == "/api":
                return self.send(200, {"Content-Type": "application/json"}, self.info(repo, repository, commit))
            if name not in files:
                return self.send(404, {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": commit})
            content = files[name]
            etag = (hashlib.sha256 if name.endswith(".safetensors") else hashlib.sha1)(content).hexdigest()
            if name in repository.wrong:
                content = bytes(len(content))
            return self.send(
                200, {"X-Repo-Commit": commit, "ETag": f'"{etag}"'}, content, cut=self.cut(repository, name)
            )

        def info(self, repo: str, repository: Repository, commit: str) -> bytes:
            siblings = [
                {"rfilename": name, "size": len(content), "blobId": "0" * 40}
                | (
                    {"lfs": {"sha256": hashlib.sha256(content).hexdigest(), "size": len(content), "pointerSize": 134}}
                    if name.endswith(".safetensors")
                    else {}
                )
                for name, content in repository.commits[commit].items()
            ]
            facts = {"id": repo, "sha": commit, "private": False, "downloads": 0, "likes": 0, "tags": []}
            return json.dumps({**facts, "siblings": siblings, "cardData": repository.card}).encode()

        def cut(self, repository: Repository, name: str) -> bool:
            if self.command == "HEAD" or not repository.cut.get(name):
                return False
            repository.cut[name] -= 1
            return True

        def send(self, status: int, headers: dict[str, str], content: bytes = b"", *, cut: bool = False) -> None:
            start = 0
            if (span := self.headers.get("Range")) and self.command == "GET" and status == 200:
                start = int(span.removeprefix("bytes=").split("-")[0])
                status = 206
                headers = {**headers, "Content-Range": f"bytes {start}-{len(content) - 1}/{len(content)}"}
                hub.requests[-1] += f" from {start}"
            self.send_response(status)
            for key, value in headers.items():
                self.send_header(key, value)
            self.send_header("Content-Length", str(len(content) - start))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(content[start : start + (len(content) - start) // 2] if cut else content[start:])
            if cut:
                self.close_connection = True

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    hub.address = f"http://127.0.0.1:{server.server_address[1]}"
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
