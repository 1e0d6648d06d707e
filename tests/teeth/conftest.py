"""The engine's own fixtures: real commits on real PostgreSQL, one clean store per test."""

from __future__ import annotations

from tests.engine.conftest import engine, store_database, tuned

__all__ = ["engine", "store_database", "tuned"]
