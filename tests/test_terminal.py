"""What may not reach a terminal, over all of Unicode."""

from __future__ import annotations

import io
import sys
import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from oscine.terminal import SanitizedStream, printable, strip_controls

#: Scripts are written with these: joiners, spaces without width, signs that enclose digits.
KEPT = set("\u200b\u200c\u200d")
EVERY = [chr(code) for code in range(sys.maxunicode + 1)]
BIDIRECTIONAL = [each for each in EVERY if unicodedata.bidirectional(each) in
                 ("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI")]  # fmt: skip


def test_all_controls_of_unicode_are_escaped_in_messages() -> None:
    bad = [each for each in EVERY if unicodedata.category(each) in ("Cc", "Cs", "Zl", "Zp")]
    assert len(bad) > 2000
    for each in [*bad, *BIDIRECTIONAL, "\u061c", "\u200e", "\u200f", "\ufeff", "\U000e0041"]:
        assert printable(f"a{each}b") == f"a{each.encode('unicode_escape').decode()}b"
    assert printable("a\r\n\x1b[31m\x9b\u202ex\udcff") == r"a\r\n\x1b[31m\x9b\u202ex\udcff"


def test_what_people_write_is_left_as_it_is() -> None:
    seen = [each for each in EVERY if unicodedata.category(each)[0] in "LMNPS"]
    seen += [each for each in EVERY if unicodedata.category(each) == "Zs"]
    for each in ("".join(seen), "".join(KEPT)):
        assert printable(each) == strip_controls(each) == each


def test_results_have_no_controls_but_what_parts_lines_and_columns() -> None:
    left = strip_controls("".join(EVERY))
    breaks = set("\t\n\v\f\r\x1c\x1d\x1e\x85\u2028\u2029")
    assert {each for each in left if unicodedata.category(each) in ("Cc", "Zl", "Zp")} == breaks
    assert not set(BIDIRECTIONAL) & set(left)


@given(st.lists(st.text()))
def test_a_guarded_stream_passes_line_breaks_alone(parts: list[str]) -> None:
    behind = io.StringIO(newline="")
    stream = SanitizedStream(behind)
    assert [stream.write(part) for part in parts] == [len(part) for part in parts]
    stream.writelines(parts)
    shown = behind.getvalue()
    assert shown.count("\n") == 2 * "".join(parts).count("\n")
    assert not [each for each in shown if unicodedata.category(each) == "Cc" and each != "\n"]
    assert not set(BIDIRECTIONAL) & set(shown)
