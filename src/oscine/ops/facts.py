"""Facts that an op declares: which operands it writes, and which rows of its result are undefined.

Shadow mode compares by these facts, and tests check every op against them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

Definition = TypeVar("Definition", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Facts:
    """What an op declares.

    writes: the operands that the op changes, whole ("memory") or one tensor of them ("state.rows");
    it changes no other. masked: the operand whose rows say which sequences are done; the rows of
    the result of those sequences are undefined. "": all rows of the result are defined.
    """

    writes: tuple[str, ...] = ()
    masked: str = ""

    def written(self, given: Mapping[str, Any]) -> list[Any]:
        """The tensors, and trees of them, that a call writes; given: its operands by name."""
        found = []
        for path in self.writes:
            operand, _, field = path.partition(".")
            value = given.get(operand)
            if value is not None:
                found.append(getattr(value, field) if field else value)
        return found


def op(writes: tuple[str, ...] = (), masked: str = "") -> Callable[[Definition], Definition]:
    """Mark a method as an op's definition, and declare its facts."""

    def declare(definition: Definition) -> Definition:
        setattr(definition, "facts", Facts(writes, masked))  # noqa: B010
        return definition

    return declare


def facts_of(vocabulary: type) -> dict[str, Facts]:
    """The facts of every op that a class defines, by name."""
    methods = {name: getattr(vocabulary, name) for name in dir(vocabulary)}
    return {name: one.facts for name, one in methods.items() if hasattr(one, "facts")}
