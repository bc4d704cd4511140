"""Qwen2's byte-level BPE tokenizer, as Qwen3-TTS ships it: vocab.json, merges.txt,
tokenizer_config.json.

Steps: Unicode NFC; a split by pattern; GPT-2's byte alphabet; merges by rank. No tokens are added
before or after. Source: transformers models/qwen2/tokenization_qwen2.py. (For a local folder with
the whole vocabulary transformers 4.57.3 uses another pattern, which splits eBay; for a name on the
Hub it does not, and neither does this.)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from oscine.errors import CheckpointError, UsageError, needed
from oscine.model_files import parse_json, small_file
from oscine.text.longest_match import LongestMatch
from oscine.text.tokenizer_files import MAX_TOKENS, check_vocab, read_token_lines
from oscine.text.whisper import unicode_to_byte

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Library

PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
VOCAB_FILE, MERGES_FILE, CONFIG_FILE = "vocab.json", "merges.txt", "tokenizer_config.json"
MAX_UNREACHABLE_SHARE = 0.001  # of the tokens that merges produce; 0 in released models


class QwenTokenizer:
    """Text to ids. `special_tokens`: the added tokens and their ids, control tokens included."""

    def __init__(
        self, library: Library, special_tokens: Mapping[str, int], path: Path, vocab_size: int
    ):
        """`vocab_size`: one more than the largest id."""
        self.special_tokens, self.path, self.vocab_size = dict(special_tokens), path, vocab_size
        self._library = library
        self._special_matcher = LongestMatch(self.special_tokens)

    @classmethod
    def load(cls, folder: Path) -> QwenTokenizer:
        """Read the tokenizer of a model's folder.

        Raises:
            CheckpointError: a file is missing or damaged, a byte or a merge has no token,
                no merge produces a token, or two tokens have one id.
        """
        vocabulary = _read_vocab(folder / VOCAB_FILE)
        merges = _read_merges(folder / MERGES_FILE, vocabulary)
        specials = _read_special_tokens(folder / CONFIG_FILE, vocabulary)
        _check_merges_complete(folder / MERGES_FILE, vocabulary, merges, specials)
        size = max([*vocabulary.values(), *specials.values()]) + 1
        return cls(_make_tokenizer(vocabulary, merges), specials, folder, size)

    def encode(self, text: str, allow_special: bool = False) -> list[int]:
        """Ids of a text.

        Special tokens in it are encoded as plain text, so that a user's text cannot control the
        model. With `allow_special` they have their own ids, as upstream does: only for texts that
        are not a user's.

        Raises:
            UsageError: the text has half a surrogate pair.
        """
        check_unicode(text)
        parts = self._special_matcher.split(text) if allow_special else [(text, False)]
        return [id for part, special in parts for id in self._ids(part, special)]

    def special_id(self, name: str) -> int:
        """The id of an added token such as <|im_start|>. Raises CheckpointError if there is
        none.
        """
        if name not in self.special_tokens:
            raise CheckpointError(self.path / CONFIG_FILE, f"has no token {name}", "fetch it again")
        return self.special_tokens[name]

    def _ids(self, part: str, special: bool) -> Sequence[int]:
        if special:
            return (self.special_tokens[part],)
        ids: list[int] = self._library.encode(part, add_special_tokens=False).ids
        return ids


def check_unicode(text: str, name: str = "the text") -> str:
    """The text itself. Raises UsageError for half a surrogate pair."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise UsageError(f"{name} is not valid Unicode ({error.reason})") from None
    return text


def check_characters(text: str, name: str = "the text") -> str:
    """The text itself. Raises UsageError for characters that only binary files have."""
    if "\0" in text:
        raise UsageError(f"{name} has a NUL character; remove it")
    return check_unicode(text, name)


def _make_tokenizer(vocabulary: dict[str, int], merges: list[tuple[str, str]]) -> Library:
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


def _read_file(path: Path) -> bytes:
    data = small_file(path)
    if data is None:
        raise CheckpointError(path, "no such file", "fetch the whole folder")
    return data


def _read_vocab(path: Path) -> dict[str, int]:
    vocabulary = check_vocab(parse_json(path, _read_file(path)), path)
    if len(set(vocabulary.values())) != len(vocabulary):
        raise CheckpointError(path, "two tokens have one id", "fetch it again")
    # A byte without a token would be dropped silently.
    missing = [byte for letter, byte in unicode_to_byte().items() if letter not in vocabulary]
    if missing:
        problem = f"has no token for {len(missing)} of 256 bytes, {min(missing):#04x} for one"
        raise CheckpointError(path, problem, "fetch it again")
    return vocabulary


def _read_merges(path: Path, vocabulary: Mapping[str, int]) -> list[tuple[str, str]]:
    """The merges, in the order of their ranks."""
    merges = []
    for number, line in enumerate(read_token_lines(_read_file(path), path), 1):
        line = line.rstrip("\r")
        if not line or (number == 1 and line.startswith("#version")):
            continue
        left, _, right = line.partition(" ")
        if not {left, right, left + right} <= vocabulary.keys():
            problem = f"line {number} joins {left[:40]!r} and {right[:40]!r}, which makes no token"
            raise CheckpointError(path, problem, "fetch it again")
        merges.append((left, right))
    return merges


def _check_merges_complete(
    path: Path,
    vocabulary: Mapping[str, int],
    merges: Sequence[tuple[str, str]],
    specials: Mapping[str, int],
) -> None:
    """Raise CheckpointError for truncated merges: texts would still have ids, but not those of
    training.
    """
    made = {left + right for left, right in merges}
    longer = {token for token in vocabulary if len(token) > 1} - specials.keys()
    unreached = longer - made
    if len(unreached) > MAX_UNREACHABLE_SHARE * len(longer):
        problem = f"has merges for only {len(longer) - len(unreached)} of {len(longer)} tokens"
        raise CheckpointError(path, problem, f"it is cut off, or that of another {VOCAB_FILE}")


def _read_special_tokens(path: Path, vocabulary: Mapping[str, int]) -> dict[str, int]:
    """The added tokens; no other token may have one of their ids."""
    added = parse_json(path, _read_file(path)).get("added_tokens_decoder")
    if not isinstance(added, dict):
        raise CheckpointError(path, "has no added_tokens_decoder", "fetch it again")
    owners = {id: token for token, id in vocabulary.items()}
    specials: dict[str, int] = {}
    for key, token in added.items():
        name = token.get("content") if isinstance(token, dict) else None
        number = key.isascii() and key.isdecimal() and len(key) < 8 and int(key) < MAX_TOKENS
        if not number or not isinstance(name, str) or not name:
            raise CheckpointError(path, f"added token {key[:40]!r} is invalid", "fetch it again")
        if name in specials or owners.setdefault(int(key), name) != name:
            problem = f"added token {key} ({name[:40]!r}) duplicates another one"
            raise CheckpointError(path, problem, "fetch it again")
        specials[name] = int(key)
    return specials
