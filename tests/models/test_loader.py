"""A builder runs twice: first to compare names and shapes, then to read the same tensors."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oscine.dtypes import BFLOAT16, bf16_to_f32, to_f32
from oscine.errors import CheckpointError
from oscine.models import loader
from oscine.models.loader import (
    ArrayLoader,
    Loader,
    ShapeCheckLoader,
    astype,
    concat,
    load,
    stored_dtype,
)
from oscine.models.parakeet.weights import load_weights as load_parakeet
from oscine.models.qwen3_tts.codec_weights import load_codec
from oscine.models.qwen3_tts.weights import load_weights as load_qwen3_tts
from oscine.models.whisper.weights import load_weights as load_whisper
from oscine.quantized import BLOCK_DTYPES, quantize
from oscine.tree import tree_leaves, tree_paths
from oscine.weights import Checkpoint, LazyTensor, read_checkpoint
from oscine.weights.checkpoint import lazy_tensor
from oscine.weights.safetensors import serialize

GOLDENS = Path(__file__).resolve().parents[1] / "goldens"
PATH = Path("model.safetensors")
CHECKPOINTS = [
    *((load_whisper, name) for name in ("whisper_multi", "whisper_formats/ggml-f16.bin")),
    *((load_whisper, f"whisper_formats/{name}") for name in ("ct2_int8", "mlx_npz", "openai.pt")),
    *((load_parakeet, name) for name in ("parakeet_ctc", "parakeet_tdt", "parakeet_rnnt")),
    *((load_parakeet, f"parakeet_formats/{name}") for name in ("hybrid_gz.nemo", "mlx_q8")),
]
#: Not all of their matrices are cast: tests/models/qwen3_tts/test_weights.py.
SPEAKING = [
    (load_codec, "qwen3_tts/codec/ckpt"),
    *((load_qwen3_tts, f"qwen3_tts/{name}/ckpt") for name in ("base", "custom_voice")),
]
every_checkpoint = pytest.mark.parametrize(("read", "name"), CHECKPOINTS + SPEAKING)

#: A call of a builder: the loader's method, a shape, and the expected names and shapes.
Call = tuple[str, tuple[int, ...], dict[str, tuple[int, ...]]]
CALLS: dict[str, Callable[[int, int], dict[str, tuple[int, ...]]]] = {
    "raw": lambda out, inputs: {"": (out, inputs)},
    "f32": lambda out, inputs: {"": (out, inputs)},
    "linear": lambda out, inputs: {".weight": (out, inputs), ".bias": (out,)},
    "pointwise": lambda out, inputs: {".weight": (out, inputs), ".bias": (out,)},
    "norm": lambda out, _: {".weight": (out,), ".bias": (out,)},
    "rms_norm": lambda out, _: {".weight": (out,)},
}
calls = st.lists(
    st.tuples(st.sampled_from(sorted(CALLS)), st.integers(1, 4), st.integers(1, 4)), max_size=6
)


def called(t: Loader, wanted: list[tuple[str, int, int]]) -> tuple[Any, ...]:
    """A builder of whatever is wanted."""
    last = {"norm": (), "rms_norm": (1e-6,)}
    return tuple(
        getattr(t, method)(f"at.{index}", out, *last.get(method, (inputs,)))
        for index, (method, out, inputs) in enumerate(wanted)
    )


def shapes_of(wanted: list[tuple[str, int, int]]) -> dict[str, tuple[int, ...]]:
    return {
        f"at.{index}{end}": shape
        for index, (method, out, inputs) in enumerate(wanted)
        for end, shape in CALLS[method](out, inputs).items()
    }


def stored(array: np.ndarray) -> LazyTensor:
    return lazy_tensor(array.shape, array.dtype, lambda dtype: array.view(dtype))


def zeros(shapes: dict[str, tuple[int, ...]], dtype: Any = np.float16) -> dict[str, LazyTensor]:
    return {name: stored(np.zeros(shape, dtype)) for name, shape in shapes.items()}


def locked(entry: LazyTensor) -> LazyTensor:
    """A lazy tensor that raises if it is read."""

    def read() -> Any:
        raise AssertionError("read before everything was compared")

    return replace(entry, load=read, load_raw=read)


def locked_weights(checkpoint: Checkpoint) -> dict[str, LazyTensor]:
    """A checkpoint's tensors, which raise if read; integers, which configurations use, do not."""
    return {n: locked(e) if e.dtype.kind == "f" else e for n, e in checkpoint.tensors.items()}


