"""Of several audio tracks the one asked for is taken, else the default one that sounds."""

from __future__ import annotations

import io
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import av
import numpy as np
import pytest

from oscine.audio import tracks
from oscine.audio.io import SourceLike, channel_count, decode, open_source
from oscine.errors import AudioError, UsageError

FLAGS = pytest.mark.skipif(
    not hasattr(av.stream, "Disposition"), reason="this PyAV cannot write flags of tracks"
)
SECONDS = 1
#: (language, channels, default, hertz of its tone)
Track = tuple[str, int, bool, float]


def film(container: str, *listed: Track, video: bool = False) -> bytes:
    """A file with these audio tracks, each a tone of its own; 0 Hz is silence."""
    file = io.BytesIO()
    with av.open(file, "w", format=container) as out:
        if video:
            picture = out.add_stream("mpeg4", rate=10)
            picture.width = picture.height = 32
        streams = []
        for language, channels, default, _ in listed:
            stream = out.add_stream("aac", rate=16_000)
            stream.codec_context.layout = {1: "mono", 2: "stereo"}[channels]
            stream.metadata["language"] = language
            if default:
                stream.disposition = av.stream.Disposition.default
            streams.append(stream)
        if video:
            frame = av.VideoFrame(32, 32, "yuv420p")
            frame.pts = 0
            out.mux(picture.encode(frame))
            out.mux(picture.encode(None))
        for start in range(0, 16_000 * SECONDS, 1024):
            times = np.arange(start, start + 1024) / 16_000
            for stream, (_, channels, _, hertz) in zip(streams, listed, strict=True):
                tone = (0.3 * np.sin(2 * np.pi * hertz * times)).astype(np.float32)
                frame = av.AudioFrame.from_ndarray(
                    np.stack([tone] * channels), format="fltp", layout=stream.layout.name
                )
                frame.sample_rate, frame.pts = 16_000, start
                out.mux(stream.encode(frame))
        for stream in streams:
            out.mux(stream.encode(None))
    return file.getvalue()


def pitch(recording: SourceLike) -> float:
    """Hertz of the loudest tone."""
    samples = decode(recording).samples[4_000:12_000]
    spectrum = np.abs(np.fft.rfft(samples * np.hanning(len(samples))))
    return float(np.argmax(spectrum)) * 16_000 / len(samples)


@FLAGS
@pytest.mark.parametrize("container", ["matroska", "mp4", "mov"])
@pytest.mark.parametrize(
    ("listed", "taken"),
    [
        ([("fra", 1, False, 400.0), ("eng", 1, True, 1000.0)], 2),
        ([("fra", 1, True, 400.0), ("eng", 1, False, 1000.0)], 1),
        ([("fra", 1, True, 400.0), ("eng", 1, True, 1000.0)], 1),
        ([("fra", 2, False, 400.0), ("eng", 1, True, 1000.0), ("deu", 1, False, 2000.0)], 2),
        ([("fra", 1, True, 400.0), ("eng", 2, True, 1000.0), ("deu", 2, True, 2000.0)], 2),
        ([("fra", 1, True, 0.0), ("eng", 1, False, 1000.0), ("deu", 2, False, 2000.0)], 2),
        ([("fra", 2, True, 0.0), ("eng", 1, False, 0.0), ("deu", 1, False, 2000.0)], 3),
        ([("fra", 1, True, 0.0), ("eng", 1, False, 1000.0), ("deu", 1, True, 2000.0)], 3),
    ],
)
@pytest.mark.parametrize("video", [False, True])
def test_the_default_track_is_taken_and_of_several_the_one_with_the_most_channels(
    caplog: pytest.LogCaptureFixture, container: str, listed: list[Track], taken: int, video: bool
) -> None:
    recording = film(container, *listed, video=video)
    assert pitch(recording) == pytest.approx(listed[taken - 1][3], abs=5)
    assert len(caplog.messages) == 1
    assert f"has {len(listed)} audio tracks (1 fra, 2 eng" in caplog.text
    silent = ", the first that is not silent" if not listed[0][3] else ""
    assert f"using track {taken}{silent};" in caplog.text
    assert channel_count(recording) == listed[taken - 1][1]


