"""What a checkpoint's configuration states, in NeMo's words or in transformers'.

Keys and defaults: NeMo conformer_encoder.py and the model_config.yaml of the releases; transformers
configuration_parakeet.py. What would change the network and is not built is refused by name here.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oscine.errors import CheckpointError
from oscine.model_files import read_json
from oscine.models.stated import ABSENT, Stated
from oscine.weights import Checkpoint

log = logging.getLogger(__name__)

CTC, RNNT, TDT = "CTC", "RNN-T", "TDT"
_NEMO_CLASSES = {
    "EncDecCTCModelBPE": (False, True),
    "EncDecRNNTBPEModel": (True, False),
    "EncDecHybridRNNTCTCBPEModel": (True, True),
}
_HUGGING_FACE_TYPES = {"parakeet_ctc": CTC, "parakeet_rnnt": RNNT, "parakeet_tdt": TDT}
_STREAMING_TYPES = ("nemotron_asr_streaming", "parakeet_realtime_eou")

_LOCAL = "rel_pos_local_attn"
MOST_SYMBOLS = 10  # of a frame where nothing is stated, as in NeMo

#: The front end that is built; a configuration may repeat it, and state nothing else.
_NEMO_FRONT_END: dict[str, tuple[object, ...]] = {
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
_HUGGING_FACE_FRONT_END: dict[str, tuple[object, ...]] = {
    "sampling_rate": (16000,),
    "n_fft": (512,),
    "hop_length": (160,),
    "win_length": (400,),
    "preemphasis": (0.97,),
}

#: Where null is a value of its own for NeMo: no window, no scaling and so on.
_NULL_IS_A_VALUE = frozenset(
    {
        *(f"preprocessor.{key}" for key in ("window", "preemph", "log", "mel_norm", "normalize")),
        "encoder.subsampling",
        "encoder.untie_biases",
        "decoder.blank_as_pad",
    }
)
_MISSING = "???"  # how OmegaConf writes a value that was never set


@dataclass(frozen=True, slots=True)
class Settings:
    """None: not stated, to be told from the shapes of tensors."""

    kind: str  # CTC, RNN-T or TDT
    has_ctc: bool
    n_mels: int | None
    width: int | None
    heads: int | None
    layers: int | None
    inner: int | None
    kernel: int | None
    channels: int | None
    factor: int
    scaled: bool
    labels: int | None
    predictor: int | None
    predictor_layers: int | None
    joint: int | None
    durations: tuple[int, ...]
    most_symbols: int
    listed: object  # the labels themselves
    context: tuple[int, int] | None


class ParakeetStated(Stated):
    """The same with looks that only these models need.

    Null and OmegaConf's missing value count as not stated: NeMo writes all fields of its decoding's
    configuration into a model that it saves again, and most of them are unset.
    """

    def get(self, key: str, default: Any = None) -> Any:
        """The value at a key; `default` where there is none, or none that means anything."""
        value = super().get(key, default)
        if value == _MISSING or (value is None and key not in _NULL_IS_A_VALUE):
            return default
        return value

    def streaming(self, key: str, allowed: Sequence[object]) -> None:
        """Raise if the model is one of those that are trained to be streamed."""
        value = self.get(key, allowed[0])
        if value not in allowed:
            raise CheckpointError(
                self.path,
                f"is a cache-aware streaming model ({key} = {str(value)[:40]!r})",
                "these are not supported yet",
            )

    def durations(self, *keys: str) -> tuple[int, ...]:
        """Those of TDT, in frames; all places that state them must agree.

        An empty list states nothing: NeMo writes it into transducers without durations.
        """
        found = {key: value for key in keys if (value := self.get(key)) not in (None, [])}
        for key, value in found.items():
            if (
                not isinstance(value, list)
                or any(type(frames) is not int or not 0 <= frames < 1000 for frames in value)
                or sorted(set(value)) != value
                or not any(value)
            ):
                raise self.wrong(key, value, "durations are frames, rising, at least one above 0")
        if len({tuple(value) for value in found.values()}) > 1:
            stated = " and ".join(f"{key} = {value}" for key, value in found.items())
            raise CheckpointError(self.path, f"its durations disagree: {stated[:200]}")
        return tuple(next(iter(found.values()), ()))

    def most_symbols(self, *keys: str) -> int:
        """Labels at one frame, MOST_SYMBOLS where nothing is stated.

        Null means no limit for NeMo, but without one decoding might hang.
        """
        for key in keys:
            value = self.get(key)
            if value is None:
                continue
            if type(value) is not int or not 0 < value < 1 << 16:
                raise self.wrong(key, value, "a transducer needs a limit above 0")
            return value
        if any(super(ParakeetStated, self).get(key, ABSENT) is None for key in keys):
            told = "%s: sets no limit to the labels of one frame; %d are taken at most"
            log.warning(told, self.path, MOST_SYMBOLS)
        return MOST_SYMBOLS


def read_settings(checkpoint: Checkpoint) -> Settings:
    """What config.json or model_config.yaml states.

    Raises:
        CheckpointError: none there, of no Parakeet, of a streaming one, or with a value that asks
            for another network or front end than the one that is built.
    """
    stated = ParakeetStated(checkpoint.path, checkpoint.config)
    if not checkpoint.config:
        raise CheckpointError(
            checkpoint.path, "has no configuration", "put its config.json beside the weights"
        )
    if stated.get("model_type") is not None:
        return _hugging_face(stated, checkpoint.folder)
    return _nemo(stated)


def _hugging_face(stated: ParakeetStated, folder: Path) -> Settings:
    model_type = stated.get("model_type")
    if model_type in _STREAMING_TYPES or stated.get("encoder_config.sliding_window"):
        raise CheckpointError(
            stated.path,
            f"is a cache-aware streaming model ({model_type})",
            "these are not supported yet",
        )
    kind = _HUGGING_FACE_TYPES.get(str(model_type))
    if kind is None:
        known = ", ".join(_HUGGING_FACE_TYPES)
        raise stated.wrong("model_type", model_type, f"supported: {known}")
    at = "encoder_config"
    stated.only(f"{at}.hidden_act", ("silu",))
    stated.only(f"{at}.subsampling_conv_kernel_size", (3,))
    stated.only(f"{at}.subsampling_conv_stride", (2,))
    _front_end_beside(stated, folder)
    transducer = kind != CTC
    if transducer:
        stated.only("hidden_act", ("relu",))
    vocabulary = stated.whole("vocab_size")
    blank = stated.get("blank_token_id" if transducer else "pad_token_id")
    if vocabulary is not None and blank is not None and blank != vocabulary - 1:
        key = "blank_token_id" if transducer else "pad_token_id"
        raise stated.wrong(key, blank, f"the blank is the last of its {vocabulary} labels")
    durations = stated.durations("durations") if kind == TDT else ()
    if kind == TDT and not durations:
        raise stated.wrong("durations", stated.get("durations"), "TDT needs them")
    width = stated.whole("decoder_hidden_size") if transducer else None
    return Settings(
        kind=kind,
        has_ctc=not transducer,
        n_mels=stated.whole(f"{at}.num_mel_bins"),
        width=stated.whole(f"{at}.hidden_size"),
        heads=stated.whole(f"{at}.num_attention_heads"),
        layers=stated.whole(f"{at}.num_hidden_layers"),
        inner=stated.whole(f"{at}.intermediate_size"),
        kernel=stated.whole(f"{at}.conv_kernel_size"),
        channels=stated.whole(f"{at}.subsampling_conv_channels"),
        factor=_factor(stated, f"{at}.subsampling_factor"),
        scaled=_scaled(stated, f"{at}.scale_input", kind),
        labels=None if vocabulary is None else vocabulary - 1,
        predictor=width,
        predictor_layers=stated.whole("num_decoder_layers") if transducer else None,
        joint=width,
        durations=durations,
        most_symbols=_most_symbols(stated, transducer, "max_symbols_per_step"),
        listed=stated.get("labels"),
        context=None,
    )


def _front_end_beside(stated: ParakeetStated, folder: Path) -> None:
    """transformers keeps the front end's numbers in a file of their own, newer ones in another."""
    for name in ("processor_config.json", "preprocessor_config.json"):
        settings = read_json(folder / name)
        settings = settings.get("feature_extractor", settings)
        if not isinstance(settings, dict):
            raise CheckpointError(folder / name, "its feature_extractor is no object")
        beside = Stated(folder / name, settings)
        for key, allowed in _HUGGING_FACE_FRONT_END.items():
            beside.only(key, allowed)
        size, mels = beside.whole("feature_size"), stated.whole("encoder_config.num_mel_bins")
        if size is not None and mels is not None and size != mels:
            raise beside.wrong("feature_size", size, f"the network takes {mels} mels")


