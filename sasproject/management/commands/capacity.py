"""Compute the processes, connections and memory that a load needs."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from django.core.management.base import CommandError, CommandParser

from sasproject import capacity
from supervision.management.base import Command as Base


class Command(Base):
    """A table, one line for each role, and PostgreSQL's max_connections that holds them."""

    help = (
        "What a load needs: --orders-per-second with --call-seconds computes the processes of each role; --processes "
        "web=2,agents=10 takes them as given; without either it takes SAS_PROCESSES. Connections follow from this environment: "
        "run it with the variables of the roles. docs/capacity.md explains the figures."
    )
    needs_database = False

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--orders-per-second", type=float, metavar="N", help="orders accepted in one second, at the busiest time")
        parser.add_argument("--call-seconds", type=float, default=0.3, metavar="S", help="how long a service takes to answer (0.3)")
        parser.add_argument("--processes", metavar="ROLE=N,...", help="the processes of each role, instead of a load")
        parser.add_argument("--json", action="store_true", help="one JSON object instead of a table")

    def handle(self, *args: Any, **options: Any) -> None:
        needs = capacity.needs(self._processes(options))
        total = sum(need.connections for need in needs)
        memory = sum(need.memory for need in needs)
        wanted = capacity.max_connections(total)
        if options["json"]:
            roles = {need.role: asdict(need) for need in needs}
            self.say_json({"roles": roles, "connections": total, "memory": memory, "max_connections": wanted})
            return
        self.stdout.write(f"{'role':12}{'processes':>10}{'connections':>13}{'memory':>12}")
        for need in needs:
            self.stdout.write(f"{need.role:12}{need.processes:>10}{need.connections:>13}{need.memory:>8} MiB")
        self.stdout.write(f"{'all':12}{sum(need.processes for need in needs):>10}{total:>13}{memory:>8} MiB")
        self.stdout.write(f"PostgreSQL: max_connections = {wanted} (with those of commands, and three reserved ones)")

    def _processes(self, options: dict[str, Any]) -> dict[str, int]:
        load, given, seconds = options["orders_per_second"], options["processes"], options["call_seconds"]
        if load is not None and given is not None:
            raise CommandError("--orders-per-second and --processes exclude each other")
        if load is not None:
            if not (0 < load < 1e6 and 0 < seconds < 1e6):
                raise CommandError("--orders-per-second and --call-seconds: expected numbers above 0")
            return capacity.processes_for(load, seconds)
        counts = capacity.parsed(given, "--processes") if given is not None else capacity.configured()
        if not counts:
            raise CommandError("give --orders-per-second, or --processes, or set SAS_PROCESSES")
        return counts
