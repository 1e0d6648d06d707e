"""The matrix of Pythons and Djangos: `nox` (`python -m pip install nox`). It runs what this machine has and names what it lacks.

The engine's tests run against the engine's own dependencies, in the newest versions that pip finds for that Python and Django;
then the wheel is installed into an empty environment and used by a blank project.
"""

from __future__ import annotations

import nox

nox.options.error_on_missing_interpreters = False
DJANGOS = {"5.2": ("3.11", "3.12", "3.13", "3.14"), "6.0": ("3.12", "3.13", "3.14")}


@nox.session
@nox.parametrize(("python", "django"), [(python, django) for django, pythons in DJANGOS.items() for python in pythons])
def engine(session: nox.Session, django: str) -> None:
    """The engine's tests, without those of the shop; other arguments go to pytest."""
    session.install("-r", "requirements-embedded.txt", "pytest>=9,<10", "pytest-django", "pytest-timeout", "pytest-xdist", "hypothesis")
    session.install(f"Django~={django}.0")
    session.run("python", "-m", "pytest", *(session.posargs or ["tests/engine", "tests/e2e/test_installed_engine.py"]))
