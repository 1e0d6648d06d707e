"""Fetches pip for a Python that has none, from the index that pip is configured for. Standard library only.

Reads the same configuration as pip (environment before the user's file before the system's): find-links, index-url,
extra-index-url, cert. Without any configuration it asks the public index.
"""

from __future__ import annotations

import configparser
import hashlib
import html.parser
import json
import os
import re
import ssl
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LOCK = Path(__file__).resolve().parent.parent / "requirements-pip.lock"
PUBLIC_INDEX = "https://pypi.org/simple"
WHEEL = re.compile(r"pip-(\d+(?:\.\d+)*)-py3-none-any\.whl$")
TIMEOUT_SECONDS = 60
OLDEST = (22, 3)  # the first that installs for Python 3.11


class NotFound(Exception):
    """No pip wheel could be fetched; the message names the places that were tried."""


@dataclass(frozen=True, order=True)
class Found:
    """One wheel that an index offers."""

    version: tuple[int, ...]
    url: str
    sha256: str | None


@dataclass(frozen=True)
class Locked:
    """The one version that may be fetched, and the SHA-256 of its files."""

    version: tuple[int, ...]
    hashes: frozenset[str]


def locked() -> Locked:
    """What the lock file has of pip."""
    text = LOCK.read_text()
    version = re.search(r"^pip==([\d.]+)", text, re.MULTILINE)
    if version is None:
        raise NotFound(f"{LOCK.name} names no version of pip")
    return Locked(tuple(int(part) for part in version[1].split(".")), frozenset(re.findall(r"sha256:([0-9a-f]{64})", text)))


def fetch(directory: Path, wanted: Locked | None) -> Path:
    """Download the wanted pip wheel into `directory`, and verify its checksum. wanted: None takes the newest of the index."""
    config = pip_configuration()
    context = ssl.create_default_context(cafile=config.get("cert")) if config.get("cert") else ssl.create_default_context()
    problems: list[str] = []
    for place in places(config):
        try:
            offers = listing(place, context)
            wheels = sorted(found for found in offers if (found.version == wanted.version if wanted else found.version >= OLDEST))
            if wheels:
                return download(wheels[-1], directory, context, wanted)
            problems.append(f"{show(place)}: no pip {'.'.join(map(str, wanted.version)) if wanted else ''}".rstrip() + " there")
        except (OSError, ValueError) as problem:  # URLError is an OSError
            problems.append(f"{show(place)}: {getattr(problem, 'reason', problem)}")
    raise NotFound("cannot fetch pip, looked at " + "; ".join(problems))


def places(config: dict[str, str]) -> list[str]:
    """Directories and index pages to look at, in order, as URLs."""
    indexes = [] if config.get("no-index") in ("1", "true", "yes", "on") else [config.get("index-url", PUBLIC_INDEX)]
    indexes += config.get("extra-index-url", "").split()
    pages = [f"{index.rstrip('/')}/pip/" for index in indexes]
    return [as_url(place) for place in config.get("find-links", "").split()] + pages


def pip_configuration() -> dict[str, str]:
    """pip's `[global]` and `[install]` options. Environment variables override the files."""
    home = Path(os.environ.get("HOME") or "/")
    user = Path(os.environ.get("XDG_CONFIG_HOME") or home / ".config")
    files = [
        *(Path(directory) / "pip/pip.conf" for directory in os.environ.get("XDG_CONFIG_DIRS", "/etc/xdg").split(":")),
        Path("/etc/pip.conf"),
        home / ".pip/pip.conf",
        user / "pip/pip.conf",
        home / "Library/Application Support/pip/pip.conf",
    ]
    chosen = os.environ.get("PIP_CONFIG_FILE")
    if chosen == os.devnull:
        files = []
    elif chosen:
        files.append(Path(chosen))
    config: dict[str, str] = {}
    for path in files:
        parser = configparser.RawConfigParser()
        if path.is_file():
            parser.read(path, encoding="utf-8")
        for section in ("global", "install"):
            if parser.has_section(section):
                config.update({key.replace("_", "-"): value for key, value in parser.items(section)})
    for name in ("index-url", "extra-index-url", "find-links", "cert", "no-index"):
        value = os.environ.get("PIP_" + name.upper().replace("-", "_"))
        if value:
            config[name] = value
    return config


