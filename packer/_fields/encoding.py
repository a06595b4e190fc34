"""Check and parse texts and JSON in UTF-8, and shorten values for messages."""

from __future__ import annotations

import json
import math
import re
import reprlib
from typing import Any, NoReturn


def encoded_text(value: Any) -> bytes:
    if not isinstance(value, str):
        raise ValueError(f"{short(value)} is not text")
    try:
        return value.encode("utf-8")
    except UnicodeEncodeError:
        raise ValueError(f"{short(value)} cannot be encoded as UTF-8") from None


def is_text(value: str) -> bool:
    """Tell whether a text can be encoded in UTF-8; a text with a lone surrogate cannot."""
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def decoded_text(data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"the bytes are not UTF-8: byte {error.start}") from None


def encoded_json(value: Any) -> bytes:
    try:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    _require_shallow(value, text)
    return encoded_text(text)


def _require_shallow(value: Any, text: str) -> None:
    """Raise ValueError if a JSON text is nested so deeply that recursion over its value may fail."""
    if text.count("[") + text.count("{") <= _DEEPEST:
        return
    level = [value]
    for _ in range(_DEEPEST):
        inner = (one.values() if isinstance(one, dict) else one for one in level)
        level = [value for values in inner for value in values if isinstance(value, (list, tuple, dict))]
        if not level:
            return
    raise ValueError(_TOO_DEEP)


def parsed_json(text: str, *, infinite: bool = False) -> Any:
    """Return the value of a JSON text; ValueError if it is not JSON, or has NaN or a number that is too large.

    If `infinite` is True, numbers that are too large become infinite instead: a table writes infinity as ``1e999``.
    """
    try:
        value = (_JSON_OF_LARGE if not infinite and _LARGE.search(text) else _JSON).decode(text)
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    except json.JSONDecodeError as error:
        raise ValueError(f"it is not JSON: {error.msg} at character {error.pos + 1}") from error
    except ValueError as error:
        if "limit" in str(error):  # Python limits the digits of an integer
            raise ValueError("a number has too many digits") from error
        raise
    _require_shallow(value, text)
    return value


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number; write null for a missing value")


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"the number {short(text)} is too large")
    return number


_DEEPEST = 100  # lists and objects within one another
_TOO_DEEP = "it is nested too deeply"
_JSON = json.JSONDecoder(parse_constant=_refuse_constant)
_JSON_OF_LARGE = json.JSONDecoder(parse_constant=_refuse_constant, parse_float=_finite)  # half as fast as without
_LARGE = re.compile(r"[eE]\+?[0-9]{3}|[0-9]{200}")  # a text without a match has no number that is too large for a float


def decoded_json(data: bytes) -> Any:
    value = parsed_json(decoded_text(data))
    if b"\\u" in data:  # the escape may be a lone surrogate, which UTF-8 cannot encode
        encoded_json(value)
    return value


def short(value: Any) -> str:
    """Return a short form of a value for a message, even if lists are nested deeply."""
    text = _REPR.repr(value) if isinstance(value, (list, tuple, dict)) else repr(value)
    return text if len(text) <= 60 else text[:60] + "…"


_REPR = reprlib.Repr()
_REPR.maxlevel, _REPR.maxlist, _REPR.maxtuple, _REPR.maxdict, _REPR.maxstring, _REPR.maxother = 3, 30, 30, 30, 60, 60
