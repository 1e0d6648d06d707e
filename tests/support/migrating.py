"""Runs commands of manage.py on a database of the test's own, and asks it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

from sasproject.roles import ROOT
from tests.support import forked


def environment(url: str, **environ: str) -> dict[str, str]:
    """The variables of a process on this database."""
    return {**os.environ, "DATABASE_URL": url, "CELERY_BROKER_URL": "memory://", "DEBUG": "1", **environ}


def manage(url: str, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run a command of manage.py on this database."""
    return forked.run([sys.executable, "manage.py", *arguments], env=environment(url, **environ), cwd=ROOT)


@contextmanager
def managing(url: str, *arguments: str, **environ: str) -> Iterator[subprocess.Popen[str]]:
    """A command of manage.py that runs in the block; killed afterwards if it has not ended. Its errors are in the file `stderr`."""
    pipes = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "manage.py", *arguments], env=environment(url, **environ), cwd=ROOT, **pipes) as process:
        try:
            yield process
        finally:
            process.kill()


def probing(directory: Path, migrations: dict[str, str]) -> dict[str, str]:
    """Write an application `probe` with these migrations into this directory; returns the variables that install it, too."""
    home = directory / "probe" / "migrations"
    home.mkdir(parents=True)
    (home.parent / "__init__.py").touch()
    for name, text in {"__init__": "", **migrations}.items():
        (home / f"{name}.py").write_text(text)
    (directory / "probed.py").write_text("from sasproject.settings import *\nINSTALLED_APPS = [*INSTALLED_APPS, 'probe']\n")
    return {"DJANGO_SETTINGS_MODULE": "probed", "PYTHONPATH": str(directory)}


def answer(url: str, query: str) -> object:
    """The first column of the first row."""
    with psycopg.connect(url) as database:
        return database.execute(query).fetchone()[0]
