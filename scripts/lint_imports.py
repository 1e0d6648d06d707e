"""Checks the layers of the engine's rooms (pyproject.toml, importlinter). import-linter has no `python -m` of its own."""

import sys

from importlinter.cli import lint_imports

sys.exit(lint_imports(no_cache=True))
