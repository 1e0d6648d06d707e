"""A workflow whose only step is refused."""

from __future__ import annotations

from supervision import PermanentFailure, StepRequest, Workflow, register, step


@step(amendable=("name",))
def book_seat(request: StepRequest) -> dict[str, str]:
    """Refuse the seat, unless the name was corrected."""
    if request.payload["name"] != "Ada":
        raise PermanentFailure("no such traveller")
    return {"seat": "12C"}


register(Workflow("seat", (book_seat,)))