def listing(place: str, context: ssl.SSLContext) -> list[Found]:
    """The pip wheels on a page (JSON or HTML) or in a directory."""
    directory = Path(urllib.request.url2pathname(urllib.parse.urlsplit(place).path))
    if place.startswith("file:") and directory.is_dir() and not (directory / "index.html").is_file():
        return [Found(version, path.as_uri(), None) for path in directory.iterdir() if (version := wheel_version(path.name))]
    if place.startswith("file:") and directory.is_dir():
        place = (directory / "index.html").as_uri()
    with open_url(place, context, accept="application/vnd.pypi.simple.v1+json, text/html;q=0.5") as answer:
        text, kind, base = answer.read().decode(), answer.headers.get_content_type(), answer.geturl()
    if kind.endswith("json"):
        offers = [(entry["url"], entry.get("hashes", {}).get("sha256")) for entry in json.loads(text)["files"] if not entry.get("yanked")]
    else:
        page = Links()
        page.feed(text)
        offers = [(link, sha256_of(link)) for link in page.found]
    return [
        Found(version, urllib.parse.urljoin(base, urllib.parse.urldefrag(url).url), sha256)
        for url, sha256 in offers
        if (version := wheel_version(urllib.parse.unquote(urllib.parse.urlsplit(url).path)))
    ]


def download(wheel: Found, directory: Path, context: ssl.SSLContext, wanted: Locked | None) -> Path:
    """Download the wheel; returns its path. Raises ValueError when its checksum is not the index's, or not the lock file's."""
    with open_url(wheel.url, context, accept="*/*") as answer:
        body = answer.read()
    digest = hashlib.sha256(body).hexdigest()
    if wheel.sha256 and digest != wheel.sha256:
        raise ValueError("the checksum of pip's wheel does not match")
    if wanted and digest not in wanted.hashes:
        raise ValueError(f"the checksum of pip's wheel is not in {LOCK.name}")
    target = directory / f"pip-{'.'.join(map(str, wheel.version))}-py3-none-any.whl"
    target.write_bytes(body)
    return target


def open_url(url: str, context: ssl.SSLContext, *, accept: str) -> Any:  # urllib's own type differs per scheme
    """urllib's answer; a user and password in the URL become an Authorization header."""
    parts = urllib.parse.urlsplit(url)
    request = urllib.request.Request(  # noqa: S310 - the user's own pip configuration has the URL
        urllib.parse.urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2])), headers={"Accept": accept}
    )
    if parts.username:
        manager = urllib.request.HTTPPasswordMgrWithPriorAuth()
        manager.add_password(
            None, request.full_url, urllib.parse.unquote(parts.username), urllib.parse.unquote(parts.password or ""), is_authenticated=True
        )
        opener = urllib.request.build_opener(urllib.request.HTTPSHandler(context=context), urllib.request.HTTPBasicAuthHandler(manager))
    else:
        opener = urllib.request.build_opener(urllib.request.HTTPSHandler(context=context))
    return opener.open(request, timeout=TIMEOUT_SECONDS)


def as_url(place: str) -> str:
    """A find-links entry as a URL; the entry may be a plain path."""
    return place if "://" in place or place.startswith("file:") else Path(place).expanduser().absolute().as_uri()


def show(place: str) -> str:
    """The place without user and password."""
    parts = urllib.parse.urlsplit(place)
    return urllib.parse.urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def wheel_version(path: str) -> tuple[int, ...] | None:
    """(26, 3) for pip-26.3-py3-none-any.whl; None for anything else, pre-releases included."""
    match = WHEEL.search(path.rsplit("/", 1)[-1])
    return tuple(int(part) for part in match[1].split(".")) if match else None


def sha256_of(link: str) -> str | None:
    """The checksum an index writes behind the #."""
    name, _, value = urllib.parse.urlsplit(link).fragment.partition("=")
    return value if name == "sha256" else None


class Links(html.parser.HTMLParser):
    """Collects the links of a page, yanked files left out."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Called by the parser for each tag."""
        attributes = dict(attrs)
        if tag == "a" and attributes.get("href") and "data-yanked" not in attributes:
            self.found.append(attributes["href"] or "")
