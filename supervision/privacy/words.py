"""The words that name one person, and texts, JSON values and bytes without them."""

from __future__ import annotations

import base64
import binascii
import json
import re
import zlib
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from typing import Any

from supervision.states import Direction, ProcessState, RunState

MASK = "[erased]"
LEAST = 3  # shorter words are found only where they are the whole value
MOST_UNPACKED = 50_000_000
# Parts of a JSON value that hold goods, never people: their texts stay.
GOODS = frozenset({"lines", "sku"})
# Parts of an archived run in which these words are the program's, also where a person has such a name: the history's chain covers
# them.
_STATES = frozenset({"from_state", "to_state", "direction", "process_state"})
_OF_THE_PROGRAM = frozenset({*RunState, *ProcessState, *Direction})
COUNTRY = "country"  # VAT depends on it, and it names no one
_ADDRESS = frozenset({"line1", "postal_code"})
# As people write them in a sentence: with the country's code, or with a leading 0 and in groups. No order's number is one.
_PHONE = r"\+\d[\d ()/.-]{6,}\d|(?<![\w.-])0\d{1,4}[ /]\d[\d /-]{3,}\d"
_BASE64 = re.compile(rb"[A-Za-z0-9+/_-]{16,}={0,2}")


def is_address(value: Any) -> bool:
    """Whether a JSON value is a postal address, as orders have it."""
    return isinstance(value, Mapping) and value.keys() >= _ADDRESS


class Words:
    """The words of one person: `words` are looked for as whole words, in upper or lower case, `whole` only as whole values.

    phones: any number that looks like a telephone's counts, too.
    """

    def __init__(self, words: Iterable[str], whole: Iterable[str] = (), *, phones: bool = False) -> None:
        given = {word.strip() for word in words}
        self.words = frozenset(word for word in given if len(word) >= LEAST)
        self.whole = frozenset(word.lower() for word in {*given, *(word.strip() for word in whole)} if word)
        longest_first = sorted(self.words, key=lambda word: (-len(word), word))
        # A number is not taken out of an amount or a longer number.
        found = "|".join(r"\s+".join(re.escape(part) for part in word.split()) for word in longest_first)
        patterns = [rf"(?<![\w])(?<!\d[.,-])(?:{found})(?![\w])(?![.,-]\d)"] if found else []
        patterns += [_PHONE] if phones else []
        self._pattern = re.compile("|".join(patterns), re.IGNORECASE) if patterns else None

    def __bool__(self) -> bool:
        return bool(self.whole)

    def are_in(self, text: str) -> bool:
        """Whether the text names the person."""
        return text.strip().lower() in self.whole or (self._pattern is not None and self._pattern.search(text) is not None)

    def out_of(self, text: str) -> str:
        """The text with MASK in place of each of the words."""
        if text.strip().lower() in self.whole:
            return MASK
        return self._pattern.sub(MASK, text) if self._pattern is not None else text

    def out_of_json(self, value: Any, fields: Collection[str] = ()) -> Any:
        """The JSON value without the words. Of these fields, at every depth, all texts go, and of addresses all but the country.

        Without fields only the words go: the value may be another person's.
        """
        if isinstance(value, str):
            return self._text(value, fields)
        if isinstance(value, list):
            return [self.out_of_json(part, fields) for part in value]
        if isinstance(value, Mapping):
            whole = bool(fields) and is_address(value)
            return {
                self.out_of(name): part
                if name in GOODS or (name in _STATES and isinstance(part, str) and part in _OF_THE_PROGRAM)
                else emptied(part)
                if (name in fields or whole) and name != COUNTRY
                else self.out_of_json(part, fields)
                for name, part in value.items()
            }
        return value

    def _text(self, text: str, fields: Collection[str]) -> str:
        """A text, which may itself be JSON, such as the body of a message."""
        if text[:1] in "{[":
            try:
                inner = json.loads(text)
            except ValueError:
                return self.out_of(text)
            cleaned = self.out_of_json(inner, fields)
            return text if cleaned == inner else json.dumps(cleaned, ensure_ascii=False)
        return self.out_of(text)

    def are_in_bytes(self, body: bytes) -> bool:
        """Whether these bytes name the person: plain, in UTF-16, escaped as JSON does, in base64, or compressed."""
        return any(self.are_in(text) for text in _readings(body))


def emptied(value: Any) -> Any:
    """The JSON value with MASK in place of each text, but for countries."""
    if isinstance(value, str):
        return MASK if value else value
    if isinstance(value, list):
        return [emptied(part) for part in value]
    if isinstance(value, Mapping):
        return {name: part if name == COUNTRY or name in GOODS else emptied(part) for name, part in value.items()}
    return value


def _readings(body: bytes, depth: int = 0) -> Iterable[str]:
    text = body.decode("utf-8", "replace")
    yield text
    if "\\u" in text:
        yield re.sub(r"\\u([0-9a-fA-F]{4})", lambda found: chr(int(found[1], 16)), text)
    if b"\x00" in body:
        yield from (body.decode(coding, "replace") for coding in ("utf-16-le", "utf-16-be"))
    if "%40" in text:
        yield text.replace("%40", "@")
    if depth < 2:
        for inner in _unpacked(body):
            yield from _readings(inner, depth + 1)


def _unpacked(body: bytes) -> Iterable[bytes]:
    if body[:2] == b"\x1f\x8b":
        with_header: Any = zlib.decompressobj(zlib.MAX_WBITS | 16)
    elif body[:1] == b"\x78":
        with_header = zlib.decompressobj()
    else:
        with_header = None
    if with_header is not None:
        with suppress(zlib.error):
            yield with_header.decompress(body, MOST_UNPACKED)
    for found in _BASE64.findall(body):
        with suppress(binascii.Error):
            yield base64.b64decode(found.replace(b"-", b"+").replace(b"_", b"/") + b"=" * (-len(found) % 4))
