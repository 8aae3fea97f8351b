"""`tussock serve` runs a program of functions, and `fn.Client` has the calls of the local `Runtime`."""

import json
import math
import time
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from support.applications import served_states
from support.applications.serve_process import ServeProcess
from support.applications.served_bank import bank
from support.network.certificates import Authority
from tussock.compute import functions as fn
from tussock.compute import procedures as ps
from tussock.compute.service.rpc import application_pb2 as pb
from tussock.meta.node.auth.tokens import create_token
from tussock.statestore import AccessDenied, InvalidOption, SchemaMismatch, TussockError, WaitTimeout, connect
from tussock.statestore.base.system import RealSystem

DOCS = Path(__file__).resolve().parents[3] / "docs"
SECONDS = 60
APP = "support.applications.served_bank:make"
STATES = "support.applications.served_states:make"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServeProcess]:
    with ServeProcess((tmp_path_factory.mktemp("served") / "store").as_uri(), app=APP) as process:
        yield process


@pytest.fixture
def client(node: ServeProcess) -> Iterator[fn.Client]:
    with fn.Client(node.address) as found:
        yield found


def error_of(future: "Future[Any]") -> Any:
    error = future.exception(SECONDS)
    assert error is not None
    return error


def story(program: Any) -> list[Any]:
    """What a program answers to requests of all kinds; errors as their class, text and facts."""

    def told(ask: Any) -> Any:
        try:
            found = ask()
            return found.result(SECONDS) if isinstance(found, Future) else found
        except TussockError as error:
            return type(error).__name__, str(error), error.args[1:]

    asked = [
        lambda: program.send("account", "p0", "transfer", "p1", 30),
        lambda: program.send("account", "p0", "transfer", "p1", 1000),
        lambda: program.send("account", "p0", "transfer", "p1", 5, request_id="story-1"),
        lambda: program.send("account", "p0", "transfer", "p1", 5, request_id="story-1"),
        lambda: program.send("account", "p0", "transfer", "p1"),
        lambda: program.send("account", "p0", "begin", "much"),
        lambda: program.send("account", 7, "credit", 1),
        lambda: program.send("account", "p0", "steal", 1),
        lambda: program.send("vault", "p0", "credit", 1),
        lambda: program.send("purse", 1, "give"),
        lambda: program.send("purse", 1 << 70, "fill", 1),
        lambda: program.send("cell", "c", "write", {"a": [None, True, 1.5, b"\x00", "ü"]}),
        lambda: program.send("cell", "c", "value"),
        lambda: program.send("cell", "c", "write", {1: 2}),
        lambda: program.query("account", "p0"),
        lambda: program.query("account", "nobody"),
        lambda: program.query("account", b"p0"),
        lambda: program.query("vault", "p0"),
        lambda: program.send_many("account", "credit", ["p2", "p3"], {"amount": [1, 2]}).to_pylist(),
        lambda: program.send_many("cell", "value", pa.array(["c", "d"])).to_pylist(),
        lambda: program.send_many("account", "transfer", ["p2"], {"amount": [1000], "to": ["p3"]}).to_pylist(),
        lambda: program.send_many("account", "credit", ["p2", "p3"], {"amount": [1]}),
        lambda: program.send_many("account", "credit", ["p2"], {"n": [1]}),
        lambda: program.send_many("cell", "value", ["c", "d"], {}).to_pylist(),
        lambda: program.send_many("cell", "value", "cd"),
        lambda: program.send_many("account", "transfer", ["p2", "p3"], {"to": "p0", "amount": [1, 1]}),
        lambda: program.send_many("purse", "fill", [1, 2, 3], {"coins": [10, 20, 30]}).to_pylist(),
        lambda: program.send_many("purse", "give", [1, 2], {"to": [2, 3], "coins": [4, 100]}).to_pylist(),
        lambda: program.send_many("purse", "give", [1], {"coins": [4]}),
        lambda: program.send_many("purse", "give", ["x"], {"to": [2], "coins": [4]}),
        lambda: program.query("purse", 2),
        lambda: program.call_graph("story-1"),
        lambda: program.call_graph("unknown"),
        lambda: program.call_graph(tid=10**12),
    ]
    return [told(ask) for ask in asked]


