r"""Converts Markdown to text that can be spoken.

    plain_text("# News\n\nSee **[the site](https://example.com)**.")  # "News.\n\nSee the site."

Words are kept; markup, emoji, link targets, HTML tags and front matter are removed. A table row
becomes a sentence that names its columns, list items become lines, and code blocks are skipped.
`<break time="500ms"/>` of SSML becomes a pause. markdown-it-py parses the Markdown block by block,
so that time is linear in the text's length, and a text that is still being written is spoken as it
arrives.
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
from oscine.text.markdown_blocks import split_blocks
from oscine.text.pauses import MAX_PAUSE_S, PAUSE_MARK_PATTERN, pause_mark

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

log = logging.getLogger(__name__)

_MAX_NESTING = 20  # of lists and quotes; a level of a list counts two
_SOFT_BREAK = "\0"  # a line's end within a paragraph; the parser replaces NUL
_SCRIPT_PATTERN = re.compile(
    r"<(script|style)\b[^<>]*>.*?(?:</\1\s*>|\Z)", re.IGNORECASE | re.DOTALL
)
_TAG_PATTERN = re.compile(r"<[^<>]*>")
_BREAK_PATTERN = re.compile(r"<break\b([^<>]*)>", re.IGNORECASE)
_TIME_PATTERN = re.compile(
    r"\btime\s{0,8}=\s{0,8}[\"']?\s{0,8}\+?(\d{0,8}(?:\.\d{1,8})?)\s{0,8}(ms|s)\b", re.I
)
_STRENGTH_PATTERN = re.compile(r"\bstrength\s{0,8}=\s{0,8}[\"']?([a-z-]{1,16})", re.IGNORECASE)
#: Seconds of SSML's strengths, which SSML does not define; a bare `<break/>` is medium.
BREAK_STRENGTHS_S = {
    "none": 0.0,
    "x-weak": 0.0,
    "weak": 0.25,
    "medium": 0.5,
    "strong": 0.75,
    "x-strong": 1,
}
_BLOCK_TAG_PATTERN = re.compile(
    r"</?(?:p|div|br|hr|li|ul|ol|tr|t[dh]|table|h[1-6]|s|dd|dt|summary|blockquote)\b", re.I
)

_WIDE = "\u2e80-\u9fff\uac00-\ud7a3\uf900-\ufaff\uff00-\uffef"
_NOT_IN_HOST = "\\s/?#:<>\"'()\\[\\]{}"
_URL_PATTERN = re.compile(
    r"(?<![a-zA-Z0-9_@])(?:(?:https?|ftp)://(?:[^\s/?#@<>\"]{1,200}@)?(?:www\.)?|www\.)"
    rf"(?P<host>[^{_NOT_IN_HOST}{_WIDE}]+|[^{_NOT_IN_HOST}\u3000-\u303f\uff00-\uffef]+)"
    rf"(?P<rest>[^\s<>\"{_WIDE}]*)",
    re.IGNORECASE,
)
_TRAILING_MARKS = ".,;:!?…'’”»*_"
_EMOJI = (
    "\U0001f000-\U0001faff\U000e0020-\U000e007f\u2600-\u27bf\u2b05-\u2b55\u231a\u231b\u23e9-\u23ff"
    "\u25aa-\u25fe\u2194-\u21aa\u2934\u2935\u3030\u303d\u3297\u3299\ufe0f\u20e3"
)
_EMOJI_PATTERN = re.compile(rf" ?(?:[{_EMOJI}]\u200d?)+(?P<mark> ?(?=[.,!?;:…]))?")
_SHORTCODE_PATTERN = re.compile(r"(?<![\w:]):[a-z][a-z0-9_+-]{1,40}:(?![\w:])")
_FOOTNOTE_PATTERN = re.compile(r"\[\^[^\[\]\s]{1,100}\]:?")
_REFERENCE_PATTERN = re.compile(r"!?\[([^\[\]]{1,1000})\]\[[^\[\]]{0,1000}\]")
_ATTRIBUTES_PATTERN = re.compile(r" ?\{[:#.][^{}\n]{0,200}\}")  # as kramdown and Pandoc write them
_ALERT_PATTERN = re.compile(rf"\A\[!(\w{{1,20}})\][\s{_SOFT_BREAK}]*")  # as GitHub writes them
_TASK_PATTERN = re.compile(r"\[[ xX]\]\s")
_LEFTOVER_MARKUP_PATTERN = re.compile(r"([*_~`|])\1+|`")
_END_MARKS = frozenset(".!?…:;,。！？：；，、｡．‼⁇⁈⁉")
_CLOSERS = "\"'”’»«›)]}」』）】》〉］｝〕〗*_"


def plain_text(text: str) -> str:
    """Convert Markdown to text that can be spoken, as `oscine speak --plain` does.

    Raises UsageError if text is not a str.
    """
    if not isinstance(text, str):
        raise UsageError(f"text must be a str, not {type(text).__name__}")
    return "".join(plain_parts([text])).strip()


def plain_parts(parts: Iterable[str]) -> Iterator[str]:
    """Convert Markdown that arrives in parts; yields each block, such as a paragraph, once it is
    complete.
    """
    skipped = 0
    for block in split_blocks(parts):
        spoken = SpokenBlock(_parser().parse(block))
        skipped += spoken.skipped_code_blocks
        if spoken.text:
            yield f"{spoken.text}\n\n"
    if skipped:
        count = "a code block" if skipped == 1 else f"{skipped} code blocks"
        log.warning("skipped %s", count)


@cache
def _parser() -> MarkdownIt:
    from markdown_it import MarkdownIt  # costs start-up time

    options = {"maxNesting": _MAX_NESTING}
    return MarkdownIt("commonmark", options).enable(["table", "strikethrough"])


class SpokenBlock:
    """The spoken text of a parsed block; `skipped_code_blocks` counts its code blocks."""

    def __init__(self, tokens: Iterable[Token]) -> None:
        self.text = ""
        self.skipped_code_blocks = 0
        self._item_number = ""  # of a list item, until its first words
        self._is_tight = False  # whether the paragraph is an item of a tight list
        self._table: list[list[str]] = []  # the cells so far of the current table
        for token in tokens:
            self._add_token(token)

    def _add_token(self, token: Token) -> None:
        match token.type:
            case "list_item_open":
                self._item_number = f"{token.info}{token.markup} " if token.info else ""
            case "paragraph_open":
                self._is_tight = token.hidden
            case "table_open":
                self._table = []
            case "tr_open":
                self._table.append([])
            case "table_close":
                self._add_table(*self._table)
            case "fence" | "code_block":
                self.skipped_code_blocks += 1
            case "html_block":
                self._append(_clean(strip_tags(token.content)))
            case "inline":
                self._add_inline(_clean(_inline_text(token.children or [])))

    def _add_inline(self, text: str) -> None:
        if self._table:
            self._table[-1].append(text)
        else:
            self._append(text, "\n" if self._is_tight else "\n\n")

    def _add_table(self, head: list[str], *rows: list[str]) -> None:
        """Add a sentence for each row: its cells, each after its column's name."""
        self._table = []
        for number, row in enumerate(rows):
            named = zip(head, row, strict=False)
            cells = (f"{name}: {cell}" if name else cell for name, cell in named if cell)
            self._append(", ".join(cells), "\n" if number else "\n\n")
        if not rows:
            self._append(", ".join(filter(None, head)))

    def _append(self, text: str, separator: str = "\n\n") -> None:
        if not any(map(str.isalnum, text)):
            return
        self.text += (separator if self.text else "") + end_with_mark(self._item_number + text)
        self._item_number = ""


