"""NeMo archives: what they may hold, and that a hostile one is refused in one line."""

from __future__ import annotations

import gzip
import io
import shutil
import tarfile
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from oscine.errors import CheckpointError
from oscine.models.parakeet.config import read_stated_config
from oscine.models.parakeet.weights import load_weights
from oscine.weights import read_checkpoint
from oscine.weights.yaml_subset import parse_yaml

FORMATS = Path(__file__).resolve().parents[1] / "goldens" / "parakeet_formats"
CONFIG, WEIGHTS = "./model_config.yaml", "./model_weights.ckpt"

Files = dict[str, bytes]


@pytest.fixture(scope="module")
def golden() -> Files:
    """The members of the committed archive."""
    with tarfile.open(FORMATS / "model.nemo") as archive:
        return {m.name: archive.extractfile(m).read() for m in archive}  # type: ignore[union-attr]


def packed(files: Files, change: Callable[[tarfile.TarInfo], None] | None = None) -> bytes:
    """A tar archive of these; `change` spoils a member's header before it is written."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            if change is not None:
                change(member)
            archive.addfile(member, io.BytesIO(data))
    return out.getvalue()


def written(folder: Path, data: bytes) -> Path:
    path = folder / "model.nemo"
    path.write_bytes(data)
    return path


def refused(path: Path) -> str:
    """What is said; one line that begins with the file."""

    def around() -> list[Path]:
        return sorted([*path.parent.rglob("*"), *path.parent.parent.iterdir()])

    before = around()
    with pytest.raises(CheckpointError) as caught:
        load_weights(path)
    message = str(caught.value)
    assert message.startswith(f"{path}: ") and "\n" not in message and len(message) < 600
    assert around() == before  # nothing was unpacked
    return message.removeprefix(f"{path}: ")


@pytest.mark.parametrize("prefix", ["./", ""])
@pytest.mark.parametrize("compressed", [False, True])
def test_archives_are_read_with_and_without_compression(
    tmp_path: Path, golden: Files, prefix: str, compressed: bool
) -> None:
    data = packed({prefix + name[2:]: content for name, content in golden.items()})
    path = written(tmp_path, gzip.compress(data) if compressed else data)
    checkpoint = read_checkpoint(path)
    assert checkpoint.format == "nemo"
    assert set(checkpoint.files) == {"tokenizer.model", "vocab.txt"}
    assert checkpoint.config["decoding"]["durations"] == [0, 1, 2, 3, 4]  # by reference
    assert load_weights(path).vocabulary == load_weights(FORMATS / "hf").vocabulary


@pytest.mark.parametrize("kind", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_every_dialect_of_tar_is_read(tmp_path: Path, golden: Files, kind: int) -> None:
    path = tmp_path / "model.nemo"
    long = "a" * 60 + "/" + "b" * 120 if kind == tarfile.GNU_FORMAT else "a" * 60 + "/b" + "c" * 70
    with tarfile.open(path, "w", format=kind) as archive:
        folder = tarfile.TarInfo("./")
        folder.type = tarfile.DIRTYPE
        archive.addfile(folder)
        for name, data in (golden | {long: b"artifact"}).items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            if kind == tarfile.PAX_FORMAT:
                member.mtime = 1700000000.25  # type: ignore[assignment]  # as NeMo writes them
            archive.addfile(member, io.BytesIO(data))
    assert load_weights(path).config.vocab_size == 48


def test_a_folder_with_one_archive_is_a_checkpoint(tmp_path: Path, golden: Files) -> None:
    written(tmp_path, packed(golden))
    (tmp_path / "README.md").write_text("a model")
    assert load_weights(tmp_path).format == "nemo"


@pytest.mark.parametrize("name", ["../evil.txt", "/etc/evil", "a/../../b", "..\\evil", "C:/evil"])
def test_names_that_lead_out_are_refused(tmp_path: Path, golden: Files, name: str) -> None:
    folder = tmp_path / "deep" / "er"
    folder.mkdir(parents=True)
    assert "outside the archive" in refused(written(folder, packed(golden | {name: b"x"})))


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (tarfile.SYMTYPE, "a link"),
        (tarfile.LNKTYPE, "a hard link"),
        (tarfile.FIFOTYPE, "of kind"),
        (tarfile.CHRTYPE, "of kind"),
    ],
)
def test_what_is_no_file_is_refused(tmp_path: Path, golden: Files, kind: bytes, said: str) -> None:
    def change(member: tarfile.TarInfo) -> None:
        if member.name == WEIGHTS:
            member.type, member.linkname, member.size = kind, "/etc/passwd", 0

    path = written(tmp_path, packed({**golden, WEIGHTS: b""}, change))
    assert f"is {said}" in refused(path)


def test_duplicates_are_refused(tmp_path: Path, golden: Files) -> None:
    twice = packed(golden).rstrip(b"\0")
    twice += b"\0" * (-len(twice) % 512) + packed({CONFIG[2:]: golden[CONFIG]})
    assert "model_config.yaml occurs twice" in refused(written(tmp_path, twice))


#: Ten times more at every line, and deeper at every line.
LAUGHS = "\n".join(
    f"a{n + 1}: &a{n + 1} [{', '.join([f'*a{n}'] * 10)}]" for n in range(30)
).encode()
DEEP = b"a0: &a0 [1]\n" + "\n".join(f"a{n + 1}: &a{n + 1} [*a{n}]" for n in range(300)).encode()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({CONFIG: None}, "without model_config.yaml"),
        ({WEIGHTS: None}, "it has none"),
        ({"./other.ckpt": b"x"}, "it has model_weights.ckpt, other.ckpt"),
        ({WEIGHTS: b"\x80\x02}q\x00."}, "no zip archive of torch.save"),
        ({WEIGHTS: b"PK\x03\x04 and nothing"}, "not a readable zip archive"),
        ({CONFIG: b"a: !!python/object/apply:os.system ['true']"}, "has a tag"),
        ({CONFIG: b"a: !custom x"}, "has a tag"),
        ({CONFIG: b"a: &x [1, *x]"}, "alias 'x' inside of what it stands for"),
        ({CONFIG: b"a: &x {b: {c: *x}}"}, "alias 'x' inside of what it stands for"),
        ({CONFIG: b"a: *x"}, "an alias 'x' of nothing"),
        ({CONFIG: b"a: &x b\n? *x\n: 1"}, "a name that is no text"),
        ({CONFIG: b"a: &x {b: 1}\nc:\n  <<: *x"}, "merge key"),
        ({CONFIG: b"a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1]\n" + LAUGHS}, "aliases that repeat more than"),
        ({CONFIG: DEEP}, "nested more than"),
        ({CONFIG: b"a: 1\na: 2"}, "the name 'a' twice"),
        ({CONFIG: b"- 1"}, "holds no mapping"),
        ({CONFIG: b""}, "holds no mapping"),
        ({CONFIG: b"a: 1\n---\nb: 2"}, "several documents"),
        ({CONFIG: b"a: [1, 2"}, "is not valid YAML"),
        ({CONFIG: b"a: \xff"}, "can't decode"),
        ({CONFIG: b"a: " + b"[" * 200 + b"]" * 200}, "nested more than"),
        ({CONFIG: b"? [a]\n: 1"}, "a name that is no text"),
        ({CONFIG: b"a: 1"}, "target"),
    ],
)
def test_contents_that_are_not_a_models_are_refused(
    tmp_path: Path, golden: Files, change: dict[str, bytes | None], said: str
) -> None:
    files = {name: data for name, data in (golden | change).items() if data is not None}
    assert said in refused(written(tmp_path, packed(files)))


def test_code_in_the_pickle_is_not_run(tmp_path: Path, golden: Files) -> None:
    mark = tmp_path / "ran"
    source = io.BytesIO(golden[WEIGHTS])
    target = io.BytesIO()
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w") as new:
        for name in old.namelist():
            data = old.read(name)
            if name.endswith("data.pkl"):
                command = f"touch {mark}".encode()
                call = b"\x80\x02cos\nsystem\nX" + len(command).to_bytes(4, "little") + command
                data = call + b"\x85R."
            new.writestr(name, data)
    said = refused(written(tmp_path, packed({**golden, WEIGHTS: target.getvalue()})))
    assert "'os.system', which is not allowed" in said and "nothing of it was executed" in said
    assert not mark.exists()


@pytest.mark.parametrize("part", [0.0, 0.3, 0.6, 0.9, 0.999])
@pytest.mark.parametrize("name", ["model.nemo", "hybrid_gz.nemo"])
def test_truncated_archives_are_refused(tmp_path: Path, name: str, part: float) -> None:
    data = (FORMATS / name).read_bytes()
    stop = max(int(part * len(data.rstrip(b"\0"))), 20)
    refused(written(tmp_path, data[:stop]))


def resized(data: bytes, name: bytes, field: bytes) -> bytes:
    """A member's size as `field`, with the checksum that makes it look right."""
    at = data.index(name)
    header = bytearray(data[at : at + 512])
    header[124:136] = field
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    return data[:at] + bytes(header) + data[at + 512 :]


