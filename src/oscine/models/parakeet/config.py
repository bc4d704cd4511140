"""Configuration of a Parakeet checkpoint, checked against the shapes of its tensors.

A configuration has NeMo's keys or transformers'. Keys and defaults: NeMo conformer_encoder.py and
the model_config.yaml of the releases; transformers configuration_parakeet.py. A setting that would
need another network than the one implemented here is refused by name.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oscine.errors import CheckpointError
from oscine.model_files import read_json
from oscine.models.config_reader import ABSENT, ConfigReader, count_layers
from oscine.models.parakeet.gguf import nemo_config
from oscine.weights import Checkpoint, LazyTensor

log = logging.getLogger(__name__)

CTC, RNNT, TDT = "CTC", "RNN-T", "TDT"
#: NeMo's model classes: (has a transducer, has a CTC head).
_NEMO_DECODERS = {
    "EncDecCTCModelBPE": (False, True),
    "EncDecRNNTBPEModel": (True, False),
    "EncDecHybridRNNTCTCBPEModel": (True, True),
}
_HUGGING_FACE_TYPES = {"parakeet_ctc": CTC, "parakeet_rnnt": RNNT, "parakeet_tdt": TDT}
_STREAMING_TYPES = ("nemotron_asr_streaming", "parakeet_realtime_eou")

_LOCAL_ATTENTION = "rel_pos_local_attn"
MAX_SYMBOLS = 10  # per encoder frame, where the configuration has no value; NeMo's default

#: The only preprocessor that is implemented: the allowed values of each key.
_NEMO_PREPROCESSOR: dict[str, tuple[object, ...]] = {
    "sample_rate": (16000,),
    "n_fft": (512,),
    "window_size": (0.025,),
    "window_stride": (0.01,),
    "n_window_size": (400,),
    "n_window_stride": (160,),
    "window": ("hann",),
    "preemph": (0.97,),
    "mag_power": (2,),
    "log": (True,),
    "log_zero_guard_type": ("add",),
    "log_zero_guard_value": (2.0**-24,),
    "lowfreq": (0,),
    "highfreq": (None, 8000),
    "mel_norm": ("slaney",),
    "frame_splicing": (1,),
    "exact_pad": (False,),
    "normalize": ("per_feature",),
}
_HUGGING_FACE_PREPROCESSOR: dict[str, tuple[object, ...]] = {
    "sampling_rate": (16000,),
    "n_fft": (512,),
    "hop_length": (160,),
    "win_length": (400,),
    "preemphasis": (0.97,),
}

#: Keys for which null is a value in NeMo (no window, no scaling) and not a missing one.
_NULL_IS_A_VALUE = frozenset(
    {
        *(f"preprocessor.{key}" for key in ("window", "preemph", "log", "mel_norm", "normalize")),
        "encoder.subsampling",
        "encoder.untie_biases",
        "decoder.blank_as_pad",
    }
)
_MISSING = "???"  # OmegaConf's mark of a value that is not set

#: Bounds the mel bank, which is computed; released models have 80 or 128.
MAX_MELS = 1 << 10
_BLOCK = "encoder.layers.0"
LSTM = "decoder.prediction.dec_rnn.lstm"
EMBEDDING, HEAD = "decoder.prediction.embed.weight", "joint.joint_net.2.weight"


@dataclass(frozen=True, slots=True)
class ParakeetConfig:
    """Sizes of a Parakeet, from its configuration and tensor shapes, which must agree."""

    n_mels: int
    d_model: int  # width of the encoder
    n_heads: int
    n_layers: int
    ff_dim: int  # hidden width of the feed-forward modules
    conv_kernel_size: int  # of the depthwise convolution over time; odd
    subsampling_channels: int
    subsampling_factor: int  # mel frames per encoder frame: 8 or 4
    xscaling: bool  # whether the encoder input is multiplied by √d_model (folded into weights)
    vocab_size: int  # V, without the blank
    predictor_dim: int  # width of the embedding and LSTM; 0 without a transducer
    predictor_layers: int
    joint_dim: int  # width of the joint network; 0 without a transducer
    durations: tuple[int, ...]  # TDT: in encoder frames; empty for RNN-T and CTC
    max_symbols: int  # tokens per encoder frame before the decoder advances by one frame
    has_ctc: bool
    #: Encoder frames (left, right) of local attention, NeMo's att_context_size; None: global.
    attention_window: tuple[int, int] | None = None

    @property
    def blank_id(self) -> int:
        """Id of the blank: V, the last output."""
        return self.vocab_size

    @property
    def has_transducer(self) -> bool:
        """Whether there are a prediction network and a joint network."""
        return self.predictor_dim > 0

    @property
    def frame_seconds(self) -> float:
        """Duration of an encoder frame in seconds; a mel frame is 10 ms."""
        return self.subsampling_factor / 100


def read_config(
    path: Path,
    stated: StatedConfig,
    entries: Mapping[str, LazyTensor],
    original_name: Callable[[str], str],
) -> ParakeetConfig:
    """The configuration, completed from tensor shapes where it has no value.

    `entries` have NeMo's names; `original_name` gives their names in the file.

    Raises:
        CheckpointError: a size is neither in the configuration nor in a shape, or two of them
            contradict each other in a way that a comparison of shapes would not explain.
    """
    sizes = _SizeResolver(path, entries, original_name)
    conv = "encoder.pre_encode.conv.0.weight"
    channels = sizes.find(stated.subsampling_channels, conv, 0, "subsampling_conv_channels")
    n_mels = sizes.mels(stated.n_mels, channels, stated.subsampling_factor)
    width = sizes.find(stated.d_model, "encoder.pre_encode.out.weight", 0, "d_model")
    heads = sizes.find(stated.n_heads, f"{_BLOCK}.self_attn.pos_bias_u", 0, "n_heads")
    if width % heads or width % 2:
        raise sizes.error(f"width {width} must be even and divisible by {heads} heads")
    kernel = sizes.find(
        stated.conv_kernel_size, f"{_BLOCK}.conv.depthwise_conv.weight", 2, "conv kernel"
    )
    if kernel % 2 == 0:
        raise sizes.error(f"a convolution kernel of {kernel} is not odd")
    transducer = stated.decoder_type != CTC
    predictor = predictor_layers = joint = 0
    if transducer:
        predictor = sizes.find(stated.predictor_dim, EMBEDDING, 1, "pred_hidden")
        predictor_layers = sizes.layers(stated.predictor_layers, f"{LSTM}.weight_ih_l", "LSTM")
        joint = sizes.find(stated.joint_dim, "joint.enc.weight", 0, "joint_hidden")
    return ParakeetConfig(
        n_mels=n_mels,
        d_model=width,
        n_heads=heads,
        n_layers=sizes.layers(stated.n_layers, "encoder.layers.", "encoder"),
        ff_dim=sizes.find(stated.ff_dim, f"{_BLOCK}.feed_forward1.linear1.weight", 0, "inner"),
        conv_kernel_size=kernel,
        subsampling_channels=channels,
        subsampling_factor=stated.subsampling_factor,
        xscaling=stated.xscaling,
        vocab_size=sizes.vocab_size(stated, transducer),
        predictor_dim=predictor,
        predictor_layers=predictor_layers,
        joint_dim=joint,
        durations=stated.durations,
        max_symbols=stated.max_symbols,
        has_ctc=stated.has_ctc,
        attention_window=stated.attention_window,
    )


def subsampled_bins(mels: int, factor: int) -> int:
    """Frequency bins after subsampling `mels` bins by `factor`, rounding up at each stage."""
    return -(-mels // factor)


class _SizeResolver:
    """Sizes from the configuration, else from shapes; raises CheckpointError where they differ."""

    def __init__(
        self, path: Path, entries: Mapping[str, LazyTensor], original_name: Callable[[str], str]
    ) -> None:
        self.path, self.entries, self.original_name = path, entries, original_name

    def error(self, problem: str) -> CheckpointError:
        return CheckpointError(self.path, problem)

    def axis(self, tensor: str, axis: int) -> int | None:
        """A tensor's size along one axis; None if there is no such tensor or axis."""
        shape = self.entries[tensor].shape if tensor in self.entries else ()
        return shape[axis] if len(shape) > axis and shape[axis] > 0 else None

    def find(self, stated: int | None, tensor: str, axis: int, what: str) -> int:
        found = stated if stated is not None else self.axis(tensor, axis)
        if found is None:
            missing = f"{self.original_name(tensor)} (or {what} in the configuration)"
            raise CheckpointError.tensors(self.path, missing=[missing])
        return found

    def mels(self, stated: int | None, channels: int, factor: int) -> int:
        columns = self.axis("encoder.pre_encode.out.weight", 1)
        if columns is None or columns % channels:
            # The later comparison of all tensors gives the clearer error.
            return self.find(stated, "encoder.pre_encode.out.weight", 1, "features")
        seen = columns // channels
        mels = seen * factor if stated is None else stated
        if mels > MAX_MELS:
            raise self.error(f"has {mels} mel bins, more than {MAX_MELS}")
        if subsampled_bins(mels, factor) != seen:
            raise self.error(f"has {mels} mel bins, but the network is made for {seen * factor}")
        return mels

    def layers(self, stated: int | None, prefix: str, what: str) -> int:
        found = count_layers(self.entries, prefix) if stated is None else stated
        if not 0 < found <= len(self.entries):  # before anything is allocated per layer
            raise self.error(f"{found} {what} layers do not fit {len(self.entries)} tensors")
        return found

    def vocab_size(self, stated: StatedConfig, transducer: bool) -> int:
        """V, on which the configuration, the embedding and the joint network must agree."""
        if not transducer:
            rows = self.axis("ctc.weight", 0)
            labels = (rows or 0) - 1 if stated.vocab_size is None else stated.vocab_size
            if rows is not None and labels + 1 != rows:
                raise self.error(
                    f"a vocabulary of {labels} labels and the blank, {rows} rows of the CTC head"
                )
        else:
            embedded, joined = self.axis(EMBEDDING, 0), self.axis(HEAD, 0)
            labels = (embedded or 0) - 1 if stated.vocab_size is None else stated.vocab_size
            counts = len(stated.durations)
            if (
                embedded is not None
                and joined is not None
                and not embedded == joined - counts == labels + 1
            ):
                raise self.error(
                    f"a vocabulary of {labels} labels and the blank, {embedded} rows of the "
                    f"embedding, {joined} rows of the joint network for it and {counts} durations"
                )
        if not 0 < labels < 1 << 24:
            raise self.error(f"a vocabulary of {labels} labels")
        return labels


