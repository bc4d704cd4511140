"""Small files that ask for much time or memory are refused in one line, with little of either."""

from __future__ import annotations

import gzip
import io
import json
import shutil
import struct
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from oscine.errors import MAX_PROBLEM_CHARS
from oscine.weights import read_checkpoint
from oscine.weights.safetensors import serialize

from ..bounded import run_bounded

GOLDENS = Path(__file__).resolve().parents[1] / "goldens"
TOKENIZER_MODEL = "tokenizer.model"

READ = """
from pathlib import Path
from oscine.errors import OscineError
from oscine.models.parakeet.weights import load_weights as parakeet
from oscine.models.qwen3_tts.voices import read_voice as voice
from oscine.models.whisper.weights import load_weights as whisper
from oscine.text.sentencepiece_loader import load_sentencepiece_tokenizer
from oscine.text.qwen import QwenTokenizer
from oscine.text.whisper import load_tokenizer as tokenizer
from oscine.weights import read_checkpoint as checkpoint

def labels(path):
    load_sentencepiece_tokenizer(path.parent, {}, None, 3, path)

def phrases(path):
    pieces = load_sentencepiece_tokenizer(path.parent, {}, None, 200_000, path)
    pieces.encode("a phrase to be heard " * 5)

def qwen(path):
    QwenTokenizer.load(path).encode("<|im_start|>a text", allow_special=True)

for name, reader, path in GIVEN:
    print(json.dumps({"begun": name}), flush=True)
    try:
        globals()[reader](Path(path))
        said = ""
    except OscineError as error:
        said = str(error)
    print(json.dumps({"name": name, "said": said}), flush=True)
"""


def header(folder: Path, text: bytes, length: int = -1) -> Path:
    """A safetensors file of this header alone, or one that claims `length`."""
    path = folder / "model.safetensors"
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text) if length < 0 else length) + text)
        if length > 0:
            file.truncate(8 + length)  # no bytes of it are on the disk
    return path


def names(count: int, value: str, twice: bool = False) -> bytes:
    """A JSON object of many names, of which the last one may be there twice."""
    pairs = [f'"n{number}":{value}' for number in range(count)]
    return ("{" + ",".join(pairs + pairs[-1:] if twice else pairs) + "}").encode()


def beside(folder: Path, golden: str, name: str, data: bytes) -> Path:
    """A copy of a golden's folder in which one file is another."""
    copy = folder / "model"
    shutil.copytree(GOLDENS / golden, copy)
    (copy / name).write_bytes(data)
    return copy


def edited(folder: Path, golden: str, name: str, change: Callable[[str], str]) -> Path:
    text = change((GOLDENS / golden / name).read_text("utf-8"))
    return beside(folder, golden, name, text.encode())


def file(folder: Path, name: str, data: bytes) -> Path:
    (folder / name).write_bytes(data)
    return folder / name


def ggml(folder: Path, tail: bytes) -> Path:
    head = struct.pack("<i11i", 0x67676D6C, 3, 4, 32, 1, 1, 4, 32, 1, 1, 2, 1)
    return file(folder, "ggml.bin", head + struct.pack("<2i", 0, 0) + tail)


def torch(folder: Path, stream: bytes) -> Path:
    with zipfile.ZipFile(folder / "model.pt", "w") as archive:
        archive.writestr("any/data.pkl", b"\x80\x02" + stream + b".")
    return folder / "model.pt"


def recalled(call: bytes, count: int = 400_000, calls: int = 50_000) -> bytes:
    """A tuple of many numbers, kept once and given again and again to what goes through it."""
    return b"(" + b"K\x01" * count + b"tq\x01}" + call * calls


def swollen(folder: Path) -> Path:
    archive = (GOLDENS / "parakeet_formats" / "model.nemo").read_bytes()
    return file(folder, "x.nemo", gzip.compress(archive + bytes(70 << 20), 1))


def nemo_config(folder: Path, text: bytes) -> Path:
    with tarfile.open(folder / "x.nemo", "w") as archive:
        for name, data in (("model_config.yaml", text), ("model_weights.ckpt", b"PK\x03\x04")):
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return folder / "x.nemo"


def long_names(folder: Path) -> Path:
    with zipfile.ZipFile(folder / "weights.npz", "w") as archive:
        for number in range(300):
            archive.writestr(f"{number}".ljust(65_000, "x"), b"")
    return folder / "weights.npz"


def many_pieces(folder: Path, kind: int) -> Path:
    """A tokenizer.model with pieces of the user's, each of another spelling."""
    out = bytearray()
    for number in range(200_000):
        body = b"\x0a\x07" + f"a{number:06d}".encode() + b"\x18" + bytes([kind])
        out += b"\x0a" + bytes([len(body)]) + body
    return file(folder, TOKENIZER_MODEL, bytes(out) + b"\x12\x02\x18\x02").parent


