"""A submission that kills whoever reads it does not stop the shop: it is counted on receipt and set aside."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from django.db import connection

from supervision import operations, submission
from supervision.models import DeadLetter, Run, Submission
from supervision.submission import NewSubmission
from tests.intake.conftest import ROOT

pytestmark = pytest.mark.usefixtures("engine")


def test_a_submission_that_kills_its_readers_is_set_aside_and_the_others_become_orders() -> None:
    bodies = ['{"n": 1}', '{"n": 2}', '{"n": "killer"}', '{"n": 3}']
    keys = [submission.new_public_id() for _ in bodies]
    submission.accept([NewSubmission(public_id=key, payload=body, workflow="toy-plain") for key, body in zip(keys, bodies, strict=True)])

    arguments = [sys.executable, "-m", "tests.intake.process", str(connection.settings_dict["NAME"]), "submissions"]
    done = subprocess.run(arguments, cwd=ROOT, env=os.environ, capture_output=True, text=True, check=False, timeout=60)

    assert done.stdout.splitlines() == ["killed"] * 3 + ["ended"], done.stderr
    assert sorted(Run.objects.values_list("key", flat=True)) == sorted([keys[0], keys[1], keys[3]])
    [letter] = DeadLetter.objects.all()
    assert (letter.public_id, bytes(letter.body), letter.source) == (keys[2], bodies[2].encode(), "submission")
    assert letter.deliveries == 4
    assert "4 times" in letter.reason

    operations.requeue_dead_letter(letter.pk, by="olga", reason="the reader is mended")
    waiting = Submission.objects.get(public_id=keys[2])
    assert (waiting.consumed_at, waiting.deliveries) == (None, 0)
