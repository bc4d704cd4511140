"""SentencePiece labels: ids to text and back, from whatever lies beside or inside the weights.

Four sources give the same tokenizer: tokenizer.model (its own reader: sentencepiece.py),
tokenizer.json, vocab.txt and the list of labels in a configuration. Decoding needs the spelling
alone; encoding, for hotwords, also the scores, which in a BPE vocabulary fall with the id.
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

from oscine.text.longest import LongestMatch
from oscine.text.merging import merge

SPACE = "\u2581"  # stands for a space inside pieces
NORMAL, UNKNOWN, CONTROL, USER, UNUSED, BYTE = range(1, 7)  # ModelProto.SentencePiece.Type
UNIGRAM, BPE, WORDS, CHARACTERS = range(1, 5)  # TrainerSpec.ModelType
_UNKNOWN_PENALTY, _USER_LOSS = 10.0, 0.1  # of scores: unigram_model.cc

_MARKUP = re.compile(r"<[^<>\s]+>")
_NO_MARKS = re.compile(r"\[.*\]$|<.*>$|##|\u2581|\s*$")  # how pieces begin whose marks do not count
_BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")

Normaliser = Callable[[str], str]


def nfkc(text: str) -> str:
    """What nmt_nfkc does to text that people type."""
    return unicodedata.normalize("NFKC", text)


def unchanged(text: str) -> str:
    """What the identity normaliser does."""
    return text


@dataclass(frozen=True, eq=False)
class SentencePieceTokenizer:
    """V labels. `kinds` and `scores` are SentencePiece's, one a label; `normalise` is what text
    goes through before it is encoded; `model` is the type, which says how.
    """

    names: tuple[str, ...]
    kinds: tuple[int, ...]
    scores: tuple[float, ...]
    normalise: Normaliser = field(default=unchanged)
    model: int = BPE

    @classmethod
    def of(cls, names: Sequence[str]) -> SentencePieceTokenizer:
        """From the spelling alone: what is written <so> is no text, scores fall with the id."""
        kinds = tuple(kind_of(name) for name in names)
        return cls(tuple(names), kinds, tuple(-float(id) for id in range(len(names))), nfkc)

    def __len__(self) -> int:
        return len(self.names)

    def is_control(self, id: int) -> bool:
        """Whether a label is no text: unknown, control, unused, or an id beyond the labels."""
        return not 0 <= id < len(self.names) or self._silent[id]

    def starts_word(self, id: int) -> bool:
        """Whether a label begins with a space."""
        return not self.is_control(id) and self.names[id].startswith(SPACE)

    def spell(self, id: int) -> str:
        """One label's text, a space in front where a word begins; "" for what is no text.

        A byte piece is "" too: it is text only together with its neighbours.
        """
        if self.is_control(id) or self.kinds[id] == BYTE:
            return ""
        return self.names[id].replace(SPACE, " ")

    def is_blank(self, id: int) -> bool:
        """Whether a label is a space alone."""
        return not self.is_control(id) and self.names[id] == SPACE

    def is_mark(self, id: int) -> bool:
        """Whether a label is one of `marks`, with a space in front or without."""
        return not self.is_control(id) and self.names[id].removeprefix(SPACE) in self.marks

    @cached_property
    def marks(self) -> frozenset[str]:
        """The characters that NeMo takes for punctuation with this vocabulary.

        They are those of Unicode's category P in all pieces but special ones and those that begin
        with a space. Source: NeMo nemo/collections/asr/parts/utils/tokenizer_utils.py
        (extract_punctuation_from_vocab).
        """
        characters = {c for name in self.names if not _NO_MARKS.match(name) for c in name}
        return frozenset(c for c in characters if unicodedata.category(c).startswith("P"))

    def without_space_before_marks(self, text: str) -> str:
        """The text without one white space before each of `marks`; more than one is the model's.

        Source: NeMo nemo/collections/asr/parts/submodules/rnnt_decoding.py and ctc_decoding.py
        (decode_tokens_to_str_with_strip_punctuation).
        """
        return text if self._before_mark is None else self._before_mark.sub(r"\1", text)

    @cached_property
    def _before_mark(self) -> re.Pattern[str] | None:
        marks = "".join(map(re.escape, sorted(self.marks)))
        return re.compile(rf"\s([{marks}])") if marks else None

    def decode(self, ids: Iterable[int]) -> str:
        """The text of a sequence, without the space in front of its first word.

        Neighbouring byte pieces are UTF-8 together; what of a character is cut off is left out.
        """
        parts: list[str] = []
        pending = bytearray()
        for id in ids:
            if self.is_control(id):
                continue
            if self.kinds[id] == BYTE:
                pending.append(self._bytes[id])
                continue
            if pending:
                parts.append(pending.decode("utf-8", "ignore"))
                pending.clear()
            parts.append(self.names[id].replace(SPACE, " "))
        parts.append(pending.decode("utf-8", "ignore"))
        return "".join(parts).removeprefix(" ")

    def encode(self, text: str) -> tuple[int, ...] | None:
        """Ids of a phrase as the model would write it; None where it has no piece for a character.

        BPE: of all neighbours the pair whose merged piece has the highest score is merged, the
        leftmost of equals, until no pair is a piece. Symbols that are pieces of the user's (v3's
        digits) are never merged. Unigram and characters: the pieces whose scores have the highest
        sum. Words: each is a piece.
        """
        words = self.normalise(text).split()
        if not words:
            return ()
        symbols = [SPACE + word for word in words]
        if self.model == BPE:
            symbols = merge(self._cut("".join(symbols)), self._merge_ranks, self._user)
        elif self.model != WORDS:
            symbols = _best_path("".join(symbols), self._weights, self._unknown_weight)
        ids: list[int] = []
        for symbol in symbols:
            id = self._ids.get(symbol)
            if id is not None:
                ids.append(id)
                continue
            spelled = [self._byte_ids.get(byte) for byte in symbol.encode("utf-8")]
            if any(id is None for id in spelled):
                return None
            ids += [id for id in spelled if id is not None]
        return tuple(ids)

    def _cut(self, text: str) -> list[str]:
        """Characters, and the user's pieces whole, longest first."""
        symbols: list[str] = []
        for part, whole in self._users_names.split(text):
            symbols += [part] if whole else part
        return symbols

    @cached_property
    def _silent(self) -> tuple[bool, ...]:
        return tuple(
            kind in (UNKNOWN, CONTROL, UNUSED)
            or (kind == USER and _MARKUP.fullmatch(name) is not None)
            for name, kind in zip(self.names, self.kinds, strict=True)
        )

    @cached_property
    def _bytes(self) -> dict[int, int]:
        return {
            id: int(found[1], 16)
            for id, name in enumerate(self.names)
            if self.kinds[id] == BYTE and (found := _BYTE.fullmatch(name))
        }

    @cached_property
    def _byte_ids(self) -> dict[int, int]:
        return {byte: id for id, byte in reversed(self._bytes.items())}

    @cached_property
    def _user(self) -> frozenset[str]:
        return frozenset(
            name
            for id, name in enumerate(self.names)
            if self.kinds[id] == USER and name and not self._silent[id]
        )

    @cached_property
    def _users_names(self) -> LongestMatch:
        return LongestMatch(self._user)

    @cached_property
    def _ids(self) -> dict[str, int]:
        """Text pieces by spelling; of two alike the first."""
        text = (NORMAL, USER)
        return {
            name: id
            for id, name in reversed(list(enumerate(self.names)))
            if self.kinds[id] in text and not self._silent[id]
        }

    @cached_property
    def _merge_ranks(self) -> dict[str, float]:
        return {name: -self.scores[id] for name, id in self._ids.items() if name not in self._user}

    @cached_property
    def _weights(self) -> dict[str, float]:
        """Scores of text pieces; those of the user's hang on the highest of the others."""
        scores = {name: -rank for name, rank in self._merge_ranks.items()}
        highest = max(scores.values(), default=0.0)
        user = {name: len(name.encode()) * highest - _USER_LOSS for name in self._user}
        return scores | user

    @cached_property
    def _unknown_weight(self) -> float:
        return -max(self._merge_ranks.values(), default=0.0) - _UNKNOWN_PENALTY


def kind_of(name: str) -> int:
    """What a piece is, by its spelling."""
    if name == "<unk>":
        return UNKNOWN
    if _BYTE.fullmatch(name):
        return BYTE
    return CONTROL if _MARKUP.fullmatch(name) else NORMAL


def _best_path(text: str, weights: Mapping[str, float], unknown: float) -> list[str]:
    """The pieces of the highest sum of weights; a character that is none costs `unknown`."""
    longest = max(map(len, weights), default=1)
    best = [0.0, *[-inf] * len(text)]  # of the text up to there
    start = [0] * (len(text) + 1)  # where the last piece of it begins
    for at in range(len(text)):
        for end in range(at + 1, min(at + longest, len(text)) + 1):
            weight = weights.get(text[at:end], unknown if end == at + 1 else -inf)
            if best[at] + weight > best[end]:
                best[end], start[end] = best[at] + weight, at
    symbols: list[str] = []
    end = len(text)
    while end:
        symbols.append(text[start[end] : end])
        end = start[end]
    return symbols[::-1]
