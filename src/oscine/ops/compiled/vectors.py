"""Sums over blocks of 8 and 4 bits, as vectors in LLVM's code, which Numba cannot express.

A block has 32 weights of a row: oscine.quantized. Its weights are multiplied with x in float32, and
the block's scale is multiplied in before the lanes are added up, once for a whole row. Imported
only to compile.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core.cgutils import for_range
from numba.extending import intrinsic

LANES = 16  # half a block; narrower processors split a vector
BYTE, HALF, FLOAT, LONG = ir.IntType(8), ir.HalfType(), ir.FloatType(), ir.IntType(64)
BYTES, FLOATS = ir.VectorType(BYTE, LANES), ir.VectorType(FLOAT, LANES)
FAST = ("contract", "reassoc", "nsz")

Q8_BYTES, Q4_BYTES = 34, 20  # of a block


def load(builder: Any, address: Any, offset: int, kind: Any, align: int) -> Any:
    """Load a value of a type at an address plus an offset."""
    pointer = builder.inttoptr(builder.add(address, LONG(offset)), kind.as_pointer())
    return builder.load(pointer, align=align)


def broadcast(builder: Any, half: Any) -> Any:
    """A float16 in every lane, as float32."""
    first = builder.insert_element(
        ir.Constant(FLOATS, ir.Undefined), builder.fpext(half, FLOAT), ir.IntType(32)(0)
    )
    zeros = ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES)
    return builder.shuffle_vector(first, ir.Constant(FLOATS, ir.Undefined), zeros)


def q8_products(builder: Any, block: Any, low: Any, high: Any) -> Any:
    """The products of a Q8 block with x, whose halves are `low` and `high`, in 16 sums."""
    first = builder.sitofp(load(builder, block, 2, BYTES, 1), FLOATS)
    second = builder.sitofp(load(builder, block, 2 + LANES, BYTES, 1), FLOATS)
    both = builder.fadd(
        builder.fmul(first, low, flags=FAST), builder.fmul(second, high, flags=FAST), flags=FAST
    )
    scale = broadcast(builder, load(builder, block, 0, HALF, 1))
    return builder.fmul(both, scale, flags=FAST)


def q4_products(builder: Any, block: Any, low: Any, high: Any) -> Any:
    """The products of a Q4 block with x, whose halves are `low` and `high`, in 16 sums."""
    nibbles = load(builder, block, 4, BYTES, 1)
    first = builder.and_(nibbles, ir.Constant(BYTES, [15] * LANES))
    second = builder.lshr(nibbles, ir.Constant(BYTES, [4] * LANES))
    both = builder.fadd(
        builder.fmul(builder.uitofp(first, FLOATS), low, flags=FAST),
        builder.fmul(builder.uitofp(second, FLOATS), high, flags=FAST),
        flags=FAST,
    )
    scale = broadcast(builder, load(builder, block, 0, HALF, 1))
    least = broadcast(builder, load(builder, block, 2, HALF, 1))
    lowest = builder.fmul(builder.fadd(low, high, flags=FAST), least, flags=FAST)
    return builder.fadd(builder.fmul(both, scale, flags=FAST), lowest, flags=FAST)


def block_sum(products: Callable[..., Any], size: int) -> Any:
    """An intrinsic (address of x, of a row's blocks, their number): the sum of their products."""

    @intrinsic
    def row_sum(typing_context: Any, x: Any, blocks: Any, count: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, operands: Any) -> Any:
            x, blocks, count = operands
            with builder.goto_entry_block():
                total = builder.alloca(FLOATS)
            builder.store(ir.Constant(FLOATS, [0.0] * LANES), total)
            with for_range(builder, count) as loop:
                block = builder.add(blocks, builder.mul(loop.index, LONG(size)))
                of_x = builder.add(x, builder.mul(loop.index, LONG(8 * LANES)))
                low = load(builder, of_x, 0, FLOATS, 4)
                high = load(builder, of_x, 4 * LANES, FLOATS, 4)
                found = products(builder, block, low, high)
                builder.store(builder.fadd(builder.load(total), found, flags=FAST), total)
            shape = ir.FunctionType(FLOAT, [FLOAT, FLOATS])
            name = f"llvm.vector.reduce.fadd.v{LANES}f32"
            add_up = builder.module.declare_intrinsic(name, fnty=shape)
            return builder.call(add_up, [FLOAT(0.0), builder.load(total)], fastmath=FAST)

        return types.float32(types.int64, types.int64, types.int64), generate

    return row_sum


q8_sum = block_sum(q8_products, Q8_BYTES)
q4_sum = block_sum(q4_products, Q4_BYTES)
