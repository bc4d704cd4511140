"""SentencePiece tokenizer: ids to text and back.

Four files give the same tokenizer: tokenizer.model (read by sentencepiece_model.py),
tokenizer.json, vocab.txt and the list of labels in a configuration. Decoding needs the pieces only;
encoding, for hotwords, also needs the scores, which decrease with the id in a BPE vocabulary.
Source: google/sentencepiece src/bpe_model.cc, src/unigram_model.cc (EncodeOptimized),
src/sentencepiece_processor.cc (Decode).
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import inf

from oscine.text.bpe import bpe_merge
from oscine.text.longest_match import LongestMatch

SPACE = "\u2581"  # a space inside pieces
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)  # ModelProto.SentencePiece.Type
UNIGRAM, BPE, WORD, CHAR = range(1, 5)  # TrainerSpec.ModelType
_UNKNOWN_PENALTY, _USER_DEFINED_PENALTY = 10.0, 0.1  # of scores: unigram_model.cc

_MARKUP_PATTERN = re.compile(r"<[^<>\s]+>")
#: Pieces that do not count for `punctuation`.
_NOT_PUNCTUATION_PATTERN = re.compile(r"\[.*\]$|<.*>$|##|\u2581|\s*$")
_BYTE_PIECE_PATTERN = re.compile(r"<0x([0-9A-Fa-f]{2})>")

Normalizer = Callable[[str], str]


def nfkc(text: str) -> str:
    """Normalize as nmt_nfkc does for text that people type."""
    return unicodedata.normalize("NFKC", text)


def identity(text: str) -> str:
    """The identity normalizer."""
    return text


@dataclass(frozen=True, eq=False)
class SentencePieceTokenizer:
    """A vocabulary of V pieces.

    `types` and `scores` are SentencePiece's, one a piece. `normalizer` is applied to text before
    encoding. `model_type` selects the encoding: UNIGRAM, BPE, WORD or CHAR.
    """

    pieces: tuple[str, ...]
    types: tuple[int, ...]
    scores: tuple[float, ...]
    normalizer: Normalizer = field(default=identity)
    model_type: int = BPE

    @classmethod
    def from_pieces(cls, pieces: Sequence[str]) -> SentencePieceTokenizer:
        """A tokenizer from the pieces alone: <...> is a control piece, and scores decrease with the
        id.
        """
        kinds = tuple(piece_type(name) for name in pieces)
        return cls(tuple(pieces), kinds, tuple(-float(id) for id in range(len(pieces))), nfkc)

    def __len__(self) -> int:
        return len(self.pieces)

    def is_control(self, id: int) -> bool:
        """Whether an id has no text: unknown, control, unused, or beyond the vocabulary."""
        return not 0 <= id < len(self.pieces) or self._is_control[id]

    def starts_word(self, id: int) -> bool:
        """Whether a piece begins with a space."""
        return not self.is_control(id) and self.pieces[id].startswith(SPACE)

    def piece_text(self, id: int) -> str:
        """One piece's text, with a space if a word begins; "" for control pieces.

        It is "" for a byte piece too, which is text only together with its neighbours.
        """
        if self.is_control(id) or self.types[id] == BYTE:
            return ""
        return self.pieces[id].replace(SPACE, " ")

    def is_space(self, id: int) -> bool:
        """Whether a piece is a space alone."""
        return not self.is_control(id) and self.pieces[id] == SPACE

    def is_punctuation(self, id: int) -> bool:
        """Whether a piece is one of `punctuation`, with or without a space before it."""
        return not self.is_control(id) and self.pieces[id].removeprefix(SPACE) in self.punctuation

    @cached_property
    def punctuation(self) -> frozenset[str]:
        """The characters that NeMo treats as punctuation for this vocabulary.

        They are the characters of Unicode's category P in all pieces but special ones and those
        that begin with a space. Source: NeMo nemo/collections/asr/parts/utils/tokenizer_utils.py
        (extract_punctuation_from_vocab).
        """
        characters = {
            c for name in self.pieces if not _NOT_PUNCTUATION_PATTERN.match(name) for c in name
        }
        return frozenset(c for c in characters if unicodedata.category(c).startswith("P"))

    def strip_space_before_punctuation(self, text: str) -> str:
        """Remove one white space before each of `punctuation`; further ones are the model's own.

        Source: NeMo nemo/collections/asr/parts/submodules/rnnt_decoding.py and ctc_decoding.py
        (decode_tokens_to_str_with_strip_punctuation).
        """
        return (
            text
            if self._space_before_punctuation is None
            else self._space_before_punctuation.sub(r"\1", text)
        )

    @cached_property
    def _space_before_punctuation(self) -> re.Pattern[str] | None:
        marks = "".join(map(re.escape, sorted(self.punctuation)))
        return re.compile(rf"\s([{marks}])") if marks else None

    def decode(self, ids: Iterable[int]) -> str:
        """The text of ids, without the space before the first word.

        Neighbouring byte pieces form UTF-8 together; an incomplete character is dropped.
        """
        parts: list[str] = []
        pending = bytearray()
        for id in ids:
            if self.is_control(id):
                continue
            if self.types[id] == BYTE:
                pending.append(self._byte_of_id[id])
                continue
            if pending:
                parts.append(pending.decode("utf-8", "ignore"))
                pending.clear()
            parts.append(self.pieces[id].replace(SPACE, " "))
        parts.append(pending.decode("utf-8", "ignore"))
        return "".join(parts).removeprefix(" ")

    def encode(self, text: str) -> tuple[int, ...] | None:
        """Ids of a phrase as the model would write it; None if a character has no piece.

        BPE: the adjacent pair whose merged piece has the highest score is merged, the leftmost of
        equals, until no pair is a piece. User-defined pieces (v3's digits) are never merged.
        Unigram and char: the pieces with the highest sum of scores. Word: each word is a piece.
        """
        words = self.normalizer(text).split()
        if not words:
            return ()
        symbols = [SPACE + word for word in words]
        if self.model_type == BPE:
            symbols = bpe_merge(
                self._initial_symbols("".join(symbols)), self._merge_ranks, self._user_defined
            )
        elif self.model_type != WORD:
            symbols = _viterbi("".join(symbols), self._unigram_scores, self._unknown_score)
        ids: list[int] = []
        for symbol in symbols:
            id = self._id_of_piece.get(symbol)
            if id is not None:
                ids.append(id)
                continue
            spelled = [self._id_of_byte.get(byte) for byte in symbol.encode("utf-8")]
            if any(id is None for id in spelled):
                return None
            ids += [id for id in spelled if id is not None]
        return tuple(ids)

    def _initial_symbols(self, text: str) -> list[str]:
        """Characters, with user-defined pieces kept whole, longest first."""
        symbols: list[str] = []
        for part, whole in self._user_defined_matcher.split(text):
            symbols += [part] if whole else part
        return symbols

    @cached_property
    def _is_control(self) -> tuple[bool, ...]:
        return tuple(
            kind in (UNKNOWN, CONTROL, UNUSED)
            or (kind == USER_DEFINED and _MARKUP_PATTERN.fullmatch(name) is not None)
            for name, kind in zip(self.pieces, self.types, strict=True)
        )

    @cached_property
    def _byte_of_id(self) -> dict[int, int]:
        return {
            id: int(found[1], 16)
            for id, name in enumerate(self.pieces)
            if self.types[id] == BYTE and (found := _BYTE_PIECE_PATTERN.fullmatch(name))
        }

    @cached_property
    def _id_of_byte(self) -> dict[int, int]:
        return {byte: id for id, byte in reversed(self._byte_of_id.items())}

    @cached_property
    def _user_defined(self) -> frozenset[str]:
        return frozenset(
            name
            for id, name in enumerate(self.pieces)
            if self.types[id] == USER_DEFINED and name and not self._is_control[id]
        )

    @cached_property
    def _user_defined_matcher(self) -> LongestMatch:
        return LongestMatch(self._user_defined)

    @cached_property
    def _id_of_piece(self) -> dict[str, int]:
        """Ids of text pieces; the first of equal pieces counts."""
        text = (NORMAL, USER_DEFINED)
        return {
            name: id
            for id, name in reversed(list(enumerate(self.pieces)))
            if self.types[id] in text and not self._is_control[id]
        }

    @cached_property
    def _merge_ranks(self) -> dict[str, float]:
        return {
            name: -self.scores[id]
            for name, id in self._id_of_piece.items()
            if name not in self._user_defined
        }

    @cached_property
    def _unigram_scores(self) -> dict[str, float]:
        """Scores of text pieces; those of user-defined pieces depend on the highest of the
        others.
        """
        scores = {name: -rank for name, rank in self._merge_ranks.items()}
        highest = max(scores.values(), default=0.0)
        user = {
            name: len(name.encode()) * highest - _USER_DEFINED_PENALTY
            for name in self._user_defined
        }
        return scores | user

    @cached_property
    def _unknown_score(self) -> float:
        return -max(self._merge_ranks.values(), default=0.0) - _UNKNOWN_PENALTY


def piece_type(name: str) -> int:
    """The type of a piece, from its spelling."""
    if name == "<unk>":
        return UNKNOWN
    if _BYTE_PIECE_PATTERN.fullmatch(name):
        return BYTE
    return CONTROL if _MARKUP_PATTERN.fullmatch(name) else NORMAL


def _viterbi(text: str, scores: Mapping[str, float], unknown_score: float) -> list[str]:
    """The pieces with the highest sum of scores; an unknown character scores `unknown_score`."""
    longest = max(map(len, scores), default=1)
    best = [0.0, *[-inf] * len(text)]  # score of the text up to each index
    start = [0] * (len(text) + 1)  # start of the last piece of that text
    for at in range(len(text)):
        for end in range(at + 1, min(at + longest, len(text)) + 1):
            weight = scores.get(text[at:end], unknown_score if end == at + 1 else -inf)
            if best[at] + weight > best[end]:
                best[end], start[end] = best[at] + weight, at
    symbols: list[str] = []
    end = len(text)
    while end:
        symbols.append(text[start[end] : end])
        end = start[end]
    return symbols[::-1]
