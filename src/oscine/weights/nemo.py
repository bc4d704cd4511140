"""NeMo's `.nemo`: a tar archive, older ones compressed, of configuration, weights and tokenizer.

Layout: NeMo nemo/core/connectors/save_restore_connector.py. `model_config.yaml`,
`model_weights.ckpt` (torch.save's zip) and `<hash>_tokenizer.model`, which the configuration calls
`nemo:<hash>_tokenizer.model`. An archive that is not compressed is mapped in place.
"""

from __future__ import annotations

from typing import Any, Final

from oscine.errors import CheckpointError
from oscine.model_files import MAX_BYTES
from oscine.weights.archive import Member, ZipArchive
from oscine.weights.checkpoint import Checkpoint
from oscine.weights.mapped_file import MappedFile, printable_name
from oscine.weights.tar import decompress, is_gzip, is_tar, read_members
from oscine.weights.torch_pickle import is_torch, read_state
from oscine.weights.yaml_subset import MAX_YAML_BYTES, parse_yaml

CONFIG, WEIGHTS = "model_config.yaml", "model_weights.ckpt"
#: File names of `Checkpoint.files`, and where the configuration says which member that is.
_TOKENIZER_KEYS: Final = {"tokenizer.model": "model_path", "vocab.txt": "vocab_path"}


def is_nemo(file: MappedFile) -> bool:
    """Whether a file is a tar archive, compressed or not, which no other format is."""
    return is_tar(file) or is_gzip(file)


def read_nemo(file: MappedFile) -> Checkpoint:
    """Open an archive; `files` of the checkpoint are its tokenizer.model and vocab.txt.

    Raises:
        CheckpointError: a hostile, damaged or truncated archive, one without configuration or
            weights, or weights that are more than tensors.
    """
    file = decompress(file) if is_gzip(file) else file
    found = read_members(file)
    checkpoints = [name for name in found if name.endswith(".ckpt")]
    if CONFIG not in found:
        raise CheckpointError(file.path, f"a tar archive without {CONFIG}", "no model of NeMo")
    if checkpoints != [WEIGHTS]:
        listed = ", ".join(map(printable_name, checkpoints[:5])) or "none"
        raise CheckpointError(
            file.path, f"must hold {WEIGHTS} and no other weights, it has {listed}"
        )
    config = parse_yaml(file.path, CONFIG, _read_member(file, found, CONFIG, MAX_YAML_BYTES))
    weights = _member_file(file, found[WEIGHTS], WEIGHTS)
    if weights.head[:4] != b"PK\x03\x04":
        raise CheckpointError(
            file.path,
            f"{WEIGHTS} is no zip archive of torch.save",
            "pickles of torch before 1.6 are not read; save the model with a newer NeMo",
        )
    archive = ZipArchive(file.path, _member_bytes(file, found[WEIGHTS], WEIGHTS))
    if not is_torch(archive):
        raise CheckpointError(file.path, f"{WEIGHTS} holds no data.pkl")
    tensors, _ = read_state(archive)
    files = _tokenizer_files(file, found, config)
    return Checkpoint("nemo", file.path, file.path.parent, tensors, config, files=files)


def _tokenizer_files(
    file: MappedFile, found: dict[str, Member], config: dict[str, Any]
) -> dict[str, bytes]:
    settings = config.get("tokenizer")
    named = settings if isinstance(settings, dict) else {}
    files = {}
    for name, key in _TOKENIZER_KEYS.items():
        member = str(named.get(key) or "").removeprefix("nemo:")
        if member not in found:
            alike = [other for other in found if other.endswith(f"_{name}") or other == name]
            member = alike[0] if len(alike) == 1 else ""
        if member:
            files[name] = _read_member(file, found, member, MAX_BYTES)
    return files


def _member_bytes(file: MappedFile, member: Member, name: str) -> memoryview:
    return file.part(member.offset, member.size, f"member {name!r}")


def _member_file(file: MappedFile, member: Member, name: str) -> MappedFile:
    return MappedFile(file.path, _member_bytes(file, member, name))


def _read_member(file: MappedFile, found: dict[str, Member], name: str, limit: int) -> bytes:
    member = found[name]
    if member.size > limit:
        raise file.damaged(
            f"member {printable_name(name)} has {member.size} bytes, more than {limit}"
        )
    return file.bytes(member.offset, member.size, f"member {name!r}")
