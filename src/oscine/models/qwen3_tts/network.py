"""Makes a Qwen3-TTS from a checkpoint on a device."""

from __future__ import annotations

from oscine.errors import CheckpointError
from oscine.family import LoadContext, Network
from oscine.models.qwen3_tts.pipeline import Qwen3Tts
from oscine.models.qwen3_tts.runner import Qwen3TtsRunner
from oscine.models.qwen3_tts.voice_support import voice_folder
from oscine.models.qwen3_tts.weights import Qwen3TtsWeights, load_weights
from oscine.ops import Backend
from oscine.text.qwen import QwenTokenizer


def runner(weights: Qwen3TtsWeights, backend: Backend) -> Qwen3TtsRunner:
    """A runner of the network, whose buffers grow by need. Raises DeviceError."""
    return Qwen3TtsRunner(weights, backend)


def model(
    runner: Qwen3TtsRunner, weights: Qwen3TtsWeights, opened: LoadContext[Qwen3TtsRunner]
) -> Qwen3Tts:
    """The public model. Raises CheckpointError if the tokenizer belongs to another model."""
    tokenizer = QwenTokenizer.load(weights.folder)
    if tokenizer.vocab_size > weights.config.text_vocab_size:
        raise CheckpointError(
            weights.folder,
            f"its tokenizer has ids up to {tokenizer.vocab_size - 1}, its text embedding has "
            f"{weights.config.text_vocab_size} rows",
            "fetch the whole folder again",
        )
    return Qwen3Tts(runner, tokenizer, opened.given, opened.rebuild, voice_folder())


NETWORK = Network(load_weights, runner, model)
