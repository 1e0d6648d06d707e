"""Write `requirements*.lock`: one version of every package, with the hashes of its files, for every Python and platform that we allow.

`./run lock` keeps the versions that the ranges still allow; `./run lock --upgrade` takes the newest, `./run lock -P django` one.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SHARED = ("requirements-dev", "requirements-embedded", "requirements")  # the first has all packages; the others take its versions
ALONE = ("requirements-tools", "requirements-pip")  # for environments of their own


def main(options: list[str]) -> int:
    """Run uv for each file of ranges. options: for uv."""
    for name in (*SHARED, *ALONE):
        command = [str(Path(sys.executable).with_name("uv")), "pip", "compile", "--quiet", "--universal", "--python-version=3.11"]
        command += ["--generate-hashes", "--no-annotate", "--no-header", "--no-emit-index-url", "--no-emit-find-links"]
        command += [*options, f"{name}.txt", f"--output-file={name}.lock"]
        command += [f"--constraints={SHARED[0]}.lock"] if name in SHARED[1:] else []
        if code := subprocess.run(command, cwd=ROOT, check=False, stdout=subprocess.DEVNULL).returncode:
            return code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
