"""The application's configuration."""

from __future__ import annotations

from django.apps import AppConfig


class Usual(AppConfig):
    """Orders and their steps."""

    name = "benchmarks.peers.usual"
    label = "usual"
