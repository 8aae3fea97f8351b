"""A second address of each replica: clients outside are led to leaders that they can reach, those inside as ever."""

import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from support.network.certificates import Authority
from support.network.proxies import ClosingPort
from support.service.guarded_meta import Caller
from support.service.meta_process import MetaProcess
from support.waiting import eventually
from tussock.meta.node.wire.outside import OutsideAddresses, read_outside
from tussock.meta.rpc import meta_pb2 as pb
from tussock.statestore import connect
from tussock.statestore.base.system import RealSystem
from tussock.statestore.errors import InvalidOption, NotLeader, ObjectStoreUnavailable, TussockError


class _Replica(NamedTuple):
    process: MetaProcess
    way_in: ClosingPort
    """What stands before it, such as a load balancer."""

    @property
    def outside(self) -> str:
        return self.way_in.address


class _Platform:
    """Two replicas, the first of which leads, and the file that says where the outside finds each."""

    def __init__(self, folder: Path, stack: contextlib.ExitStack) -> None:
        self.file = folder / "outside.toml"
        self.file.write_text("")
        store = (folder / "bucket").as_uri()
        self._options = (store, "--outside.listen", "127.0.0.1:0", "--outside.file", str(self.file))
        self._stack = stack
        self.leader = self._start()
        self.leader.process.wait_until_it_leads()
        self.follower = self._start()

    def _start(self) -> _Replica:
        process = self._stack.enter_context(MetaProcess(*self._options))
        bound = str(process.wait_for(event="serving")["outside"])
        way_in = self._stack.enter_context(ClosingPort(bound))
        way_in.is_closing = False
        return _Replica(process, way_in)

    def tell(self) -> None:
        """Write the file, and wait until the follower has read it."""
        lines = [f'"{one.process.address}" = "{one.outside}"\n' for one in (self.leader, self.follower)]
        self.file.write_text("[addresses]\n" + "".join(lines))
        eventually(lambda: named_leader(self.follower.outside) == self.leader.outside)


@pytest.fixture
def platform(tmp_path: Path) -> Iterator[_Platform]:
    with contextlib.ExitStack() as stack:
        yield _Platform(tmp_path, stack)


def named_leader(address: str) -> str:
    """The leader's address, as a replica that does not lead tells it to one who comes in there."""
    with contextlib.closing(Caller(address, None)) as caller, pytest.raises(NotLeader) as told:
        caller.call("GetVersion", pb.GetVersionRequest())
    return str(told.value.args[1])


def test_the_way_in_decides_which_address_is_told(platform: _Platform) -> None:
    """Of the same replica at the same time; and no address is better than one that leads nowhere from outside."""
    follower = platform.follower
    inside = platform.leader.process.address
    eventually(lambda: named_leader(follower.process.address) == inside)
    assert named_leader(follower.outside) == ""
    platform.tell()
    assert named_leader(follower.process.address) == inside


def test_a_client_outside_follows_the_leader_by_outside_addresses(platform: _Platform) -> None:
    """It knows one replica, and no inside address is ever of use to it: all goes by the ways in."""
    platform.tell()
    with connect(f"tussock://{platform.follower.outside}") as store:
        table = store.create_table("kv")
        epoch = store.new_epoch()
        table.ingest_batch([(b"a", b"1")], epoch)
        store.commit_epoch(epoch, writer="job", batch_id=1)
        assert platform.leader.way_in.carried
        _hand_over(platform.leader.process, platform.follower.process.address)
        platform.follower.process.wait_until_it_leads()
        before = platform.leader.way_in.carried, platform.follower.way_in.carried
        epoch = store.new_epoch()
        table.ingest_batch([(b"a", b"2")], epoch)
        store.commit_epoch(epoch, writer="job", batch_id=2)
        assert table.get(b"a") == b"2"
        assert (platform.leader.way_in.carried, platform.follower.way_in.carried) >= before


def test_without_addresses_a_client_that_knows_all_finds_the_leader(platform: _Platform) -> None:
    """As in the moments in which the file is behind: it goes round."""
    known = f"tussock://{platform.follower.outside},{platform.leader.outside}"
    with connect(known) as store:
        assert store.create_table("kv").get(b"a") is None
    assert platform.leader.way_in.carried