def test_every_call_comes_back_as_from_the_local_runtime(tmp_path: Path) -> None:
    """Replies, aborts, refusals, states, tables and call graphs are equal."""
    with connect((tmp_path / "local").as_uri()) as store, bank(store) as runtime:
        local = story(runtime)
    with (
        ServeProcess((tmp_path / "served").as_uri(), app=APP) as node,
        fn.Client(node.address) as client,
    ):
        served = story(client)
        graph = client.call_graph(tid=1)
    assert served == local
    assert graph is not None
    assert [one["function"] for one in graph["calls"]] == ["transfer", "credit"]


def test_a_state_comes_with_its_types(tmp_path: Path) -> None:
    """Times, decimals and maps of the schema are those of the local `query`; a caller may ask for plain values."""
    with connect("memory://typed-states") as store, served_states.make(store) as runtime:
        runtime.send("thing", "a", "put").result(SECONDS)
        local = runtime.query("thing", "a")
    with ServeProcess((tmp_path / "store").as_uri(), app=STATES) as node, fn.Client(node.address) as client:
        client.send("thing", "a", "put").result(SECONDS)
        client.send("note", "a", "write", "kept").result(SECONDS)
        assert client.query("thing", "a") == local
        assert client.query("thing", "b") is None
        assert client.query("note", "a") == {"text": "kept"}
        assert client.query("note", "b") is None
        # As clients ask that do not know of rows.
        plain = pb.Query(operator="note", key=msgspec.msgpack.encode("a"))
        assert client.ask(pb.Request(query=plain), is_repeatable=True).result(SECONDS) == {"text": "kept"}
        unfit = pb.Query(operator="thing", key=msgspec.msgpack.encode("a"))
        assert type(error_of(client.ask(pb.Request(query=unfit), is_repeatable=True))) is SchemaMismatch


@pytest.mark.parametrize("timeout", [-1, math.nan, math.inf, "x", True])
def test_a_timeout_is_seconds(client: fn.Client, timeout: Any) -> None:
    """Anything else is refused before something is sent."""
    before = client.stats()["tid"]
    for ask in (
        lambda: client.send("account", "p0", "credit", 0, timeout=timeout),
        lambda: client.send_many("account", "credit", ["p0"], {"amount": [0]}, timeout=timeout),
    ):
        with pytest.raises(InvalidOption, match="timeout"):
            ask()
    assert client.stats()["tid"] == before


def test_an_abort_has_its_facts(client: fn.Client) -> None:
    """Class of what was raised, operator, key and function."""
    error = error_of(client.send("account", "p9", "transfer", "p8", 10_000))
    assert type(error) is fn.TransactionAborted
    assert str(error) == "not enough credit: p9"
    assert (error.kind, error.operator, error.key, error.function) == ("NotEnough", "account", "p9", "transfer")


def test_what_no_message_can_have_is_refused_by_the_client(client: fn.Client) -> None:
    """Names, keys, arguments and ids, before anything is sent."""
    for bad in (
        lambda: client.send(3, "p0", "credit", 1),  # type: ignore[arg-type]
        lambda: client.send("\ud800", "p0", "credit", 1),
        lambda: client.send("account", 1.5, "credit", 1),  # type: ignore[arg-type]
        lambda: client.send("account", "p0", "credit", {1, 2}),
        lambda: client.send("account", "p0", "credit", "x" * (1 << 20)),
        lambda: client.send_many("account", "credit", [1, "p0"]),
        lambda: client.query("account", None),  # type: ignore[arg-type]
    ):
        with pytest.raises(fn.FunctionFault):
            bad()
    for unfit in ("", "x" * 201, 5):
        with pytest.raises(InvalidOption):
            client.send("account", "p0", "credit", 1, request_id=unfit)  # type: ignore[arg-type]
    for many in ({}, {"request_id": "a", "tid": 1}, {"tid": -1}):
        with pytest.raises(InvalidOption):
            client.call_graph(**many)
    with pytest.raises(InvalidOption):
        fn.Client("a:1,b:2")


