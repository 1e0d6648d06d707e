"""What the product is made of, and whether that is safe: `./run supply [PART ...]`, by default every part.

  code        bandit, with the rules that ruff does not have
  rules       our own rules for semgrep (scripts/rules), first against their examples, then against the code
  licences    the licence of each package that runs in production
  advisories  known vulnerabilities of the locked versions. Without an advisory database it says "not run" and does not fail
  sbom        the bill of materials, build/sbom.json: CycloneDX, each package with its version and the hashes of its files

The exit code is 1 if a part failed. The tools are in an environment of their own, `.venv-tools`.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TOOLS = ROOT / ".venv-tools" / "bin"
LOCK = ROOT / "requirements.lock"
CODE = ("supervision", "orders", "sasproject", "scripts", "templates")
RULES = "scripts/rules"
QUIET = ("--metrics=off", "--disable-version-check")
# Licences that let us use a package in a product without publishing the product's own source.
LICENCES = ("MIT", "BSD", "Apache", "ISC", "Python Software", "PSF", "MPL", "Mozilla", "LGPL", "0BSD", "CC0", "SIL Open Font", "OFL")
# Read by a person, because the package's own words do not say it: BSD and MIT, by qrcode's file LICENSE.
READ = {"qrcode": "BSD License; Other/Proprietary License"}
SPLIT = re.compile(r"; | AND | OR |[()]")

Outcome = tuple[bool | None, str]  # passed, failed, or None for "not run"; and what to print


def code() -> Outcome:
    """Run bandit; pyproject.toml says which of its rules ruff checks instead."""
    done = _run("bandit", "--quiet", "-ii", "--recursive", "--configfile", "pyproject.toml", *CODE[:4])
    return done.returncode == 0, done.stdout.strip() or done.stderr.strip()


def rules() -> Outcome:
    """Run semgrep with our rules. A rule that does not find its examples is an error, too."""
    for command in (
        ["scan", "--test", "--config", RULES, RULES],
        ["scan", "--error", "--quiet", "--exclude", "rules", "--config", f"{RULES}/security.yml", *CODE],
    ):
        done = _run("semgrep", *command, *QUIET)
        if done.returncode != 0:
            return False, (done.stdout + done.stderr).strip()
    return True, ""


def licences() -> Outcome:
    """Compare the licence of each package of requirements.lock with LICENCES. A package offers each of its licences joined by OR."""
    names = sorted(set(re.findall(r"^([\w.-]+)==", LOCK.read_text(), re.MULTILINE)))
    done = _run("pip-licenses", "--python", sys.executable, "--from=mixed", "--format=json", "--packages", *names)
    if done.returncode != 0:
        return False, done.stderr.strip()
    found = {package["Name"]: package["License"] for package in json.loads(done.stdout)}
    unfit = [f"{name}: {licence}" for name, licence in found.items() if READ.get(name) != licence and not _fits(licence)]
    return not unfit, "\n".join(unfit)


def _fits(licence: str) -> bool:
    """Whether we may use it: one licence of those joined by OR, else all of them, has a name of LICENCES."""
    parts = [part.strip() for part in SPLIT.split(licence) if part.strip()]
    known = [any(part.startswith(name) or f" {name}" in part for name in LICENCES) for part in parts]
    return any(known) if " OR " in licence and " AND " not in licence else bool(known) and all(known)


def advisories(osv: str | None = None) -> Outcome:
    """Ask for known vulnerabilities of the locked versions. osv: the address of an OSV service; else the index is asked."""
    service = ["--vulnerability-service", "osv", "--osv-url", osv] if osv else []
    done = _run(
        "pip-audit", "--requirement", str(LOCK), "--disable-pip", "--require-hashes", "--format=json", "--progress-spinner=off", *service
    )
    try:
        packages = json.loads(done.stdout)["dependencies"]
    except (ValueError, KeyError):
        return None, (done.stderr.strip().splitlines() or ["pip-audit said nothing"])[-1]
    told = [package for package in packages if "vulns" in package]
    if not told:
        return None, "no advisory database could be reached"
    bad = [f"{package['name']} {package['version']}: {vuln['id']}" for package in told for vuln in package["vulns"]]
    return not bad, "\n".join(bad)


def sbom() -> Outcome:
    """Write build/sbom.json."""
    (ROOT / "build").mkdir(exist_ok=True)
    options = ["--pyproject", "pyproject.toml", "--output-reproducible", "--output-format", "JSON", "--output-file", "build/sbom.json"]
    done = _run("cyclonedx-py", "requirements", str(LOCK), *options)
    return done.returncode == 0, "" if done.returncode == 0 else done.stderr.strip()


PARTS: dict[str, Callable[[], Outcome]] = {part.__name__: part for part in (code, rules, licences, advisories, sbom)}


def main(arguments: list[str]) -> int:
    """Run the parts, also after one has failed."""
    parser = argparse.ArgumentParser(prog="./run supply", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", nargs="*", metavar="PART", choices=[[], *PARTS], help=", ".join(PARTS))
    parser.add_argument("--osv", metavar="URL", help="ask this OSV service for advisories (https://api.osv.dev/v1/query)")
    options = parser.parse_args(arguments)
    failed = False
    for name in options.part or PARTS:
        passed, text = advisories(options.osv) if name == "advisories" else PARTS[name]()
        print(f"{name}: {'not run' if passed is None else 'ok' if passed else 'FAILED'}{f': {text}' if passed is None else ''}", flush=True)
        if passed is False:
            failed = True
            print(text, file=sys.stderr, flush=True)
    return int(failed)


def _run(tool: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run one of the tools."""
    return subprocess.run([str(TOOLS / tool), *arguments], cwd=ROOT, capture_output=True, text=True, check=False)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
