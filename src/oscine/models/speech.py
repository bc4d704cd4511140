"""What a model says: samples, and how it came to them."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from oscine.models.mark import speech_mark
from oscine.types import Audio


@dataclass(frozen=True, slots=True)
class SpokenPiece:
    """A piece of the text and its place in the speech, in seconds; silence around it is left out.

    `finish_reason`: as in Speech; other than "end" the piece is not spoken to its end.
    """

    text: str
    start: float
    end: float
    finish_reason: str = "end"


@dataclass(frozen=True, slots=True, eq=False)
class Speech(Audio):
    """Mono samples, float32 [n] in [-1, 1], at 24,000 hertz, and what is known of them.

    `finish_reason`: "end" where every piece of the text was spoken to its end; else what happened
    to the first that was not: "length" (the most frames it was given), "silence" or "repetition"
    (it was stopped there). `first_audio` and `seconds` are wall time from the call on, `timings`
    milliseconds a stage.
    """

    finish_reason: str = "end"
    seed: int = 0
    first_audio: float | None = None  # None: there is none
    seconds: float = 0.0
    pieces: int = 0  # that the text was cut into
    retries: int = 0  # pieces that were spoken a second time, with another seed
    model: str = ""
    device: str = ""
    timings: dict[str, float] = field(default_factory=dict)
    spoken: tuple[SpokenPiece, ...] = ()  # the pieces, each with its place

    def __repr__(self) -> str:
        return (
            f"<Speech of {self.duration:.2f} s at {self.rate} Hz, "
            f"finish_reason={self.finish_reason!r}, seed={self.seed}>"
        )

    @property
    def mark(self) -> str:
        """What its file says of itself: JSON that it is synthetic, and which model made it."""
        return speech_mark(self.model)

    def save(
        self, target: str | Path | BinaryIO, format: str | None = None, *, mark: bool = True
    ) -> None:
        """Write it to a file, in `format` or as its suffix says: wav, mp3, flac, opus, m4a ...

        `mark`: the file's metadata say that it is synthetic; raw has none. Raises what
        audio.write.save raises.
        """
        from oscine.audio.write import save  # FFmpeg is loaded by whoever writes

        save(self, target, format, comment=self.mark if mark else None)
