"""What Jupyter shows of results, and that no text of them can be markup; the example notebook."""

from __future__ import annotations

import ast
import base64
import io
import json
import pickle
import re
import shutil
import sys
import wave
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import example as case
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import oscine
from oscine import notebook
from oscine.errors import CheckpointError
from oscine.models.speech import Speech
from oscine.types import Audio, Segment, Transcript, Word

from .hub_server import FILES, NEEDED, REPOSITORY, Server

ROOT = Path(__file__).resolve().parents[1]
GOLDEN = ROOT / "tests" / "goldens" / "whisper_multi"
TAGS = {"div", "table", "tr", "td", "audio", "i", "svg", "polygon", "br", "progress"}
ATTRIBUTES = {
    *("style", "dir", "controls", "preload", "src", "xmlns", "width", "height", "viewbox"),
    *("preserveaspectratio", "fill", "points", "value"),
}
HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "' onmouseover='alert(1)",
    "</td></table><style>*{display:none}</style>",
    "<!-- ", "]]>", "&lt;b&gt;", "javascript:alert(1)", "\x00<b\x1b[2J>", "\ud800<", "\u202e<b>",
)  # fmt: skip


class Page(HTMLParser):
    """The tags, attributes and text of a page, as a browser takes it."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text: list[str] = []
        self.odd: list[str] = []
        self.open: list[str] = []
        page.encode("utf-8")  # as a notebook's file and its messages are
        self.feed(page)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag != "br":
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)

    def handle_comment(self, data: str) -> None:
        self.odd.append(data)

    handle_decl = handle_pi = unknown_decl = handle_comment


def check(page: str) -> Page:
    """A page of ours: known tags and attributes, nothing that runs, nothing from elsewhere."""
    read = Page(page)
    assert set(read.tags) <= TAGS and not read.odd
    assert {name for name, _ in read.attributes} <= ATTRIBUTES
    sources = [value or "" for name, value in read.attributes if name == "src"]
    assert all(re.fullmatch(r"data:audio/wav;base64,[A-Za-z0-9+/=]+", each) for each in sources)
    assert not re.search(r"[\x00-\x08\x1b\u202e]", page)
    return read


def transcript(text: str, name: str = "tiny.en") -> Transcript:
    segment = Segment(0, 0, 0.0, 61.25, text, (1,), 0.0, -0.1, 1.0, 0.0, (Word(0, 1, text, 1.0),))
    return Transcript(text, name, (segment,), 61.25, name, name)


@given(st.text() | st.sampled_from(HOSTILE), st.text() | st.sampled_from(HOSTILE))
@case(HOSTILE[0], HOSTILE[1])
def test_no_text_of_a_result_is_markup(text: str, name: str) -> None:
    harmless = check(transcript("a", "b")._repr_html_())
    read = check(transcript(text, name)._repr_html_())
    assert read.tags == harmless.tags and read.attributes == harmless.attributes


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_is_shown_as_it_is(text: str) -> None:
    read = check(transcript(text, text)._repr_html_())
    visible = re.sub(r"[\x00\x1b\u202e]", "", text).replace("\ud800", "\\ud800").strip()
    assert visible in "".join(read.text) and "00:00.0 – 01:01.2" in "".join(read.text)


def test_hostile_names_of_files_are_no_markup(tmp_path: Path, example: Path) -> None:
    path = tmp_path / "<img src=x onerror=alert(1)>.wav"
    shutil.copy(example, path)
    model = oscine.load(GOLDEN, "cpu")
    shown = model.transcribe(path, temperature=0, sample_len=4)._repr_html_()
    check(shown)
    assert "onerror" not in shown


def sound_of(page: str) -> tuple[np.ndarray[Any, Any], int]:
    (data,) = re.findall(r'src="data:audio/wav;base64,([^"]+)"', page)
    with wave.open(io.BytesIO(base64.b64decode(data))) as file:
        assert (file.getnchannels(), file.getsampwidth()) == (1, 2)
        return np.frombuffer(file.readframes(file.getnframes()), "<i2"), file.getframerate()


def test_a_transcript_has_a_player_where_its_recording_is_a_file(
    tmp_path: Path, example: Path
) -> None:
    path = tmp_path / "talk.wav"
    shutil.copy(example, path)
    model = oscine.load(GOLDEN, "cpu")
    options: Any = {"temperature": 0, "sample_len": 4}
    of_file = model.transcribe(path, **options)
    samples, rate = sound_of(of_file._repr_html_())
    assert rate == 16000 and len(samples) / rate == pytest.approx(8.35, abs=0.01)
    again = pickle.loads(pickle.dumps(of_file))
    assert again == of_file and "<audio" in again._repr_html_()
    assert "read_audio" not in of_file.to_dict() and "read_audio" not in repr(of_file)
    path.unlink()
    assert "<audio" not in of_file._repr_html_()  # gone: the text stays
    assert "<audio" not in model.transcribe(np.zeros(1600), **options)._repr_html_()
    assert "<audio" not in model.transcribe(example.read_bytes(), **options)._repr_html_()


def test_long_recordings_have_no_player(monkeypatch: pytest.MonkeyPatch, example: Path) -> None:
    monkeypatch.setattr("oscine.models.transcription.MAX_PLAYER_S", 5.0)
    monkeypatch.setattr(notebook, "MAX_PLAYER_S", 5.0)
    model = oscine.load(GOLDEN, "cpu")
    check(shown := model.transcribe(example, temperature=0, sample_len=4)._repr_html_())
    assert "<audio" not in shown
    check(shown := Audio(np.zeros(16000 * 6, np.float32), 16000)._repr_html_())
    assert "no player" in shown and "<svg" in shown


@given(
    arrays(
        np.float32,
        st.integers(0, 2000),
        elements=st.floats(width=32, allow_nan=True, allow_infinity=True),
    )
)
def test_any_samples_have_a_waveform_within_its_frame(samples: Any) -> None:
    page = Audio(samples, 24000)._repr_html_()
    check(page)
    (svg,) = re.findall("<svg.*</svg>", page)
    points = ElementTree.fromstring(svg)[0].attrib["points"].split()
    heights = [float(point.split(",")[1]) for point in points]
    assert len(points) <= 2 * notebook.COLUMNS
    assert all(0 <= height <= notebook.HEIGHT + 0.5 for height in heights)
    assert bool(points) == bool(len(samples)) == ("<audio" in page)


def test_a_player_holds_the_samples_and_speech_has_one_too() -> None:
    samples = np.sin(np.arange(2400) / 10).astype(np.float32)
    for audio in (Audio(samples, 24000), Speech(samples, 24000)):
        found, rate = sound_of(audio._repr_html_())
        assert rate == 24000
        np.testing.assert_allclose(found / 32767, samples, atol=1e-4)


def test_a_bar_is_a_line_on_stderr(capsys: Any) -> None:
    model = oscine.load(GOLDEN, "cpu")
    model.transcribe(np.zeros(16000 * 3), progress=True, vad_filter=False, temperature=0)
    told = capsys.readouterr()
    assert told.out == "" and told.err.endswith("100%  00:03.0 of 00:03.0\n")
    assert told.err.startswith("\r")
    notebook.ProgressBar()(0.0, 0.0)
    assert capsys.readouterr().err == "\r100%  00:00.0 of 00:00.0\n"


def test_a_model_that_is_fetched_has_a_bar_for_each_file(server: Server, capsys: Any) -> None:
    server.offer_hub(REPOSITORY, FILES)
    with pytest.raises(CheckpointError):  # its weights are none
        oscine.load("tiny.en", "cpu", progress=True)
    told = capsys.readouterr().err
    for name in NEEDED:
        assert re.search(rf"\r{name} +100%  [\d.]+ MB of [\d.]+ MB\n", told), told
    assert "\x1b" not in told


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """IPython as a notebook's kernel has it, as far as it is used: what it was told to show."""
    shown: list[str] = []

    def display(page: str, display_id: bool) -> Any:
        assert display_id
        shown.append(page)
        return SimpleNamespace(update=shown.append)

    ipython, of_display = ModuleType("IPython"), ModuleType("IPython.display")
    ipython.get_ipython = lambda: SimpleNamespace(kernel=object())  # type: ignore[attr-defined]
    of_display.HTML, of_display.display = str, display  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", of_display)
    yield shown


