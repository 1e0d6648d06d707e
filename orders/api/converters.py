"""The form of ids in paths. A path with any other form matches no view."""

from __future__ import annotations

from django.urls import register_converter
from django.urls.converters import IntConverter, StringConverter


class PublicId(StringConverter):
    """An order's public id: URL-safe base64, as `secrets.token_urlsafe` writes it."""

    regex = "[A-Za-z0-9_-]{16,64}"


class RowId(IntConverter):
    """A row's number, no larger than the column."""

    regex = "[0-9]{1,18}"


class ResourceName(StringConverter):
    """A resource's name, in the form that the console accepts from operators."""

    regex = "[A-Za-z0-9_.-]{1,100}"


register_converter(PublicId, "publicid")
register_converter(ResourceName, "resourcename")
register_converter(RowId, "rowid")
