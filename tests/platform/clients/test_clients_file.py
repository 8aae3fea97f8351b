"""The clients file: what it declares, how a caller is known by it, and what of it is refused."""

import asyncio
import hashlib
from pathlib import Path

import pytest

from support.store.versions import FakeSystem
from tussock.meta.node.auth.authentication import Authenticator, Presented
from tussock.meta.node.auth.clients.file import FILE_BYTES_MAX, read_clients
from tussock.meta.node.auth.clients.registry import ClientRegistry
from tussock.meta.node.auth.tokens import ROLES, create_token
from tussock.meta.node.wire.rate_limits import ClientRates
from tussock.meta.rpc.methods import Role
from tussock.statestore.errors import AccessDenied, InvalidOption, RateLimited, Unauthenticated

SECRET = "tussock_a-secret"
DIGEST = f"sha256:{hashlib.sha256(SECRET.encode()).hexdigest()}"
BEARER = f"Bearer {SECRET}"
URI = "URI:tussock://data/shop/client/dashboard"
ENTRY = f"""
[clients.dashboard]
role = "reader"
certificates = ["{URI}"]
tokens = ["{DIGEST}"]
"""


def authenticator(path: Path, system: FakeSystem, text: str, **options: object) -> Authenticator:
    path.write_text(text)
    return Authenticator(system, clients=ClientRegistry(str(path), system), **options)


def later(system: FakeSystem) -> None:
    """The files are looked at once a second."""
    system.forward(1.1)


# --- How a client is known ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("presented", [Presented(BEARER, ()), Presented(None, ["CN:x", URI]), Presented(BEARER, [URI])])
def test_each_way_is_enough(tmp_path: Path, presented: Presented) -> None:
    """A client may be known by its token, by its certificate, or by both."""
    caller = authenticator(tmp_path / "c", FakeSystem(), ENTRY).authenticate(presented)
    assert (caller.identity, caller.roles) == ("client:dashboard", Role.READER)


@pytest.mark.parametrize("presented", [Presented(None, ()), Presented("Bearer wrong", ()), Presented("Basic x", ())])
def test_with_a_clients_file_alone_nobody_else_gets_in(tmp_path: Path, presented: Presented) -> None:
    """The service is closed then, though it has no tokens and asks for no certificates."""
    made = authenticator(tmp_path / "c", FakeSystem(), ENTRY)
    assert not made.is_open
    with pytest.raises(Unauthenticated):
        made.authenticate(presented)


def test_a_declaration_counts_before_wider_rules(tmp_path: Path) -> None:
    """A pattern or a line of the tokens file that would give more does not; and revoked is revoked."""
    system = FakeSystem()
    (tmp_path / "tokens").write_text(f"spark admin {DIGEST}\n")
    rules = {"certificates_required": True, "certificate_roles": {"admin": ["URI:tussock://data/shop/*"]}}
    made = authenticator(tmp_path / "c", system, ENTRY, tokens_file=str(tmp_path / "tokens"), **rules)
    presented = Presented(BEARER, [URI])
    assert made.authenticate(presented).roles == Role.READER
    (tmp_path / "c").write_text(ENTRY + "revoked = true\n")
    later(system)
    with pytest.raises(Unauthenticated, match="the client 'dashboard' is revoked"):
        made.authenticate(presented)
    assert made.revoked_identity(presented) == "client:dashboard (revoked)"


def test_others_are_known_as_before(tmp_path: Path) -> None:
    """Tokens, certificates and patterns hold for those that are not declared."""
    secret, line = create_token("spark", "writer", FakeSystem())
    (tmp_path / "tokens").write_text(line)
    made = authenticator(tmp_path / "c", FakeSystem(), ENTRY, tokens_file=str(tmp_path / "tokens"))
    caller = made.authenticate(Presented(f"Bearer {secret}", ()))
    assert (caller.identity, caller.roles, caller.tables) == ("spark", ROLES["writer"], ())


def test_certificate_and_token_of_two_clients_are_refused(tmp_path: Path) -> None:
    """Nobody could say which of them calls."""
    text = (
        ENTRY.replace(f'certificates = ["{URI}"]', "") + '[clients.other]\nrole = "admin"\ncertificates = ["CN:o*"]\n'
    )
    made = authenticator(tmp_path / "c", FakeSystem(), text)
    assert made.authenticate(Presented(None, ["CN:ops"])).identity == "client:other"
    with pytest.raises(Unauthenticated, match="that of the client 'other', and the token that of 'dashboard'"):
        made.authenticate(Presented(BEARER, ["CN:ops"]))


