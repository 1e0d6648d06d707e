"""The error tree of the engine.

    SupervisionError
    |-- DefinitionError          a workflow or an agent is declared wrongly; raised at import time
    |-- PlanChanged              the code defines a workflow version differently from the database
    |-- UnknownRun               no run and no waiting submission has this key
    |-- Refused                  an operator verb that the present state does not allow
    |   |-- ChangedMeanwhile     the run changed after the caller looked
    |   |-- NotPermitted         the account lacks the permission for the verb
    |   `-- AwaitsApproval       the verb waits as a request for another operator's approval
    |-- ProofNeeded              the verb moves money, and the session was last proved too long ago
    |-- UnreadableSubmission     a submission that cannot become a run: it goes to the dead letters
    `-- AgentFailure             a failure that an agent reports of its remote service
        |-- TransientFailure     worth another attempt
        |   `-- OutcomeUnknown   the call may or may not have had its effect
        |-- PermanentFailure     no attempt will ever succeed, and nothing was done
        |-- Postpone             not now: run later without counting a failure
        `-- AwaitSignal          the work is under way elsewhere: run again when a signal has come, or at a moment

An agent that raises anything else is treated as if it had raised `OutcomeUnknown`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from difflib import get_close_matches


def _first_paragraph(text: str) -> str:
    """The first words of a docstring in one line, which may begin on its second line and go over several."""
    return " ".join(re.split(r"\n\s*\n", text.strip(), maxsplit=1)[0].split())


class SupervisionError(Exception):
    """Base of everything the engine raises on purpose."""

    code = "supervision_error"


class DefinitionError(SupervisionError):
    """A workflow, step or agent is declared wrongly."""

    code = "definition_error"


class PlanChanged(SupervisionError):
    """This code's definition of a workflow differs from the one registered under the same version; it must not run."""

    code = "plan_changed"


class UnknownRun(SupervisionError):
    """No run and no waiting submission has this key."""

    code = "unknown_run"

    def __init__(self, key: str) -> None:
        self.key = key
        super().__init__(f"no order {key!r} is known")


class Refused(SupervisionError):
    """The verb is not possible in the state the run is in; nothing was changed."""

    code = "refused"

    def __init__(self, message: str, code: str | None = None) -> None:
        self.code = code or self.code
        super().__init__(message)


class ChangedMeanwhile(Refused):
    """The run moved on since the caller looked; nothing was changed."""

    code = "changed_meanwhile"


class AwaitsApproval(Refused):
    """Another operator has to approve the verb first: so far nothing was changed. `approval`: the number of the request."""

    code = "approval_pending"

    def __init__(self, message: str, approval: int) -> None:
        self.approval = approval
        super().__init__(message)


class NotPermitted(Refused):
    """The account lacks the permission for this verb; nothing was changed."""

    code = "not_permitted"


class ProofNeeded(SupervisionError):
    """The verb moves or forgoes money, and it was proved too long ago who uses the session; nothing was changed.

    Not `Refused`: the same request is right once its sender has proved it again.
    """

    code = "proof_needed"


class UnreadableSubmission(SupervisionError):
    """This submission cannot become a run; the reason is kept beside its exact bytes.

    `errors` maps field names to what was expected of them.
    """

    code = "unreadable_submission"

    def __init__(self, reason: str, errors: Mapping[str, Sequence[str]] | None = None) -> None:
        self.errors = dict(errors or {})
        super().__init__(reason)


class AgentFailure(SupervisionError):
    """A failure at the remote service, in words an operator understands."""

    code = "agent_failure"
    for_customer = False

    def __init__(self, message: str = "", code: str | None = None) -> None:
        self.code = code or self.code
        super().__init__(message or _first_paragraph(type(self).__doc__ or ""))  # the rest is for programmers


