"""What each user may do at RabbitMQ: the least that the role needs.

RabbitMQ asks for `configure` to declare and delete, `write` to publish to an exchange (and to bind a queue), `read` to consume
(and to bind to an exchange). On a topic exchange it also asks which routing keys a user may write. All are regular expressions.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from supervision.transports.topology import INTAKE, REPLIES, TASKS

NOTHING = "^$"
EVERYTHING = ".*"
A_REPLY_QUEUE = r"reply\.[0-9a-f]{32}"
AN_AGENT = r"agent\..+"
CONTROL = (r"celery\.pidbox", r"reply\.celery\.pidbox")  # the exchanges of Celery's remote control
EVENTS = "celeryev"


@dataclass(frozen=True)
class Rights:
    """The permissions of one user in one virtual host.

    keys: the routing keys that it may write to TASKS; binds: those under which it may bind a queue to TASKS.
    """

    configure: str = NOTHING
    write: str = NOTHING
    read: str = NOTHING
    keys: str = NOTHING
    binds: str = NOTHING


def _any(*patterns: str) -> str:
    return f"^({'|'.join(patterns)})$" if patterns else NOTHING


def _worker(role: str, reads: Iterable[str], keys: Iterable[str], owns: Iterable[str] = (), writes: Iterable[str] = ()) -> Rights:
    """The rights of a role that consumes. Each answers Celery's remote control in a queue of its own, named after the role."""
    box = rf"{role}-[^@]*@.*\.celery\.pidbox"
    return Rights(
        configure=_any(box, *CONTROL, EVENTS, *owns),
        write=_any(TASKS_, box, CONTROL[1], EVENTS, *owns, *writes),
        read=_any(*reads, box, CONTROL[0]),
        keys=_any(*keys),
    )


TASKS_, REPLIES_, INTAKE_ = (re.escape(name) for name in (TASKS, REPLIES, INTAKE))
_HINTS = ("submissions", "scheduler", "supervisor")
# Celery's remote control writes commands, and reads answers and events in queues of its own.
_ASKS = (r"[0-9a-f-]+\.reply\.celery\.pidbox", r"celeryev\.[^.]+")

ROLES: Mapping[str, Rights] = {
    "web": Rights(write=_any(TASKS_), keys=_any(*_HINTS)),
    "scheduler": _worker(
        "scheduler", ("submissions", "scheduler", r"submissions\.intake", r"submissions\.intake\.dead"), (*_HINTS, AN_AGENT)
    ),
    "agents": _worker("agents", (AN_AGENT,), (*_HINTS, AN_AGENT)),
    "supervisor": _worker("supervisor", ("supervisor", REPLIES_), (*_HINTS, AN_AGENT), (A_REPLY_QUEUE,), (REPLIES_,)),
    "beat": Rights(write=_any(TASKS_), keys=_any("scheduler", "supervisor")),
    "setup": Rights(configure=EVERYTHING, write=EVERYTHING, read=EVERYTHING, keys=EVERYTHING, binds=EVERYTHING),
    "control": Rights(configure=_any(*_ASKS, *CONTROL, EVENTS), write=_any(CONTROL[0], *_ASKS), read=_any(*_ASKS, CONTROL[1], EVENTS)),
}
EACH = {
    "web": "the web role, and manage.py",
    "scheduler": "the scheduler",
    "agents": "the agents",
    "supervisor": "the supervisor",
    "beat": "beat",
    "setup": "manage.py broker_topology",
    "control": "celery inspect, celery control, Flower",
}


def account(*, produces: bool, reads: Iterable[str]) -> Rights:
    """The rights of an account outside: to publish orders, and to read these reply queues."""
    return Rights(write=_any(INTAKE_) if produces else NOTHING, read=_any(*(re.escape(queue) for queue in reads)))
