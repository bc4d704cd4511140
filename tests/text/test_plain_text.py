"""Markdown made speakable: what is kept, what goes, in bounded time, however the text comes."""

from __future__ import annotations

import logging
import re
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

import oscine
from oscine.errors import UsageError
from oscine.text.pauses import Pause, split_pauses
from oscine.text.plain_text import plain_parts, plain_text

CASES = {
    "headings": ("# News\n\nOld one\n===\n\ntext", "News.\n\nOld one.\n\ntext."),
    "emphasis": (
        "**Very** *good*, ~~old~~ __new__ and \\*this\\*.",
        "Very good, old new and *this*.",
    ),
    "unclosed markup": ("**bold and `this", "bold and this."),
    "links": (
        "See [the **site**](https://x.org/a?b#c), [it][1] or <https://www.x.org/a>.\n\n"
        "[1]: https://x.org",
        "See the site, it or x.org.",
    ),
    "images": ("![A *cat*](cat.png) ![](none.png)", "A cat."),
    "addresses": (
        "At https://me:pw@www.example.com:80/a/b_(c)?d=e. Or www.test.org/x, (http://y.de/z)!",
        "At example.com. Or test.org, (y.de)!",
    ),
    "an address between Chinese": ("请看https://例子.cn/a。再见", "请看例子.cn。再见。"),
    "mail": ("Write to <me@x.org> or [us](mailto:us@x.org).", "Write to me@x.org or us."),
    "emoji": (
        "Great 🎉! Family 👨‍👩‍👧 and 🏳️‍🌈 1️⃣ :smile: at 10:30:45 😀",
        "Great! Family and 1 at 10:30:45.",
    ),
    "joiners of scripts": ("می\u200cخواهم क्\u200dष", "می\u200cخواهم क्\u200dष."),
    "lists": ("- one\n- two;\n  - three\n\n3. c\n4. d", "one.\ntwo;\nthree.\n\n3. c.\n4. d."),
    "tasks": ("- [ ] buy\n- [x] sold", "buy.\nsold."),
    "tables": (
        "|Name|Age| |\n|:-|--:|-|\n|Anna|30|x|\n|**Bo**|||\n",
        "Name: Anna, Age: 30, x.\nName: Bo.",
    ),
    "a table without rows": ("|a|b|\n|-|-|\n", "a, b."),
    "quotes": ("> He said\n> this.\n>\n> > And that", "He said this.\n\nAnd that."),
    "inline code": ("Call `read_file()` with `-n 3`.", "Call read file with -n 3."),
    "tags": (
        '<div class="x">\nHello <i>you</i>\n</div>\n\na<br>b &amp; 3 &lt; 4 <!-- no -->\n\n'
        "<!-- not\n\nthis -->\n<script>\n\nnor this\n</script>\n\nend",
        "Hello you.\n\na\nb & 3 < 4.\n\nend.",
    ),
    "scripts in one line": (
        "<script>a()</script>\n\n<style>p {}</style>\n\n<p>one<script>\nb()\n</script> two</p>",
        "one two.",
    ),
    "attributes of headings": ("# Title {#id .class}\n\nSet {a, b}.", "Title.\n\nSet {a, b}."),
    "tables of HTML": ("<table><tr><td>a</td><td>b</td></tr></table>", "a\nb."),
    "alerts": ("> [!NOTE]\n> Text", "Note: Text."),
    "footnotes": ("So it is[^1].\n\n[^1]: At least here.", "So it is.\n\nAt least here."),
    "footnotes that are addresses": ("So it is[^1].\n\n[^1]: https://x.org", "So it is."),
    "front matter": ("---\ntitle: x\n\ntags: [a]\n---\ntext", "text."),
    "front matter of another kind": ('+++\ntitle = "x"\n+++\n\ntext', "text."),
    "rules": ("---\n\none\n\n***\n\ntwo", "one.\n\ntwo."),
    "lines": ("one\ntwo  \nthree\r\nfour", "one two\nthree four."),
    "lines of Chinese": ("你好\n世界", "你好世界。"),
    "marks at the end": (
        "Done?\n\n(yes.)\n\nand:\n\nlast “one”", "Done?\n\n(yes.)\n\nand:\n\nlast “one”.",
    ),
    "pauses": (
        'a [pause 500ms] b <break time="1.5s"/> c<break/>\n\n[pause 1s] d [pause 2s]',
        "a [pause 500ms] b [pause 1500ms] c[pause 500ms]\n\n[pause 1s] d [pause 2s]",
    ),
    "breaks of SSML": (
        "<speak><break strength='none'/>a <break time='90s'/><s>b</s></speak>",
        "a [pause 60000ms]\nb.",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_markdown_is_made_speakable(name: str) -> None:
    text, said = CASES[name]
    assert plain_text(text) == said
    assert oscine.plain_text(text) == said


CODE = {
    "fences": "Before.\n\n```py\nx = 1\n\n# no\n```\n\nAfter.",
    "tildes in a list": "- Before.\n\n  ~~~~\n  x\n\n  ~~~\n  ~~~~\n\nAfter.",
    "indented": "Before.\n\n    x = 1\n\nAfter.",
    "a quotation that ends": "Before.\n\n> ```\n> x\n\nAfter.",
    "an entry that ends": "Before.\n\n- ```\n  x\n\nAfter.",
}


@pytest.mark.parametrize("name", CODE)
def test_code_is_left_out_and_that_is_told(name: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert plain_text(CODE[name]) == "Before.\n\nAfter."
    assert [each.message for each in caplog.records] == ["skipped a code block"]


def test_what_is_no_text_is_refused() -> None:
    with pytest.raises(UsageError, match="text must be a str, not int"):
        plain_text(3)  # type: ignore[arg-type]


MARKDOWN = st.text(
    st.sampled_from(
        [*"ab1 \n\n\t#*_`~>|-+=[]()<>!&;:.\\\"'/", "。", "你", "🎉", "\u200d", "é", "\r"]
    )
)


@given(st.text() | MARKDOWN)
def test_any_text_is_taken_and_no_markup_of_its_own_is_added(text: str) -> None:
    said = plain_text(text)
    assert said == said.strip()
    assert not re.search("\0|\n{3,}|\N{PARTY POPPER}", said)
    assert all(any(map(str.isalnum, block)) for block in said.split("\n\n") if said)


@given(st.text() | MARKDOWN, st.data())
def test_how_the_text_comes_changes_nothing(text: str, data: st.DataObject) -> None:
    cuts = data.draw(st.lists(st.integers(0, len(text)), max_size=5).map(sorted))
    parts = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    assert "".join(plain_parts(parts)).strip() == plain_text(text)


@given(st.lists(st.text("abcdefgh", min_size=1), min_size=1))
def test_words_stay(words: list[str]) -> None:
    for form in (
        "# {}",
        "- {}",
        "> {}",
        "**{}**",
        "[{}](http://x.org)",
        "| {} |\n|-|",
        "<b>{}</b>",
    ):
        assert plain_text(form.format(" ".join(words))) == " ".join(words) + "."


def test_a_block_comes_once_it_is_whole() -> None:
    def written() -> list[str]:
        yield "# One\n"
        seen.append("heading")
        yield "\nSome "
        seen.append("paragraph")
        yield "text.\n\n"

    seen: list[str] = []
    spoken = plain_parts(written())
    assert next(spoken) == "One.\n\n" and seen == ["heading"]
    assert list(spoken) == ["Some text.\n\n"]


HOSTILE = """
import sys
from oscine.text.plain_text import plain_text
for part in sys.argv[1:]:
    many = part * (40_000 // len(part))
    plain_text("x " + many)
    plain_text("---\\na: b\\n" + many[:10_000])
print("done")
"""
PARTS = (
    *(
        "[",
        "![",
        "[a](",
        "*[a",
        "**a *",
        "<",
        "<!--",
        "<div><!--",
        "<div><script>",
        "{#a",
        "`",
        "&",
        "> ",
        "- ",
        "a|",
    ),
    *("[a]: b\n", "a|b\n-|-\n", "http://", "www.", ".)", "[^a", ":a", "<break time ", "🎉"),
    *("[pause ", "\r\n", "> ```\n", "- a\n\n    b\n", "\\", "* ", "_" + "*"),
)


def test_no_text_takes_more_than_its_length() -> None:
    """A bound that no quadratic reading of 40,000 characters keeps, once for each of the parts."""
    command = [sys.executable, "-c", HOSTILE, *PARTS]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert done.stdout == "done\n", done.stderr


# -- pauses ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a [pause 500ms] b", ["a ", Pause(0.5), " b"]),
        ("[PAUSE 1.5s][pause  2 s]", [Pause(1.5), Pause(2.0)]),
        ("[pause] [pause 1] [pause x] [pause -1s] [pause 1s", None),
        ("[[pause 1s]]", ["[", Pause(1.0), "]"]),
        ("", []),
    ],
)
def test_marks_of_pauses(text: str, found: list[str | Pause] | None) -> None:
    """Whole, and a character at a time."""
    found = [text] if found is None else found
    for parts in ([text], list(text)):
        joined: list[str | Pause] = []
        for each in split_pauses(parts):
            if joined and isinstance(each, str) and isinstance(joined[-1], str):
                joined[-1] += each
            else:
                joined.append(each)
        assert joined == found


def test_a_pause_is_bounded() -> None:
    assert list(split_pauses(["[pause 60s]"])) == [Pause(60.0)]
    with pytest.raises(UsageError, match=r"\[pause 61s\]: a pause is 60 s at most"):
        list(split_pauses(["[pause 61s]"]))


@given(st.text(st.sampled_from("[]pause 15ms.")))
def test_nothing_is_lost_beside_pauses(text: str) -> None:
    parts = list(split_pauses(text))
    assert "".join(part for part in parts if isinstance(part, str)) == re.sub(
        r"\[pause[ \t]+\d+(\.\d+)?[ \t]*m?s\]", "", text
    ) or any(isinstance(part, Pause) for part in parts)
