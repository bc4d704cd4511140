"""Requests to a server: forms and JSON with any values in any fields, and damaged ones.

The same random numbers make the same request.
"""

from __future__ import annotations

import io
import json
from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np

from fuzzing.mutations import NUMBERS, VALUES, damaged, restated
from oscine.audio.write import save
from oscine.server import schema
from oscine.types import Audio

BOUNDARY = "boundary"
FORM = f"multipart/form-data; boundary={BOUNDARY}"
TRANSCRIPTIONS, SPEECH = "/v1/audio/transcriptions", "/v1/audio/speech"
VOICES = "/v1/audio/voices"
#: Names of fields beside those of the description; None: a name is repeated.
NAMES = (
    *("", "a[", "a[]", "model[]", "file[x]", "stream[a]", "temperature[]", "temperature[0]", "[]"),
    *("chunking_strategy[type]", "chunking_strategy[threshold]", "nested[a][]", "self", "cancel"),
    *("x" * 5000, "\u00fc", "name\0", "include[]", "known_speaker_names[]", "source", "kind"),
)
WORDS = (
    *("auto", "true", "false", "none", "null", "en", "de", "English", "translate", "word"),
    *("srt", "vtt", "text", "json", "verbose_json", "server_vad", "0,1", "[0, 0.5]", '{"type": 1}'),
    *('{"type": "server_vad", "threshold": 2}', "1e400", "nan", "-inf", "0x10", "1_000", "..", "/"),
    *("a\r\nb", "\u202e", "1" * 5000, "0.5", "16000", "3", "2", "1", "ryan", "alloy", "default"),
)
#: Lines of a part's head, whose contents follow.
HEADS = (
    b"Content-Disposition: form-data",
    b'Content-Disposition: form-data; name="model"; name="file"',
    b'Content-Disposition: form-data; name="file"; filename="../../etc/passwd"',
    b'Content-Disposition: form-data; name="file"; filename="' + b"a" * 9000 + b'"',
    b"Content-Disposition: form-data; name*=utf-8''file; filename*=utf-8''%ff%00",
    b"Content-Disposition: form-data; name=model",
    b'Content-Disposition: attachment; name="file"; filename=""',
    b'Content-Disposition: form-data; name="model"\r\nContent-Transfer-Encoding: base64',
    b'Content-Disposition: form-data; name="model"\r\nContent-Type: text/plain; charset=utf-16',
    b'Content-Disposition: form-data; name="file"\r\nContent-Type: multipart/mixed; boundary=b',
    b'Content-Disposition: form-data; name="\xff\xfe"; filename="\xff"',
    b": no name",
    b"X" * 20_000 + b": 1",
    b"",
)
TYPES = (
    *("multipart/form-data", "multipart/form-data; boundary=", "multipart/form-data; boundary=b"),
    *("multipart/form-data; boundary=" + "b" * 300, "multipart/mixed; boundary=boundary"),
    *('multipart/form-data; boundary="boundary"; charset=utf-7', "text/plain", "", ";;;=="),
    *("application/json; charset=utf-16", "multipart/form-data; boundary=\xff"),
)


@dataclass(frozen=True, slots=True)
class Request:
    """A request; where `framed` is false, lengths and the head of HTTP may be wrong too."""

    path: str
    type: str
    body: bytes
    framed: bool = True

    def raw(self) -> bytes:
        """Its bytes, as a client sends them."""
        head = (
            f"POST {self.path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n"
            f"Content-Type: {self.type}\r\nContent-Length: {len(self.body)}\r\n\r\n"
        )
        return head.encode("latin-1", "replace") + self.body


def sound() -> bytes:
    """A file with a second of a tone."""
    file, times = io.BytesIO(), np.arange(16_000, dtype=np.float32)
    save(Audio((0.1 * np.sin(0.05 * times)).astype(np.float32), 16_000), file, "wav")
    return file.getvalue()


