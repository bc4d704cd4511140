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
        "ape": Container(".ape"),
        "asf": Container(".asf .wma .wmv"),
        "au": Container(".au .snd", (b".snd",), called="an au file"),
        "avi": Container(".avi .divx"),
        "caf": Container(".caf", (b"caff",), called="a caf file"),
        "dsf": Container(".dsf"),
        "dss": Container(".dss"),
        "dts": Container(".dts"),
        "dv": Container(".dif .dv"),
        "eac3": Container(".eac3 .ec3"),
        "flac": Container(".flac", (b"fLaC",)),
        "flv": Container(".flv"),
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
        "mpc": Container(".mpc"),
        "mpeg": Container(".m2p .mpeg .mpg .vob .vro"),
        "mpegts": Container(".m2t .m2ts .mts .tp .trp .ts"),
        "mxf": Container(".mxf"),
        "nut": Container(".nut"),
        "ogg": Container(".oga .ogg .ogm .ogv .ogx .opus .spx", (b"OggS",)),
        "oma": Container(".aa3 .oma"),
        "qcp": Container(".qcp"),
        "rm": Container(".ra .rm .rmvb"),
        "tak": Container(".tak"),
        "tta": Container(".tta"),
        "voc": Container(".voc"),
        "w64": Container(".w64"),
        "wav": Container(".bwf .rf64 .wav .wave", (b"RIFF", b"RF64"), called="a wav file"),
        "wtv": Container(".wtv"),
        "wv": Container(".wv"),
    }
)
SUFFIXES = frozenset(suffix for each in CONTAINERS.values() for suffix in each.suffixes.split())


def container_of(begin: bytes) -> str | None:
    """What a message calls the container of a file that begins so; None where nothing tells it."""
    for name, container in CONTAINERS.items():
        if begin.startswith(container.magic, container.at):
            return container.called or name
    return None
