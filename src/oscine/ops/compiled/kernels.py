"""The kernels of the compiled CPU backend, in Python that Numba compiles.

Imported only to compile; `library.py` stores the machine code. Each kernel computes the items
`start` to `stop` of its output, and no result depends on how items are divided.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from oscine.ops.compiled.lowering import (
    add_to_word,
    bits_to_float,
    call_kernel,
    float32_at,
    half_to_float,
    in_order,
    inline,
    int8_at,
    int64_at,
    kernel,
    load_word,
    maximum,
    replace_word,
    square_root,
    store_word,
    uint16_at,
    uint32_at,
)
from oscine.ops.compiled.vectors import Q4_BYTES, Q8_BYTES, q4_sum, q8_sum
from oscine.ops.compiled.words import (
    DONE,
    FUNCTION,
    GELU,
    GENERATION_SHIFT,
    OPERANDS,
    PIECE_BITS,
    PIECE_MASK,
    RELU,
    SILU,
    TICKET,
)
from oscine.ops.reference.activations import ERF_P, ERF_Q

P0, P1, P2, P3, P4, P5, P6 = (np.float32(c) for c in ERF_P)
Q0, Q1, Q2, Q3, Q4 = (np.float32(c) for c in ERF_Q)
ZERO, ONE, HALF, FOUR = np.float32(0), np.float32(1), np.float32(0.5), np.float32(4)
ROOT_HALF, SMALLEST = np.float32(np.sqrt(0.5)), np.float32(-3.4e38)
# exp(x) = 2ⁿ e^r, n = round(x / ln 2) and |r| <= ln 2 / 2, with the polynomial of Cephes expf: its
# error is below 2 in the last place. ln 2 has two parts, the first exact in a product with n.
LOG2_E, LN2_HIGH, LN2_LOW = (
    np.float32(1.44269504),
    np.float32(0.693359375),
    np.float32(-2.12194440e-4),
)
MIN_EXP, MAX_EXP = np.float32(-87), np.float32(88)
E0, E1, E2 = np.float32(1.9875691500e-4), np.float32(1.3981999507e-3), np.float32(8.3334519073e-3)
E3, E4, E5 = np.float32(4.1665795894e-2), np.float32(1.6666665459e-1), np.float32(5.0000001201e-1)


EXPONENT = np.uint32(0x7F800000)
KEY_BLOCK = 32  # keys that stay in the first-level cache for all rows


# -- elements -------------------------------------------------------------------------------------


@in_order
def exp(x: Any) -> Any:
    """e^x, 0 below MIN_EXP; x is at most MAX_EXP, or NaN."""
    bounded = MIN_EXP if x < MIN_EXP else x
    n = np.floor(bounded * LOG2_E + HALF)
    r = bounded - n * LN2_HIGH - n * LN2_LOW
    p = ((((E0 * r + E1) * r + E2) * r + E3) * r + E4) * r + E5
    y = p * r * r + r + ONE
    scale = bits_to_float((np.int32(n) + np.int32(127)) << np.int32(23))
    return ZERO if x < MIN_EXP else y * scale


@in_order
def gelu(x: Any) -> Any:
    z = min(max(x * ROOT_HALF, -FOUR), FOUR)
    q = z * z
    p = (((((P0 * q + P1) * q + P2) * q + P3) * q + P4) * q + P5) * q + P6
    d = (((Q0 * q + Q1) * q + Q2) * q + Q3) * q + Q4
    return x * ((z * p / d + ONE) * HALF)


@inline
def finish(y: Any, bias: Any, add: Any, activation: Any, start: Any, stop: Any) -> None:
    """activation(y + bias) + add over one row's outputs; bias and add: addresses, or 0."""
    if bias != 0:
        b = float32_at(bias)
        for o in range(start, stop):
            y[o] += b[o]
    if activation == GELU:
        for o in range(start, stop):
            y[o] = gelu(y[o])
    elif activation == SILU:
        for o in range(start, stop):
            y[o] = y[o] / (ONE + exp(min(-y[o], MAX_EXP)))
    elif activation == RELU:
        for o in range(start, stop):
            y[o] = maximum(y[o], ZERO)
    if add != 0:
        a = float32_at(add)
        for o in range(start, stop):
            y[o] += a[o]


