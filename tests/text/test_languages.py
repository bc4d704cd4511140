"""Languages by every name and code: what is written for one is found, and nothing is two."""

from __future__ import annotations

import string
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oscine.errors import UsageError
from oscine.text.languages import LANGUAGES, NAMES, find_language, language_code

ALL = [(name, code) for code, names in NAMES.items() for name in names]


@pytest.mark.parametrize(
    ("written", "code"),
    [
        *(("en-US", "en"), ("en_GB", "en"), ("EN-us", "en"), ("eng", "en"), ("English", "en")),
        *(("zh-CN", "zh"), ("zh-Hant-TW", "zh"), ("cmn-Hans-CN", "zh"), ("chi", "zh")),
        *(("zh-yue", "yue"), ("zh-yue-HK", "yue"), ("yue-Hant-HK", "yue"), ("廣東話", "yue")),
        *(("Deutsch", "de"), ("DEUTSCH", "de"), ("ger", "de"), ("deu", "de"), ("de-AT", "de")),
        *(("iw", "he"), ("in", "id"), ("ji", "yi"), ("jv", "jw"), ("mo", "ro"), ("sh", "sr")),
        *(("nb-NO", "no"), ("nob", "no"), ("nn-NO", "nn"), ("no-nyn", "nn"), ("no", "no")),
        *(("Français", "fr"), ("francais", "fr"), ("FRANC\u0327AIS", "fr"), ("fre", "fr")),
        *(("русский", "ru"), ("РУССКИЙ", "ru"), ("日本語", "ja"), ("ไทย", "th"), ("हिन्दी", "hi")),
        *(("de_DE.UTF-8", "de"), ("ca_ES@valencia", "ca"), ("sr-Latn-RS", "sr")),
        *(("Portuguese (Brazil)", "pt"), ("Chinese (Simplified)", "zh"), ("pt-BR", "pt")),
        *((" Haitian  Creole ", "ht"), ("o'zbek", "uz"), ("O‘ZBEK", "uz"), ("filipino", "tl")),
        *(("haw-US", "haw"), ("en-x-klingon", "en"), ("de-1996", "de"), ("es-419", "es")),
    ],
)
def test_languages_as_people_and_programs_write_them(written: str, code: str) -> None:
    assert find_language(written) == language_code(written) == code


@pytest.mark.parametrize("written", ["auto", "AUTO", " Auto ", "und"])
def test_what_leaves_the_language_to_be_detected(written: str) -> None:
    assert language_code(written) is None


@pytest.mark.parametrize(
    "written",
    ["", " ", "xx", "xx-US", "klingon", "x-en", "i-en", "en-", "-en", "en--US", "en US", "e", "()"],
)
def test_what_is_no_language(written: str) -> None:
    assert find_language(written) is None
    with pytest.raises(UsageError, match="unknown language"):
        language_code(written)


def test_a_long_name_is_not_repeated() -> None:
    with pytest.raises(UsageError) as caught:
        language_code("x" * 100_000)
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize("form", ["NFC", "NFD", "NFKC", "NFKD"])
def test_no_name_is_that_of_two(form: str) -> None:
    """In any case and form; a later row of the table would take the name from an earlier one."""
    for name, code in ALL:
        for written in (name, name.upper(), name.lower(), name.title()):
            assert find_language(unicodedata.normalize(form, written)) == code


def test_every_language_has_codes_and_an_own_name() -> None:
    assert len(LANGUAGES) == 100
    for code, names in NAMES.items():
        three = [name for name in names[1:] if len(name) == 3 and name.isascii()]
        assert three or len(code) == 3, code


SUBTAGS = st.lists(
    st.text(string.ascii_letters + string.digits, min_size=1, max_size=8), max_size=4
)


@given(st.sampled_from([code for code in LANGUAGES if code not in ("zh", "no")]), SUBTAGS)
def test_what_follows_the_language_of_a_tag_may_be_anything(code: str, more: list[str]) -> None:
    assert find_language("-".join([code, *more])) == code
    assert find_language("_".join([code.upper(), *more])) == code


@given(st.text())
def test_any_text_is_a_language_or_none(text: str) -> None:
    assert find_language(text) in {*LANGUAGES, None}
