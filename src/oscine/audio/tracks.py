"""Selects an audio track: the requested one, else the first default track that is not silent.

A track with the default flag comes before one without, as in ffmpeg (map_auto_audio in
fftools/ffmpeg_mux_init.c); of several with it, as mp4 flags every enabled track, the one with the
most channels comes first. Screen recorders write a silent track for a microphone that is off.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from oscine.audio.ffmpeg import av
from oscine.audio.resample import to_float
from oscine.errors import UsageError
from oscine.text.languages import language_code

MAX_LISTED, MAX_TITLE_CHARS = (
    8,
    40,
)  # tracks in a message, and characters of a title
MAX_TRACKS_TRIED = 16  # tracks decoded to find one that is not silent
MAX_SILENCE_S = 600.0  # decoded of each track to find audio
MIN_PEAK = 1e-3  # peak at full scale 1: 60 dB below


@dataclass(frozen=True, slots=True)
class TrackChoice:
    """Number of the selected track, from 1, and whether a silent one was passed over."""

    number: int
    passed_silence: bool = False

    def of(self, container: Any) -> Any:
        """The track of this number; the default one of a container with fewer tracks."""
        tracks = container.streams.audio
        known = self.number <= len(tracks)
        return tracks[self.number - 1] if known else candidates(container, None)[0]


def candidates(container: Any, wanted: int | str | None) -> list[Any]:
    """Audio tracks of an open container that may be selected, best first.

    `wanted`: a number from 1, a language, or None for any track. Tracks that can be decoded come
    first. A single track without a language matches any language. Empty if none matches.
    """
    tracks = list(container.streams.audio)
    if isinstance(wanted, int):
        return tracks[wanted - 1 : wanted]
    if wanted is not None and (len(tracks) > 1 or _describe_track(tracks[0], "language")):
        tracks = [each for each in tracks if _is_in_language(each, wanted)]
    able = [each for each in tracks if each.codec_context is not None] or tracks
    flagged = [each for each in able if _is_default(container, each)]
    plain = [each for each in able if not _is_default(container, each)]
    return [*sorted(flagged, key=_channel_count, reverse=True), *plain]


def first_with_sound(container: Any, listed: Sequence[Any]) -> Any:
    """The first of some tracks that is not silent; the container must be at its start.

    If all are silent for MAX_SILENCE_S, the first one. The container is consumed.
    """
    judged = listed[:MAX_TRACKS_TRIED]
    seconds = {each.index: 0.0 for each in judged}
    sounding: set[int] = set()
    for track, frame in _track_frames(container, judged, sounding):
        seconds[track.index] += frame.samples / max(frame.sample_rate, 1)
        if np.abs(to_float(frame.to_ndarray())).max(initial=0.0) > MIN_PEAK:
            sounding.add(track.index)
        if judged[0].index in sounding or max(seconds.values()) > MAX_SILENCE_S:
            break
    return next((each for each in judged if each.index in sounding), judged[0])


def _track_frames(container: Any, listed: Sequence[Any], found: set[int]) -> Any:
    """Pairs of track and frame; damaged packets and tracks already found are skipped."""
    try:
        for packet in container.demux(list(listed)):
            track = packet.stream
            if not packet.size or track.index in found:
                continue
            try:
                frames = track.codec_context.decode(packet)
            except (av.error.FFmpegError, ValueError):
                continue
            for frame in frames:
                yield track, frame
    except (av.error.FFmpegError, IndexError, ValueError):
        return


def number_of(container: Any, track: Any) -> int:
    """Number of a track among the audio tracks, from 1."""
    listed = enumerate(container.streams.audio, start=1)
    return next(number for number, each in listed if each.index == track.index)


def describe_choice(container: Any, taken: TrackChoice) -> str | None:
    """A message for a container with several audio tracks: which they are and which is used."""
    tracks = list(container.streams.audio)
    if len(tracks) < 2:
        return None
    why = ", the first that is not silent" if taken.passed_silence else ""
    return (
        f"has {len(tracks)} audio tracks ({list_tracks(container)}); "
        f"using track {taken.number}{why}; "
        "to choose another: audio_track=N"
    )


def list_tracks(container: Any) -> str:
    """The audio tracks by number, with languages and titles."""
    tracks = list(container.streams.audio)
    shown = enumerate(tracks[:MAX_LISTED], start=1)
    named = ", ".join(f"{number} {_describe_track(track)}".rstrip() for number, track in shown)
    return named + (f" and {len(tracks) - MAX_LISTED} more" if len(tracks) > MAX_LISTED else "")


def _describe_track(track: Any, *tags: str) -> str:
    """Language and title, if the file has them; `und` is an undetermined language."""
    words = [track.metadata.get(tag, "") for tag in tags or ("language", "title")]
    return " ".join(word[:MAX_TITLE_CHARS] for word in words if word not in ("", "und"))


def _is_in_language(track: Any, language: str) -> bool:
    """Whether a track is tagged with a language, under any of its names."""
    stated = track.metadata.get("language", "")
    return bool(stated) and _language_code(stated) == _language_code(language)


def _language_code(language: str) -> str:
    """The code of a language; the name itself if Whisper does not support it."""
    try:
        code: str | None = language_code(language)
    except UsageError:
        code = None
    return code or language.strip().casefold()


def _is_default(container: Any, track: Any) -> bool:
    disposition = getattr(track, "disposition", None)
    if disposition is None:  # PyAV 13.0, which tells only FFmpeg's choice, by the same flag first
        best = container.streams.best("audio")
        return best is not None and best.index == track.index
    return bool(disposition.value & 1)  # AV_DISPOSITION_DEFAULT


def _channel_count(track: Any) -> int:
    return 0 if track.codec_context is None else int(track.codec_context.layout.nb_channels)
