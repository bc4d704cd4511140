"""Warnings of a request are collected; others are logged."""

from __future__ import annotations

import logging

import pytest

from oscine.server.request_warnings import MAX_WARNINGS, collected, kept_from_log

log = logging.getLogger("oscine.audio.io")


@pytest.mark.parametrize("verbose", [False, True])
def test_warnings_of_a_request(verbose: bool, caplog: pytest.LogCaptureFixture) -> None:
    warnings: list[str] = []
    with kept_from_log(verbose):
        with collected(warnings):
            for _ in range(2):
                log.warning("%s: breaks off", "file")
            log.error("a fault")
        log.warning("of the operator")
    assert warnings == ["file: breaks off"]
    logged = ["a fault", "of the operator"]
    assert caplog.messages == (["file: breaks off"] * 2 + logged if verbose else logged)


def test_a_request_has_a_bounded_number_of_warnings(caplog: pytest.LogCaptureFixture) -> None:
    warnings: list[str] = []
    with kept_from_log(verbose=False), collected(warnings):
        for number in range(MAX_WARNINGS + 5):
            log.warning("warning %d", number)
    assert len(warnings) == MAX_WARNINGS and not caplog.messages
    with collected(warnings):
        log.warning("as before")
    assert caplog.messages == ["as before"]
