"""An unpickler that can only build containers and descriptions of tensors.

It imports nothing and calls nothing: a GLOBAL is a name that is compared with a list, and a REDUCE
of one of four names makes a plain value. All other opcodes and names are refused. Opcodes:
CPython's Modules/_pickle.c, those that torch.save with protocol 2 writes.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from oscine.weights.mapped_file import MAX_RANK

#: Whisper large's state takes 45,000.
MAX_OPCODES: Final = 1_000_000


class UnsafePickleError(Exception):
    """The pickle contains an opcode or name that is not allowed, or is damaged."""


@dataclass(frozen=True, slots=True)
class Global:
    """A name from the list."""

    module: str
    name: str


@dataclass(frozen=True, slots=True)
class Storage:
    """The data of one or more tensors: a file `data/<key>` of `count` elements."""

    kind: str
    key: str
    count: int


@dataclass(frozen=True, slots=True)
class StridedTensor:
    """A tensor as a strided view of its storage; offset and strides are in elements."""

    storage: Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


STORAGES: Final = frozenset(
    "HalfStorage FloatStorage BFloat16Storage DoubleStorage LongStorage IntStorage ShortStorage "
    "CharStorage ByteStorage BoolStorage".split()
)
_ORDERED_DICT = Global("collections", "OrderedDict")
_REBUILD_TENSOR = Global("torch._utils", "_rebuild_tensor_v2")
_REBUILD_PARAMETER = Global("torch._utils", "_rebuild_parameter")
_ALLOWED_GLOBALS = frozenset(
    {_ORDERED_DICT, _REBUILD_TENSOR, _REBUILD_PARAMETER}
    | {Global("torch", name) for name in STORAGES}
)


class SafeUnpickler:
    """Interprets one pickle; `run` returns its value."""

    def __init__(self, stream: bytes) -> None:
        self._stream = stream
        self._at = 0
        self._stack: list[Any] = []
        self._marks: list[int] = []
        self._memo: dict[int, Any] = {}

    def run(self) -> Any:
        """The value on top of the stack at STOP.

        Raises:
            UnsafePickleError: anything that torch.save of a state dict does not write.
        """
        for _ in range(MAX_OPCODES):
            code = self._take(1)
            if code == b".":
                return self._pop()
            action = _OPCODES.get(code)
            if action is None:
                raise UnsafePickleError(f"pickle opcode {code!r} is not allowed")
            action(self)
        raise UnsafePickleError(f"the pickle has more than {MAX_OPCODES} opcodes")

    def _take(self, count: int) -> bytes:
        end = self._at + count
        if end > len(self._stream):
            raise UnsafePickleError("the pickle ends too early")
        found = self._stream[self._at : end]
        self._at = end
        return found

    def _number(self, layout: str) -> int:
        value: int = struct.unpack("<" + layout, self._take(struct.calcsize(layout)))[0]
        return value

    def _line(self) -> str:
        end = self._stream.find(b"\n", self._at, self._at + 256)
        if end < 0:
            raise UnsafePickleError("a name in the pickle does not end")
        return self._take(end + 1 - self._at)[:-1].decode("ascii", "replace")

    def _pop(self) -> Any:
        if len(self._stack) <= (self._marks[-1] if self._marks else 0):
            raise UnsafePickleError("the pickle takes from an empty stack")
        return self._stack.pop()

    def _since_mark(self) -> list[Any]:
        if not self._marks:
            raise UnsafePickleError("the pickle has no mark")
        start = self._marks.pop()
        found = self._stack[start:]
        del self._stack[start:]
        return found

    def push(self, value: Any) -> None:
        self._stack.append(value)

    def protocol(self) -> None:
        if self._number("B") != 2:
            raise UnsafePickleError("pickle protocol is not 2")

    def mark(self) -> None:
        self._marks.append(len(self._stack))

    def find_global(self) -> None:
        found = Global(self._line(), self._line())
        if found not in _ALLOWED_GLOBALS:
            asked = f"{found.module}.{found.name}"
            raise UnsafePickleError(f"the pickle asks for {asked!r}, which is not allowed")
        self.push(found)

    def put(self, layout: str) -> None:
        key = self._number(layout)
        value = self._pop()
        self._memo[key] = value
        self.push(value)

    def get(self, layout: str) -> None:
        key = self._number(layout)
        if key not in self._memo:
            raise UnsafePickleError("the pickle recalls what it never kept")
        self.push(self._memo[key])

    def text(self) -> None:
        raw = self._take(self._number("I"))
        try:
            self.push(raw.decode("utf-8"))
        except UnicodeDecodeError:
            raise UnsafePickleError("a text in the pickle is not UTF-8") from None

    def long(self) -> None:
        self.push(int.from_bytes(self._take(self._number("B")), "little", signed=True))

    def floating(self) -> None:
        self.push(struct.unpack(">d", self._take(8))[0])

    def tuple_of(self, count: int) -> None:
        values = [self._pop() for _ in range(count)]
        self.push(tuple(reversed(values)))

    def set_items(self, values: list[Any]) -> None:
        target = self._pop()
        if type(target) is not dict or len(values) % 2:
            raise UnsafePickleError("the pickle sets items of no dictionary")
        for key, value in zip(values[::2], values[1::2], strict=True):
            # Anything else could be a nest of tuples that takes forever to hash.
            if type(key) not in (str, int):
                raise UnsafePickleError("a dictionary key in the pickle is no text or number")
            target[key] = value
        self.push(target)

    def append(self, values: list[Any]) -> None:
        target = self._pop()
        if type(target) is not list:
            raise UnsafePickleError("the pickle appends to no list")
        target.extend(values)
        self.push(target)

    def set_item(self) -> None:
        value, key = self._pop(), self._pop()
        self.set_items([key, value])

    def build(self) -> None:
        self._pop()  # attributes of an OrderedDict: `_metadata`, which says nothing of tensors
        target = self._pop()
        if type(target) is not dict:
            raise UnsafePickleError("the pickle sets attributes of no dictionary")
        self.push(target)

    def persistent(self) -> None:
        record = self._pop()
        if (
            type(record) is not tuple
            or [type(part) for part in record] != [str, Global, str, str, int]
            or record[0] != "storage"
            or record[1].name not in STORAGES
            or record[4] < 0
        ):
            raise UnsafePickleError("the pickle describes no storage")
        self.push(Storage(record[1].name, record[2], record[4]))

    def reduce(self) -> None:
        arguments, function = self._pop(), self._pop()
        if type(arguments) is not tuple or type(function) is not Global:
            raise UnsafePickleError("the pickle calls something that is no name")
        if function == _ORDERED_DICT and not arguments:
            self.push({})
        elif function == _REBUILD_TENSOR:
            self.push(_rebuild_tensor(arguments))
        elif function == _REBUILD_PARAMETER and arguments and _is_tensor(arguments[0]):
            self.push(arguments[0])
        else:
            raise UnsafePickleError(
                f"the pickle calls {function.module}.{function.name} as torch never does"
            )


def _is_tensor(value: object) -> bool:
    return type(value) is StridedTensor


def _rebuild_tensor(arguments: tuple[Any, ...]) -> StridedTensor:
    if len(arguments) < 4 or type(arguments[0]) is not Storage or type(arguments[1]) is not int:
        raise UnsafePickleError("the pickle describes no tensor")
    storage, offset, shape, strides = arguments[:4]
    for numbers in (shape, strides):
        if type(numbers) is not tuple or len(numbers) > MAX_RANK:
            raise UnsafePickleError(
                f"a tensor in the pickle has no shape of {MAX_RANK} axes or fewer"
            )
        if any(type(number) is not int for number in numbers):
            raise UnsafePickleError("a tensor in the pickle has no shape")
    if len(shape) != len(strides):
        raise UnsafePickleError("a tensor's shape and strides differ in length")
    return StridedTensor(storage, offset, shape, strides)


_OPCODES: Final[dict[bytes, Callable[[SafeUnpickler], None]]] = {
    b"\x80": SafeUnpickler.protocol,
    b"c": SafeUnpickler.find_global,
    b"q": lambda m: m.put("B"),
    b"r": lambda m: m.put("I"),
    b"h": lambda m: m.get("B"),
    b"j": lambda m: m.get("I"),
    b"}": lambda m: m.push({}),
    b")": lambda m: m.push(()),
    b"]": lambda m: m.push([]),
    b"(": SafeUnpickler.mark,
    b"t": lambda m: m.push(tuple(m._since_mark())),
    b"\x85": lambda m: m.tuple_of(1),
    b"\x86": lambda m: m.tuple_of(2),
    b"\x87": lambda m: m.tuple_of(3),
    b"s": SafeUnpickler.set_item,
    b"u": lambda m: m.set_items(m._since_mark()),
    b"a": lambda m: m.append([m._pop()]),
    b"e": lambda m: m.append(m._since_mark()),
    b"R": SafeUnpickler.reduce,
    b"b": SafeUnpickler.build,
    b"Q": SafeUnpickler.persistent,
    b"X": SafeUnpickler.text,
    b"J": lambda m: m.push(m._number("i")),
    b"K": lambda m: m.push(m._number("B")),
    b"M": lambda m: m.push(m._number("H")),
    b"\x8a": SafeUnpickler.long,
    b"G": SafeUnpickler.floating,
    b"\x88": lambda m: m.push(True),
    b"\x89": lambda m: m.push(False),
    b"N": lambda m: m.push(None),
}
