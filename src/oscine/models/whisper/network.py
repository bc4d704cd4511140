"""How a Whisper is made of a checkpoint, on a device."""

from __future__ import annotations

from oscine.family import Network, Opened
from oscine.models.whisper.decode import Decoder
from oscine.models.whisper.pipeline import Whisper
from oscine.models.whisper.tokenizers import tokenizer_folder
from oscine.models.whisper.weights import WhisperWeights, load_weights
from oscine.ops import Backend
from oscine.text.whisper import Tokenizer, load_tokenizer


def engine(weights: WhisperWeights, backend: Backend, like: Decoder | None) -> Decoder:
    """An engine with room for as many windows and lines as `like` has. Raises DeviceError."""
    made = Decoder(weights, backend)
    if like is not None:
        made.reserve(like.windows, like.most_lines)
    return made


def model(engine: Decoder, weights: WhisperWeights, opened: Opened[Decoder]) -> Whisper:
    """The public model. Raises CheckpointError or HubError where there is no tokenizer."""
    tokenizer = tokenizer_of(weights, opened.offline)
    return Whisper(engine, tokenizer, opened.name, opened.rebuild)


def tokenizer_of(weights: WhisperWeights, offline: bool) -> Tokenizer | None:
    """The tokenizer beside the weights, or that of the vocabulary's size; None without decoder."""
    if weights.decoder is None:
        return None
    return load_tokenizer(
        weights.folder,
        weights.vocabulary,
        fallback=lambda: tokenizer_folder(weights.config.n_vocab, offline=offline),
    )


NETWORK = Network(load_weights, engine, model)
