"""Makes a second release of the shop, to run beside the first: a copy of the source tree with an edited workflow.

An edit replaces the steps of `fulfil-order`. Normally the new definition is version 3, and versions 1 and 2 stay registered.
With `under_its_version` the new definition keeps version 1, as if a developer had forgotten to raise the version.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from sasproject.roles import ROOT

PARTS = (
    "orders",
    "supervision",
    "sasproject",
    "templates",
    "manage.py",
    "Procfile",
    "gunicorn.conf.py",
    "pyproject.toml",
    "requirements.txt",
)

# The new steps, as an expression over the old ones (0 stock, 1 payment, 2 shipping, 3 mail).
EDITS = {
    "added": '(*steps, Step("thank-customer", agent="email", complete_within=timedelta(seconds=30)))',
    "removed": "steps[:3]",
    "swapped": "(steps[0], steps[2], steps[1], steps[3])",
    "budget": "tuple(replace(step, complete_within=timedelta(minutes=10)) for step in steps)",
    "renamed": '(*steps[:3], replace(steps[3], agent="post"))',
}

_EDIT = '''

from dataclasses import replace

from supervision import workflow as registry


class PostAgent(EmailAgent):
    """The mail agent under its new name."""

    name = "post"


register_agent(PostAgent())
steps = FULFIL_ORDER.steps
if {under_its_version}:
    registry._workflows.clear()
    registry._newest.clear()
FULFIL_ORDER = register(replace(FULFIL_ORDER, version={version}, steps={steps}))
'''


def release(directory: Path, edit: str, *, under_its_version: bool) -> Path:
    """Copy the shop's code and edit the workflow in the copy; returns the copy's root. Its processes can run beside the original's."""
    tree = directory / f"{edit}-{'same' if under_its_version else 'new'}"
    for part in PARTS:
        if (ROOT / part).is_dir():
            shutil.copytree(ROOT / part, tree / part)  # with the compiled files, which stay valid
        else:
            tree.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / part, tree / part)
    with (tree / "orders" / "workflows.py").open("a") as file:
        file.write(_EDIT.format(under_its_version=under_its_version, version=1 if under_its_version else 3, steps=EDITS[edit]))
    return tree
