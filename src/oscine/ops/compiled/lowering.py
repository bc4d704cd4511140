"""What the kernels need of Numba: addresses as pointers, half precision, atomic words, calls.

Imported only to compile. A kernel is a C function (arguments, start, stop): `arguments` is the
address of int64 words, which hold addresses, sizes and the bits of float32 numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import cfunc, njit, types
from numba.extending import intrinsic

# Sums may be reordered, as vectors need it. NaN and infinity keep their meaning.
FAST = {"reassoc", "contract", "nsz"}
OPTIONS = {"fastmath": FAST, "boundscheck": False, "error_model": "numpy"}

WORDS = types.CPointer(types.int64)
KERNEL = types.void(WORDS, types.int64, types.int64)

# Inlined, so that no kernel has a branch for an error of what it calls, and needs Numba's runtime.
inline = njit(forceinline=True, **OPTIONS)
in_order = njit(
    forceinline=True, **{**OPTIONS, "fastmath": {"contract"}}
)  # for sums whose order bounds the error


def kernel(function: Callable[..., None]) -> Any:
    """Compile a function of (arguments, start, stop) as a C function."""
    return cfunc(KERNEL, **OPTIONS)(function)


def pointer_to(element: Any) -> Any:
    """An intrinsic that makes a pointer to `element` of an address."""

    @intrinsic
    def pointer(typing_context: Any, address: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, operands: Any) -> Any:
            return builder.inttoptr(operands[0], context.get_value_type(signature.return_type))

        return types.CPointer(element)(types.int64), generate

    return pointer


float32_at = pointer_to(types.float32)
uint16_at = pointer_to(types.uint16)
int8_at = pointer_to(types.int8)
uint32_at = pointer_to(types.uint32)
int64_at = pointer_to(types.int64)


@intrinsic
def half_to_float(typing_context: Any, bits: Any) -> Any:
    """The float32 of a float16's bits; Numba has no float16 on a CPU."""

    def generate(context: Any, builder: Any, signature: Any, operands: Any) -> Any:
        return builder.fpext(builder.bitcast(operands[0], ir.HalfType()), ir.FloatType())

    return types.float32(types.uint16), generate


@intrinsic
def square_root(typing_context: Any, value: Any) -> Any:
    """The square root as an instruction; that of NumPy calls the C library."""

    def generate(context: Any, builder: Any, signature: Any, operands: Any) -> Any:
        function = builder.module.declare_intrinsic("llvm.sqrt", [ir.FloatType()])
        return builder.call(function, operands)

    return types.float32(types.float32), generate


@intrinsic
def maximum(typing_context: Any, a: Any, b: Any) -> Any:
    """The larger of two float32, or NaN, as an instruction of which LLVM makes vectors."""

    def generate(context: Any, builder: Any, signature: Any, operands: Any) -> Any:
        float32 = ir.FloatType()
        shape = ir.FunctionType(float32, [float32, float32])
        function = builder.module.declare_intrinsic("llvm.maximum", [float32], shape)
        return builder.call(function, operands)

    return types.float32(types.float32, types.float32), generate


@intrinsic
def bits_to_float(typing_context: Any, bits: Any) -> Any:
    """The float32 whose bits are those of an int32."""

    def generate(context: Any, builder: Any, signature: Any, operands: Any) -> Any:
        return builder.bitcast(operands[0], ir.FloatType())

    return types.float32(types.int32), generate


@intrinsic
def float_to_bits(typing_context: Any, value: Any) -> Any:
    """The bits of a float32 as an int32."""

    def generate(context: Any, builder: Any, signature: Any, operands: Any) -> Any:
        return builder.bitcast(operands[0], ir.IntType(32))

    return types.int32(types.float32), generate


@intrinsic
def load_word(typing_context: Any, word: Any) -> Any:
    """Read a word; what its writer stored before it is visible afterwards."""

    def generate(context: Any, builder: Any, signature: Any, operands: Any) -> Any:
        return builder.load_atomic(operands[0], "acquire", 8)

    return types.int64(WORDS), generate


@intrinsic
def store_word(typing_context: Any, word: Any, value: Any) -> Any:
    """Write a word; what was stored before it is visible to its readers."""

    def generate(context: Any, builder: Any, signature: Any, operands: Any) -> Any:
        builder.store_atomic(operands[1], operands[0], "release", 8)
        return context.get_dummy_value()

    return types.void(WORDS, types.int64), generate


@intrinsic
def add_to_word(typing_context: Any, word: Any, value: Any) -> Any:
    """Add to a word, and return its earlier value."""

    def generate(context: Any, builder: Any, signature: Any, operands: Any) -> Any:
        return builder.atomic_rmw("add", operands[0], operands[1], "acq_rel")

    return types.int64(WORDS, types.int64), generate


@intrinsic
def replace_word(typing_context: Any, word: Any, expected: Any, value: Any) -> Any:
    """Write `value` if the word is `expected`; whether it was."""

    def generate(context: Any, builder: Any, signature: Any, operands: Any) -> Any:
        found = builder.cmpxchg(*operands, "acq_rel", "acquire")
        return builder.extract_value(found, 1)

    return types.boolean(WORDS, types.int64, types.int64), generate


@intrinsic
def call_kernel(typing_context: Any, address: Any, words: Any, start: Any, stop: Any) -> Any:
    """Call the kernel at an address."""

    def generate(context: Any, builder: Any, signature: Any, operands: Any) -> Any:
        long = ir.IntType(64)
        function = ir.FunctionType(ir.VoidType(), [long.as_pointer(), long, long])
        target = builder.inttoptr(operands[0], function.as_pointer())
        builder.call(target, operands[1:])
        return context.get_dummy_value()

    return types.void(types.int64, WORDS, types.int64, types.int64), generate
