"""Writers against openai-whisper's output, and any text against the readers of each format."""

from __future__ import annotations

import errno
import html
import json
import re
import unicodedata
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oscine.errors import OscineError
from oscine.formats import FORMATS, render, timestamp, write_result
from oscine.options.layout import MIN_CUE_S
from oscine.subtitles import Layout, one_line
from oscine.terminal import printable
from oscine.types import Segment, Transcript, Word

from .bounded import run_bounded


def transcript(*spans: tuple[float, float, str]) -> Transcript:
    segments = tuple(
        Segment(id, 0, start, end, text, (50364, 400), 0.0, -0.25, 1.5, 0.125)
        for id, (start, end, text) in enumerate(spans)
    )
    text = "".join(segment.text for segment in segments)
    return Transcript(text, "en", segments, 11.0, "tiny.en", "NumPy", {"encode": 1.5})


TWO = transcript((0.0, 7.6, " And so, --> my fellow"), (3723.4567, 3724.0, " Ta\tb “é” "))


def test_as_openai_whisper_writes_them() -> None:
    # The output of whisper/utils.py for the same segments; WebVTT's escapes it lacks.
    assert render(TWO, "txt") == "And so, --> my fellow\nTa\tb “é”\n"
    assert render(TWO, "srt") == (
        "1\n00:00:00,000 --> 00:00:07,600\nAnd so, -> my fellow\n\n"
        "2\n01:02:03,457 --> 01:02:04,000\nTa\tb “é”\n\n"
    )
    assert render(TWO, "vtt") == (
        "WEBVTT\n\n00:00.000 --> 00:07.600\nAnd so, --&gt; my fellow\n\n"
        "01:02:03.457 --> 01:02:04.000\nTa\tb “é”\n\n"
    )
    assert render(TWO, "tsv") == (
        "start\tend\ttext\n0\t7600\tAnd so, --> my fellow\n3723457\t3724000\tTa b “é”\n"
    )


LONG = """
from oscine.formats import FORMATS, render
from oscine.types import Segment, Transcript, Word
size = 224 * 1024  # a window's tokens, each as long as any may be
for text in [(each * size)[:size] + tail for each in GIVEN for tail in ("", "x")]:
    for words in (None, (Word(0.0, 9.0, text, 0.5),)):
        segment = Segment(0, 0, 0.0, 9.0, text, (), 0.0, 0.0, 1.0, 0.0, words)
        whole = Transcript(text, "en", (segment,), 9.0, "tiny.en", "NumPy", {})
        for name in FORMATS:
            render(whole, name)
"""


def test_a_text_of_one_character_takes_no_more_time_than_others() -> None:
    """A hostile vocabulary makes such; a pattern that looks from each place takes minutes."""
    run_bounded(LONG, [" ", "-", "\t", "\u3000", "\n", " -", "-\n", "\n ", "\x1b", "<", "\u202e"])


@given(st.text(" \t\n\r\x1c\u2028-><x", max_size=30))
def test_runs_are_replaced_as_wholes(text: str) -> None:
    """As patterns do that look from each place, which are simpler and slow."""
    plain = re.sub(r"\s*[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]\s*", " ", text)
    assert one_line(text) == plain.strip()
    cue = render(transcript((0.0, 1.0, f"a{text}b")), "srt").split("\n", 2)[2]
    assert cue == re.sub("--+>", "->", one_line(f"a{text}b")) + "\n\n"


def test_channels_are_named_and_nothing_changes_without() -> None:
    first, second = TWO.segments
    both = replace(TWO, segments=(replace(first, channel=1), replace(second, channel=2)))
    assert render(both, "txt") == ("Channel 1: And so, --> my fellow\nChannel 2: Ta\tb “é”\n")
    assert render(both, "srt") == (
        "1\n00:00:00,000 --> 00:00:07,600\nChannel 1: And so, -> my fellow\n\n"
        "2\n01:02:03,457 --> 01:02:04,000\nChannel 2: Ta\tb “é”\n\n"
    )
    assert render(both, "vtt") == (
        "WEBVTT\n\n00:00.000 --> 00:07.600\n<v Channel 1>And so, --&gt; my fellow\n\n"
        "01:02:03.457 --> 01:02:04.000\n<v Channel 2>Ta\tb “é”\n\n"
    )
    assert render(both, "tsv") == (
        "start\tend\tchannel\ttext\n0\t7600\t1\tAnd so, --> my fellow\n"
        "3723457\t3724000\t2\tTa b “é”\n"
    )
    assert [row["channel"] for row in json.loads(render(both, "json"))["segments"]] == [1, 2]


def test_any_number_of_dashes_makes_no_arrow() -> None:
    for text in ("--->", "---->>", "a-->-->b", "-- >"):
        cue = render(transcript((0.0, 1.0, text)), "srt").split("\n")[2]
        assert "-->" not in cue