# -- linear layers --------------------------------------------------------------------------------


@inline
def f32(w: Any, i: Any) -> Any:
    return w[i]


@inline
def f16(w: Any, i: Any) -> Any:
    return half_to_float(w[i])


@inline
def bf16(w: Any, i: Any) -> Any:
    return bits_to_float(np.int32(np.uint32(w[i]) << np.uint32(16)))


def sums_of(pointer: Any, load: Any, size: int) -> Any:
    """Sums for one dtype of weights: four outputs of a row, two of four rows, one of a row."""

    @inline
    def row_by_four(x: Any, weight: Any, n: Any, y: Any, o: Any) -> None:
        w0, w1 = pointer(weight), pointer(weight + size * n)
        w2, w3 = pointer(weight + 2 * size * n), pointer(weight + 3 * size * n)
        s0, s1, s2, s3 = ZERO, ZERO, ZERO, ZERO
        for i in range(n):
            s0 += x[i] * load(w0, i)
            s1 += x[i] * load(w1, i)
            s2 += x[i] * load(w2, i)
            s3 += x[i] * load(w3, i)
        y[o], y[o + 1], y[o + 2], y[o + 3] = s0, s1, s2, s3

    @inline
    def four_by_two(x: Any, weight: Any, n: Any, y: Any, o: Any, outputs: Any) -> None:
        x0, x1 = float32_at(x), float32_at(x + 4 * n)
        x2, x3 = float32_at(x + 8 * n), float32_at(x + 12 * n)
        w0, w1 = pointer(weight), pointer(weight + size * n)
        a0, a1, a2, a3, b0, b1, b2, b3 = ZERO, ZERO, ZERO, ZERO, ZERO, ZERO, ZERO, ZERO
        for i in range(n):
            v, w = load(w0, i), load(w1, i)
            a0 += x0[i] * v
            a1 += x1[i] * v
            a2 += x2[i] * v
            a3 += x3[i] * v
            b0 += x0[i] * w
            b1 += x1[i] * w
            b2 += x2[i] * w
            b3 += x3[i] * w
        y0, y1 = float32_at(y), float32_at(y + 4 * outputs)
        y2, y3 = float32_at(y + 8 * outputs), float32_at(y + 12 * outputs)
        y0[o], y1[o], y2[o], y3[o] = a0, a1, a2, a3
        y0[o + 1], y1[o + 1], y2[o + 1], y3[o + 1] = b0, b1, b2, b3

    @inline
    def row_by_one(x: Any, weight: Any, n: Any) -> Any:
        w, s = pointer(weight), ZERO
        for i in range(n):
            s += x[i] * load(w, i)
        return s

    return row_by_four, four_by_two, row_by_one


def linear_kernel(pointer: Any, load: Any, size: int) -> Any:
    """y = activation(x Wᵀ + bias) + add for a few rows, outputs start to stop.

    Words: x, weight, bias or 0, add or 0, y, rows, inputs, outputs, activation.
    """
    row_by_four, four_by_two, row_by_one = sums_of(pointer, load, size)

    def linear(words: Any, start: Any, stop: Any) -> None:
        x, weight, bias, add, y = words[0], words[1], words[2], words[3], words[4]
        rows, n, outputs, activation = words[5], words[6], words[7], words[8]
        o = start
        while o < stop:
            w, step, r = weight + size * n * o, min(4, stop - o), 0
            while step == 4 and r + 4 <= rows:
                four_by_two(x + 4 * n * r, w, n, y + 4 * outputs * r, o, outputs)
                four_by_two(x + 4 * n * r, w + 2 * size * n, n, y + 4 * outputs * r, o + 2, outputs)
                r += 4
            while r < rows:
                of_row, to = float32_at(x + 4 * n * r), float32_at(y + 4 * outputs * r)
                if step == 4:
                    row_by_four(of_row, w, n, to, o)
                else:
                    for k in range(step):
                        to[o + k] = row_by_one(of_row, w + size * n * k, n)
                r += 1
            o += step
        for r in range(rows):
            after = 0 if add == 0 else add + 4 * outputs * r
            finish(float32_at(y + 4 * outputs * r), bias, after, activation, start, stop)

    return kernel(linear)