@pytest.mark.parametrize(
    "field",
    [b"77777777777\0", b"\x80" + b"\xff" * 11, b"\xff" * 12, b"99999999999\0", b"-0000000001\0"],
)
def test_a_size_beyond_the_archive_is_refused(tmp_path: Path, golden: Files, field: bytes) -> None:
    refused(written(tmp_path, resized(packed(golden), WEIGHTS.encode(), field)))


def test_a_gzip_stream_may_not_swell(tmp_path: Path, golden: Files) -> None:
    bomb = gzip.compress(packed(golden) + b"\0" * (80 << 20))
    assert len(bomb) < 1 << 20
    assert "unpacks to more than 67108864 bytes" in refused(written(tmp_path, bomb))


def test_a_gzip_stream_may_not_fill_the_temporary_folder(
    tmp_path: Path, golden: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = packed(golden)
    archive = written(tmp_path, gzip.compress(data))
    usage = shutil.disk_usage(tmp_path)

    def room(free: int) -> None:
        monkeypatch.setattr(shutil, "disk_usage", lambda folder: usage._replace(free=free))

    room(len(data))
    assert load_weights(archive).config.n_layers > 0
    room(len(data) - 1)
    folder = tempfile.gettempdir()
    assert refused(archive) == (
        f"unpacks to more than the {len(data) - 1} bytes that are free in {folder}; "
        "set TMPDIR to a folder with more room, or unpack it: gzip -dc OLD > NEW"
    )


def test_gzip_of_something_else_is_refused_before_it_is_unpacked(
    tmp_path: Path, golden: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Full(io.BytesIO):
        def write(self, data: object) -> int:
            raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(tempfile, "TemporaryFile", lambda **_: Full())
        assert "No space left" in refused(written(tmp_path, gzip.compress(packed(golden))))
        assert "no tar archive" in refused(written(tmp_path, gzip.compress(b"x" * (80 << 20), 1)))
    assert "no tar archive" in refused(written(tmp_path, gzip.compress(b"ustar")))
    assert "gzip stream" in refused(written(tmp_path, gzip.compress(b"")))
    spoilt = bytearray(gzip.compress(packed(golden)))
    spoilt[2000:2100] = bytes(100)
    assert "gzip stream" in refused(written(tmp_path, bytes(spoilt)))


@settings(
    max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    st.integers(0, 6_000) | st.integers(0, 110_000),
    st.binary(min_size=1, max_size=8),
    st.booleans(),
)
def test_random_damage_is_read_or_refused(tmp_path: Path, at: int, put: bytes, cut: bool) -> None:
    data = bytearray((FORMATS / "model.nemo").read_bytes())
    data[at : at + len(put)] = put
    path = written(tmp_path, bytes(data[:at] if cut and at else data))
    try:
        load_weights(path)
    except CheckpointError as error:
        assert "\n" not in str(error)


def test_scalars_are_jsons_and_words_stay_words() -> None:
    text = b"a: [1, -2, 1.5, 1e-5, 1.0e-05, .5, true, False, null, ~, no, on, 010, 0x1, 1_0, '1']"
    found = parse_yaml(Path("x"), "y", text)["a"]
    assert found[:10] == [1, -2, 1.5, 1e-5, 1e-5, 0.5, True, False, None, None]
    assert found[10:] == ["no", "on", "010", "0x1", "1_0", "1"]


def test_references_are_followed_and_circles_are_left() -> None:
    text = b"""
a: {b: 3, c: [1, 2]}
d: ${a.b}
e: ${d}
f: ${model.a.c}
g: ${h}
h: ${g}
i: ${nowhere}
j: ${a}
"""
    found = parse_yaml(Path("x"), "y", text)
    assert [found[name] for name in "def"] == [3, 3, [1, 2]]
    assert [found[name] for name in "ij"] == ["${nowhere}", "${a}"]
    assert found["g"].startswith("${") and found["h"].startswith("${")


def test_what_aliases_repeat_is_there_in_every_place() -> None:
    text = b"""
a: &list [1, {b: two}]
c: *list
d: &text x
e: [*text, *list, &n null, *n]
f: &empty {}
g: {h: *empty}
k: ${c}
"""
    found = parse_yaml(Path("x"), "y", text)
    shared = [1, {"b": "two"}]
    assert found["a"] == found["c"] == found["k"] == shared
    assert found["e"] == ["x", shared, None, None]
    assert found["g"] == {"h": {}}
    assert found == yaml.safe_load(text) | {"k": shared}


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-9, 9) | st.sampled_from(["x", "no", "1", "<<"]),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner),
        max_leaves=8,
    )
)
def test_what_pyyaml_writes_of_shared_values_is_read(value: object) -> None:
    data = yaml.dump({"one": value, "other": [value, {"more": value}]})
    assert parse_yaml(Path("x"), "y", data.encode()) == yaml.safe_load(data)


