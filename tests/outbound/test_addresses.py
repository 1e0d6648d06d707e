"""Webhooks go to public addresses only; every notation of a private address is refused."""

from __future__ import annotations

import socket
from ipaddress import ip_address

import pytest

from supervision.outbox import address_policy
from supervision.outbox.address_policy import Destination, Forbidden

PRIVATE = [
    "127.0.0.1", "127.8.9.1", "0.1.2.3", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1",
    "100.100.100.200", "168.63.129.16", "192.0.0.192", "224.0.0.1", "239.1.1.1", "240.0.0.1", "255.255.255.255",
    "::", "::1", "fe80::1", "fec0::1", "fc00::1", "fd00:ec2::254", "ff02::1", "::ffff:10.0.0.1", "::ffff:127.0.0.1",
    "64:ff9b::a00:1", "64:ff9b::7f00:1", "2002:7f00:1::", "2002:a00:1::1", "2001:0:7f00:1::", "2001:db8::1",
    "::127.0.0.1", "::10.0.0.1", "::1.1.1.1", "::ffff:0:127.0.0.1", "::ffff:0:1.1.1.1", "64:ff9b:1::7f00:1", "64:ff9b:1::101:101",
    "2002:c0a8:101::", "2001:0:4136:e378:8000:63bf:80ff:fffe", "2606:4700::5efe:7f00:1", "2606:4700::200:5efe:a00:1", "192.88.99.1",
    "3fff::1", "5f00::1", "100::1", "4000::1", "fe00::1",
]  # fmt: skip
PUBLIC = ["1.1.1.1", "93.184.215.14", "2606:4700::1111", "64:ff9b::101:101"]


@pytest.mark.parametrize("address", PRIVATE)
def test_a_private_address_is_known_as_one(address):
    assert address_policy.is_private(ip_address(address))


@pytest.mark.parametrize("address", PUBLIC)
def test_a_public_address_is_known_as_one(address):
    assert not address_policy.is_private(ip_address(address))


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1/", "http://127.0.0.1:8000/hook", "https://localhost/", "http://LOCALHOST./", "http://a.localhost/",
        "http://[::1]/", "http://[::ffff:127.0.0.1]/", "http://10.0.0.7/", "http://169.254.169.254/latest/",
        "http://[::127.0.0.1]/", "http://[::ffff:0:127.0.0.1]/", "http://[64:ff9b:1::7f00:1]/",
        "http://2130706433/", "http://0x7f.1/", "http://127.1/", "http://0177.0.0.1/", "http://0/",
    ],
)  # fmt: skip
def test_a_private_address_is_refused_when_it_is_given_however_it_is_written(url):
    with pytest.raises(Forbidden, match="not a public address"):
        address_policy.check(url)


@pytest.mark.parametrize(
    "url",
    [
        "", "shop.example", "//shop.example/", "ftp://shop.example/", "file:///etc/passwd", "gopher://shop.example/", "https://",
        "https:///path", "https://user@shop.example/", "https://user:pw@shop.example/", "https://shop.example/#part",
        "https://shop.example:0/", "https://shop.example:99999/", "https://shop.example:x/", "https://[::1/", "https://a b/",
        "https://shop.example/\r\nX: y", "https://shop.example\\@127.0.0.1/", f"https://shop.example/{'x' * 2000}",
        "https://" + "a" * 64 + ".example/", "javascript:alert(1)", "https://..example/", "http://[fe80::1%25eth0]/",
    ],
)  # fmt: skip
def test_what_is_no_address_of_a_web_server_is_refused(url):
    with pytest.raises(Forbidden):
        address_policy.check(url)


@pytest.mark.parametrize(
    ("url", "destination"),
    [
        ("https://shop.example/hook?x=1", Destination("https", "shop.example", 443, "/hook?x=1")),
        ("http://shop.example:80", Destination("http", "shop.example", 80, "/")),
        ("https://bücher.example/ä", Destination("https", "xn--bcher-kva.example", 443, "/%C3%A4")),
        ("https://[2606:4700::1111]/", Destination("https", "2606:4700::1111", 443, "/")),
    ],
)
def test_a_public_address_is_let_pass(url, destination):
    address_policy.check(url)

    assert address_policy.parse(url) == destination


@pytest.mark.parametrize("url", ["https://1.1.1.1:22/", "http://1.1.1.1:8080/", "https://[2606:4700::1111]:6379/"])
def test_another_port_is_refused_unless_the_installation_allows_it(url, settings):
    destination = address_policy.parse(url)

    for refuse in (lambda: address_policy.check(url), lambda: address_policy.resolve(destination)):
        with pytest.raises(Forbidden, match=f"{destination.port} is not one that we send to; these are: 80, 443"):
            refuse()
    settings.WEBHOOK_PORTS = [443, destination.port]
    address_policy.check(url)
    address_policy.resolve(destination)
    settings.WEBHOOK_PORTS, settings.WEBHOOK_ALLOW_PRIVATE = [443], True
    address_policy.check(url)


def test_a_name_that_dns_does_not_know_is_refused_by_its_port():
    with pytest.raises(Forbidden, match="8080"):
        address_policy.check("https://no-such-name.invalid:8080/")


def test_private_addresses_are_let_pass_where_the_installation_says_so(settings):
    settings.WEBHOOK_ALLOW_PRIVATE = True

    address_policy.check("http://127.0.0.1:8000/")
    assert address_policy.resolve(address_policy.parse("http://127.0.0.1:8000/"))[0][1] == ("127.0.0.1", 8000)


def test_a_name_with_one_private_address_among_public_ones_is_refused(monkeypatch):
    found = [(socket.AF_INET, 1, 6, "", (address, 443)) for address in ("1.1.1.1", "10.0.0.1")]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)

    with pytest.raises(Forbidden, match=r"10\.0\.0\.1"):
        address_policy.check("https://two-faced.example/")