def _nemo(stated: ParakeetStated) -> Settings:
    transducer, has_ctc = _nemo_class(stated)
    _refuse_nemo(stated)
    kind = CTC
    durations: tuple[int, ...] = ()
    if transducer:
        durations = stated.durations(
            "model_defaults.tdt_durations", "decoding.durations", "loss.tdt_kwargs.durations"
        )
        extra = stated.get("joint.num_extra_outputs") or 0
        model_type = stated.get("decoding.model_type")
        kind = TDT if durations or extra or model_type == "tdt" else RNNT
        if kind == TDT and not durations:
            raise stated.wrong("model_defaults.tdt_durations", None, "TDT needs its durations")
        if extra != len(durations):
            raise stated.wrong("joint.num_extra_outputs", extra, f"durations: {len(durations)}")
    width, expansion = stated.whole("encoder.d_model"), stated.get("encoder.ff_expansion_factor", 4)
    if type(expansion) is not int or not 0 < expansion < 64:
        raise stated.wrong("encoder.ff_expansion_factor", expansion)
    listed = next(
        (
            stated.get(key)
            for key in ("joint.vocabulary", "decoder.vocabulary", "labels")
            if stated.get(key)
        ),
        None,
    )
    context = _context(stated)
    return Settings(
        kind=kind,
        has_ctc=has_ctc,
        n_mels=stated.whole("preprocessor.features", "encoder.feat_in"),
        width=width,
        heads=stated.whole("encoder.n_heads"),
        layers=stated.whole("encoder.n_layers"),
        inner=None if width is None else width * expansion,
        kernel=stated.whole("encoder.conv_kernel_size"),
        channels=stated.whole("encoder.subsampling_conv_channels") or width,
        factor=_factor(stated, "encoder.subsampling_factor"),
        scaled=_scaled(stated, "encoder.xscaling", kind),
        labels=_nemo_labels(stated, transducer),
        predictor=stated.whole("decoder.prednet.pred_hidden") if transducer else None,
        predictor_layers=stated.whole("decoder.prednet.pred_rnn_layers") if transducer else None,
        joint=stated.whole("joint.jointnet.joint_hidden") if transducer else None,
        durations=durations,
        most_symbols=_most_symbols(
            stated,
            transducer,
            "decoding.greedy.max_symbols",
            "decoding.greedy.max_symbols_per_step",
        ),
        listed=listed,
        context=context,
    )