def _hand_over(leader: MetaProcess, successor: str) -> None:
    caller = Caller(leader.address, None)
    with contextlib.closing(caller):

        def is_done() -> bool:
            with contextlib.suppress(InvalidOption):
                caller.call("HandOver", pb.HandOverRequest(address=successor))
                return True
            return False

        eventually(is_done)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("[addresses", "is not TOML"),
        ("\ufffe", "is not TOML"),
        ('[adresses]\n"a:1" = "b:2"', "'adresses' is not known"),
        ("addresses = 3", "should be a table"),
        ('[addresses]\n"a" = "b:2"', "'a' in addresses should be HOST:PORT"),
        ('[addresses]\n"a:1" = "b:0"', "'b:0' in addresses should be HOST:PORT"),
        ('[addresses]\n"a:1" = "b:65536"', "'b:65536' in addresses should be HOST:PORT"),
        ('[addresses]\n"a:1" = "b:1,c:2"', "'b:1,c:2' in addresses should be HOST:PORT"),
        ('[addresses]\n"a:1" = "u@b:1"', "'u@b:1' in addresses should be HOST:PORT"),
        ('[addresses]\n"a:1" = 7', "'7' in addresses should be HOST:PORT"),
        ("[addresses]\n" + "".join(f'"a{i}:1" = "b:1"\n' for i in range(101)), "up to 100"),
        ("#" * (64 << 10) + "\n", "has 65537 bytes"),
    ],
)
def test_a_file_that_says_something_else_is_refused(tmp_path: Path, text: str, what: str) -> None:
    """By its place and the entry, before a client is led anywhere by it."""
    file = tmp_path / "outside.toml"
    file.write_text(text)
    with pytest.raises(InvalidOption, match=what):
        read_outside([str(file)])


def test_addresses_of_all_kinds_are_read(tmp_path: Path) -> None:
    """Names, and addresses of both versions of IP, as the replicas advertise them."""
    file = tmp_path / "outside.toml"
    file.write_text('[addresses]\n"10.0.0.7:7370" = "meta.example.com:7370"\n"fd00::7:7370" = "[2001:db8::1]:30400"\n')
    expected = {"10.0.0.7:7370": "meta.example.com:7370", "fd00::7:7370": "[2001:db8::1]:30400"}
    assert read_outside([str(file)]) == expected


@pytest.mark.parametrize("error", [InvalidOption("no"), ObjectStoreUnavailable("no")])
def test_other_errors_are_told_as_they_are(tmp_path: Path, error: TussockError) -> None:
    """Only an address of a replica differs outside."""
    file = tmp_path / "outside.toml"
    file.write_text("")
    assert OutsideAddresses(str(file), RealSystem()).told(error) is error


@pytest.mark.parametrize("option", [("--outside.listen", "127.0.0.1:0"), ("--outside.file", "FILE")])
def test_one_of_the_two_settings_alone_is_refused(tmp_path: Path, option: tuple[str, str]) -> None:
    """Before anything is served."""
    (tmp_path / "outside.toml").write_text("")
    given = [part.replace("FILE", str(tmp_path / "outside.toml")) for part in option]
    with MetaProcess((tmp_path / "bucket").as_uri(), *given) as process:
        assert process.wait() == 2
    assert any("outside.listen and outside.file belong together" in line for line in process.raw)


def test_an_outside_address_that_is_taken_is_told(tmp_path: Path) -> None:
    """By the name of its option."""
    (tmp_path / "outside.toml").write_text("")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        options = ("--outside.listen", address, "--outside.file", str(tmp_path / "outside.toml"))
        with MetaProcess((tmp_path / "bucket").as_uri(), *options) as process:
            assert process.wait() == 1
    assert any("set outside.listen to another" in line for line in process.raw)


def test_both_addresses_show_the_certificate_of_the_files(tmp_path: Path) -> None:
    """A certificate of files is told to gRPC once, so each address has its own credentials."""
    authority = Authority(tmp_path)
    server, client = authority.sign("meta"), authority.sign("worker")
    (tmp_path / "outside.toml").write_text("")
    files = ("--tls.certificate", str(server.certificate), "--tls.key", str(server.key))
    clients = ("--tls.client-ca", str(authority.certificate), "--tls.roles.admin", "CN:worker")
    outside = ("--outside.listen", "127.0.0.1:0", "--outside.file", str(tmp_path / "outside.toml"))
    with MetaProcess((tmp_path / "bucket").as_uri(), *files, *clients, *outside) as process:
        process.wait_until_it_leads()
        shown = {"tls_ca": authority.certificate, "tls_cert": client.certificate, "tls_key": client.key}
        for address in (process.address, str(process.wait_for(event="serving")["outside"])):
            with connect(f"tussock://{address}", **{name: str(path) for name, path in shown.items()}) as store:
                assert store.tables() == []
