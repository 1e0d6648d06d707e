"""The checks find bugs: they pass on the unchanged engine and fail with each seeded bug."""

from __future__ import annotations

import pytest

from tests.teeth.checks import CHECKS, SIMULATED
from tests.teeth.mutants import MUTANTS, Mutant


@pytest.fixture
def store(request: pytest.FixtureRequest) -> None:
    """An empty store, as this test's check needs it."""
    request.getfixturevalue("simulated" if request.getfixturevalue("check") in SIMULATED else "engine")


@pytest.mark.parametrize("check", [name for name in CHECKS if name != "the_simulation"])  # `tests/simulation` plays that
def test_the_check_is_green_on_the_engine_as_it_is(check, store, services):
    CHECKS[check](services)


@pytest.mark.parametrize(("mutant", "check"), [pytest.param(mutant, mutant.caught_by, id=mutant.bug) for mutant in MUTANTS])
def test_a_seeded_bug_is_caught(mutant: Mutant, check: str, store, services):
    with mutant.patch(), pytest.raises(Exception) as caught:
        CHECKS[check](services)
    print(f"{mutant.bug}: {type(caught.value).__name__}: {caught.value}")


def test_at_least_twelve_bugs_are_seeded():
    assert len({mutant.bug for mutant in MUTANTS}) >= 12
