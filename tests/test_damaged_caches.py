"""Damaged files, references and notes in the cache of Hugging Face: no model, and no traceback."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from oscine import hub
from oscine.cli import run
from oscine.errors import HubError
from oscine.manifest import FileRecord, read_manifest
from oscine.sources import entry_of

from .bounded import run_bounded
from .hub_server import DEEP, FILES, NEEDED, REPOSITORY, Server, cache_of_another_program, contents

CONFIGS = [b"", b"{", b'{"a": 1', b"\xff\xfe{", DEEP, b"[]", b"null", b"1", b'"x"', b"9" * 5000]
INDEXES = [
    *(b"", b"{}", b"[]", b"null", DEEP, b"\xff", b'{"weight_map": null}', b'{"weight_map": 1}'),
    *(b'{"weight_map": []}', b'{"weight_map": {}}', b'{"weight_map": {"a": 1}}'),
    *(b'{"weight_map": {"a": null}}', b'{"weight_map": {"a": ["b"]}}'),
    *(b'{"weight_map": {"a": "\\u0000"}}', b'{"weight_map": {"a": "' + b"x" * 5000 + b'"}}'),
]
WITHOUT_TOKENIZER = {name: NEEDED[name] for name in ("config.json", "model.safetensors")}
SHARDED = {name: NEEDED[name] for name in ("config.json", "tokenizer.json")}


def list_models(capsys: pytest.CaptureFixture[str]) -> str:
    assert run(["models", "list"]) == 0
    told = capsys.readouterr()
    assert told.err == ""
    return told.out


@pytest.mark.parametrize("place", ["cache", "own"])
@pytest.mark.parametrize("number", range(2 * len(CONFIGS) + len(INDEXES)))
def test_damaged_files_of_a_cache_are_no_model_and_no_traceback(
    empty_home: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    number: int,
    place: str,
) -> None:
    rests = (NEEDED, WITHOUT_TOKENIZER)
    damaged = [
        *({**rest, "config.json": config} for config in CONFIGS for rest in rests),
        *({**SHARDED, "model.safetensors.index.json": index} for index in INDEXES),
    ]
    if place == "cache":
        cache_of_another_program(tmp_path / "hub", REPOSITORY, damaged[number])
    else:
        folder = empty_home / "models" / "tiny.en"
        folder.mkdir(parents=True)
        for name, body in damaged[number].items():
            (folder / name).write_bytes(body)
    assert str(tmp_path) not in list_models(capsys)
    assert hub.find_local("tiny.en") is None


MANY = """
from functools import partial
from pathlib import Path
from oscine import hub
from oscine.manifest import is_complete, read_manifest
complete = is_complete(Path(GIVEN), partial(hub.has_family_files, "tiny.en"))
print(json.dumps({"complete": complete, "read": len(read_manifest(Path(GIVEN)))}))
"""


@pytest.mark.parametrize("value", ["[]", "{}", "9", '"a"'])
def test_files_of_a_cache_that_ask_for_much_are_no_model(tmp_path: Path, value: str) -> None:
    folder = tmp_path / "tiny.en"
    folder.mkdir()
    (folder / "tokenizer.json").write_bytes(b"{}")
    (folder / "model.safetensors").write_bytes(b"x")
    count = (15 << 20) // (len(value) + 1)
    listed = '{"a": [' + ",".join([value] * count) + "]}"
    for place in (folder / "config.json", tmp_path / "tiny.en.inventory"):
        place.write_text(listed)
    found = run_bounded(MANY, str(folder), megabytes=150)
    assert found == [{"complete": False, "read": 0}]


@pytest.mark.parametrize(
    "name", ["../a", "/etc/passwd", "a/../../b", "..", ".", "", "a//b", "a\0b", "..\\a", "a/"]
)
def test_a_manifest_of_files_elsewhere_is_none(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "tiny.en"
    entry = {"size": 1, "digest": f"sha256:{'0' * 64}"}
    place = tmp_path / "tiny.en.inventory"
    for listed, wanted in (({}, ["a/b", "..a"]), ({name: entry}, [])):
        place.write_text(json.dumps({"a/b": entry, "..a": entry} | listed))
        assert list(read_manifest(folder)) == wanted


@pytest.mark.parametrize("size", [-1, 1 << 63, 10**400, 1.5, True, None, "1"])
def test_a_size_that_no_file_has_is_none(size: object) -> None:
    with pytest.raises(ValueError, match="not a number of bytes"):
        FileRecord(size, f"sha256:{'0' * 64}")  # type: ignore[arg-type]
    with pytest.raises(HubError, match=r"does not list the size and hash of model\.bin"):
        entry_of("model.bin", {"size": size, "lfs": {"sha256": "0" * 64}})


def pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def device(path: Path) -> None:
    path.unlink()
    path.symlink_to("/dev/zero")


def loop(path: Path) -> None:
    path.unlink()
    path.symlink_to(path.name)


@pytest.mark.parametrize("change", [pipe, device, loop])
@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json"])
def test_what_is_no_file_in_a_cache_is_not_waited_for(
    empty_home: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    change: Callable[[Path], None],
    name: str,
) -> None:
    snapshot = cache_of_another_program(tmp_path / "hub", REPOSITORY, NEEDED)
    change(snapshot / name)
    assert str(snapshot) not in list_models(capsys)


@pytest.mark.parametrize("text", [b"", b"\xff\xfe", b"\x00", b"../../..", b"x" * 5000, b"a\nb"])
def test_a_damaged_reference_of_a_cache_is_no_model(
    empty_home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], text: bytes
) -> None:
    snapshot = cache_of_another_program(tmp_path / "hub", REPOSITORY, NEEDED)
    (snapshot.parent.parent / "refs" / "main").write_bytes(text)
    assert str(snapshot) not in list_models(capsys)


@pytest.mark.parametrize("name", ["a/b..c", "a--b/c", "-a/-b", "a/b.git", "a/b-", "ä/ö"])
def test_names_that_hugging_face_refuses_are_one_line(server: Server, name: str) -> None:
    with pytest.raises(HubError, match=r"Hugging Face has no public repository|no such file"):
        hub.resolve(name)


@pytest.mark.parametrize("text", [b"[]", b"{", DEEP, b"\xff", b"null", b'{"a": []}'])
@pytest.mark.parametrize(
    "name", [".agent_harnesses.json", "token", "stored_tokens", ".check_for_update_done"]
)
def test_what_huggingface_hub_remembers_does_not_stop_a_fetch(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, text: bytes
) -> None:
    for variable, file in (
        ("HF_HOME", ""),
        ("AGENT_HARNESSES_PATH", ".agent_harnesses.json"),
        ("HF_TOKEN_PATH", "token"),
        ("HF_STORED_TOKENS_PATH", "stored_tokens"),
    ):
        place = str(tmp_path / "hf" / file)
        monkeypatch.setattr(f"huggingface_hub.constants.{variable}", place, raising=False)
    (tmp_path / "hf").mkdir()
    (tmp_path / "hf" / name).write_bytes(text)
    monkeypatch.delenv("HF_TOKEN", raising=False)
    server.offer_hub(REPOSITORY, FILES)
    assert contents(hub.resolve("tiny.en")) == NEEDED
