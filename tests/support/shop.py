"""A whole running shop for a test; the chaos run uses the same code."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import urlsplit

from chaos import shop as running
from chaos.look import ADDRESS, order, until
from chaos.shop import ROLES, WORKERS, Shop, role_of
from sasproject.roles import ROOT
from tests.support import forked

__all__ = ["ADDRESS", "ROLES", "WORKERS", "Shop", "first_port", "open_shop", "order", "role_of", "scratch_database", "throw_away", "until"]

Shop.popen = forked.Popen
_kept = ExitStack()
_prepared: tuple[str, Path] | None = None


def prepared(directory: Path) -> str:
    """The name of a database with tables, products and accounts; the accounts' passwords are written into `directory`.

    It is made once for all shops of this process: a copy takes a tenth of a second, making one takes six.
    """
    global _prepared
    if _prepared is None:
        url = _kept.enter_context(running.scratch_database(os.environ.get("TEST_TEMPLATE", "template1")))
        state = Path(_kept.enter_context(TemporaryDirectory(prefix="sas-prepared-")))
        env = {**os.environ, "DATABASE_URL": url, "CELERY_BROKER_URL": "pgmq://", "SAS_STATE_DIR": str(state), "DEBUG": "1"}
        subprocess.run([sys.executable, "-m", "sasproject.prepare"], env=env, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
        _prepared = urlsplit(url).path.removeprefix("/"), state
    name, state = _prepared
    shutil.copy(state / "accounts.json", directory)
    return name


def throw_away() -> None:
    """Drop that database after the last test."""
    global _prepared
    _kept.close()
    _prepared = None


def scratch_database(directory: Path) -> AbstractContextManager[str]:
    """A database for one test, prepared for a shop; yields its URL."""
    return running.scratch_database(prepared(directory))


def open_shop(broker_url: str, directory: Path, *names: str, **environ: str) -> AbstractContextManager[Shop]:
    """A running shop for one test."""
    return running.open_shop(broker_url, directory, *names, first_port=first_port(), template=prepared(directory), **environ)


def first_port() -> int:
    """Where to look for free ports. A port is chosen long before it is bound, so parallel processes and runs look elsewhere."""
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    return 18000 + 300 * ((7 * os.getppid() + worker) % 45)