def _nemo_class(stated: ParakeetStated) -> tuple[bool, bool]:
    """Whether there is a transducer, and whether there is a CTC head."""
    target = str(stated.get("target", ""))
    if not target and stated.get("joint"):  # some conversions keep the parts alone
        return True, bool(stated.get("aux_ctc"))
    found = _NEMO_CLASSES.get(target.rpartition(".")[2])
    if found is None:
        raise stated.wrong("target", target, f"supported: {', '.join(_NEMO_CLASSES)}")
    return found


def _refuse_nemo(stated: ParakeetStated) -> None:
    stated.streaming("encoder.causal_downsampling", (False,))
    stated.streaming("encoder.conv_norm_type", ("batch_norm", "group_norm", "instance_norm"))
    stated.streaming("encoder.att_context_style", ("regular",))
    kernel = stated.get("encoder.conv_kernel_size")
    half = (kernel - 1) // 2 if type(kernel) is int else -1
    stated.streaming("encoder.conv_context_size", (None, [half, half]))
    stated.streaming("preprocessor.normalize", ("per_feature", "all_features"))
    for key, allowed in _NEMO_FRONT_END.items():
        stated.only(f"preprocessor.{key}", allowed)
    stated.only("encoder.conv_norm_type", ("batch_norm",))
    stated.only("encoder.subsampling", ("dw_striding",))
    stated.only("encoder.self_attention_model", ("rel_pos", "rel_pos_local_attn"))
    stated.only("encoder.untie_biases", (True,))
    stated.only("encoder.reduction", (None,))
    stated.only("encoder.global_tokens", (0,))
    stated.only("encoder.feat_out", (-1, stated.get("encoder.d_model", -1)))
    encoder = str(stated.get("encoder._target_", "ConformerEncoder"))
    if encoder.rpartition(".")[2] != "ConformerEncoder":
        raise stated.wrong("encoder._target_", encoder, "supported: ConformerEncoder")
    stated.only("decoder.blank_as_pad", (True,))
    stated.only("decoder.normalization_mode", (None,))
    stated.only("joint.jointnet.activation", ("relu",))
    if stated.get("tokenizer.type") == "agg" or stated.get("tokenizer.langs"):
        raise stated.wrong("tokenizer.type", "agg", "aggregate tokenizers are not supported")


