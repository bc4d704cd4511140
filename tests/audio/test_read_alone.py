"""A recording is read alone: whatever it names, no other file is opened and no server asked."""

from __future__ import annotations

import ctypes
import io
import os
import socket
import struct
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import av
import numpy as np
import pytest

from oscine.audio import demuxer
from oscine.audio.io import channel_count, decode
from oscine.errors import AudioError

from ..bounded import run_bounded

RATE = 16_000
TONE = np.round(9000 * np.sin(2 * np.pi * 440 * np.arange(RATE) / RATE)).astype("<i2")


def encoded(container: str, codec: str, title: str = "") -> bytes:
    """Half a second of silence."""
    file = io.BytesIO()
    with av.open(file, "w", format=container) as output:
        if title:
            output.metadata["title"] = title
        stream = output.add_stream(codec, rate=48_000, layout="mono")
        for _ in range(24):
            frame = av.AudioFrame.from_ndarray(np.zeros((1, 1000), "f4"), "flt", "mono")
            frame.sample_rate = 48_000
            resampler = av.AudioResampler(stream.format, "mono", 48_000)
            for converted in resampler.resample(frame):
                output.mux(stream.encode(converted))
        output.mux(stream.encode(None))
    return file.getvalue()


def wav(samples: np.ndarray) -> bytes:
    data = samples.tobytes()
    form = struct.pack("<IHHIIHH", 16, 1, 1, RATE, 2 * RATE, 2, 16)
    size = struct.pack("<I", 36 + len(data))
    return b"RIFF" + size + b"WAVEfmt " + form + b"data" + struct.pack("<I", len(data)) + data


class Kept:
    """Files and a port that must stay untouched; `touched` says what was not."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = folder / "secret.wav"
        self.file.write_bytes(wav(TONE))
        self.list = folder / "evil.m3u8"
        self.list.write_text(f"#EXTM3U\n#EXTINF:1,\n{self.file}\n#EXT-X-ENDLIST\n")
        self.server = socket.create_server(("127.0.0.1", 0))
        self.server.settimeout(0)
        self.url = f"http://127.0.0.1:{self.server.getsockname()[1]}/a.wav"
        libc = ctypes.CDLL(None, use_errno=True)
        self.watch = libc.inotify_init1(os.O_NONBLOCK)
        opened_or_read = 0x20 | 0x1
        for path in (self.file, self.list):
            assert libc.inotify_add_watch(self.watch, bytes(path), opened_or_read) >= 0

    def touched(self) -> list[str]:
        found = []
        try:
            os.read(self.watch, 1 << 16)
            found.append("a file was opened")
        except BlockingIOError:
            pass
        try:
            self.server.accept()[0].close()
            found.append("a connection was made")
        except BlockingIOError:
            pass
        return found

    def close(self) -> None:
        os.close(self.watch)
        self.server.close()


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Kept]:
    if not sys.platform.startswith("linux"):
        pytest.skip("no inotify on this system")
    monkeypatch.chdir(tmp_path)  # what bytes name is relative to it
    kept = Kept(tmp_path)
    yield kept
    kept.close()


def hls(*lines: str) -> str:
    return "\n".join(("#EXTM3U", "#EXT-X-VERSION:7", "#EXT-X-TARGETDURATION:1", *lines, ""))


def mpd(url: str) -> str:
    return (
        '<?xml version="1.0"?>\n<!-- made by hand -->\n'
        '<MPD xmlns="urn:mpeg:dash:schema:mpd:2011" type="static"><Period><AdaptationSet '
        f'mimeType="audio/wav"><Representation id="1"><BaseURL>{url}</BaseURL></Representation>'
        "</AdaptationSet></Period></MPD>"
    )


PLAYLISTS: dict[str, Callable[[Kept], str]] = {
    "ffconcat": lambda kept: "ffconcat version 1.0\nfile secret.wav\n",
    "ffconcat after blanks": lambda kept: "\n\n  ffconcat version 1.0\nfile secret.wav\n",
    "ffconcat, path": lambda kept: f"ffconcat version 1.0\nfile '{kept.file}'\n",
    "ffconcat of a list": lambda kept: "ffconcat version 1.0\nfile evil.m3u8\n",
    "ffconcat, http": lambda kept: f"ffconcat version 1.0\nfile {kept.url}\n",
    "hls": lambda kept: hls("#EXTINF:1,", "secret.wav", "#EXT-X-ENDLIST"),
    "hls, path": lambda kept: hls("#EXTINF:1,", str(kept.file), "#EXT-X-ENDLIST"),
    "hls, file": lambda kept: hls("#EXTINF:1,", kept.file.as_uri(), "#EXT-X-ENDLIST"),
    "hls, http": lambda kept: hls("#EXTINF:1,", kept.url, "#EXT-X-ENDLIST"),
    "hls, BOM": lambda kept: "\ufeff" + hls("#EXTINF:1,", kept.url),
    "hls, key": lambda kept: hls(
        f'#EXT-X-KEY:METHOD=AES-128,URI="{kept.url}"', "#EXTINF:1,", "secret.wav"
    ),
    "hls, map": lambda kept: hls('#EXT-X-MAP:URI="secret.wav"', "#EXTINF:1,", "secret.wav"),
    "hls, master": lambda kept: hls("#EXT-X-STREAM-INF:BANDWIDTH=1", "evil.m3u8"),
    "dash": lambda kept: mpd("secret.wav"),
    "dash, http": lambda kept: mpd(kept.url),
    "sdp": lambda kept: (
        "v=0\r\no=- 0 0 IN IP4 127.0.0.1\r\ns=x\r\nc=IN IP4 127.0.0.1\r\nt=0 0\r\n"
        "m=audio 9 RTP/AVP 0\r\n"
    ),
    "pls": lambda kept: f"[playlist]\nFile1={kept.url}\nNumberOfEntries=1\n",
    "asx": lambda kept: f'<asx version="3.0"><entry><ref href="{kept.url}"/></entry></asx>',
    "asf reference": lambda kept: f"[Reference]\nRef1={kept.url}\n",
    "xspf": lambda kept: (
        '<?xml version="1.0"?><playlist xmlns="http://xspf.org/ns/0/">'
        f"<trackList><track><location>{kept.url}</location></track></trackList></playlist>"
    ),
    "smil": lambda kept: f'<smil><body><audio src="{kept.url}"/></body></smil>',
    "wpl": lambda kept: f'<?wpl version="1.0"?><smil><media src="{kept.file}"/></smil>',
    "cue": lambda kept: 'PERFORMER "x"\nFILE "secret.wav" WAVE\n  TRACK 01 AUDIO\n',
    "rtsp text": lambda kept: f"RTSPtext\n{kept.url}\n",
    "imf": lambda kept: (
        '<?xml version="1.0"?><CompositionPlaylist xmlns="x"><Id>a</Id></CompositionPlaylist>'
    ),
}


@pytest.mark.parametrize("data", PLAYLISTS.values(), ids=PLAYLISTS)
def test_a_playlist_is_refused_and_nothing_it_names_is_touched(kept, monkeypatch, data):
    text = data(kept)
    for number, suffix in enumerate((".mp3", ".wav", ".m3u8", ".mpd", "")):
        path = kept.folder / f"talk{number}{suffix}"
        path.write_text(text, "utf-8", newline="")
        with path.open("rb") as opened, path.open("rb") as piped:
            monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(piped))
            for source in (path, path.read_bytes(), opened, "-"):
                for ask in (decode, channel_count):
                    with pytest.raises(AudioError) as caught:
                        ask(source)
                    assert "is a playlist, not a recording; give the" in str(caught.value)
                    assert "\n" not in str(caught.value)
            if suffix in demuxer.PLAYLIST_SUFFIXES:
                with pytest.raises(AudioError, match=rf"ffmpeg -i {path} -c copy joined.mkv$"):
                    decode(path)
    assert not kept.touched()


HEADS = """
import io
from oscine.audio.demuxer import refuse_playlist
from oscine.errors import AudioError
for head in GIVEN:
    try:
        refuse_playlist("talk.wav", io.BytesIO(head.encode()))
        said = ""
    except AudioError as error:
        said = str(error)
    print(json.dumps({"said": said}), flush=True)
