"""Effects that an op declares: the operands it writes, and which rows of its result are undefined.

Shadow mode compares by them, and tests check every op against them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

Definition = TypeVar("Definition", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class OpEffects:
    """What an op changes, and which rows of its result are undefined.

    writes: the operands that the op changes, whole ("memory") or one tensor of them ("state.rows");
    it changes no other. row_mask: the operand whose rows say which sequences are done; the rows of
    the result of those sequences are undefined. "": all rows of the result are defined.
    """

    writes: tuple[str, ...] = ()
    row_mask: str = ""

    def written(self, operands: Mapping[str, Any]) -> list[Any]:
        """The tensors, and trees of them, that a call writes; operands: its operands by name."""
        written = []
        for path in self.writes:
            operand, _, field = path.partition(".")
            value = operands.get(operand)
            if value is not None:
                written.append(getattr(value, field) if field else value)
        return written


def op(writes: tuple[str, ...] = (), row_mask: str = "") -> Callable[[Definition], Definition]:
    """Mark a method as an op's definition, and declare its effects."""

    def declare(definition: Definition) -> Definition:
        setattr(definition, "effects", OpEffects(writes, row_mask))  # noqa: B010
        return definition

    return declare


def op_effects(vocabulary: type) -> dict[str, OpEffects]:
    """The effects of every op that a class defines, by name."""
    methods = {name: getattr(vocabulary, name) for name in dir(vocabulary)}
    return {name: one.effects for name, one in methods.items() if hasattr(one, "effects")}