def _context(stated: ParakeetStated) -> tuple[int, int] | None:
    """Frames that attention sees on either side; None: all. NeMo also writes a list of one pair."""
    key = "encoder.att_context_size"
    context = stated.get(key) or [-1, -1]
    if isinstance(context, list) and len(context) == 1:
        context = context[0]
    if (
        not isinstance(context, list)
        or len(context) != 2
        or any(type(frames) is not int or frames < -1 for frames in context)
        or (context != [-1, -1] and stated.get("encoder.self_attention_model") != _LOCAL)
    ):
        raise stated.wrong(key, context, "supported: [-1, -1]")
    return None if context == [-1, -1] else (context[0], context[1])


def _nemo_labels(stated: ParakeetStated, transducer: bool) -> int | None:
    keys = ("decoder.vocab_size", "joint.num_classes") if transducer else ("decoder.num_classes",)
    found = {key: value for key in keys if (value := stated.whole(key)) is not None}
    if len(set(found.values())) > 1:
        numbers = " and ".join(f"{key} = {value}" for key, value in found.items())
        raise CheckpointError(stated.path, f"its vocabularies disagree: {numbers}")
    return next(iter(found.values()), None)


def _most_symbols(stated: ParakeetStated, transducer: bool, *keys: str) -> int:
    return stated.most_symbols(*keys) if transducer else 0


def _factor(stated: ParakeetStated, key: str) -> int:
    factor = stated.get(key, 8)
    if type(factor) is not int or factor not in (4, 8):
        raise stated.wrong(key, factor, "supported: 4 and 8")
    return factor


def _scaled(stated: ParakeetStated, key: str, kind: str) -> bool:
    """Both programs take true where nothing is said, yet no released TDT model is so.

    Null is false for both.
    """
    value = Stated.get(stated, key, ABSENT)
    if value is None:
        return False
    if value is ABSENT and kind == TDT:
        log.warning("%s: says nothing of %s; taking true, as NeMo does", stated.path, key)
        return True
    return stated.flag(key, True)