def test_one_track_is_no_news(caplog: pytest.LogCaptureFixture) -> None:
    assert pitch(film("matroska", ("fra", 1, False, 400.0), video=True)) == pytest.approx(
        400, abs=5
    )
    assert caplog.messages == []


@FLAGS
@pytest.mark.parametrize("container", ["matroska", "mpegts"])
def test_without_a_default_track_the_first_that_sounds_is_taken(container: str) -> None:
    listed = [("fra", 2, False, 0.0), ("eng", 1, False, 1000.0), ("deu", 2, False, 2000.0)]
    assert pitch(film(container, *listed)) == pytest.approx(1000, abs=5)
    assert pitch(film(container, *listed[1:])) == pytest.approx(1000, abs=5)


@FLAGS
def test_a_silent_track_is_passed_over(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """As OBS writes them: the first track silent, and the default."""
    path = tmp_path / "obs.mkv"
    path.write_bytes(film("matroska", ("und", 2, True, 0.0), ("eng", 1, False, 400.0), video=True))
    source = open_source(path)
    assert source.channels() == 1
    for _ in range(2):  # it may be read again
        samples = np.concatenate(list(source.blocks()))
        assert len(samples) == pytest.approx(16_000, abs=1100) and np.abs(samples).max() > 0.2
    assert caplog.messages == [
        f"{path}: has 2 audio tracks (1, 2 eng); using track 2, the first that is not silent; "
        "to choose another: audio_track=N"
    ]


@FLAGS
def test_of_silent_tracks_the_default_one_is_taken(caplog: pytest.LogCaptureFixture) -> None:
    silent = film("matroska", ("fra", 1, False, 0.0), ("eng", 2, True, 0.0))
    assert np.abs(decode(silent).samples).max() < 1e-3
    assert "using track 2; to choose" in caplog.text


@FLAGS
def test_a_silent_track_is_judged_by_its_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracks, "MAX_SILENCE_S", 0.2)
    recording = film("matroska", ("fra", 1, True, 0.0), ("eng", 1, False, 400.0))
    seen = []

    def count(packets: Any) -> Any:
        for packet in packets:
            seen.append(packet)
            yield packet

    with av.open(io.BytesIO(recording)) as container:
        whole = SimpleNamespace(demux=lambda listed: count(container.demux(listed)))
        number = tracks.number_of(
            container, tracks.first_with_sound(whole, list(container.streams.audio))
        )
    assert number == 2 and len(seen) < 12  # of 34


@FLAGS
@pytest.mark.parametrize("container", ["matroska", "mp4"])
@pytest.mark.parametrize(
    ("wanted", "taken"), [(1, 0), (2, 1), (3, 2), ("fra", 0), ("ENG", 1), ("deu", 2)]
)
def test_a_track_is_asked_for(
    caplog: pytest.LogCaptureFixture, container: str, wanted: int | str, taken: int
) -> None:
    listed = [("fra", 1, False, 400.0), ("eng", 1, True, 1000.0), ("deu", 2, False, 2000.0)]
    source = open_source(film(container, *listed, video=True)).with_track(wanted)
    assert source.channels() == listed[taken][1]
    assert pitch(source.with_channel(1)) == pytest.approx(listed[taken][3], abs=5)
    assert f"has 3 audio tracks (1 fra, 2 eng, 3 deu); using track {taken + 1};" in caplog.text


@pytest.mark.parametrize(
    ("wanted", "taken"), [("German", 1), ("de", 1), ("DEUTSCH", 1), ("gle", 2), ("GLE", 2)]
)
def test_a_language_has_many_names(
    monkeypatch: pytest.MonkeyPatch, wanted: str, taken: int
) -> None:
    """A track's is known by them too; of a language that Whisper does not know the name alone."""
    codes = {"german": "de", "deu": "de", "de": "de", "deutsch": "de", "fra": "fr"}

    def code(name: str) -> str | None:
        if name.lower() not in codes:
            raise UsageError(name)
        return codes[name.lower()]

    monkeypatch.setattr(tracks, "language_code", code)
    listed = [SimpleNamespace(index=n, codec_context=None, metadata={"language": tag})
              for n, tag in enumerate(["fra", "deu", "gle"])]  # fmt: skip
    streams = SimpleNamespace(audio=listed, best=lambda kind: listed[0])
    assert tracks.candidates(SimpleNamespace(streams=streams), wanted) == [listed[taken]]


