"""Taking a person out of a run takes it out of every run below it, and waits for those that the archive has not taken."""

from __future__ import annotations

import json

from django.db.models.functions import Now

from supervision import ChildRun
from supervision.models import ArchivedRun, Notification, Run
from supervision.postgres import db
from supervision.privacy import erasing
from supervision.privacy.words import Words
from tests.support import toy
from tests.workflows.conftest import ALPHA, BETA
from tests.workflows.test_children import GAMMA, PACK, family

__all__ = ["family"]

BOX = ChildRun("box", workflow="boxing", retry=toy.RETRY)


def three_generations(sas, family, flow):
    """A parent, its child and its grandchild, all Processed, each with the person's name in its payload."""
    family(ALPHA, PACK, child=(BOX, BETA))
    flow(GAMMA, name="boxing")
    run = sas.start("waiting", {"customer": "Zoe Quox"})
    run.assert_state("Processed")
    assert Run.objects.filter(payload__contains={"customer": "Zoe Quox"}).count() == 3
    return run


def erase(run) -> None:
    db.transact(lambda: erasing.runs([run.key], Words([]), {"customer"}, ()))


def named() -> int:
    return sum("Quox" in json.dumps(body) for body in ArchivedRun.objects.values_list("body", flat=True))


def test_a_person_goes_out_of_children_and_their_children(sas, family, flow):
    run = three_generations(sas, family, flow)

    erasing.leave([run.key])

    assert erasing.here([run.key]) == set()
    assert (ArchivedRun.objects.count(), named()) == (3, 3)
    erase(run)
    assert named() == 0


def test_a_run_is_still_here_while_one_below_it_is_held(sas, family, flow):
    run = three_generations(sas, family, flow)
    box = Run.objects.get(workflow="boxing")
    held = Notification.objects.create(kind="incident", run_id=box.pk, payload={}, not_before=Now())

    erasing.leave([run.key])

    assert set(Run.objects.values_list("key", flat=True)) == {box.key}
    assert erasing.here([run.key, "another"]) == {run.key}
    held.delete()
    erasing.leave([run.key])
    assert erasing.here([run.key]) == set()
    erase(run)
    assert named() == 0