@dataclass(frozen=True, slots=True)
class StatedConfig:
    """Values that a configuration states; None for those to be taken from tensor shapes."""

    decoder_type: str  # CTC, RNN-T or TDT
    has_ctc: bool
    n_mels: int | None
    d_model: int | None
    n_heads: int | None
    n_layers: int | None
    ff_dim: int | None
    conv_kernel_size: int | None
    subsampling_channels: int | None
    subsampling_factor: int
    xscaling: bool
    vocab_size: int | None
    predictor_dim: int | None
    predictor_layers: int | None
    joint_dim: int | None
    durations: tuple[int, ...]
    max_symbols: int
    vocabulary: object  # the list of tokens, not checked yet
    attention_window: tuple[int, int] | None


class ParakeetConfigReader(ConfigReader):
    """Reads values of a configuration by key, with the checks that Parakeets need.

    Null and OmegaConf's missing value count as not stated: NeMo writes all fields of its decoding
    configuration into a model that it saves again, and most of them are unset.
    """

    def get(self, key: str, default: Any = None) -> Any:
        """The value at a key; `default` if it is missing, null or unset."""
        value = super().get(key, default)
        if value == _MISSING or (value is None and key not in _NULL_IS_A_VALUE):
            return default
        return value

    def refuse_streaming(self, key: str, allowed: Sequence[object]) -> None:
        """Raise CheckpointError if the value is that of a cache-aware streaming model."""
        value = self.get(key, allowed[0])
        if value not in allowed:
            raise CheckpointError(
                self.path,
                f"is a cache-aware streaming model ({key} = {str(value)[:40]!r})",
                "these are not supported yet",
            )

    def durations(self, *keys: str) -> tuple[int, ...]:
        """TDT durations in encoder frames; all keys that have them must agree.

        An empty list counts as not stated: NeMo writes it into transducers without durations.
        """
        found = {key: value for key in keys if (value := self.get(key)) not in (None, [])}
        for key, value in found.items():
            if (
                not isinstance(value, list)
                or any(type(frames) is not int or not 0 <= frames < 1000 for frames in value)
                or sorted(set(value)) != value
                or not any(value)
            ):
                raise self.error(
                    key,
                    value,
                    "durations must be increasing numbers of frames, at least one above 0",
                )
        if len({tuple(value) for value in found.values()}) > 1:
            stated = " and ".join(f"{key} = {value}" for key, value in found.items())
            raise CheckpointError(self.path, f"its durations differ: {stated[:200]}")
        return tuple(next(iter(found.values()), ()))

    def max_symbols(self, *keys: str) -> int:
        """Maximum tokens per encoder frame; MAX_SYMBOLS where the configuration has no value.

        Null is no limit in NeMo; here it is MAX_SYMBOLS, because decoding might not end otherwise.
        """
        for key in keys:
            value = self.get(key)
            if value is None:
                continue
            if type(value) is not int or not 0 < value < 1 << 16:
                raise self.error(key, value, "must be above 0")
            return value
        if any(super(ParakeetConfigReader, self).get(key, ABSENT) is None for key in keys):
            message = "%s: no limit of tokens per frame; using %d"
            log.warning(message, self.path, MAX_SYMBOLS)
        return MAX_SYMBOLS


