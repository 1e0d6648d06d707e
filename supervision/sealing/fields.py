"""The field of a model that holds a secret: text in Python, sealed in the database."""

from __future__ import annotations

from typing import Any

from django.db import models

from supervision.sealing.texts import Unopened, Unreadable, opened, seal


class SealedText(models.TextField):
    """A secret. Python sees it in plain text, the database sealed under the first key of `supervision.sealing.texts`.

    A row that no key opens gives an `Unopened`, so that it can be listed, changed and saved; pass the value through
    `texts.usable` before its use. SQL of ours, and a migration, see the stored text. No search compares it: only `isnull` is a lookup.
    """

    def deconstruct(self) -> Any:
        """A migration knows it as the text column that it is."""
        name, _path, args, kwargs = super().deconstruct()
        return name, "django.db.models.TextField", args, kwargs

    def from_db_value(self, value: str | None, _expression: Any, _connection: Any) -> str | None:
        """The secret, or an `Unopened`."""
        if value is None:
            return None
        try:
            return opened(value)
        except Unreadable:
            return Unopened(value)

    def get_prep_value(self, value: Any) -> Any:
        """The stored text."""
        value = super().get_prep_value(value)
        return value if not isinstance(value, str) or isinstance(value, Unopened) else seal(value)

    def get_lookup(self, lookup_name: str) -> Any:
        """No lookup but `isnull`: each sealed text is another one."""
        return super().get_lookup(lookup_name) if lookup_name == "isnull" else None
