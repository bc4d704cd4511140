"""Lies in every place of every tokenizer file: a tokenizer that can be used, or one line."""

from __future__ import annotations

import copy
import json
import re
import shutil
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from oscine.errors import MAX_PROBLEM_CHARS, CheckpointError
from oscine.text.longest_match import LongestMatch
from oscine.text.qwen import QwenTokenizer
from oscine.text.sentencepiece_loader import load_sentencepiece_tokenizer
from oscine.text.sentencepiece_model import read_sentencepiece_model
from oscine.text.tokenizer_files import MAX_TOKEN_LENGTH, MAX_TOKENS
from oscine.text.whisper import load_tokenizer

GOLDENS = Path(__file__).resolve().parents[1] / "goldens"
WHISPER = GOLDENS / "whisper_formats" / "hf"
PARAKEET = GOLDENS / "parakeet_formats" / "hf"
QWEN = GOLDENS / "qwen3_tts" / "text" / "ckpt"
LABELS = 49

LIES: tuple[Any, ...] = (
    *(None, True, False, -1, 0, 1, 1.5, -0.5, 1 << 31, 1 << 63, -(1 << 63), 10**400),
    *(float("nan"), float("inf"), "", "x", "<|endoftext|>", "\ud800", "a b c", "日", "a" * 5000),
    *([], [0], [[]], [None], ["a"], ["a", "b"], [["a", "b", "c"]], {}, {"a": 1}, {"id": 1}),
)


def use_whisper(folder: Path) -> None:
    tokenizer = load_tokenizer(folder)
    assert all(type(id) is int and tokenizer.eot <= id < MAX_TOKENS
               for id in tokenizer.special_tokens.values())  # fmt: skip
    ids = range(tokenizer.eot + len(tokenizer.special_tokens) + 2)
    tokenizer.decode_with_timestamps(ids, tokenizer.eot + 5).encode()
    try:
        assert tokenizer.decode(tokenizer.encode("a text of 3 words")).encode()
    except CheckpointError as error:
        assert "no token for the byte" in str(error)


def use_qwen(folder: Path) -> None:
    tokenizer = QwenTokenizer.load(folder)
    assert max(tokenizer.encode("a <|im_start|> text", allow_special=True)) < tokenizer.vocab_size
    assert tokenizer.vocab_size <= MAX_TOKENS


def use_labels(folder: Path) -> None:
    pieces = load_sentencepiece_tokenizer(folder, {}, None, LABELS, folder / "weights")
    assert len(pieces) == LABELS
    pieces.encode("a phrase")
    pieces.decode(range(-1, LABELS + 1)).encode()


def use_list(folder: Path) -> None:
    listed = json.loads((folder / "labels.json").read_text("utf-8"))
    pieces = load_sentencepiece_tokenizer(folder, {}, listed, 3, folder / "labels.json")
    pieces.decode(range(3)).encode()


#: The golden's folder, the file, the other files that stay, and what reads and uses it.
JSON_FILES: dict[str, tuple[Path, str, tuple[str, ...], Callable[[Path], None]]] = {
    "whisper tokenizer.json": (WHISPER, "tokenizer.json", (), use_whisper),
    "whisper vocab.json": (WHISPER, "vocab.json", ("added_tokens.json",), use_whisper),
    "whisper added_tokens.json": (WHISPER, "added_tokens.json", ("vocab.json",), use_whisper),
    "ctranslate2 vocabulary.json": (
        GOLDENS / "whisper_formats" / "ct2_int8", "vocabulary.json", (), use_whisper),
    "qwen vocab.json": (QWEN, "vocab.json", ("merges.txt", "tokenizer_config.json"), use_qwen),
    "qwen tokenizer_config.json": (
        QWEN, "tokenizer_config.json", ("merges.txt", "vocab.json"), use_qwen),
    "parakeet tokenizer.json": (PARAKEET, "tokenizer.json", (), use_labels),
}  # fmt: skip


