"""Reads the fields of requests: multipart forms as OpenAI's client writes them, and JSON.

A list is a field that is repeated as `name[]`, an object has fields such as `name[key]`; curl users
write JSON in one field. Options of oscine are fields of their names; what their values may be is
said by their records alone.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from types import NoneType
from typing import Any, BinaryIO, get_args, get_origin

from python_multipart.multipart import parse_options_header
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import Request

from oscine.errors import UsageError
from oscine.options import Option, options_of
from oscine.options.checks import abbreviate
from oscine.server.errors import ApiError, invalid

MAX_FIELDS, MAX_FILES = 256, 4
MAX_TEXT_BYTES = 8 << 20  # of the fields of a form together
CHARSETS = ("utf-8", "utf8", "us-ascii")  # of a form
MAX_JSON_BYTES = 32 << 20  # a reference recording is in it as base64
_KEY = re.compile(r"([A-Za-z_][A-Za-z0-9_]{0,63})((?:\[[A-Za-z0-9_]{0,64}\])?)")
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")  # an escape, which may be one of a pair
_BOOLEANS = {"true": True, "false": False, "1": True, "0": False}
_NONE = ("none", "null")


class Fields:
    """The fields of a request by name; each is taken once, and the rest are options.

    `values`: text, lists of text and objects of text of a form; any values of JSON. `files`: the
    uploaded files by field. Every method raises ApiError, which names the field.
    """

    def __init__(self, values: Mapping[str, Any], files: Mapping[str, BinaryIO] | None = None):
        self._values = {name: value for name, value in values.items() if value is not None}
        self.files = dict(files or {})
        self._known: set[str] = set()  # the names that were asked for

    def has(self, name: str) -> bool:
        """Whether a field is given and not taken yet."""
        self._known.add(name)
        return name in self._values

    def take(self, name: str, default: Any = None) -> Any:
        """The value of a field in any form."""
        self._known.add(name)
        return self._values.pop(name, default)

    def text(self, name: str, default: str | None = None) -> str | None:
        """A field of text."""
        value = self.take(name, default)
        if value is not None and not isinstance(value, str):
            raise invalid(name, f"{name} must be one text, not {abbreviate(value)}")
        return value

    def required_text(self, name: str) -> str:
        """A field of text that must be there."""
        value = self.text(name)
        if value is None or not value.strip():
            raise invalid(name, f"{name} is required", "missing_required_parameter")
        return value

    def choice(self, name: str, choices: Sequence[str], default: str) -> str:
        """A field that is one of several words."""
        value = self.text(name, default)
        if value not in choices:
            known = ", ".join(choices)
            raise invalid(
                name, f"{name} {abbreviate(value)} is not one of {known}", "unsupported_value"
            )
        return str(value)

    def flag(self, name: str, default: bool) -> bool:
        """A field that is true or false."""
        value = self.take(name, default)
        value = _BOOLEANS.get(value.lower(), value) if isinstance(value, str) else value
        if not isinstance(value, bool):
            raise invalid(name, f"{name} must be true or false, not {abbreviate(value)}")
        return value

    def number(self, name: str, least: float, most: float) -> float | None:
        """A field that is a number from `least` to `most`; None if it is not given."""
        value = self.take(name)
        if value is None:
            return None
        try:
            found = float("nan") if isinstance(value, bool) else float(value)
        except (TypeError, ValueError, OverflowError):
            found = float("nan")
        if not least <= found <= most:
            must = f"be a number from {least:g} to {most:g}"
            raise invalid(name, f"{name} must {must}, not {abbreviate(value)}")
        return found

    def texts(self, name: str) -> list[str]:
        """A list of text; one text may hold several as JSON or with commas between."""
        value = self.take(name, [])
        if isinstance(value, str):
            decoded = decode_json(value) if value.lstrip().startswith("[") else None
            value = decoded if isinstance(decoded, list) else value.split(",")
        if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
            raise invalid(name, f"{name} must be a list of text, not {abbreviate(value)}")
        return [each.strip() for each in value if each.strip()]

    def mapping(self, name: str) -> str | dict[str, Any] | None:
        """An object, also as JSON in a text; or another text; None if it is not given."""
        value = self.take(name)
        if isinstance(value, str) and value.lstrip().startswith("{"):
            value = decode_json(value)
        if value is not None and not isinstance(value, str | dict):
            raise invalid(name, f"{name} must be text or an object, not {abbreviate(value)}")
        return value

    def options(self, kind: type[Any], *names: str) -> dict[str, Any]:
        """The options of a class that are given, all or the named ones, as its checks take them."""
        records = options_of(kind)
        wanted = [name for name in names or records if self.has(name)]
        return {name: to_value(records[name], self.take(name)) for name in wanted}

    def file(self, name: str) -> BinaryIO:
        """An uploaded file that must be there, and the only one."""
        for other in self.files:
            if other != name:
                raise invalid(other, f"{other} is not a file of this route", "unknown_parameter")
        if name not in self.files:
            raise invalid(name, f"{name} is required", "missing_required_parameter")
        return self.files[name]

    def close(self) -> None:
        """Close the uploaded files."""
        for file in self.files.values():
            file.close()

    def rest(self) -> dict[str, Any]:
        """What was not taken, by name. Raises ApiError for what is nearly the name of a field."""
        taken, self._values = self._values, {}
        for name in taken:
            if near := get_close_matches(name, self._known, 1):
                message = f"unknown option {name}; did you mean {near[0]}?"
                raise invalid(name, message, "unknown_parameter")
        return taken


def to_value(record: Option, given: Any) -> Any:
    """A field's value as the check of an option takes it: text of a form as number, flag or None.

    Values of JSON have their types already. Raises ApiError for a list where the option has one
    value.
    """
    kinds = get_args(record.type) or (record.type,)
    if isinstance(given, list | dict) and get_origin(record.type) is not tuple:
        name = record.name
        raise invalid(name, f"{name} must be one value, not {abbreviate(given)}")
    if not isinstance(given, str):
        return given
    word = given.strip().lower()
    if word in _NONE and NoneType in kinds and str not in kinds:
        return None
    if bool in kinds and word in _BOOLEANS:
        return _BOOLEANS[word]
    if str in kinds or get_origin(record.type) is tuple:
        return given
    for number in (int, float):
        if number in kinds:
            try:
                return number(given)
            except ValueError:
                continue
    return given


def decode_json(text: str | bytes | bytearray) -> Any:
    """JSON's value; None for what is not JSON, or has half of a surrogate pair, which is no text:
    nothing could be answered about it."""
    try:
        text = text if isinstance(text, str) else text.decode("utf-8-sig")
        value = json.loads(text)
        if _SURROGATE.search(text):
            json.dumps(value, ensure_ascii=False).encode()
        return value
    except (ValueError, RecursionError):
        return None


class FormParser(MultiPartParser):
    """A parser that bounds the text of all fields together, which it has in memory."""

    _text_bytes = 0

    def on_part_data(self, data: bytes, start: int, end: int) -> None:
        """Take bytes of a field or a file. Raises MultiPartException for too many."""
        if self._current_part.file is None:
            self._text_bytes += end - start
            if self._text_bytes > MAX_TEXT_BYTES:
                raise MultiPartException(f"its fields have more than {MAX_TEXT_BYTES} bytes")
        super().on_part_data(data, start, end)


async def read_form(request: Request) -> Fields:
    """The fields and files of a multipart form; whoever takes them closes the files.

    Raises ApiError for another type of body, a damaged form, and one beyond the limits of fields.
    """
    kind, parameters = parse_options_header(request.headers.get("content-type", ""))
    media, charset = (
        each.decode("latin-1").lower() for each in (kind, parameters.get(b"charset", b"utf-8"))
    )
    if media != "multipart/form-data":
        raise ApiError(415, f"the body must be multipart/form-data, not {media[:100] or 'untyped'}")
    if charset not in CHARSETS:  # Python has some that take hours, or make what is no text
        raise ApiError(400, f"the form must be UTF-8, not {charset[:100]!r}", "invalid_form")
    parser = FormParser(
        request.headers,
        request.stream(),
        max_files=MAX_FILES,
        max_fields=MAX_FIELDS,
        max_part_size=MAX_TEXT_BYTES,
    )
    try:
        form = await parser.parse()
        return fields_of_form(form.multi_items())
    except BaseException as error:
        for file in getattr(parser, "_files_to_close_on_error", ()):
            file.close()
        if isinstance(error, MultiPartException):
            raise ApiError(
                400, f"the form cannot be read: {error.message}", "invalid_form"
            ) from None
        if isinstance(error, ValueError | LookupError):  # of its syntax and character set
            raise ApiError(400, "the form cannot be read", "invalid_form") from None
        raise


def fields_of_form(items: Sequence[tuple[str, Any]]) -> Fields:
    """The fields of a form's items: text, or uploads with a `file`. Raises ApiError."""
    values: dict[str, Any] = {}
    files: dict[str, BinaryIO] = {}
    for key, value in items:
        match = _KEY.fullmatch(key)
        if match is None:
            raise invalid(key[:64], f"{key[:64]!r} is not the name of a field", "unknown_parameter")
        name, index = match[1], match[2][1:-1]
        if not isinstance(value, str):
            if name in files or match[2]:
                raise invalid(name, f"{name} must be one file")
            files[name] = value.file
            continue
        held = values.get(name)
        if not match[2]:
            _refuse_second(name, held)
            values[name] = value
        elif index == "" or index.isdecimal():
            _refuse_second(name, None if isinstance(held, list) else held)
            values.setdefault(name, []).append(value)
        else:
            _refuse_second(name, None if isinstance(held, dict) else held)
            values.setdefault(name, {})[index] = value
    return Fields(values, files)


def _refuse_second(name: str, held: Any) -> None:
    if held is not None:
        raise invalid(name, f"{name} is given twice")


async def read_json(request: Request) -> Fields:
    """The fields of a JSON object. Raises ApiError."""
    media = request.headers.get("content-type", "application/json").partition(";")[0].strip()
    if media.lower() != "application/json":
        raise ApiError(415, f"the body must be application/json, not {media[:100]}")
    body = bytearray()  # bytes would be copied for each of its parts, which a client makes small
    async for part in request.stream():
        body += part
        if len(body) > MAX_JSON_BYTES:
            raise ApiError(413, f"JSON may have {MAX_JSON_BYTES} bytes here", "file_too_large")
    value = decode_json(body)
    if not isinstance(value, dict):
        raise ApiError(400, "the body is not a JSON object", "invalid_json")
    return Fields(value)


def checked(kind: Any, options: Mapping[str, Any]) -> Any:
    """The options of a class, checked. Raises UsageError."""
    try:
        return kind.of(**options)
    except TypeError as error:  # a name that is not a keyword of Python, such as self
        raise UsageError(f"unknown option in {', '.join(options)}") from error
