"""The benchmark's own application: the engine without the shop."""

from __future__ import annotations

from django.apps import AppConfig


class NoopConfig(AppConfig):
    """Four steps that do nothing."""

    name = "benchmarks.noop"
