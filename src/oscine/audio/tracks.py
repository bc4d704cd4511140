"""Which of several audio tracks is heard: the one that ffmpeg takes, and so openai-whisper.

Source: map_auto_audio in fftools/ffmpeg_mux_init.c: a track with the default flag before one
without, then the one with the most channels, then the first.
"""

from __future__ import annotations

from typing import Any

MOST_NAMED, MOST_TITLE = 8, 40  # tracks that a message names, and characters of each word of it


def chosen(container: Any) -> Any:
    """The audio track to take of an open container; one that can be decoded, if there is any."""
    tracks = container.streams.audio
    able = [track for track in tracks if track.codec_context is not None]
    return max(able or tracks, key=lambda track: (_is_default(container, track), _channels(track)))


def told(container: Any) -> str | None:
    """What there is to say of a container with several audio tracks: how many, which is taken."""
    tracks = list(container.streams.audio)
    if len(tracks) < 2:
        return None
    taken = chosen(container)
    number = next(place for place, track in enumerate(tracks) if track.index == taken.index)
    shown = enumerate(tracks[:MOST_NAMED], start=1)
    listed = ", ".join(f"{place} {_named(track)}".rstrip() for place, track in shown)
    if len(tracks) > MOST_NAMED:
        listed += f" and {len(tracks) - MOST_NAMED} more"
    return (
        f"has {len(tracks)} audio tracks ({listed}); taking number {number + 1}; "
        f"to take another: ffmpeg -i FILE -map 0:a:{1 if number == 0 else 0} -c copy OTHER.mka"
    )


def _named(track: Any) -> str:
    """Language and title, as far as the file says: und stands for a language it does not tell."""
    words = [track.metadata.get("language", ""), track.metadata.get("title", "")]
    return " ".join(word[:MOST_TITLE] for word in words if word not in ("", "und"))


def _is_default(container: Any, track: Any) -> bool:
    disposition = getattr(track, "disposition", None)
    if disposition is None:  # PyAV 13.0, which tells only FFmpeg's choice, by the same flag first
        best = container.streams.best("audio")
        return best is not None and best.index == track.index
    return bool(disposition.value & 1)  # AV_DISPOSITION_DEFAULT


def _channels(track: Any) -> int:
    return 0 if track.codec_context is None else int(track.codec_context.layout.nb_channels)