def test_a_certificate_that_fits_two_clients_is_refused(tmp_path: Path) -> None:
    text = ENTRY + '[clients.wide]\nrole = "admin"\ncertificates = ["URI:tussock://data/*"]\n'
    made = authenticator(tmp_path / "c", FakeSystem(), text)
    with pytest.raises(Unauthenticated, match="several declared clients, 'dashboard' and 'wide'"):
        made.authenticate(Presented(None, [URI]))


def test_tls_revoked_still_shuts_out(tmp_path: Path) -> None:
    """Whatever the declaration says."""
    made = authenticator(tmp_path / "c", FakeSystem(), ENTRY, certificates_required=True, revoked=[URI])
    with pytest.raises(Unauthenticated, match=r"tls\.revoked"):
        made.authenticate(Presented(BEARER, [URI]))


def test_a_certificate_of_anybody_may_be_revoked(tmp_path: Path) -> None:
    """Also of one that is not declared: its sessions go by its URI. Whatever else it shows does not help."""
    system, file = FakeSystem(), tmp_path / "c"
    job, other = "URI:tussock://data/shop/writer/totals", "URI:tussock://data/shop/writer/alarms"
    rules = {"certificates_required": True, "certificate_roles": {"writer": ["URI:tussock://data/shop/writer/*"]}}
    made = authenticator(file, system, "", **rules)
    registry = made.clients
    assert registry is not None
    assert made.authenticate(Presented(None, ["CN:job", job])).roles == ROLES["writer"]
    file.write_text(f'revoked = ["{job}"]\n{ENTRY}')
    later(system)
    for authorization in (None, BEARER):
        with pytest.raises(Unauthenticated, match="of `revoked` in the service's clients file"):
            made.authenticate(Presented(authorization, ["CN:job", job]))
    assert made.revoked_identity(Presented(None, [job])) == "tussock://data/shop/writer/totals (revoked)"
    assert "'tussock://data/shop/writer/totals' is revoked" in registry.dismissal(job.removeprefix("URI:"))
    assert made.authenticate(Presented(None, [other])).identity == other.removeprefix("URI:")
    assert registry.dismissal(other.removeprefix("URI:")) == ""


# --- Until when --------------------------------------------------------------------------------------------------


def test_a_client_is_let_in_until_it_expires(tmp_path: Path) -> None:
    """To the millisecond; its sessions are to end then, too."""
    system = FakeSystem()
    made = authenticator(tmp_path / "c", system, ENTRY + "expires = 2023-11-14T22:13:30Z\n")
    registry = made.clients
    assert registry is not None
    system.wall_ms = 1_700_000_009_999
    assert made.authenticate(Presented(BEARER, ())).identity == "client:dashboard"
    assert registry.dismissal("client:dashboard") == ""
    system.wall_ms += 1
    with pytest.raises(Unauthenticated, match="'dashboard' has expired"):
        made.authenticate(Presented(BEARER, ()))
    assert "has expired" in registry.dismissal("client:dashboard")


def test_a_change_of_the_file_holds_within_a_second(tmp_path: Path) -> None:
    """A client that is new gets in, one that was taken out does not, and its sessions are to end."""
    system, file = FakeSystem(), tmp_path / "c"
    made = authenticator(file, system, "")
    registry = made.clients
    assert registry is not None
    with pytest.raises(Unauthenticated):
        made.authenticate(Presented(BEARER, ()))
    file.write_text(ENTRY)
    later(system)
    assert made.authenticate(Presented(BEARER, ())).identity == "client:dashboard"
    file.write_text("# nobody\n")
    later(system)
    with pytest.raises(Unauthenticated):
        made.authenticate(Presented(BEARER, ()))
    assert "'dashboard' was taken out" in registry.dismissal("client:dashboard")
    assert registry.dismissal("dashboard") == registry.dismissal("CN:x") == ""


def test_a_watched_file_is_read_for_no_call(tmp_path: Path) -> None:
    """A large one takes tenths of a second: one thread reads it, and calls go by what it has read last."""
    system, file = FakeSystem(), tmp_path / "c"
    file.write_text(ENTRY)
    registry = ClientRegistry(str(file), system)

    async def watch_a_change() -> tuple[bool, bool]:
        watching = asyncio.create_task(registry.watch())
        await asyncio.sleep(0)
        file.write_text("")
        later(system)
        at_once = registry.dismissal("client:dashboard") == ""
        for _ in range(1000):
            if registry.dismissal("client:dashboard"):
                break
            await asyncio.sleep(0.01)
        found = bool(registry.dismissal("client:dashboard"))
        watching.cancel()
        return at_once, found

    assert asyncio.run(watch_a_change()) == (True, True)