@pytest.mark.parametrize(
    ("request_", "kind"),
    [
        (pb.Request(send=pb.Send(operator="account", key=b"\xc1", function="credit")), InvalidOption),
        (pb.Request(send=pb.Send(operator="account", function="credit")), InvalidOption),
        (pb.Request(send=pb.Send(operator="account", key=b"\x91" * 5000, function="credit")), InvalidOption),
        (
            pb.Request(send=pb.Send(operator="account", key=b"\xa1p", function="credit", arguments=b"\x01")),
            InvalidOption,
        ),
        (
            pb.Request(send=pb.Send(operator="account", key=b"\xa1p", function="credit", request_id="x" * 300)),
            fn.FunctionFault,
        ),
        (pb.Request(send_many=pb.SendMany(operator="account", function="credit", arrow=b"rows")), SchemaMismatch),
        (pb.Request(query=pb.Query(operator="account")), InvalidOption),
        (pb.Request(trace=pb.Trace(last=1)), InvalidOption),
        (pb.Request(submit=pb.Submit(procedure="account")), InvalidOption),
    ],
    ids=lambda value: "" if isinstance(value, type) else value.WhichOneof("what"),
)
def test_bytes_that_mean_nothing_are_refused(client: fn.Client, request_: pb.Request, kind: type[Exception]) -> None:
    """Each with an error that names it, and the node goes on."""
    before = client.stats()["tid"]
    assert isinstance(error_of(client.ask(request_, is_repeatable=True)), kind)
    assert client.stats()["tid"] == before


def test_a_send_many_of_a_plain_function_has_a_limit(client: fn.Client) -> None:
    """Ten thousand requests, since each is one transaction; a batch function takes more."""
    with pytest.raises(fn.FunctionFault, match="10,000"):
        client.send_many("account", "credit", ["p0"] * 10_001, {"amount": [1] * 10_001})
    replies = client.send_many("purse", "give", range(20_000), {"to": range(20_000, 40_000), "coins": [0] * 20_000})
    assert replies.num_rows == 20_000


def test_requests_wait_in_a_pause_and_looks_do_not(client: fn.Client, node: ServeProcess) -> None:
    """A request that has a deadline and no id is withdrawn, and the others run after it."""
    before = client.query("account", "p15")
    assert before is not None
    client.pause()
    kept = client.send("account", "p15", "credit", 1)
    send = pb.Send(operator="account", key=b"\xa3p15", function="credit", arguments=msgspec.msgpack.encode([1000]))
    withdrawn = client.ask(pb.Request(send=send, deadline_ms=1), is_repeatable=False)
    assert type(error_of(withdrawn)).__name__ == "WaitTimeout"
    assert client.query("account", "p15") == before
    status = client.status()
    assert (status["state"], status["paused"], kept.done()) == ("paused", True, False)
    assert node.get("/readyz")[0] == 200
    client.resume()
    assert kept.result(SECONDS) is None
    assert client.query("account", "p15") == {"balance": before["balance"] + 1}


def test_a_request_that_has_not_begun_in_its_time_is_withdrawn(client: fn.Client) -> None:
    """One with an id only once all who wait for it have given it up: the others have its reply."""
    before = client.query("account", "p14")
    assert before is not None
    client.pause()
    alone = client.send("account", "p14", "credit", 1000, timeout=0.2)
    first = client.send("account", "p14", "credit", 1, request_id="both", timeout=0.2)
    second = client.send("account", "p14", "credit", 1, request_id="both")
    lost = [client.send("account", "p14", "credit", 1000, request_id="lost", timeout=0.2) for _ in range(2)]
    assert [type(error_of(one)) for one in (alone, *lost)] == [WaitTimeout] * 3
    assert not first.done()
    assert not second.done()
    with pytest.raises(WaitTimeout):
        client.send_many("purse", "give", [14], {"to": [15], "coins": [0]}, timeout=0.3)
    with pytest.raises(WaitTimeout, match=r"did not begin .* and was not run: the application is paused"):
        client.send_many("account", "credit", ["p14"], {"amount": [1000]}, timeout=0.3)
    client.resume()
    assert first.result(SECONDS) is second.result(SECONDS) is None
    assert client.query("account", "p14") == {"balance": before["balance"] + 1}


def test_no_request_is_withdrawn_early(client: fn.Client) -> None:
    """Story: the node was told of three quarters of the time, so that its word came within it."""
    client.pause()
    begun = time.monotonic()
    sent = client.send("account", "p14", "credit", 0, timeout=0.8)
    assert type(error_of(sent)) is WaitTimeout
    assert time.monotonic() - begun >= 0.8
    for function in ("give", "fill"):
        columns = {"to": [15], "coins": [0]} if function == "give" else {"coins": [0]}
        begun = time.monotonic()
        with pytest.raises(WaitTimeout):
            client.send_many("purse", function, [14], columns, timeout=0.8)
        assert time.monotonic() - begun >= 0.8
    client.resume()


def test_an_idle_node_has_no_requests(tmp_path: Path) -> None:
    """Story: the question for the status counted, as a request without a reply and as a client."""
    with ServeProcess((tmp_path / "store").as_uri(), app=APP) as node, fn.Client(node.address) as client:
        status = client.status()
        assert [status[name] for name in ("outstanding", "outstanding_bytes", "conversations")] == [0, 0, 0]


