"""`--workers-file`: a number that is followed, so that a program is scaled without another start."""

import random
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from support.applications.serve_process import PROGRAM, ServeProcess
from support.applications.served_bank import PEOPLE, START
from support.applications.work_process import BANK, WorkProcess
from support.waiting import eventually
from tussock.compute import functions as fn

SECONDS = 100


@pytest.fixture
def url(tmp_path: Path) -> str:
    return (tmp_path / "store").as_uri()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "workers"


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as found:
        yield found


def program_of(url: str, file: Path, *arguments: str, app: str = BANK) -> ServeProcess:
    """A program that follows the file."""
    return ServeProcess(url, "--workers-file", str(file), *arguments, app=app)


def write(file: Path, text: str) -> None:
    """As a kubelet does: readers see the former file or this one."""
    new = file.with_suffix(".new")
    new.write_text(text)
    new.replace(file)


def transfers(client: fn.Client, chance: random.Random, count: int) -> "list[Future[Any]]":
    """Requests that move money about, and never more than somebody has."""
    names = [f"p{at}" for at in range(PEOPLE)]
    return [client.send("account", *_transfer(chance, names)) for _ in range(count)]


def _transfer(chance: random.Random, names: list[str]) -> tuple[str, str, str, int]:
    debtor, creditor = chance.sample(names, 2)
    return debtor, "transfer", creditor, 1


def test_a_program_follows_the_file_while_requests_come(url: str, file: Path, stack: ExitStack) -> None:
    """1, 3, 2 workers in one life of the program, and no request fails."""
    write(file, "1\n")
    program = stack.enter_context(program_of(url, file, "--workers-listen", "127.0.0.1:0"))
    address = str(program.wait_for(event="taking workers")["address"])
    stack.enter_context(WorkProcess(address, url))
    client = stack.enter_context(fn.Client(program.address, deadline=SECONDS, outstanding=1000))
    chance = random.Random(1)
    sent = transfers(client, chance, 100)
    write(file, "3\n")
    for _ in range(2):
        stack.enter_context(WorkProcess(address, url))
    sent += transfers(client, chance, 100)
    eventually(lambda: client.status()["workers"] == 3)
    write(file, "2\n")
    sent += transfers(client, chance, 100)
    eventually(lambda: client.status()["workers"] == 2)
    assert client.status()["workers_joined"] == 3
    assert [one.exception(SECONDS) for one in sent] == [None] * 300
    assert sum(client.query("account", f"p{at}")["balance"] for at in range(PEOPLE)) == PEOPLE * START
    client.close()
    program.terminate()
    assert program.wait() == 0


def test_a_number_that_is_taken_back_harms_nobody(url: str, file: Path, stack: ExitStack) -> None:
    """Too few have joined for the larger one, which is not waited for once the file says another one."""
    write(file, "1")
    program = stack.enter_context(program_of(url, file, "--workers-listen", "127.0.0.1:0"))
    address = str(program.wait_for(event="taking workers")["address"])
    stack.enter_context(WorkProcess(address, url))
    client = stack.enter_context(fn.Client(program.address, deadline=SECONDS))
    write(file, "60")
    assert client.send("account", "p0", "transfer", "p1", 1).result(SECONDS) == START - 1
    write(file, "nonsense")
    program.wait_for(event="the number of workers stays")
    write(file, "2")
    stack.enter_context(WorkProcess(address, url))
    eventually(lambda: client.status()["workers"] == 2)


def test_processes_beside_the_node_follow_it_too(url: str, file: Path, stack: ExitStack) -> None:
    """Without a port for workers the program starts them itself."""
    write(file, "1")
    program = stack.enter_context(program_of(url, file))
    client = stack.enter_context(fn.Client(program.address, deadline=SECONDS))
    write(file, "2")
    eventually(lambda: client.status()["workers"] == 2)
    assert client.send("account", "p0", "transfer", "p1", 1).result(SECONDS) == START - 1


def test_procedures_have_no_workers_to_follow(url: str, file: Path, stack: ExitStack) -> None:
    """A number at the start is refused; one that comes later is told, and the application runs on."""
    write(file, "0")
    node = stack.enter_context(program_of(url, file, app=f"{PROGRAM}:make"))
    assert node.address
    write(file, "2")
    assert "leave `workers_file` out" in str(node.wait_for(event="the number of workers stays")["error"])
    assert node.get("/readyz")[0] == 200


@pytest.mark.parametrize(
    ("text", "arguments", "said"),
    [
        pytest.param(None, (), "--workers-file: the file of workers cannot be read", id="no file"),
        pytest.param("two", (), "holds 'two'; expected the number of workers", id="no number"),
        pytest.param("-1", (), "holds '-1'", id="below zero"),
        pytest.param("65", (), "expected 0 to 64", id="too many"),
        pytest.param("9" * 5000, (), "expected the number of workers", id="huge"),
        pytest.param("2", ("--workers", "2"), "give one of the two", id="said twice"),
    ],
)
def test_a_file_that_says_nothing_is_refused(
    url: str, file: Path, stack: ExitStack, text: str | None, arguments: tuple[str, ...], said: str
) -> None:
    """The command ends with code 2 before it serves."""
    if text is not None:
        write(file, text)
    node = stack.enter_context(program_of(url, file, *arguments))
    assert node.wait() == 2
    assert said in " ".join(" ".join(node.raw).split()), node.raw
