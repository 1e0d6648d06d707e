"""Passwords that an attacker tries first: Django's list of common ones, and those that are little more than words of this shop."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.contrib.auth.password_validation import CommonPasswordValidator
from django.core.exceptions import ValidationError

# docs/security.md lists them.
WORDS = (
    "shop", "order", "orders", "harbour", "goods", "supervision", "operator", "viewer", "customer", "client", "console", "admin",
    "password", "welcome",
)  # fmt: skip
FURTHER_LETTERS = 4  # a password with a word of the shop needs so many letters besides


class CommonOrOurs(CommonPasswordValidator):
    """Refuses both, with Django's own message."""

    def validate(self, password: str, user: Any = None) -> None:
        """Raise ValidationError for a password that is easy to guess here."""
        super().validate(password, user)
        letters = rest = re.sub(r"[^a-z]", "", password.lower())
        host = re.findall(r"[a-z]{3,}", urlsplit(settings.PUBLIC_URL).hostname or "")
        for word in sorted((*WORDS, *host), key=len, reverse=True):
            rest = rest.replace(word, "")
        if rest != letters and len(rest) < FURTHER_LETTERS:
            raise ValidationError(self.get_error_message(), code="password_too_common")