"""


def test_a_head_of_many_comments_is_judged_at_once() -> None:
    """A pattern that may part them in many ways takes for ever to say that they are none."""
    comments = ["<!---->", "<!-- a -->\n", "<!-->-->", "<!--", "<?xml?>", "<?xml a?>\n"]
    words = ["REM\n", "REM x\n \n", "TITLE FILE\n", "FILE WAVE ", " ", "\n", "<a:", "[", "#"]
    repeated = [each * (4000 // len(each)) for each in comments + words]
    for line in run_bounded(HEADS, [*repeated, *(each + "x" for each in repeated)], seconds=60):
        assert line["said"] == ""
    lists = ["<MPD>", "<smil>", "<x:playlist>", "<!-- <MPD> -->\n<asx>"]
    fronts = [*(each * 300 for each in comments[:2]), "<?xml a?>\n" + "<!-- <a> -->\n" * 200]
    heads = [front + each for front in fronts for each in lists]
    for line in run_bounded(HEADS, heads, seconds=60):
        assert line["said"].startswith("talk.wav: is a playlist")


@pytest.mark.parametrize("suffix", sorted(demuxer.PLAYLIST_SUFFIXES))
def test_a_list_without_a_head_is_known_by_its_name(kept, suffix):
    path = kept.folder / f"list{suffix.upper()}"
    path.write_text("secret.wav\n")
    with pytest.raises(AudioError, match=r"is a playlist, not a recording; give the recordings"):
        decode(path)
    path.write_bytes(wav(TONE))  # a name alone makes no playlist of a recording
    assert len(decode(path).samples) == RATE
    assert not kept.touched()


def boxes(data: bytes, change: Callable[[bytes, bytes], bytes]) -> bytes:
    """An mp4 with the contents of its boxes changed, sizes included; moov comes last."""
    out = b""
    while data:
        size, kind = struct.unpack(">I4s", data[:8])
        inside, data = data[8:size], data[size:]
        if kind in (b"moov", b"trak", b"mdia", b"minf", b"dinf"):
            inside = boxes(inside, change)
        inside = change(kind, inside)
        out += struct.pack(">I4s", 8 + len(inside), kind) + inside
    return out


def referring(form: bytes, kept: Kept) -> bytes:
    """An mp4 whose samples lie, as it says, in another file."""
    place = {b"url ": kept.file.as_uri(), b"http": kept.url}.get(form, str(kept.file)).encode()
    if form == b"alis":
        name = kept.file.name.encode()
        body = bytes(6) + b"\0\0\0\2" + bytes(40) + bytes([len(name)]) + name.ljust(63, b"\0")
        body += bytes(36) + b"\0\2" + struct.pack(">H", len(place)) + place + b"\xff\xff\0\0"
    else:
        body = place + b"\0"
    kind = b"alis" if form == b"alis" else b"url "
    entry = struct.pack(">I4sI", 12 + len(body), kind, 0) + body

    def change(box: bytes, inside: bytes) -> bytes:
        return struct.pack(">II", 0, 1) + entry if box == b"dref" else inside

    return boxes(encoded("mov", "pcm_s16le"), change)


def redirecting(kept: Kept) -> bytes:
    """QuickTime's movie that is an address alone."""
    url = kept.url.encode() + b"\0"
    data = struct.pack(">I4sII", 24 + len(url), b"rdrf", 0, 0x75726C20)
    data += struct.pack(">I", len(url)) + url
    for kind in (b"rmda", b"rmra", b"moov"):
        data = struct.pack(">I4s", 8 + len(data), kind) + data
    return data


