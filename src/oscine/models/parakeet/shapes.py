"""Which tensors a Parakeet of given sizes has, under NeMo's names, and their shapes."""

from __future__ import annotations

from collections.abc import Collection

from oscine.models.parakeet.config import ParakeetConfig
from oscine.models.parakeet.sizes import frequencies

Shapes = dict[str, tuple[int, ...]]

NORMS = ("norm_feed_forward1", "norm_self_att", "norm_conv", "norm_feed_forward2", "norm_out")
ATTENTION = ("linear_q", "linear_k", "linear_v", "linear_out")
LSTM = "decoder.prediction.dec_rnn.lstm"


def expected_shapes(config: ParakeetConfig, present: Collection[str], one_bias: bool) -> Shapes:
    """Names and shapes of all tensors.

    Biases of the blocks are optional, but by kind: where one layer has them all must. `present`
    are the names that are there; `one_bias`: LSTM layers have the sum of their two biases.
    """
    shapes = _subsampling(config)
    biased = Biased.seen(present)
    for layer in range(config.layers):
        shapes |= _block(config, f"encoder.layers.{layer}", biased)
    if config.transducer:
        shapes |= _transducer(config, one_bias)
    if config.has_ctc:
        shapes |= {
            "ctc.weight": (config.labels + 1, config.width, 1),
            "ctc.bias": (config.blank + 1,),
        }
    return shapes


class Biased:
    """Whether feed-forwards and attention have biases, and whether convolutions have them."""

    def __init__(self, linear: bool, convolution: bool) -> None:
        self.linear, self.convolution = linear, convolution

    @classmethod
    def seen(cls, present: Collection[str]) -> Biased:
        """One bias is enough to make the others expected."""
        biases = [n for n in present if n.startswith("encoder.layers.") and n.endswith(".bias")]
        convolution = any("_conv" in n.split(".")[-2] and ".norm" not in n for n in biases)
        return cls(any(".linear" in n for n in biases), convolution)


def halvings(config: ParakeetConfig) -> range:
    """The first index in NeMo's list of each halving of the subsampling but the first."""
    return range(2, 2 + 3 * (config.factor.bit_length() - 2), 3)


def _linear(name: str, weight: tuple[int, ...], bias: bool = True) -> Shapes:
    return {f"{name}.weight": weight} | ({f"{name}.bias": weight[:1]} if bias else {})


def _subsampling(config: ParakeetConfig) -> Shapes:
    c, at = config.channels, "encoder.pre_encode"
    shapes = _linear(f"{at}.conv.0", (c, 1, 3, 3))
    for index in halvings(config):
        shapes |= _linear(f"{at}.conv.{index}", (c, 1, 3, 3))
        shapes |= _linear(f"{at}.conv.{index + 1}", (c, c, 1, 1))
    bins = frequencies(config.n_mels, config.factor)
    return shapes | _linear(f"{at}.out", (config.width, c * bins))


def _block(config: ParakeetConfig, at: str, biased: Biased) -> Shapes:
    d, inner, kernel = config.width, config.inner, config.kernel
    shapes: Shapes = {}
    for norm in NORMS:
        shapes |= _linear(f"{at}.{norm}", (d,))
    for half in ("feed_forward1", "feed_forward2"):
        shapes |= _linear(f"{at}.{half}.linear1", (inner, d), biased.linear)
        shapes |= _linear(f"{at}.{half}.linear2", (d, inner), biased.linear)
    for part in ATTENTION:
        shapes |= _linear(f"{at}.self_attn.{part}", (d, d), biased.linear)
    shapes |= _linear(f"{at}.self_attn.linear_pos", (d, d), False)
    for part in ("pos_bias_u", "pos_bias_v"):
        shapes[f"{at}.self_attn.{part}"] = (config.heads, d // config.heads)
    shapes |= _linear(f"{at}.conv.pointwise_conv1", (2 * d, d, 1), biased.convolution)
    shapes |= _linear(f"{at}.conv.depthwise_conv", (d, 1, kernel), biased.convolution)
    shapes |= _linear(f"{at}.conv.pointwise_conv2", (d, d, 1), biased.convolution)
    for part in ("weight", "bias", "running_mean", "running_var"):
        shapes[f"{at}.conv.batch_norm.{part}"] = (d,)
    return shapes


def _transducer(config: ParakeetConfig, one_bias: bool) -> Shapes:
    p, labels, joint = config.predictor, config.labels + 1, config.joint
    shapes: Shapes = {"decoder.prediction.embed.weight": (labels, p)}
    for layer in range(config.predictor_layers):
        for part in ("ih", "hh"):
            shapes[f"{LSTM}.weight_{part}_l{layer}"] = (4 * p, p)
            if part == "ih" or not one_bias:
                shapes[f"{LSTM}.bias_{part}_l{layer}"] = (4 * p,)
    shapes |= _linear("joint.enc", (joint, config.width)) | _linear("joint.pred", (joint, p))
    return shapes | _linear("joint.joint_net.2", (labels + len(config.durations), joint))