def test_a_bar_in_a_notebook_is_one_that_moves(kernel: list[str], capsys: Any) -> None:
    bar = notebook.ProgressBar()
    for done in (0.0, 2.0, 2.0, 4.0):
        bar(done, 4.0)
    assert [dict(check(page).attributes)["value"] for page in kernel] == ["0.000", "0.500", "1.000"]
    assert capsys.readouterr() == ("", "")


def test_a_shell_without_a_kernel_has_a_line(kernel: Any, capsys: Any) -> None:
    sys.modules["IPython"].get_ipython = lambda: None  # type: ignore[attr-defined]
    notebook.ProgressBar()(1.0, 1.0)
    assert kernel == [] and "100%" in capsys.readouterr().err


NOTEBOOK = json.loads((ROOT / "examples" / "notebook.ipynb").read_text("utf-8"))


def run_cell(source: str, names: dict[str, Any]) -> Any:
    """Run a cell as a kernel does; -> the value of its last line, None where that has none."""
    code = ast.parse(source)
    last = code.body[-1]
    if not isinstance(last, ast.Expr):
        exec(compile(code, "cell", "exec"), names)
        return None
    exec(compile(ast.Module(code.body[:-1], []), "cell", "exec"), names)
    return eval(compile(ast.Expression(last.value), "cell", "eval"), names)


@pytest.mark.weights
def test_the_cells_of_the_example_notebook_run(
    kernel: list[str], monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.chdir(ROOT / "examples")
    monkeypatch.setenv("OSCINE_DEVICE", "cpu")
    names: dict[str, Any] = {}
    shown = {
        cell["id"]: run_cell("".join(cell["source"]), names)
        for cell in NOTEBOOK["cells"]
        if cell["cell_type"] == "code"
    }
    told = capsys.readouterr().out
    spoken = (ROOT / "examples" / "spoken.txt").read_text("utf-8").strip()
    text = spoken.partition(" It is")[0]
    for name in ("transcribe", "decode"):
        assert "audio" in check(shown[name]._repr_html_()).tags
    assert text in shown["transcribe"]._repr_html_() and shown["compat"].strip() == spoken
    assert f"00:00:00,000 --> 00:00:04,120\n{text}\n" in told and "  recording\n" in told
    assert "100%" in kernel[-1]


def test_the_example_notebook_holds_no_results() -> None:
    assert (NOTEBOOK["nbformat"], NOTEBOOK["nbformat_minor"]) == (4, 5)
    assert len({cell["id"] for cell in NOTEBOOK["cells"]}) == len(NOTEBOOK["cells"])
    for cell in NOTEBOOK["cells"]:
        if cell["cell_type"] == "code":
            assert cell["outputs"] == [] and cell["execution_count"] is None
