"""The engine's own fixtures, and the simulation's: real commits on real PostgreSQL, one clean store per test."""

from __future__ import annotations

from tests.engine.conftest import engine, store_database, tuned
from tests.simulation.conftest import simulated

__all__ = ["engine", "simulated", "store_database", "tuned"]
