"""Numbers that the kernels and their callers share."""

from __future__ import annotations

GELU, SILU, RELU = 1, 2, 3

#: Word indices of a team's memory, each in a cache line of its own.
TICKET, DONE, FUNCTION, OPERANDS = 0, 16, 32, 40
TEAM_WORDS = 64
#: A ticket has the number of the work, how many pieces it has, and the next piece.
PIECE_BITS = 20
PIECE_MASK = (1 << PIECE_BITS) - 1
GENERATION_SHIFT = 2 * PIECE_BITS
