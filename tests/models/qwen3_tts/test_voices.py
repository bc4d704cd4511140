"""Saved voices: written whole, read safely, never outside their folder."""

from __future__ import annotations

import json
import os
import re
import struct
import sys
import unicodedata
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oscine.errors import CheckpointError, OscineError, UsageError
from oscine.models.qwen3_tts.voices import (
    MAX_FILE_BYTES,
    MAX_SPEAKER_VALUE,
    MAX_TEXT_CHARACTERS,
    Voice,
    VoiceFolder,
    caseless_key,
    is_valid_name,
    read_voice,
    write_voice,
)

RNG = np.random.default_rng(0)


def voice(width: int = 8, frames: int = 5, text: str | None = "what is said – 说了什么") -> Voice:
    codes = RNG.integers(0, 2048, (frames, 16), dtype=np.uint32) if text else None
    return Voice("x", RNG.standard_normal(width).astype(np.float32), codes, text, "0b6")


def test_what_was_saved_is_read(tmp_path: Path) -> None:
    folder = VoiceFolder(tmp_path / "voices")
    assert folder.names() == []
    made, bare = voice(), voice(text=None)
    path = folder.save("Anna (2)", made)
    folder.save("bare", bare)
    assert folder.names() == ["Anna (2)", "bare"]
    for read in (folder.load("Anna (2)"), folder.load(path), folder.load(str(path))):
        assert np.array_equal(read.speaker, made.speaker)
        assert read.codes is not None and np.array_equal(read.codes, made.codes)
        assert (read.name, read.text, read.size) == ("Anna (2)", made.text, "0b6")
    assert folder.load("bare").codes is None
    folder.save("bare", made)  # in its place
    assert folder.load("bare").codes is not None
    folder.remove("Anna (2)")
    assert folder.names() == ["bare"]
    assert [p.name for p in folder.path.iterdir()] == ["bare.safetensors"]  # no half files


def test_other_programs_can_read_it(tmp_path: Path) -> None:
    write_voice(tmp_path / "v.safetensors", voice())
    raw = (tmp_path / "v.safetensors").read_bytes()
    (length,) = struct.unpack("<Q", raw[:8])
    header = json.loads(raw[8 : 8 + length])
    assert header["__metadata__"]["format"] == "oscine voice" and length % 8 == 0
    assert header["codes"]["data_offsets"][1] == len(raw) - 8 - length
    assert all(isinstance(value, str) for value in header["__metadata__"].values())


BAD_NAMES = ["", ".", "..", "../x", "a/b", "a\\b", "/etc/x", ".hidden", "x ", "x.", "con", "NUL.a",
             "a\0b", "a:b", "a\n", "x" * 65, "~", "-"]  # fmt: skip


@pytest.mark.parametrize("name", BAD_NAMES)
def test_names_that_are_refused(tmp_path: Path, name: str) -> None:
    folder = VoiceFolder(tmp_path)
    with pytest.raises(UsageError, match="is not a valid name of a voice"):
        folder.save(name, voice())
    with pytest.raises(UsageError):
        folder.remove(name)
    with pytest.raises(UsageError):
        folder.load(name)
    assert not list(tmp_path.iterdir())


@given(st.text(max_size=70))
def test_no_name_leads_out_of_the_folder(name: str) -> None:
    if is_valid_name(name):
        file = VoiceFolder(Path("voices")).path_of(name)
        assert file.parent == Path("voices")
        assert file.stem == unicodedata.normalize("NFC", name)


NAMES = ["हिन्दी", "José", "தமிழ்", "ไทยที่", "Ελληνικά", "שָׁלוֹם", "ශ්\u200dරී", "Nguyễn Văn", "李 雷"]


@pytest.mark.parametrize("form", ["NFC", "NFD"])
@pytest.mark.parametrize("name", NAMES)
def test_names_in_any_script_and_form(tmp_path: Path, name: str, form: str) -> None:
    """Names are found in Unicode form NFD too, as macOS returns them."""
    folder, other = VoiceFolder(tmp_path), "NFD" if form == "NFC" else "NFC"
    folder.save(unicodedata.normalize(form, name), voice())
    assert folder.names() == [unicodedata.normalize("NFC", name)]
    (file,) = tmp_path.iterdir()
    file.rename(tmp_path / unicodedata.normalize(form, file.name))
    for typed in (name, unicodedata.normalize(other, name).upper(), name.lower()):
        assert folder.has(typed) and folder.load(typed).speaker.shape == voice().speaker.shape
    folder.remove(unicodedata.normalize(other, name))
    assert folder.names() == []


@pytest.mark.parametrize(
    ("saved", "typed"),
    [
        ("Straße", "STRASSE"),
        ("ΐα", "ΐα".upper()),
        ("ΐα", unicodedata.normalize("NFD", "ΐα".upper())),
        ("ǰo", "ǰo".upper()),
        ("ÉTÉ", unicodedata.normalize("NFD", "été")),
        ("ẞ", "ss"),
    ],
)
def test_a_name_is_found_in_any_case_and_form(tmp_path: Path, saved: str, typed: str) -> None:
    """Also where a letter of one case is several of the other; nothing else has its name."""
    folder = VoiceFolder(tmp_path)
    path = folder.save(saved, voice())
    assert folder.has(typed) and folder.path_to_write(typed) == path
    assert folder.load(typed).name == unicodedata.normalize("NFC", saved)
    assert not folder.has(typed + "x")