class TransientFailure(AgentFailure):
    """The service could not do it now, and certainly did nothing.

    `retry_after` (seconds) is the earliest moment the service wants to be asked again. `unreachable`: the connection was
    refused, so no order can be to blame. `refuses_us`: the service does not accept our key, or does not permit it this
    call. An operator has to fix that; until a probe succeeds, no other call is made. `since`: the `time.monotonic()` value
    at which the service first failed this attempt, if that was before its last call.
    """

    code = "transient"

    def __init__(
        self,
        message: str = "",
        code: str | None = None,
        retry_after: float | None = None,
        *,
        unreachable: bool = False,
        refuses_us: bool = False,
        since: float | None = None,
    ) -> None:
        self.retry_after, self.unreachable, self.refuses_us, self.since = retry_after, unreachable, refuses_us, since
        super().__init__(message, code)


class OutcomeUnknown(TransientFailure):
    """The call was made and no answer came: its effect may or may not have happened."""

    code = "outcome_unknown"


class PermanentFailure(AgentFailure):
    """The service refused for good and did nothing; another attempt would be refused too.

    `public_message` is for the customer; the message itself is for operators. `for_customer`: only the customer can fix
    it (a refused card), so the console shows it to operators and no notification is sent.
    """

    code = "permanent"

    def __init__(
        self, message: str = "", code: str | None = None, public_message: str | None = None, *, for_customer: bool = False
    ) -> None:
        self.public_message = public_message
        self.for_customer = for_customer
        super().__init__(message, code)


class Postpone(AgentFailure):
    """Not a failure: the step is to run again after `delay`, and nothing is counted."""

    code = "postponed"

    def __init__(self, message: str = "", delay: timedelta = timedelta(seconds=5)) -> None:
        self.delay = delay
        super().__init__(message)


MOST_WAIT = timedelta(days=3660)
MOST_YEAR = 3000


class AwaitSignal(AgentFailure):
    """Not a failure: the service has accepted the work, and a signal will tell its end. The step waits without using a process.

    Its agent is called again, under the same key, once a signal of this name has come (`StepRequest.signal`), or once the wait
    is over (`StepRequest.wait_is_over`): `within` this time (at most ten years), or at the moment `until`, which has a time zone.
    Without a name only the moment ends it. `look_after`: call the agent after this time too, if no signal has come; it waits on
    by waiting for `wait_left`. A signal that has come earlier is taken at once. Each wait takes another signal, and so does the
    first one after an operator has resubmitted the step.
    The step's effect counts as unknown while it waits, so cancelling undoes it. Raises DefinitionError for times like none above.
    """

    code = "awaits_signal"
    hands_over = True

    def __init__(
        self,
        name: str = "",
        *,
        within: timedelta | None = None,
        until: datetime | None = None,
        look_after: timedelta | None = None,
        message: str = "",
    ) -> None:
        if (within is None) == (until is None):
            raise DefinitionError("a wait ends `within` a time or at the moment `until`: give one of them")
        if within is not None and not (isinstance(within, timedelta) and within <= MOST_WAIT):
            raise DefinitionError(f"`within` is a timedelta of at most {MOST_WAIT.days} days, got {within!r}")
        if until is not None and not (isinstance(until, datetime) and until.tzinfo is not None and until.year < MOST_YEAR):
            raise DefinitionError(f"`until` is a datetime with a time zone, before the year {MOST_YEAR}, got {until!r}")
        self.name, self.within, self.until, self.look_after = name, within, until, look_after
        super().__init__(message or (f"waits for the signal {name}" if name else "waits for its time"))


class Waits(AwaitSignal):
    """The wait of a step that does nothing else."""

    hands_over = False


class AwaitChildren(AwaitSignal):
    """The wait for the ends of child runs, which the database signals. An undo waits for them too."""

    def __init__(self, step: str) -> None:
        super().__init__(f"child:{step}", within=MOST_WAIT, message="waits for child runs")


class NotNeeded(AgentFailure):
    """Not a failure: there is nothing to do. The step is Skipped, without an alert."""

    code = "not_needed"


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A hint at the known name that this one resembles most; empty if it resembles none."""
    close = get_close_matches(name, list(known), n=1)
    return f", did you mean {close[0]!r}?" if close else ""
