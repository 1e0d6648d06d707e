"""The benchmark serves no pages."""

from __future__ import annotations

urlpatterns: list[object] = []