def strip_tags(markup: str) -> str:
    """The text of HTML, with line breaks at block elements and SSML breaks as pauses."""
    shown = "".join(
        part.partition("-->")[2] if n else part for n, part in enumerate(markup.split("<!--"))
    )
    return html.unescape(_TAG_PATTERN.sub(_replace_tag, _SCRIPT_PATTERN.sub("", shown)))


def _replace_tag(tag: re.Match[str]) -> str:
    if found := _BREAK_PATTERN.match(tag[0]):
        return _break_mark(found[1])
    return "\n" if _BLOCK_TAG_PATTERN.match(tag[0]) else ""


def _break_mark(attributes: str) -> str:
    """The pause mark of an SSML break, limited to MAX_PAUSE_S."""
    time, strength = _TIME_PATTERN.search(attributes), _STRENGTH_PATTERN.search(attributes)
    seconds = (
        BREAK_STRENGTHS_S.get(strength[1].lower(), 0.5) if strength else BREAK_STRENGTHS_S["medium"]
    )
    if time is not None:
        seconds = float(time[1]) / (1000 if time[2].lower() == "ms" else 1)
    return pause_mark(min(seconds, MAX_PAUSE_S)) if seconds else ""


def _inline_text(tokens: Sequence[Token]) -> str:
    """The text of a paragraph's tokens, before `_clean`."""
    texts = []
    for token in tokens:
        match token.type:
            case "softbreak":
                texts.append(_SOFT_BREAK)
            case "hardbreak":
                texts.append("\n")
            case "code_inline":
                texts.append(token.content.replace("_", " ").replace("()", "").strip())
            case "html_inline":
                texts.append(strip_tags(token.content))
            case "image":
                texts.append(_inline_text(token.children or []))
            case _:
                texts.append(token.content)
    return "".join(texts)


