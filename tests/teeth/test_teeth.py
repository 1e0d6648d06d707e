"""The checks find bugs: they pass on the unchanged engine and fail with each seeded bug."""

from __future__ import annotations

import pytest

from tests.teeth.checks import CHECKS
from tests.teeth.mutants import MUTANTS, Mutant

pytestmark = pytest.mark.usefixtures("engine")


@pytest.mark.parametrize("check", CHECKS.values(), ids=CHECKS)
def test_the_check_is_green_on_the_engine_as_it_is(check, services):
    check(services)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.bug)
def test_a_seeded_bug_is_caught(mutant: Mutant, services):
    with mutant.patch(), pytest.raises(Exception) as caught:
        CHECKS[mutant.caught_by](services)
    print(f"{mutant.bug}: {type(caught.value).__name__}: {caught.value}")


def test_at_least_twelve_bugs_are_seeded():
    assert len({mutant.bug for mutant in MUTANTS}) >= 12