@pytest.mark.parametrize("damage", ["[clients.", "[clients.x]\nrole = 'boss'\n", None])
def test_a_damaged_file_leaves_the_former_in_force(tmp_path: Path, damage: str | None) -> None:
    """Also one that is gone; the problem is told until the file is mended."""
    system, file = FakeSystem(), tmp_path / "c"
    made = authenticator(file, system, ENTRY)
    registry = made.clients
    assert registry is not None
    assert registry.problem == ""
    if damage is None:
        file.unlink()
    else:
        file.write_text(damage)
    later(system)
    assert made.authenticate(Presented(BEARER, ())).identity == "client:dashboard"
    assert str(file) in registry.problem
    file.write_text(ENTRY + "rate = 1\n")
    later(system)
    assert registry.problem == ""
    assert made.authenticate(Presented(BEARER, ())).rate == 1


# --- What it may do ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("table", "may"), [("orders", True), ("orders2", False), ("clicks_eu", True), ("clicks", False), ("", False)]
)
def test_tables_are_names_or_beginnings(tmp_path: Path, table: str, may: bool) -> None:
    """A refusal names the table, and what the client may write."""
    text = ENTRY.replace("reader", "writer") + 'tables = ["orders", "clicks_*"]\n'
    caller = authenticator(tmp_path / "c", FakeSystem(), text).authenticate(Presented(BEARER, ()))
    if may:
        caller.check_table(table)
        return
    with pytest.raises(AccessDenied, match=rf"may not write table '{table}'.* names orders, clicks_\*") as raised:
        caller.check_table(table)
    assert raised.value.args[1] == "client:dashboard"


def test_a_client_has_its_rate_wherever_it_calls_from() -> None:
    """Two seconds' calls after a pause, then by the rate; the refusal says when there will be one."""
    system = FakeSystem()
    rates = ClientRates(system)
    for _ in range(20):
        rates.check("client:a", 10)
    with pytest.raises(RateLimited, match=r"'client:a' makes more than 10 calls a second.*wait 100 ms") as raised:
        rates.check("client:a", 10)
    assert raised.value.args[1] == 100
    rates.check("client:b", 10)
    system.forward(0.1)
    rates.check("client:a", 10)
    rates.check("client:a", 20)  # the file has been changed


# --- What is refused ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[clients.a]\nrole = 'reader'\n", r"clients\.a: nobody is known by it"),
        ("[clients.a]\ntokens = []\n", r"clients\.a\.role: Field required"),
        (ENTRY.replace("reader", "boss"), r"clients\.dashboard\.role: Input should be"),
        (ENTRY.replace("URI:", "EMAIL:"), r"certificates\.0: 'EMAIL:.* should be one of CN"),
        (ENTRY.replace(URI, "CN:*"), "certificates.0"),
        (ENTRY.replace("sha256:", "sha256:x"), r"clients\.dashboard\.tokens\.0: String should match"),
        (ENTRY + "rate = 0\n", r"rate: Input should be greater than 0"),
        (ENTRY + "rate = nan\n", r"rate: "),
        (ENTRY + "expires = 2027-01-01T00:00:00\n", r"expires: .*timezone"),
        (ENTRY + "expires = 'soon'\n", r"expires: "),
        (ENTRY + "revoked = 1\n", r"revoked: Input should be a valid boolean"),
        (ENTRY + "revokd = true\n", r"revokd: Extra inputs are not permitted"),
        (ENTRY + "tables = ['a']\n", r"tables: only a writer can be held to some tables"),
        (ENTRY.replace("reader", "writer") + "tables = []\n", r"tables: is empty"),
        (ENTRY.replace("reader", "writer") + "tables = ['*']\n", r"tables\.0: should be the name"),
        (ENTRY.replace("reader", "writer") + "tables = ['a*b']\n", r"tables\.0: should be the name"),
        (ENTRY + ENTRY.replace("dashboard]", "other]"), "are both known by a token"),
        (ENTRY + ENTRY.replace("dashboard]", "o]").replace("tokens", "# "), f"both known by the certificate '{URI}'"),
        (ENTRY.replace("clients.dashboard", "clients.'no name'"), "String should match pattern"),
        ("client = 1\n", "client: Extra inputs"),
        ("revoked = ['URI:*']\n", r"revoked\.0: 'URI:\*' should be one of"),
        ("[clients", "is not TOML"),
        ("#" * (FILE_BYTES_MAX + 1), "a clients file may have"),
    ],
)
def test_a_file_with_a_mistake_is_refused_whole(tmp_path: Path, text: str, said: str) -> None:
    """The error names file and place, and not what stands there."""
    file = tmp_path / "clients.toml"
    file.write_text(text)
    with pytest.raises(InvalidOption, match=said) as raised:
        read_clients([str(file)])
    assert str(file) in str(raised.value)
    assert DIGEST[10:] not in str(raised.value)


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "c").write_bytes(b"\xff\xfe")
    with pytest.raises(InvalidOption, match="is not UTF-8 text"):
        read_clients([str(tmp_path / "c")])
