"""The bounds of what a message for the engine may say: types, lengths and ranges. Each error names the field.

A task of the engine has `reads=`, a function that takes its arguments and raises ValueError. `validation` calls it before the
message is acknowledged, so a message out of bounds becomes a dead letter with the field's name as its reason.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

PERFORM = "supervision.perform"
QUEUE = re.compile(r"submissions|scheduler|supervisor|agent\.[A-Za-z0-9_.-]{1,200}")
MOST_ID = 2**63 - 1
MOST_COUNT = 2**31 - 1
MOST_CLAIMS = 10_000  # in one message; a scheduler sends COHORT of them
MOST_LINKS = 1000  # of a chain
MOST_TEXT = 255
MOST_HOPS = 20  # of a canary
LINK_OPTIONS = frozenset({"queue", "ignore_result", "retry", "argsrepr", "task_id", "reply_to", "root_id", "parent_id"})


def whole(field: str, value: Any, least: int, most: int) -> int:
    """This whole number. Raises ValueError if it is another type, or not from `least` to `most`."""
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise ValueError(f"{field}: expected a whole number from {least} to {most}, not {value!r:.60}")
    return value


def text(field: str, value: Any) -> str:
    """This text. Raises ValueError if it is another type, empty or longer than MOST_TEXT."""
    if not isinstance(value, str) or not 0 < len(value) <= MOST_TEXT:
        raise ValueError(f"{field}: expected a text of 1 to {MOST_TEXT} characters, not {value!r:.60}")
    return value


def queue(field: str, value: Any) -> str:
    """This queue of the engine. Raises ValueError if the engine has no queue of such a name."""
    if not QUEUE.fullmatch(text(field, value)):
        raise ValueError(f"{field}: the engine has no queue {value!r:.60}")
    return str(value)


def nothing(*args: Any) -> None:
    """Check a hint: it has no arguments. Its signature refuses any."""


def canary(queue_name: Any, number: Any, hops: Any = 0) -> None:
    """Check the arguments of a canary. Raises ValueError."""
    queue("queue", queue_name)
    whole("number", number, 1, MOST_COUNT)
    whole("hops", hops, 0, MOST_HOPS)


def claims(given: Any) -> list[tuple[int, int]]:
    """The claims of a cohort, each the id of a run and an attempt. Raises ValueError."""
    if not isinstance(given, list | tuple) or not 0 < len(given) <= MOST_CLAIMS:
        raise ValueError(f"claims: expected a list of 1 to {MOST_CLAIMS} claims, not {given!r:.60}")
    found = []
    for index, claim in enumerate(given):
        if not isinstance(claim, list | tuple) or len(claim) != 2:
            raise ValueError(f"claims[{index}]: expected [run, attempt], not {claim!r:.60}")
        run_id, attempt = claim
        found.append((whole(f"claims[{index}].run", run_id, 1, MOST_ID), whole(f"claims[{index}].attempt", attempt, 0, MOST_COUNT)))
    return found


def embedded(task: str, parts: Mapping[str, Any], links: Any) -> None:
    """Check what comes with a task's arguments: no further tasks but the links of a cohort's chain. Raises ValueError.

    Celery publishes a link as it is written, with the rights of the process that has the message.
    """
    for part in ("callbacks", "errbacks", "chord"):
        if parts.get(part):
            raise ValueError(f"{part}: the engine sends none")
    if not links:
        return
    if task != PERFORM:
        raise ValueError("chain: only a cohort has one")
    if len(links) > MOST_LINKS:
        raise ValueError(f"chain: expected at most {MOST_LINKS} links, not {len(links)}")
    for index, link in enumerate(links):
        options = link.get("options") or {}
        if link.get("task") != PERFORM or link.get("kwargs") or not isinstance(options, dict):
            raise ValueError(f"chain[{index}]: expected a step of the same order")
        if unknown := set(options) - LINK_OPTIONS:
            raise ValueError(f"chain[{index}]: unknown options: {', '.join(sorted(map(str, unknown)))[:100]}")
        if not queue(f"chain[{index}].queue", options.get("queue")).startswith("agent."):
            raise ValueError(f"chain[{index}].queue: expected an agent's queue")
        if len(link["args"]) != 4:
            raise ValueError(f"chain[{index}]: expected a workflow, its version, a direction and a position")
        place(*link["args"])


def place(workflow: Any, version: Any, direction: Any, position: Any) -> None:
    """Check a place in a workflow. Raises ValueError."""
    text("workflow", workflow)
    whole("version", version, 0, MOST_COUNT)
    if direction not in ("do", "undo"):
        raise ValueError(f"direction: expected 'do' or 'undo', not {direction!r:.60}")
    whole("position", position, 0, MOST_COUNT)