# -- models that NeMo saved again -----------------------------------------------------------------


def changed(golden: Files, change: Callable[[Any], None]) -> Files:
    config = yaml.safe_load(golden[CONFIG])
    change(config)
    return golden | {CONFIG: yaml.dump(config, allow_unicode=True).encode()}


def saved_again(config: Any) -> None:
    """As change_decoding_strategy writes it: all of RNNTDecodingConfig, most of it unset."""
    greedy = {"max_symbols": None, "max_symbols_per_step": None, "ngram_lm_model": None}
    config["decoding"] = {
        "model_type": "rnnt",
        "strategy": "greedy_batch",
        "durations": [],
        "big_blank_durations": [],
        "greedy": greedy,
        "beam": {"max_symbols_per_step": None},
        "rnnt_timestamp_type": "all",
        "temperature": None,
    }
    config["labels"] = None
    config["decoder"]["vocabulary"] = config["joint"]["vocabulary"]  # one list in two places


def test_a_model_that_nemo_saved_again_is_the_same(
    tmp_path: Path, golden: Files, caplog: pytest.LogCaptureFixture
) -> None:
    path = written(tmp_path, packed(changed(golden, saved_again)))
    found, before = load_weights(path), load_weights(FORMATS / "model.nemo")
    assert found.config == before.config and found.config.max_symbols == 10
    assert caplog.text.count("no limit of tokens per frame; using 10") == 1


