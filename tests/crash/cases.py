"""The crash matrix as data: every failpoint x every step it can concern x first and second time, without and with local pick-up."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

STEPS = ("reserve-stock", "charge-payment", "book-shipment", "notify-customer")
UNDOS = ("undo:book-shipment", "undo:charge-payment", "undo:reserve-stock")
EVERY = (*STEPS, *UNDOS)

# For each failpoint: the role that is killed there, and the steps at which it is killed.
POINTS: dict[str, tuple[str, tuple[str, ...]]] = {
    "web.after_submission_commit": ("web", ("",)),
    "submit.before_commit": ("scheduler", ("",)),
    "submit.after_commit": ("scheduler", ("",)),
    "scheduler.after_claim": ("scheduler", EVERY),
    "scheduler.mid_dispatch": ("scheduler", EVERY),
    "agent.after_start": ("agents", EVERY),
    "agent.before_call": ("agents", EVERY),
    "agent.after_intention": (
        "agents",
        ("charge-payment", "book-shipment", "notify-customer", "undo:charge-payment", "undo:book-shipment"),
    ),
    "agent.after_checkpoint": ("agents", ("charge-payment",)),
    "agent.after_effect": ("agents", STEPS),
    "undo.after_effect": ("agents", UNDOS),
    "agent.after_finish": ("agents", EVERY),
    "supervisor.before_commit": ("supervisor", EVERY),
    "supervisor.after_commit": ("supervisor", EVERY),
    "relay.after_publish": ("supervisor", ("",)),
}
# The same with local pick-up, where a scheduler neither consumes an order nor dispatches its first step.
WITH_PICKUP: dict[str, tuple[str, tuple[str, ...]]] = {
    **{point: found for point, found in POINTS.items() if point != "relay.after_publish"},
    "submit.before_commit": ("agents", ("",)),
    "submit.after_commit": ("agents", ("",)),
    "scheduler.mid_dispatch": ("scheduler", EVERY[1:]),
}
ELSEWHERE = {
    "intake.before_commit": "tests.intake.test_amqp",  # the consumer dies before it has written an order
    "intake.after_commit": "tests.intake.test_amqp",
    "verb.before_commit": "tests.crash.test_graph_matrix",  # a process that moves an order, or lets it go back
    "verb.after_commit": "tests.crash.test_graph_matrix",
    "worker.deaf": "tests.hazards.test_deaf_workers",  # this failpoint kills no process
    "archive.before_commit": "tests.archive.test_moving",
    "unarchive.before_commit": "tests.archive.test_coming_back",
    "erasure.before_commit": "tests.privacy.test_killed",  # only orders that have ended are changed in it
    "history.before_commit": "tests.history.test_linking",  # no order is written in it
    "approval.before_commit": "tests.approvals.test_deciding",  # an operator's decision; no step runs in it
    "approval.after_commit": "tests.approvals.test_deciding",
    "approval.after_call": "tests.approvals.test_deciding",
    "job.before_start": "tests.engine.test_jobs_killed",
    "job.before_commit": "tests.engine.test_jobs_killed",
    "job.after_commit": "tests.engine.test_jobs_killed",
    "journal.after_write": "tests.journal.test_killed_writers",  # the kill loses a flush and no order
}

# One case per failpoint; every run of the tests includes these.
SLICE = {
    ("web.after_submission_commit", "", 1),
    ("submit.before_commit", "", 1),
    ("submit.after_commit", "", 2),
    ("scheduler.after_claim", "undo:book-shipment", 1),
    ("scheduler.mid_dispatch", "reserve-stock", 1),
    ("agent.after_start", "book-shipment", 1),
    ("agent.before_call", "undo:charge-payment", 1),
    ("agent.after_intention", "notify-customer", 1),
    ("agent.after_checkpoint", "charge-payment", 1),
    ("agent.after_effect", "charge-payment", 2),
    ("undo.after_effect", "undo:reserve-stock", 1),
    ("agent.after_finish", "notify-customer", 1),
    ("supervisor.before_commit", "charge-payment", 1),
    ("supervisor.after_commit", "notify-customer", 1),
    ("relay.after_publish", "", 1),
}
WITH_PICKUP_SLICE = {("submit.after_commit", "", 2)}  # here another role dies than without it


@dataclass(frozen=True)
class Case:
    """The process to kill: at which failpoint, at which step, the first or second time that it gets there.

    pickup: local pick-up is on.
    """

    point: str
    step: str
    time: int
    victim: str
    pickup: bool

    @property
    def alone(self) -> bool:
        """Whether the agents process is killed before a scheduler is needed: it schedules the order, and there is no scheduler."""
        return self.pickup and self.victim == "agents" and not self.undoing

    @property
    def undoing(self) -> bool:
        """Whether the step is an undo step, so that the order has to be undone."""
        return self.step.startswith("undo:")

    @property
    def in_slice(self) -> bool:
        """Whether every run of the tests includes this case."""
        return (self.point, self.step, self.time) in (WITH_PICKUP_SLICE if self.pickup else SLICE)

    @property
    def needs_a_second_order(self) -> bool:
        """Whether the victim gets to its failpoint for the second time only with a second order.

        A charge has two operations, so an order passes the point after an intention twice at that step.
        """
        return self.time == 2 and (self.point, self.step) not in (
            ("relay.after_publish", ""),
            ("agent.after_intention", "charge-payment"),
        )

    @property
    def repeats_the_mail(self) -> bool:
        """Whether the victim dies after it sent the mail and before it recorded that: the next attempt sends the mail again."""
        return (self.point, self.step) == ("agent.after_effect", "notify-customer")

    @property
    def helper(self) -> dict[str, str]:
        """The faults that the agents' worker needs so that the victim reaches its failpoint.

        The scheduler claims a later forward step only after it failed once. (It claims every undo step, and it dispatches
        the first step.) The supervisor sweeps a step only after its deadline.
        """
        # With two orders an agent starts the step for the second time at the first order's second attempt.
        times = "1" if self.time == 1 else "1+3"
        if self.point.startswith("supervisor."):
            fault = f"agent.after_start=sleep=2.2@{times}"
        elif self.victim == "scheduler" and self.step in STEPS and (self.point, self.step) != ("scheduler.mid_dispatch", STEPS[0]):
            fault = f"agent.before_call=raise@{times}"
        else:
            return {}
        return {"FAILPOINTS": fault, "FAILPOINT_STEP": self.step}

    def __str__(self) -> str:
        return "-".join(filter(None, (self.point, self.step, str(self.time), "pickup" if self.pickup else "")))


def cases() -> Iterator[Case]:
    """The whole matrix, ordered so that few workers have to be replaced between cases."""
    for pickup, points in ((False, POINTS), (True, WITH_PICKUP)):
        for point, (victim, steps) in points.items():
            for step in steps:
                for time in (1, 2):
                    yield Case(point, step, time, victim, pickup)