def many_specials(folder: Path) -> Path:
    def change(text: str) -> str:
        settings = json.loads(text)
        for id in range(100_000, 200_000):
            settings["added_tokens_decoder"][str(id)] = {"content": f"<|n{id}|>"}
        return json.dumps(settings)

    return edited(folder, "qwen3_tts/text/ckpt", "tokenizer_config.json", change)


def renumbered(id: int) -> Callable[[Path], Path]:
    """Whisper's tokenizer whose end-of-text has another id."""

    def change(text: str) -> str:
        tokenizer = json.loads(text)
        for token in tokenizer["added_tokens"]:
            if token["content"] == "<|endoftext|>":
                token["id"] = id
        return json.dumps(tokenizer)

    return lambda folder: edited(folder, "whisper_formats/hf", "tokenizer.json", change)


def zeros(count: int, shape: str = "[0]") -> bytes:
    return names(count, f'{{"dtype":"F32","shape":{shape},"data_offsets":[0,0]}}')


def changed_hf(folder: Path, settings: dict[str, int | None], tensors: dict[str, Any]) -> Path:
    """The golden of Hugging Face with other settings and entries of its header; None: without."""
    copy = folder / "model"
    shutil.copytree(GOLDENS / "whisper_formats" / "hf", copy)
    config = json.loads((copy / "config.json").read_text()) | settings
    (copy / "config.json").write_text(json.dumps(config))
    data = (copy / "model.safetensors").read_bytes()
    end = 8 + int.from_bytes(data[:8], "little")
    table = json.loads(data[8:end]) | tensors
    text = json.dumps({name: entry for name, entry in table.items() if entry}).encode()
    (copy / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data[end:])
    return copy


def layer_of_many_digits(folder: Path) -> Path:
    """Beside the tensors of a golden one whose layer's number no program could read."""
    name = f"model.encoder.layers.{'9' * 5000}.fc1.bias"
    entry = {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}
    return changed_hf(folder, {"encoder_layers": None, "num_hidden_layers": None}, {name: entry})


def computed_positions(folder: Path) -> Path:
    """An encoder without a table of positions, and a configuration that states very many."""
    name = "model.encoder.embed_positions.weight"
    copy = changed_hf(folder, {"max_source_positions": (1 << 24) - 1}, {})
    arrays = {n: e.read() for n, e in read_checkpoint(copy).tensors.items() if n != name}
    (copy / "model.safetensors").unlink()
    (copy / "model.safetensors").write_bytes(serialize(arrays))
    return copy


REBUILD = b"ctorch._utils\n_rebuild_tensor_v2\n"
STORAGE = (
    b"((X\x07\x00\x00\x00storagectorch\nHalfStorage\nX\x01\x00\x00\x000X\x03\x00\x00\x00cpuK\x01tQ"
)

