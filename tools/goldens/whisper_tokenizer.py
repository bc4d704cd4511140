"""A small byte-level vocabulary in Whisper's layout of ids, as Hugging Face stores it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors

WORDS = (
    "the and you that was for are with his they this have from one had word but not what all were "
    "when your can said there use each which she how their will other about out many then them "
    "these some her would make like"
).split()
END, START, ZERO = "<|endoftext|>", "<|startoftranscript|>", "<|0.00|>"


def bytes_to_unicode() -> tuple[list[int], list[str]]:
    """GPT-2's printable stand-ins: bytes in id order, and the character of each."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    return printable + others, [*map(chr, printable), *(chr(256 + i) for i in range(len(others)))]


def text_vocabulary(
    multilingual: bool, rng: np.random.Generator
) -> tuple[dict[str, int], list[tuple[str, str]]]:
    """All bytes, a few words, and for multilingual the empty token that real ones have."""
    _, characters = bytes_to_unicode()
    vocabulary = {character: id for id, character in enumerate(characters)}
    merges: list[tuple[str, str]] = []

    def add(left: str, right: str) -> str:
        if left + right not in vocabulary:
            vocabulary[left + right] = len(vocabulary)
            merges.append((left, right))
        return left + right

    words = list(WORDS)
    rng.shuffle(words)
    for word in words[:14]:
        piece = "\u0120"  # a space
        for character in word:
            piece = add(piece, character)
    notes = (("â", "Ļ"), ("âĻ", "ª"))
    for left, right in (("i", "n"), ("e", "r"), ("o", "n"), (".", "."), *notes):
        add(left, right)
    if multilingual:
        vocabulary[""] = len(vocabulary)
    return vocabulary, merges


def special_names(languages: list[str], no_speech: str) -> list[str]:
    """Special tokens in the order of their ids, timestamps left out."""
    tasks = ("translate", "transcribe", "startoflm", "startofprev", no_speech, "notimestamps")
    return [END, START, *(f"<|{name}|>" for name in (*languages, *tasks))]


def write_tokenizer(
    folder: Path, p: dict, stamps: int, rng: np.random.Generator
) -> tuple[Tokenizer, dict[str, int], int]:
    """Write every tokenizer file; returns the tokenizer, special ids and the count of text ids.

    `p` are the case's parameters: multi, langs, nospeech, ts_tokens (are timestamps listed?).
    """
    vocabulary, merges = text_vocabulary(p["multi"], rng)
    text = len(vocabulary)
    special = special_names(p["langs"], p["nospeech"])
    times = [f"<|{i * 0.02:.2f}|>" for i in range(stamps)]
    ids = {name: text + i for i, name in enumerate(special + times)}
    listed = special + times if p["ts_tokens"] else special
    vocabulary[END] = ids[END]
    tokenizer = Tokenizer(
        models.BPE(
            vocab=vocabulary, merges=merges, continuing_subword_prefix="", end_of_word_suffix=""
        )
    )
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(s, normalized=False, special=True) for s in special])
    if p["ts_tokens"]:
        tokenizer.add_tokens([AddedToken(s, normalized=False, special=False) for s in times])
    prefix = [START, *(["<|en|>", "<|transcribe|>"] if p["multi"] else []), "<|notimestamps|>"]
    tokenizer.post_processor = processors.TemplateProcessing(
        single=" ".join(prefix) + f" $A:0 {END}",
        pair=" ".join(prefix) + f" $A:0 $B:1 {END}:1",
        special_tokens=[(s, ids[s]) for s in [*prefix, END]],
    )
    assert all(tokenizer.token_to_id(name) == ids[name] for name in listed)
    tokenizer.save(str(folder / "tokenizer.json"), pretty=False)
    _write_side_files(folder, vocabulary, merges, {name: ids[name] for name in listed}, special)
    return tokenizer, ids, text


def _write_side_files(
    folder: Path,
    vocabulary: dict[str, int],
    merges: list[tuple[str, str]],
    listed: dict[str, int],
    special: list[str],
) -> None:
    def write(name: str, value: object) -> None:
        (folder / name).write_text(json.dumps(value, ensure_ascii=False), encoding="utf-8")

    write("vocab.json", vocabulary)
    lines = "".join(f"{left} {right}\n" for left, right in merges)
    (folder / "merges.txt").write_text("#version: 0.2\n" + lines, encoding="utf-8")
    write("added_tokens.json", {name: id for name, id in listed.items() if name != END})
    ends = dict.fromkeys(("bos_token", "eos_token", "unk_token", "pad_token"), END)
    write("special_tokens_map.json", {**ends, "additional_special_tokens": special})
    plain = {"lstrip": False, "normalized": False, "rstrip": False, "single_word": False}
    write(
        "tokenizer_config.json",
        {
            "tokenizer_class": "WhisperTokenizer",
            "processor_class": "WhisperProcessor",
            "add_prefix_space": False,
            **ends,
            "model_max_length": 1024,
            "errors": "replace",
            "additional_special_tokens": special,
            "added_tokens_decoder": {
                str(id): {"content": name, **plain, "special": name in special}
                for name, id in listed.items()
            },
            "clean_up_tokenization_spaces": True,
        },
    )
