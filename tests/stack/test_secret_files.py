"""T21: each secret may stand in a file. A mistake stops the start with one line, which never shows a secret."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.stack.test_settings import ROOT, read, run

SECRETS = {
    "SECRET_KEY": "a-key-that-signs",
    "DATABASE_URL": "postgres://sas:s3cret@db.example/shop",
    "DATABASE_DIRECT_URL": "postgres://sas:s3cret@direct.example/shop",
    "CELERY_BROKER_URL": "amqp://sas:s3cret@mq.example//",
    "EMAIL_URL": "smtp+tls://shop:s3cret@mail.example:587",
    "STRIPE_API_KEY": "sk_live_s3cret",
    "STRIPE_WEBHOOK_SECRET": "whsec_s3cret",
    "CARRIER_API_KEY": "carrier_s3cret",
    "CARRIER_WEBHOOK_SECRET": "carrier_hook_s3cret",
    "OTEL_EXPORTER_OTLP_HEADERS": "authorization=Bearer s3cret",
}
NAMES = "SECRET_KEY DATABASES CELERY_BROKER_URL EMAIL_HOST EMAIL_HOST_PASSWORD STRIPE_API_KEY STRIPE_WEBHOOK_SECRET CARRIER_API_KEY"


def test_every_secret_may_stand_in_a_file(tmp_path: Path):
    for name, value in SECRETS.items():
        (tmp_path / name).write_text(f"{value}\n")
    (tmp_path / "fallbacks").write_text("old-1\nold-2,old-3\n")

    found = read(
        f"{NAMES} CARRIER_WEBHOOK_SECRET OTEL_EXPORTER_OTLP_HEADERS SECRET_KEY_FALLBACKS",
        SECRET_KEY_FALLBACKS_FILE=str(tmp_path / "fallbacks"),
        **{f"{name}_FILE": str(tmp_path / name) for name in SECRETS},
    )

    assert {name: found[name] for name in SECRETS if "URL" not in name or "BROKER" in name} == {
        name: value for name, value in SECRETS.items() if "URL" not in name or "BROKER" in name
    }
    assert {name: (entry["HOST"], entry["PASSWORD"]) for name, entry in found["DATABASES"].items()} == {
        "default": ("db.example", "s3cret"),
        "direct": ("direct.example", "s3cret"),
    }
    assert (found["EMAIL_HOST"], found["EMAIL_HOST_PASSWORD"]) == ("mail.example", "s3cret")
    assert found["SECRET_KEY_FALLBACKS"] == ["old-1", "old-2", "old-3"]


def test_the_list_here_is_the_one_of_the_settings():
    source = "".join(path.read_text() for path in (ROOT / "sasproject").glob("*.py"))
    read_as_secret = set(re.findall(r'env_secrets?\("([A-Z_]+)"', source)) | {"EMAIL_URL"}
    page = (ROOT / "docs" / "operations.md").read_text()

    # Those that need more variables are tried where these are.
    assert read_as_secret == {*SECRETS, "SECRET_KEY_FALLBACKS", "FIELD_ENCRYPTION_KEYS", "OIDC_CLIENT_SECRET", "SENTRY_DSN"}
    assert set(re.findall(r"`([A-Z_]+)_FILE`", page.split("## Secrets in files", 1)[1].split("## ", 1)[0])) >= read_as_secret


@pytest.mark.parametrize("name", SECRETS)
def test_a_secret_that_is_given_twice_stops_the_start(tmp_path: Path, name: str):
    (tmp_path / "secret").write_text(SECRETS[name])
    given = {"SECRET_KEY": "key", name: SECRETS[name], f"{name}_FILE": str(tmp_path / "secret")}

    said = stopped(**given)

    assert f"{name} and {name}_FILE are both set" in said
    assert "s3cret" not in said


def test_a_file_that_gives_no_secret_stops_the_start_with_its_name(tmp_path: Path):
    for name, content in (("empty", b" \n"), ("two", b"s3cret\ns3cret\n"), ("binary", b"\xff\xfes3cret")):
        (tmp_path / name).write_bytes(content)
    (tmp_path / "endless").symlink_to("/dev/zero")

    for name, words in (
        ("none", "No such file"),
        (".", "Is a directory"),
        ("empty", "empty file"),
        ("two", "more than one line"),
        ("binary", "UTF-8"),
        ("endless", "more than 1000000 bytes"),
    ):
        said = stopped(SECRET_KEY="key", STRIPE_API_KEY_FILE=str(tmp_path / name))
        assert "STRIPE_API_KEY_FILE" in said
        assert words in said
        assert str(tmp_path / name) in said
        assert "s3cret" not in said


@pytest.mark.parametrize("name", ["DATABASE_URL", "CELERY_BROKER_URL", "EMAIL_URL"])
@pytest.mark.parametrize("value", ["s3cret", "postgre://sas:s3cret@host", "smtp://u:s3cret@host:many"])
def test_an_address_that_is_refused_is_not_shown(name: str, value: str):
    said = stopped(SECRET_KEY="key", **{name: value})

    assert name in said
    assert "s3cret" not in said


def test_certificates_are_checked_at_the_start(tmp_path: Path):
    (tmp_path / "no.pem").write_text("nothing")
    amqps = {"SECRET_KEY": "key", "CELERY_BROKER_URL": "amqps://mq.example//"}

    assert "BROKER_CA_FILE cannot be read: /none" in stopped(**amqps, BROKER_CA_FILE="/none")
    assert "BROKER_CA_FILE cannot be used" in stopped(**amqps, BROKER_CA_FILE=str(tmp_path / "no.pem"))
    assert "BROKER_CERT_FILE and BROKER_KEY_FILE must be set together" in stopped(**amqps, BROKER_KEY_FILE=str(tmp_path / "no.pem"))
    assert "EMAIL_CA_FILE is set, but the connection has no TLS" in stopped(SECRET_KEY="key", EMAIL_CA_FILE=str(tmp_path / "no.pem"))


def stopped(**environment: str) -> str:
    done = run("manage.py", "check", **environment)
    assert done.returncode != 0
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr
    return done.stderr.strip()
