"""Places to try mutants: copies of the tree, one database server for all, one pytest at a time in each copy."""

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
MOST_SECONDS = 300  # for a pytest of few tests; each test has its own time limit, which catches a mutant that hangs
MOST_SECONDS_EACH = 60  # per test, for a pytest of many tests


@dataclasses.dataclass(frozen=True)
class Ran:
    """Pytest's result: the tests that passed, failed, could not be set up, and were skipped."""

    passed: frozenset[str]
    failed: frozenset[str]
    errors: frozenset[str]
    skipped: frozenset[str]
    seconds: float
    output: str

    @property
    def everything(self) -> frozenset[str]:
        """The names of all collected tests."""
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
        """Run these tests on a fresh database. migrate: run the migrations, because the mutation may be in one of them."""
        # pytest-django's database, and the settings' own database, which the engine's tests use if it has tables.
        for name in (f"test_{self._database}", self._database):
            anew(self._server, name, None if migrate else self._template)
        more = (*more, "--create-db" if migrate else "--reuse-db")
        self._report.unlink(missing_ok=True)
        command = [sys.executable, "-m", "pytest", *nodes, "-q", "-m", "", "-p", "no:cacheprovider", "--tb=short"]
        env = {**os.environ, "DATABASE_URL": at(self._server, self._database)}
        env.pop("PYTHONDONTWRITEBYTECODE", None)
        env.pop("TEST_TEMPLATE", None)
        for name in [name for name in env if name.startswith(("PYTEST_", "COV_"))]:
            env.pop(name)  # set by an outer pytest, if one started us
        began = time.monotonic()
        most = max(MOST_SECONDS, MOST_SECONDS_EACH * len(nodes))
        output = _run([*command, f"--junitxml={self._report}", *more], self.root, env, most)
        return read_report(self._report, time.monotonic() - began, output)


def _run(command: list[str], root: Path, env: dict[str, str], most: float) -> str:
    """Run the command; returns its output. At the end all processes that it started are killed."""
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
    """Read pytest's XML report."""
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
    """Drop this database if it exists and create it, as a copy of `template` if one is given."""
    drop(server, database)
    statement = sql.SQL("CREATE DATABASE {}").format(sql.Identifier(database))
    if template is not None:
        statement += sql.SQL(" TEMPLATE {}").format(sql.Identifier(template))
    _execute(server, statement)


def names(template: str, jobs: int) -> Iterator[str]:
    """Every database that this many benches may have made."""
    yield template
    for number in range(jobs):
        yield from (f"{template}_bench{number}", f"test_{template}_bench{number}")


def drop(server: str, database: str) -> None:
    """Drop this database, also while clients are connected."""
    _execute(server, sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(database)))


def _execute(server: str, statement: sql.Composable) -> None:
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(statement)


def migrate(root: Path, server: str, database: str) -> None:
    """Create this database with its tables."""
    anew(server, database)
    env = {**os.environ, "DATABASE_URL": at(server, database), "SECRET_KEY": "for-mutants-only-and-long-enough-to-pass-for-one"}
    subprocess.run([sys.executable, "manage.py", "migrate", "--verbosity=0"], cwd=root, env=env, check=True)
