"""Languages of Whisper, by every name and code that people and programs use for them.

Sources: whisper/tokenizer.py for codes and English names; ISO 639-1, 639-2 and 639-3 for the codes
of two and three letters, withdrawn ones included; Unicode CLDR for own names; RFC 5646 for tags
such as zh-Hant-TW.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from reprlib import repr as shortened
from types import MappingProxyType

from oscine.errors import UsageError

#: A row a language, in the order of Whisper's ids: code, English name, other codes and names.
_LANGUAGE_TABLE = """
en: english, eng, american english, british english
zh: chinese, zho, chi, cmn, zh-cmn, zh-guoyu, mandarin, mandarin chinese, simplified chinese,
    traditional chinese, 中文, 汉语, 漢語, 普通话, 普通話, 国语, 國語, 华语, 華語,
    简体中文, 繁體中文
de: german, deu, ger, Deutsch
es: spanish, spa, castilian, español, castellano
ru: russian, rus, русский, русский язык
ko: korean, kor, 한국어, 조선말
fr: french, fra, fre, français
ja: japanese, jpn, 日本語
pt: portuguese, por, brazilian portuguese, português
tr: turkish, tur, Türkçe
pl: polish, pol, polski, język polski
ca: catalan, cat, valencian, català, valencià
nl: dutch, nld, dut, flemish, Nederlands, Vlaams
ar: arabic, ara, arb, arz, ary, arq, aeb, apc, ajp, acm, afb, ars, العربية, عربي
sv: swedish, swe, svenska
it: italian, ita, italiano
id: indonesian, ind, in, Bahasa Indonesia, Indonesia
hi: hindi, hin, हिन्दी, हिंदी
fi: finnish, fin, suomi
vi: vietnamese, vie, Tiếng Việt
he: hebrew, heb, iw, עברית
uk: ukrainian, ukr, українська, українська мова
el: greek, ell, gre, modern greek, Ελληνικά
ms: malay, msa, may, zsm, zlm, Bahasa Melayu, Melayu, بهاس ملايو
cs: czech, ces, cze, čeština, česky
ro: romanian, ron, rum, mo, mol, moldavian, moldovan, română
da: danish, dan, dansk
hu: hungarian, hun, magyar
ta: tamil, tam, தமிழ்
no: norwegian, nor, nb, nob, norwegian bokmål, bokmål, norsk, norsk bokmål
th: thai, tha, ไทย, ภาษาไทย
ur: urdu, urd, اردو
hr: croatian, hrv, scr, hrvatski
bg: bulgarian, bul, български
lt: lithuanian, lit, lietuvių, lietuvių kalba
la: latin, lat, latina
mi: maori, mri, mao, te reo Māori
ml: malayalam, mal, മലയാളം
cy: welsh, cym, wel, Cymraeg
sk: slovak, slk, slo, slovenčina, slovensky
te: telugu, tel, తెలుగు
fa: persian, fas, per, pes, prs, farsi, dari, فارسی, دری
lv: latvian, lav, lvs, latviešu, latviešu valoda
bn: bengali, ben, bangla, বাংলা
sr: serbian, srp, scc, sh, hbs, српски, srpski
az: azerbaijani, aze, azj, azb, azeri, azərbaycan, azərbaycan dili
sl: slovenian, slv, slovene, slovenščina
kn: kannada, kan, ಕನ್ನಡ
et: estonian, est, ekk, eesti, eesti keel
mk: macedonian, mkd, mac, македонски
br: breton, bre, brezhoneg
eu: basque, eus, baq, euskara
is: icelandic, isl, ice, íslenska
hy: armenian, hye, arm, հայերեն
ne: nepali, nep, npi, नेपाली
mn: mongolian, mon, khk, монгол, монгол хэл
bs: bosnian, bos, bosanski
kk: kazakh, kaz, қазақ тілі, қазақша
sq: albanian, sqi, alb, als, aln, shqip
sw: swahili, swa, swh, swc, Kiswahili
gl: galician, glg, galego
mr: marathi, mar, मराठी
pa: punjabi, pan, panjabi, ਪੰਜਾਬੀ
si: sinhala, sin, sinhalese, සිංහල
km: khmer, khm, cambodian, ខ្មែរ, ភាសាខ្មែរ
sn: shona, sna, chiShona
yo: yoruba, yor, Èdè Yorùbá
so: somali, som, Soomaali, Af-Soomaali
af: afrikaans, afr
oc: occitan, oci
ka: georgian, kat, geo, ქართული
be: belarusian, bel, беларуская
tg: tajik, tgk, тоҷикӣ
sd: sindhi, snd, سنڌي
gu: gujarati, guj, ગુજરાતી
am: amharic, amh, አማርኛ
yi: yiddish, yid, ydd, ji, ייִדיש, יידיש
lo: lao, laotian, ລາວ, ພາສາລາວ
uz: uzbek, uzb, uzn, oʻzbek, oʻzbekcha, ўзбекча
fo: faroese, fao, føroyskt
ht: haitian creole, hat, haitian, Kreyòl Ayisyen
ps: pashto, pus, pbt, pbu, pushto, پښتو
tk: turkmen, tuk, türkmen dili, türkmençe
nn: nynorsk, nno, no-nyn, norwegian nynorsk, norsk nynorsk
mt: maltese, mlt, Malti
sa: sanskrit, san, संस्कृतम्, संस्कृत भाषा
lb: luxembourgish, ltz, i-lux, letzeburgesch, Lëtzebuergesch
my: myanmar, mya, bur, burmese, မြန်မာ, မြန်မာဘာသာ
bo: tibetan, bod, tib, བོད་སྐད་
tl: tagalog, tgl, fil, filipino
mg: malagasy, mlg, plt
as: assamese, asm, অসমীয়া
tt: tatar, tat, татар, татарча
haw: hawaiian, ʻŌlelo Hawaiʻi
ln: lingala, lin, lingála
ha: hausa, hau, harshen Hausa
ba: bashkir, bak, башҡорт, башҡортса
jw: javanese, jv, jav, Basa Jawa, Jawa
su: sundanese, sun, Basa Sunda
yue: cantonese, zh-yue, yue chinese, 粵語, 粤语, 廣東話, 广东话
"""
#: Values that mean language detection; und is for undetermined in files.
AUTO = ("auto", "und")

_APOSTROPHE_PATTERN = re.compile(r"['’‘ʻʼ`]")  # apostrophes, of which there are many
_LANGUAGE_TAG_PATTERN = re.compile(r"[a-z]{2,3}(-[a-z0-9]{1,8})*")


def _lookup_key(name: str) -> str:
    """A name without case, accents, apostrophes and double spaces, as the key for lookup."""
    letters = unicodedata.normalize("NFKD", name.casefold())
    bare = "".join(each for each in letters if unicodedata.category(each) != "Mn")
    return " ".join(_APOSTROPHE_PATTERN.sub("", bare).casefold().split())


def _parse_table() -> dict[str, list[str]]:
    joined = _LANGUAGE_TABLE.strip().replace(",\n    ", ", ").splitlines()
    split = [row.split(": ", 1) for row in joined]
    return {code: names.split(", ") for code, names in split}


_ROWS = _parse_table()
#: Code to English name, in the order of the ids.
LANGUAGES: Mapping[str, str] = MappingProxyType({code: row[0] for code, row in _ROWS.items()})
#: Code to all codes and names of a language, its code first.
NAMES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {code: (code, *row) for code, row in _ROWS.items()}
)
_CODE_OF_NAME = {_lookup_key(name): code for code, names in NAMES.items() for name in names}


def find_language(name: str) -> str | None:
    """The code of a language by any name or tag, in any case; None if it is unknown.

    A tag is read as by RFC 4647 (3.4, lookup): anything may follow the language, such as a script
    or a region. System locales such as de_DE.UTF-8 and names with a region in brackets, such as
    "Portuguese (Brazil)", are read too.
    """
    bare = name.partition("(")[0] if name.rstrip().endswith(")") else name
    key = _lookup_key(bare)
    if key in _CODE_OF_NAME:
        return _CODE_OF_NAME[key]
    tag = re.split("[.@]", key)[0].replace("_", "-")
    if not _LANGUAGE_TAG_PATTERN.fullmatch(tag):
        return None
    parts = tag.split("-")
    prefixes = ("-".join(parts[:count]) for count in range(len(parts), 0, -1))
    return next((_CODE_OF_NAME[prefix] for prefix in prefixes if prefix in _CODE_OF_NAME), None)


def language_code(name: str) -> str | None:
    """The code of a language by `find_language`; None if it is to be detected.

    Raises UsageError, which lists the codes, for an unknown language.
    """
    if _lookup_key(name) in AUTO:
        return None
    if (code := find_language(name)) is None:
        raise UsageError(
            f"unknown language {shortened(name)}; valid are auto, and names and codes in any form "
            f"(German, Deutsch, de, deu, de-AT) of: {', '.join(LANGUAGES)}"
        )
    return code
