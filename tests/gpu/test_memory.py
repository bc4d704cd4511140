"""Device memory: uploads in parts, snapshots of a moment, and sizes that are refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from oscine import ops
from oscine.dtypes import BFLOAT16, bf16_to_f32
from oscine.errors import DeviceError, DeviceMemoryError
from oscine.gpu.device import Device
from oscine.gpu.memory import Memory
from oscine.ops.reference import Reference
from oscine.ops.webgpu import Gpu
from oscine.quantized import BLOCK_DTYPES, quantize

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def memory(device: Device) -> Memory:
    return Memory(device)


@pytest.fixture
def small(gpu: Gpu) -> Iterator[Gpu]:
    """A GPU whose largest binding is 2 KiB."""
    limit, gpu.memory.largest_binding = gpu.memory.largest_binding, 2048
    yield gpu
    gpu.memory.largest_binding = limit


def noise(*shape: int, kind: Any = np.float32) -> Any:
    return np.random.default_rng(shape[0]).standard_normal(shape).astype(kind)


@pytest.mark.parametrize(
    "array",
    [
        np.arange(12, dtype=np.uint32).reshape(3, 4),
        np.arange(5, dtype=np.float16),  # ten bytes: no multiple of four
        np.float32([[1.5]]),
        np.asfortranarray(np.arange(6, dtype=np.float32).reshape(2, 3)),
        np.arange(9, dtype=np.uint16).view(BFLOAT16).reshape(3, 3),  # two bytes each, kept
    ],
    ids=["words", "halves", "one", "columns", "bfloat16"],
)
def test_what_is_uploaded_is_read_back(memory: Memory, array: Any) -> None:
    found = memory.snapshot(memory.upload(array))()[0]
    assert found.dtype == array.dtype
    assert np.array_equal(found, array)


def test_a_slot_is_zero_and_a_write_covers_its_start(memory: Memory) -> None:
    slot = memory.zeros((2, 4), np.uint32)
    assert not memory.snapshot(slot)()[0].any()
    memory.write(slot, np.uint32([7, 8, 9]))
    assert memory.snapshot(slot)()[0].tolist() == [[7, 8, 9, 0], [0, 0, 0, 0]]


def test_a_snapshot_is_of_its_moment(memory: Memory) -> None:
    slot, other = memory.zeros((4,)), memory.zeros((1,), np.uint32)
    memory.write(slot, np.float32([1, 2, 3, 4]))
    first = memory.snapshot(slot, other)
    memory.write(slot, np.float32([5, 6, 7, 8]))
    memory.write(other, np.uint32([9]))
    second = memory.snapshot(slot, other)
    memory.write(slot, np.zeros(4, np.float32))
    later = second()  # waited for out of order
    earlier = first()
    assert [earlier[0].tolist(), earlier[1].tolist()] == [[1, 2, 3, 4], [0]]
    assert [later[0].tolist(), later[1].tolist()] == [[5, 6, 7, 8], [9]]


def test_a_snapshot_is_a_copy(memory: Memory) -> None:
    """Its staging buffer is used again; what was handed out must not change with it."""
    slot = memory.zeros((4,))
    memory.write(slot, np.float32([1, 2, 3, 4]))
    held = memory.snapshot(slot)()[0]
    memory.write(slot, np.float32([5, 6, 7, 8]))
    assert memory.snapshot(slot)()[0].tolist() == [5, 6, 7, 8]
    assert held.tolist() == [1, 2, 3, 4]


def test_staging_buffers_are_used_again(memory: Memory) -> None:
    slot = memory.zeros((33,))
    memory.snapshot(slot)()
    spare = list(memory.staging[slot.nbytes])
    for _ in range(3):
        memory.snapshot(slot)()
    assert memory.staging[slot.nbytes] == spare
    assert len(spare) == 1


# -- larger than a binding ------------------------------------------------------------------------


@pytest.mark.parametrize(("rows", "kind"), [(1, np.float32), (4, np.float16), (20, np.float16)])
def test_a_weight_cut_by_rows_gives_the_same(small: Gpu, rows: int, kind: Any) -> None:
    matrix, bias, x = noise(70, 32, kind=kind), noise(70), noise(rows, 32)
    add = noise(rows, 70)
    results = []
    for parts in (0, 2):  # of 37 and 33 rows: a software GPU is slow to compile more
        small.memory.largest_binding = 37 * matrix[0].nbytes + 9 if parts else 1 << 20
        weight = small.upload(matrix)
        assert len(weight.parts) == parts
        small.memory.largest_binding = 1 << 20
        given, out = small.upload(x), small.zeros((rows, 70))
        layer = ops.Linear(weight, small.upload(bias))
        added = small.upload(add)
        small.record(
            lambda layer=layer, given=given, added=added, out=out: small.store(  # type: ignore[misc]
                small.linear(given, layer, activation="gelu", add=added), out
            )
        ).run()
        results.append(small.read(out))
    assert np.array_equal(*results)
    expected = Reference().linear(
        x, ops.Linear(matrix.astype(np.float32), bias), activation="gelu", add=add
    )
    np.testing.assert_allclose(results[1], expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("rows", [1, 6])
def test_bfloat16_cut_by_rows_is_fused_as_far_as_that_goes(small: Gpu, rows: int) -> None:
    """Two rows a team: of parts with an odd number, and of a gate that lies in both."""
    bits = (noise(66, 32).view(np.uint32) >> 16).astype(np.uint16).view(BFLOAT16)
    small.memory.largest_binding = 37 * bits[0].nbytes
    weight = small.upload(bits)
    assert [part.shape for part in weight.parts] == [(37, 32), (29, 32)]
    small.memory.largest_binding = 1 << 20
    x, norm = noise(rows, 32), ops.RmsNorm(noise(32))
    layer, fused = ops.Linear(weight, None), ops.upload(small, norm)
    given, whole, gated = small.upload(x), small.zeros((rows, 66)), small.zeros((rows, 32))
    small.record(lambda: small.store(small.linear(given, layer, norm=fused), whole)).run()
    meant = ops.Linear(bf16_to_f32(bits), None)
    expected = Reference().linear(x, meant, norm=norm)
    np.testing.assert_allclose(small.read(whole), expected, rtol=1e-4, atol=1e-4)

    even = ops.Linear(bf16_to_f32(bits)[:64], None)
    small.memory.largest_binding = 37 * bits[0].nbytes
    layer = ops.Linear(small.upload(bits[:64]), None)
    small.memory.largest_binding = 1 << 20
    small.record(lambda: small.store(small.swiglu_linear(given, layer, norm=fused), gated)).run()
    expected = Reference().swiglu_linear(x, even, norm=norm)
    np.testing.assert_allclose(small.read(gated), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", [np.float32, np.float16])
def test_an_embedding_cut_by_rows_gives_the_same(small: Gpu, kind: Any) -> None:
    table, positions = noise(90, 32, kind=kind), noise(7, 32)
    prompt = np.uint32([[0, 89, 31, 15, 16, 17, 64]])  # rows at the seams
    small.memory.largest_binding = 2048
    cut = small.upload(table)
    assert len(cut.parts) > 2
    assert sum(part.shape[0] for part in cut.parts) == 90
    assert all(part.nbytes <= 2048 for part in cut.parts)
    rows = np.zeros(1, ops.TEXT_DECODER_STATE)
    rows["length"] = 7
    state = ops.TextDecoderState(
        small.zeros((1,), ops.TEXT_DECODER_STATE), small.zeros((1, 8), np.uint32)
    )
    small.write(state.rows, rows)
    slot, places, out = small.upload(prompt), small.upload(positions), small.zeros((7, 32))
    small.record(lambda: small.store(small.embed(cut, places, state, slot), out)).run()
    expected = table[prompt[0]].astype(np.float32) + positions
    assert np.array_equal(small.read(out), expected)


def test_a_convolution_cut_by_outputs_gives_the_same(small: Gpu) -> None:
    weight, bias, x = noise(33, 3, 16), noise(33), noise(9, 16)
    small.memory.largest_binding = 20 * weight[0].nbytes
    layer = ops.upload(small, ops.Linear(weight, bias))
    assert [part.shape for part in layer.weight.parts] == [(20, 3, 16), (13, 3, 16)]
    out, given = small.zeros((5, 33)), small.upload(x)
    small.record(
        lambda: small.store(small.conv1d(given, layer, ops.ConvParams.same(3, 2)), out)
    ).run()
    expected = Reference().conv1d(x, ops.Linear(weight, bias), ops.ConvParams.same(3, 2))
    np.testing.assert_allclose(small.read(out), expected, rtol=1e-4, atol=1e-4)


def test_what_cannot_be_cut_is_refused_with_its_sizes(small: Gpu) -> None:
    for array in (np.zeros(1000, np.float32), np.zeros((3, 1000), np.float32)):
        with pytest.raises(DeviceError, match=r"\[.*1000\] float32 are 0\.0 MiB, its largest"):
            small.upload(array)
    with pytest.raises(DeviceError, match=r"largest binding is 0\.0 MiB"):
        small.zeros((1000,))
    positions = noise(70, 32)
    cut = small.upload(positions)
    state = ops.TextDecoderState(
        small.zeros((1,), ops.TEXT_DECODER_STATE), small.zeros((1, 8), np.uint32)
    )
    with pytest.raises(DeviceError, match=r"\[70, 32\]"):  # bound whole, unlike a weight
        small.record(lambda: small.embed(small.zeros((4, 32)), cut, state))


def test_an_intermediate_too_large_is_refused(small: Gpu) -> None:
    weight = small.upload(noise(70, 32))
    with pytest.raises(DeviceError, match=r"\[20, 70\] float32"):
        small.record(lambda: small.linear(small.zeros((20, 16)), ops.Linear(weight, None)))


def test_a_size_the_device_has_no_room_for_is_a_device_error(memory: Memory) -> None:
    with pytest.raises(DeviceError, match=r"no room for 1048576\.0 MiB") as raised:
        memory.buffer(1 << 40, memory.device.api.BufferUsage.STORAGE)
    assert "\n" not in str(raised.value)


def test_out_of_memory_is_an_error_of_its_own(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    api, asked = memory.device.api, []

    def full(**options: Any) -> Any:
        asked.append(options["size"])
        raise api.GPUOutOfMemoryError("Out of memory")

    monkeypatch.setattr(memory.device.handle, "create_buffer", full, raising=False)
    with pytest.raises(DeviceMemoryError, match=r"no room for 4\.0 MiB: Out of memory; use a sm"):
        memory.upload(np.zeros((1024, 1024), np.float32))
    assert asked == [1 << 22] * 2  # once more, after all that was dropped is gone
    assert not memory.can_allocate(1 << 22)


@pytest.mark.parametrize(("dtype", "block_bytes"), [("q8", 34), ("q4", 20)])
def test_blocks_of_weights_count_their_bytes_and_are_cut_by_rows(
    small: Gpu, dtype: str, block_bytes: int
) -> None:
    blocks = quantize(noise(101, 96), BLOCK_DTYPES[dtype])
    before = small.budget.used
    linear = ops.upload(small, ops.Linear(blocks, None))
    weight = linear.weight
    assert weight.shape == (101, 96) and len(weight.parts) > 1
    assert all(part.nbytes <= 2048 for part in weight.parts)
    allocated = small.budget.used - before
    assert 0 <= allocated - 303 * block_bytes < 4 * len(weight.parts)
    x, reference = noise(3, 96), Reference()
    given, out = small.zeros(x.shape), small.zeros((3, 101))
    small.write(given, x)
    small.record(lambda: small.store(small.linear(given, linear), out)).run()
    wide = ops.Linear(reference.upload(blocks), None)
    np.testing.assert_allclose(small.read(out), reference.linear(x, wide), rtol=1e-4, atol=1e-4)
