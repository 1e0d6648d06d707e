"""A whole running shop for a test; the chaos run uses the same."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from urllib.parse import urlsplit

from chaos import shop as running
from chaos.look import ADDRESS, order, until
from chaos.shop import ROLES, WORKERS, Shop, role_of
from sasproject.roles import ROOT

__all__ = ["ADDRESS", "ROLES", "WORKERS", "Shop", "open_shop", "order", "role_of", "scratch_database", "throw_away", "until"]

_kept = ExitStack()
_migrated: str | None = None


def migrated() -> str:
    """A database with every table, made once for all shops of this process: a copy takes a tenth of a second, tables five."""
    global _migrated
    if _migrated is None:
        url = _kept.enter_context(running.scratch_database())
        env = {**os.environ, "DATABASE_URL": url, "CELERY_BROKER_URL": "pgmq://"}
        subprocess.run([sys.executable, str(ROOT / "manage.py"), "migrate", "-v", "0"], env=env, cwd=ROOT, check=True)
        _migrated = urlsplit(url).path.removeprefix("/")
    return _migrated


def throw_away() -> None:
    """Drop it, when the last test has run."""
    global _migrated
    _kept.close()
    _migrated = None


def scratch_database() -> AbstractContextManager[str]:
    """A database of a test's own, with every table and nothing in them; yields its URL."""
    return running.scratch_database(migrated())


def open_shop(broker_url: str, directory: Path, *names: str, **environ: str) -> AbstractContextManager[Shop]:
    """A running shop of a test's own."""
    return running.open_shop(broker_url, directory, *names, template=migrated(), **environ)
