"""A Parakeet checkpoint's sizes: what its configuration states, held against its tensors."""

from __future__ import annotations

from pathlib import Path

from oscine.errors import CheckpointError
from oscine.models.parakeet.config import ParakeetConfig
from oscine.models.parakeet.names import Names
from oscine.models.parakeet.settings import CTC, Settings
from oscine.weights import Entry

#: Filters are computed for every one of them; released models have 80 or 128.
MAX_MELS = 1 << 10
_BLOCK = "encoder.layers.0"
_LSTM = "decoder.prediction.dec_rnn.lstm"
EMBEDDING, HEAD = "decoder.prediction.embed.weight", "joint.joint_net.2.weight"


def read_config(path: Path, settings: Settings, names: Names) -> ParakeetConfig:
    """Sizes that are stated or else seen in the shapes of tensors.

    Raises:
        CheckpointError: a size is neither stated nor to be seen, or two contradict each other in a
            way that a comparison of shapes would not explain.
    """
    sizes = _Sizes(path, names)
    conv = "encoder.pre_encode.conv.0.weight"
    channels = sizes.find(settings.channels, conv, 0, "subsampling_conv_channels")
    n_mels = sizes.mels(settings.n_mels, channels, settings.factor)
    width = sizes.find(settings.width, "encoder.pre_encode.out.weight", 0, "d_model")
    heads = sizes.find(settings.heads, f"{_BLOCK}.self_attn.pos_bias_u", 0, "n_heads")
    if width % heads or width % 2:
        raise sizes.error(f"{heads} heads do not divide width {width}, which must be even")
    kernel = sizes.find(settings.kernel, f"{_BLOCK}.conv.depthwise_conv.weight", 2, "conv kernel")
    if kernel % 2 == 0:
        raise sizes.error(f"a convolution kernel of {kernel} has no middle")
    transducer = settings.kind != CTC
    predictor = predictor_layers = joint = 0
    if transducer:
        predictor = sizes.find(settings.predictor, EMBEDDING, 1, "pred_hidden")
        predictor_layers = sizes.layers(settings.predictor_layers, f"{_LSTM}.weight_ih_l", "LSTM")
        joint = sizes.find(settings.joint, "joint.enc.weight", 0, "joint_hidden")
    return ParakeetConfig(
        n_mels=n_mels,
        width=width,
        heads=heads,
        layers=sizes.layers(settings.layers, "encoder.layers.", "encoder"),
        inner=sizes.find(settings.inner, f"{_BLOCK}.feed_forward1.linear1.weight", 0, "inner"),
        kernel=kernel,
        channels=channels,
        factor=settings.factor,
        scaled=settings.scaled,
        labels=sizes.labels(settings, transducer),
        predictor=predictor,
        predictor_layers=predictor_layers,
        joint=joint,
        durations=settings.durations,
        most_symbols=settings.most_symbols,
        has_ctc=settings.has_ctc,
        context=settings.context,
    )


def frequencies(mels: int, factor: int) -> int:
    """Bins left of `mels` once time and frequency have been halved to 1/factor, rounding up."""
    return -(-mels // factor)


class _Sizes:
    def __init__(self, path: Path, names: Names) -> None:
        self.path = path
        self.names = names
        self.entries: dict[str, Entry] = names.entries

    def error(self, problem: str) -> CheckpointError:
        return CheckpointError(self.path, problem)

    def axis(self, tensor: str, axis: int) -> int | None:
        """A tensor's size along one axis; None where there is no such tensor or axis."""
        shape = self.entries[tensor].shape if tensor in self.entries else ()
        return shape[axis] if len(shape) > axis and shape[axis] > 0 else None

    def find(self, stated: int | None, tensor: str, axis: int, what: str) -> int:
        found = stated if stated is not None else self.axis(tensor, axis)
        if found is None:
            missing = f"{self.names.own(tensor)} (or {what} in the configuration)"
            raise CheckpointError.tensors(self.path, missing=[missing])
        return found

    def mels(self, stated: int | None, channels: int, factor: int) -> int:
        columns = self.axis("encoder.pre_encode.out.weight", 1)
        if columns is None or columns % channels:
            # The comparison of all tensors says more.
            return self.find(stated, "encoder.pre_encode.out.weight", 1, "features")
        seen = columns // channels
        mels = seen * factor if stated is None else stated
        if mels > MAX_MELS:
            raise self.error(f"has features of {mels} mels, more than {MAX_MELS}")
        if frequencies(mels, factor) != seen:
            raise self.error(
                f"its features have {mels} mels, its network is made for {seen * factor}"
            )
        return mels

    def layers(self, stated: int | None, prefix: str, what: str) -> int:
        numbers = {
            int(part)
            for name in self.entries
            if name.startswith(prefix)
            and (part := name.removeprefix(prefix).split(".")[0]).isdecimal()
            and len(part) < 6
        }
        found = max(numbers, default=-1) + 1 if stated is None else stated
        if not 0 < found <= len(self.entries):  # before anything is made for each of them
            raise self.error(f"{found} {what} layers cannot lie in {len(self.entries)} tensors")
        return found

    def labels(self, settings: Settings, transducer: bool) -> int:
        """V, on which the configuration, the embedding and the joint network must agree."""
        if not transducer:
            rows = self.axis("ctc.weight", 0)
            labels = (rows or 0) - 1 if settings.labels is None else settings.labels
            if rows is not None and labels + 1 != rows:
                raise self.error(
                    f"a vocabulary of {labels} labels and the blank, {rows} rows of the CTC head"
                )
        else:
            embedded, joined = self.axis(EMBEDDING, 0), self.axis(HEAD, 0)
            labels = (embedded or 0) - 1 if settings.labels is None else settings.labels
            counts = len(settings.durations)
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