def read_stated_config(checkpoint: Checkpoint) -> StatedConfig:
    """The values of config.json, model_config.yaml or the metadata of a GGUF file.

    Raises:
        CheckpointError: no configuration, not that of a Parakeet, that of a streaming model, or a
            value that needs another network or preprocessor than those implemented.
    """
    gguf = checkpoint.format == "gguf"
    config = nemo_config(checkpoint) if gguf else checkpoint.config
    reader = ParakeetConfigReader(checkpoint.path, config)
    if not checkpoint.config:
        raise CheckpointError(
            checkpoint.path, "has no configuration", "put its config.json beside the weights"
        )
    if reader.get("model_type") is not None:
        return _hugging_face(reader, checkpoint.folder)
    return _read_nemo_config(reader)


def _hugging_face(reader: ParakeetConfigReader, folder: Path) -> StatedConfig:
    model_type = reader.get("model_type")
    if model_type in _STREAMING_TYPES or reader.get("encoder_config.sliding_window"):
        raise CheckpointError(
            reader.path,
            f"is a cache-aware streaming model ({model_type})",
            "these are not supported yet",
        )
    kind = _HUGGING_FACE_TYPES.get(str(model_type))
    if kind is None:
        known = ", ".join(_HUGGING_FACE_TYPES)
        raise reader.error("model_type", model_type, f"supported: {known}")
    at = "encoder_config"
    reader.require(f"{at}.hidden_act", ("silu",))
    reader.require(f"{at}.subsampling_conv_kernel_size", (3,))
    reader.require(f"{at}.subsampling_conv_stride", (2,))
    _check_preprocessor_config(reader, folder)
    transducer = kind != CTC
    if transducer:
        reader.require("hidden_act", ("relu",))
    vocabulary = reader.optional_int("vocab_size")
    blank = reader.get("blank_token_id" if transducer else "pad_token_id")
    if vocabulary is not None and blank is not None and blank != vocabulary - 1:
        key = "blank_token_id" if transducer else "pad_token_id"
        raise reader.error(key, blank, f"the blank must be the last of the {vocabulary} tokens")
    durations = reader.durations("durations") if kind == TDT else ()
    if kind == TDT and not durations:
        raise reader.error("durations", reader.get("durations"), "TDT needs durations")
    width = reader.optional_int("decoder_hidden_size") if transducer else None
    return StatedConfig(
        decoder_type=kind,
        has_ctc=not transducer,
        n_mels=reader.optional_int(f"{at}.num_mel_bins"),
        d_model=reader.optional_int(f"{at}.hidden_size"),
        n_heads=reader.optional_int(f"{at}.num_attention_heads"),
        n_layers=reader.optional_int(f"{at}.num_hidden_layers"),
        ff_dim=reader.optional_int(f"{at}.intermediate_size"),
        conv_kernel_size=reader.optional_int(f"{at}.conv_kernel_size"),
        subsampling_channels=reader.optional_int(f"{at}.subsampling_conv_channels"),
        subsampling_factor=_subsampling_factor(reader, f"{at}.subsampling_factor"),
        xscaling=_xscaling(reader, f"{at}.scale_input", kind),
        vocab_size=None if vocabulary is None else vocabulary - 1,
        predictor_dim=width,
        predictor_layers=reader.optional_int("num_decoder_layers") if transducer else None,
        joint_dim=width,
        durations=durations,
        max_symbols=_max_symbols(reader, transducer, "max_symbols_per_step"),
        vocabulary=reader.get("labels"),
        attention_window=None,
    )


