"""How recordings are called: by FFmpeg's name of a container, the suffixes that its files have.

FFmpeg itself tells a container by its contents, and its own lists of suffixes are short. These say
what of a folder is taken for a recording; a file that is named is tried whatever it is called.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

CONTAINERS: Mapping[str, str] = MappingProxyType(
    {
        "aac": ".aac .adts",
        "ac3": ".ac3",
        "aiff": ".aif .aifc .aiff",
        "amr": ".amr .awb",
        "ape": ".ape",
        "asf": ".asf .wma .wmv",
        "au": ".au .snd",
        "avi": ".avi .divx",
        "caf": ".caf",
        "dsf": ".dsf",
        "dss": ".dss",
        "dts": ".dts",
        "dv": ".dif .dv",
        "eac3": ".eac3 .ec3",
        "flac": ".flac",
        "flv": ".flv",
        "gxf": ".gxf",
        "matroska": ".mk3d .mka .mkv .weba .webm",
        "mov": ".3g2 .3gp .3gpp .f4a .f4b .f4v .m4a .m4b .m4r .m4v .mov .mp4 .qt",
        "mp3": ".m2a .mp2 .mp3 .mpa .mpga",
        "mpc": ".mpc",
        "mpeg": ".m2p .mpeg .mpg .vob .vro",
        "mpegts": ".m2t .m2ts .mts .tp .trp .ts",
        "mxf": ".mxf",
        "nut": ".nut",
        "ogg": ".oga .ogg .ogm .ogv .ogx .opus .spx",
        "oma": ".aa3 .oma",
        "qcp": ".qcp",
        "rm": ".ra .rm .rmvb",
        "tak": ".tak",
        "tta": ".tta",
        "voc": ".voc",
        "w64": ".w64",
        "wav": ".bwf .rf64 .wav .wave",
        "wtv": ".wtv",
        "wv": ".wv",
    }
)
SUFFIXES = frozenset(suffix for listed in CONTAINERS.values() for suffix in listed.split())