def transducer(config: Any) -> None:
    """A model without durations; its joint network has no outputs for them."""
    saved_again(config)
    config["model_defaults"].pop("tdt_durations", None)
    config["joint"]["num_extra_outputs"] = 0
    config["loss"] = {"loss_name": "default", "tdt_kwargs": {"durations": []}}


def test_a_transducer_without_durations_that_nemo_saved_again(
    tmp_path: Path, golden: Files
) -> None:
    checkpoint = read_checkpoint(written(tmp_path, packed(changed(golden, transducer))))
    settings = read_stated_config(checkpoint)
    assert (settings.decoder_type, settings.durations, settings.max_symbols) == ("RNN-T", (), 10)


@pytest.mark.parametrize("unset", [None, "???"])
def test_what_is_unset_is_as_usual(tmp_path: Path, golden: Files, unset: object) -> None:
    """Every key that is read: null, and what OmegaConf writes for a value that was never set."""
    config = yaml.safe_load(golden[CONFIG])
    path = written(tmp_path, packed(golden))
    checkpoint = read_checkpoint(path)
    plain = read_stated_config(checkpoint)
    for part, values in config.items():
        for key in values if isinstance(values, dict) else ():
            if f"{part}.{key}" in REQUIRED:
                continue
            text = yaml.dump(config | {part: {**values, key: unset}}, allow_unicode=True)
            changed = parse_yaml(path, CONFIG, text.encode())
            if unset is None and f"{part}.{key}" in NULL_IS_A_VALUE:
                with pytest.raises(CheckpointError, match=key):
                    read_stated_config(replace(checkpoint, config=changed))
                continue
            found = read_stated_config(replace(checkpoint, config=changed))
            assert found.decoder_type == plain.decoder_type, key
            for field in fields(found):
                now, before = getattr(found, field.name), getattr(plain, field.name)
                assert now in (before, None) or field.name in FROM_OTHERS, key


#: Sizes that follow from others where they are not stated.
FROM_OTHERS = {"xscaling", "ff_dim", "subsampling_channels"}
#: Without these a network is another one.
REQUIRED = {"joint.num_extra_outputs", "model_defaults.tdt_durations"}
NULL_IS_A_VALUE = {
    *(f"preprocessor.{key}" for key in ("window", "preemph", "log", "mel_norm", "normalize")),
    "encoder.subsampling",
    "encoder.untie_biases",
    "decoder.blank_as_pad",
}
