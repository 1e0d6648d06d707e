"""docs/security.md: each requirement of ASVS 5.0.0, levels 1 and 2, has one row with tests that exist, or with a reason."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs" / "security.md").read_text()
ROWS = re.findall(r"^\| V(\d+\.\d+\.\d+) \| (\d) \| (.*) \| (.*) \|$", PAGE, re.MULTILINE)
# The levels of the requirements of each section, in their order; ids are never given twice, so this list stays as it is.
LEVELS = """
1.1:22 1.2:1111122223 1.3:112222222223 1.4:222 1.5:123 2.1:122 2.2:112 2.3:12223 2.4:23 3.1:3 3.2:113 3.3:12223 3.4:11222233
3.5:11122333 3.6:3 3.7:22333 4.1:12233 4.2:23333 4.3:22 4.4:1222 5.1:2 5.2:112333 5.3:113 5.4:222 6.1:122 6.2:111111112222
6.3:11223333 6.4:112233 6.5:22222333 6.6:2223 6.7:33 6.8:2222 7.1:222 7.2:1111 7.3:22 7.4:11222 7.5:223 7.6:22 8.1:1233 8.2:1123
8.3:133 8.4:23 9.1:111 9.2:1222 10.1:22 10.2:223 10.3:22223 10.4:1111122222233333 10.5:22222 10.6:22 10.7:222 11.1:2233 11.2:22233
11.3:11233 11.4:1222 11.5:23 11.6:23 11.7:33 12.1:12233 12.2:11 12.3:22223 13.1:2333 13.2:222223 13.3:2233 13.4:1222233 14.1:22
14.2:12223333 14.3:122 15.1:12233 15.2:12233 15.3:1222222 15.4:3333 16.1:2 16.2:22222 16.3:2222 16.4:222 16.5:2223 17.1:23
17.2:22223333 17.3:22
"""
ASKED = {
    (f"{section}.{number}", level)
    for section, levels in (part.split(":") for part in LEVELS.split())
    for number, level in enumerate(levels, start=1)
    if level in "12"
}
KNOWN = {name for path in (ROOT / "tests").rglob("test_*.py") for name in re.findall(r"^(?:async )?def (test_\w+)", path.read_text(), re.M)}
REASONS = ("Written: ", "Installation: ", "Library: ", "Does not apply", "Not met")
REASON_CHARACTERS = 20


def test_every_requirement_of_the_two_levels_has_one_row() -> None:
    assert len(ASKED) == 253, "70 of level 1 and 183 of level 2"
    assert Counter((asked, level) for asked, level, _words, _held in ROWS) == Counter(ASKED)
    assert len(re.findall(r"^\| V\d", PAGE, re.MULTILINE)) == len(ROWS), "a row does not have four cells"


def test_each_row_names_tests_that_exist_or_says_why_not() -> None:
    assert {asked: wrong for asked, _level, words, held in ROWS if (wrong := _wrong_with(words, held))} == {}


def _wrong_with(words: str, held: str) -> str | None:
    """What is wrong with a row."""
    if not words.strip():
        return "it has no words"
    if unknown := [name for name in re.findall(r"`(test_\w+)`", held) if name not in KNOWN]:
        return f"unknown: {', '.join(unknown)}"
    if held.startswith("Written: "):
        return None if re.search(r"\]\([\w/.]*#[\w-]+\)", held) else "where is it written?"
    if held.startswith(REASONS):
        return None if len(held.partition(":")[2].strip()) >= REASON_CHARACTERS else "why?"
    return None if held.startswith("`test_") else "neither a test nor a reason"


def test_each_place_that_the_page_names_is_there() -> None:
    """Headings are named as the site names them: in lower case, with dashes."""
    for document, anchor in re.findall(r"\]\(([\w/.]*)#([\w-]+)\)", PAGE):
        text = (ROOT / "docs" / document).read_text() if document else PAGE
        headings = {re.sub(r"[^\w -]", "", title.lower()).strip().replace(" ", "-") for title in re.findall(r"^#+ (.*)$", text, re.M)}
        assert anchor in headings, f"{document}#{anchor}"
