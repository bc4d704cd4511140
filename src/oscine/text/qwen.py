"""Qwen2's byte-level BPE, as Qwen3-TTS ships it: vocab.json, merges.txt, tokenizer_config.json.

Steps: Unicode NFC; a split by pattern; GPT-2's alphabet of bytes; merges by rank. Nothing is put
before or after. Source: transformers models/qwen2/tokenization_qwen2.py. (For a local folder with
the whole vocabulary transformers 4.57.3 swaps the pattern for one that splits eBay; by the name on
the Hub it does not, and neither is it done here.)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from oscine.errors import CheckpointError, UsageError, needed
from oscine.model_files import parse_json, small_file
from oscine.text.longest import LongestMatch
from oscine.text.vocabulary import MAX_TOKENS, checked_ids, lines_of
from oscine.text.whisper import unicode_to_byte

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Library

PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
VOCABULARY, MERGES, SETTINGS = "vocab.json", "merges.txt", "tokenizer_config.json"
_MOST_UNREACHED = 0.001  # of the tokens that merges make; of released models none


class QwenTokenizer:
    """Text to ids. `specials` are the added tokens by their text, control tokens among them."""

    def __init__(self, library: Library, specials: Mapping[str, int], path: Path, size: int):
        """`size`: one more than the largest id."""
        self.specials, self.path, self.size = dict(specials), path, size
        self._library = library
        self._names = LongestMatch(self.specials)

    @classmethod
    def load(cls, folder: Path) -> QwenTokenizer:
        """Read a model's folder.

        Raises:
            CheckpointError: a file is missing or no such file, a byte has no token, a merge makes
                no token, tokens that no merge makes, or two tokens have one id.
        """
        vocabulary = _vocabulary(folder / VOCABULARY)
        merges = _merges(folder / MERGES, vocabulary)
        specials = _specials(folder / SETTINGS, vocabulary)
        _refuse_unreached(folder / MERGES, vocabulary, merges, specials)
        size = max([*vocabulary.values(), *specials.values()]) + 1
        return cls(_library(vocabulary, merges), specials, folder, size)

    def encode(self, text: str, specials: bool = False) -> list[int]:
        """Ids of a text.

        What looks like a special token is encoded as the text it is, so that nobody's text can
        steer the model. With `specials` such tokens are themselves, as upstream has it: only for a
        text that is not a user's.

        Raises:
            UsageError: half a surrogate pair, which is no text.
        """
        checked_unicode(text)
        parts = self._names.split(text) if specials else [(text, False)]
        return [id for part, special in parts for id in self._ids(part, special)]

    def special(self, name: str) -> int:
        """The id of an added token such as <|im_start|>. Raises CheckpointError."""
        if name not in self.specials:
            raise CheckpointError(self.path / SETTINGS, f"has no token {name}", "fetch it again")
        return self.specials[name]

    def _ids(self, part: str, special: bool) -> Sequence[int]:
        if special:
            return (self.specials[part],)
        ids: list[int] = self._library.encode(part, add_special_tokens=False).ids
        return ids


def checked_unicode(text: str, name: str = "the text") -> str:
    """The text itself. Raises UsageError for half a surrogate pair, which is none."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise UsageError(f"{name} is no valid Unicode ({error.reason})") from None
    return text


def checked_text(text: str, name: str = "the text") -> str:
    """A text that a person may write. Raises UsageError for what is none, as in a binary file."""
    if "\0" in text:
        raise UsageError(f"{name} has a NUL character, which no text has; take it out")
    return checked_unicode(text, name)


def _library(vocabulary: dict[str, int], merges: list[tuple[str, str]]) -> Library:
    with needed("tokenizers", "a text to speak"):  # costs start-up time
        from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers

    library = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    library.normalizer = normalizers.NFC()
    library.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PATTERN), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    return library


def _data(path: Path) -> bytes:
    data = small_file(path)
    if data is None:
        raise CheckpointError(path, "no such file", "fetch the whole folder")
    return data


def _vocabulary(path: Path) -> dict[str, int]:
    vocabulary = checked_ids(parse_json(path, _data(path)), path)
    if len(set(vocabulary.values())) != len(vocabulary):
        raise CheckpointError(path, "two tokens have one id", "fetch it again")
    # A byte without a token would be left out silently.
    missing = [byte for letter, byte in unicode_to_byte().items() if letter not in vocabulary]
    if missing:
        problem = f"has no token for {len(missing)} of 256 bytes, {min(missing):#04x} for one"
        raise CheckpointError(path, problem, "fetch it again")
    return vocabulary


def _merges(path: Path, vocabulary: Mapping[str, int]) -> list[tuple[str, str]]:
    """In the order of their ranks."""
    merges = []
    for number, line in enumerate(lines_of(_data(path), path), 1):
        line = line.rstrip("\r")
        if not line or (number == 1 and line.startswith("#version")):
            continue
        left, _, right = line.partition(" ")
        if not {left, right, left + right} <= vocabulary.keys():
            problem = f"line {number} joins {left[:40]!r} and {right[:40]!r}, which makes no token"
            raise CheckpointError(path, problem, "fetch it again")
        merges.append((left, right))
    return merges


def _refuse_unreached(
    path: Path,
    vocabulary: Mapping[str, int],
    merges: Sequence[tuple[str, str]],
    specials: Mapping[str, int],
) -> None:
    """Merges that were cut off would do: every text has ids then, but not those of training."""
    made = {left + right for left, right in merges}
    longer = {token for token in vocabulary if len(token) > 1} - specials.keys()
    unreached = longer - made
    if len(unreached) > _MOST_UNREACHED * len(longer):
        problem = f"has merges for only {len(longer) - len(unreached)} of {len(longer)} tokens"
        raise CheckpointError(path, problem, f"it is cut off, or that of another {VOCABULARY}")


def _specials(path: Path, vocabulary: Mapping[str, int]) -> dict[str, int]:
    """The added tokens; no other token may have the id of one of them."""
    added = parse_json(path, _data(path)).get("added_tokens_decoder")
    if not isinstance(added, dict):
        raise CheckpointError(path, "has no added_tokens_decoder", "fetch it again")
    owners = {id: token for token, id in vocabulary.items()}
    specials: dict[str, int] = {}
    for key, token in added.items():
        name = token.get("content") if isinstance(token, dict) else None
        number = key.isascii() and key.isdecimal() and len(key) < 8 and int(key) < MAX_TOKENS
        if not number or not isinstance(name, str) or not name:
            raise CheckpointError(path, f"added token {key[:40]!r} is none", "fetch it again")
        if name in specials or owners.setdefault(int(key), name) != name:
            problem = f"added token {key} ({name[:40]!r}) is another one too"
            raise CheckpointError(path, problem, "fetch it again")
        specials[name] = int(key)
    return specials