linear_f32 = linear_kernel(float32_at, f32, 4)
linear_f16 = linear_kernel(uint16_at, f16, 2)
linear_bf16 = linear_kernel(uint16_at, bf16, 2)


def block_linear_kernel(row_sum: Any, size: int) -> Any:
    """The product of `linear_kernel` for weights in blocks of `size` bytes, with the same words."""

    def linear(words: Any, start: Any, stop: Any) -> None:
        x, weight, bias, add, y = words[0], words[1], words[2], words[3], words[4]
        rows, n, outputs, activation = words[5], words[6], words[7], words[8]
        blocks = n >> 5
        for o in range(start, stop):
            for r in range(rows):
                to = float32_at(y + 4 * (outputs * r + o))
                to[0] = row_sum(x + 4 * n * r, weight + size * blocks * o, blocks)
        for r in range(rows):
            after = 0 if add == 0 else add + 4 * outputs * r
            finish(float32_at(y + 4 * outputs * r), bias, after, activation, start, stop)

    return kernel(linear)


linear_q8 = block_linear_kernel(q8_sum, Q8_BYTES)
linear_q4 = block_linear_kernel(q4_sum, Q4_BYTES)


@kernel
def widen_q8(words: Any, start: Any, stop: Any) -> None:
    """Q8 blocks start to stop to float32. Words: source, result."""
    for k in range(start, stop):
        block, y = words[0] + Q8_BYTES * k, float32_at(words[1] + 128 * k)
        scale, values = half_to_float(uint16_at(block)[0]), int8_at(block + 2)
        for i in range(32):
            y[i] = scale * np.float32(values[i])


@kernel
def widen_q4(words: Any, start: Any, stop: Any) -> None:
    """Q4 blocks start to stop to float32. Words: source, result."""
    for k in range(start, stop):
        block, y = words[0] + Q4_BYTES * k, float32_at(words[1] + 128 * k)
        scale, low = half_to_float(uint16_at(block)[0]), half_to_float(uint16_at(block)[1])
        nibbles = int8_at(block + 4)
        for i in range(16):
            y[i] = scale * np.float32(nibbles[i] & 15) + low
        for i in range(16):
            y[16 + i] = scale * np.float32((nibbles[i] >> 4) & 15) + low


@kernel
def widen_f16(words: Any, start: Any, stop: Any) -> None:
    """float16 to float32. Words: source, result."""
    x, y = uint16_at(words[0]), float32_at(words[1])
    for i in range(start, stop):
        y[i] = half_to_float(x[i])


@kernel
def widen_bf16(words: Any, start: Any, stop: Any) -> None:
    """bfloat16 to float32. Words: source, result."""
    x, y = uint16_at(words[0]), float32_at(words[1])
    for i in range(start, stop):
        y[i] = bf16(x, i)


@kernel
def finish_rows(words: Any, start: Any, stop: Any) -> None:
    """y = activation(y + bias) + add. Words: y, bias or 0, add or 0, outputs, the row's stride in
    bytes, activation."""
    y, bias, add, outputs, stride, activation = (
        words[0], words[1], words[2], words[3], words[4], words[5],
    )  # fmt: skip
    for r in range(start, stop):
        after = 0 if add == 0 else add + stride * r
        finish(float32_at(y + stride * r), bias, after, activation, 0, outputs)