@FLAGS
def test_of_tracks_of_one_language_the_one_that_sounds_is_taken() -> None:
    listed = [("fra", 1, True, 400.0), ("eng", 1, True, 0.0), ("eng", 1, False, 1000.0)]
    source = open_source(film("matroska", *listed))
    assert pitch(source.with_track("eng")) == pytest.approx(1000, abs=5)
    assert np.abs(decode(source.with_track(2)).samples).max() < 1e-3  # it is asked for


@pytest.mark.parametrize(
    ("wanted", "problem"),
    [
        (3, "no audio track 3 but these: 1 fra, 2 eng; choose another, or leave out audio_track"),
        ("ja", "no audio track in 'ja' but these: 1 fra, 2 eng"),
    ],
)
def test_a_track_that_is_not_there_is_named(wanted: int | str, problem: str) -> None:
    recording = film("matroska", ("fra", 1, False, 400.0), ("eng", 1, False, 1000.0))
    source = open_source(recording).with_track(wanted)
    for ask in (source.channels, lambda: list(source.blocks())):
        with pytest.raises(AudioError, match=problem):
            ask()


def test_a_single_track_without_a_language_is_in_any() -> None:
    recording = film("matroska", ("und", 1, False, 400.0))
    assert pitch(open_source(recording).with_track("fra")) == pytest.approx(400, abs=5)
    with pytest.raises(AudioError, match="no audio track in 'fra' but these: 1 eng"):
        decode(open_source(film("matroska", ("eng", 1, False, 400.0))).with_track("fra"))


def test_samples_have_one_track() -> None:
    source = open_source(np.zeros(1600, np.float32))
    assert source.with_track(1).with_track(None).channels() == 1
    with pytest.raises(AudioError, match="leave out audio_track"):
        source.with_track(2)


@pytest.mark.parametrize("best", [0, 1, None])
def test_a_pyav_without_flags_is_asked_for_the_choice_of_ffmpeg(best: int | None) -> None:
    """And what has no decoder is not taken."""
    codec = SimpleNamespace(layout=SimpleNamespace(nb_channels=1))
    listed = [SimpleNamespace(index=n, codec_context=codec, metadata={}) for n in range(2)]
    undecodable = SimpleNamespace(index=2, codec_context=None, metadata={"title": "x"})
    found = None if best is None else listed[best]
    streams = SimpleNamespace(audio=[undecodable, *listed], best=lambda kind: found)
    container = SimpleNamespace(streams=streams)
    assert tracks.candidates(container, None)[0] is listed[best or 0]
    assert "3 audio tracks (1 x, 2, 3)" in str(
        tracks.describe_choice(container, tracks.TrackChoice(1))
    )


@pytest.mark.parametrize("count", [8, 9, 900])
def test_a_line_names_some_of_many_tracks(count: int) -> None:
    codec = SimpleNamespace(layout=SimpleNamespace(nb_channels=1))
    listed = [
        SimpleNamespace(
            index=n, codec_context=codec, metadata={"language": "e" * 9, "title": "t" * n}
        )
        for n in range(count)
    ]
    streams = SimpleNamespace(audio=listed, best=lambda kind: listed[-1])
    line = str(tracks.describe_choice(SimpleNamespace(streams=streams), tracks.TrackChoice(count)))
    assert line.startswith(f"has {count} audio tracks (1 eeeeeeeee, 2 eeeeeeeee t, 3 ")
    assert f"8 eeeeeeeee ttttttt{f' and {count - 8} more' if count > 8 else ''})" in line
    assert f"using track {count}" in line and len(line) < 600
    assert len(tracks._describe_track(listed[-1])) <= 50
