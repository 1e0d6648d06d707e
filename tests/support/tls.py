"""Real servers behind TLS: a certificate authority, and a door in front of a server that asks for certificates."""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import trustme

PLEASE = b"\0\0\0\x08\x04\xd2\x16\x2f"  # PostgreSQL's request for TLS


class Authority:
    """An authority, a certificate of the server `localhost`, and one for the client `sas`."""

    def __init__(self, directory: Path) -> None:
        directory.chmod(0o755)
        self.ca, self.cert, self.key = (str(directory / f"{name}.pem") for name in ("ca", "cert", "key"))
        self._authority = trustme.CA()
        self._authority.cert_pem.write_to_path(self.ca)
        client = self._authority.issue_cert("client@shop.example", common_name="sas")
        client.cert_chain_pems[0].write_to_path(self.cert)
        client.private_key_pem.write_to_path(self.key)
        Path(self.key).chmod(0o600)
        self.server = self._authority.issue_cert("localhost")

    def context(self) -> ssl.SSLContext:
        """A server's context, which asks its clients for a certificate."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(self.ca)
        self.server.configure_cert(context)
        return context


@contextmanager
def door(context: ssl.SSLContext, host: str, port: int, *, asked: bool = False) -> Iterator[int]:
    """A port that ends TLS and passes on to the server at host and port, or in the socket directory `host`.

    asked: the client asks for TLS first, in PostgreSQL's protocol.
    """
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            if asked and await reader.readexactly(8) == PLEASE:
                writer.write(b"S")
                await writer.start_tls(context)
            reach = asyncio.open_unix_connection(f"{host}/.s.PGSQL.{port}") if host.startswith("/") else asyncio.open_connection(host, port)
            from_server, to_server = await reach
            await asyncio.gather(pump(reader, to_server), pump(from_server, writer))
        writer.close()

    async def pump(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await source.read(65536):
                target.write(data)
                await target.drain()
        target.close()

    async def listen() -> asyncio.Server:
        return await asyncio.start_server(carry, "127.0.0.1", 0, ssl=None if asked else context)

    thread.start()
    server = asyncio.run_coroutine_threadsafe(listen(), loop).result(10)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        loop.call_soon_threadsafe(server.close)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
