"""Sphinx's configuration: `./run docs` builds the site, from the Markdown files where they are and from the docstrings.

Every warning is an error: a link to a page or an anchor that does not exist, and a page that is in no part of the navigation.
"""

from __future__ import annotations

import os
import re
import sys
import tomllib
from pathlib import Path

import django

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "sasproject.settings")
os.environ.setdefault("DEBUG", "1")
django.setup()  # the documented modules import models

project = "SAS Supervision"
author = "the authors"
release = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
extensions = ["myst_parser", "sphinx.ext.autodoc"]
# The source directory is the root of the repository, so that links between all these files work in both places.
include_patterns = ["README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "deploy/README.md", "docs/*.md", "docs/adr/*.md"]
exclude_patterns = [".*", "build", "var"]  # not even searched
root_doc = "docs/index"
html_theme = "furo"
html_title = f"{project} {release}"
html_extra_path = ["site"]  # index.html, which leads to root_doc
html_static_path, html_css_files = ["static"], ["tables.css"]
html_copy_source = False
html_show_sphinx = False
suppress_warnings = ["misc.highlighting_failure"]  # drawings in Mermaid are shown as their text
myst_heading_anchors = 4  # the anchors that a forge gives to headings
default_role = "code"  # docstrings mark code as Markdown does
autodoc_member_order = "bysource"
autodoc_typehints = "none"
autodoc_default_options = {"members": True}
python_use_unqualified_type_names = True


def markdown(_app: object, _what: str, _name: str, _of: object, _options: object, lines: list[str]) -> None:
    """Docstrings are prose: begin a paragraph where a line explains arguments (`name, name: text`), and show what is indented as it is."""
    text: list[str] = []
    literal = False
    for line in lines:
        begins = not text or not text[-1]
        if line.startswith(" ") and (begins or literal):
            text += [line] if literal else ["::", "", line]
            literal = True
            continue
        literal = literal and not line
        explained = re.match(r"(\w+(?:, \w+)*): (?=\S)", line)
        if explained:
            line = ", ".join(f"``{name}``" for name in explained[1].split(", ")) + line[explained.end(1) :]
            text += [] if begins else [""]
        text.append(line.strip())  # a line that goes on may be indented
    lines[:] = text


def without_fields(_app: object, _what: str, _name: str, member: object, skip: bool, _options: object) -> bool:
    """Leave out the fields of named tuples: Python documents them as "Alias for field number 0", and the signature shows them."""
    return skip or (getattr(member, "__doc__", None) or "").startswith("Alias for field number")


def setup(app: object) -> None:
    """Change docstrings on their way into the pages."""
    app.connect("autodoc-skip-member", without_fields)
    app.connect("autodoc-process-docstring", markdown)
