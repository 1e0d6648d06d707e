"""Two releases of the shop beside each other: the tree as it is, and copies of it whose workflow was edited.

An edit says what the steps of `fulfil-order` become; `under_its_version` keeps the version, as somebody does who forgot to
raise it, and otherwise the new definition is version 2 and version 1 stays registered.
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

# What becomes of the steps (0 stock, 1 payment, 2 shipping, 3 mail). The queues of an agent that is new have to be served.
EDITS = {
    "added": '(*steps, Step("thank-customer", agent="email", complete_within=timedelta(seconds=30)))',
    "removed": "steps[:3]",
    "swapped": "(steps[0], steps[2], steps[1], steps[3])",
    "budget": "tuple(replace(step, complete_within=timedelta(minutes=10)) for step in steps)",
    "renamed": '(*steps[:3], replace(steps[3], agent="post"))',
}
QUEUES = "agent.stock,agent.payment,agent.shipping,agent.email,agent.post"

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
    """A copy of the shop's code in which the workflow was edited; its processes run beside those of the original."""
    tree = directory / f"{edit}-{'same' if under_its_version else 'new'}"
    for part in PARTS:
        if (ROOT / part).is_dir():
            shutil.copytree(ROOT / part, tree / part, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            tree.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / part, tree / part)
    with (tree / "orders" / "workflows.py").open("a") as file:
        file.write(_EDIT.format(under_its_version=under_its_version, version=1 if under_its_version else 2, steps=EDITS[edit]))
    return tree