# -- expected tensors are the tensors read ---------------------------------------------------------


@given(calls)
def test_what_is_expected_is_what_is_read(wanted: list[tuple[str, int, int]]) -> None:
    shapes, read = shapes_of(wanted), set()

    def noted(name: str, entry: LazyTensor) -> LazyTensor:
        return replace(entry, load=lambda: read.add(name) or entry.load())

    entries = {name: noted(name, entry) for name, entry in zeros(shapes).items()}
    expect = ShapeCheckLoader(PATH, entries)
    called(expect, wanted)
    assert expect.expected == shapes and not read
    expect.compare()
    found = called(ArrayLoader(PATH, entries), wanted)
    assert read == shapes.keys()
    assert sorted(a.shape for a in tree_leaves(found)) == sorted(shapes.values())


@every_checkpoint
def test_a_family_reads_each_tensor_that_it_expects_and_no_other(
    monkeypatch: pytest.MonkeyPatch, read: Callable[[Checkpoint], Any], name: str
) -> None:
    expected: list[ShapeCheckLoader] = []
    seen: set[str] = set()

    class Noting(ArrayLoader):
        def raw(self, name: str, *shape: int) -> Any:
            seen.add(name)
            return self.checked(super().raw(name, *shape), shape)

        def f32(self, name: str, *shape: int) -> Any:
            seen.add(name)
            return self.checked(super().f32(name, *shape), shape)

        def checked(self, array: Any, shape: tuple[int, ...]) -> Any:
            assert array.shape == shape
            return array

    class Kept(ShapeCheckLoader):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            expected.append(self)

    monkeypatch.setattr(loader, "ArrayLoader", Noting)
    monkeypatch.setattr(loader, "ShapeCheckLoader", Kept)
    read(read_checkpoint(GOLDENS / name))
    assert len(expected) == (2 if read is load_qwen3_tts else 1)  # its codec is a file of its own
    assert seen == {name for expect in expected for name in expect.expected}
    assert all(expect.expected.keys() <= expect.entries.keys() for expect in expected)


@every_checkpoint
def test_a_family_reads_nothing_before_everything_fits(
    read: Callable[[Checkpoint], Any], name: str
) -> None:
    checkpoint = read_checkpoint(GOLDENS / name)
    tensors = locked_weights(checkpoint)
    more = f"{max(tensors, key=len)}x"
    tensors[more] = stored(np.zeros(3, np.float32))
    with pytest.raises(CheckpointError, match=f"unexpected {re.escape(more)}"):
        read(replace(checkpoint, tensors=tensors))


@every_checkpoint
def test_any_tensor_may_be_missing(read: Callable[[Checkpoint], Any], name: str) -> None:
    """Sizes that its shape would tell are stated, so that its absence is seen last of all."""
    checkpoint = read_checkpoint(GOLDENS / name)
    sizes = {} if read is load_parakeet else {"num_mel_bins": 80, "max_source_positions": 12}
    refused = 0
    for absent in checkpoint.tensors:
        tensors = locked_weights(checkpoint)
        del tensors[absent]
        try:
            read(replace(checkpoint, tensors=tensors, config=checkpoint.config | sizes))
        except CheckpointError as error:
            refused += 1
            assert "\n" not in str(error)
        except AssertionError:  # nothing was missing, so it was read
            continue
    assert refused > len(checkpoint.tensors) * 0.8


