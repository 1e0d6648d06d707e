"""Where mutants are tried: copies of the tree, one database server for all of them, one pytest at a time in each copy."""

from __future__ import annotations

import dataclasses
import os
import shutil
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import psycopg
from psycopg import sql

from tests.mutants.mutation import ROOT

LEFT_OUT = shutil.ignore_patterns(".git", ".venv*", "var", "staticfiles", "node_modules", ".*_cache", ".hypothesis", "results")
MOST_SECONDS = 300  # for a pytest of few tests; a test has a limit of its own, and a mutant that hangs is caught by it
MOST_SECONDS_EACH = 60  # for one of many


@dataclasses.dataclass(frozen=True)
class Ran:
    """What pytest said: how many tests passed, failed, could not be set up, and were left out."""

    passed: frozenset[str]
    failed: frozenset[str]
    errors: frozenset[str]
    skipped: frozenset[str]
    seconds: float
    output: str

    @property
    def everything(self) -> frozenset[str]:
        """The names of all tests that it knew of."""
        return self.passed | self.failed | self.errors | self.skipped


class Bench:
    """A copy of the tree with a database of its own, in which one test after another runs."""

    def __init__(self, directory: Path, server: str, template: str, name: str) -> None:
        self.root = directory / name
        self._report = directory / f"{name}.xml"
        self._server, self._template = server, template
        self._database = f"{template}_{name}"
        shutil.copytree(ROOT, self.root, ignore=LEFT_OUT, symlinks=True)

    def run(self, nodes: Sequence[str], *more: str, migrate: bool = False) -> Ran:
        """Run these tests on a fresh database. migrate: its tables are made anew, because the mutation may be in them."""
        # pytest-django's database; and the one that the settings name, which the engine's tests take if it has tables.
        for name in (f"test_{self._database}", self._database):
            anew(self._server, name, None if migrate else self._template)
        more = (*more, "--create-db" if migrate else "--reuse-db")
        self._report.unlink(missing_ok=True)
        command = [sys.executable, "-m", "pytest", *nodes, "-q", "-m", "", "-p", "no:cacheprovider", "--tb=short"]
        env = {**os.environ, "DATABASE_URL": at(self._server, self._database)}
        env.pop("PYTHONDONTWRITEBYTECODE", None)
        for name in [name for name in env if name.startswith(("PYTEST_", "COV_"))]:
            env.pop(name)  # of the session that may have started us
        began = time.monotonic()
        most = max(MOST_SECONDS, MOST_SECONDS_EACH * len(nodes))
        output = _run([*command, f"--junitxml={self._report}", *more], self.root, env, most)
        return read_report(self._report, time.monotonic() - began, output)


def _run(command: list[str], root: Path, env: dict[str, str], most: float) -> str:
    """What it printed. Whatever it started ends with it."""
    process = subprocess.Popen(
        command, cwd=root, env=env, text=True, errors="replace", start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    try:
        output, _ = process.communicate(timeout=most)
    except subprocess.TimeoutExpired:
        _end(process)
        output = f"pytest did not end within {most} s"
    finally:
        _end(process)
    return output


def _end(process: subprocess.Popen[str]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(10)


def read_report(path: Path, seconds: float, output: str) -> Ran:
    """What pytest wrote down about each test."""
    found: dict[str, set[str]] = {"passed": set(), "failed": set(), "errors": set(), "skipped": set()}
    cases = ElementTree.parse(path).iter("testcase") if path.is_file() else ()  # noqa: S314 - written by our own pytest
    for case in cases:
        kinds = {child.tag for child in case}
        ended = next((name for tag, name in (("failure", "failed"), ("error", "errors"), ("skipped", "skipped")) if tag in kinds), "passed")
        found[ended].add(str(case.get("name")).split("[", 1)[0])
    return Ran(**{name: frozenset(names) for name, names in found.items()}, seconds=seconds, output=output)


# ------------------------------------------------------------------------------------------------------ databases


def at(server: str, database: str) -> str:
    """The URL of another database of the same server."""
    return urlunsplit(urlsplit(server)._replace(path=f"/{database}"))


def anew(server: str, database: str, template: str | None = None) -> None:
    """Make this database, also where there is one; where a `template` is named, as a copy of it."""
    drop(server, database)
    statement = sql.SQL("CREATE DATABASE {}").format(sql.Identifier(database))
    if template is not None:
        statement += sql.SQL(" TEMPLATE {}").format(sql.Identifier(template))
    _execute(server, statement)


def names(template: str, jobs: int) -> Iterator[str]:
    """Every database that so many benches may have made."""
    yield template
    for number in range(jobs):
        yield from (f"{template}_bench{number}", f"test_{template}_bench{number}")


def drop(server: str, database: str) -> None:
    """Away with it, whoever is connected."""
    _execute(server, sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(database)))


def _execute(server: str, statement: sql.Composable) -> None:
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(statement)


def migrate(root: Path, server: str, database: str) -> None:
    """Give this database its tables."""
    anew(server, database)
    env = {**os.environ, "DATABASE_URL": at(server, database), "SECRET_KEY": "for-mutants-only-and-long-enough-to-pass-for-one"}
    subprocess.run([sys.executable, "manage.py", "migrate", "--verbosity=0"], cwd=root, env=env, check=True)