def _check_preprocessor_config(reader: ParakeetConfigReader, folder: Path) -> None:
    """Check the preprocessor's values, which transformers keeps in a file of their own."""
    for name in ("processor_config.json", "preprocessor_config.json"):
        settings = read_json(folder / name)
        settings = settings.get("feature_extractor", settings)
        if not isinstance(settings, dict):
            raise CheckpointError(folder / name, "its feature_extractor must be an object")
        beside = ConfigReader(folder / name, settings)
        for key, allowed in _HUGGING_FACE_PREPROCESSOR.items():
            beside.require(key, allowed)
        size, mels = (
            beside.optional_int("feature_size"),
            reader.optional_int("encoder_config.num_mel_bins"),
        )
        if size is not None and mels is not None and size != mels:
            raise beside.error("feature_size", size, f"the network has {mels} mel bins")


def _read_nemo_config(reader: ParakeetConfigReader) -> StatedConfig:
    transducer, has_ctc = _nemo_decoders(reader)
    _check_nemo_supported(reader)
    kind = CTC
    durations: tuple[int, ...] = ()
    if transducer:
        durations = reader.durations(
            "model_defaults.tdt_durations", "decoding.durations", "loss.tdt_kwargs.durations"
        )
        extra = reader.get("joint.num_extra_outputs") or 0
        model_type = reader.get("decoding.model_type")
        kind = TDT if durations or extra or model_type == "tdt" else RNNT
        if kind == TDT and not durations:
            raise reader.error("model_defaults.tdt_durations", None, "TDT needs durations")
        if extra != len(durations):
            raise reader.error("joint.num_extra_outputs", extra, f"durations: {len(durations)}")
    width, expansion = (
        reader.optional_int("encoder.d_model"),
        reader.get("encoder.ff_expansion_factor", 4),
    )
    if type(expansion) is not int or not 0 < expansion < 64:
        raise reader.error("encoder.ff_expansion_factor", expansion)
    listed = next(
        (
            reader.get(key)
            for key in ("joint.vocabulary", "decoder.vocabulary", "labels")
            if reader.get(key)
        ),
        None,
    )
    context = _attention_window(reader)
    return StatedConfig(
        decoder_type=kind,
        has_ctc=has_ctc,
        n_mels=reader.optional_int("preprocessor.features", "encoder.feat_in"),
        d_model=width,
        n_heads=reader.optional_int("encoder.n_heads"),
        n_layers=reader.optional_int("encoder.n_layers"),
        ff_dim=None if width is None else width * expansion,
        conv_kernel_size=reader.optional_int("encoder.conv_kernel_size"),
        subsampling_channels=reader.optional_int("encoder.subsampling_conv_channels") or width,
        subsampling_factor=_subsampling_factor(reader, "encoder.subsampling_factor"),
        xscaling=_xscaling(reader, "encoder.xscaling", kind),
        vocab_size=_nemo_vocab_size(reader, transducer),
        predictor_dim=reader.optional_int("decoder.prednet.pred_hidden") if transducer else None,
        predictor_layers=reader.optional_int("decoder.prednet.pred_rnn_layers")
        if transducer
        else None,
        joint_dim=reader.optional_int("joint.jointnet.joint_hidden") if transducer else None,
        durations=durations,
        max_symbols=_max_symbols(
            reader,
            transducer,
            "decoding.greedy.max_symbols",
            "decoding.greedy.max_symbols_per_step",
        ),
        vocabulary=listed,
        attention_window=context,
    )


