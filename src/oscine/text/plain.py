"""Markdown as text that can be spoken.

    plain_text("# News\n\nSee **[the site](https://example.com)**.")  # "News.\n\nSee the site."

The words stay and what only the eye needs goes: markup, emoji, targets of links, HTML tags, front
matter. A row of a table becomes a sentence that names its columns, a list's entries become lines. A
block of code is left out, as it cannot be said. `<break time="500ms"/>` of SSML becomes a pause.
Markdown is read by markdown-it-py, block by block, so that the time grows with the text's length
whatever is in it, and a text that is still being written is spoken as it comes.
"""

from __future__ import annotations

import html
import logging
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING

from oscine.errors import UsageError
from oscine.text.markdown_blocks import blocks
from oscine.text.pauses import MARK, MOST_PAUSE, mark

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

log = logging.getLogger(__name__)

_MOST_NESTING = 20  # of lists and quotes, each level of a list being two
_SOFT = "\0"  # the end of a line within a paragraph; the parser lets no NUL through
_SCRIPT = re.compile(r"<(script|style)\b[^<>]*>.*?(?:</\1\s*>|\Z)", re.IGNORECASE | re.DOTALL)
_TAG = re.compile(r"<[^<>]*>")
_BREAK = re.compile(r"<break\b([^<>]*)>", re.IGNORECASE)
_TIME = re.compile(
    r"\btime\s{0,8}=\s{0,8}[\"']?\s{0,8}\+?(\d{0,8}(?:\.\d{1,8})?)\s{0,8}(ms|s)\b", re.I
)
_STRENGTH = re.compile(r"\bstrength\s{0,8}=\s{0,8}[\"']?([a-z-]{1,16})", re.IGNORECASE)
#: Seconds of SSML's strengths, which leave them open; `medium` is what a bare `<break/>` is.
STRENGTHS = {"none": 0.0, "x-weak": 0.0, "weak": 0.25, "medium": 0.5, "strong": 0.75, "x-strong": 1}
_LINES = re.compile(
    r"</?(?:p|div|br|hr|li|ul|ol|tr|t[dh]|table|h[1-6]|s|dd|dt|summary|blockquote)\b", re.I
)

_WIDE = "\u2e80-\u9fff\uac00-\ud7a3\uf900-\ufaff\uff00-\uffef"
_NO_HOST = "\\s/?#:<>\"'()\\[\\]{}"
_URL = re.compile(
    r"(?<![a-zA-Z0-9_@])(?:(?:https?|ftp)://(?:[^\s/?#@<>\"]{1,200}@)?(?:www\.)?|www\.)"
    rf"(?P<host>[^{_NO_HOST}{_WIDE}]+|[^{_NO_HOST}\u3000-\u303f\uff00-\uffef]+)"
    rf"(?P<rest>[^\s<>\"{_WIDE}]*)",
    re.IGNORECASE,
)
_MARKS = ".,;:!?…'’”»*_"
_EMOJI = (
    "\U0001f000-\U0001faff\U000e0020-\U000e007f\u2600-\u27bf\u2b05-\u2b55\u231a\u231b\u23e9-\u23ff"
    "\u25aa-\u25fe\u2194-\u21aa\u2934\u2935\u3030\u303d\u3297\u3299\ufe0f\u20e3"
)
_EMOJIS = re.compile(rf" ?(?:[{_EMOJI}]\u200d?)+(?P<mark> ?(?=[.,!?;:…]))?")
_SHORTCODE = re.compile(r"(?<![\w:]):[a-z][a-z0-9_+-]{1,40}:(?![\w:])")
_NOTE = re.compile(r"\[\^[^\[\]\s]{1,100}\]:?")
_REFERENCE = re.compile(r"!?\[([^\[\]]{1,1000})\]\[[^\[\]]{0,1000}\]")
_ATTRIBUTES = re.compile(r" ?\{[:#.][^{}\n]{0,200}\}")  # as kramdown and Pandoc write them
_ALERT = re.compile(rf"\A\[!(\w{{1,20}})\][\s{_SOFT}]*")  # as GitHub writes them
_TASK = re.compile(r"\[[ xX]\]\s")
_LEFT_OVER = re.compile(r"([*_~`|])\1+|`")
_ENDS = frozenset(".!?…:;,。！？：；，、｡．‼⁇⁈⁉")
_CLOSERS = "\"'”’»«›)]}」』）】》〉］｝〕〗*_"


def plain_text(text: str) -> str:
    """Markdown as text to be spoken: `oscine speak --plain` does the same.

    Raises UsageError for what is no text.
    """
    if not isinstance(text, str):
        raise UsageError(f"text must be a str, not {type(text).__name__}")
    return "".join(plain_parts([text])).strip()


def plain_parts(parts: Iterable[str]) -> Iterator[str]:
    """The same of a text that comes in parts: each block (a paragraph, say) once it is whole."""
    left_out = 0
    for block in blocks(parts):
        spoken = Spoken(_parser().parse(block))
        left_out += spoken.left_out
        if spoken.text:
            yield f"{spoken.text}\n\n"
    if left_out:
        told = "a block of code is" if left_out == 1 else f"{left_out} blocks of code are"
        log.warning("%s left out of the speech", told)


