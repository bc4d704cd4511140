"""Any checkpoint of Parakeet as one tree of arrays, checked against its configuration first.

Sizes, names and quirks: MODELS/parakeet.md. Source of the network: NeMo
nemo/collections/asr/modules/conformer_encoder.py, rnnt.py; transformers models/parakeet.
What is folded into the weights here, so that the forward knows nothing of it: the halves of the
half-step feed-forwards (down.weight and .bias times 1/2, exact in any format), batch normalisation
(into the depthwise convolution), √d of scaled inputs (into the projection after subsampling), the
order of that projection's inputs (channels last), the sum of the LSTM's two biases.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from oscine.audio.mel import mel_filters
from oscine.audio.mel_nemo import TRANSFORM
from oscine.errors import CheckpointError
from oscine.models.parakeet.config import ParakeetConfig
from oscine.models.parakeet.names import FILTERS, Names
from oscine.models.parakeet.settings import read_settings
from oscine.models.parakeet.shapes import ATTENTION, LSTM, expected_shapes, halvings
from oscine.models.parakeet.sizes import EMBEDDING, frequencies, read_config
from oscine.ops import Linear, Norm
from oscine.text.labels import read_pieces
from oscine.text.pieces import Pieces
from oscine.weights import Checkpoint, read_checkpoint
from oscine.weights.source import Array, shown

log = logging.getLogger(__name__)

_BATCH_NORM_EPS = 1e-5


@dataclass(frozen=True, slots=True)
class FeedForward:
    """norm, up [4d, d], SiLU, down [d, 4d] with the half step folded in."""

    norm: Norm
    up: Linear
    down: Linear


@dataclass(frozen=True, slots=True)
class Attention:
    """qkv.weight [3d, d] holds the rows of q, k, v; position [d, d]; u, v [d], head by head."""

    norm: Norm
    qkv: Linear
    out: Linear
    position: Linear
    bias_u: Array
    bias_v: Array


@dataclass(frozen=True, slots=True)
class Convolution:
    """expand [2d, d] (value half, then gate half), depthwise.weight [K, d] time first, shrink."""

    norm: Norm
    expand: Linear
    depthwise: Linear
    shrink: Linear


@dataclass(frozen=True, slots=True)
class EncoderBlock:
    """One conformer block; `norm` ends it."""

    first: FeedForward
    attention: Attention
    convolution: Convolution
    second: FeedForward
    norm: Norm


@dataclass(frozen=True, slots=True)
class Halving:
    """One further halving of time and frequency: depthwise.weight [3, 3, C] (time, frequency,
    channel), pointwise [C, C]."""

    depthwise: Linear
    pointwise: Linear


@dataclass(frozen=True, slots=True)
class EncoderWeights:
    """first.weight [3, 3, C]: one input channel; project [d, F·C], inputs frequency first."""

    first: Linear
    halvings: tuple[Halving, ...]
    project: Linear
    blocks: tuple[EncoderBlock, ...]


@dataclass(frozen=True, slots=True)
class Cell:
    """One LSTM layer: input [4P, P] with the sum of both biases, hidden [4P, P] without; gates in
    the order i f g o."""

    input: Linear
    hidden: Linear


@dataclass(frozen=True, slots=True)
class TransducerWeights:
    """embedding [V + 1, P], the blank's row zero (it starts a transcript); head [V + 1 + n, joint]:
    tokens, then durations."""

    embedding: Array
    cells: tuple[Cell, ...]
    encoder: Linear  # [joint, d]
    predictor: Linear  # [joint, P]
    head: Linear


@dataclass(frozen=True, slots=True)
class ParakeetWeights:
    """Matrices as stored: float16 or else float32; vectors and convolutions float32.

    Arrays may be read-only views of the file.
    """

    config: ParakeetConfig
    encoder: EncoderWeights
    transducer: TransducerWeights | None
    ctc: Linear | None  # [V + 1, d]
    path: Path
    folder: Path
    format: str
    pieces: tuple[str, ...]  # V labels, as SentencePiece spells them
    stored: str  # "f16" only where every matrix is
    spelling: Pieces | None = None  # the labels with what decodes and encodes them


def load_weights(path: Checkpoint | Path | str) -> ParakeetWeights:
    """Read a checkpoint: a .nemo archive, a folder of transformers or of MLX, or their files.

    One that is open already is taken as it is.

    Raises:
        CheckpointError: damaged files; tensors that are missing, unexpected or of wrong shape; a
            configuration of another network, or one that contradicts the tensors; no labels.
    """
    checkpoint = path if isinstance(path, Checkpoint) else read_checkpoint(path)
    settings = read_settings(checkpoint)
    names = Names.of(checkpoint)
    config = read_config(checkpoint.path, settings, names)
    reader = _Reader(checkpoint.path, names, config)
    reader.check()
    _check_filters(checkpoint.path, names, config.n_mels)
    pieces = read_pieces(
        checkpoint.folder, checkpoint.files, settings.listed, config.labels, checkpoint.path
    )
    matrices = [
        entry.dtype == np.float16
        for name, entry in names.entries.items()
        if name.endswith(".weight") and len(entry.shape) == 2
    ]
    return ParakeetWeights(
        config=config,
        encoder=reader.encoder(),
        transducer=reader.transducer() if config.transducer else None,
        ctc=reader.ctc() if config.has_ctc else None,
        path=checkpoint.path,
        folder=checkpoint.folder,
        format=names.format,
        pieces=pieces.names,
        stored="f16" if all(matrices) else "f32",
        spelling=pieces,
    )


def _check_filters(path: Path, names: Names, n_mels: int) -> None:
    """A mel bank that comes with the weights must be the one that is computed here."""
    if names.filters is None:
        return
    known = mel_filters(n_mels, TRANSFORM)
    shape = (1, *known.shape)
    if names.filters.shape != shape:
        raise CheckpointError.tensors(
            path, misshapen=[f"{FILTERS} {list(names.filters.shape)}, not {list(shape)}"]
        )
    if not np.allclose(names.filters.read()[0], known, atol=0.01 * float(known.max())):
        raise CheckpointError(path, f"{FILTERS} is not Slaney's mel bank, the one built in")


class _Reader:
    """Holds what is expected, compares, then builds; nothing large is read before it compared."""

    def __init__(self, path: Path, names: Names, config: ParakeetConfig) -> None:
        self.path = path
        self.names = names
        self.entries = names.entries
        self.config = config
        self.expected = expected_shapes(config, names.entries.keys(), names.one_bias)

    def check(self) -> None:
        missing = self.expected.keys() - self.entries.keys()
        extra = self.entries.keys() - self.expected.keys()
        misshapen = [
            f"{self.own(name)} {list(entry.shape)} {entry.dtype}, not {list(self.expected[name])}"
            for name, entry in self.entries.items()
            if name in self.expected
            and (entry.shape != self.expected[name] or entry.dtype.kind != "f")
        ]
        if missing or extra or misshapen:
            raise CheckpointError.tensors(
                self.path,
                missing=map(self.own, missing),
                extra=map(self.own, extra),
                misshapen=misshapen,
            )

    def own(self, name: str) -> str:
        """A name as the file spells it, fit for a message."""
        return shown(self.names.own(name))

    def encoder(self) -> EncoderWeights:
        config, at = self.config, "encoder.pre_encode"
        halved = tuple(
            Halving(self._image(f"{at}.conv.{index}"), self._pointwise(f"{at}.conv.{index + 1}"))
            for index in halvings(config)
        )
        return EncoderWeights(
            first=self._image(f"{at}.conv.0"),
            halvings=halved,
            project=self._project(f"{at}.out"),
            blocks=tuple(self._block(f"encoder.layers.{i}") for i in range(config.layers)),
        )

    def transducer(self) -> TransducerWeights:
        return TransducerWeights(
            embedding=self._embedding(),
            cells=tuple(self._cell(layer) for layer in range(self.config.predictor_layers)),
            encoder=self._linear("joint.enc"),
            predictor=self._linear("joint.pred"),
            head=self._linear("joint.joint_net.2"),
        )

    def ctc(self) -> Linear:
        return self._pointwise("ctc")

    def _block(self, at: str) -> EncoderBlock:
        attention = f"{at}.self_attn"
        return EncoderBlock(
            first=self._feed_forward(at, "feed_forward1"),
            attention=Attention(
                norm=self._norm(f"{at}.norm_self_att"),
                qkv=self._joined(attention),
                out=self._linear(f"{attention}.linear_out"),
                position=self._linear(f"{attention}.linear_pos"),
                bias_u=self._vector(f"{attention}.pos_bias_u").reshape(-1),
                bias_v=self._vector(f"{attention}.pos_bias_v").reshape(-1),
            ),
            convolution=Convolution(
                norm=self._norm(f"{at}.norm_conv"),
                expand=self._pointwise(f"{at}.conv.pointwise_conv1"),
                depthwise=self._depthwise(f"{at}.conv"),
                shrink=self._pointwise(f"{at}.conv.pointwise_conv2"),
            ),
            second=self._feed_forward(at, "feed_forward2"),
            norm=self._norm(f"{at}.norm_out"),
        )

    def _feed_forward(self, at: str, name: str) -> FeedForward:
        down = self._linear(f"{at}.{name}.linear2")
        # In float16 halving loses the last bit of numbers below 6e-5: 3e-8, less than any rounding.
        half = Linear(
            down.weight * down.weight.dtype.type(0.5),
            None if down.bias is None else down.bias * np.float32(0.5),
        )
        return FeedForward(
            self._norm(f"{at}.norm_{name}"), self._linear(f"{at}.{name}.linear1"), half
        )

    def _vector(self, name: str) -> Array:
        with np.errstate(invalid="ignore"):
            return self.entries[name].read().astype(np.float32, copy=False)

    def _bias(self, name: str) -> Array | None:
        return self._vector(f"{name}.bias") if f"{name}.bias" in self.entries else None

    def _norm(self, name: str) -> Norm:
        return Norm(self._vector(f"{name}.weight"), self._vector(f"{name}.bias"))

    def _linear(self, name: str) -> Linear:
        return Linear(self.entries[f"{name}.weight"].read(), self._bias(name))

    def _pointwise(self, name: str) -> Linear:
        """A convolution that sees one place is a matrix."""
        weight = self.entries[f"{name}.weight"].read()
        return Linear(weight.reshape(weight.shape[:2]), self._bias(name))

    def _image(self, name: str) -> Linear:
        """[C, 1, 3, 3] as [3, 3, C]: time, frequency, channel."""
        weight = self._vector(f"{name}.weight")[:, 0].transpose(1, 2, 0)
        return Linear(np.ascontiguousarray(weight), self._bias(name))

    def _project(self, name: str) -> Linear:
        """Inputs from channel by channel to frequency by frequency; √d where inputs are scaled."""
        weight, bias, config = self.entries[f"{name}.weight"].read(), self._bias(name), self.config
        bins = frequencies(config.n_mels, config.factor)
        split = weight.reshape(config.width, config.channels, bins)
        weight = np.ascontiguousarray(split.transpose(0, 2, 1)).reshape(weight.shape)
        if not config.scaled:
            return Linear(weight, bias)
        root = np.sqrt(np.float64(config.width))
        if weight.dtype == np.float16 and not np.log2(root).is_integer():
            weight = weight.astype(np.float32)  # no power of two: float16 would round it
        scaled = (weight * root.astype(weight.dtype)).astype(weight.dtype, copy=False)
        return Linear(scaled, None if bias is None else bias * root.astype(np.float32))

    def _joined(self, at: str) -> Linear:
        parts = [self._linear(f"{at}.{part}") for part in ATTENTION[:3]]
        biases = [part.bias for part in parts if part.bias is not None]
        return Linear(
            np.concatenate([part.weight for part in parts]),
            np.concatenate(biases) if biases else None,
        )

    def _depthwise(self, at: str) -> Linear:
        """w' = w γ / √(var + eps), b' = β + (b - mean) γ / √(var + eps), in float64; [K, d]."""
        scale, shift, mean, variance = (
            self.entries[f"{at}.batch_norm.{part}"].read().astype(np.float64)
            for part in ("weight", "bias", "running_mean", "running_var")
        )
        if not (variance >= 0).all():
            name = self.own(f"{at}.batch_norm.running_var")
            raise CheckpointError(self.path, f"tensor {name} holds a negative variance")
        gain = scale / np.sqrt(variance + _BATCH_NORM_EPS)
        weight = self.entries[f"{at}.depthwise_conv.weight"].read()[:, 0].astype(np.float64)
        bias = self._bias(f"{at}.depthwise_conv")
        folded = shift + ((0.0 if bias is None else bias) - mean) * gain
        return Linear(
            np.ascontiguousarray((weight * gain[:, None]).T.astype(np.float32)),
            folded.astype(np.float32),
        )

    def _embedding(self) -> Array:
        embedding = self.entries[EMBEDDING].read()
        if embedding[self.config.blank].any():
            log.warning(
                "%s: the blank's row of the embedding is not zero; taking zeros, as NeMo does",
                self.path,
            )
            embedding = embedding.copy()
            embedding[self.config.blank] = 0
        return embedding

    def _cell(self, layer: int) -> Cell:
        bias = self._vector(f"{LSTM}.bias_ih_l{layer}")
        if not self.names.one_bias:
            bias = bias + self._vector(f"{LSTM}.bias_hh_l{layer}")
        return Cell(
            Linear(self.entries[f"{LSTM}.weight_ih_l{layer}"].read(), bias),
            Linear(self.entries[f"{LSTM}.weight_hh_l{layer}"].read(), None),
        )
