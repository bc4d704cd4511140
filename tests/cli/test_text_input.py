"""Where the text to be spoken comes from."""

from __future__ import annotations

import io
import os
import sys
from contextlib import nullcontext
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oscine.cli.text_input import MAX_BYTES, NOT_TEXT, open_text, read_stdin
from oscine.errors import OscineError, UsageError


class Trickle:
    """Gives so many bytes a read."""

    def __init__(self, data: bytes, size: int) -> None:
        self._file, self._size = io.BytesIO(data), size

    def read1(self, _: int) -> bytes:
        return self._file.read(self._size)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_text_is_itself_unless_it_is_a_file() -> None:
    for text in (
        "Hello",
        "See notes.txt",
        "e.g.",
        "v1.2",
        "and/or",
        "x" * 5000,
        "a\0b",
        "-5 degrees",
    ):
        assert open_text(text) == text
    Path("See notes.txt").write_text("their contents", "utf-8")
    assert open_text("See notes.txt") == "their contents"


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ("Grüße,\nWelt".encode(), "Grüße,\nWelt"),
        (b"\xef\xbb\xbfone\r\ntwo\rthree", "one\ntwo\nthree"),
        ("你好。".encode(), "你好。"),
    ],
)
def test_a_file_is_its_text(data: bytes, text: str) -> None:
    Path("a.txt").write_bytes(data)
    assert open_text("a.txt") == text


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "a.txt: is empty; there is no text to speak"),
        (b"\xef\xbb\xbf \r\n\t", "a.txt: is empty"),
        (b"RIFF\xff\xfe\x00", f"a.txt: {NOT_TEXT}"),
        ("Grüße".encode("latin-1"), f"a.txt: {NOT_TEXT}"),
        ("text".encode("utf-16"), f"a.txt: {NOT_TEXT}"),
        (b"a\x00b", f"a.txt: {NOT_TEXT}"),
        ("é".encode()[:1], f"a.txt: {NOT_TEXT}"),
    ],
)
def test_a_file_without_text_is_one_line(data: bytes, problem: str) -> None:
    Path("a.txt").write_bytes(data)
    with pytest.raises(OscineError, match=problem):
        open_text("a.txt")
    with pytest.raises(OscineError, match=problem.replace("a.txt", "standard input")):
        list(read_stdin(io.BytesIO(data)))


@pytest.mark.parametrize(
    ("argument", "problem"),
    [
        ("", "there is no text to speak"),
        (" \n", "there is no text to speak"),
        ("...", "there is nothing to say in '...': no letter and no digit"),
        (".", "\\. is a folder; name a file in it, or give this text through -"),
        ("missing.txt", "missing.txt: no such file"),
        ("folder/READ.MD", "folder/READ.MD: no such file"),
        ("hello.wav", "hello.wav: no such file; to speak this name, give it through -"),
        ("book.Pdf", "book.Pdf: no such file"),
    ],
)
def test_arguments_that_cannot_be_meant(argument: str, problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        open_text(argument)


def test_a_file_that_may_not_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("a.txt").write_text("text", "utf-8")

    def refuse(*_: object) -> bytes:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(OscineError, match=r"a\.txt: cannot be read: Permission denied"):
        open_text("a.txt")


@given(st.text(st.characters(exclude_characters="\0\r\ufeff", codec="utf-8")), st.integers(1, 7))
def test_standard_input_in_any_pieces_is_the_same_text(text: str, size: int) -> None:
    data = text.replace("\n", "\r\n").encode()
    if text.strip():
        assert "".join(read_stdin(Trickle(data, size))) == text


def test_standard_input_comes_as_it_is_written() -> None:
    lines = iter([b"One. ", b"Two.", b""])
    pieces = read_stdin(SimpleNamespace(read1=lambda _: next(lines)))
    assert next(pieces) == "One. "
    assert next(pieces) == "Two."


def test_standard_input_that_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(OscineError, match="standard input: is closed"):
        open_text("-")
    found: Any = SimpleNamespace(buffer=io.BytesIO(b"said"))
    monkeypatch.setattr(sys, "stdin", found)
    assert "".join(open_text("-")) == "said"


class Endless:
    """A pipe whose writer never stops."""

    def __init__(self) -> None:
        self.taken = 0

    def read(self, size: int) -> bytes:
        self.taken += size
        return b"y" * size


def test_a_file_or_pipe_is_read_with_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    endless = Endless()
    Path("a.txt").write_bytes(b"y" * (MAX_BYTES + 1))
    with pytest.raises(OscineError, match=r"a\.txt: is larger than 16 MiB; give it in parts"):
        open_text("a.txt")
    Path("a.txt").write_bytes(b"y" * MAX_BYTES)
    assert len(str(open_text("a.txt"))) == MAX_BYTES
    monkeypatch.setattr(Path, "open", lambda *_: nullcontext(endless))
    with pytest.raises(OscineError, match="is larger than 16 MiB"):
        open_text("a.txt")
    assert endless.taken == MAX_BYTES + 1


@pytest.mark.skipif(os.name != "posix", reason="Windows has no such pipes")
def test_a_pipe_in_a_files_place_is_its_text() -> None:
    os.mkfifo("pipe")
    writer = Thread(target=lambda: Path("pipe").write_text("from a pipe", "utf-8"))
    writer.start()
    assert open_text("pipe") == "from a pipe"
    writer.join()


def test_standard_input_that_fails() -> None:
    def refuse(_: int) -> bytes:
        raise OSError(5, "Input/output error")

    with pytest.raises(OscineError, match="standard input: cannot be read: Input/output error"):
        list(read_stdin(SimpleNamespace(read1=refuse)))
