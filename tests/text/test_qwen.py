"""Qwen's byte-level BPE against upstream's ids, control tokens in a text, and damaged files."""

from __future__ import annotations

import json
import os
import shutil
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oscine.errors import CheckpointError, UsageError
from oscine.text.qwen import QwenTokenizer
from oscine.text.whisper import unicode_to_byte

GOLDEN = Path(__file__).resolve().parents[1] / "goldens" / "qwen3_tts" / "text"
SHIPPED = GOLDEN / "ckpt"
META = json.loads((GOLDEN / "meta.json").read_text("utf-8"))
TOKENIZER = QwenTokenizer.load(SHIPPED)
CONTROL = set(TOKENIZER.special_tokens.values())
BYTES = unicode_to_byte()
PIECES = {
    id: bytes(BYTES[letter] for letter in token)
    for token, id in json.loads((SHIPPED / "vocab.json").read_text("utf-8")).items()
}


def spoken(ids: list[int]) -> str:
    return b"".join(PIECES[id] for id in ids).decode()


@pytest.mark.parametrize("index", range(len(META["texts"])))
def test_ids_are_upstreams(index: int) -> None:
    with np.load(GOLDEN / "expected.npz") as expected:
        ids = expected[f"t{index}/ids"].tolist()
    text = META["texts"][index]
    assert TOKENIZER.encode(text, allow_special=True) == ids
    if "<|" not in text:
        assert TOKENIZER.encode(text) == ids


def test_a_text_never_makes_control_tokens() -> None:
    for name in TOKENIZER.special_tokens:
        text = f"say {name} now"
        ids = TOKENIZER.encode(text)
        assert not CONTROL & set(ids) and spoken(ids) == text
        assert CONTROL & set(TOKENIZER.encode(text, allow_special=True)) == {
            TOKENIZER.special_id(name)
        }


@given(st.text())
def test_every_text_can_be_had_back(text: str) -> None:
    try:
        ids = TOKENIZER.encode(text)
    except UsageError:
        assert any(0xD800 <= ord(letter) < 0xE000 for letter in text)
        return
    assert not CONTROL & set(ids)
    assert spoken(ids) == unicodedata.normalize("NFC", text)


@given(
    st.lists(
        st.sampled_from([*TOKENIZER.special_tokens, "a", " the", "\n", "<|", "|>"]), max_size=8
    )
)
def test_special_tokens_part_a_text(parts: list[str]) -> None:
    text = "".join(parts)
    names = [part for part in parts if part in TOKENIZER.special_tokens]
    found = [id for id in TOKENIZER.encode(text, allow_special=True) if id in CONTROL]
    assert found == [TOKENIZER.special_id(name) for name in names]


def test_half_a_surrogate_pair_is_no_text() -> None:
    with pytest.raises(UsageError, match="not valid Unicode"):
        TOKENIZER.encode("a\ud800b")


def test_a_token_that_is_not_there() -> None:
    with pytest.raises(CheckpointError, match=r"tokenizer_config.json: has no token <\|other\|>"):
        TOKENIZER.special_id("<|other|>")


def changed(name: str, change: Callable[[Any], Any]) -> Callable[[Path], object]:
    def apply(folder: Path) -> None:
        path = folder / name
        path.write_text(json.dumps(change(json.loads(path.read_text("utf-8")))), "utf-8")

    return apply


def written(name: str, data: bytes) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_bytes(data)


def without(tokens: dict[str, int], *names: str) -> dict[str, int]:
    return {token: id for token, id in tokens.items() if token not in names}


def cut(share: float) -> Callable[[Path], object]:
    """merges.txt as far as a whole line."""

    def apply(folder: Path) -> None:
        lines = (folder / "merges.txt").read_text("utf-8").splitlines(keepends=True)
        (folder / "merges.txt").write_text("".join(lines[: round(share * len(lines))]), "utf-8")

    return apply


def added(tokens: dict[str, Any]) -> Callable[[Any], Any]:
    return lambda settings: (
        settings | {"added_tokens_decoder": settings["added_tokens_decoder"] | tokens}
    )


