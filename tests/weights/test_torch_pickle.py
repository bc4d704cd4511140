"""torch.save files: what they may hold, and that nothing in them is ever run."""

from __future__ import annotations

import io
import pickle
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from oscine.errors import CheckpointError
from oscine.weights import read_checkpoint
from oscine.weights.safe_unpickler import SafeUnpickler, UnsafePickleError


class Call:
    """Pickles as a call of a named function."""

    def __init__(self, module: str, name: str, *arguments: Any) -> None:
        self.target, self.arguments = (module, name), arguments


class Name(Call):
    """Pickles as a name alone."""


class Storage:
    """Pickles as torch's persistent id of a storage."""

    def __init__(self, kind: str, key: str, count: int) -> None:
        self.record = ("storage", Name("torch", kind), key, "cpu", count)


class Writer(pickle._Pickler):  # the one in Python: its methods may be replaced
    """Protocol 2, with names that need not exist here."""

    def persistent_id(self, value: Any) -> Any:
        return value.record if isinstance(value, Storage) else None

    def save(self, value: Any, save_persistent_id: bool = True) -> Any:
        if isinstance(value, Call):
            self.write(b"c" + "\n".join(value.target).encode() + b"\n")
            if not isinstance(value, Name):
                super().save(tuple(value.arguments))
                self.write(b"R")
            return None
        return super().save(value, save_persistent_id)


def dump(value: Any) -> bytes:
    stream = io.BytesIO()
    Writer(stream, 2).dump(value)
    return stream.getvalue()


def tensor(
    storage: Storage, offset: Any = 0, shape: Any = (2, 3), strides: Any = (3, 1), *more: Any
) -> Call:
    hooks = Call("collections", "OrderedDict")
    arguments = (storage, offset, shape, strides, False, hooks, *more)
    return Call("torch._utils", "_rebuild_tensor_v2", *arguments)


def write(path: Path, value: Any, compression: int = zipfile.ZIP_STORED, **more: bytes) -> Path:
    """A file of torch.save: `value` may be a ready pickle; `more` are other members."""
    members = {"data.pkl": value if isinstance(value, bytes) else dump(value), **more}
    with zipfile.ZipFile(path, "w", compression) as file:
        for name, content in members.items():
            file.writestr(f"any/{name.replace('__', '/')}", content)
    return path


SIX = np.arange(6, dtype="<f4")
GOOD = Storage("FloatStorage", "0", 6)


def test_reads_what_torch_writes(tmp_path: Path) -> None:
    value = {
        "a": tensor(GOOD),
        "b": Call("torch._utils", "_rebuild_parameter", tensor(GOOD), True, 1),
    }
    path = write(
        tmp_path / "m.pt", value, data__0=SIX.tobytes(), byteorder=b"little", version=b"3\n"
    )
    tensors = read_checkpoint(path).tensors
    assert set(tensors) == {"a", "b"}
    np.testing.assert_array_equal(tensors["a"].read(), SIX.reshape(2, 3))


@pytest.mark.parametrize(
    ("offset", "shape", "strides"),
    [
        *[
            (0, (3, 2), (1, 3)),
            (1, (2, 2), (2, 1)),
            (5, (1,), (1,)),
            (2, (), ()),
            (0, (0, 9), (9, 1)),
        ],
        *[(0, (2, 1, 2), (1, 5, 3)), (1, (1, 1), (0, 0)), (0, (1, 1, 6), (7, 8, 1))],
    ],
)
def test_strides_are_honoured(
    tmp_path: Path, offset: int, shape: tuple[int, ...], strides: tuple[int, ...]
) -> None:
    path = write(
        tmp_path / "m.pt", {"a": tensor(GOOD, offset, shape, strides)}, data__0=SIX.tobytes()
    )
    steps = tuple(4 * stride for stride in strides)
    wanted = np.lib.stride_tricks.as_strided(SIX[offset:], shape, steps)
    np.testing.assert_array_equal(read_checkpoint(path).tensors["a"].read(), wanted)


