"""What the speak command takes texts from: Markdown, many lines, marks in them."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from .speaking import Speaker, speak

Capture = pytest.CaptureFixture[str]


def stdin(monkeypatch: pytest.MonkeyPatch, data: str) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(data.encode())))


def test_markdown_is_spoken_plainly(
    speaker: Speaker, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As an argument, from a file, and from standard input as it comes."""
    Path("a.md").write_text("# News\n\n- **one** 🎉\n\n```\ncode\n```\n", "utf-8")
    assert speak("a.md", "--plain", "-o", "a.wav") == 0
    assert "a block of code is left out of the speech" in caplog.text
    assert speak("see [it](http://x.org)", "--plain", "-o", "b.wav") == 0
    stdin(monkeypatch, "# One\n\n**Two**\n")
    assert speak("-", "--plain", "-o", "c.wav") == 0
    texts = [text for text, _ in speaker.asked]
    assert texts[:2] == ["News.\n\none.", "see it."]
    assert not isinstance(texts[2], str)  # parts, which the stream has taken
    assert speak("**raw**", "-o", "d.wav") == 0
    assert speaker.asked[-1][0] == "**raw**"


@pytest.mark.parametrize("text", ["![](a.png)", "```\ncode\n```", "🎉"])
def test_markdown_that_says_nothing_is_refused(
    speaker: Speaker, capsys: Capture, text: str
) -> None:
    assert speak(text, "--plain", "-o", "a.wav") == 2
    assert "there is nothing to say" in capsys.readouterr().err
    assert not os.path.exists("a.wav") and not speaker.loaded
