"""The process of `worker` with a workflow whose runs go back: `python -m tests.workflows.going_back DATABASE CALLS`."""

from __future__ import annotations

import sys
import time

from supervision import Agent, PermanentFailure, Step, Workflow, parallel, plan, register, register_agent
from tests.workflows import worker

NAME = "killed-going-back"


class Joiner(Agent):
    """Notes each call and each undo. The last step fails the first time."""

    name = "joiner"

    def perform(self, request):
        self.note(request)
        if request.step == "join" and request.generation == 1:
            raise PermanentFailure("it does not fit")
        return {}

    def compensate(self, request):
        self.note(request)
        return {}

    def note(self, request):
        worker.note(request)
        time.sleep(0.02)


register_agent(Joiner())
CUT, PLANE, DRILL = (Step(name, agent="joiner") for name in ("cut", "plane", "drill"))
STEPS = plan(Step("measure", agent="joiner"), parallel([CUT, PLANE], DRILL), Step("join", agent="joiner"))
register(Workflow(NAME, STEPS))

if __name__ == "__main__":
    worker.main(*sys.argv[1:])
