"""The matrix of Pythons and Djangos: `nox` (`python -m pip install nox`). It runs what this machine has and names what it lacks.

The tests run against the newest versions that pip finds for that Python and Django, the last of them with a wheel of the engine
in an empty environment, used by a blank project.
"""

from __future__ import annotations

import nox

nox.options.error_on_missing_interpreters = False
DJANGOS = {"5.2": ("3.11", "3.12", "3.13", "3.14"), "6.0": ("3.12", "3.13", "3.14")}
TOOLS = ("pytest>=9,<10", "pytest-django", "pytest-timeout", "pytest-xdist", "hypothesis", "schemathesis>=4.32,<5")
FOLDERS = ("engine", "simulation", "api", "commands", "console", "orders", "e2e/test_installed_engine.py")
TESTS = ("-n", "2", "--dist", "loadfile", *(f"tests/{name}" for name in FOLDERS))


@nox.session
@nox.parametrize(("python", "django"), [(python, django) for django, pythons in DJANGOS.items() for python in pythons])
def engine(session: nox.Session, django: str) -> None:
    """The tests of the engine and of the shop in process; other arguments go to pytest."""
    session.install("-r", "requirements-embedded.txt", *TOOLS, f"Django~={django}.0")
    session.run("python", "-m", "pytest", *(session.posargs or TESTS))
