"""Probes: a few calls that try out a resource whose circuit breaker is not closed.

A scheduler locks the resource's row and looks for free probe places before it claims steps. So no step is claimed only to be
given back, with any number of schedulers and waiting orders.
"""

from __future__ import annotations

from supervision.breaker import Breaker
from supervision.governance import circuit_breaker, resources
from supervision.states import Claim
from supervision.store import claiming
from supervision.workflow import StepPosition


def claim(resource: str) -> dict[StepPosition, list[Claim]]:
    """Claim as many steps as may probe this resource now. Claims and probe places commit together, so a crash leaves both or none."""
    seen = resources.look()
    known = seen.by_name.get(resource)
    if known is None:
        return {}
    agents = resources.agents_of([known.service])
    home = known.service if known.service in {each.name for each in seen.serving[known.service]} else None
    down = seen.unreachable(but=[resource])

    def work(breaker: Breaker) -> dict[StepPosition, list[Claim]]:
        probes_left = breaker.probes_left()
        places = claiming.claim_probes(probes_left, resource, agents, home=home, down=down) if probes_left > 0 and agents else {}
        if places:
            breaker.probe([claim.run_id for claims in places.values() for claim in claims])
        return places

    return circuit_breaker.change(resource, work)