def _clean(text: str) -> str:
    """Remove URLs, emoji, footnote marks and leftover markup."""
    text = _FOOTNOTE_PATTERN.sub(
        "", _REFERENCE_PATTERN.sub(r"\1", _TASK_PATTERN.sub("", text, count=1))
    )
    text = _URL_PATTERN.sub(_spoken_url, text).replace("mailto:", "")
    text = _ALERT_PATTERN.sub(
        lambda found: f"{found[1].capitalize()}: ", _ATTRIBUTES_PATTERN.sub("", text)
    )
    text = _SHORTCODE_PATTERN.sub("", _LEFTOVER_MARKUP_PATTERN.sub(" ", text))
    text = re.sub(rf"(?<=[{_WIDE}]){_SOFT_BREAK}(?=[{_WIDE}])", "", text).replace(_SOFT_BREAK, " ")
    text = re.sub(r"[^\S\n]+", " ", text)
    text = _EMOJI_PATTERN.sub(lambda found: " " if found["mark"] is None else "", text)
    lines = (re.sub(r" {2,}", " ", line).strip() for line in text.split("\n"))
    return "\n".join(filter(None, lines))


def _spoken_url(url: re.Match[str]) -> str:
    """The host of a URL, and the punctuation after it."""
    rest = url["rest"]
    kept = rest.rstrip(_TRAILING_MARKS + ")]")
    behind = rest[len(kept) :]
    if not kept:
        host = url["host"].rstrip(_TRAILING_MARKS)
        behind = url["host"][len(host) :] + behind
    else:
        host = url["host"]
    if "(" in kept:
        behind = behind.removeprefix(")")
    return host + behind


def end_with_mark(text: str) -> str:
    """The text with a full stop unless it ends with a mark, so that a pause follows it."""
    bare = text.rstrip(_CLOSERS)
    last = bare[-1:] or text[-1:]
    if last in _END_MARKS or PAUSE_MARK_PATTERN.fullmatch(text, text.rfind("[")):
        return text
    is_wide = unicodedata.east_asian_width(last) in "WF" and not "\uac00" <= last <= "\ud7a3"
    return text + ("。" if is_wide else ".")
