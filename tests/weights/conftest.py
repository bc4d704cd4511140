"""Small checkpoints in every format, and the means to damage them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

FORMATS = Path(__file__).resolve().parent.parent / "goldens" / "whisper_formats"


@pytest.fixture(scope="session")
def formats() -> Path:
    """The committed case: one network in every format."""
    return FORMATS


@pytest.fixture
def copy_of(tmp_path: Path):
    """Copies one of the committed checkpoints, a file or a folder, to where it may be damaged."""

    def copy(name: str) -> Path:
        source, target = FORMATS / name, tmp_path / name
        if source.is_dir():
            shutil.copytree(source, target)
        else:
            shutil.copy(source, target)
        return target

    return copy
