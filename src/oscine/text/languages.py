"""Languages as Whisper knows them: codes and English names.

Source: whisper/tokenizer.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from oscine.errors import UsageError

_NAMES = (
    "en english, zh chinese, de german, es spanish, ru russian, ko korean, fr french, ja japanese, "
    "pt portuguese, tr turkish, pl polish, ca catalan, nl dutch, ar arabic, sv swedish, "
    "it italian, id indonesian, hi hindi, fi finnish, vi vietnamese, he hebrew, uk ukrainian, "
    "el greek, ms malay, cs czech, ro romanian, da danish, hu hungarian, ta tamil, no norwegian, "
    "th thai, ur urdu, hr croatian, bg bulgarian, lt lithuanian, la latin, mi maori, ml malayalam, "
    "cy welsh, sk slovak, te telugu, fa persian, lv latvian, bn bengali, sr serbian, "
    "az azerbaijani, sl slovenian, kn kannada, et estonian, mk macedonian, br breton, eu basque, "
    "is icelandic, hy armenian, ne nepali, mn mongolian, bs bosnian, kk kazakh, sq albanian, "
    "sw swahili, gl galician, mr marathi, pa punjabi, si sinhala, km khmer, sn shona, yo yoruba, "
    "so somali, af afrikaans, oc occitan, ka georgian, be belarusian, tg tajik, sd sindhi, "
    "gu gujarati, am amharic, yi yiddish, lo lao, uz uzbek, fo faroese, ht haitian creole, "
    "ps pashto, tk turkmen, nn nynorsk, mt maltese, sa sanskrit, lb luxembourgish, my myanmar, "
    "bo tibetan, tl tagalog, mg malagasy, as assamese, tt tatar, haw hawaiian, ln lingala, "
    "ha hausa, ba bashkir, jw javanese, su sundanese, yue cantonese"
)
#: Code to English name, in the order of the ids.
LANGUAGES: Mapping[str, str] = MappingProxyType(
    {code: name for code, name in (entry.split(" ", 1) for entry in _NAMES.split(", "))}
)
ALIASES: Mapping[str, str] = MappingProxyType(
    {name: code for code, name in LANGUAGES.items()}
    | {
        "burmese": "my",
        "valencian": "ca",
        "flemish": "nl",
        "haitian": "ht",
        "letzeburgesch": "lb",
        "pushto": "ps",
        "panjabi": "pa",
        "moldavian": "ro",
        "moldovan": "ro",
        "sinhalese": "si",
        "castilian": "es",
        "mandarin": "zh",
    }
)


def language_code(name: str) -> str:
    """The code of a language given by code or English name; UsageError lists the codes."""
    key = name.strip().lower()
    if key in LANGUAGES:
        return key
    if key in ALIASES:
        return ALIASES[key]
    codes = ", ".join(LANGUAGES)
    raise UsageError(f"unknown language {name!r}; valid are English names and codes: {codes}")
