"""Makes `.venv` and runs one command in it. Standard library only; called by `./run`.

It works where Python has neither pip nor ensurepip (Debian's). It takes packages from the index that pip is configured
for, in the versions of the lock files, and checks their hashes. It does nothing when the lock files have not changed.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import time
import venv
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import pip_wheel  # found beside this file

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
TOOLS = ROOT / ".venv-tools"
QUICK = ("-n", "4", "--dist", "loadfile", "-m", "not slow and not nightly")  # what `./run test` runs
# The long test runs. matrix: a crash at every failpoint, and hazards. deploys: every change of a workflow, in any order.
# soak: what the suite runs in a short form. nightly: what else the suite leaves out.
ELSEWHERE = ("crash", "hazards", "e2e/test_deploys.py", "e2e/test_two_releases.py")  # matrix and deploys run their nightly tests
LONG = {
    "matrix": ("tests/crash", "tests/hazards", "-m", "nightly or not nightly", "-n", "2"),
    "soak": (
        "tests/workflows",
        "tests/simulation",
        "tests/engine/test_outage_of_a_day.py",
        "tests/e2e/test_payments_under_fire.py",
        "tests/e2e/test_recovery_times.py",
        "tests/browser/test_outage_story_browser.py",
        "tests/browser/test_console_axe.py",
        "-m",
        "nightly or not nightly",
    ),
    "deploys": ("tests/e2e/test_deploys.py", "tests/e2e/test_two_releases.py", "-m", "nightly or not nightly"),
    "nightly": ("tests", "-m", "nightly", *(f"--ignore=tests/{path}" for path in ELSEWHERE)),
}

USAGE = """usage: ./run COMMAND [arguments]

  demo    start the whole shop on this machine, without other servers (./run demo --help)
  test    run the tests that start no shop and no browser; with arguments: what they tell pytest
  check   lint, types, migrations, all tests but the long runs: what CI runs
  bench   the benchmarks (arguments go to benchmarks/)
  chaos   break a running shop on purpose, and prove that it kept its promises (./run chaos --help)
          `chaos matrix`: kill a process at every failpoint (arguments go to pytest)
          `chaos soak`: the tests that are short in the suite, at full length (arguments go to pytest)
          `chaos deploys`: two releases at once, every change of a workflow in any order (arguments go to pytest)
          `chaos nightly`: what the suite leaves out because it takes long (arguments go to pytest)
  drill   fail over, restore, restart, upgrade, or migrate many rows, under load, on real servers (./run drill --help)
  mutants break each requirement on purpose, and check that its test fails (./run mutants --help)
  docs    build the documentation site in build/docs; a broken link is an error
  lock    write the lock files again after a change of the ranges; --upgrade takes the newest versions
  supply  static analysis, licences, known vulnerabilities, and the bill of materials (./run supply --help)
  manage  any Django command, with the demo's settings: ./run manage orders --state Error
  setup   only prepare .venv
  help    this text

