"""Output for notebooks: text with times, an audio player, a waveform, a progress bar.

It is HTML and SVG without scripts, made with the standard library only. All text from recordings,
models and file names is escaped.
"""

from __future__ import annotations

import io
import sys
import wave
from base64 import b64encode
from collections.abc import Callable, Iterable
from html import escape
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oscine.terminal import strip_controls

MAX_PLAYER_S = 300.0  # seconds of sound that go into a page: 13 MB at 16 kHz
COLUMNS, HEIGHT = 600, 60  # of a waveform, in pixels

_TIME_STYLE = "padding-right:1em;white-space:nowrap;text-align:right;vertical-align:top;opacity:.6"
_TEXT_STYLE = "text-align:left;white-space:pre-wrap;unicode-bidi:isolate"


def to_html(text: str) -> str:
    """Text escaped for HTML, without control characters and lone surrogates."""
    encodable = text.encode("utf-8", "backslashreplace").decode("utf-8")
    return escape(strip_controls(encodable))


def format_time(seconds: float) -> str:
    """[H:]MM:SS.s"""
    minutes, tenths = divmod(round(seconds * 10), 600)
    hours, minutes = divmod(minutes, 60)
    front = f"{hours}:" if hours else ""
    return f"{front}{minutes:02d}:{tenths / 10:04.1f}"


def transcript_html(
    about: str, segments: Iterable[tuple[float, float, str]], player: str = ""
) -> str:
    """HTML of a transcript: a heading, the recording's player, and rows of (start, end, text)."""
    rows = "".join(
        f'<tr><td style="{_TIME_STYLE}">{format_time(start)} – {format_time(end)}</td>'
        f'<td dir="auto" style="{_TEXT_STYLE}">{to_html(text.strip())}</td></tr>'
        for start, end, text in segments
    )
    return (
        f'<div><div style="opacity:.6">{to_html(about)}</div>{player}'
        f'<div style="max-height:30em;overflow:auto"><table>{rows}</table></div></div>'
    )


def audio_html(about: str, samples: NDArray[Any], rate: int) -> str:
    """Mono samples [n], full scale 1, at `rate` hertz: their waveform and a player."""
    return (
        f'<div><div style="opacity:.6">{to_html(about)}</div>'
        f"{waveform(samples)}<br>{player(samples, rate)}</div>"
    )


def player(samples: NDArray[Any], rate: int) -> str:
    """An audio element with embedded samples; a line of text if they are too long or empty."""
    if not len(samples):
        return "<i>no sound</i>"
    if len(samples) > MAX_PLAYER_S * rate:
        return f"<i>no player: it has one for sound up to {MAX_PLAYER_S:.0f} s</i>"
    sound = io.BytesIO()
    with wave.open(sound, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes((_clip_samples(samples) * 32767).astype("<i2").tobytes())
    data = b64encode(sound.getvalue()).decode("ascii")
    return f'<audio controls preload="metadata" src="data:audio/wav;base64,{data}"></audio>'


def waveform(samples: NDArray[Any]) -> str:
    """Samples [n] as inline SVG: from the lowest to the highest of each column."""
    edges = np.linspace(0, len(samples), min(COLUMNS, len(samples)) + 1).astype(int)
    points = []
    if len(samples):
        bounded, middle = _clip_samples(samples), HEIGHT / 2
        highest = middle * (1 - np.maximum.reduceat(bounded, edges[:-1]))
        lowest = middle * (1 - np.minimum.reduceat(bounded, edges[:-1]))
        top = [f"{x},{y:.1f}" for x, y in enumerate(highest)]
        below = [f"{x},{y + 0.5:.1f}" for x, y in enumerate(lowest)]  # silence is a line
        points = [*top, *reversed(below)]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{COLUMNS}" height="{HEIGHT}" '
        f'viewBox="0 0 {max(1, len(edges) - 1)} {HEIGHT}" preserveAspectRatio="none">'
        f'<polygon fill="currentColor" points="{" ".join(points)}"/></svg>'
    )


def _clip_samples(samples: NDArray[Any]) -> NDArray[np.float64]:
    """Samples clipped to full scale; NaN becomes silence."""
    finite = np.nan_to_num(np.asarray(samples, np.float64), nan=0.0, posinf=1.0, neginf=-1.0)
    return np.clip(finite, -1.0, 1.0)


class ProgressBar:
    """Shows seconds done of seconds in all: a bar in a notebook, else a line on stderr.

    Calls of it are what `progress` of a transcription wants. `amount` writes a number of another
    unit, and `name` stands before the bar.
    """

    def __init__(self, amount: Callable[[float], str] = format_time, name: str = "") -> None:
        self._amount, self._name = amount, name
        self._told = ""
        self._handle: Any = None
        self._page = _ipython_display()

    def __call__(self, done: float, total: float) -> None:
        share = min(1.0, done / total) if total > 0 else 1.0
        amounts = f"{self._amount(done)} of {self._amount(total)}"
        line = strip_controls(f"{self._name} {share:4.0%}  {amounts}".removeprefix(" "))
        if line == self._told:
            return
        self._told = line
        if self._page is None:
            sys.stderr.write(f"\r{line}" + ("\n" if share == 1.0 else ""))
            sys.stderr.flush()
            return
        bar = self._page.HTML(f'<progress value="{share:.3f}"></progress> {to_html(line)}')
        if self._handle is None:
            self._handle = self._page.display(bar, display_id=True)
        else:
            self._handle.update(bar)


class DownloadBars:
    """A bar for each file that is fetched, as `progress` of hub.resolve wants it."""

    def __init__(self) -> None:
        self._bars: dict[str, ProgressBar] = {}

    def __call__(self, name: str, done: int, total: int) -> None:
        bar = self._bars.setdefault(name, ProgressBar(megabytes, name))
        bar(done, total)


def megabytes(count: float) -> str:
    """A number of bytes."""
    return f"{count / 1e6:.1f} MB"


def _ipython_display() -> Any:
    """IPython.display where this process is a notebook's kernel, else None."""
    ipython = sys.modules.get("IPython")  # never imported for this
    shell = None if ipython is None else ipython.get_ipython()
    return import_module("IPython.display") if hasattr(shell, "kernel") else None