def places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place of a JSON value; of what is alike in a long list or object, three."""
    yield at
    keys: list[Any] = []
    if isinstance(value, dict | list):
        keys = list(value) if isinstance(value, dict) else list(range(len(value)))
        keys = keys if len(keys) <= 8 else [*keys[:2], keys[-1]]
    for key in keys:
        yield from places(value[key], (*at, key))


def replaced(value: Any, at: tuple[Any, ...], lie: Any) -> Any:
    if not at:
        return lie
    changed = copy.copy(value)
    changed[at[0]] = replaced(value[at[0]], at[1:], lie)
    return changed


def renamed(value: Any, at: tuple[Any, ...], name: str) -> Any:
    """With the last key of `at` under another name, where it is one of an object."""
    inner = value
    for key in at[:-1]:
        inner = inner[key]
    if not at or not isinstance(inner, dict):
        return value
    return replaced(value, at[:-1], {name if k == at[-1] else k: v for k, v in inner.items()})


@pytest.mark.parametrize("name", JSON_FILES)
def test_a_lie_in_any_place_is_told_or_does_no_harm(tmp_path: Path, name: str) -> None:
    source, file, others, use = JSON_FILES[name]
    for other in others:
        shutil.copy(source / other, tmp_path / other)
    path = tmp_path / file
    good = json.loads((source / file).read_text("utf-8"))
    told = 0
    for at in places(good):
        changes = [replaced(good, at, lie) for lie in LIES]
        changes += [renamed(good, at, key) for key in ("", "x", "\ud800", "<|endoftext|>")]
        for changed in changes:
            path.write_text(json.dumps(changed))
            try:
                use(tmp_path)
            except CheckpointError as error:
                told += 1
                message = str(error)
                assert message.startswith(str(tmp_path)) and "\n" not in message
                assert len(message) < MAX_PROBLEM_CHARS + 300 and message.encode()
    assert told > 10


@pytest.mark.parametrize("lie", LIES, ids=lambda lie: repr(lie)[:20])
@pytest.mark.parametrize("at", [(), (0,), (2,)])
def test_lies_in_a_list_of_labels(tmp_path: Path, at: tuple[Any, ...], lie: Any) -> None:
    good = ["a", "\u2581b", "c"]
    (tmp_path / "labels.json").write_text(json.dumps(replaced(good, at, lie)))
    try:
        use_list(tmp_path)
    except CheckpointError as error:
        assert "\n" not in str(error)


@pytest.mark.parametrize("id", [-1, -(1 << 40), 1 << 20, 2147483647, 60_000_000, True, "5", 1.0])
@pytest.mark.parametrize("content", ["<|endoftext|>", "<|en|>", "!"])
def test_ids_of_whisper_are_ids(tmp_path: Path, id: Any, content: str) -> None:
    tokenizer = json.loads((WHISPER / "tokenizer.json").read_text("utf-8"))
    tokenizer["added_tokens"].append({"content": "<|new|>", "id": 5000})
    target = next((t for t in tokenizer["added_tokens"] if t["content"] == content), None)
    if target is None:
        tokenizer["added_tokens"].append({"content": content, "id": id})
    else:
        target["id"] = id
    (tmp_path / "tokenizer.json").write_text(json.dumps(tokenizer), "utf-8")
    with pytest.raises(CheckpointError, match=r"tokenizer\.json: token .* has id ") as caught:
        load_tokenizer(tmp_path)
    assert repr(content) in str(caught.value)


def test_two_texts_of_one_id_are_told(tmp_path: Path) -> None:
    tokenizer = json.loads((WHISPER / "vocab.json").read_text("utf-8"))
    first, second = list(tokenizer)[:2]
    tokenizer[second] = tokenizer[first]
    (tmp_path / "vocab.json").write_text(json.dumps(tokenizer), "utf-8")
    with pytest.raises(CheckpointError, match="have one id, 0; fetch it again"):
        load_tokenizer(tmp_path)


@pytest.mark.parametrize("length", [MAX_TOKEN_LENGTH, MAX_TOKEN_LENGTH + 1])
def test_a_token_is_as_long_as_its_bound_and_no_longer(tmp_path: Path, length: int) -> None:
    token = "a" * length
    (tmp_path / "vocabulary.json").write_text(json.dumps([token, "b", "", "<|endoftext|>"]))
    (tmp_path / "vocab.txt").write_text(f"{token}\nb\n")
    packed = [token.encode(), b"b"]
    for read in (
        lambda: load_tokenizer(tmp_path),
        lambda: load_tokenizer(tmp_path, packed),
        lambda: load_sentencepiece_tokenizer(tmp_path, {}, None, 2, tmp_path / "weights"),
        lambda: load_sentencepiece_tokenizer(tmp_path, {}, [token, "b"], 2, tmp_path / "weights"),
    ):
        if length <= MAX_TOKEN_LENGTH:
            read()
        else:
            with pytest.raises(CheckpointError, match=f"a token of {length} bytes, more than"):
                read()


@pytest.mark.parametrize("score", [float("nan"), float("inf"), float("-inf")])
def test_scores_are_finite(score: float) -> None:
    body = b"\x0a\x01a\x15" + struct.pack("<f", score)
    with pytest.raises(CheckpointError, match="a piece has score"):
        read_sentencepiece_model(b"\x0a" + bytes([len(body)]) + body, Path("tokenizer.model"))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=60) | st.text("a\u2581<0x>\r\n", max_size=30).map(str.encode))
def test_any_bytes_as_any_file(tmp_path: Path, data: bytes) -> None:
    for use, names in (
        (use_whisper, ("tokenizer.json", "vocab.json", "vocabulary.json", "vocabulary.txt")),
        (use_labels, ("tokenizer.model", "tokenizer.json", "vocab.txt")),
        (use_qwen, ("vocab.json", "merges.txt", "tokenizer_config.json")),
    ):
        for name in names:
            folder = tmp_path / f"{use.__name__}-{name}"
            if not folder.exists():
                shutil.copytree(QWEN, folder) if use is use_qwen else folder.mkdir()
            (folder / name).write_bytes(data)
            try:
                use(folder)
            except CheckpointError as error:
                assert "\n" not in str(error)


@given(st.lists(st.text("ab", max_size=3)), st.text("abc\n", max_size=12))
def test_the_longest_name_is_found_at_each_place(names: list[str], text: str) -> None:
    whole = sorted(filter(None, names), key=len, reverse=True)
    expected = re.split("(" + "|".join(map(re.escape, whole)) + ")", text) if whole else [text]
    parts = [(part, at % 2 == 1) for at, part in enumerate(expected) if part]
    assert list(LongestMatch(names).split(text)) == parts