@cache
def _parser() -> MarkdownIt:
    from markdown_it import MarkdownIt  # costs start-up time

    options = {"maxNesting": _MOST_NESTING}
    return MarkdownIt("commonmark", options).enable(["table", "strikethrough"])


class Spoken:
    """The text of a parsed block; `left_out`: how many blocks of code it had."""

    def __init__(self, tokens: Iterable[Token]) -> None:
        self.text = ""
        self.left_out = 0
        self._number = ""  # of a list's entry, until its first words
        self._close = False  # whether the paragraph is an entry of a list without blank lines
        self._table: list[list[str]] = []  # the cells so far of the table that is read
        for token in tokens:
            self._take(token)

    def _take(self, token: Token) -> None:
        match token.type:
            case "list_item_open":
                self._number = f"{token.info}{token.markup} " if token.info else ""
            case "paragraph_open":
                self._close = token.hidden
            case "table_open":
                self._table = []
            case "tr_open":
                self._table.append([])
            case "table_close":
                self._end_table(*self._table)
            case "fence" | "code_block":
                self.left_out += 1
            case "html_block":
                self._say(_speakable(without_tags(token.content)))
            case "inline":
                self._inline(_speakable(_words(token.children or [])))

    def _inline(self, text: str) -> None:
        if self._table:
            self._table[-1].append(text)
        else:
            self._say(text, "\n" if self._close else "\n\n")

    def _end_table(self, head: list[str], *rows: list[str]) -> None:
        """A sentence a row: its cells, each after its column's name."""
        self._table = []
        for number, row in enumerate(rows):
            named = zip(head, row, strict=False)
            cells = (f"{name}: {cell}" if name else cell for name, cell in named if cell)
            self._say(", ".join(cells), "\n" if number else "\n\n")
        if not rows:
            self._say(", ".join(filter(None, head)))

    def _say(self, text: str, apart: str = "\n\n") -> None:
        if not any(map(str.isalnum, text)):
            return
        self.text += (apart if self.text else "") + ended(self._number + text)
        self._number = ""


def without_tags(markup: str) -> str:
    """The text of HTML: lines where its elements end them, SSML's breaks as pauses."""
    shown = "".join(
        part.partition("-->")[2] if n else part for n, part in enumerate(markup.split("<!--"))
    )
    return html.unescape(_TAG.sub(_said_of_tag, _SCRIPT.sub("", shown)))


def _said_of_tag(tag: re.Match[str]) -> str:
    if found := _BREAK.match(tag[0]):
        return _pause(found[1])
    return "\n" if _LINES.match(tag[0]) else ""


def _pause(attributes: str) -> str:
    """The mark of an SSML break, which is bounded."""
    time, strength = _TIME.search(attributes), _STRENGTH.search(attributes)
    seconds = STRENGTHS.get(strength[1].lower(), 0.5) if strength else STRENGTHS["medium"]
    if time is not None:
        seconds = float(time[1]) / (1000 if time[2].lower() == "ms" else 1)
    return mark(min(seconds, MOST_PAUSE)) if seconds else ""


def _words(tokens: Sequence[Token]) -> str:
    """What the parts of a paragraph say, not yet without what only the eye needs."""
    said = []
    for token in tokens:
        match token.type:
            case "softbreak":
                said.append(_SOFT)
            case "hardbreak":
                said.append("\n")
            case "code_inline":
                said.append(token.content.replace("_", " ").replace("()", "").strip())
            case "html_inline":
                said.append(without_tags(token.content))
            case "image":
                said.append(_words(token.children or []))
            case _:
                said.append(token.content)
    return "".join(said)


def _speakable(text: str) -> str:
    """Words without URLs, emoji, marks of footnotes and left over markup."""
    text = _NOTE.sub("", _REFERENCE.sub(r"\1", _TASK.sub("", text, count=1)))
    text = _URL.sub(_host, text).replace("mailto:", "")
    text = _ALERT.sub(lambda found: f"{found[1].capitalize()}: ", _ATTRIBUTES.sub("", text))
    text = _SHORTCODE.sub("", _LEFT_OVER.sub(" ", text))
    text = re.sub(rf"(?<=[{_WIDE}]){_SOFT}(?=[{_WIDE}])", "", text).replace(_SOFT, " ")
    text = re.sub(r"[^\S\n]+", " ", text)
    text = _EMOJIS.sub(lambda found: " " if found["mark"] is None else "", text)
    lines = (re.sub(r" {2,}", " ", line).strip() for line in text.split("\n"))
    return "\n".join(filter(None, lines))


def _host(url: re.Match[str]) -> str:
    """Of an address only whose it is, and the marks behind it."""
    rest = url["rest"]
    kept = rest.rstrip(_MARKS + ")]")
    behind = rest[len(kept) :]
    if not kept:
        host = url["host"].rstrip(_MARKS)
        behind = url["host"][len(host) :] + behind
    else:
        host = url["host"]
    if "(" in kept:
        behind = behind.removeprefix(")")
    return host + behind


def ended(text: str) -> str:
    """Text with a full stop, where no mark ends it: a pause is due after it."""
    bare = text.rstrip(_CLOSERS)
    last = bare[-1:] or text[-1:]
    if last in _ENDS or MARK.fullmatch(text, text.rfind("[")):
        return text
    is_wide = unicodedata.east_asian_width(last) in "WF" and not "\uac00" <= last <= "\ud7a3"
    return text + ("。" if is_wide else ".")
