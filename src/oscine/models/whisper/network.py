"""Makes a Whisper model from a checkpoint: weights, runner, public model."""

from __future__ import annotations

from oscine.family import LoadContext, Network
from oscine.models.whisper.pipeline import Whisper
from oscine.models.whisper.runner import WhisperRunner
from oscine.models.whisper.tokenizers import tokenizer_folder
from oscine.models.whisper.weights import WhisperWeights, load_weights
from oscine.ops import Backend
from oscine.text.whisper import WhisperTokenizer, load_tokenizer


def runner(weights: WhisperWeights, backend: Backend) -> WhisperRunner:
    """The runner of the network on a backend. Raises DeviceError."""
    return WhisperRunner(weights, backend)


def model(
    runner: WhisperRunner, weights: WhisperWeights, opened: LoadContext[WhisperRunner]
) -> Whisper:
    """The public model. Raises CheckpointError or HubError if there is no tokenizer."""
    tokenizer = tokenizer_of(weights, opened.offline)
    return Whisper(runner, tokenizer, opened.name, opened.rebuild)


def tokenizer_of(weights: WhisperWeights, offline: bool) -> WhisperTokenizer | None:
    """The tokenizer beside the weights, else one of the same size; None without a decoder."""
    if weights.decoder is None:
        return None
    return load_tokenizer(
        weights.folder,
        weights.vocabulary,
        fallback=lambda: tokenizer_folder(weights.config.n_vocab, offline=offline),
    )


NETWORK = Network(load_weights, runner, model)
