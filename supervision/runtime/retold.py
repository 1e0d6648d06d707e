"""Shows stored English texts in the reader's language.

Agents, supervisors and commands write reasons, errors and titles of incidents into the state store. They write the English text,
so that a history is in one language, however many operators read it. A page shows it through `retold`, which finds
the catalogue's text that it was made from, takes the values out and puts them into the translation. A text that no catalogue has,
such as the words of a remote service or of an operator, stays as it was written.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from django.conf import settings
from django.utils.translation import get_language, to_locale

OURS = Path(__file__).resolve().parent.parent / "locale"
LONGEST, DEEPEST = 2000, 4
_PLACEHOLDER = re.compile(r"%\((\w+)\)[a-z]")


class _Known(NamedTuple):
    """A text of the catalogues. anchor: its longest part that is the same in every text made of it."""

    anchor: str
    pattern: re.Pattern[str]
    translation: str


def retold(text: str) -> str:
    """The text in the active language, as far as the catalogues know it."""
    language = get_language()
    if not text or language is None or to_locale(language).startswith("en"):
        return text
    return _retold(text, to_locale(language), DEEPEST)


@lru_cache(maxsize=4096)
def _retold(text: str, locale: str, depth: int) -> str:
    same, made = _catalogue(locale)
    if text in same:
        return same[text]
    if depth and len(text) <= LONGEST:
        for known in made:
            if known.anchor in text and (match := known.pattern.fullmatch(text)):
                return known.translation % {name: _retold(value, locale, depth - 1) for name, value in match.groupdict().items()}
        first, colon, rest = text.partition(": ")
        if colon and (first in same or _retold(rest, locale, depth - 1) != rest):
            return f"{same.get(first, first)}: {_retold(rest, locale, depth - 1)}"
    return text


@lru_cache(maxsize=8)
def _catalogue(locale: str) -> tuple[dict[str, str], list[_Known]]:
    """The translations of whole texts, and of texts with values, those with the longest anchor first."""
    same: dict[str, str] = {}
    made: list[_Known] = []
    for directory in (OURS, *map(Path, settings.LOCALE_PATHS)):
        path = directory / locale / "LC_MESSAGES" / "django.mo"
        for text, translation in _texts(path.read_bytes()) if path.is_file() else ():
            if not _PLACEHOLDER.search(text):
                same[text] = translation
            elif len(anchor := max(_PLACEHOLDER.split(text)[::2], key=len)) > 5:
                made.append(_Known(anchor.replace("%%", "%"), _pattern(text), _PLACEHOLDER.sub(r"%(\1)s", translation)))
    return same, sorted(made, key=lambda known: -len(known.anchor))


def _pattern(text: str) -> re.Pattern[str]:
    """What every text made of this one looks like. A value that comes twice is the same twice."""
    parts, seen = [], set[str]()
    for index, part in enumerate(_PLACEHOLDER.split(text)):
        if index % 2 == 0:
            parts.append(re.escape(part.replace("%%", "%")))
        else:
            parts.append(f"(?P={part})" if part in seen else f"(?P<{part}>.*?)")
            seen.add(part)
    return re.compile("".join(parts), re.DOTALL)


def _texts(data: bytes) -> Iterator[tuple[str, str]]:
    """The texts of a .mo file with their translations; each plural form with its own."""
    count, texts, translations = struct.unpack_from("<3I", data, 8)
    for number in range(count):
        text, translation = (_at(data, table + 8 * number) for table in (texts, translations))
        if text:
            yield from zip(text.rpartition("\x04")[2].split("\x00"), translation.split("\x00"), strict=False)


def _at(data: bytes, place: int) -> str:
    length, start = struct.unpack_from("<2I", data, place)
    return data[start : start + length].decode()