def test_a_withdrawn_request_may_be_sent_again(client: fn.Client) -> None:
    """Its id is free, as nothing has run under it."""
    before = client.query("account", "p12")
    assert before is not None
    client.pause()
    assert type(error_of(client.send("account", "p12", "credit", 1, request_id="again", timeout=0.2))) is WaitTimeout
    sent = client.send("account", "p12", "credit", 1, request_id="again")
    client.resume()
    assert sent.result(SECONDS) is None
    assert client.query("account", "p12") == {"balance": before["balance"] + 1}


def test_a_client_ends_in_the_time_that_it_is_given(client: fn.Client, node: ServeProcess) -> None:
    """What has no reply by then ends with `OutcomeUnknown`, as with a client of procedures."""
    other = fn.Client(node.address)
    client.pause()
    sent = other.send("account", "p11", "credit", 0)
    begun = time.monotonic()
    other.close(timeout=0.5)
    assert time.monotonic() - begun < SECONDS / 2
    assert isinstance(error_of(sent), fn.OutcomeUnknown | fn.ServiceUnavailable)
    client.resume()
    with pytest.raises(InvalidOption, match="timeout"):
        other.close(timeout=-1)


def test_the_status_shows_epochs_phases_and_transactions(client: fn.Client, node: ServeProcess) -> None:
    """As JSON over HTTP as well as by the client, and each field is documented."""
    client.send("account", "p4", "transfer", "p5", 1, request_id="shown").result(SECONDS)
    error_of(client.send("account", "p4", "transfer", "p5", 10**6))
    status = node.status()
    assert (status["layer"], status["application"], status["state"]) == ("functions", "bank", "running")
    shown, aborted = status["transactions"][-2:]
    assert (shown["request_id"], shown["phase"], shown["calls"]) == ("shown", "lock_free", 2)
    assert (aborted["phase"], aborted["error"]) == ("aborted", "not enough credit: p4")
    assert status["epochs"] >= 2
    assert status["lock_free"] >= 1
    assert status["aborted"] >= 1
    assert {one["name"]: one["key"] for one in status["operators"]} == {
        "account": "string",
        "cell": "string",
        "purse": "int64",
    }
    newest = status["failures"][-1]
    assert (newest["error"], newest["raised"]) == ("TransactionAborted", "NotEnough")
    assert newest["at"] == aborted["at"]
    assert aborted["at"].startswith("support/functions/accounts.py:")
    page = (DOCS / "service.md").read_text(encoding="utf-8")
    assert [name for name in status if f"`{name}`" not in page] == []
    metrics = node.get("/metrics")[1]
    assert f'tussock_application_transactions_total{{phase="aborted"}} {float(status["aborted"])}' in metrics
    assert 'tussock_application_requests_total{code="ABORTED",kind="send"}' in metrics


def test_a_call_graph_over_http(client: fn.Client, node: ServeProcess) -> None:
    """By the id of a request or by number; another one is null, and other questions are refused."""
    client.send("account", "p4", "transfer", "p5", 1, request_id="over http").result(SECONDS)
    code, text = node.get("/call-graph?request_id=over%20http")
    assert code == 200
    assert json.loads(text) == client.call_graph("over http")
    tid = json.loads(text)["tid"]
    assert json.loads(node.get(f"/call-graph?tid={tid}")[1]) == json.loads(text)
    assert node.get("/call-graph?request_id=no") == (200, "null")
    for query in ("", "?tid=x", "?tid=-1", f"?tid={1 << 70}", "?tid=1&request_id=a"):
        assert node.get(f"/call-graph{query}")[0] == 400


def test_keys_of_bytes_are_shown_as_they_are_asked_for(tmp_path: Path) -> None:
    """Story: the page had them in Base64, and no command takes that."""
    app = "support.applications.served_bank:with_bytes"
    with ServeProcess((tmp_path / "store").as_uri(), app=app) as node, fn.Client(node.address) as client:
        client.send("seal", b"\x00\xff", "press", request_id="r").result(SECONDS)
        assert node.status()["transactions"][-1]["key"] == "hex:00ff"
        assert json.loads(node.get("/call-graph?request_id=r")[1])["calls"][0]["key"] == "hex:00ff"


