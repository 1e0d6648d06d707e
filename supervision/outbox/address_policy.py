"""Allowed destinations of outgoing messages: an address that an account enters must not lead into our own network.

It is checked twice: when it is entered, and when a deliverer connects, on the very IP address that its name has just been
resolved to. So it gains nothing to change the name's DNS entry in between. Ports are those of the web, or of WEBHOOK_PORTS.
WEBHOOK_ALLOW_PRIVATE=1 lifts all of this.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.utils.encoding import iri_to_uri
from django.utils.translation import gettext as _

from supervision.runtime import names

MOST_CHARACTERS = 2000
PORTS = {"http": 80, "https": 443}
RESOLVE_SECONDS = 3.0  # of a person who enters an address, and waits for the page

_NAT64 = IPv6Network("64:ff9b::/96")
# Public IPv6 addresses are of this network, or of NAT64. Outside of it IPv4 addresses are compatible, mapped or translated ones.
_UNICAST = IPv6Network("2000::/3")
_ISATAP = (0x00005EFE, 0x02005EFE)
# Addresses of clouds' metadata services, a relay, and examples, that Python's own lists lack. One of them looks public.
_MORE = (IPv4Network("192.0.0.0/24"), IPv4Network("168.63.129.16/32"), IPv4Network("192.88.99.0/24"), IPv6Network("3fff::/20"))


class Forbidden(Exception):
    """The address is not one that we send to; the message says why."""


@dataclass(frozen=True)
class Destination:
    """A parsed address. path: includes the query."""

    scheme: str
    host: str
    port: int
    path: str


def is_private(address: IPv4Address | IPv6Address) -> bool:
    """Whether it leads to this machine, its network or a cloud's metadata, also as an IPv4 address inside an IPv6 one."""
    if isinstance(address, IPv6Address):
        inner = [address.ipv4_mapped, address.sixtofour, *(address.teredo or ())]
        last = IPv4Address(int(address) & 0xFFFFFFFF)
        if address in _NAT64:
            return is_private(last)
        if int(address) >> 32 & 0xFFFFFFFF in _ISATAP:
            inner.append(last)
        if address not in _UNICAST or any(each is not None and is_private(each) for each in inner):
            return True
    return not address.is_global or address.is_multicast or any(address in network for network in _MORE)


def parse(url: str) -> Destination:
    """Parse an address. Raises Forbidden if it is invalid, or of a kind that we do not send to."""
    if len(url) > MOST_CHARACTERS:
        raise Forbidden(_("The address is longer than %(most)d characters.") % {"most": MOST_CHARACTERS})
    if any(character <= " " or character in '\\\x7f"<>' for character in url):
        raise Forbidden(_("The address contains characters that no address has."))
    try:
        parts = urlsplit(url)
        port = parts.port
        host = (parts.hostname or "").encode("idna").decode() if not _is_ipv6(parts.hostname) else parts.hostname
    except ValueError:  # UnicodeError is one
        raise Forbidden(_("This is not an address.")) from None
    if parts.scheme not in PORTS or not host or "%" in host or port == 0:
        raise Forbidden(_("Expected an address that begins with https:// or http:// and names a host."))
    if parts.username is not None or parts.password is not None:
        raise Forbidden(_("The address must not contain a user name or a password."))
    if parts.fragment:
        raise Forbidden(_("The address must not contain a fragment (#)."))
    path = iri_to_uri(parts.path or "/") + (f"?{iri_to_uri(parts.query)}" if parts.query else "")
    return Destination(parts.scheme, host, port or PORTS[parts.scheme], path)


def _is_ipv6(host: str | None) -> bool:
    return host is not None and ":" in host


def _check_port(destination: Destination) -> None:
    allowed = getattr(settings, "WEBHOOK_PORTS", tuple(PORTS.values()))
    if destination.port not in allowed:
        ports = ", ".join(str(port) for port in sorted(allowed))
        raise Forbidden(
            _("The port %(port)s is not one that we send to; these are: %(ports)s.") % {"port": destination.port, "ports": ports}
        )


def resolve(destination: Destination, seconds: float = RESOLVE_SECONDS) -> list[Any]:
    """The socket addresses (family, sockaddr) to connect to, within so many seconds. Raises OSError if there are none.

    Raises Forbidden if any is private, or if the port is not one of the setting WEBHOOK_PORTS.
    """
    found = names.look_up(destination.host, destination.port, seconds)
    if not getattr(settings, "WEBHOOK_ALLOW_PRIVATE", False):
        for _family, _kind, _protocol, _name, sockaddr in found:
            address = ip_address(str(sockaddr[0]).partition("%")[0])
            if is_private(address):
                raise Forbidden(
                    _("%(host)s leads to %(address)s, which is not a public address.") % {"host": destination.host, "address": address}
                )
        _check_port(destination)
    return [(family, sockaddr) for family, _kind, _protocol, _name, sockaddr in found]


def check(url: str) -> None:
    """Refuse an address that we would not send to. A name that DNS does not know (yet) passes; delivery checks again."""
    destination = parse(url)
    if getattr(settings, "WEBHOOK_ALLOW_PRIVATE", False):
        return
    if destination.host.rstrip(".") == "localhost" or destination.host.rstrip(".").endswith(".localhost"):
        raise Forbidden(_("%(host)s is not a public address.") % {"host": destination.host})
    with contextlib.suppress(OSError, UnicodeError):
        resolve(destination)
    _check_port(destination)  # also where the name is not known yet
