"""Applies mutations one by one and reports which of them the tests catch."""

from __future__ import annotations

import dataclasses
import os
import queue
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path

from supervision.embedded.server import EmbeddedPostgres
from tests.mutants import bench
from tests.mutants.bench import Bench, Ran
from tests.mutants.mutation import ROOT, MovedOn, Mutation, apply, places_of_tests


class Verdict(StrEnum):
    """The verdict on a mutation."""

    CAUGHT = "caught"
    SURVIVED = "SURVIVED"
    MOVED_ON = "MOVED ON"
    UNPROVEN = "UNPROVEN"


@dataclasses.dataclass(frozen=True)
class Result:
    """A mutation's verdict and the reason in a few words."""

    mutation: Mutation
    verdict: Verdict
    why: str
    seconds: float = 0.0
    output: str = ""


@contextmanager
def _server() -> Iterator[str]:
    """A database server for one run: the server of DATABASE_URL, or a new embedded one."""
    if given := os.environ.get("DATABASE_URL"):
        yield bench.at(given, "postgres")
        return
    with tempfile.TemporaryDirectory(prefix="sas-mutants-") as directory, EmbeddedPostgres(directory, fast=True) as server:
        yield server.url


def run(mutations: Sequence[Mutation], *, jobs: int, told: Callable[[Result], None]) -> list[Result]:
    """Try these mutations, `jobs` at a time, and call `told` with each result."""
    results: list[Result] = []
    lock = threading.Lock()

    def tell(result: Result) -> None:
        with lock:
            results.append(result)
            told(result)

    todo = []
    known = places_of_tests()
    for mutation in mutations:
        if problem := _problem(mutation, known):
            tell(Result(mutation, Verdict.MOVED_ON, problem))
        else:
            todo.append(mutation)
    if todo:
        with tempfile.TemporaryDirectory(prefix="sas-mutants-tree-") as directory, _server() as server:
            _on_benches(todo, {name: places[0] for name, places in known.items()}, Path(directory), server, jobs, tell)
    return results


def _problem(mutation: Mutation, known: dict[str, list[str]]) -> str | None:
    """An error in the entry itself, which has to be corrected in the tables and not in a test."""
    if len(known.get(mutation.caught_by, ())) != 1:
        return f"{len(known.get(mutation.caught_by, ()))} tests have the name {mutation.caught_by}"
    try:
        mutation.mutated(ROOT)
    except MovedOn as problem:
        return str(problem)
    return None


def _on_benches(
    todo: Sequence[Mutation], nodes: dict[str, str], directory: Path, server: str, jobs: int, tell: Callable[[Result], None]
) -> None:
    template = f"mutants_{os.getpid()}"
    jobs = min(jobs, len(todo))
    benches = [Bench(directory, server, template, f"bench{number}") for number in range(jobs)]
    numbers: queue.SimpleQueue[tuple[int, Mutation]] = queue.SimpleQueue()
    try:
        bench.migrate(benches[0].root, server, template)
        green = _green(benches, sorted({nodes[mutation.caught_by] for mutation in todo}))
        for entry in enumerate(todo):
            numbers.put(entry)

        def work(one: Bench) -> None:
            while True:
                try:
                    number, mutation = numbers.get_nowait()
                except queue.Empty:
                    return
                if (why := green[mutation.caught_by]) is not None:
                    tell(Result(mutation, Verdict.UNPROVEN, f"without the mutation, {mutation.caught_by} {why}"))
                else:
                    tell(_try(one, mutation, number, nodes[mutation.caught_by]))

        with ThreadPoolExecutor(jobs) as pool:
            for done in [pool.submit(work, one) for one in benches]:
                done.result()
    finally:
        for name in bench.names(template, jobs):
            bench.drop(server, name)


def _green(benches: Sequence[Bench], nodes: Sequence[str]) -> dict[str, str | None]:
    """For each test None if it passes on the unchanged tree, else its result there. The failure of such a test proves nothing."""
    shares = [nodes[number :: len(benches)] for number in range(len(benches))]
    with ThreadPoolExecutor(len(benches)) as pool:
        ran = list(pool.map(lambda pair: pair[0].run(pair[1]) if pair[1] else None, zip(benches, shares, strict=True)))
    told: dict[str, str | None] = {}
    for node in nodes:
        name = node.split("::")[1]
        told[name] = "was not run"
        for one in filter(None, ran):
            if name in one.everything:
                told[name] = _not_green(name, one)
    return told


def _not_green(name: str, ran: Ran) -> str | None:
    if name in ran.failed | ran.errors:
        return "fails as well"
    return None if name in ran.passed else "is skipped"


def _try(one: Bench, mutation: Mutation, number: int, node: str) -> Result:
    original = apply(mutation, one.root, number)
    try:
        # A fresh database is a copy of one made without the mutation, unless the mutation is in a migration.
        ran = one.run([node], "-x", migrate="/migrations/" in mutation.file)
    finally:
        original.put_back()
    verdict, why = judge(ran)
    return Result(mutation, verdict, why, ran.seconds, ran.output)


def judge(ran: Ran) -> tuple[Verdict, str]:
    """The verdict: a test has to fail. A test that cannot start proves nothing about the mutation."""
    if ran.failed:
        return Verdict.CAUGHT, ", ".join(sorted(ran.failed))
    if ran.errors or not ran.passed:
        last = next((line for line in reversed(ran.output.splitlines()) if line.strip()), "pytest said nothing")
        return Verdict.UNPROVEN, f"the test could not run: {last}"
    return Verdict.SURVIVED, f"{', '.join(sorted(ran.passed))} passed"


# --------------------------------------------------------------------------------------------------------- the report


def line(result: Result) -> str:
    """One result, as the table shows it."""
    head = f"{result.mutation.row:<4} {result.verdict:<9} {result.seconds:5.1f} s  {result.mutation.bug}"
    return head if result.verdict is Verdict.CAUGHT else f"{head}\n{'':>16}{result.why}"


def summary(results: Sequence[Result], began: float) -> str:
    """How many mutations got each verdict."""
    counts = [(verdict, sum(result.verdict is verdict for result in results)) for verdict in Verdict]
    rows = len({result.mutation.row for result in results})
    told = ", ".join(f"{count} {verdict.lower()}" for verdict, count in counts if count)
    return f"{len(results)} mutations of {rows} requirements in {time.monotonic() - began:.0f} s: {told}"
