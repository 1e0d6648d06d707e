"""The peers' own environment: `.venv-bench` from `requirements-peers.txt`, and Restate's server from npm.

It is made once, and again when the requirements or the interpreter change. The output names the packages that cannot be
installed; the peers that need them get no row.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PLACE = ROOT / ".venv-bench"
PYTHON = PLACE / "bin" / "python"
REQUIREMENTS = Path(__file__).resolve().parent / "requirements-peers.txt"
RESTATE = "@restatedev/restate-server@1"
DISTRIBUTIONS = {  # the packages whose versions are reported for a peer
    "chain": ("celery",),
    "usual": ("Django", "celery"),
    "dbos": ("dbos",),
    "procrastinate": ("procrastinate",),
    "restate": ("restate-sdk",),
    "absurd": ("absurd-sdk",),
}
Say = Callable[[str], None]


@dataclass
class Peers:
    """versions: of the peers that can be measured. missing: why each of the others cannot."""

    versions: dict[str, str] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    restate_server: Path | None = None


def requirements() -> dict[str, list[str]]:
    """The lines of the requirements, each with the peers that need it."""
    found = {}
    for line in REQUIREMENTS.read_text().splitlines():
        requirement, _, names = line.partition("#")
        if requirement.strip():
            found[requirement.strip()] = names.split()
    return found


def prepare(wanted: list[str], say: Say) -> Peers:
    """Make the environment if necessary; returns which of the wanted peers it has."""
    peers = Peers()
    if not wanted:
        return peers
    stamp = PLACE / "installed.json"
    mark = hashlib.sha256(f"{REQUIREMENTS.read_text()}{sys.version}{PLACE}".encode()).hexdigest()
    known = json.loads(stamp.read_text()) if stamp.is_file() else {}
    if known.get("mark") != mark:
        known = {"mark": mark, "failed": _install(say)}
        stamp.write_text(json.dumps(known))
    for requirement, names in requirements().items():
        if requirement in known["failed"]:
            peers.missing.update({name: f"pip could not install {requirement}" for name in names if name in wanted})
    versions = _versions()
    for name in wanted:
        if name in peers.missing:
            continue
        absent = [each for each in DISTRIBUTIONS[name] if each not in versions]
        if absent:
            peers.missing[name] = f"{', '.join(absent)} is not installed"
        else:
            peers.versions[name] = ", ".join(f"{each} {versions[each]}" for each in DISTRIBUTIONS[name])
    if "restate" in peers.versions:
        _add_restate(peers, say)
    return peers


def _install(say: Say) -> dict[str, str]:
    say(f"making {PLACE.name} for the peers (once; a minute or two)")
    shutil.rmtree(PLACE, ignore_errors=True)
    venv.create(PLACE, with_pip=False, symlinks=True)
    lines = requirements()
    say(f"installing {len(lines)} packages: {', '.join(sorted({name for names in lines.values() for name in names}))}")
    if _pip(*lines) is None:
        return {}
    say("not all of them could be installed; trying one by one")
    failed = {}
    for line in lines:
        problem = _pip(line)
        if problem is not None:
            say(f"could not install {line}: {problem}")
            failed[line] = problem
    return failed


def _pip(*packages: str) -> str | None:
    """Install with this environment's pip into the peers' one; returns the error, if there is one."""
    command = [sys.executable, "-m", "pip", "--python", str(PYTHON), "--disable-pip-version-check", "install", "--quiet"]
    done = subprocess.run([*command, *packages], capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return None
    lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or done.stderr.splitlines()
    return lines[-1].strip() if lines else f"exit code {done.returncode}"


def _versions() -> dict[str, str]:
    names = sorted({each for distributions in DISTRIBUTIONS.values() for each in distributions})
    code = (
        "import importlib.metadata as m, json, sys\n"
        "found = {}\n"
        "for name in sys.argv[1:]:\n"
        "    try:\n"
        "        found[name] = m.version(name)\n"
        "    except m.PackageNotFoundError:\n"
        "        pass\n"
        "print(json.dumps(found))\n"
    )
    done = subprocess.run([str(PYTHON), "-c", code, *names], capture_output=True, text=True, check=False)
    return dict(json.loads(done.stdout)) if done.returncode == 0 else {}


def _add_restate(peers: Peers, say: Say) -> None:
    """Restate keeps its state in a server of its own, which npm installs."""
    modules = PLACE / "node_modules" / "@restatedev"
    if not (found := _server_in(modules)):
        npm = shutil.which("npm")
        if npm is None:
            peers.missing["restate"] = "npm is missing, and with it Restate's server"
        else:
            say(f"installing {RESTATE} with npm")
            (PLACE / "package.json").write_text("{}")
            done = subprocess.run(
                [npm, "install", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error", RESTATE],
                cwd=PLACE,
                capture_output=True,
                text=True,
                check=False,
            )
            found = _server_in(modules)
            if not found:
                words = (done.stderr or done.stdout).strip().splitlines()
                peers.missing["restate"] = f"npm could not install its server ({words[-1] if words else 'no output'})"
    if found:
        done = subprocess.run([str(found), "--version"], capture_output=True, text=True, check=False)
        peers.restate_server = found
        peers.versions["restate"] += f", {(done.stdout.split(chr(10))[0] or 'restate-server').strip()}"
    else:
        del peers.versions["restate"]


def _server_in(modules: Path) -> Path | None:
    found = [path for path in modules.glob("restate-server-*/bin/restate-server") if os.access(path, os.X_OK)]
    return found[0] if found else None