def _nemo_decoders(reader: ParakeetConfigReader) -> tuple[bool, bool]:
    """(has a transducer, has a CTC head), from NeMo's class or parts."""
    target = str(reader.get("target", ""))
    if not target and reader.get("joint"):  # some conversions drop the target
        return True, bool(reader.get("aux_ctc"))
    found = _NEMO_DECODERS.get(target.rpartition(".")[2])
    if found is None:
        raise reader.error("target", target, f"supported: {', '.join(_NEMO_DECODERS)}")
    return found


def _check_nemo_supported(reader: ParakeetConfigReader) -> None:
    reader.refuse_streaming("encoder.causal_downsampling", (False,))
    reader.refuse_streaming("encoder.conv_norm_type", ("batch_norm", "group_norm", "instance_norm"))
    reader.refuse_streaming("encoder.att_context_style", ("regular",))
    kernel = reader.get("encoder.conv_kernel_size")
    half = (kernel - 1) // 2 if type(kernel) is int else -1
    reader.refuse_streaming("encoder.conv_context_size", (None, [half, half]))
    reader.refuse_streaming("preprocessor.normalize", ("per_feature", "all_features"))
    for key, allowed in _NEMO_PREPROCESSOR.items():
        reader.require(f"preprocessor.{key}", allowed)
    reader.require("encoder.conv_norm_type", ("batch_norm",))
    reader.require("encoder.subsampling", ("dw_striding",))
    reader.require("encoder.self_attention_model", ("rel_pos", "rel_pos_local_attn"))
    reader.require("encoder.untie_biases", (True,))
    reader.require("encoder.reduction", (None,))
    reader.require("encoder.global_tokens", (0,))
    reader.require("encoder.feat_out", (-1, reader.get("encoder.d_model", -1)))
    encoder = str(reader.get("encoder._target_", "ConformerEncoder"))
    if encoder.rpartition(".")[2] != "ConformerEncoder":
        raise reader.error("encoder._target_", encoder, "supported: ConformerEncoder")
    reader.require("decoder.blank_as_pad", (True,))
    reader.require("decoder.normalization_mode", (None,))
    reader.require("joint.jointnet.activation", ("relu",))
    if reader.get("tokenizer.type") == "agg" or reader.get("tokenizer.langs"):
        raise reader.error("tokenizer.type", "agg", "aggregate tokenizers are not supported")