PYTHON=/path/to/python3 chooses the interpreter; pip's own configuration chooses where packages come from. The versions and the
hashes of their files are those of the lock files. UNLOCKED=1 installs the newest versions that the ranges allow instead."""


def main(arguments: list[str]) -> int:
    """Install what the command needs, then replace this process by the command."""
    command, rest = (arguments[0], arguments[1:]) if arguments else ("help", [])
    if command in ("help", "-h", "--help"):
        print(USAGE)
        return 0
    if command not in ("demo", "test", "check", "bench", "chaos", "drill", "mutants", "docs", "lock", "supply", "manage", "setup"):
        print(f"run: unknown command {command!r}; ./run help lists them", file=sys.stderr)
        return 2
    environments = {VENV: "requirements-embedded" if command in ("demo", "manage") else "requirements-dev"}
    if command in ("check", "supply"):
        environments[TOOLS] = "requirements-tools"
    with ThreadPoolExecutor() as pool:
        list(pool.map(ensure, environments.values(), environments))
    os.environ["PATH"] = f"{VENV / 'bin'}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    os.environ["VIRTUAL_ENV"] = str(VENV)
    # A shop is a dozen processes. Without bytecode files each of them would compile the project again.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    if command == "manage" and not os.environ.get("SECRET_KEY"):
        os.environ.setdefault("DEBUG", "1")
    if command == "check":
        return check(rest)
    if command == "setup":
        return 0
    if command == "test" and not rest:
        say("the tests that start no shop and no browser; ./run check runs those, too")
    if command == "chaos" and rest[:1] == ["soak"]:
        os.environ["SOAK"] = "1"  # tests/support/soak.py
    become = {
        "demo": ["manage.py", "demo", *rest],
        "manage": ["manage.py", *rest],
        "test": ["-m", "pytest", *(rest or QUICK)],
        "chaos": ["-m", "pytest", *LONG[rest[0]], *rest[1:]] if rest and rest[0] in LONG else ["-m", "chaos", *rest],
        "drill": ["-m", "chaos.drills", *rest],
        "mutants": ["-m", "tests.mutants", *rest],
        "bench": ["-m", "benchmarks", *rest],
        "lock": ["scripts/lock.py", *rest],
        "supply": ["scripts/supply.py", *rest],
        "docs": ["-m", "sphinx", "-q", "-E", "-W", "--keep-going", "-c", "docs", ".", "build/docs", *rest],
    }[command]
    return os.execv(PYTHON, [str(PYTHON), *become])  # noqa: S606 - no shell wanted


def check(pytest_arguments: list[str]) -> int:
    """Run every check, even after one has failed: two at a time, then pytest, so that its summary ends the output."""
    failed: list[str] = []
    checks = {  # the longest first
        "mypy": ["-m", "mypy"],
        "collection": ["-m", "pytest", "--collect-only", "-qq"],  # compiles the tests once; each of pytest's processes would
        "supply": ["scripts/supply.py"],
        "migrations": ["-W", "ignore::RuntimeWarning", "manage.py", "makemigrations", "--check", "--dry-run"],
        "ruff check": ["-m", "ruff", "check", "."],
        "ruff format": ["-m", "ruff", "format", "--check", "."],
        "import-linter": ["scripts/lint_imports.py"],
    }
    with ThreadPoolExecutor(2) as pool:
        running = {title: pool.submit(checked, title, command) for title, command in checks.items()}
        for title, done in running.items():
            print(f"==> {title}", flush=True)
            if title != "collection" or done.result().returncode != 0:  # it names every file
                print(done.result().stdout, end="", flush=True)
            if done.result().returncode != 0:
                failed.append(title)
    print("==> pytest", flush=True)
    if failed:
        print(f"run: already failed: {', '.join(failed)}", file=sys.stderr, flush=True)
    # Four processes: many tests wait more than they compute. At most two of them run tests that start a whole shop.
    tests = [str(PYTHON), "-m", "pytest", "-n", "4", "--dist", "loadfile", *pytest_arguments]
    code = subprocess.run(tests, cwd=ROOT, check=False).returncode
    return 1 if failed or code else 0


def checked(title: str, arguments: list[str]) -> subprocess.CompletedProcess[str]:
    """Run one check; its errors are in its output, in their place."""
    # mypy and makemigrations import the settings, which need a SECRET_KEY or DEBUG. The tests set their own.
    environment = {**os.environ, "DEBUG": "1"} if title in ("mypy", "migrations") else None
    return subprocess.run(
        [str(PYTHON), *arguments],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )


def ensure(name: str, directory: Path) -> None:
    """Install the locked packages of `name` in the environment `directory`, unless they are. A second caller waits for the first."""
    requirements = ROOT / f"{name}{'.txt' if unlocked() else '.lock'}"
    stamp = directory / f".installed-{name}"
    wanted = fingerprint(requirements, directory)
    if is_current(stamp, wanted):
        return
    with (ROOT / f".bootstrap{directory.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if is_current(stamp, wanted):
            return
        started = time.monotonic()
        make_venv(directory)
        say(f"installing {requirements.name} (once; about half a minute)")
        hashes = [] if unlocked() else ["--require-hashes"]
        pip(python_of(directory), "install", "--quiet", *hashes, "--requirement", str(requirements))
        stamp.write_text(wanted)
        say(f"packages installed in {time.monotonic() - started:.0f} s")


def unlocked() -> bool:
    """Whether the user asks for versions by the ranges, without hashes."""
    return os.environ.get("UNLOCKED", "0") not in ("", "0")


def is_current(stamp: Path, wanted: str) -> bool:
    """Whether the stamp has the wanted fingerprint, and the interpreter beside it still runs."""
    return stamp.is_file() and stamp.read_text() == wanted and works(python_of(stamp.parent))


def fingerprint(requirements: Path, directory: Path) -> str:
    """A hash of the file, the files that it includes, and the path of the environment."""
    digest = hashlib.sha256(str(directory).encode())
    waiting = [requirements]
    while waiting:
        path = waiting.pop()
        text = path.read_text()
        digest.update(text.encode())
        waiting += [path.parent / line.split()[1] for line in text.splitlines() if line.startswith("-r ")]
    return digest.hexdigest()


def make_venv(directory: Path) -> None:
    """Make a virtual environment with pip. The Python may have neither pip nor ensurepip."""
    python = python_of(directory)
    if not works(python):
        say(f"making {directory.name} with Python {sys.version.split()[0]}")
        shutil.rmtree(directory, ignore_errors=True)
        venv.create(directory, with_pip=False, symlinks=True)
    if subprocess.run([python, "-m", "pip", "--version"], capture_output=True, check=False).returncode != 0:
        say("fetching pip")
        try:
            wheel = pip_wheel.fetch(directory, None if unlocked() else pip_wheel.locked())
        except pip_wheel.NotFound as problem:
            if subprocess.run([python, "-m", "ensurepip"], capture_output=True, check=False).returncode != 0:
                sys.exit(f"run: {problem}")
        else:
            # A wheel is a zip file, and pip's can install itself.
            run([str(python), f"{wheel}/pip", "install", "--quiet", "--no-index", "--no-deps", str(wheel)])
            wheel.unlink()


def python_of(directory: Path) -> Path:
    """The interpreter of an environment."""
    return directory / "bin" / "python"


def works(python: Path) -> bool:
    """Whether the interpreter exists, starts, and is new enough."""
    probe = [str(python), "-c", "import sys; sys.exit(sys.version_info < (3, 11))"]
    try:
        return subprocess.run(probe, capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def pip(python: Path, *arguments: str) -> None:
    """Run the environment's pip, as its files and the environment configure it."""
    advice = "" if unlocked() else "; UNLOCKED=1 installs without the lock files"
    run([str(python), "-m", "pip", "--disable-pip-version-check", *arguments], f"is the package index reachable?{advice}")


def run(command: list[str], advice: str = "") -> None:
    """Run the command, and exit if it fails. The command's own messages say why."""
    code = subprocess.run(command, cwd=ROOT, check=False).returncode
    if code != 0:
        sys.exit(f"run: this failed with exit code {code}: {' '.join(command[2:])}{f' ({advice})' if advice else ''}")


def say(text: str) -> None:
    """Print progress to standard error. Standard output belongs to the command."""
    print(f"run: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