@given(st.text(max_size=20))
def test_every_form_of_a_name_is_one(name: str) -> None:
    for form in ("NFC", "NFD"):
        assert caseless_key(unicodedata.normalize(form, name)) == caseless_key(name)
    assert caseless_key(name.casefold()) == caseless_key(name)


def test_a_mark_alone_is_no_name(tmp_path: Path) -> None:
    for name in ("\u0301", "\u0301a", "a\u200e", "a\u202e", "\u200d", "e\u0301" * 65):
        assert not is_valid_name(name) and not VoiceFolder(tmp_path).has(name)


def test_names_that_differ_in_case_are_one_voice(tmp_path: Path) -> None:
    """Case does not matter, as for a model's own voices and some file systems."""
    folder = VoiceFolder(tmp_path)
    first = folder.save("Anna", voice())
    assert folder.save("aNNa", voice()) == first
    assert [file.name for file in tmp_path.iterdir()] == ["Anna.safetensors"]
    assert folder.load("ANNA").name == "Anna" and folder.has("anna")
    first.with_name("anna.safetensors").write_bytes(first.read_bytes())  # of before, or by hand
    if len(list(tmp_path.iterdir())) == 2:
        assert folder.path_of("anna") != folder.path_of("Anna") == folder.path_of("ANNA") == first
        folder.remove("anna")
    folder.remove("anna")
    assert folder.names() == []


def test_voices_that_are_not_there(tmp_path: Path) -> None:
    folder = VoiceFolder(tmp_path)
    with pytest.raises(UsageError, match=r"no voice is saved as 'a'; saved: none yet"):
        folder.load("a")
    with pytest.raises(UsageError, match="no voice is saved as 'a'"):
        folder.remove("a")
    with pytest.raises(UsageError, match="no such file"):
        folder.load(tmp_path / "a.safetensors")
    with pytest.raises(UsageError, match="no such file"):
        folder.load(f"{'a' * 5000}.safetensors")


def altered(path: Path, change: Any) -> None:
    raw = path.read_bytes()
    (length,) = struct.unpack("<Q", raw[:8])
    header = json.loads(raw[8 : 8 + length])
    data = change(header, raw[8 + length :])
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def no_format(header: dict[str, Any], data: bytes) -> bytes:
    del header["__metadata__"]
    return data


def newer(header: dict[str, Any], data: bytes) -> bytes:
    header["__metadata__"]["version"] = "9"
    return data


def negative(header: dict[str, Any], data: bytes) -> bytes:
    return data[:-4] + b"\xff\xff\xff\xff"


def not_finite(header: dict[str, Any], data: bytes) -> bytes:
    return b"\x00\x00\xc0\x7f" + data[4:]


def absurd(header: dict[str, Any], data: bytes) -> bytes:
    return struct.pack("<f", -3e38) + data[4:]


def numbers(header: dict[str, Any], data: bytes) -> bytes:
    header["__metadata__"]["version"] = 1
    return data


def half_a_character(header: dict[str, Any], data: bytes) -> bytes:
    header["__metadata__"]["text"] = "a \ud800"
    return data


def endless(header: dict[str, Any], data: bytes) -> bytes:
    header["__metadata__"]["text"] = "a" * (MAX_TEXT_CHARACTERS + 1)
    return data


def no_speaker(header: dict[str, Any], data: bytes) -> bytes:
    header["other"] = header.pop("speaker")
    return data


DAMAGES = {
    no_format: "is not a saved voice",
    newer: r"is a voice of version '9', not 1; update oscine",
    numbers: "has metadata that are not strings",
    negative: "has invalid codes",
    not_finite: "embedding that is not finite",
    absurd: r"embedding with values up to 3e\+38, which is out of range",
    half_a_character: "surrogates not allowed",
    endless: "its text has 100001 characters",
    no_speaker: "has no speaker embedding",
}


@pytest.mark.parametrize("change", DAMAGES)
def test_damaged_files_are_one_line(tmp_path: Path, change: Any) -> None:
    path = tmp_path / "v.safetensors"
    write_voice(path, voice())
    altered(path, change)
    with pytest.raises(CheckpointError, match=DAMAGES[change]) as caught:
        read_voice(path)
    assert str(path) in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("size", [0, 4, 40, -4, None])
def test_a_file_that_is_cut_short_or_too_large_is_to_be_saved_again(
    tmp_path: Path, size: int | None
) -> None:
    path = tmp_path / "v.safetensors"
    write_voice(path, voice())
    if size is None:
        os.truncate(path, MAX_FILE_BYTES + 1)
    else:
        path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(CheckpointError, match=re.escape(str(path)) + ".*; save the voice again$"):
        read_voice(path)


