"""Which operator may do which verb: Django permissions, checked where every verb passes, and by the doors that offer it.

`supervision.operate` is the right to all verbs. `supervision.skip_run` is that to skip any step, `supervision.skip_run_at_payment`
to skip steps of the agent `payment` alone; so for each of VERBS. Each of DUTIES has a permission, too. Rights only add up: leave
`operate` out of a group to limit it.
Actors without an account (commands without `--by`, the engine, customers) are not asked for rights here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from django.utils.translation import gettext as _

from supervision.approvals.actors import Actor, Exempt, account_of
from supervision.errors import NotPermitted

ALL = "supervision.operate"
# The verb -> the name of its permission. Those of AT_AGENTS can be given for the steps of one agent.
VERBS: Mapping[str, str] = {
    "resubmit": "resubmit_run",
    "skip": "skip_run",
    "complete": "complete_run",
    "cancel": "cancel_run",
    "abandon": "abandon_run",
    "compensate": "compensate_run",
    "resume": "resume_run",
    "move": "move_run",
    "signal": "signal_run",
    "pause": "pause_run",
    "refund": "refund_run",
    "edit": "edit_run",
    "settle": "settle_finding",
    "approve": "approve_verb",
}
# What operators do beside the verbs of orders. Limits and breakers have the permission of their pages in the admin.
INCIDENTS, LETTERS, LIMITS = "handle incidents", "settle dead letters", "change limits"
DUTIES: Mapping[str, str] = {INCIDENTS: "handle_incident", LETTERS: "settle_dead_letter", LIMITS: "change_resource"}
_NAMES = {**VERBS, **DUTIES}
AT_AGENTS = ("resubmit", "skip", "complete")


def may(user: Any, verb: str, agents: Iterable[str] = ()) -> bool:
    """Whether the account may do this verb, or duty, to steps of these agents. Without agents: whether it may do it to any step at all."""
    name = f"supervision.{_NAMES.get(verb, '')}"
    if user.has_perm(ALL) or (verb in _NAMES and user.has_perm(name)):
        return True
    if verb not in AT_AGENTS:
        return False
    if agents := set(agents):
        return all(user.has_perm(f"{name}_at_{agent}") for agent in agents)
    return any(each.startswith(f"{name}_at_") for each in user.get_all_permissions())


def is_operator(user: Any) -> bool:
    """Whether the account has the right to any verb of orders."""
    return any(may(user, verb) for verb in VERBS)


def has_any(user: Any) -> bool:
    """Whether the account has the right to any verb or duty."""
    return any(may(user, name) for name in _NAMES)


def demand(by: Actor, verb: str, agents: Iterable[str] = ()) -> None:
    """Raise NotPermitted if the actor is an account that may not do this verb to steps of these agents."""
    account = None if isinstance(by, Exempt) else account_of(by)
    if account is not None and not may(account, verb, agents):
        words = {"who": account.get_username(), "verb": verb, "agents": ", ".join(sorted(set(agents)))}
        said = _("%(who)s may not %(verb)s steps of %(agents)s.") if words["agents"] else _("%(who)s may not %(verb)s.")
        raise NotPermitted(said % words)
