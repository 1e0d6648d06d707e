"""One message over HTTP: signed as in Standard Webhooks, to the checked address, with limits, without redirects."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import shutil
import socket
import ssl
import subprocess
import threading
import time
from datetime import UTC, datetime

import pytest
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from supervision.outbox import webhooks
from supervision.outbox.webhooks import Caller
from supervision.runtime import names

SECRET = "whsec_" + base64.b64encode(b"a secret of this test's own, long").decode()
BODY = '{"type":"order.processed","timestamp":"2026-01-01T00:00:00Z","data":{"order":"Zk3","seq":3,"status":"processed"}}'


@pytest.fixture(autouse=True)
def _at_home(settings):
    settings.WEBHOOK_ALLOW_PRIVATE = True


@pytest.fixture
def call():
    """`call(url)` sends one message and returns its outcome."""
    callers: list[Caller] = []

    def send(url, message_id="msg_1"):
        callers.append(Caller(url, SECRET))
        return callers[-1].send(message_id, BODY)

    yield send
    for caller in callers:
        caller.close()


@pytest.fixture
def raw():
    """`raw(function)` serves one connection with it and returns the address."""
    listening: list[socket.socket] = []

    def serve(function):
        server = socket.create_server(("127.0.0.1", 0))
        listening.append(server)

        def accept():
            try:
                while True:
                    connection, _ = server.accept()
                    with connection:
                        with contextlib.suppress(OSError):
                            function(connection)
            except OSError:
                return

        threading.Thread(target=accept, daemon=True).start()
        return f"http://127.0.0.1:{server.getsockname()[1]}/"

    yield serve
    for server in listening:
        server.close()


def test_the_signature_is_verified_by_the_standards_own_library(call, receiver):
    outcome = call(receiver.url + "?x=1")

    (message,) = receiver.messages
    assert (outcome.delivered, outcome.status_code, outcome.error) == (True, 204, "")
    assert message.path == "/hook?x=1"
    assert message.headers["content-type"] == "application/json"
    assert Webhook(SECRET).verify(message.body, message.headers)["data"]["seq"] == 3
    with pytest.raises(WebhookVerificationError):
        Webhook(SECRET).verify(message.body.replace(b"3", b"4"), message.headers)


def test_the_signature_is_what_the_standard_says_without_any_library(call, receiver):
    call(receiver.url)

    (message,) = receiver.messages
    signed = f"{message.id}.{message.headers['webhook-timestamp']}.{BODY}".encode()
    key = base64.b64decode(SECRET.removeprefix("whsec_"))
    expected = "v1," + base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode()
    assert message.headers["webhook-signature"] == expected
    assert abs(int(message.headers["webhook-timestamp"]) - time.time()) < 60


def test_the_library_signs_as_in_the_example_of_the_standard():
    at = datetime.fromtimestamp(1614265330, UTC)
    signer = Webhook("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")

    assert signer.sign("msg_p5jXN8AQM9LWM0D4loKWxJek", at, '{"test": 2432232314}') == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


@pytest.mark.parametrize("status", [200, 201, 202, 204, 299])
def test_an_answer_of_the_2xx_kind_is_a_delivery(call, receiver, status):
    receiver.answer = lambda *_: status

    assert call(receiver.url).delivered


@pytest.mark.parametrize("status", [400, 401, 404, 410, 429, 500, 503])
def test_any_other_answer_is_none_and_is_told_by_its_number(call, receiver, status):
    receiver.answer = lambda *_: status

    outcome = call(receiver.url)

    assert (outcome.delivered, outcome.answered, outcome.status_code, outcome.error) == (False, True, status, f"answered {status}")


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_not_followed(call, receiver, receivers, status):
    elsewhere = receivers()

    def redirect(request, _message):
        request.send_response(status)
        request.send_header("Location", elsewhere.url)
        request.send_header("Content-Length", "0")
        request.end_headers()

    receiver.answer = redirect

    outcome = call(receiver.url)

    assert not outcome.delivered
    assert "redirects are not followed" in outcome.error
    assert (len(receiver.messages), elsewhere.connections) == (1, 0)


def test_a_private_address_is_refused_when_it_is_about_to_be_connected_to(call, receiver, settings):
    settings.WEBHOOK_ALLOW_PRIVATE = False

    outcome = call(receiver.url)

    assert not outcome.delivered
    assert "127.0.0.1, which is not a public address" in outcome.error
    assert receiver.connections == 0


def test_a_name_that_has_come_to_mean_a_private_address_is_refused(call, receiver, settings, monkeypatch):
    """The sender resolves the name once per connection and connects to exactly the address that it checked."""
    settings.WEBHOOK_ALLOW_PRIVATE = False
    answers = iter(["127.0.0.1", "1.1.1.1"])

    def meaning(host, port, **_):
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (next(answers), port))]

    monkeypatch.setattr(socket, "getaddrinfo", meaning)

    outcome = call(receiver.url.replace("127.0.0.1", "rebinding.example"))

    assert "not a public address" in outcome.error
    assert receiver.connections == 0
    assert next(answers) == "1.1.1.1"  # the name was not resolved a second time


def test_an_address_of_a_family_that_the_kernel_lacks_is_passed_over(call, receiver, monkeypatch):
    def meaning(host, port, **_):
        return [(9999, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port)), (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))]

    monkeypatch.setattr(socket, "getaddrinfo", meaning)

    assert call(receiver.url.replace("127.0.0.1", "both.example")).delivered


def test_a_name_server_without_an_answer_holds_a_sender_no_longer_than_one_try(call, silent, monkeypatch):
    monkeypatch.setattr(webhooks, "TRY_SECONDS", 0.3)

    outcomes = [call("http://silent.example/") for _ in range(3)]

    assert {(outcome.delivered, outcome.answered, outcome.error) for outcome in outcomes} == {
        (False, False, "the name silent.example was not resolved in time")
    }
    assert all(outcome.seconds < 20 for outcome in outcomes)
    assert silent == ["silent.example"], "each try began a lookup, and a thread, of its own"


def test_names_without_an_answer_take_so_many_threads_and_no_more(call, silent, monkeypatch):
    monkeypatch.setattr(webhooks, "TRY_SECONDS", 0.2)
    monkeypatch.setattr(names, "MOST_LOOKUPS", 2)

    errors = [call(f"http://{name}.example/").error for name in ("a", "b", "c")]

    assert errors == [f"the name {name}.example was not resolved in time" for name in ("a", "b", "c")]
    assert silent == ["a.example", "b.example"]


def test_a_receiver_that_says_nothing_is_given_up_in_time(call, receiver, monkeypatch):
    monkeypatch.setattr(webhooks, "TRY_SECONDS", 0.3)
    released = receiver.hang()

    outcome = call(receiver.url)
    released.set()

    assert (outcome.delivered, outcome.answered, outcome.status_code) == (False, False, None)
    assert outcome.error.startswith("no answer in")


def test_a_receiver_that_answers_drop_by_drop_gains_no_time(call, raw, monkeypatch):
    monkeypatch.setattr(webhooks, "TRY_SECONDS", 0.4)

    def drip(connection):
        connection.recv(65536)
        connection.sendall(b"HTTP/1.1 200 OK\r\n")
        for _ in range(1000):
            connection.sendall(b"X")
            time.sleep(0.02)

    began = time.monotonic()
    outcome = call(raw(drip))

    assert not outcome.delivered
    assert time.monotonic() - began < 10


def test_a_large_answer_is_not_read_to_its_end(call, raw):
    sent = []

    def flood(connection):
        connection.recv(65536)
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000000\r\n\r\n")
        for _ in range(1000):
            connection.sendall(b"x" * 100_000)
            sent.append(1)

    outcome = call(raw(flood))

    assert outcome.delivered
    assert len(sent) < 1000


ENDLESS_HEAD = b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 500 + b"\r\n"


@pytest.mark.parametrize("answer", [b"", b"nonsense\r\n\r\n", b"HTTP/1.1 abc\r\n\r\n", ENDLESS_HEAD])
def test_what_is_no_http_is_told_and_not_raised(call, raw, answer):
    def speak(connection):
        connection.recv(65536)
        connection.sendall(answer)

    outcome = call(raw(speak))

    assert (outcome.delivered, outcome.answered) == (False, False)
    assert outcome.error


def test_nobody_at_the_address_is_told_and_not_raised(call):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

    assert call(f"http://127.0.0.1:{port}/").error == "no connection: Connection refused"
    assert "no connection" in call("http://no-such-host.invalid/").error


def test_several_messages_share_a_connection_and_survive_its_end(receiver):
    caller = Caller(receiver.url, SECRET)
    assert [caller.send(f"msg_{n}", BODY).delivered for n in range(3)] == [True] * 3
    assert receiver.connections == 1

    def hang_up(request, _message):
        request.close_connection = True
        return 204

    receiver.answer = hang_up
    assert [caller.send(f"msg_{n}", BODY).delivered for n in range(3, 6)] == [True] * 3
    caller.close()

    assert [message.id for message in receiver.messages] == [f"msg_{n}" for n in range(6)]


@pytest.fixture
def certificate(tmp_path):
    """A self-signed certificate for `localhost`."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
         "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-keyout", key, "-out", certificate],
        check=True, capture_output=True, timeout=30,
    )  # fmt: skip
    return certificate, key


def test_https_is_spoken_with_who_can_prove_the_name_and_with_nobody_else(call, receiver, certificate, monkeypatch):
    theirs = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    theirs.load_cert_chain(*certificate)
    receiver.server.socket = theirs.wrap_socket(receiver.server.socket, server_side=True)
    address = receiver.url.replace("http://127.0.0.1", "https://localhost")

    assert call(address).error.startswith("the certificate is not valid")

    trusting = ssl.create_default_context(cafile=str(certificate[0]))
    monkeypatch.setattr(webhooks, "_tls", lambda: trusting)
    assert call(address).delivered
    assert call(address.replace("localhost", "127.0.0.1")).error.startswith("the certificate is not valid")
    assert len(receiver.messages) == 1