class Maker:
    """Makes requests for models of the names."""

    def __init__(self, transcriber: str, speaker: str) -> None:
        self.transcriber, self.speaker = transcriber, speaker
        self._sound = sound()
        self._form = _fields(schema.transcription_body())
        self._json = _fields(schema.speech_body())
        self._voice = _fields(schema.voice_body())

    def make(self, random: Random) -> Request:
        """A request."""
        kinds = (
            self.form,
            self.form,
            self.json,
            self.voice,
            self.parts,
            self.damaged,
            self.framing,
        )
        return random.choice(kinds)(random)

    def form(self, random: Random) -> Request:
        """A form for a recording that is there, with any values of some fields."""
        path = random.choice((TRANSCRIPTIONS, TRANSCRIPTIONS, "/v1/audio/translations"))
        fields = [(b"model", self.transcriber.encode()), *self._values(self._form, random)]
        if random.random() < 0.05:
            del fields[0]
        return Request(path, FORM, form(fields, self._recording(random)))

    def voice(self, random: Random) -> Request:
        """A form for a voice."""
        fields = [(b"name", b"a"), *self._values(self._voice, random)]
        files = {"audio_sample": self._sound} if random.random() < 0.7 else {}
        return Request(VOICES, FORM, form(fields, files))

    def json(self, random: Random) -> Request:
        """The JSON of speech or of a voice, with any values of some fields."""
        value: dict[str, Any] = {"model": self.speaker, "input": "Hi.", "max_frames": 2}
        if random.random() < 0.1:
            value = {"name": "a", "type": "prompt", "prompt": "A voice."}
        names = sorted(self._json)
        for _ in range(random.choice((0, 1, 1, 2, 4))):
            value[random.choice(names)] = random.choice((*NUMBERS, *VALUES, *WORDS))
        if random.random() < 0.3:
            value = restated(value, random)
        body = json.dumps(value).encode("utf-8", "surrogatepass")
        if random.random() < 0.1:
            body = damaged(body, body, random)
        return Request(VOICES if "prompt" in str(value) else SPEECH, "application/json", body)

    def parts(self, random: Random) -> Request:
        """A form whose parts have unusual heads, or another type."""
        head = random.choice(HEADS)
        part = b"--boundary\r\n" + head + b"\r\n\r\n" + random.choice((b"1", self._sound)) + b"\r\n"
        whole = self.form(random)
        body = part * random.choice((1, 1, 5, 300)) + whole.body
        kind = random.choice(TYPES) if random.random() < 0.4 else FORM
        return Request(whole.path, kind, body)

    def damaged(self, random: Random) -> Request:
        """A form that is damaged as files are."""
        whole = self.form(random)
        return Request(whole.path, FORM, damaged(whole.body, whole.body[:2000], random))

    def framing(self, random: Random) -> Request:
        """Bytes that need not be a request of HTTP."""
        whole = random.choice((self.form, self.json))(random).raw()
        kept = whole if random.random() < 0.2 else whole[:1200]
        return Request("", "", damaged(kept, whole[:300], random), framed=False)

    def _recording(self, random: Random) -> dict[str, bytes]:
        if random.random() < 0.8:
            return {"file": self._sound}
        content = damaged(self._sound, self._sound, random) if random.random() < 0.7 else b""
        return {random.choice(("file", "file", "image")): content}

    def _values(self, fields: dict[str, Any], random: Random) -> list[tuple[bytes, bytes]]:
        names, found = sorted(fields), []
        for _ in range(random.choice((0, 1, 1, 2, 3, 6))):
            name = random.choice(NAMES) if random.random() < 0.2 else random.choice(names)
            known = fields.get(name, {}).get("enum", ())
            value = random.choice((*known, *known, *NUMBERS, *VALUES[:10], *WORDS))
            if not isinstance(value, str):
                value = json.dumps(value)
            repeated = random.choice((1, 1, 1, 1, 2, 300 if random.random() < 0.1 else 1))
            pair = name.encode("utf-8", "replace"), value.encode("utf-8", "surrogatepass")
            found += [pair] * repeated
        return found


def _fields(body: dict[str, Any]) -> dict[str, Any]:
    (content,) = body["content"].values()
    properties: dict[str, Any] = content["schema"]["properties"]
    return {name: each for name, each in properties.items() if each.get("format") != "binary"}


def form(fields: list[tuple[bytes, bytes]], files: dict[str, bytes]) -> bytes:
    """The body of a form. Nothing in names and values is escaped."""
    parts = [
        b'--boundary\r\nContent-Disposition: form-data; name="%b"\r\n\r\n%b\r\n' % pair
        for pair in fields
    ]
    for name, content in files.items():
        head = f'--boundary\r\nContent-Disposition: form-data; name="{name}"; filename="a"\r\n\r\n'
        parts += [head.encode(), content, b"\r\n"]
    return b"".join((*parts, b"--boundary--\r\n"))