# -- mismatches -----------------------------------------------------------------------------------

WANTED = [("linear", 3, 2), ("norm", 4, 1), ("raw", 2, 2)]


def refused(entries: dict[str, LazyTensor], **options: Any) -> str:
    with pytest.raises(CheckpointError) as caught:
        load(
            lambda t: called(t, WANTED),
            PATH,
            {name: locked(entry) for name, entry in entries.items()},
            original_name=lambda name: name.replace("at.", "file/"),
            **options,
        )
    return str(caught.value)


@pytest.mark.parametrize("name", shapes_of(WANTED))
def test_each_tensor_that_is_missing_misshapen_or_of_whole_numbers_is_named(name: str) -> None:
    shapes = shapes_of(WANTED)
    own, whole = name.replace("at.", "file/"), zeros(shapes)
    assert f"missing {own}" in refused({n: e for n, e in whole.items() if n != name})
    longer = whole | zeros({name: (*shapes[name], 1)}, np.float32)
    shape = list(shapes[name])
    assert f"wrong shape {own} {[*shape, 1]} float32, not {shape}" in refused(longer)
    counts = refused(whole | zeros({name: shapes[name]}, np.int8))
    assert f"not floating point {own} {shape} int8" in counts and "wrong shape" not in counts


def test_what_is_not_expected_is_named_unless_it_is_ignored_or_unused() -> None:
    entries = zeros(shapes_of(WANTED)) | zeros({"at.more": (2,)}) | zeros({"at.a\nb": (1,)})
    message = refused(entries)
    assert "unexpected 'file/a\\nb', file/more" in message
    assert "'file/a\\nb'" in refused(entries, ignored=lambda name: name == "at.more")
    load(lambda t: called(t, WANTED), PATH, entries, ignored=lambda name: name[3] in "am")


def test_an_unused_tensor_may_be_absent_or_of_any_type_but_not_of_another_shape() -> None:
    def build(t: Loader) -> Any:
        t.ignore("count", 2)
        return t.raw("w", 1)

    whole = zeros({"w": (1,)})
    for beside in ({}, zeros({"count": (2,)}, np.int64), zeros({"count": (2,)})):
        assert load(build, PATH, whole | beside).shape == (1,)
    with pytest.raises(CheckpointError, match=r"wrong shape count \[3\] int64, not \[2\]"):
        load(build, PATH, whole | zeros({"count": (3,)}, np.int64))


def test_a_tensor_is_described_in_one_way() -> None:
    t = ShapeCheckLoader(PATH, {})
    t.raw("w", 2, 3)
    t.f32("w", 2, 3)
    with pytest.raises(AssertionError, match="w is described twice"):
        t.raw("w", 3, 2)


def test_a_network_that_is_far_too_large_is_refused_without_making_it() -> None:
    def build(t: Loader) -> Any:
        width = 1 << 40
        layers = [t.linear(f"layers.{i}", width, width) for i in range(3)]
        table = t.derived(np.zeros, (width, width))
        return layers, t.fused(["q", "k"], [width, width], width, bias=True), table

    with pytest.raises(CheckpointError, match=r"missing k\.bias, k\.weight, layers\.0\.bias"):
        load(build, PATH, {})


# -- types ----------------------------------------------------------------------------------------


def bf16(*shape: int) -> np.ndarray:
    bits = np.arange(np.prod(shape), dtype=np.uint16).reshape(shape) + np.uint16(0x3F80)
    return bits.view(BFLOAT16)


