"""Parents and children on the admin's pages, and the check of their names at start."""

from __future__ import annotations

import re

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from supervision import ChildRun, ForEach, PermanentFailure, checks
from supervision.models import Run
from tests.engine import kit
from tests.shopping import a_client, an_account
from tests.support import toy
from tests.support.people import viewer
from tests.workflows.conftest import ALPHA
from tests.workflows.test_children import PACK, child_of, family

__all__ = ["family", "viewer"]
pytestmark = pytest.mark.django_db(transaction=True)


def page(client, key):
    html = client.get(reverse("admin:supervision_run_change", args=[Run.objects.get(key=key).pk])).content.decode()
    return re.sub(r"\s+", " ", html)


def of_run(key):
    return f"of-run/{Run.objects.get(key=key).pk}/"


def test_the_pages_of_parent_and_child_lead_to_each_other(sas, family, viewer):
    family(ALPHA, PACK)
    sas.fake("beta-step", raises=PermanentFailure("no box"))
    run = sas.start("waiting")
    child = child_of(run).key
    parents, childs = page(viewer, run.key), page(viewer, child)
    assert of_run(child) in parents
    assert "pack: 1 Error" in parents
    assert f"waits for child {child}, which is in Error at step beta-step." in parents
    assert of_run(run.key) in childs
    assert "at step <b>pack</b>" in childs


def test_an_ordinary_run_has_no_family_on_its_page(sas, family, viewer):
    family(ALPHA)
    html = page(viewer, sas.start("waiting").key)
    assert "sc-parent" not in html
    assert "sc-children" not in html


def test_the_api_names_parent_and_children(sas, family):
    api = a_client(an_account("vera", "viewer"))
    family(ALPHA, PACK)
    run = sas.start("waiting")
    child = child_of(run).key

    above, below = (api.get(f"/api/v1/orders/{key}/family/") for key in (run.key, child))
    assert above.json() == {
        "parent": None,
        "children": [{"id": child, "step": "pack", "process_state": "Processed"}],
        "children_by_state": {"pack": {"Processed": 1}},
    }
    assert below.json() == {"parent": {"id": run.key, "step": "pack"}, "children": [], "children_by_state": {}}
    assert api.get("/api/v1/orders/unknown/family/").status_code == 404


def test_many_children_are_counted_on_the_page(sas, family, viewer):
    family(ForEach("parcels", workflow="packing", retry=toy.RETRY, items=lambda _facts: list(range(70))))
    html = page(viewer, sas.start("waiting").key)
    assert "parcels: 70 Processed" in html
    assert "20 more are not shown." in html
    assert html.count("of-run/") == 50


def test_the_page_asks_as_often_for_many_children_as_for_few(sas, family, viewer):
    family(ForEach("parcels", workflow="packing", retry=toy.RETRY, items=lambda facts: list(range(facts.payload["n"]))))
    few, many = (sas.start("waiting", {"n": n}).key for n in (1, 60))
    page(viewer, few)
    assert count(viewer, many) == count(viewer, few)


def count(client, key):
    with CaptureQueriesContext(connection) as made:
        page(client, key)
    return len(made)


@pytest.mark.parametrize(("wanted", "shown"), [("no", 1), ("only", 3), ("", 4)])
def test_the_list_of_runs_leaves_children_out(sas, family, viewer, wanted, shown):
    family(ForEach("parcels", workflow="packing", retry=toy.RETRY, items=lambda _facts: [1, 2, 3]))
    sas.start("waiting")
    html = viewer.get(reverse("admin:supervision_run_changelist"), {"children": wanted} if wanted else {}).content.decode()
    assert len(set(re.findall(r"/run/(\d+)/change/", html))) == shown


def test_a_child_is_resubmitted_from_the_command(sas, family):
    family(ALPHA, PACK)
    sas.fake("beta-step", raises=PermanentFailure("no box"), times=1)
    run = sas.start("waiting")
    kit.said("resubmit", child_of(run).key, "--reason", "there is a box now")
    sas.run()
    run.assert_state("Processed")


def test_a_step_that_starts_runs_of_no_workflow_is_found_at_start(flow):
    flow(ChildRun("pack", workflow="pakking"), ChildRun("wrap", workflow="waiting"))
    [message] = checks.check_children(app_configs=None)
    assert message.id == "supervision.E021"
    assert "step 'pack' starts runs of 'pakking', which is not registered" in message.msg
