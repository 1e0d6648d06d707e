"""Describes the machine, and measures CPU and memory of processes in /proc. Without /proc the figures are missing."""

from __future__ import annotations

import os
import platform
import socket
import struct
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

PROC = Path("/proc")
GROUPS = ("workers", "client", "database", "broker", "links")


@dataclass(frozen=True)
class Process:
    """One line of the process table. reaped: CPU of its children that have ended."""

    pid: int
    parent: int
    name: str
    cpu_seconds: float
    reaped_seconds: float
    resident_mb: float


def processes() -> dict[int, Process]:
    """All processes of this machine, by process id."""
    ticks, page = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")
    found = {}
    for entry in PROC.iterdir() if PROC.is_dir() else ():
        if not entry.name.isdigit():
            continue
        try:
            text = (entry / "stat").read_text()
        except OSError:
            continue  # it has just ended
        head, _, tail = text.rpartition(")")
        fields = tail.split()
        found[int(entry.name)] = Process(
            pid=int(entry.name),
            parent=int(fields[1]),
            name=head.partition("(")[2],
            cpu_seconds=(int(fields[11]) + int(fields[12])) / ticks,
            reaped_seconds=(int(fields[13]) + int(fields[14])) / ticks,
            resident_mb=int(fields[21]) * page / 2**20,
        )
    return found


def family(roots: Iterable[int], table: dict[int, Process]) -> list[Process]:
    """These processes and all that descend from them."""
    wanted = set(roots)
    grown = True
    while grown:
        more = {pid for pid, process in table.items() if process.parent in wanted} - wanted
        wanted |= more
        grown = bool(more)
    return [table[pid] for pid in wanted if pid in table]


@dataclass
class Parties:
    """The processes of each group: the root of each process tree."""

    workers: list[int] = field(default_factory=list)
    client: list[int] = field(default_factory=list)
    database: list[int] = field(default_factory=list)
    broker: list[int] = field(default_factory=list)
    links: list[int] = field(default_factory=list)  # proxies, which are part of no system

    def cpu_seconds(self) -> dict[str, float]:
        """User and system time so far, by group. Children that have ended are included, as the time that their parent reaped."""
        table = processes()
        return {group: sum(each.cpu_seconds + each.reaped_seconds for each in family(getattr(self, group), table)) for group in GROUPS}

    def resident_mb(self) -> list[float]:
        """Memory of each worker process, the largest first."""
        return sorted((each.resident_mb for each in family(self.workers, processes())), reverse=True)


def listener(host: str, port: int) -> int | None:
    """The process that listens there, if it is on this machine and we may see it."""
    if not PROC.is_dir() or host not in ("127.0.0.1", "localhost", "::1", socket.gethostname()):
        return None
    inodes = set()
    for table in ("net/tcp", "net/tcp6"):
        for line in (PROC / table).read_text().splitlines()[1:] if (PROC / table).exists() else ():
            fields = line.split()
            if fields[3] == "0A" and int(fields[1].rpartition(":")[2], 16) == port:
                inodes.add(f"socket:[{fields[9]}]")
    for entry in PROC.iterdir():
        if entry.name.isdigit():
            try:
                if any(os.readlink(link) in inodes for link in (entry / "fd").iterdir()):
                    return int(entry.name)
            except OSError:
                continue  # we may not read it, or it has ended
    return None


def socket_peer(path: str) -> int | None:
    """The process that listens on this Unix socket."""
    with socket.socket(socket.AF_UNIX) as asked:
        try:
            asked.connect(path)
            return int(struct.unpack("3i", asked.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0])
        except (OSError, AttributeError):
            return None


def description() -> dict[str, str]:
    """Processor, memory, system."""
    model = next((line.partition(":")[2].strip() for line in _lines(PROC / "cpuinfo") if line.startswith("model name")), "")
    memory = next((int(line.split()[1]) // 2**20 for line in _lines(PROC / "meminfo") if line.startswith("MemTotal")), 0)
    return {
        "processor": f"{os.cpu_count()} x {model or platform.machine()}",
        "memory": f"{memory} GiB",
        "system": f"{platform.system()} {platform.release()}",
    }


def busy_share() -> tuple[int, int]:
    """The busy ticks of this machine, and all its ticks. Two readings tell how busy it was between them."""
    fields = [int(value) for value in next(iter(_lines(PROC / "stat")), "cpu 0 0 0 1").split()[1:]]
    idle = fields[3] + (fields[4] if len(fields) > 4 else 0)
    return sum(fields) - idle, sum(fields)


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:
        return []