@pytest.mark.parametrize("stride", [0, 1, 6, 1 << 31, 1 << 62, 1 << 100, 1 << 2000])
@pytest.mark.parametrize("shape", [(1, 6), (2, 1, 3), (3, 2, 1), (1,), (0, 1), (1, 2, 1, 3, 1)])
def test_the_stride_of_an_axis_of_one_may_be_any(
    tmp_path: Path, shape: tuple[int, ...], stride: int
) -> None:
    own = np.empty(shape, "<f4").strides
    strides = tuple(stride if size == 1 else own[at] // 4 for at, size in enumerate(shape))
    value = {"a": tensor(GOOD, 0, shape, strides)}
    path = write(tmp_path / "m.pt", value, data__0=SIX.tobytes())
    found = read_checkpoint(path).tensors["a"].read()
    np.testing.assert_array_equal(found, SIX[: np.prod(shape, dtype=int)].reshape(shape))
    assert not found.flags.owndata, "the file itself"


@pytest.mark.parametrize("stride", [6, 1 << 62, 1 << 100])
def test_the_stride_of_a_longer_axis_stays_in_its_storage(tmp_path: Path, stride: int) -> None:
    value = {"a": tensor(GOOD, 0, (2, 1), (stride, 1))}
    with pytest.raises(CheckpointError, match="reaches beyond its storage"):
        read_checkpoint(write(tmp_path / "m.pt", value, data__0=SIX.tobytes()))


def test_bfloat16_is_widened(tmp_path: Path) -> None:
    raw = (SIX.view("<u4") >> 16).astype("<u2").tobytes()
    value = {"a": tensor(Storage("BFloat16Storage", "0", 6), 0, (3, 2), (1, 3))}
    found = read_checkpoint(write(tmp_path / "m.pt", value, data__0=raw)).tensors["a"].read()
    np.testing.assert_array_equal(found, SIX.reshape(2, 3).T)


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("os", "system"),
        ("posix", "system"),
        ("builtins", "eval"),
        ("builtins", "getattr"),
        ("subprocess", "Popen"),
        ("torch", "load"),
        ("torch._utils", "_rebuild_tensor"),
        ("collections", "namedtuple"),
        ("oscine.weights.safe_unpickler", "Machine"),
    ],
)
def test_other_names_are_refused_by_name(tmp_path: Path, module: str, name: str) -> None:
    target = tmp_path / "touched"
    value = {"a": Call(module, name, f"touch {target}")}
    with pytest.raises(CheckpointError, match=rf"{module}\.{name}.*not allowed.*nothing") as caught:
        read_checkpoint(write(tmp_path / "m.pt", value))
    assert not target.exists() and "\n" not in str(caught.value)


def test_a_real_exploit_does_nothing(tmp_path: Path) -> None:
    target = tmp_path / "touched"

    class Exploit:
        def __reduce__(self) -> Any:
            import os

            return os.system, (f"touch {target}",)

    for protocol in range(6):
        path = write(tmp_path / f"{protocol}.pt", pickle.dumps({"a": Exploit()}, protocol))
        with pytest.raises(CheckpointError):
            read_checkpoint(path)
    assert not target.exists()


@pytest.mark.parametrize("protocol", (0, 3, 4, 5))
def test_other_protocols_are_refused(protocol: int) -> None:
    with pytest.raises(UnsafePickleError):
        SafeUnpickler(pickle.dumps({"a": 1}, protocol)).run()


@pytest.mark.parametrize(
    ("stream", "problem"),
    [
        (b"\x80\x02", "too early"),
        (b"\x80\x02.", "empty stack"),
        (b"\x80\x02X\xff\xff\xff\x7fa.", "too early"),
        (b"\x80\x02h\x05.", "never kept"),
        (b"\x80\x02u.", "no mark"),
        (b"\x80\x02(ut.", "empty stack|no dictionary|no mark"),
        (b"\x80\x02}K\x01K\x02K\x03(u.", "no dictionary|odd"),
        (b"\x80\x02})K\x01s.", "no text or number"),
        (b"\x80\x02}(K\x01u.", "no dictionary"),
        (b"\x80\x02cos\nsystem\n.", "os.system"),
        (b"\x80\x02c" + b"a" * 1000, "does not end"),
        (b"\x80\x02K\x01K\x02R.", "no name"),
        (b"\x80\x02ccollections\nOrderedDict\nK\x01\x85R.", "as torch never does"),
        (b"\x80\x02ctorch\nHalfStorage\n)R.", "as torch never does"),
        (b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n)R.", "no tensor"),
        (b"\x80\x02K\x01Q.", "no storage"),
        (b"\x80\x02K\x01}b.", "no dictionary"),
        (b"\x80\x02K\x01]a.", "no list"),
        (b"\x80\x02X\x01\x00\x00\x00\xff.", "UTF-8"),
        (b"\x80\x02\x93.", "opcode"),
        (b"\x80\x02i", "opcode"),
    ],
)
def test_broken_streams(stream: bytes, problem: str) -> None:
    with pytest.raises(UnsafePickleError, match=problem):
        SafeUnpickler(stream).run()