#: What is made in a folder, what reads it, and what is said of it; "": it is read.
CASES: dict[str, tuple[str, Callable[[Path], Path], str]] = {
    "header of 66 MB": (
        "checkpoint", lambda f: header(f, b"{", 66 << 20), "its header claims 69206016 bytes"),
    "100,000 tensors": (
        "checkpoint", lambda f: header(f, zeros(100_000)), "holds 100000 tensors, more than"),
    "a tensor twice": (
        "checkpoint", lambda f: header(f, names(100_000, "0", True)), "'n99999' occurs twice"),
    "nested tensors": (
        "checkpoint", lambda f: header(f, b'{"a":' + b"[" * 900 + b"]" * 900 + b"}"), "nested"),
    "two million tensors": (
        "checkpoint", lambda f: header(f, b'{"a":[' + b"0," * 3_000_000 + b"0]}"), "JSON values"),
    "a name of a megabyte": (
        "checkpoint", lambda f: header(f, b'{"' + b"n" * (1 << 20) + b'":0}'), "no description"),
    "a number of a megabyte": (
        "checkpoint", lambda f: header(f, b'{"n":' + b"9" * (1 << 20) + b"}"), "not valid JSON"),
    "dimensions of 300 digits": (
        "checkpoint", lambda f: header(f, zeros(1, "[" + "9" * 300 + "]")), "impossible"),
    "dimensions of 4000 digits": (
        "checkpoint", lambda f: header(f, zeros(1, "[" + "9" * 4000 + "]")), "4000 digits"),
    "a configuration's name twice": (
        "checkpoint",
        lambda f: beside(f, "whisper_formats/hf", "config.json", names(100_000, "0", True)),
        "config.json: is not valid JSON ('n99999' occurs twice)"),
    "a generation's name twice": (
        "whisper",
        lambda f: beside(
            f, "whisper_formats/hf", "generation_config.json", names(100_000, "0", True)),
        "generation_config.json: is not valid JSON ('n99999' occurs twice)"),
    "an index's name twice": (
        "checkpoint",
        lambda f: beside(
            f, "whisper_formats/hf_bf16_sharded", "model.safetensors.index.json",
            b'{"weight_map":' + names(100_000, '"x"', True) + b"}"),
        "'n99999' occurs twice"),
    "a voice's name twice": (
        "voice", lambda f: header(f, names(100_000, "0", True)), "'n99999' occurs twice"),
    "a configuration of lists": (
        "checkpoint",
        lambda f: beside(
            f, "whisper_formats/hf", "config.json", b'{"a":[' + b"[]," * 5_000_000 + b"0]}"),
        "JSON values"),
    "a configuration of 17 MB": (
        "checkpoint",
        lambda f: beside(f, "whisper_formats/hf", "config.json", b"{" + b" " * (17 << 20) + b"}"),
        "it has more than 16777216 bytes"),
    "5 million tokens of ggml": (
        "checkpoint", lambda f: ggml(f, struct.pack("<i", 5_000_000) + bytes(20_000_000)),
        "claims 5000000 tokens"),
    "100,000 tensors of ggml": (
        "checkpoint",
        lambda f: ggml(f, bytes(4) + b"".join(
            struct.pack("<4i", 1, 8, 0, 0) + b"%08d" % number for number in range(100_000))),
        "holds more than 65536 tensors"),
    "100,000 variables of CTranslate2": (
        "checkpoint",
        lambda f: file(f, "model.bin", struct.pack("<IH", 6, 12) + b"WhisperSpec\0"
                       + struct.pack("<2I", 3, 100_000)),
        "claims 100000 variables"),
    "2 million opcodes": (
        "checkpoint", lambda f: torch(f, b"]" + b"K\x00a" * 1_000_000),
        "more than 1000000 opcodes"),
    "a shape recalled often": (
        "checkpoint",
        lambda f: torch(f, recalled(b"X\x01\x00\x00\x00a" + REBUILD + b"(" + STORAGE[1:]
                                    + b"K\x00h\x01h\x01tRs")),
        "no shape of 8 axes"),
    "a pickle of 17 MB": (
        "checkpoint", lambda f: torch(f, b"N" * (17 << 20)), "more than 16777216"),
    "a zip's long names": ("checkpoint", long_names, "its table of contents has more than"),
    "gzip that swells": ("checkpoint", swollen, "unpacks to more than 67108864 bytes"),
    "YAML of 300,000 items": (
        "checkpoint", lambda f: nemo_config(f, b"a:\n" + b"- b\n" * 300_000), "200000 values"),
    "YAML of 5 MB": (
        "checkpoint", lambda f: nemo_config(f, b"a: " + b"b" * (5 << 20)), "more than 4194304"),
    "a tokenizer of 16 GiB": ("tokenizer", renumbered(2**31 - 1), "has id '2147483647'"),
    "a tokenizer of 3 GB": ("tokenizer", renumbered(60_000_000), "has id '60000000'"),
    "a tokenizer of a million": ("tokenizer", renumbered(1_000_000), "no token has id"),
    "a vocabulary of a million lines": (
        "tokenizer", lambda f: file(f, "vocabulary.txt", b"\n" * 10_000_000).parent,
        "has 10000000 tokens, more than 1048576"),
    "a list of a million": (
        "tokenizer",
        lambda f: file(f, "vocabulary.json", b"[" + b'"",' * 1_500_000 + b'""]').parent,
        "has 1500001 tokens"),
    "a vocabulary of 17 MB": (
        "tokenizer", lambda f: file(f, "vocab.json", b" " * (17 << 20)).parent,
        "it has more than 16777216 bytes"),
    "nested tokenizers": (
        "tokenizer", lambda f: file(f, "tokenizer.json", b"[" * 100_000).parent, "not valid JSON"),
    "millions of labels": (
        "labels", lambda f: file(f, TOKENIZER_MODEL, b"\x0a\x00" * 8_000_000),
        "has 1048577 tokens"),
    "millions of lines": (
        "labels", lambda f: file(f, "vocab.txt", b"\n" * 10_000_000), "has 10000000 tokens"),
    "many pieces of the user's": ("phrases", lambda f: many_pieces(f, 4) / "x", ""),
    "many special tokens": ("qwen", many_specials, ""),
    "a layer of 5000 digits": ("whisper", layer_of_many_digits, "tensors do not fit"),
    "computed positions": ("whisper", computed_positions, "16777215, more than 8192"),
}  # fmt: skip


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, str]]:
    """The path that each case was read from, and what was said, read in one process."""
    given = []
    for name, (reader, make, _) in CASES.items():
        folder = tmp_path_factory.mktemp("hostile")
        given.append((name, reader, str(make(folder))))
    lines = run_bounded(READ, given, seconds=240, megabytes=1000)
    said = {line["name"]: line["said"] for line in lines if "name" in line}
    return {name: (Path(path), said[name]) for name, _, path in given}


@pytest.mark.parametrize("name", CASES)
def test_little_time_and_memory_for_files_that_ask_for_much(
    answers: dict[str, tuple[Path, str]], name: str
) -> None:
    path, said = answers[name]
    expected = CASES[name][2]
    assert expected in said and bool(expected) == bool(said)
    if said:
        folder = path if path.is_dir() else path.parent
        assert said.startswith(str(folder)) and "\n" not in said
        assert len(said) < MAX_PROBLEM_CHARS + 400
