"""What tests of audio share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from oscine import threads


@pytest.fixture
def one_thread(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """NumPy work takes one thread: how much several hold at once depends on the machine's load."""
    with monkeypatch.context() as patch:
        patch.setenv("OSCINE_THREADS", "1")
        threads.count.cache_clear()
        yield
    threads.count.cache_clear()