def _attention_window(reader: ParakeetConfigReader) -> tuple[int, int] | None:
    """Encoder frames (left, right) of local attention; None: global. NeMo may nest it in a list."""
    key = "encoder.att_context_size"
    context = reader.get(key) or [-1, -1]
    if isinstance(context, list) and len(context) == 1:
        context = context[0]
    if (
        not isinstance(context, list)
        or len(context) != 2
        or any(type(frames) is not int or frames < -1 for frames in context)
        or (context != [-1, -1] and reader.get("encoder.self_attention_model") != _LOCAL_ATTENTION)
    ):
        raise reader.error(key, context, "supported: [-1, -1]")
    return None if context == [-1, -1] else (context[0], context[1])


def _nemo_vocab_size(reader: ParakeetConfigReader, transducer: bool) -> int | None:
    keys = ("decoder.vocab_size", "joint.num_classes") if transducer else ("decoder.num_classes",)
    found = {key: value for key in keys if (value := reader.optional_int(key)) is not None}
    if len(set(found.values())) > 1:
        numbers = " and ".join(f"{key} = {value}" for key, value in found.items())
        raise CheckpointError(reader.path, f"its vocabulary sizes differ: {numbers}")
    return next(iter(found.values()), None)


def _max_symbols(reader: ParakeetConfigReader, transducer: bool, *keys: str) -> int:
    return reader.max_symbols(*keys) if transducer else 0


def _subsampling_factor(reader: ParakeetConfigReader, key: str) -> int:
    factor = reader.get(key, 8)
    if type(factor) is not int or factor not in (4, 8):
        raise reader.error(key, factor, "supported: 4 and 8")
    return factor


def _xscaling(reader: ParakeetConfigReader, key: str, kind: str) -> bool:
    """Whether inputs are scaled; true where the key is missing, as in NeMo and transformers.

    No released TDT model scales its inputs, so a missing key there gets a warning. Null is false.
    """
    value = ConfigReader.get(reader, key, ABSENT)
    if value is None:
        return False
    if value is ABSENT and kind == TDT:
        log.warning("%s: has no %s; using true, NeMo's default", reader.path, key)
        return True
    return reader.boolean(key, True)