def test_json_has_openai_fields_and_ours() -> None:
    result = json.loads(render(TWO, "json"))
    assert list(result) == [
        "text", "language", "segments", "duration", "model", "device", "timings"
    ]  # fmt: skip
    assert result["segments"][0] == {
        "id": 0, "seek": 0, "start": 0.0, "end": 7.6, "text": " And so, --> my fellow",
        "tokens": [50364, 400], "temperature": 0.0, "avg_logprob": -0.25,
        "compression_ratio": 1.5, "no_speech_prob": 0.125,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "empty"),
    [("txt", ""), ("srt", ""), ("vtt", "WEBVTT\n\n"), ("tsv", "start\tend\ttext\n")],
)
def test_nothing_said(name: str, empty: str) -> None:
    assert render(transcript(), name) == empty


@pytest.mark.parametrize(
    ("seconds", "short", "long"),
    [
        (0.0, "00:00.000", "00:00:00.000"),
        (59.9996, "01:00.000", "00:01:00.000"),
        (3600.0, "01:00:00.000", "01:00:00.000"),
        (360000.5, "100:00:00.500", "100:00:00.500"),
    ],
)
def test_timestamps(seconds: float, short: str, long: str) -> None:
    assert timestamp(seconds, hours=False, marker=".") == short
    assert timestamp(seconds, hours=True, marker=".") == long


#: Any code point, and many of those that mean something to a reader or a terminal.
TEXT = st.text() | st.text("a-> \t\n\r\x0b\u2028&<>;\x1b\x9b\x07\x00\x7f\u202e\ufeff")
SPANS = st.lists(
    st.tuples(st.floats(0, 1e6), st.floats(MIN_CUE_S, 1e6), TEXT)
    .map(lambda span: (span[0], span[0] + span[1], span[2]))
    .filter(lambda span: one_line(span[2])),  # blank segments are not made
    max_size=6,
)
SRT_CUE = re.compile(r"(\d+)\n(\d{2,}:\d\d:\d\d,\d{3}) --> (\d{2,}:\d\d:\d\d,\d{3})\n(.+)")
LRC_LINE = re.compile(r"\[(\d{2,}:[0-5]\d\.\d\d)\](.*)")
VTT_CUE = re.compile(r"((?:\d{2,}:)?\d\d:\d\d\.\d{3}) --> ((?:\d{2,}:)?\d\d:\d\d\.\d{3})\n(.+)")
TAGS = re.compile(r"</?u>|<v [^<>]*>")


def seconds(time: str) -> float:
    """[HH:]MM:SS.mmm as a number."""
    parts = [float(part) for part in time.replace(",", ".").split(":")]
    return sum(part * 60**place for place, part in enumerate(reversed(parts)))


def read_vtt(file: str) -> list[tuple[float, float, str]]:
    """Cues as a reader of WebVTT has them: blocks between empty lines, escapes undone."""
    head, *blocks = file.split("\n\n")
    assert (head, blocks[-1]) == ("WEBVTT", "")
    found = []
    for block in blocks[:-1]:
        match = VTT_CUE.fullmatch(block.replace("\n", "\0").replace("\0", "\n", 1))
        assert match is not None
        payload = TAGS.sub("", match[3].replace("\0", "\n"))
        assert not re.search(r"[<>]|&(?!(amp|lt|gt);)", payload)
        assert seconds(match[1]) < seconds(match[2])
        found.append((seconds(match[1]), seconds(match[2]), html.unescape(payload)))
    return found


def controls(text: str) -> set[str]:
    """Those in a file, but for the line breaks of the format itself and tabs."""
    kinds = {each: unicodedata.category(each) for each in set(text) - set("\n\t")}
    return {each for each, kind in kinds.items() if kind in ("Cc", "Zl", "Zp")}


@given(SPANS)
def test_any_text_is_one_cue_or_one_row(spans: list[tuple[float, float, str]]) -> None:
    whole = transcript(*spans)
    texts = [one_line(text) for _, _, text in spans]
    cues = render(whole, "srt").split("\n\n")[: len(spans)]
    assert [SRT_CUE.fullmatch(cue)[1] for cue in cues] == [  # type: ignore[index]
        str(number + 1) for number in range(len(spans))
    ]
    assert all("-->" not in cue.split("\n")[2] for cue in cues)
    assert [text for _, _, text in read_vtt(render(whole, "vtt"))] == texts
    rows = [row.split("\t") for row in render(whole, "tsv").splitlines()]
    assert [row[2] for row in rows[1:]] == [text.replace("\t", " ") for text in texts]
    assert render(whole, "txt").splitlines() == texts
    lyrics = [LRC_LINE.fullmatch(line) for line in render(whole, "lrc").split("\n")[:-1]]
    assert [match and match[2].strip() for match in lyrics] == texts
    assert json.loads(render(whole, "json")) == whole.to_dict()
    for name in FORMATS:
        assert not controls(render(whole, name))


