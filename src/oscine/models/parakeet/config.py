"""Sizes of a Parakeet checkpoint.

Source: NeMo's model_config.yaml and transformers' configuration_parakeet.py.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ParakeetConfig:
    """Read from the checkpoint, cross-checked against tensor shapes; never defaulted over it."""

    n_mels: int
    width: int  # d, of the encoder
    heads: int
    layers: int
    inner: int  # of the feed-forwards, 4d
    kernel: int  # of the depthwise convolution in time, odd
    channels: int  # of the subsampling
    factor: int  # mel frames an encoder frame: 8
    scaled: bool  # whether the subsampled input is multiplied by √d (folded into the weights)
    labels: int  # V, without blank; the blank's id is V
    predictor: int  # P, width of embedding and LSTM; 0 without a transducer
    predictor_layers: int
    joint: int  # width of the joint network; 0 without a transducer
    durations: tuple[int, ...]  # of TDT in encoder frames; empty for RNN-T and CTC
    most_symbols: int  # labels at one frame before time is moved on by force
    has_ctc: bool
    #: Frames to the left and right that attention was trained to see; None: all.
    context: tuple[int, int] | None = None

    @property
    def blank(self) -> int:
        """The id of the blank."""
        return self.labels

    @property
    def transducer(self) -> bool:
        """Whether there is a prediction and a joint network."""
        return self.predictor > 0

    @property
    def frame_seconds(self) -> float:
        """Length of an encoder frame: mel frames are 10 ms."""
        return self.factor / 100
