"""Transcripts as files: txt, srt, vtt, tsv and json as openai-whisper writes them, and lrc.

Source: whisper/utils.py (WriteTXT, WriteSRT, WriteVTT, WriteTSV, WriteJSON); of lrc output_lrc in
whisper.cpp's examples/cli/cli.cpp. The line formats take
segments one by one, so that they can be written while a transcription is under way.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import Any

from oscine.cues import Cue, to_milliseconds
from oscine.files import AtomicFile, write_error
from oscine.subtitles import PLAIN_LAYOUT, Layout, channel_name, cues, one_line
from oscine.terminal import escape
from oscine.types import Segment, Transcript

_ARROW_PATTERN = re.compile("(?<!-)--+>")  # one ends the line of times; looked for once in a run


def timestamp(seconds: float, *, hours: bool, marker: str) -> str:
    """[HH:]MM:SS.mmm with `marker` for the point; hours always, or only where there are any."""
    rest, thousandths = divmod(to_milliseconds(seconds), 1000)
    rest, second = divmod(rest, 60)
    hour, minute = divmod(rest, 60)
    front = f"{hour:02d}:" if hours or hour else ""
    return f"{front}{minute:02d}:{second:02d}{marker}{thousandths:03d}"


def txt(segments: Iterable[Segment], _: Layout = PLAIN_LAYOUT) -> Iterator[str]:
    """One line a segment."""
    for segment in segments:
        yield f"{channel_name(segment.channel)}{one_line(segment.text)}\n"


def srt(segments: Iterable[Segment], layout: Layout = PLAIN_LAYOUT) -> Iterator[str]:
    """SubRip."""
    for number, cue in enumerate(cues(segments, layout, named=True), start=1):
        yield f"{number}\n{_cue(cue, channel_name(cue.channel), hours=True, marker=',')}\n\n"


def vtt(segments: Iterable[Segment], layout: Layout = PLAIN_LAYOUT) -> Iterator[str]:
    """WebVTT; channels are voices.

    Source: https://www.w3.org/TR/webvtt1, 4.1 and 4.2: `&`, `<` and `>` are escaped, and a cue ends
    after it starts, which is why one without length gets the least that there is.
    """
    yield "WEBVTT\n\n"
    for cue in cues(segments, layout, spell=_vtt_text):
        if to_milliseconds(cue.end) <= to_milliseconds(cue.start):
            cue = replace(cue, end=(to_milliseconds(cue.start) + 1) / 1000)
        voice = "" if cue.channel is None else f"<v {_vtt_text(f'Channel {cue.channel}')}>"
        yield f"{_cue(cue, voice, hours=False, marker='.')}\n\n"


def _vtt_text(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def tsv(segments: Iterable[Segment], _: Layout = PLAIN_LAYOUT) -> Iterator[str]:
    """Start and end in whole milliseconds, text; tabs between.

    With split channels a column for the channel precedes the text.
    """
    waiting = iter(segments)
    first = next(waiting, None)
    by_channel = first is not None and first.channel is not None
    yield "start\tend\tchannel\ttext\n" if by_channel else "start\tend\ttext\n"
    for segment in chain([] if first is None else [first], waiting):
        start, end = to_milliseconds(segment.start), to_milliseconds(segment.end)
        text = one_line(segment.text).replace("\t", " ")
        channel = f"{segment.channel}\t" if by_channel else ""
        yield f"{start}\t{end}\t{channel}{text}\n"


def lrc(segments: Iterable[Segment], _: Layout = PLAIN_LAYOUT) -> Iterator[str]:
    """Lines of lyrics, each after its start in minutes and hundredths of a second.

    Players take further times at the beginning of a line for times of the line, so a text that
    begins with a bracket has a space before it.
    """
    for segment in segments:
        minutes, hundredths = divmod(round(to_milliseconds(segment.start) / 10), 6000)
        text = channel_name(segment.channel) + one_line(segment.text)
        space = " " if text.startswith("[") else ""
        yield f"[{minutes:02d}:{hundredths // 100:02d}.{hundredths % 100:02d}]{space}{text}\n"


def _cue(cue: Cue, front: str, *, hours: bool, marker: str) -> str:
    start, end = (
        timestamp(seconds, hours=hours, marker=marker) for seconds in (cue.start, cue.end)
    )
    return f"{start} --> {end}\n{front}{_ARROW_PATTERN.sub('->', cue.text)}"


#: The formats that are written segment by segment.
LINE_FORMATS: Mapping[str, Callable[[Iterable[Segment], Layout], Iterator[str]]] = MappingProxyType(
    {"txt": txt, "vtt": vtt, "srt": srt, "tsv": tsv, "lrc": lrc}
)
#: The formats that use a layout.
SUBTITLE_FORMATS = ("srt", "vtt")
#: Every format by name, in the order that `all` writes them.
FORMATS: tuple[str, ...] = (*LINE_FORMATS, "json")


def render(transcript: Transcript, name: str, layout: Layout = PLAIN_LAYOUT) -> str:
    """Return a transcript in one of FORMATS, as the text of a file.

    Args:
        transcript: The transcript.
        name: txt, vtt, srt, tsv, lrc or json.
        layout: The layout of the cues of srt and vtt.

    Raises:
        UsageError: If the layout needs word times and the transcript has none.
    """
    if name == "json":
        return readable_json(transcript.to_dict()) + "\n"
    return "".join(LINE_FORMATS[name](transcript.segments, layout))


def readable_json(value: Any) -> str:
    """A value as JSON in one line, with letters of any script; control characters are escaped."""
    return escape(json.dumps(value, ensure_ascii=False), lambda each: json.dumps(each)[1:-1])


def write_result(path: Path, text: str) -> None:
    """Write UTF-8 beside `path` and rename it, so that the file is never incomplete.

    Raises OscineError if the folder or the disk does not allow it.
    """
    new = AtomicFile(path)
    try:
        new.file.write(text.encode("utf-8", "backslashreplace"))
        new.keep()
    except OSError as error:
        raise write_error(path, error) from error
    finally:
        new.discard()