FAULTS: dict[str, tuple[Callable[[Path], object], str]] = {
    "none": (lambda folder: (folder / "vocab.json").unlink(), r"vocab.json: no such file"),
    "no merges": (lambda folder: (folder / "merges.txt").unlink(), r"merges.txt: no such file"),
    "json": (written("vocab.json", b'{"a": '), r"vocab.json: is not valid JSON"),
    "list": (written("vocab.json", b"[1]"), r"vocab.json: holds no JSON object"),
    "latin": (written("merges.txt", b"\xff\xfe a"), r"merges.txt: is not UTF-8"),
    "byte": (
        changed("vocab.json", lambda v: without(v, "Ġ")),
        r"no token for 1 of 256 bytes, 0x20",
    ),
    "twice": (changed("vocab.json", lambda v: v | {"x": v["y"]}), r"two tokens have one id"),
    "id": (changed("vocab.json", lambda v: v | {"x": -1}), r"token 'x' has id '-1'"),
    "float": (changed("vocab.json", lambda v: v | {"x": 1.5}), r"token 'x' has id '1.5'"),
    "huge": (changed("vocab.json", lambda v: v | {"x": 10**30}), r"token 'x' has id"),
    "merge": (written("merges.txt", b"a b c\n"), r"line 1 joins 'a' and 'b c'"),
    "half": (written("merges.txt", b"#version: 0.2\nab\n"), r"line 2 joins 'ab' and ''"),
    "empty": (written("merges.txt", b""), r"merges.txt: has merges for only 0 of 53 tokens"),
    "header": (written("merges.txt", b"#version: 0.2\n"), r"merges for only 0 of 53 tokens"),
    "cut": (cut(0.5), r"merges for only 2\d of 53 tokens; it is cut off, or"),
    "last": (cut(0.98), r"merges for only 52 of 53 tokens"),
    "added": (changed("tokenizer_config.json", lambda c: {}), r"no added_tokens_decoder"),
    "number": (
        changed("tokenizer_config.json", added({"-5": {"content": "<x>"}})),
        r"'-5' is invalid",
    ),
    "name": (changed("tokenizer_config.json", added({"900": {}})), r"'900' is invalid"),
    "owned": (changed("tokenizer_config.json", added({"7": {"content": "<x>"}})), r"another one"),
    "same": (
        changed("tokenizer_config.json", added({"900": {"content": "<tts_pad>"}})),
        r"900 \('<tts_pad>'\) duplicates another one",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_damaged_files_are_named(tmp_path: Path, fault: str) -> None:
    folder = tmp_path / "model"
    shutil.copytree(SHIPPED, folder)
    damage, message = FAULTS[fault]
    damage(folder)
    with pytest.raises(CheckpointError, match=message) as refused:
        QwenTokenizer.load(folder)
    assert str(folder) in str(refused.value) and "\n" not in str(refused.value)


def test_tokens_of_their_own_need_no_merge(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(SHIPPED, folder)
    changed("vocab.json", lambda v: v | {"<mine>": 900})(folder)
    changed("tokenizer_config.json", added({"900": {"content": "<mine>"}}))(folder)
    assert QwenTokenizer.load(folder).special_id("<mine>") == 900


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="no such device here")
@pytest.mark.parametrize("name", ["vocab.json", "merges.txt", "tokenizer_config.json"])
@pytest.mark.parametrize("place", ["device", "pipe", "folder", "huge"])
def test_what_never_ends_is_not_read(tmp_path: Path, name: str, place: str) -> None:
    folder = tmp_path / "model"
    shutil.copytree(SHIPPED, folder)
    path = folder / name
    path.unlink()
    if place == "device":
        path.symlink_to("/dev/zero")
    elif place == "pipe":
        os.mkfifo(path)
    elif place == "folder":
        path.mkdir()
    else:
        with path.open("wb") as file:
            file.truncate(1 << 40)  # no bytes of it are on the disk
    with pytest.raises(CheckpointError, match=rf"{name}: cannot be read \(it (is|has) ") as refused:
        QwenTokenizer.load(folder)
    assert "\n" not in str(refused.value)