def linked(kept: Kept) -> bytes:
    """A Matroska segment that says which file comes next: NextFilename in its Title's place."""
    name = kept.file.name
    data = encoded("matroska", "pcm_s16le", title=name)
    title = b"\x7b\xa9" + bytes([0x80 | len(name)]) + name.encode()
    assert data.count(title) == 1
    return data.replace(title, b"\x3e\x83\xbb" + bytes([0x80 | len(name) - 1]) + title[3:-1])


def tagged(kept: Kept) -> bytes:
    """A wave file with the names of others in all the chunks that may hold a name."""
    names = b"".join(
        kind + struct.pack("<I", 64) + str(kept.file).encode()[:63].ljust(64, b"\0")
        for kind in (b"INAM", b"IART", b"ISRF", b"link", b"file")
    )
    more = b"LIST" + struct.pack("<I", 4 + len(names)) + b"INFO" + names
    return wav(np.zeros(RATE, "<i2")) + more


REFERENCES: dict[str, Callable[[Kept], bytes]] = {
    "mov, url of a file": lambda kept: referring(b"url ", kept),
    "mov, http": lambda kept: referring(b"http", kept),
    "mov, path": lambda kept: referring(b"path", kept),
    "mov, alias": lambda kept: referring(b"alis", kept),
    "mov, redirect": redirecting,
    "matroska, linked": linked,
    "wav, tags": tagged,
    "vobsub": lambda kept: (
        b"# VobSub index file, v7 (do not modify this line!)\nid: en, index: 0\n"
        b"timestamp: 00:00:00:000, filepos: 000000000\n"
    ),
}


@pytest.mark.parametrize("data", REFERENCES.values(), ids=REFERENCES)
def test_what_a_container_refers_to_is_not_touched(kept, data):
    (kept.folder / "talk.sub").write_bytes(wav(TONE))
    for suffix in (".mov", ".idx", ".mkv", ".wav"):
        path = kept.folder / f"talk{suffix}"
        path.write_bytes(data(kept))
        for source in (path, path.read_bytes()):
            try:
                samples = decode(source).samples
            except AudioError as error:
                assert "\n" not in str(error)
            else:
                heard = np.abs(np.fft.rfft(samples, 2 * RATE))
                assert not samples.any() or heard.argmax() != 880  # not the tone of the secret
    assert not kept.touched()


def test_the_watch_sees_what_is_touched(kept):
    kept.file.read_bytes()
    socket.create_connection(kept.server.getsockname()).close()
    assert kept.touched() == ["a file was opened", "a connection was made"]


def test_every_format_on_the_list_is_known_to_ffmpeg_or_newer_than_this_one():
    newer_or_optional = {"lc3", "g728", "iamf"}
    known = {name for names in av.formats_available for name in names.split(",")}
    assert set(demuxer.FORMATS) - known <= newer_or_optional
    opening = {"concat", "hls", "dash", "imf", "sdp", "rtsp", "rtp", "sap", "vobsub", "image2"}
    opening |= {"image2pipe", "mlv", "avs", "lavfi", "webm_dash_manifest", "ffmetadata", "mpjpeg"}
    assert not opening & set(demuxer.FORMATS)
