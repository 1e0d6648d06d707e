"""What a mutation is, and how it gets into a tree."""

from __future__ import annotations

import dataclasses
import os
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
DEFINITION = re.compile(r"^(?:async )?def (test_\w+)", re.MULTILINE)


class MovedOn(Exception):
    """The product changed: a mutation's text is no longer there, or no longer unique."""


@dataclasses.dataclass(frozen=True)
class Mutation:
    """A bug in one place.

    row: the requirement that it breaks. bug: what is wrong, as docs/requirements.md tells it. file: where, from the
    root. old: the exact text that is replaced; it stands in the file once. new: what replaces it. caught_by: the test,
    named in the requirement's row, that has to fail.
    """

    row: str
    bug: str
    file: str
    old: str
    new: str
    caught_by: str

    def mutated(self, root: Path) -> str:
        """The file's text with the bug. Raises MovedOn."""
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
    """Write the mutation into the tree at `root`; `number` is another one for each mutation. Raises MovedOn.

    Python knows a compiled file by its source's length and second: both may be those of another mutation, so the time
    is set, to another second for each.
    """
    text, path = mutation.mutated(root), root / mutation.file
    original = Original(path, path.read_text(), path.stat().st_mtime_ns)
    path.write_text(text)
    second = original.modified_ns // 10**9 - 10 - number
    os.utime(path, (second, second))
    return original


def places_of_tests(root: Path = ROOT) -> dict[str, list[str]]:
    """Where each test is defined: its node ids, without parameters."""
    places: dict[str, list[str]] = {}
    for path in sorted((root / "tests").rglob("test_*.py")):
        for name in DEFINITION.findall(path.read_text()):
            places.setdefault(name, []).append(f"{path.relative_to(root)}::{name}")
    return places