def test_roles(tmp_path: Path) -> None:
    """A reader looks, a writer sends, an admin pauses and drains; nobody else does anything."""
    made = {role: create_token(role, role, RealSystem()) for role in ("reader", "writer", "admin")}
    file = tmp_path / "tokens"
    file.write_text("".join(line + "\n" for _, line in made.values()))
    secrets = {role: secret for role, (secret, _) in made.items()}
    with ServeProcess((tmp_path / "store").as_uri(), "--tokens.file", str(file), app=APP) as node:
        with fn.Client(node.address) as nobody, pytest.raises(TussockError, match="token"):
            nobody.stats()
        with fn.Client(node.address, token=secrets["reader"]) as reader:
            assert reader.query("account", "p0") == {"balance": 100}
            assert reader.call_graph("none") is None
            assert reader.stats()["epochs"] == 0
            for ask in (
                lambda: reader.send("account", "p0", "credit", 1).result(SECONDS),
                lambda: reader.send_many("account", "credit", ["p0"], {"amount": [1]}),
                reader.pause,
                reader.resume,
                reader.drain,
            ):
                with pytest.raises(AccessDenied):
                    ask()
            assert reader.query("account", "p0") == {"balance": 100}
        with fn.Client(node.address, token=secrets["writer"]) as writer:
            writer.send("account", "p0", "credit", 1).result(SECONDS)
            assert writer.send_many("account", "credit", ["p0"], {"amount": [1]}).num_rows == 1
            with pytest.raises(AccessDenied):
                writer.pause()
        assert node.get("/call-graph?tid=1")[0] == 401
        assert node.get("/call-graph?tid=1", secrets["reader"])[0] == 200
        with fn.Client(node.address, token=secrets["admin"]) as admin:
            admin.pause()
            admin.resume()
            admin.drain()
        assert node.wait() == 0


def test_tls(tmp_path: Path) -> None:
    """Only over TLS, with the role that the certificate has."""
    authority, stranger = Authority(tmp_path), Authority(tmp_path, "stranger")
    own, job, guest = authority.sign("node"), authority.sign("job"), authority.sign("guest")
    files = ("--tls.certificate", own.certificate, "--tls.key", own.key, "--tls.client-ca", authority.certificate)
    roles = ("--tls.roles.writer", "CN:job", "--tls.roles.reader", "CN:guest")
    with ServeProcess((tmp_path / "store").as_uri(), *map(str, files), *roles, app=APP) as node:
        ca = str(authority.certificate)
        with fn.Client(node.address, tls_cert=str(job.certificate), tls_key=str(job.key), tls_ca=ca) as client:
            assert client.send("account", "p0", "transfer", "p1", 30).result(SECONDS) == 70
            assert (
                client.send_many("account", "transfer", ["p1"], {"to": ["p0"], "amount": [1]})["reply"][0].as_py()
                == 129
            )
        with fn.Client(node.address, tls_cert=str(guest.certificate), tls_key=str(guest.key), tls_ca=ca) as client:
            assert client.query("account", "p1") == {"balance": 129}
            with pytest.raises(AccessDenied):
                client.send("account", "p0", "transfer", "p1", 1).result(SECONDS)
        for options in ({}, {"tls_ca": ca}, {"tls_ca": str(stranger.certificate)}):
            with fn.Client(node.address, deadline=1.0, **options) as client, pytest.raises(fn.ServiceUnavailable):  # type: ignore[arg-type]
                client.stats()


def test_a_drain_answers_what_was_taken(tmp_path: Path) -> None:
    """Also in a pause; the state is committed, and anybody reads it."""
    url = (tmp_path / "store").as_uri()
    with ServeProcess(url, app=APP) as node:
        with fn.Client(node.address, deadline=5) as client:
            client.pause()
            futures = [client.send("account", "p0", "transfer", "p1", 1) for _ in range(50)]
            assert client.status()["state"] == "paused"
            client.drain()
            assert sorted(one.result(SECONDS) for one in futures) == list(range(50, 100))
        assert node.wait() == 0
    with connect(url) as store:
        states = [json.loads(store.table("account").get(key)["state"]) for key in ("p0", "p1")]
    assert states == [{"balance": 50}, {"balance": 150}]


def test_a_client_of_procedures_is_told(node: ServeProcess) -> None:
    """Its requests end with an error that says what the node is."""
    with ps.Client(node.address) as other:
        with pytest.raises(InvalidOption, match="program of functions"):
            other.call("total", timeout=SECONDS)
        with pytest.raises(InvalidOption, match="program of functions"):
            other.submit("take", [{"n": 1}]).result(SECONDS)
        assert other.status()["layer"] == "functions"
