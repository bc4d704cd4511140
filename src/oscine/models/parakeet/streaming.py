"""Live audio to words: buffered streaming with a model that is trained on whole recordings.

Source: NeMo examples/asr/asr_chunked_inference/rnnt/speech_to_text_streaming_infer_rnnt.py: the
encoder gets left context, a chunk and right context; only the chunk is decoded, and the decoder
state is carried from chunk to chunk. Each buffer is normalised by its own statistics, as upstream.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from oscine.audio.mel import HOP_LENGTH, SAMPLE_RATE
from oscine.audio.mel_nemo import log_mel
from oscine.engine.generators import SequenceGenerator, Submit, run
from oscine.engine.sequence import EncoderInput
from oscine.models.live_audio import check_latency, live_updates
from oscine.models.parakeet.hotwords import ContextGraph
from oscine.models.parakeet.sequences import Chunk, DecoderState, Emission, Hypothesis
from oscine.models.parakeet.words import (
    ModelInfo,
    Token,
    WordTimer,
    WordTokens,
    group_words,
    to_tokens,
)
from oscine.types import Samples, Update, Word

DEFAULT_LATENCY_S = 2.0
MIN_LATENCY_S, MAX_LATENCY_S = 0.16, 30.0  # two encoder frames; a usual buffer
LEFT_CONTEXT_S = 10.0  # encoded again with every chunk
MIN_PAUSE_FRAMES = 50  # of 10 ms; a word before a pause of this length is complete


class StreamingDecoder:
    """Decodes one stream of audio: push samples, then call finish.

    Seconds count from the first sample. Half of the latency is the length of a chunk, half is right
    context. Memory and the work for each chunk are constant.
    """

    def __init__(
        self, submit: Submit, info: ModelInfo, latency: float, context_graph: ContextGraph | None
    ) -> None:
        self.submit, self.context_graph = submit, context_graph
        self.tokenizer, self.config, self.subsampling_factor = (
            info.tokenizer,
            info.config,
            info.config.subsampling_factor,
        )
        frame = self.subsampling_factor * HOP_LENGTH / SAMPLE_RATE
        self.chunk_frames = max(1, int(latency / 2 / frame))  # encoder frames
        self.right_context = max(1, int(latency / frame) - self.chunk_frames)
        self.left_context = max(1, round(LEFT_CONTEXT_S / frame))
        self.samples = np.zeros(0, np.float32)
        self.start_frame = 0  # encoder frame at the first of the samples
        self.decoded_frames = 0  # encoder frames decoded so far
        self.decoder_state: DecoderState | None = None
        self.last: Emission | None = None  # CTC: the run at the end of the decoded frames
        self.pending: list[Token] = []  # of a word that is not complete
        self.timer = WordTimer(info.tokenizer, zero_width_punctuation=bool(info.config.durations))

    @property
    def samples_received(self) -> int:
        """Number of samples since the start of the stream."""
        return self.start_frame * self.subsampling_factor * HOP_LENGTH + len(self.samples)

    def push(self, samples: Samples) -> Iterator[Update]:
        """Add samples [n] at 16 kHz; yields an update for every chunk that is complete."""
        waiting = np.concatenate([self.samples, samples])
        while True:
            reach = (
                (self.decoded_frames + self.chunk_frames + self.right_context - self.start_frame)
                * self.subsampling_factor
                * HOP_LENGTH
            )
            if len(waiting) < reach:
                break
            self.samples, rest = waiting[:reach], waiting[reach:]
            yield self.decode_chunk(self.chunk_frames)
            waiting = np.concatenate([self.samples, rest])
        self.samples = waiting

    def finish(self) -> Iterator[Update]:
        """Decode the rest of the audio as final; yields one update."""
        yield self.decode_chunk(None)

    def decode_chunk(self, chunk: int | None) -> Update:
        """Decode the next `chunk` encoder frames; None: all that are left, as final."""
        mel = log_mel(self.samples, self.config.n_mels)
        limit = self.start_frame * self.subsampling_factor + len(mel)
        total = -(-len(mel) // self.subsampling_factor)
        start = min(self.decoded_frames - self.start_frame, total)
        stop = total if chunk is None else start + chunk
        final: list[Emission] = []
        guess: list[Emission] = []
        if start < stop:
            audio = EncoderInput(mel, self.config.attention_window)
            final, guess = run(self.submit, self.decode(audio, start, stop, total))
        tokens = self.to_tokens(final, self.start_frame + start, limit)
        self.decoded_frames = self.start_frame + stop
        spoken = group_words([*self.pending, *tokens], self.tokenizer)
        ahead = self.to_tokens(guess, self.decoded_frames, limit)
        settled = self.count_final(spoken, chunk is None)
        self.pending = [token for word in spoken[settled:] for token in word]
        update = Update(
            final=tuple(self.timer.word(word) for word in spoken[:settled]),
            partial=self.partial_words([*self.pending, *ahead]),
            heard=self.samples_received / SAMPLE_RATE,
        )
        self.drop_old_samples()
        return update

    def decode(
        self, audio: EncoderInput, start: int, stop: int, total: int
    ) -> SequenceGenerator[tuple[list[Emission], list[Emission]]]:
        """The tokens of encoder frames `start` to `stop`, and provisional ones up to `total`."""
        found: Hypothesis = yield Chunk(
            audio, (start, stop), self.context_graph, self.decoder_state, return_state=True
        )
        ahead: tuple[Emission, ...] = ()
        if stop < total:
            guess: Hypothesis = yield Chunk(
                audio, (stop, total), self.context_graph, found.decoder_state
            )
            ahead = guess.emissions
        final = without_repeated_label(self.last, found.emissions, found.decoder_state)
        last = final[-1] if final else None
        self.decoder_state = found.decoder_state
        runs_on = last is not None and last.frame + last.duration == stop - start
        self.last = last if runs_on else None
        return final, without_repeated_label(self.last, ahead, found.decoder_state)

    def to_tokens(self, emissions: Iterable[Emission], first: int, limit: int) -> list[Token]:
        """Emissions, counted from encoder frame `first`, as tokens with frames of the stream."""
        return to_tokens(
            emissions,
            self.tokenizer,
            first * self.subsampling_factor,
            self.subsampling_factor,
            limit,
        )

    def count_final(self, spoken: list[WordTokens], final: bool) -> int:
        """Number of complete words: all but the last one, and that one too after a pause.

        A space at the end may belong to a punctuation mark that is still to come, and so to the
        word before.
        """
        if not spoken:
            return 0
        quiet = (
            self.decoded_frames * self.subsampling_factor - spoken[-1][-1].end >= MIN_PAUSE_FRAMES
        )
        if final or quiet:
            return len(spoken)
        blank = all(self.tokenizer.is_space(token.id) for token in spoken[-1])
        return max(0, len(spoken) - 1 - blank)

    def partial_words(self, tokens: list[Token]) -> tuple[Word, ...]:
        """Words that may still change; they do not affect the times of later words."""
        timing = self.timer.copy()
        return tuple(timing.word(word) for word in group_words(tokens, self.tokenizer))

    def drop_old_samples(self) -> None:
        """Free samples that are older than the left context."""
        spare = self.decoded_frames - self.left_context - self.start_frame
        if spare > 0:
            self.samples = self.samples[spare * self.subsampling_factor * HOP_LENGTH :].copy()
            self.start_frame += spare


def without_repeated_label(
    last: Emission | None, emissions: tuple[Emission, ...], decoder_state: DecoderState | None
) -> list[Emission]:
    """Emissions without the first one if it continues a CTC run of the previous chunk."""
    if decoder_state is not None or last is None or not emissions or emissions[0].frame > 0:
        return list(emissions)
    return list(emissions[1:]) if emissions[0].token == last.token else list(emissions)


def stream_updates(
    submit: Submit,
    info: ModelInfo,
    pieces: Iterable[Any],
    latency: float,
    context_graph: ContextGraph | None,
    cancelled: Callable[[], bool] | None,
) -> Iterator[Update]:
    """Updates for live audio in pieces of samples [n] at 16 kHz, as Parakeet.listen yields them.

    Raises UsageError for a latency outside MIN_LATENCY_S to MAX_LATENCY_S, AudioError,
    NonFiniteError, DeviceError.
    """
    check_latency(latency, MIN_LATENCY_S, MAX_LATENCY_S)
    yield from live_updates(
        StreamingDecoder(submit, info, latency, context_graph), pieces, cancelled
    )
