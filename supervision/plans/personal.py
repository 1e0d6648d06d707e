"""Personal data in what steps return: the fields that a workflow's steps name are masked wherever people see them, and in the archive.

A step names its fields in `personal`. A name counts at every depth of the step's results, of its checkpoints and of the payloads of
the signals that it waits for. A field that one registered version of a workflow names is masked in runs of every version. The
agents, conditions and `supervision.result` get the data as it is, until the run is archived.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from django.db import DatabaseError

from supervision.models import Signal, StepState
from supervision.workflow import Step, workflows

MASK = "[personal]"


def fields_of(workflow: str) -> tuple[dict[str, set[str]], dict[str, set[str]]]:
    """The personal fields of this workflow: by the name of the step, and by the name of the signal."""
    by_step: dict[str, set[str]] = {}
    by_signal: dict[str, set[str]] = {}
    for known in workflows():
        for position, step in enumerate(known.steps) if known.name == workflow else ():
            if step.personal:
                by_step.setdefault(step.name, set()).update(step.personal)
                for signal in filter(None, (step.awaited, *known.agent(position).signals)):
                    by_signal.setdefault(signal, set()).update(step.personal)
    return by_step, by_signal


def masked(value: Any, names: Collection[str]) -> Any:
    """The JSON value with MASK in place of what these fields hold, at every depth."""
    if isinstance(value, Mapping):
        return {name: MASK if name in names and part is not None else masked(part, names) for name, part in value.items()}
    return [masked(part, names) for part in value] if isinstance(value, list) else value


def same(kept: Any, new: Any) -> bool:
    """Whether a value that was kept, and perhaps masked since, may be this one."""
    if kept == MASK:
        return True
    if isinstance(kept, Mapping) and isinstance(new, Mapping):
        return kept.keys() == new.keys() and all(same(kept[name], new[name]) for name in kept)
    if isinstance(kept, list) and isinstance(new, list):
        return len(kept) == len(new) and all(map(same, kept, new))
    return bool(kept == new)


def steps_shown(workflow: str, steps: Sequence[StepState]) -> Sequence[StepState]:
    """These steps of one run as people may see them. The rows are changed in memory: do not save them."""
    by_step, _ = fields_of(workflow)
    for step in steps:
        if names := by_step.get(step.name):
            step.result, step.checkpoint = masked(step.result, names), masked(step.checkpoint, names)
    return steps


def signals_shown(workflow: str, signals: Iterable[Signal]) -> list[Signal]:
    """These signals to one run as people may see them. The rows are changed in memory: do not save them."""
    _, by_signal = fields_of(workflow)
    rows = list(signals)
    for signal in rows:
        signal.payload = masked(signal.payload, by_signal.get(signal.name, ()))
    return rows


def words_of(step: Step, error: BaseException) -> str:
    """An error about a step's data, for people. PostgreSQL quotes the data, so of a step with personal data only the type is told."""
    quotes = step.personal and isinstance(error, DatabaseError)
    return type(error).__name__ if quotes else f"{type(error).__name__}: {error}"