@pytest.mark.parametrize("dtype", ["auto", "f16", "f32"])
@pytest.mark.parametrize("source", [np.float16, np.float32, np.float64, BFLOAT16])
def test_matrices_have_the_type_that_is_asked_for_and_vectors_float32(
    dtype: str, source: Any
) -> None:
    array = bf16(3, 2) if source == BFLOAT16 else np.full((3, 2), 0.1, source)
    entries = {"a.weight": stored(array), "a.bias": stored(np.ones(3, np.float16))}
    layer = load(lambda t: t.linear("a", 3, 2), PATH, entries, dtype, keep_bf16=True)
    kept = {np.float64: np.float32}.get(source, source)
    assert layer.weight.dtype == {"auto": kept, "f16": np.float16, "f32": np.float32}[dtype]
    assert layer.bias is not None and layer.bias.dtype == np.float32
    wide = bf16_to_f32(array) if source == BFLOAT16 else array.astype(np.float32)
    found = bf16_to_f32(layer.weight) if layer.weight.dtype == BFLOAT16 else layer.weight
    np.testing.assert_array_equal(found, wide.astype(found.dtype))


@pytest.mark.parametrize("dtype", ["q8", "q4"])
@pytest.mark.parametrize("source", [np.float16, np.float32, BFLOAT16])
def test_products_are_in_blocks_and_the_rest_in_float16(dtype: str, source: Any) -> None:
    kind = np.dtype(source)
    shapes = {"a.weight": (3, 64), "b.weight": (3, 40), "c.weight": (2, 64), "table": (3, 64)}
    entries = {
        name: stored(bf16(*shape) if kind == BFLOAT16 else np.full(shape, 0.1, source))
        for name, shape in shapes.items()
    }

    def build(t: Loader) -> Any:
        together = t.fused(["a", "c"], [3, 2], 64)
        narrow = t.linear("b", 3, 40, bias=False)
        return together.weight, narrow.weight, t.cast_float(t.raw("table", 3, 64))

    together, narrow, table = load(build, PATH, entries, dtype, keep_bf16=True)
    assert together.dtype == BLOCK_DTYPES[dtype] and together.shape == (5, 2)
    assert narrow.dtype == table.dtype == np.float16
    wide = to_f32(np.concatenate([entries["a.weight"].raw(), entries["c.weight"].raw()]))
    np.testing.assert_array_equal(together, quantize(wide, BLOCK_DTYPES[dtype]))


def test_numbers_beyond_float16_become_infinite_in_silence() -> None:
    entries = zeros({"a.bias": (1,)}) | {"a.weight": stored(np.full((1, 1), 1e9, np.float32))}
    assert np.isinf(load(lambda t: t.linear("a", 1, 1), PATH, entries, "f16").weight).all()


def test_bfloat16_is_widened_unless_it_is_to_be_kept() -> None:
    entries = {"w": stored(bf16(2, 2))}
    assert load(lambda t: t.raw("w", 2, 2), PATH, entries).dtype == np.float32
    assert load(lambda t: t.raw("w", 2, 2), PATH, entries, keep_bf16=True).dtype == BFLOAT16


@pytest.mark.parametrize(
    ("array", "kind"),
    [
        (bf16(2), "bf16"),
        (np.zeros(2, np.float16), "f16"),
        (np.zeros(2, np.float32), "f32"),
        (np.zeros(2, np.float64), "f32"),
    ],
)
def test_the_type_in_which_a_tensor_is_stored(array: np.ndarray, kind: str) -> None:
    assert stored_dtype(stored(array)) == kind


@pytest.mark.parametrize(("read", "name"), CHECKPOINTS)
@pytest.mark.parametrize("dtype", ["f16", "f32"])
def test_a_family_casts_matrices_and_nothing_else(
    read: Callable[..., Any], name: str, dtype: str
) -> None:
    """Arrays as they are without a type, those of some matrices cast."""
    kind = np.dtype(np.float16 if dtype == "f16" else np.float32)
    plain, changed = (tree_paths(read(GOLDENS / name, asked)) for asked in ("auto", dtype))
    assert plain.keys() == changed.keys()
    for path, array in plain.items():
        parts = path.split(".")
        names = "bias", "positional_embedding", "pos_bias_u", "pos_bias_v"
        layers = "depthwise", "depthwise_conv", "norm", "norm_out", "ln", "ln_post"
        single = parts[-1] in names or any(
            part in layers or part.endswith(("_norm", "_ln")) for part in parts
        )
        single = single or (
            read is load_parakeet and path == "encoder.subsampling_first_conv.weight"
        )
        assert changed[path].dtype == (np.float32 if single else kind), path
        np.testing.assert_array_equal(changed[path], array.astype(changed[path].dtype))