@kernel
def norm(words: Any, start: Any, stop: Any) -> None:
    """Layer norm, or root-mean-square norm without a bias. Words: x, weight, bias or 0, y, width,
    bits of epsilon."""
    width, weight, epsilon = words[4], float32_at(words[1]), bits_to_float(np.int32(words[5]))
    bias = float32_at(words[2])
    for r in range(start, stop):
        x, y = float32_at(words[0] + 4 * width * r), float32_at(words[3] + 4 * width * r)
        mean = ZERO
        if words[2] != 0:
            for i in range(width):
                mean += x[i]
            mean /= np.float32(width)
        square = ZERO
        for i in range(width):
            square += (x[i] - mean) * (x[i] - mean)
        scale = ONE / square_root(square / np.float32(width) + epsilon)
        if words[2] != 0:
            for i in range(width):
                y[i] = (x[i] - mean) * scale * weight[i] + bias[i]
        else:
            for i in range(width):
                y[i] = x[i] * scale * weight[i]


# -- attention ------------------------------------------------------------------------------------


@inline
def row_max(x: Any, count: Any) -> Any:
    top = SMALLEST
    for i in range(count):
        top = maximum(top, x[i])
    return top


@inline
def exp_row(x: Any, count: Any) -> Any:
    """x = e^(x - its maximum), in place; the sum."""
    top, total = row_max(x, count), ZERO
    for i in range(count):
        x[i] = exp(x[i] - top)
    for i in range(count):
        total += x[i]
    return total


@inline
def scale_row(x: Any, factor: Any, count: Any) -> None:
    for i in range(count):
        x[i] *= factor


@inline
def add_scaled(y: Any, factor: Any, x: Any, count: Any) -> None:
    for i in range(count):
        y[i] += factor * x[i]


@inline
def dot(x: Any, y: Any, count: Any) -> Any:
    total = ZERO
    for i in range(count):
        total += x[i] * y[i]
    return total


@kernel
def softmax_weights(words: Any, start: Any, stop: Any) -> None:
    """Rows x = e^(x - maximum), in place, and 1 / their sum. Words: x, the inverse sums, count."""
    count, inverse = words[2], float32_at(words[1])
    for r in range(start, stop):
        inverse[r] = ONE / exp_row(float32_at(words[0] + 4 * count * r), count)


@inline
def attend(words: Any, start: Any, stop: Any, head_width: Any) -> None:
    """softmax(q Kᵀ) V of heads start to stop for a few rows, which see the same keys.

    Words: q [R, D] scaled, keys and values [C, D], the stride of a key in bytes, y [R, D] of zeros,
    scores [H, R, C], rows R, keys C, width D, width of a head. Keys are read in memory's order.
    """
    q, keys, values, stride, y = words[0], words[1], words[2], words[3], words[4]
    scores, rows, count, width = words[5], words[6], words[7], words[8]
    first = 0
    while first < count:
        last = min(first + KEY_BLOCK, count)
        for r in range(rows):
            for c in range(first, last):
                for h in range(start, stop):
                    part = float32_at(q + 4 * (width * r + head_width * h))
                    k = float32_at(keys + stride * c + 4 * head_width * h)
                    to = float32_at(scores + 4 * ((h * rows + r) * count + c))
                    to[0] = dot(part, k, head_width)
        first = last
    for h in range(start, stop):
        for r in range(rows):
            p = float32_at(scores + 4 * (h * rows + r) * count)
            scale_row(p, ONE / exp_row(p, count), count)
    first = 0
    while first < count:
        last = min(first + KEY_BLOCK, count)
        for r in range(rows):
            for c in range(first, last):
                for h in range(start, stop):
                    share = float32_at(scores + 4 * ((h * rows + r) * count + c))[0]
                    v = float32_at(values + stride * c + 4 * head_width * h)
                    out = float32_at(y + 4 * (width * r + head_width * h))
                    add_scaled(out, share, v, head_width)
        first = last


@kernel
def attend_any(words: Any, start: Any, stop: Any) -> None:
    """`attend` for heads of any width."""
    attend(words, start, stop, words[9])


