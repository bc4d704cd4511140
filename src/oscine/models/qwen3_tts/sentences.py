"""Splits a text into pieces that are spoken one after another, at sentences where possible.

Given minutes of text at once, a model drifts off into gibberish; given a sentence or two it does
not. Sentences end by the rules of the ten languages. In case of doubt (after an abbreviation or a
number, before a lower-case letter) a sentence continues, since a piece that is too long can still
be cut: at a clause, else between words, else between grapheme clusters. A line's end is an end
unless it follows an abbreviation, so that a user at a terminal is answered at once.

The text may arrive in parts. A sentence is complete as soon as the next characters show it, and how
the text is split into parts never changes the sentences.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache

from oscine.text.pauses import Pause, split_pauses

#: Length of a piece, by `count_letters`: 200 letters are about 13 s of speech. A sentence is cut if
#: it is longer than MAX_LETTERS, at TARGET_LETTERS or before, so that no tiny remainder is left.
TARGET_LETTERS, MAX_LETTERS = 200.0, 260.0
#: Silence after each.
SENTENCE_PAUSE_S, CLAUSE_PAUSE_S, PARAGRAPH_PAUSE_S = 0.2, 0.0, 0.5
NOT_AN_END = -1.0
_LOOKAHEAD = 3  # characters after an index that show whether marks continue

_CLOSERS = "\"'”’«»‹›)\\]}」』）】》〉］｝〕〗"
#: A German quotation ends as a Chinese one begins, a French one after a space.
_QUOTE_END = r"“(?=[\s,;:)]|\Z)|[^\S\n]»(?=\s|\Z)"
_END_MARKS_PATTERN = re.compile(
    rf"(?P<marks>[.!?…‼⁇⁈⁉。！？｡．]+)(?P<closers>[{_CLOSERS}]*(?:{_QUOTE_END})?)|\n"
)
_NON_SPACE_PATTERN = re.compile(r"\S")
_REST_OF_BLANK_LINE_PATTERN = re.compile(r"[^\S\n]*\n")
_OPENERS_PATTERN = re.compile("[\"'“„‘‚«‹(\\[{¿¡「『（【《〈-]+")
_LAST_WORD_PATTERN = re.compile(r"[^\s\"'“„‘«(\[{/–—-]+$")
_WIDE_MARKS = frozenset("。！？｡．")
_LIST_ITEM_PATTERN = re.compile(r"[^\S\n]*(?:[-*•–—]\s|\d{1,3}[.)]\s)")  # of a list
_PARTIAL_LIST_ITEM_PATTERN = re.compile(r"\s*(?:[-*•–—]|\d{1,3}[.)]?)?")
_QUOTE_CONTINUATIONS = frozenset(
    "とってなのだ，、,;；"
)  # after a Japanese or Chinese quotation: "he said"
_CUT_PATTERNS = (
    re.compile(rf"[;:…][{_CLOSERS}]*(?=\s)|\s(?=[–—-]\s)|[；：]|[.!?][{_CLOSERS}]*(?=\s)|—|\n"),
    re.compile(rf",[{_CLOSERS}]*(?=\s)|[，、﹐､]"),
    re.compile(r"\s"),
)
#: Words whose full stop does not end a sentence, even before a capital or a number.
_ABBREVIATIONS = frozenset(
    """
    mr mrs ms mx dr prof st mt sr jr rev hon gen col sgt capt lt cpl maj adm gov sen rep pres no nos
    vol vols fig figs eq pp eds vs cf approx dept jan feb apr aug sep sept oct nov dec
    hr hrn fr frl nr str abb bd bsp bzw ca evtl ggf inkl exkl tel vgl ing dipl abs jh
    mm mme mmes mlle mlles pr env av bd boul chap éd
    sra srta srtas dra ud uds vd vds dña gral núm pág págs cap ee uu
    sig sigg dott avv arch egr pag exmo exma eng
    г гг ул пр просп пер пл д кв см стр рис табл им тыс млн млрд руб коп проф акад доц св тел гл ст
    """.split()
)


@dataclass(frozen=True, slots=True)
class TextPiece:
    """A piece of text that is spoken as one utterance, or a pause.

    `pause_s`: seconds of silence due before it; `whitespace`: the white space before it in the
    text. `silence_s`: for a piece without text, the length of a pause mark in seconds.
    """

    text: str
    pause_s: float
    whitespace: str = ""
    silence_s: float = 0.0

    def joined(self, other: TextPiece) -> TextPiece:
        """This piece and the next as one."""
        return TextPiece(self.text + other.whitespace + other.text, self.pause_s, self.whitespace)


@lru_cache(maxsize=4096)
def _letter_weight(character: str) -> float:
    kind = unicodedata.category(character)
    if kind[0] in "MC":
        return 0.2
    if kind[0] in "ZN":
        return 0.5 if kind[0] == "Z" else 4.0
    return 2.5 if kind == "Lo" and unicodedata.east_asian_width(character) in "WFH" else 1.0


def count_letters(text: str) -> float:
    """The length of speech in Latin letters: a digit counts 4, a Chinese, Japanese or Korean letter
    2.5.
    """
    return sum(map(_letter_weight, text))


def split_sentences(text: str) -> list[TextPiece]:
    """Split a whole text into pieces; sentences of a paragraph are joined up to TARGET_LETTERS.

    Joined they equal the text but for white space at its end and pause marks, which become pieces
    without text. Raises UsageError for a pause that is too long.
    """
    packed: list[TextPiece] = []
    size = 0.0
    for piece in stream_sentences([text]):
        size += count_letters(piece.whitespace + piece.text)
        if packed and piece.pause_s == SENTENCE_PAUSE_S and size <= TARGET_LETTERS:
            packed[-1] = packed[-1].joined(piece)
        else:
            packed.append(piece)
            size = count_letters(piece.text)
    return packed


def stream_sentences(parts: Iterable[str]) -> Iterator[TextPiece]:
    """Yield each sentence of a text that arrives in parts as soon as it is complete.

    A sentence longer than MAX_LETTERS is split into several pieces, the first before all of it has
    arrived. A pause mark ends a sentence.
    """
    held, pause = "", 0.0
    blanks: list[str] = []  # white space before a sentence, kept apart so that it is scanned once
    for part in split_pauses(parts):
        if isinstance(part, Pause):
            yield from _complete_pieces("".join([*blanks, held]), pause, final=True)
            yield TextPiece("", 0.0, silence_s=part.seconds)
            held, pause, blanks = "", 0.0, []
            continue
        if not held and part.isspace():
            blanks.append(part)
            continue
        held, pause = yield from _complete_pieces(
            "".join([*blanks, held, part]), pause, final=False
        )
        blanks = []
        if held.isspace():
            blanks, held = [held], ""
    yield from _complete_pieces("".join([*blanks, held]), pause, final=True)


def _complete_pieces(
    text: str, pause: float, final: bool
) -> Generator[TextPiece, None, tuple[str, float]]:
    """Yield the complete pieces; returns the remaining text.

    `pause`: the silence due before the first piece; the value due before the remaining text is
    returned. Decisions depend on the text that is there only, never on how much more follows.
    """
    done = 0
    while (start := _skip_space(text, done)) < len(text):
        limit = _index_after_letters(text, start, MAX_LETTERS)
        end, next_pause = _sentence_end(text, start, limit, final)
        if end is None:
            break
        if end > limit:
            end, next_pause = _cut_position(text, start), CLAUSE_PAUSE_S
        sentence, whitespace = text[start:end].rstrip(), text[done:start]
        yield TextPiece(
            sentence, PARAGRAPH_PAUSE_S if whitespace.count("\n") > 1 else pause, whitespace
        )
        done, pause = start + len(sentence), next_pause
    return text[done:], pause


def _skip_space(text: str, start: int) -> int:
    found = _NON_SPACE_PATTERN.search(text, start)
    return len(text) if found is None else found.start()


def _index_after_letters(text: str, start: int, max_letters: float) -> int:
    """The index at which the text from `start` exceeds that many letters; beyond its end if it
    never does.
    """
    size = 0.0
    for index in range(start, len(text)):
        size += _letter_weight(text[index])
        if size > max_letters:
            return index
    return len(text) + 1


# -- ends of sentences ----------------------------------------------------------------------------


def _sentence_end(text: str, start: int, limit: int, final: bool) -> tuple[int | None, float]:
    """Where the sentence ends and the pause due after it; None: more text is needed.

    An index above `limit`: the sentence does not end before there.
    """
    position = start
    while (found := _END_MARKS_PATTERN.search(text, position, limit)) is not None:
        # All of the marks, which may continue beyond `limit`; how far does not matter.
        mark = _END_MARKS_PATTERN.match(text, found.start(), limit + _LOOKAHEAD)
        assert mark is not None
        if mark.end() > limit:
            return limit + 1, CLAUSE_PAUSE_S
        pause = _pause_after_line(text, mark, final) if mark[0] == "\n" else NOT_AN_END
        if mark[0] != "\n":
            pause = _pause_after_marks(text, start, mark, final)
        if pause is None:
            return None, 0.0
        if pause != NOT_AN_END and any(map(str.isalnum, text[start : mark.start()])):
            return mark.end(), pause
        position = mark.end()
    if limit <= len(text):
        return limit + 1, CLAUSE_PAUSE_S
    return (len(text), SENTENCE_PAUSE_S) if final else (None, 0.0)


def _pause_after_line(text: str, line: re.Match[str], final: bool) -> float | None:
    """The pause after a line's end: a blank line or a list item ends a sentence, a single newline
    does not.
    """
    if _REST_OF_BLANK_LINE_PATTERN.match(text, line.end()) or _LIST_ITEM_PATTERN.match(
        text, line.end()
    ):
        return SENTENCE_PAUSE_S
    if not final and _PARTIAL_LIST_ITEM_PATTERN.fullmatch(text, line.end()):
        return None
    return NOT_AN_END


def _pause_after_marks(text: str, start: int, mark: re.Match[str], final: bool) -> float | None:
    """The pause after a full stop or the like, or NOT_AN_END; None: more text is needed."""
    end = mark.end()
    following = _skip_space(text, end)
    gap = text[end:following]
    bare = mark["marks"] == "." and not mark["closers"]
    doubtful = bare and _is_abbreviated(text[start : mark.start()])
    if gap.count("\n") > doubtful:
        return SENTENCE_PAUSE_S
    if following == len(text):
        return SENTENCE_PAUSE_S if final else None
    if _WIDE_MARKS.intersection(mark["marks"]):
        if mark[0] == "．" and text[end].isdecimal():
            return NOT_AN_END
        return (
            NOT_AN_END
            if mark["closers"] and text[end] in _QUOTE_CONTINUATIONS
            else SENTENCE_PAUSE_S
        )
    if not gap:
        wide = unicodedata.east_asian_width(text[end]) in "WF"
        return SENTENCE_PAUSE_S if wide and mark["marks"] != "." else NOT_AN_END
    opened = _OPENERS_PATTERN.match(text, following)
    first = following if opened is None else opened.end()
    if first == len(text):
        return SENTENCE_PAUSE_S if final else None
    return NOT_AN_END if text[first].islower() or doubtful else SENTENCE_PAUSE_S


def _is_abbreviated(sentence: str) -> bool:
    """Whether the last word before a full stop is usually an abbreviation or a number: Dr., z.B.,
    J., 3.
    """
    found = _LAST_WORD_PATTERN.search(sentence)
    if found is None:
        return False
    word = found[0].lower()
    if word in _ABBREVIATIONS or (word.isdecimal() and len(word) < 4):
        return True
    if len(word) == 1:
        return word != word.upper()
    return "." in word and all(len(part) < 4 and part.isalpha() for part in word.split("."))


# -- sentences that are too long ------------------------------------------------------------------


def _cut_position(text: str, start: int) -> int:
    """Where to cut a text longer than MAX_LETTERS: the last good position before TARGET_LETTERS."""
    latest = _index_after_letters(text, start, TARGET_LETTERS)
    earliest = _index_after_letters(text, start, TARGET_LETTERS / 3)
    for pattern in _CUT_PATTERNS:
        ends = [match.end() for match in pattern.finditer(text, earliest, latest)]
        if ends:
            return ends[-1]
    for whole in (_is_within_word, _is_within_character):
        for index in range(latest, earliest, -1):
            if not whole(text, index, start):
                return index
    while latest < len(text) and _is_within_character(text, latest, start):
        latest += 1
    return latest


def _is_within_word(text: str, index: int, start: int) -> bool:
    before, after = text[index - 1], text[index]
    plain = all(
        c.isalnum() and unicodedata.east_asian_width(c) not in "WF" for c in (before, after)
    )
    return plain or _is_within_character(text, index, start)


def _is_within_character(text: str, index: int, start: int) -> bool:
    """Whether a cut here would split a grapheme cluster.

    `start` is a boundary, at most a few hundred characters before `index`. Source: Unicode annex
    29, without the rules for scripts that no model here supports.
    """
    before, after = text[index - 1], text[index]
    if unicodedata.category(after)[0] == "M" or after in "\u200c\u200d" or before == "\u200d":
        return True
    if "\U0001f3fb" <= after <= "\U0001f3ff" or "\U000e0020" <= after <= "\U000e007f":
        return True  # skin tones and the tags of flags
    if before + after == "\r\n" or (
        "\uac00" <= before <= "\ud7a3" and "\u1160" <= after <= "\u11ff"
    ):
        return True
    if "\u1100" <= before <= "\u11ff" and "\u1100" <= after <= "\u11ff":
        return True  # the parts of a Korean syllable
    if not _is_regional_indicator(before) or not _is_regional_indicator(after):
        return False
    ahead = index
    while ahead > start and _is_regional_indicator(text[ahead - 1]):
        ahead -= 1
    return (index - ahead) % 2 == 1  # two regional indicators are a flag


def _is_regional_indicator(character: str) -> bool:
    return "\U0001f1e6" <= character <= "\U0001f1ff"
