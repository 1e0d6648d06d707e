"""Hashing takes one thread of a web process at a time, and few wait for it."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

from django.contrib.auth.hashers import PBKDF2PasswordHasher, make_password

from orders.identity.hashing import HashingBusy
from tests.shopping import PASSWORD


def busy(*args: object) -> str:
    raise HashingBusy


def test_one_password_is_hashed_at_a_time_and_those_who_would_wait_long_are_sent_away(monkeypatch, eventually) -> None:
    go_on, inside, most = threading.Event(), [], []

    def encode(self: PBKDF2PasswordHasher, password: str, *args: object) -> str:
        inside.append(password)
        most.append(len(inside))
        go_on.wait(30)
        inside.remove(password)
        return "hash"

    monkeypatch.setattr(PBKDF2PasswordHasher, "encode", encode)
    with ThreadPoolExecutor(12) as threads:
        tries = [threads.submit(make_password, f"password {number}") for number in range(12)]
        eventually(lambda: sum(one.done() for one in tries) == 9)
        go_on.set()

    assert sum(isinstance(one.exception(), HashingBusy) for one in tries) == 9
    assert max(most) == 1
    assert make_password(PASSWORD) == "hash"


def test_a_sign_in_that_found_no_place_is_told_so_and_counts_as_no_try(client, ada, monkeypatch, db) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(PBKDF2PasswordHasher, "encode", busy)
        answers = [client.post("/accounts/login/", {"username": "ada", "password": PASSWORD}) for _ in range(12)]

    assert {answer.status_code for answer in answers} == {503}
    assert answers[0].headers["Retry-After"] == "3"
    assert "Many people are signing in" in answers[0].text
    assert client.post("/accounts/login/", {"username": "ada", "password": PASSWORD}).status_code == 302


def test_a_password_that_is_entered_again_and_found_no_place_counts_as_no_try(client, ops, monkeypatch) -> None:
    client.force_login(ops, "django.contrib.auth.backends.ModelBackend")
    page, proof = "/admin/second-factor/enrol/", {"proof-kind": "password", "proof-password": "operators-own-password", "proof-back": "1"}

    with monkeypatch.context() as patch:
        patch.setattr(PBKDF2PasswordHasher, "encode", busy)
        answers = [client.post(page, proof) for _ in range(12)]

    assert {answer.status_code for answer in answers} == {503}
    assert "Many people sign in at this moment" in answers[-1].text
    assert client.post(page, proof)["Location"] == page
