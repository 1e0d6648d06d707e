"""The address of a form leads to the page that shows the form: after a session has ended, and from a form that was refused."""

from __future__ import annotations

import pytest

from tests.shopping import PASSWORD, place

pytestmark = pytest.mark.usefixtures("no_hints")
FORMS = {
    "/accounts/email/": "/accounts/",
    "/accounts/tokens/0123456789abcde/revoke/": "/accounts/tokens/",
    "/accounts/addresses/7/change/": "/accounts/addresses/",
}


@pytest.mark.parametrize("form", FORMS)
def test_who_sends_a_form_after_the_session_has_ended_signs_in_and_comes_to_its_page(client, ada, form) -> None:
    asked = client.post(form, {"delete": "1"})

    there = client.post(asked["Location"], {"username": "ada", "password": PASSWORD}, follow=True)

    assert asked["Location"].startswith("/accounts/login/?next=")
    assert (there.status_code, there.redirect_chain[-1][0]) == (200, FORMS[form])


def test_the_language_is_changed_on_a_form_that_was_refused(client, ada, mug) -> None:
    order = f"/orders/{place(ada)}/"
    client.force_login(ada)
    refused = {f"{order}cancel/": {"reason": "x" * 501}, "/accounts/email/": {"email": "x", "password": "x"}}

    for form, typed in refused.items():
        assert client.post(form, typed).status_code == 400
        changed = client.post("/i18n/setlang/", {"language": "it"}, headers={"Referer": f"http://testserver{form}"}, follow=True)
        assert (changed.status_code, changed.redirect_chain[-1][0]) == (200, order if order in form else "/accounts/")
        assert '<html lang="it">' in changed.text
