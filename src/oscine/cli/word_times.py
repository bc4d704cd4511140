"""`oscine speak --word-times`: the times of the words in generated speech.

A text-to-speech model does not report them, so a Whisper model aligns each piece of the text with
its part of the speech (forced alignment); the result names that model.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from oscine import registry
from oscine.cli.common import load_for_task, require_task
from oscine.cli.console import warn
from oscine.cli.jobs import (
    case_folded,
    check_writable_file,
    expand_tilde,
    file_ids,
    find_overwritten,
)
from oscine.errors import UsageError
from oscine.files import expand_user
from oscine.formats import render, write_result
from oscine.options.command import SpeakCommand
from oscine.options.layout import Layout
from oscine.types import Audio, Segment, Transcript, Word

if TYPE_CHECKING:
    from oscine.models.speech import SpokenPiece
    from oscine.types import Samples

FORMATS = ("json", "srt", "vtt")


class BufferedStream:
    """A speech stream that keeps all audio it has yielded."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._blocks: list[Samples] = []
        self.rate: int = stream.rate

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def __iter__(self) -> Iterator[Audio]:
        for audio in self._stream:
            self._blocks.append(audio.samples)
            yield audio

    def samples(self) -> Samples:
        """All samples so far: float32 [n]."""
        return np.concatenate(self._blocks) if self._blocks else np.zeros(0, np.float32)


@dataclass(slots=True)
class WordTimes:
    """The output file of word times, and the aligner once it is loaded.

    `language`: a language code; None: detected from the speech.
    """

    path: Path
    form: str
    name: str  # of the aligner
    args: SpeakCommand
    aligner: Any = None
    language: str | None = None

    def load(self, language: str | None) -> None:
        """Load the aligner, before any speech is generated.

        Raises UsageError for a model that cannot align, or does not support the language.
        """
        from oscine.options.transcribe import TranscribeOptions

        model = load_for_task("transcribe", self.name, self.args)
        if not hasattr(model, "align"):
            raise UsageError(f"{self.name} cannot align a text; give --aligner a Whisper model")
        self.aligner = model
        self.language = TranscribeOptions.of(language=language).language
        if self.language not in (None, *model.languages):
            raise UsageError(
                f"{self.name} does not know language {self.language}; choose another --aligner, "
                "such as base"
            )

    def write(self, speech: BufferedStream) -> None:
        """Align all pieces and write the file. A piece that fails is reported and has no words."""
        samples, rate = speech.samples(), speech.rate
        language = self.language
        if language is None:
            several = len(self.aligner.languages) > 1
            language = self.aligner.detect_language((samples, rate))[0] if several else "en"
        segments = tuple(
            to_segment(number, piece, self.words(piece, samples, rate, language))
            for number, piece in enumerate(speech.spoken)
        )
        transcript = Transcript(
            text=" ".join(segment.text for segment in segments),
            language=language,
            segments=segments,
            duration=len(samples) / rate,
            model=self.aligner.name,
            device=self.aligner.device,
        )
        layout = Layout() if self.form == "json" else Layout(max_words_per_line=1)
        write_result(self.path, render(transcript, self.form, layout))

    def words(
        self, piece: SpokenPiece, samples: Samples, rate: int, language: str
    ) -> tuple[Word, ...]:
        """The words of a piece, with times in the whole speech; none if it cannot be aligned."""
        from oscine.audio.io import open_source  # av is slow to import

        try:
            if piece.finish_reason != "end":
                raise UsageError("it is not spoken to its end")
            part = samples[round(piece.start * rate) : round(piece.end * rate)]
            found = self.aligner.align(
                open_source((part, rate), name="its sound"), piece.text, language
            )
        except UsageError as error:
            warn(f"{self.path}: no times for the words of {piece.text[:40]!r}: {error}")
            return ()
        return tuple(
            replace(
                each,
                start=round(piece.start + each.start, 3),
                end=round(piece.start + each.end, 3),
            )
            for each in found
        )


def plan_word_times(args: SpeakCommand, inputs: Iterable[str]) -> WordTimes | None:
    """Check the options of word times before slow work; None if they are not requested.

    `inputs`: paths that are read. Raises UsageError for contradictory options, OscineError if the
    file cannot be written, HubError for an unknown aligner.
    """
    if args.word_times is None:
        if args.aligner is not None:
            raise UsageError("--aligner is the model of --word-times; add --word-times FILE")
        return None
    path = Path(expand_tilde(args.word_times))
    form = path.suffix.lower().removeprefix(".")
    if form not in FORMATS or path.is_dir():
        raise UsageError(f"--word-times {path}: name a file that ends in .json, .srt or .vtt")
    if args.lines:
        raise UsageError("--word-times is for one text; leave out --lines")
    lost = find_overwritten(path, file_ids(inputs))
    output = None if args.output is None else Path(expand_tilde(args.output))
    if output is not None and case_folded(path.absolute()) == case_folded(output.absolute()):
        lost = str(output)
    if lost is not None:
        raise UsageError(f"{lost} would be overwritten by the times; name another file for them")
    check_writable_file(path)
    name = args.aligner or registry.default_model("transcribe")
    if not expand_user(name).exists():
        require_task(name, "transcribe")
    return WordTimes(path, form, name, args)


def to_segment(number: int, piece: SpokenPiece, words: tuple[Word, ...]) -> Segment:
    """A piece of speech as a segment; avg_logprob is the mean over its words."""
    from oscine.text.compression import compression_ratio

    logs = [math.log(max(each.probability, 1e-9)) for each in words]
    return Segment(
        id=number,
        seek=round(piece.start * 100),
        start=round(piece.start, 3),
        end=round(piece.end, 3),
        text=piece.text,
        tokens=(),
        temperature=0.0,
        avg_logprob=sum(logs) / len(logs) if logs else 0.0,
        compression_ratio=compression_ratio(piece.text),
        no_speech_prob=0.0,
        words=words,
    )
