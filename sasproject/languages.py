"""The languages that the site offers: those whose catalogues are complete."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from django.utils.translation import gettext_lazy as _
from django.utils.translation import to_locale

KNOWN = (("it", _("Italian")), ("pt-br", _("Brazilian Portuguese")))


def offered(*catalogues: Path) -> Sequence[tuple[str, Any]]:
    """English, and each language that has its compiled file in all of these catalogues.

    `scripts/catalogues.py compile` writes that file for a complete language only, and removes that of any other.
    """
    complete = [one for one in KNOWN if all((each / to_locale(one[0]) / "LC_MESSAGES" / "django.mo").is_file() for each in catalogues)]
    return [("en", _("English")), *complete]