def test_help_is_no_name_for_a_new_voice(tmp_path: Path) -> None:
    for name in ("help", "Help"):
        with pytest.raises(UsageError, match=f"'{name}' as a voice lists the saved voices"):
            VoiceFolder(tmp_path).save(name, voice())
    write_voice(tmp_path / "help.safetensors", voice())  # of an older oscine
    VoiceFolder(tmp_path).remove("help")


@given(st.integers(0, 2000), st.binary(min_size=0, max_size=8))
def test_any_damage_is_an_error_of_ours(where: int, junk: bytes) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "v.safetensors"
        write_voice(path, voice())
        raw = bytearray(path.read_bytes())
        raw[where : where + len(junk)] = junk
        path.write_bytes(raw[: max(where, 1)] if not junk else raw)
        try:
            read = read_voice(path)
        except OscineError as error:
            assert "\n" not in str(error)
        else:
            assert np.isfinite(read.speaker).all()


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OscineError, match="cannot write"):
        VoiceFolder(tmp_path / "file" / "voices").save("a", voice())


def with_speaker(*values: float) -> Voice:
    return Voice("x", np.array(values, np.float32), text=None)


def with_text(text: str, frames: int = 2) -> Voice:
    return Voice("x", np.ones(4, np.float32), np.ones((frames, 16), np.uint32), text)


UNREADABLE = {
    "half": (with_text("a \ud800"), "Unicode"),
    "empty": (with_text(" "), "is empty"),
    "long": (with_text("a" * (MAX_TEXT_CHARACTERS + 1)), "has 100001 characters"),
    "nan": (with_speaker(1, np.nan), "not finite"),
    "inf": (with_speaker(1, -np.inf), "not finite"),
    "absurd": (with_speaker(1, 3e38), r"up to 3e\+38"),
    "none": (with_speaker(), "has no speaker embedding"),
    "kind": (Voice("x", np.ones(4)), "has no speaker embedding"),  # type: ignore[arg-type]
    "large": (with_text("a", MAX_FILE_BYTES // 64), "the limit is"),
}


@pytest.mark.parametrize("name", UNREADABLE)
def test_what_could_not_be_read_again_is_not_saved(tmp_path: Path, name: str) -> None:
    made, message = UNREADABLE[name]
    with pytest.raises(UsageError, match=message) as refused:
        VoiceFolder(tmp_path).save("anna", made)
    assert "\n" not in str(refused.value) and len(str(refused.value)) < 200
    assert not list(tmp_path.iterdir())


@given(st.text(max_size=20), st.floats(width=32))
def test_what_is_saved_can_be_read(text: str, value: float) -> None:
    import tempfile

    made = Voice("x", np.array([value], np.float32), np.ones((2, 16), np.uint32), text)
    with tempfile.TemporaryDirectory() as folder:
        saved = VoiceFolder(Path(folder))
        try:
            saved.save("anna", made)
        except UsageError:
            surrogates = any(0xD800 <= ord(letter) < 0xE000 for letter in text)
            wrong = not text.strip() or surrogates or "\0" in text
            assert wrong or not abs(value) <= MAX_SPEAKER_VALUE
            assert not list(saved.path.iterdir())
        else:
            read = saved.load("anna")
            assert (read.text, read.speaker[0]) == (text, np.float32(value))


@pytest.mark.skipif(sys.platform == "win32", reason="no such files there")
@pytest.mark.parametrize("kind", ["pipe", "folder"])
def test_what_is_no_file_is_not_waited_for(tmp_path: Path, kind: str) -> None:
    folder = VoiceFolder(tmp_path)
    there = folder.path_of("ff")
    if kind == "pipe":
        os.mkfifo(there)
    else:
        there.mkdir()
    with pytest.raises(UsageError, match=rf"{there.name}: exists and is not a file"):
        folder.save("ff", voice())
    with pytest.raises(UsageError, match="no voice is saved as 'ff'"):
        folder.load("ff")
    assert [path.name for path in tmp_path.iterdir()] == [there.name]


@pytest.mark.skipif(sys.platform == "win32", reason="links need rights there")
@pytest.mark.parametrize("target", ["outside", "nowhere", "folder", "pipe", "/dev/null"])
def test_a_link_is_replaced_and_what_it_leads_to_stays(tmp_path: Path, target: str) -> None:
    folder = VoiceFolder(tmp_path / "voices")
    folder.path.mkdir()
    outside = tmp_path / target if target != "/dev/null" else Path(target)
    if target == "outside":
        outside.write_text("somebody's")
    elif target == "folder":
        outside.mkdir()
    elif target == "pipe":
        os.mkfifo(outside)
    link = folder.path_of("anna")
    link.symlink_to(outside)
    made = voice()
    folder.save("anna", made)
    assert not link.is_symlink() and np.array_equal(folder.load("anna").speaker, made.speaker)
    assert [path.name for path in folder.path.iterdir()] == [link.name]
    if target == "outside":
        assert outside.read_text() == "somebody's"
    elif target == "nowhere":
        assert not outside.exists()
