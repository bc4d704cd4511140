"""Transcripts as files: txt, srt, vtt, tsv and json, as openai-whisper writes them.

Source: whisper/utils.py (WriteTXT, WriteSRT, WriteVTT, WriteTSV, WriteJSON). The line formats take
segments one by one, so that they can be written while a transcription is under way.
"""

from __future__ import annotations

import json
import os
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType

from oscine.errors import OscineError
from oscine.types import Segment, Transcript

_LINE_BREAKS = re.compile(r"\s*[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]\s*")


def timestamp(seconds: float, *, hours: bool, marker: str) -> str:
    """[HH:]MM:SS.mmm with `marker` for the point; hours always, or only where there are any."""
    rest, milliseconds = divmod(round(seconds * 1000), 1000)
    rest, second = divmod(rest, 60)
    hour, minute = divmod(rest, 60)
    front = f"{hour:02d}:" if hours or hour else ""
    return f"{front}{minute:02d}:{second:02d}{marker}{milliseconds:03d}"


def one_line(text: str) -> str:
    """Text without line breaks, which would end a row or a cue."""
    return _LINE_BREAKS.sub(" ", text.strip())


def txt(segments: Iterable[Segment]) -> Iterator[str]:
    """One line a segment."""
    for segment in segments:
        yield f"{one_line(segment.text)}\n"


def srt(segments: Iterable[Segment]) -> Iterator[str]:
    """SubRip."""
    for number, segment in enumerate(segments, start=1):
        yield f"{number}\n{_cue(segment, hours=True, marker=',')}\n\n"


def vtt(segments: Iterable[Segment]) -> Iterator[str]:
    """WebVTT."""
    yield "WEBVTT\n\n"
    for segment in segments:
        yield f"{_cue(segment, hours=False, marker='.')}\n\n"


def tsv(segments: Iterable[Segment]) -> Iterator[str]:
    """Start and end in whole milliseconds, text; tabs between."""
    yield "start\tend\ttext\n"
    for segment in segments:
        text = one_line(segment.text).replace("\t", " ")
        yield f"{round(1000 * segment.start)}\t{round(1000 * segment.end)}\t{text}\n"


def _cue(segment: Segment, *, hours: bool, marker: str) -> str:
    start, end = (
        timestamp(seconds, hours=hours, marker=marker) for seconds in (segment.start, segment.end)
    )
    return f"{start} --> {end}\n{one_line(segment.text).replace('-->', '->')}"


#: The formats that go line by line.
LINES: Mapping[str, Callable[[Iterable[Segment]], Iterator[str]]] = MappingProxyType(
    {"txt": txt, "vtt": vtt, "srt": srt, "tsv": tsv}
)
#: Every format by name, in the order that `all` writes them.
FORMATS: tuple[str, ...] = (*LINES, "json")


def render(transcript: Transcript, name: str) -> str:
    """A whole transcript in one format."""
    if name == "json":
        return json.dumps(transcript.to_dict()) + "\n"
    return "".join(LINES[name](transcript.segments))


def write_result(path: Path, text: str) -> None:
    """Write UTF-8 beside `path` and rename, so that there is never half a file.

    Raises OscineError if the folder or the disk does not allow it.
    """
    # Not made of the name, which may be as long as names can be.
    part = path.with_name(f".{os.getpid()}-{threading.get_ident()}.part")
    try:
        with part.open("x", encoding="utf-8", errors="backslashreplace", newline="\n") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except OSError as error:
        raise OscineError(f"{path}: cannot write: {error.strerror or error}") from error
    finally:
        with suppress(OSError):
            part.unlink()