@given(st.lists(st.lists(TEXT, min_size=1, max_size=5), max_size=3), st.booleans())
def test_any_words_are_lines_of_a_cue(texts: list[list[str]], highlight: bool) -> None:
    segments = []
    for number, words in enumerate(texts):
        made = tuple(Word(number, number, f" {word}", 0.5) for word in words)  # without length
        segment = Segment(number, 0, number, number, "".join(words), (), 0.0, -1, 1, 0)
        segments.append(replace(segment, words=made, channel=number))
    whole = Transcript("", "en", tuple(segments), 9.0, "tiny.en", "NumPy", {})
    layout = Layout(max_line_width=12, highlight_words=highlight)
    shown = render(whole, "vtt", layout)
    for _, _, text in read_vtt(shown):
        assert text
        assert all(line for line in text.split("\n"))
    for name in ("srt", "vtt", "txt", "tsv"):
        assert not controls(render(whole, name, layout))


def test_escapes_take_no_width_and_do_not_mark() -> None:
    words = tuple(Word(place, place + 1, word, 1.0) for place, word in enumerate(
        [" R&D", " <v", " Bob>", " a&amp;b"]
    ))  # fmt: skip
    segment = replace(transcript((0.0, 4.0, " R&D <v Bob> a&amp;b")).segments[0], words=words)
    whole = replace(TWO, segments=(segment,))
    assert render(whole, "vtt", Layout(max_line_width=12)).split("\n")[3:5] == [
        "R&amp;D &lt;v Bob&gt;", "a&amp;amp;b"
    ]  # fmt: skip
    marked = render(whole, "vtt", Layout(highlight_words=True))
    assert "R&amp;D <u>&lt;v</u> Bob&gt; a&amp;amp;b" in marked
    assert "R&D <v Bob> a&amp;b" in render(whole, "srt")


def test_a_cue_without_length_gets_the_least_there_is() -> None:
    whole = transcript((1.0, 1.0, "a"), (2.0004, 2.0003, "b"), (59.9999, 59.9999, "c"))
    assert re.findall(r".* --> .*", render(whole, "vtt")) == [
        "00:01.000 --> 00:01.125", "00:02.000 --> 00:02.125", "01:00.000 --> 01:00.125"
    ]  # fmt: skip
    layout = Layout(min_cue_time=0)
    assert re.findall(r".* --> .*", render(whole, "vtt", layout)) == [
        "00:01.000 --> 00:01.001", "00:02.000 --> 00:02.001", "01:00.000 --> 01:00.001"
    ]  # fmt: skip


def test_json_is_readable_and_commands_no_terminal() -> None:
    said = "Grüße, 世界 🎉 \x1b[2J\x9b2J\u202e\u2028\u00ad\U000e0041\x7f\udc80 \u200dक्‍ष"
    written = render(transcript((0.0, 1.0, said)), "json")
    assert json.loads(written)["text"] == said
    assert "Grüße, 世界 🎉 " in written and "क्‍ष" in written
    assert "\\u001b[2J\\u009b2J\\u202e\\u2028\\u00ad\\udb40\\udc41\\u007f\\udc80" in written
    assert not controls(written) and printable(written[:-1]) == written[:-1]


def test_lines_of_lyrics() -> None:
    whole = transcript((0.0, 7.6, " And so"), (59.9951, 61.0, "[00:01.00] b"), (6005.5, 6006, "c"))
    assert render(whole, "lrc") == "[00:00.00]And so\n[01:00.00] [00:01.00] b\n[100:05.50]c\n"
    both = replace(TWO, segments=(replace(TWO.segments[0], channel=2),))
    assert render(both, "lrc") == "[00:00.00]Channel 2: And so, --> my fellow\n"


def test_a_file_is_whole_or_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.txt"
    write_result(path, "old é\n")
    assert path.read_bytes() == "old é\n".encode()

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OscineError, match=r"a\.txt: cannot write: No space left on device"):
        write_result(path, "new")
    assert path.read_text("utf-8") == "old é\n"
    assert list(tmp_path.iterdir()) == [path]


def test_a_name_as_long_as_names_can_be(tmp_path: Path) -> None:
    path = tmp_path / ("x" * 251 + ".srt")
    write_result(path, "text")
    assert [each.name for each in tmp_path.iterdir()] == [path.name]


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(OscineError, match="cannot write: No such file"):
        write_result(tmp_path / "none" / "a.txt", "x")


def test_half_a_surrogate_does_not_stop_a_writer(tmp_path: Path) -> None:
    for name in FORMATS:
        write_result(tmp_path / name, render(transcript((0.0, 1.0, "\udc80")), name))
        assert (tmp_path / name).stat().st_size
