"""Whisper's configuration, read from the checkpoint's files and the shapes of its tensors.

Fields are named as in openai/whisper (whisper/model.py: ModelDimensions).
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

from oscine.errors import CheckpointError
from oscine.model_files import read_json
from oscine.models.config_reader import count_layers
from oscine.weights import Checkpoint, LazyTensor

log = logging.getLogger(__name__)

HeadPairs = tuple[tuple[int, int], ...]

#: Bounds on sizes in a file, since filters, positions and attention need memory in proportion to
#: them. Released models have 128 and 1500.
MAX_MELS, MAX_POSITIONS = 1 << 10, 1 << 13


@dataclass(frozen=True, slots=True)
class WhisperConfig:
    """The sizes and token lists of a checkpoint; no size is ever assumed."""

    n_mels: int
    n_audio_ctx: int  # encoder positions, 20 ms each
    n_audio_state: int
    n_audio_head: int
    n_audio_layer: int
    n_vocab: int  # 0 if the checkpoint has no decoder
    n_text_ctx: int
    n_text_state: int
    n_text_head: int
    n_text_layer: int
    #: (layer, head) pairs whose cross-attention is aligned to the audio; None if unknown.
    alignment_heads: tuple[tuple[int, int], ...] | None = None
    #: Ids that the checkpoint suppresses; None if it has no list: tokens.non_speech_tokens.
    suppress_tokens: tuple[int, ...] | None = None
    begin_suppress_tokens: tuple[int, ...] | None = None
    max_initial_timestamp_index: int | None = None

    @property
    def window_frames(self) -> int:
        """Mel frames (10 ms) of one window: 3000 in released models."""
        return 2 * self.n_audio_ctx


def read_config(checkpoint: Checkpoint, entries: dict[str, LazyTensor]) -> WhisperConfig:
    """Read the configuration; sizes that it lacks are taken from the tensors' shapes.

    `entries` are the tensors under openai/whisper's names (weights.TensorNames).

    Raises:
        CheckpointError: a size is unknown or not positive, or the network differs from Whisper
            (another activation, scaled embeddings).
    """
    sizes = _ConfigSizes(checkpoint, entries)
    decoder = any(name.startswith("decoder.") for name in entries) or _requires_decoder(
        sizes.config
    )
    state = sizes.size(("n_audio_state", "d_model", "hidden_size"), "encoder.conv2.weight", 0)
    config = WhisperConfig(
        n_mels=sizes.size(
            ("n_mels", "num_mel_bins"), "encoder.conv1.weight", sizes.mel_axis, MAX_MELS
        ),
        n_audio_ctx=sizes.size(
            ("n_audio_ctx", "max_source_positions"),
            "encoder.positional_embedding",
            0,
            MAX_POSITIONS,
        ),
        n_audio_state=state,
        n_audio_head=sizes.heads("encoder", ("n_audio_head", "encoder_attention_heads"), state),
        n_audio_layer=sizes.layers("encoder", ("n_audio_layer", "encoder_layers")),
        n_vocab=0,
        n_text_ctx=0,
        n_text_state=0,
        n_text_head=0,
        n_text_layer=0,
    )
    return _with_decoder(config, sizes, checkpoint) if decoder else config


def _with_decoder(
    encoder: WhisperConfig, sizes: _ConfigSizes, checkpoint: Checkpoint
) -> WhisperConfig:
    embedding = "decoder.token_embedding.weight"
    state = sizes.size(("n_text_state", "d_model"), embedding, 1)
    if state != encoder.n_audio_state:
        raise sizes.error(f"encoder width {encoder.n_audio_state}, decoder width {state}")
    vocabulary = sizes.size(("n_vocab", "vocab_size"), embedding, 0)
    layers = sizes.layers("decoder", ("n_text_layer", "decoder_layers"))
    heads = sizes.heads("decoder", ("n_text_head", "decoder_attention_heads"), state)
    context = sizes.size(
        ("n_text_ctx", "max_target_positions"), "decoder.positional_embedding", 0, MAX_POSITIONS
    )
    config = dict(checkpoint.config)
    config |= {
        k: v
        for k, v in read_json(checkpoint.folder / "generation_config.json").items()
        if v is not None
    }
    return WhisperConfig(
        n_mels=encoder.n_mels,
        n_audio_ctx=encoder.n_audio_ctx,
        n_audio_state=encoder.n_audio_state,
        n_audio_head=encoder.n_audio_head,
        n_audio_layer=encoder.n_audio_layer,
        n_vocab=vocabulary,
        n_text_ctx=context,
        n_text_state=state,
        n_text_head=heads,
        n_text_layer=layers,
        alignment_heads=sizes.alignment_heads(config.get("alignment_heads"), layers, heads),
        suppress_tokens=sizes.token_ids(config, ("suppress_tokens", "suppress_ids"), vocabulary),
        begin_suppress_tokens=sizes.token_ids(
            config, ("begin_suppress_tokens", "suppress_ids_begin"), vocabulary
        ),
        max_initial_timestamp_index=sizes.optional_int(config, "max_initial_timestamp_index"),
    )


def _requires_decoder(config: dict[str, Any]) -> bool:
    """Whether the configuration is of a model with a decoder, so that a missing one is an error."""
    architectures = config.get("architectures")
    named = isinstance(architectures, list) and any(
        name in ("WhisperForConditionalGeneration", "WhisperModel") for name in architectures
    )
    return named or "n_text_layer" in config


class _ConfigSizes:
    """Sizes from the configuration, else from tensors."""

    def __init__(self, checkpoint: Checkpoint, entries: dict[str, LazyTensor]) -> None:
        self.path = checkpoint.path
        self.entries = entries
        self.folder_config = checkpoint.folder / "config.json"
        config = checkpoint.config
        # Speech LLMs nest the sizes of their audio tower one or two levels deep.
        for key in ("thinker_config", "audio_config", "encoder_config"):
            if isinstance(config.get(key), dict):
                config = config[key]
        self.config = config
        conv1 = entries["encoder.conv1.weight"].shape if "encoder.conv1.weight" in entries else ()
        self.mel_axis = 2 if len(conv1) == 3 and conv1[1] == 3 else 1
        if config.get("scale_embedding"):
            raise self.error("scale_embedding is set; Whisper's embeddings are not scaled")
        activation = config.get("activation_function", "gelu")
        if activation != "gelu" or self.int_tensor("decoder.activation", 3) != 3:
            raise self.error("its activation is not the exact GELU of Whisper")

    def error(self, problem: str, remedy: str = "") -> CheckpointError:
        return CheckpointError(self.path, problem, remedy)

    def from_config(self, names: tuple[str, ...]) -> int | None:
        """The first of these sizes that the configuration has; None if it has none."""
        for name in names:
            value = self.config.get(name)
            if value is None:
                continue
            if type(value) is not int or not 0 < value < 1 << 24:
                raise self.error(f"its configuration has {name} = {str(value)[:40]!r}")
            return value
        return None

    def size(self, names: tuple[str, ...], tensor: str, axis: int, maximum: int = 1 << 24) -> int:
        """A size from the configuration, else of a tensor's axis; at most `maximum`."""
        value = self.from_config(names)
        if value is None:
            shape = self.entries[tensor].shape if tensor in self.entries else ()
            if len(shape) <= axis or shape[axis] < 1:
                raise CheckpointError.tensors(
                    self.path, missing=[f"{tensor} (or {names[-1]} in config.json)"]
                )
            value = shape[axis]
        if value > maximum:
            raise self.error(f"has {names[0]} = {value}, more than {maximum}")
        return value

    def layers(self, side: str, names: tuple[str, ...]) -> int:
        value = self.from_config(names)
        if value is None and side == "encoder":
            value = self.from_config(("num_hidden_layers",))
        if value is None:
            value = count_layers(self.entries, f"{side}.blocks.")
        if not 0 < value <= len(self.entries):  # before anything is built for each layer
            raise self.error(f"{value} {side} layers do not fit into {len(self.entries)} tensors")
        return value

    def heads(self, side: str, names: tuple[str, ...], width: int) -> int:
        value = self.from_config(names) or self.int_tensor(f"{side}.num_heads", 0)
        if not value and side == "encoder":
            value = self.from_config(("num_attention_heads",)) or 0
        if not value:
            raise self.error(
                f"the number of {side} attention heads is unknown",
                f"{self.folder_config} should give {names[-1]}",
            )
        if value < 0 or width % value:
            raise self.error(f"{value} {side} heads do not divide width {width}")
        return value

    def int_tensor(self, name: str, absent: int) -> int:
        entry = self.entries.get(name)
        if entry is None:
            return absent
        if entry.shape != () or entry.dtype.kind != "i":
            raise self.error(f"{name} is not an integer")
        return int(entry.read())

    def token_ids(
        self, config: dict[str, Any], names: tuple[str, ...], vocabulary: int
    ) -> tuple[int, ...] | None:
        """A list of token ids; None if absent, or [-1], which stands for the computed list."""
        value = next((config[name] for name in names if config.get(name) is not None), None)
        if value is None or value == [-1]:
            return None
        if not isinstance(value, list) or any(type(i) is not int for i in value):
            raise self.error(f"its {names[0]} is not a list of token ids")
        return tuple(sorted({i for i in value if 0 <= i < vocabulary}))

    def optional_int(self, config: dict[str, Any], name: str) -> int | None:
        value = config.get(name)
        if value is not None and (type(value) is not int or value < 0):
            raise self.error(f"its {name} is {str(value)[:40]!r}")
        return value

    def alignment_heads(self, value: Any, layers: int, heads: int) -> HeadPairs | None:
        """Pairs (layer, head), from the configuration or, as in MLX, from a tensor."""
        entry = self.entries.get("alignment_heads")
        if (
            value is None
            and entry is not None
            and entry.dtype.kind in "iu"
            and len(entry.shape) == 2
            and entry.shape[0] < 4096
        ):
            value = entry.read().tolist()
        if value is None:
            return None
        if not isinstance(value, list) or not all(
            isinstance(pair, list) and [type(i) for i in pair] == [int, int] for pair in value
        ):
            raise self.error("its alignment_heads are not pairs of layer and head")
        if not all(0 <= layer < layers and 0 <= head < heads for layer, head in value):
            # Distilled models contain the list of their teacher.
            log.info("%s: alignment_heads names layers that do not exist; ignored", self.path)
            return None
        return tuple(dict.fromkeys((layer, head) for layer, head in value)) or None
