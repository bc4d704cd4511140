"""Files with random damage are read in the shapes they state or refused, and nothing else."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from oscine.errors import CheckpointError
from oscine.models.whisper.weights import load_weights
from oscine.weights import read_checkpoint
from oscine.weights.safe_unpickler import SafeUnpickler, UnsafePickleError

#: A file, and how far its descriptions reach: damage there is worth more than among the numbers.
FILES = {
    "hf/model.safetensors": 12_000,
    "openai.pt": 9_000,
    "ggml-f16.bin": 14_000,
    "ggml-q5_1.bin": 14_000,
    "ct2_float16/model.bin": 2_000,
    "ct2_int8/model.bin": 2_000,
    "mlx_npz/weights.npz": 1_000,
    "mlx_q3/weights.safetensors": 8_000,
}


@st.composite
def damage(draw: st.DrawFn, content: bytes, described: int) -> bytes:
    """Bytes overwritten, cut out, put in or cut off, at the ends of a file more than within."""
    size = len(content)
    near = (
        st.integers(0, described) | st.integers(size - 6_000, size - 1) | st.integers(0, size - 1)
    )
    numbers = st.sampled_from([b"\0", b"\xff", b"\xff\xff\xff\x7f", b"\xff" * 8, b"\0" * 4])
    found = bytearray(content)
    for _ in range(draw(st.integers(1, 4))):
        at = min(max(draw(near), 0), len(found))
        put = draw(numbers | st.binary(min_size=1, max_size=8))
        kind = draw(st.sampled_from("oooicx"))
        if kind == "o":
            found[at : at + len(put)] = put
        elif kind == "i":
            found[at:at] = put
        elif kind == "c":
            del found[at : at + len(put)]
        else:
            del found[at:]
    return bytes(found)


def try_to_read(path: Path) -> None:
    """Read everything; only CheckpointError may come of it, in one line that names a file."""
    try:
        for entry in read_checkpoint(path).tensors.values():
            assert math.prod(entry.shape) < 1 << 24
            found = entry.read()
            assert found.shape == entry.shape and found.dtype == entry.dtype
        load_weights(path)
    except CheckpointError as error:
        assert str(path.parent) in str(error) and "\n" not in str(error)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, formats: Path) -> Path:
    """Folders with the configuration of each file."""
    root = tmp_path_factory.mktemp("fuzz")
    for name in FILES:
        (root / name).parent.mkdir(exist_ok=True, parents=True)
        config = (formats / name).parent / "config.json"
        if config.is_file():
            ((root / name).parent / "config.json").write_bytes(config.read_bytes())
    return root


@pytest.mark.parametrize("name", FILES)
@settings(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_damaged_files(name: str, data: st.DataObject, place: Path, formats: Path) -> None:
    content = (formats / name).read_bytes()
    (place / name).write_bytes(data.draw(damage(content, FILES[name])))
    try_to_read(place / name)


@pytest.mark.parametrize("name", FILES)
def test_truncated_anywhere(name: str, place: Path, formats: Path) -> None:
    """A file cut off in any of its regions is refused, and nothing of it is used."""
    content = (formats / name).read_bytes()
    step = max(1, len(content) // 60)
    for size in [*range(0, 64, 7), *range(64, len(content), step), len(content) - 1]:
        (place / name).write_bytes(content[:size])
        with pytest.raises(CheckpointError, match=str(place)):
            load_weights(place / name)


@settings(max_examples=300, deadline=None)
@given(
    st.lists(
        st.sampled_from(
            [b"(", b"t", b"u", b"s", b"}", b"]", b")", b"e", b"a", b"R", b"b", b"Q", b"N", b"\x85",
             b"\x86", b"\x87", b"K\x01", b"q\x00", b"h\x00", b"X\x01\x00\x00\x00a", b"\x8a\x01\x05",
             b"ccollections\nOrderedDict\n", b"ctorch\nHalfStorage\n", b"cos\nsystem\n",
             b"ctorch._utils\n_rebuild_tensor_v2\n", b"X\x07\x00\x00\x00storage", b"."]
        )
        | st.binary(max_size=3),
        max_size=40,
    )
)  # fmt: skip
def test_the_pickle_machine_refuses_or_ends(parts: list[bytes]) -> None:
    try:
        SafeUnpickler(b"\x80\x02" + b"".join(parts) + b".").run()
    except UnsafePickleError as refused:
        assert str(refused)
