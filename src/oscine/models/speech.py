"""Speech: the result of a text-to-speech model."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from oscine.models.provenance import provenance_comment
from oscine.types import Audio


@dataclass(frozen=True, slots=True)
class SpokenPiece:
    """A piece of the text with its start and end in the speech, in seconds, without silence.

    `finish_reason`: "end" if the piece is spoken to its end, else "length", "silence" or
    "repetition", as in Speech.
    """

    text: str
    start: float
    end: float
    finish_reason: str = "end"


@dataclass(frozen=True, slots=True, eq=False)
class Speech(Audio):
    """Mono samples, float32 [n] in [-1, 1] at 24,000 Hz, with how they were made.

    `finish_reason`: "end" if every piece of the text was spoken to its end; else why the first
    other one was not: "length" (it reached its maximum number of frames), "silence" or
    "repetition" (it was stopped for that). `first_audio` and `seconds`: wall time from the call to
    the first samples and to the end. `timings`: milliseconds by stage.
    """

    finish_reason: str = "end"
    seed: int = 0
    first_audio: float | None = None  # None if there are no samples
    seconds: float = 0.0
    pieces: int = 0  # of the text, spoken one by one
    retries: int = 0  # pieces that were generated a second time, with another seed
    model: str = ""
    device: str = ""
    timings: dict[str, float] = field(default_factory=dict)
    spoken: tuple[SpokenPiece, ...] = ()  # the pieces with their times

    def __repr__(self) -> str:
        return (
            f"<Speech of {self.duration:.2f} s at {self.rate} Hz, "
            f"finish_reason={self.finish_reason!r}, seed={self.seed}>"
        )

    @property
    def mark(self) -> str:
        """JSON for the file's metadata: that the speech is synthetic, and which model made it."""
        return provenance_comment(self.model)

    def save(
        self, target: str | Path | BinaryIO, format: str | None = None, *, mark: bool = True
    ) -> None:
        """Write the samples to a file, in `format` or that of its suffix: wav, mp3, flac, opus ...

        `mark`: state in the file's metadata that the speech is synthetic; raw has no metadata.
        Raises what audio.write.save raises.
        """
        from oscine.audio.write import save  # imports FFmpeg

        save(self, target, format, comment=self.mark if mark else None)