@kernel
def attend_64(words: Any, start: Any, stop: Any) -> None:
    """`attend` for heads of 64, Whisper's: the compiler unrolls what it knows."""
    attend(words, start, stop, 64)


# -- choosing a token -----------------------------------------------------------------------------


@kernel
def choose(words: Any, start: Any, stop: Any) -> None:
    """The best of the finite logits start to stop that a mask leaves, and the sum of all of them.

    Words: logits, mask of uint32, the mask's bits, the result as float32: id, or -1 where the mask
    leaves none; its logit; Σ e^(x - logit).
    """
    x, mask, out = float32_at(words[0]), uint32_at(words[1]), float32_at(words[3])
    bits = np.uint32(words[2])
    top = SMALLEST
    for i in range(start, stop):
        top = maximum(top, x[i] if (mask[i] & bits) == 0 else SMALLEST)
    best = start
    while best < stop and (x[best] != top or (mask[best] & bits) != 0):
        best += 1
    total = ZERO
    for i in range(start, stop):
        total += exp(x[i] - top) if (mask[i] & bits) == 0 else ZERO
    out[0], out[1], out[2] = np.float32(best if best < stop else -1), top, total


@kernel
def count_nonfinite(words: Any, start: Any, stop: Any) -> None:
    """How many values are infinite or NaN. Words: values, the result as int64."""
    x, out = uint32_at(words[0]), int64_at(words[1])
    found = np.uint32(0)
    for i in range(start, stop):
        found += np.uint32((x[i] & EXPONENT) == EXPONENT)
    out[0] = np.int64(found)


# -- threads --------------------------------------------------------------------------------------


@inline
def take_pieces(team: Any) -> Any:
    """Compute pieces of the present work until none is left; how many."""
    taken = 0
    while True:
        ticket = load_word(int64_at(team + 8 * TICKET))
        piece, pieces = ticket & PIECE_MASK, (ticket >> PIECE_BITS) & PIECE_MASK
        if piece >= pieces:
            return taken
        if replace_word(int64_at(team + 8 * TICKET), ticket, ticket + 1):
            shared = int64_at(team + 8 * FUNCTION)
            operands = int64_at(team + 8 * OPERANDS)
            grain, items = operands[1], operands[2]
            first = piece * grain
            call_kernel(shared[0], int64_at(operands[0]), first, min(first + grain, items))
            add_to_word(int64_at(team + 8 * DONE), 1)
            taken += 1


@kernel
def divide(words: Any, start: Any, stop: Any) -> None:
    """Compute a kernel's items in pieces, together with the threads that wait in `join`.

    Words: team, kernel, its words, grain, items, and the result: how many pieces are computed.
    Returns when no piece is left to begin, and at most `stop` looks later, though another thread
    may still compute its last one.
    """
    team, grain, items = words[0], words[3], words[4]
    pieces = (items + grain - 1) // grain
    int64_at(team + 8 * FUNCTION)[0] = words[1]
    operands = int64_at(team + 8 * OPERANDS)
    operands[0], operands[1], operands[2] = words[2], grain, items
    store_word(int64_at(team + 8 * DONE), 0)
    before = load_word(int64_at(team + 8 * TICKET)) >> GENERATION_SHIFT
    store_word(
        int64_at(team + 8 * TICKET), ((before + 1) << GENERATION_SHIFT) | (pieces << PIECE_BITS)
    )
    take_pieces(team)
    looks = 0
    words[5] = load_word(int64_at(team + 8 * DONE))
    while looks < stop and words[5] < pieces:
        words[5] = load_word(int64_at(team + 8 * DONE))
        looks += 1


@kernel
def join(words: Any, start: Any, stop: Any) -> None:
    """Compute pieces of `divide`, until there has been no work for `stop` looks. Words: team."""
    idle = 0
    while idle < stop:
        idle = 0 if take_pieces(words[0]) else idle + 1
