"""JSON of models: read as the standard library reads it, or refused in one line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oscine import model_files
from oscine.errors import CheckpointError
from oscine.model_files import MAX_DEPTH, MAX_DIGITS, parse_json, parse_value, read_json

HERE = Path("model/config.json")
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=20,
)


def refused(text: bytes) -> str:
    with pytest.raises(CheckpointError) as caught:
        parse_value(HERE, text)
    message = str(caught.value)
    assert message.startswith("model/config.json: ") and "\n" not in message
    assert len(message) < 300
    return message


@given(VALUES, st.booleans())
def test_values_are_those_of_the_standard_library(value: Any, escaped: bool) -> None:
    text = json.dumps(value, ensure_ascii=escaped).encode()
    assert parse_value(HERE, text) == json.loads(text)


@given(st.binary(max_size=40) | st.text('[]{}":,0\\u dDfF', max_size=40).map(str.encode))
def test_any_bytes_are_read_or_refused(text: bytes) -> None:
    try:
        value = parse_value(HERE, text)
    except CheckpointError as error:
        assert "\n" not in str(error)
    else:
        json.dumps(value, ensure_ascii=False).encode()


@given(st.lists(st.sampled_from("abc"), max_size=5))
def test_a_name_twice_is_refused_wherever_it_is(names: list[str]) -> None:
    inner = "{" + ",".join(f'"{name}": 1' for name in names) + "}"
    text = f'{{"outer": [0, {inner}]}}'.encode()
    if len(set(names)) == len(names):
        assert parse_json(HERE, text) == {"outer": [0, dict.fromkeys(names, 1)]}
    else:
        twice = next(name for at, name in enumerate(names) if name in names[:at])
        assert f"{twice!r} occurs twice" in refused(text)


@pytest.mark.parametrize("depth", [MAX_DEPTH, MAX_DEPTH + 1, 500, 100_000])
@pytest.mark.parametrize(("begin", "end"), [(b"[", b"]"), (b'{"a":', b"}")])
def test_values_are_nested_so_deep_and_no_deeper(depth: int, begin: bytes, end: bytes) -> None:
    text = begin * depth + b"0" + end * depth
    if depth <= MAX_DEPTH:
        assert str(parse_value(HERE, text)).count("0") == 1
    else:
        assert "is not valid JSON" in refused(text)


@pytest.mark.parametrize("digits", [MAX_DIGITS, MAX_DIGITS + 1, 4300, 5000])
@pytest.mark.parametrize("sign", ["", "-"])
def test_whole_numbers_have_so_many_digits_and_no_more(digits: int, sign: str) -> None:
    text = f'{{"a": [{sign}{"9" * (digits - len(sign))}]}}'.encode()
    if digits <= MAX_DIGITS:
        (number,) = parse_json(HERE, text)["a"]
        assert str(number * 8 + number) and float(number)
    else:
        assert f"a number of {digits} digits, more than {MAX_DIGITS}" in refused(text)


@pytest.mark.parametrize(
    "text", [b'"\\ud800"', b'{"\\uDFFF": 1}', b'["\\ud83d", "\\ude00"]', b'"\xed\xa0\x80"']
)
def test_half_a_surrogate_pair_is_no_text(text: bytes) -> None:
    assert "is not valid JSON" in refused(text)
    assert parse_value(HERE, b'"\\ud83d\\ude00 \\\\ud800"') == "😀 \\ud800"


def test_a_document_is_as_large_as_its_bounds_and_no_larger(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(model_files, "MAX_BYTES", 12)
    assert parse_value(HERE, b"[1, 2, 3, 4]") == [1, 2, 3, 4]
    assert "13 bytes of JSON, more than 12" in refused(b"[1, 2, 3, 45]")
    monkeypatch.setattr(model_files, "MAX_VALUES", 4)
    assert parse_value(HERE, b"[1, 2, 3, 4]") == [1, 2, 3, 4]
    assert "more than 4 JSON values" in refused(b"[1,2,3,4,5]")


@pytest.mark.parametrize("text", [b"[]", b"1", b'"a"', b"null"])
def test_a_configuration_is_an_object(tmp_path: Path, text: bytes) -> None:
    path = tmp_path / "config.json"
    assert read_json(path) == {}
    path.write_bytes(text)
    with pytest.raises(CheckpointError, match=r"config\.json: holds no JSON object"):
        read_json(path)
