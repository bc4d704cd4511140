"""What Whisper asks of a device: to decode a window, to detect its language, to align its text."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from oscine.engine.sequence import EncoderInput, Sequence
from oscine.models.whisper.request import Alignment, Decoded, Request
from oscine.models.whisper.tokens import Tokens


class Decode(Sequence[tuple[Decoded, ...]]):
    """A window at one temperature. Its result: the rows of its samples, or its beams."""

    audio: EncoderInput

    def __init__(self, audio: EncoderInput, request: Request) -> None:
        super().__init__(audio, request.width)
        self.request = request


class Detect(Sequence[NDArray[np.float32]]):
    """Its result: the share of each of `tokens.languages` in a window [languages], of sum 1.

    `tokens` are those of a multilingual model.
    """

    audio: EncoderInput

    def __init__(self, audio: EncoderInput, tokens: Tokens) -> None:
        super().__init__(audio)
        self.ids = list(tokens.languages.values())
        languages = set(self.ids)
        self.request = Request(
            prompt=(tokens.start,),
            sot=0,
            suppress=tuple(id for id in range(tokens.vocabulary) if id not in languages),
            suppress_first=(),
            end=tokens.end,
            timestamp_begin=tokens.timestamp_begin,
            no_timestamps=tokens.no_timestamps,
            no_speech=tokens.no_speech,
            timestamps=False,
            max_initial_timestamp=None,
            limit=1,
        )


class Align(Sequence[Alignment]):
    """Where the tokens of a prompt look in a window, and how likely each is.

    `prompt`: all tokens, forced one after another; `end`: the first id that is not text;
    `frames`: positions of 20 ms that hold sound.
    """

    audio: EncoderInput

    def __init__(self, audio: EncoderInput, prompt: tuple[int, ...], end: int, frames: int) -> None:
        super().__init__(audio)
        self.prompt, self.end, self.frames = prompt, end, frames
