"""A mutation, and how it is applied to a tree."""

from __future__ import annotations

import dataclasses
import functools
import os
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
DEFINITION = re.compile(r"^(?:async )?def (test_\w+)", re.MULTILINE)


class MovedOn(Exception):
    """The product changed: the mutation's text is gone or no longer unique."""


@dataclasses.dataclass(frozen=True)
class Mutation:
    """A bug in one place.

    row: the requirement that it breaks. bug: its title, as in docs/requirements.md. file: the path from the root. old: the
    exact text to replace; the file contains it once. new: the replacement. caught_by: the test that has to fail; the
    requirement's row names it.
    """

    row: str
    bug: str
    file: str
    old: str
    new: str
    caught_by: str

    def mutated(self, root: Path) -> str:
        """The file's text with the mutation. Raises MovedOn."""
        try:
            text = (root / self.file).read_text()
        except FileNotFoundError:
            raise MovedOn(f"{self.file} does not exist") from None
        if (count := text.count(self.old)) != 1:
            raise MovedOn(f"{self.file} has this text {count} times, not once: {self.old!r}")
        if self.old == self.new:
            raise MovedOn(f"{self.file}: the mutation changes nothing")
        return text.replace(self.old, self.new)


@dataclasses.dataclass(frozen=True)
class Original:
    """A file as it was before a mutation."""

    path: Path
    text: str
    modified_ns: int

    def put_back(self) -> None:
        """Undo the mutation."""
        self.path.write_text(self.text)
        os.utime(self.path, ns=(self.modified_ns, self.modified_ns))


def apply(mutation: Mutation, root: Path, number: int) -> Original:
    """Write the mutation into the tree at `root`; `number` is unique for each mutation. Raises MovedOn.

    Python recognises a compiled file by the length and the modification second of its source. Two mutations may have both
    in common, so the time is set to a different second for each.
    """
    text, path = mutation.mutated(root), root / mutation.file
    original = Original(path, path.read_text(), path.stat().st_mtime_ns)
    path.write_text(text)
    second = original.modified_ns // 10**9 - 10 - number
    os.utime(path, (second, second))
    return original


@functools.cache
def places_of_tests() -> dict[str, list[str]]:
    """The node ids of each test, without parameters."""
    places: dict[str, list[str]] = {}
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        for name in DEFINITION.findall(path.read_text()):
            places.setdefault(name, []).append(f"{path.relative_to(ROOT)}::{name}")
    return places