# -- layers that are one --------------------------------------------------------------------------


def test_fused_layers_are_in_order_with_zeros_for_biases_that_are_absent() -> None:
    entries = {
        f"{name}.{end}": stored(np.full((2, 3) if end == "weight" else (2,), value, np.float16))
        for value, name in enumerate("qkv", 1)
        for end in ("weight", "bias")
        if (name, end) != ("k", "bias")
    }
    layer = load(lambda t: t.fused([*"qkv"], [2, 2, 2], 3, bias=[True, False, True]), PATH, entries)
    assert layer.weight[:, 0].tolist() == [1, 1, 2, 2, 3, 3]
    assert layer.bias is not None and layer.bias.tolist() == [1, 1, 0, 0, 3, 3]
    assert layer.bias.dtype == np.float32
    bare = {name: entry for name, entry in entries.items() if "bias" not in name}
    assert load(lambda t: t.fused([*"qkv"], [2, 2, 2], 3), PATH, bare).bias is None


def test_fused_layers_of_several_types_are_float32() -> None:
    parts = bf16(1, 2), np.ones((1, 2), np.float16), np.ones((1, 2), np.float32)
    found = concat(*parts)
    assert found.dtype == np.float32
    np.testing.assert_array_equal(
        found, np.concatenate([bf16_to_f32(parts[0]), parts[1], parts[2]])
    )
    assert concat(parts[0], parts[0]).dtype == BFLOAT16


def test_neighbours_in_a_file_are_not_copied(tmp_path: Path) -> None:
    arrays = {name: np.full((2, 3), at, np.float32) for at, name in enumerate("abc")}
    (tmp_path / "m.safetensors").write_bytes(serialize(arrays))
    tensors = read_checkpoint(tmp_path / "m.safetensors").tensors
    a, b, c = (tensors[name].read() for name in "abc")
    whole = concat(a, b, c)
    assert whole.shape == (6, 3) and np.shares_memory(whole, a) and np.shares_memory(whole, c)
    for parts in ((b, a), (a, c), (a[:, :1], b[:, :1]), (a, b.copy())):
        apart = concat(*parts)
        np.testing.assert_array_equal(apart, np.concatenate(parts))
        assert not np.shares_memory(apart, a)


@pytest.mark.parametrize("source", [np.dtype(np.float32), np.dtype(np.float16), BFLOAT16])
@pytest.mark.parametrize("target", [np.float32, np.float16])
def test_a_tensor_converted_in_pieces_has_the_bits_of_one_converted_whole(
    monkeypatch: pytest.MonkeyPatch, source: np.dtype[Any], target: Any
) -> None:
    """Numbers that are not finite, or too large for float16, among them; without a warning."""
    monkeypatch.setattr(loader, "PIECE_BYTES", 100)
    bits = np.random.default_rng(0).integers(0, 1 << 16, 7 * 5 * 3 * 2, np.uint16)
    array = bits.view(source)[: 7 * 5 * 3].reshape(7, 5, 3)
    wide = bf16_to_f32(array) if source == BFLOAT16 else array
    with np.errstate(over="ignore", invalid="ignore"):
        whole = wide.astype(target)
    found = astype(array, np.dtype(target))
    assert found.shape == whole.shape and found.dtype == target
    assert found.tobytes() == whole.tobytes()
    assert concat(array, array[:2]).tobytes() == array.tobytes() + array[:2].tobytes()
