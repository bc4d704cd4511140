"""A Qwen3-TTS on a device: its networks, uploaded once, and buffers for the voices that run."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np

from oscine import ops
from oscine.engine.sequence import EncoderInput, add_time
from oscine.engine.sequence import Sequence as EngineSequence
from oscine.errors import UsageError
from oscine.models.qwen3_tts import model
from oscine.models.qwen3_tts.codec_batching import LARGE_CHUNK, SMALL_CHUNK, CodecBatcher
from oscine.models.qwen3_tts.codec_runner import CodecDecoder, CodecEncoder, CodecStream
from oscine.models.qwen3_tts.embeddings import EmbeddingTables, embedding_rows
from oscine.models.qwen3_tts.executors import UtteranceExecutor
from oscine.models.qwen3_tts.sequences import Utterance, check_request
from oscine.models.qwen3_tts.speaker import SpeakerEncoder
from oscine.models.qwen3_tts.talker_runner import INITIAL_PROMPT_ROWS, TalkerRunner
from oscine.models.qwen3_tts.weights import Qwen3TtsWeights


class Qwen3TtsRunner:
    """Runs the network for the engine: see engine.runner.SequenceRunner.

    Raises DeviceError if the backend cannot hold or compute a model of these sizes.
    """

    encode_batch = 1  # it has no encoder

    def __init__(self, weights: Qwen3TtsWeights, backend: ops.Backend) -> None:
        self.config, self.backend, self.weights = weights.config, backend, weights
        self.device = backend.name
        self.timings: dict[str, float] = {}
        self.tables = EmbeddingTables(weights, backend)
        predictor = ops.upload(backend, weights.code_predictor)
        self.networks = model.TalkerNetworks(
            self.config,
            ops.upload(backend, weights.talker),
            predictor,
            self.project_codes(predictor.small_to_mtp_projection),
        )
        self.talker = TalkerRunner(self.networks, backend)
        self.codec = CodecDecoder(weights.decoder, self.config.codec, backend)
        self.record_plans()

    def record_plans(self) -> None:
        """Record the first voice's plans while loading, when another backend can still be
        chosen.
        """
        self.talker.record_plans()
        self.tables.embed_text([self.config.text_ids.pad] * INITIAL_PROMPT_ROWS)
        self.codec.record_plans(1, SMALL_CHUNK, 8, LARGE_CHUNK)

    # -- parts --------------------------------------------------------------------------------

    @cached_property
    def utterance_executor(self) -> UtteranceExecutor:
        """The batch executor of all utterances."""
        batcher = CodecBatcher(self.codec, self.config.codec, self.device)
        return UtteranceExecutor(self.talker, self.tables, batcher, self.clock)

    @cached_property
    def codec_encoder(self) -> CodecEncoder:
        """Encodes a reference to codes."""
        return CodecEncoder(self.weights.encoder, self.config.codec, self.backend)

    @cached_property
    def speaker_encoder(self) -> SpeakerEncoder:
        """Encodes a reference to a speaker embedding. Raises UsageError if the model has no
        encoder.
        """
        if self.weights.speaker is None or self.config.speaker_encoder is None:
            raise UsageError(
                f"a {self.config.tts_model_type} model cannot clone voices; use a base model"
            )
        return SpeakerEncoder(self.weights.speaker, self.config.speaker_encoder, self.backend)

    def codec_stream(self) -> CodecStream:
        """A voice of the codec on its own, to decode codes from elsewhere."""
        return CodecStream(self.codec)

    def project_codes(self, project: ops.Linear | None) -> tuple[ops.Tensor, ...] | None:
        """The code predictor's inputs for every code, projected once instead of in every frame."""
        if project is None:
            return None
        backend, width = self.backend, self.config.code_predictor.hidden_size
        tables = (
            self.weights.talker.codec_embedding,
            *self.weights.code_predictor.codec_embeddings[:-1],
        )
        spare = backend.zeros((max(len(table) for table in tables), self.config.talker.hidden_size))
        found: list[ops.Tensor] = []
        for table in tables:
            x = backend.view(spare, table.shape)
            backend.write(x, embedding_rows(table, np.arange(len(table))))
            found.append(self.run_linear(project, x, backend.zeros((len(table), width))))
        backend.release(spare)
        return tuple(found)

    def run_linear(self, project: ops.Linear, x: ops.Tensor, y: ops.Tensor) -> ops.Tensor:
        """Write the result of the layer for x to y; returns y."""
        backend = self.backend
        backend.record(lambda: backend.store(backend.linear(x, project), y), name="project").run()
        return y

    # -- as the engine drives it --------------------------------------------------------------

    def make_batch_invariant(self) -> None:
        """One kernel for caches of any length, and a voice alone in each call of the codec."""
        self.backend.batch_invariant = self.utterance_executor.codec.one_voice_per_chunk = True
        self.talker.plans.clear()

    def check(self, sequence: EngineSequence[Any]) -> None:
        """Raise UsageError for an utterance that does not fit into the model."""
        assert isinstance(sequence, Utterance)
        check_request(sequence.request, self.config)

    def executor(self, key: Any) -> UtteranceExecutor:
        """The only one there is."""
        return self.utterance_executor

    def reserve(self, slots: int, encoder_slots: int, sequence: EngineSequence[Any]) -> None:
        """Reserve buffers for that many utterances, each as long as this one.

        Running utterances are kept. Raises DeviceMemoryError.
        """
        assert isinstance(sequence, Utterance)
        request = sequence.request
        prompt = self.backend.bucket_rows(request.prompt_length)  # is not cut where memory is short
        self.talker.reserve(slots, max(request.positions, prompt), request.trailing_text_rows)
        self.utterance_executor.codec.reserve(slots)

    def release(self, slots: int, encoder_slots: int, *, plans: bool = False) -> None:
        """Free the memory beyond that of `slots` short utterances; none may be running."""
        self.talker.release(slots)
        self.utterance_executor.codec.release()

    def encode(self, inputs: Sequence[EncoderInput], encoder_slots: Sequence[int]) -> None:
        """Not supported: utterances have no encoder input."""
        raise NotImplementedError

    def trace(self) -> dict[str, tuple[int, float]]:
        """Passes and milliseconds by stage, as the backend measured them: ops.Backend.trace."""
        return self.backend.trace()

    def clock(self, stage: str, milliseconds: float) -> None:
        """Add to a stage's milliseconds."""
        add_time(self.timings, stage, milliseconds)
