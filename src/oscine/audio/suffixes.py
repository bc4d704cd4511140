"""How recordings are called: by FFmpeg's name of a container, the suffixes that its files have.

FFmpeg itself tells a container by its contents, and its own lists of suffixes are short. These say
what of a folder is taken for a recording; a file that is named is tried whatever it is called. The
first bytes of some tell a file from raw samples.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple


class Container(NamedTuple):
    """A container's suffixes, the bytes its files have `at` an offset, and its name in messages."""

    suffixes: str
    magic: tuple[bytes, ...] = ()
    at: int = 0
    called: str = ""


CONTAINERS: Mapping[str, Container] = MappingProxyType(
    {
        "aac": Container(".aac .adts"),
        "ac3": Container(".ac3"),
        "aiff": Container(".aif .aifc .aiff", (b"FORM",), called="an aiff file"),
        "amr": Container(".amr .awb", (b"#!AMR",)),
        "ape": Container(".ape", (b"MAC ",)),
        "asf": Container(".asf .wma .wmv", (b"0&\xb2u\x8ef\xcf\x11",)),
        "au": Container(".au .snd", (b".snd",), called="an au file"),
        "avi": Container(".avi .divx", (b"AVI ",), at=8),
        "caf": Container(".caf", (b"caff",), called="a caf file"),
        "dsf": Container(".dsf", (b"DSD ",)),
        "dss": Container(".dss"),
        "dts": Container(".dts"),
        "dv": Container(".dif .dv"),
        "eac3": Container(".eac3 .ec3"),
        "flac": Container(".flac", (b"fLaC",)),
        "flv": Container(".flv", (b"FLV\x01",)),
        "gxf": Container(".gxf"),
        "matroska": Container(
            ".mk3d .mka .mkv .weba .webm", (b"\x1aE\xdf\xa3",), called="mkv or webm"
        ),
        "mov": Container(
            ".3g2 .3gp .3gpp .f4a .f4b .f4v .m4a .m4b .m4r .m4v .mov .mp4 .qt",
            (b"ftyp",),
            at=4,
            called="mp4",
        ),
        "mp3": Container(".m2a .mp2 .mp3 .mpa .mpga", (b"ID3", b"\xff\xfb\x90")),
        "mpc": Container(".mpc", (b"MPCK", b"MP+")),
        "mpeg": Container(".m2p .mpeg .mpg .vob .vro"),
        "mpegts": Container(".m2t .m2ts .mts .tp .trp .ts"),
        "mxf": Container(".mxf", (b"\x06\x0e+4\x02\x05\x01\x01",)),
        "nut": Container(".nut", (b"nut/multimedia",)),
        "ogg": Container(".oga .ogg .ogm .ogv .ogx .opus .spx", (b"OggS",)),
        "oma": Container(".aa3 .oma", (b"ea3", b"EA3")),
        "qcp": Container(".qcp", (b"QLCM",), at=8),
        "rm": Container(".ra .rm .rmvb", (b".RMF", b".ra")),
        "tak": Container(".tak", (b"tBaK",)),
        "tta": Container(".tta", (b"TTA1",)),
        "voc": Container(".voc", (b"Creative Voice",)),
        "w64": Container(".w64", (b"riff",)),
        "wav": Container(".bwf .rf64 .wav .wave", (b"RIFF", b"RF64"), called="a wav file"),
        "wtv": Container(".wtv", (b"\xb7\xd8\x00 7I\xdaN",)),
        "wv": Container(".wv", (b"wvpk",)),
    }
)
#: What of RIFF and IFF is sound; their headers may end before they say it.
FORMS = (b"WAVE", b"AVI ", b"QLCM", b"AIFF", b"AIFC", b"8SVX")
SUFFIXES = frozenset(suffix for each in CONTAINERS.values() for suffix in each.suffixes.split())


def container_of(begin: bytes) -> str | None:
    """What a message calls the container of a file that begins so; None where nothing tells it."""
    if begin[:4] in (b"RIFF", b"FORM") and not any(form.startswith(begin[8:12]) for form in FORMS):
        return None  # a picture, say
    for name, container in CONTAINERS.items():
        if begin.startswith(container.magic, container.at):
            return container.called or name
    return None
