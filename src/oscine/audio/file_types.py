"""File name suffixes and magic bytes of containers, by FFmpeg's names.

FFmpeg detects a container by its contents. These are the suffixes that it lists for audio, and
more. They select the recordings in a folder; a file given by name is tried whatever its suffix.
Magic bytes distinguish a file from raw samples.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple


class Container(NamedTuple):
    """A container's suffixes, its magic bytes `at` an offset, and its name in messages."""

    suffixes: str
    magic: tuple[bytes, ...] = ()
    at: int = 0
    called: str = ""


CONTAINERS: Mapping[str, Container] = MappingProxyType(
    {
        "aac": Container(".aac .adts"),
        "ac3": Container(".ac3"),
        "aea": Container(".aea"),
        "aiff": Container(".afc .aif .aifc .aiff", (b"FORM",), called="an aiff file"),
        "amr": Container(".amr .awb", (b"#!AMR",)),
        "alaw": Container(".al"),
        "ape": Container(".ape .apl .mac", (b"MAC ",)),
        "aptx": Container(".aptx"),
        "aptx_hd": Container(".aptxhd"),
        "asf": Container(".asf .wma .wmv", (b"0&\xb2u\x8ef\xcf\x11",)),
        "au": Container(".au .snd", (b".snd",), called="an au file"),
        "avi": Container(".avi .divx", (b"AVI ",), at=8),
        "avr": Container(".avr", (b"2BIT",)),
        "bit": Container(".bit"),
        "caf": Container(".caf", (b"caff",), called="a caf file"),
        "codec2": Container(".c2"),
        "dsf": Container(".dsf", (b"DSD ",)),
        "dss": Container(".dss"),
        "dts": Container(".dts"),
        "dtshd": Container(".dtshd"),
        "dv": Container(".dif .dv"),
        "eac3": Container(".eac3 .ec3"),
        "flac": Container(".flac", (b"fLaC",)),
        "flv": Container(".flv", (b"FLV\x01",)),
        "g722": Container(".722 .g722"),
        "g723_1": Container(".g723_1 .rco .tco"),
        "g728": Container(".g728"),
        "g729": Container(".g729"),
        "gsm": Container(".gsm"),
        "gxf": Container(".gxf"),
        "iamf": Container(".iamf"),
        "ilbc": Container(".lbc", (b"#!iLBC",)),
        "ircam": Container(".ircam .sf"),
        "lc3": Container(".lc3"),
        "loas": Container(".latm .loas"),
        "matroska": Container(
            ".mk3d .mka .mkv .weba .webm", (b"\x1aE\xdf\xa3",), called="mkv or webm"
        ),
        "mov": Container(
            ".3g2 .3gp .3gpp .f4a .f4b .f4v .isma .ismv .m4a .m4b .m4r .m4v .mj2 .mov .mp4 "
            ".psp .qt",
            (b"ftyp",),
            at=4,
            called="mp4",
        ),
        "mlp": Container(".mlp"),
        "mp3": Container(".m2a .mp2 .mp3 .mpa .mpga", (b"ID3", b"\xff\xfb\x90")),
        "mpc": Container(".mpc", (b"MPCK", b"MP+")),
        "mpeg": Container(".dvd .m2p .mpeg .mpg .vob .vro"),
        "mpegts": Container(".m2t .m2ts .mts .tp .trp .ts"),
        "mulaw": Container(".ul"),
        "mxf": Container(".mxf", (b"\x06\x0e+4\x02\x05\x01\x01",)),
        "nistsphere": Container(".nist .sph", (b"NIST_1A",)),
        "nut": Container(".nut", (b"nut/multimedia",)),
        "ogg": Container(".oga .ogg .ogm .ogv .ogx .opus .spx", (b"OggS",)),
        "oma": Container(".aa3 .oma .omg", (b"ea3", b"EA3")),
        "pva": Container(".pva"),
        "pvf": Container(".pvf", (b"PVF1\n",)),
        "qcp": Container(".qcp", (b"QLCM",), at=8),
        "rm": Container(".ra .rm .rmvb", (b".RMF", b".ra")),
        "sbc": Container(".msbc .sbc"),
        "shn": Container(".shn", (b"ajkg",)),
        "sln": Container(".sln"),
        "sox": Container(".sox", (b".SoX", b"XoS.")),
        "tak": Container(".tak", (b"tBaK",)),
        "tta": Container(".tta", (b"TTA1",)),
        "truehd": Container(".thd"),
        "ty": Container(".ty"),
        "voc": Container(".voc", (b"Creative Voice",)),
        "w64": Container(".w64", (b"riff",)),
        "wav": Container(".bwf .rf64 .wav .wave", (b"RIFF", b"RF64"), called="a wav file"),
        "wtv": Container(".wtv", (b"\xb7\xd8\x00 7I\xdaN",)),
        "wv": Container(".wv", (b"wvpk",)),
    }
)
#: RIFF and IFF types that are audio; a truncated header may lack the type.
RIFF_FORM_TYPES = (b"WAVE", b"AVI ", b"QLCM", b"AIFF", b"AIFC", b"8SVX")
SUFFIXES = frozenset(suffix for each in CONTAINERS.values() for suffix in each.suffixes.split())


def container_of(begin: bytes) -> str | None:
    """The container's name in messages for a file that begins with these bytes; None if unknown."""
    if begin[:4] in (b"RIFF", b"FORM") and not any(
        form.startswith(begin[8:12]) for form in RIFF_FORM_TYPES
    ):
        return None  # a picture, for example
    for name, container in CONTAINERS.items():
        if begin.startswith(container.magic, container.at):
            return container.called or name
    return None
