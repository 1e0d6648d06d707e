"""Reads a site as a visitor does: follows every link, and finds what is left in English on its pages."""

from __future__ import annotations

import gettext
import re
from collections import deque
from collections.abc import Iterator
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import urldefrag, urljoin, urlsplit

import django
from django.apps import apps
from django.conf import settings
from django.test import Client
from django.utils.translation import gettext as translated
from django.utils.translation import override, to_locale

SPOKEN = ("title", "placeholder", "aria-label", "alt")
UNSEEN = frozenset({"script", "style", "template", "code", "pre", "noscript"})
VOID = frozenset({"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"})
# Words that English sentences have and Italian and Portuguese ones have not.
ENGLISH = re.compile(
    r"\b(the|and|are|was|were|with|this|that|these|not|been|has|have|which|from|they|its|is|of|you|your|by|when|yet|will|cannot)\b"
)


class Page(HTMLParser):
    """The links of a page, and the texts that a reader sees or hears."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.texts: list[str] = []
        self._hidden: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        if tag == "a" and values.get("href"):
            self.links.append(str(values["href"]))
        spoken = [values.get(name) for name in SPOKEN]
        if tag == "input" and values.get("type") in ("submit", "button"):
            spoken.append(values.get("value"))
        if not self._hidden:
            self.texts += [text for text in spoken if text]
        # Data is marked so: `translate="no"`, or another language than the page's.
        foreign = values.get("translate") == "no" or (tag != "html" and "lang" in values)
        icon = "material-symbols-outlined" in str(values.get("class"))
        if tag not in VOID and (tag in UNSEEN or foreign or icon or self._hidden):
            self._hidden.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag in self._hidden:
            while self._hidden.pop() != tag:
                pass

    def handle_data(self, data: str) -> None:
        if not self._hidden and data.strip():
            self.texts.append(data)

    def said(self) -> Iterator[str]:
        """Every text, with single spaces."""
        for text in self.texts:
            if words := " ".join(text.split()):
                yield words


@cache
def catalogue() -> dict[str, str]:
    """The English texts of Django's, our and other applications' catalogues, each with its Italian one."""
    paths = [Path(django.__file__).parent / "conf" / "locale", *(Path(one.path) / "locale" for one in apps.get_app_configs())]
    found: dict[str, str] = {}
    for path in [*paths, *map(Path, settings.LOCALE_PATHS)]:
        file = path / "it" / "LC_MESSAGES" / "django.mo"
        if file.is_file():
            with file.open("rb") as stream:
                texts = gettext.GNUTranslations(stream)._catalog  # type: ignore[attr-defined]
            found |= {key[0] if isinstance(key, tuple) else key: text for key, text in texts.items()}
    return found


def english(text: str, language: str) -> bool:
    """Whether the text is one that has a translation, or an English sentence."""
    with override(language):
        if text in catalogue() and translated(text) != text:
            return text not in {translated(other) for other in catalogue()}  # "Code" is Italian, too
    return bool(ENGLISH.search(text))


def crawl(client: Client, language: str, *starts: str, most: int = 400) -> Iterator[tuple[str, Page, str]]:
    """Every page that links lead to from these, each path once: its path, itself, its html."""
    seen, queue = set(starts), deque(starts)
    locale = to_locale(language).replace("_", "-")
    while queue and most:
        path = queue.popleft()
        answer = client.get(path, headers={"Accept-Language": locale})
        if answer.status_code in (301, 302):
            found = [answer.headers["Location"]]
        elif not answer.headers.get("Content-Type", "").startswith("text/html"):
            continue
        else:
            assert answer.status_code in (200, 404), (path, answer.status_code)
            most -= 1
            page = Page(answer.content.decode())
            yield path, page, answer.content.decode()
            found = page.links
        for link in found:
            address = urlsplit(urldefrag(urljoin(f"http://testserver{path}", link))[0])
            wanted = address.path
            if address.netloc == "testserver" and wanted not in seen and not wanted.startswith(("/static/", "/api/", "/hooks/")):
                seen.add(wanted)
                queue.append(wanted)