def test_a_nest_of_shared_tuples_takes_no_time() -> None:
    """Doubling a tuple a thousand times is small in a file and endless to hash or to print."""
    stream = b"\x80\x02)" + b"".join(b"q\x00h\x00\x86" for _ in range(1000))
    assert type(SafeUnpickler(stream + b".").run()) is tuple
    with pytest.raises(UnsafePickleError, match="no text or number"):
        SafeUnpickler(b"\x80\x02}" + stream[2:] + b"K\x01s.").run()


@pytest.mark.parametrize(
    ("value", "names"),
    [
        ({"a": tensor(Storage("FloatStorage", "0", 7))}, ["'a'", "28 bytes", "24"]),
        ({"a": tensor(Storage("FloatStorage", "1", 6))}, ["'a'", "there are no"]),
        ({"a": tensor(Storage("HalfStorage", "0", 6))}, ["'a'", "12 bytes", "24"]),
        ({"a": tensor(GOOD, 1)}, ["'a'", "beyond"]),
        ({"a": tensor(GOOD, -1)}, ["'a'", "negative"]),
        ({"a": tensor(GOOD, 0, (2, 3), (-3, 1))}, ["'a'", "negative"]),
        ({"a": tensor(GOOD, 0, (2, 3), (4, 1))}, ["'a'", "beyond"]),
        ({"a": tensor(GOOD, 0, (-2, 3))}, ["'a'", "impossible"]),
        ({"a": tensor(GOOD, 0, (2**30, 3), (0, 1))}, ["'a'", "beyond"]),
        ({"a": tensor(GOOD, 0, (2**62, 2**62), (0, 0))}, ["'a'", "impossible"]),
        ({"a": tensor(GOOD, 0, (2,), (1, 1))}, ["shape and strides"]),
        ({"a": tensor(GOOD, 0, "23", (1, 1))}, ["no shape"]),
        ([], ["no dictionary"]),
        ({"dims": [], "model_state_dict": {}}, ["dims"]),
        ({"dims": {"n_mels": "80"}, "model_state_dict": {}}, ["dims"]),
        ({"dims": {}, "model_state_dict": 3}, ["model_state_dict"]),
    ],
)
def test_lies_are_named(tmp_path: Path, value: Any, names: list[str]) -> None:
    path = write(tmp_path / "m.pt", value, data__0=SIX.tobytes())
    with pytest.raises(CheckpointError) as caught:
        read_checkpoint(path)
    message = str(caught.value)
    assert message.startswith(str(path)) and "\n" not in message
    assert all(name in message for name in names), message


def test_other_byte_order_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "m.pt", {"a": tensor(GOOD)}, data__0=SIX.tobytes(), byteorder=b"big")
    with pytest.raises(CheckpointError, match="byte order"):
        read_checkpoint(path)


def test_compressed_storage_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "m.pt", {}, zipfile.ZIP_DEFLATED, data__0=bytes(1000))
    with pytest.raises(CheckpointError, match=r"member 'any/.*compressed"):
        read_checkpoint(path)


def test_two_pickles_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "m.pt", {"a": tensor(GOOD)}, other__data_pkl=b"")
    with zipfile.ZipFile(path, "a") as file:
        file.writestr("second/data.pkl", dump({}))
    with pytest.raises(CheckpointError, match=r"several data.pkl"):
        read_checkpoint(path)


def test_pickle_without_zip_is_refused_by_kind(tmp_path: Path) -> None:
    path = tmp_path / "old.pt"
    path.write_bytes(pickle.dumps({"a": 1}, 2))
    with pytest.raises(CheckpointError, match="pickle without a zip"):
        read_checkpoint(path)
