"""What the HTTP port of a flow's node tells, and whom it refuses: status, metrics, and what its page asks for."""

import datetime as dt
import json
import re
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from support.applications.serve_process import ServeProcess
from support.waiting import eventually
from tussock.compute import changelog as cl
from tussock.meta.node.auth.tokens import create_token
from tussock.statestore.base.system import RealSystem

SECONDS = 60
APP = "support.applications.served_orders:make"
DOCS = Path(__file__).resolve().parents[4] / "docs"


@pytest.fixture(scope="module")
def secrets(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A token of each role."""
    made = {role: create_token(role, role, RealSystem()) for role in ("reader", "writer", "admin")}
    file = tmp_path_factory.mktemp("tokens") / "tokens"
    file.write_text("".join(line + "\n" for _, line in made.values()))
    return {"file": str(file), **{role: secret for role, (secret, _) in made.items()}}


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory, secrets: dict[str, str]) -> Iterator[ServeProcess]:
    url = (tmp_path_factory.mktemp("status") / "store").as_uri()
    with ServeProcess(url, "--tokens.file", secrets["file"], app=APP) as process:
        with cl.Client(process.address, token=secrets["writer"]) as client:
            prices = client.stream("prices")
            for value in (4, 0, 5):
                prices.push([cl.upsert(k="a", v=value), cl.upsert(k="b", v=2)]).result(SECONDS)
            eventually(lambda: client.status()["streams"][1]["taken"] == 3)
        yield process


def look(node: ServeProcess, token: str, path: str) -> Any:
    code, body = node.get(path, token)
    assert code == 200, body
    return json.loads(body)


def act(node: ServeProcess, token: str, what: Any, headers: dict[str, str] | None = None) -> tuple[int, str]:
    """Post as the page does, unless other headers are given."""
    given = {"Content-Type": "application/json", "X-Tussock": "1"} if headers is None else headers
    if token:
        given = {**given, "Authorization": f"Bearer {token}"}
    body = what if isinstance(what, bytes) else json.dumps(what).encode()
    asked = urllib.request.Request(f"http://{node.http}/act", data=body, headers=given, method="POST")
    try:
        with urllib.request.urlopen(asked, timeout=SECONDS) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_every_field_of_a_flow_is_documented(node: ServeProcess, secrets: dict[str, str]) -> None:
    """`docs/service.md` names each, those of streams and breakpoints, too."""
    page = (DOCS / "service.md").read_text(encoding="utf-8")
    assert act(node, secrets["admin"], {"act": "break", "stream": "halves", "condition": "v == 1"})[0] == 200
    status = look(node, secrets["reader"], "/status")
    fields = {*status, *status["streams"][0], *status["breakpoints"][0]}
    assert sorted(name for name in fields if f"`{name}`" not in page) == []


def test_every_metric_of_a_flow_is_documented(node: ServeProcess, secrets: dict[str, str]) -> None:
    """`docs/metrics.md` has exactly one row for each, with its type and its labels; they count."""
    text = node.get("/metrics", secrets["reader"])[1]
    found = {}
    for family in text_string_to_metric_families(text):
        if family.name.startswith("tussock_application_stream_"):
            shown = family.name + ("_total" if family.type == "counter" else "")
            found[shown] = (family.type, sorted({label for sample in family.samples for label in sample.labels}))
    page = (DOCS / "metrics.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(tussock_application_stream_\w*)` \| (\w+) \| ?([^|]*?) ?\|", page, re.MULTILINE)
    assert {name: (kind, sorted(re.findall(r"`(\w+)`", labels))) for name, kind, labels in rows} == found
    assert 'tussock_application_stream_rows_taken_total{stream="prices"} 6.0' in text
    assert 'tussock_application_stream_bad_total{stream="shares"} 1.0' in text
    assert 'tussock_application_stream_published{stream="shares"} 2.0' in text


def test_a_stream_is_shown_as_text(node: ServeProcess, secrets: dict[str, str]) -> None:
    """Newest records, histories and bad transactions; numbers that JSON cannot have exactly are text."""
    token = secrets["reader"]
    with cl.Client(node.address, token=secrets["writer"]) as client:
        client.stream("prices").push([cl.upsert(k="large", v=(1 << 62) + 1)]).result(SECONDS)
        eventually(lambda: client.stream("prices").get("large") is not None)
    view = look(node, token, "/stream?name=prices&records=1")
    [newest] = view["newest"]
    assert (newest["op"], newest["row"]) == ("INSERT", {"k": "large", "v": str((1 << 62) + 1)})
    assert (view["in_trans"], view["location"]) == (None, "INPUT")
    [before] = look(node, token, "/history?stream=shares&side=published&before=2&count=1&records=1")
    assert (before["seq"], before["count"], before["start"], len(before["records"])) == (2, 1, 0, 1)
    [bad] = look(node, token, "/bad-rows?stream=shares")
    assert (bad["row"], bad["location"]) == (0, "COMPUTE")


def test_texts_of_records_are_cut_at_500_characters(node: ServeProcess, secrets: dict[str, str]) -> None:
    """And say so; bytes are text by their digits. What has just as many is whole."""
    with cl.Client(node.address, token=secrets["writer"]) as client:
        prices, moments = client.stream("prices"), client.stream("moments")
        prices.push([cl.upsert(k="é" * count, v=1) for count in (500, 501)]).result(SECONDS)
        day = dt.date(2026, 11, 26)
        rows = [cl.upsert(day=day, n=count, price=None, raw=b"\xff" * count) for count in (248, 249)]
        moments.push(rows).result(SECONDS)
        eventually(lambda: moments.get((day, 249)) is not None and prices.get("é" * 501) is not None)
    cut = ["é" * 500, "é" * 500 + "..."]
    for path in ("/stream?name=prices&records=2", "/history?stream=prices&side=taken&count=1&records=2"):
        found = look(node, secrets["reader"], path)
        records = found["newest"] if "newest" in found else found[-1]["records"]
        assert [record["row"]["k"] for record in records] == cut
    newest = look(node, secrets["reader"], "/stream?name=moments&records=2")["newest"]
    assert [record["row"]["raw"] for record in newest] == ["hex:" + "ff" * 248, "hex:" + "ff" * 248 + "..."]


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("/stream", 400),
        ("/stream?name=nothing", 400),
        ("/stream?name=prices&records=0", 400),
        ("/stream?name=prices&records=1000", 400),
        ("/stream?name=prices&records=-1", 400),
        ("/stream?name=prices&records=%C2%B2", 400),
        ("/stream?name=%F0%9F%90%A2", 400),
        ("/history?stream=prices&count=100000", 400),
        ("/history?stream=prices&before=99999999999999999999999", 400),
        ("/history?stream=prices&before=9223372036854775807", 200),
        ("/bad-rows?stream=prices' or 1", 400),
        ("/act", 405),
    ],
)
def test_what_is_out_of_bounds_is_refused(node: ServeProcess, secrets: dict[str, str], path: str, code: int) -> None:
    """With the status of a caller's error, and the node goes on."""
    assert node.get(path.replace(" ", "%20"), secrets["reader"])[0] == code
    assert node.get("/readyz")[0] == 200


@pytest.mark.parametrize(
    "what",
    [
        {"act": "explode"},
        {"act": "step", "what": "row"},
        {"act": "step", "what": "leap"},
        {"act": "quiesce", "how": "stream", "stream": "nothing"},
        {"act": "break", "stream": "prices", "condition": "__import__('os')"},
        {"act": "break", "stream": "prices", "side": "middle"},
        {"act": "break", "stream": "prices", "every": -1},
        {"act": "change_break", "number": 99, "how": "remove"},
        {"act": "change_break", "number": -1, "how": "remove"},
        {"act": "auto_step", "seconds": 1e308},
        {"act": "what_if", "stream": "prices", "seq": 12345},
        {"act": "what_if", "bad": 12345},
        {"act": "what_if", "stream": "prices", "seq": 1 << 70},
        {"act": "replay_bad", "number": 12345},
        {"act": "pause", "more": 1},
        {"act": 1},
        [],
        b"\xff",
        b"[" * 4000,
        b"",
    ],
)
def test_what_cannot_be_done_is_refused(node: ServeProcess, secrets: dict[str, str], what: Any) -> None:
    """As the caller's error, with words for people."""
    code, body = act(node, secrets["admin"], what)
    assert code == 400
    assert body


def test_only_those_who_may_act_do(node: ServeProcess, secrets: dict[str, str]) -> None:
    """Nobody without a token; a reader looks; a writer replays; the rest is an admin's."""
    assert node.get("/stream?name=prices")[0] == 401
    assert act(node, "", {"act": "pause"})[0] == 401
    acts = [
        {"act": "pause"},
        {"act": "resume"},
        {"act": "step"},
        {"act": "quiesce", "how": "base"},
        {"act": "auto_step"},
        {"act": "hold", "stream": "prices"},
        {"act": "break", "stream": "prices"},
        {"act": "change_break", "number": 1, "how": "enable"},
        {"act": "what_if", "bad": 1},
    ]
    for role in ("reader", "writer"):
        assert {act(node, secrets[role], one)[0] for one in acts} == {403}
    assert act(node, secrets["reader"], {"act": "replay_bad", "number": 1})[0] == 403
    assert act(node, secrets["writer"], {"act": "replay_bad", "number": 999})[0] == 400
    assert act(node, secrets["admin"], {"act": "what_if", "bad": 1})[0] == 200
    assert look(node, secrets["reader"], "/status")["state"] == "running"


def test_pages_of_other_sites_cannot_act(node: ServeProcess, secrets: dict[str, str]) -> None:
    """What a browser sends on their behalf without asking has not the header, nor JSON; the question has no answer."""
    for headers in (
        {"Content-Type": "text/plain", "X-Tussock": "1"},
        {"Content-Type": "application/json"},
        {"Content-Type": "application/x-www-form-urlencoded"},
    ):
        assert act(node, secrets["admin"], {"act": "pause"}, headers)[0] == 403
    question = urllib.request.Request(f"http://{node.http}/act", method="OPTIONS")
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(question, timeout=SECONDS)
    assert caught.value.code == 405
    assert "Access-Control-Allow-Origin" not in caught.value.headers
    assert look(node, secrets["reader"], "/status")["state"] == "running"
