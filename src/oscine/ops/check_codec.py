"""Cases of the ops of codecs."""

from __future__ import annotations

from oscine.ops.check_cases import Case

CASES: tuple[Case, ...] = ()
