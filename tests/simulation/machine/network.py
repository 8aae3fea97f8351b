"""Calls between simulated processes: serialized messages that take time, get lost either way, or come too late.

`Network` knows which meta node answers at which address; `SimTransport` is what a client's connection dials, in the
place of gRPC. A call runs in a thread of the node that serves it, so it dies with that node. A stream brings its
events in order, until one end dies or is cut off from the other.
"""

from collections import deque
from collections.abc import Callable, Iterator

from google.protobuf.message import Message

from simulation.machine.bucket import Faults
from simulation.machine.scheduler import Node, Scheduler, Thread, Violation
from tussock.meta.client.transport import Transport
from tussock.meta.node.auth.caller import ANYONE
from tussock.meta.rpc import meta_pb2 as pb
from tussock.meta.rpc.errors import decode_error, encode_error
from tussock.meta.rpc.methods import Method
from tussock.meta.server.mailbox import Mailbox
from tussock.meta.server.node import MetaNode
from tussock.statestore.errors import MetaUnavailable, TussockError

__all__ = ["Network"]

BROKEN_SECONDS = 5.0
"""Seconds after which a peer that is gone without a word is taken for dead, as by gRPC's keep-alives."""


class Network:
    """Which node serves which address, and how bad the lines are."""

    def __init__(self, scheduler: Scheduler, faults: Callable[[], Faults]) -> None:
        self.scheduler = scheduler
        self.faults = faults
        self.servers: dict[str, tuple[Node, MetaNode]] = {}

    def dial(self, node: Node) -> Callable[[str], Transport]:
        """The dialler of this node: it makes a transport to an address."""
        return lambda address: SimTransport(self, node, address)

    def server(self, address: str) -> tuple[Node, MetaNode] | None:
        """The living node that listens there, if there is one."""
        found = self.servers.get(address)
        return found if found is not None and found[0].alive else None

    def passes(self, one: Node, other: Node) -> bool:
        """Whether a message gets from one node to the other now."""
        now = self.scheduler.now
        return one.parted_until <= now and other.parted_until <= now

    def delay(self, node: Node) -> float:
        """Seconds that a message takes to or from a node."""
        faults, choose = self.faults(), self.scheduler.random.random
        if faults.slow and choose() < faults.slow:
            return choose() * faults.slow_seconds * 0.5
        return choose() * max(faults.latency, node.latency)


class SimTransport:
    """Calls from one node to one address; satisfies `Transport`."""

    def __init__(self, network: Network, node: Node, address: str) -> None:
        self._network, self._node, self._address = network, node, address
        self._scheduler = network.scheduler

    def call(self, method: Method, request: Message, timeout: float) -> Message:
        """One unary call."""
        network, scheduler, node = self._network, self._scheduler, self._node
        me = scheduler.current()
        data = request.SerializeToString()
        ambush = node.ambush if method.name in ("Commit", "CommitEach") else None
        if ambush is not None:
            node.ambush = None
            if ambush.kind == "halt before":
                scheduler.halt(node, ambush.seconds)
        turn = me.turn + 1
        answer: list[tuple[bytes, bool]] = []
        faults, choose = network.faults(), scheduler.random.random
        lost_there, lost_back = choose() < faults.lose_request, choose() < faults.lose_answer

        def arrive() -> None:
            found = network.server(self._address)
            if found is None:
                if network.servers.get(self._address) is None or choose() < 0.8:
                    # A dead process's machine refuses the connection, unless it is gone too.
                    scheduler.wake(me, turn, network.delay(node))
                return
            if network.passes(node, found[0]) and found[0].deaf_until <= scheduler.now:
                scheduler.spawn(found[0], f"rpc {method.name}", lambda: self._serve(*found, method, data, reply))

        def reply(server: Node, result: bytes, failed: bool) -> None:
            scheduler.trace(f"{server} answers {node} {method.name}{' with an error' if failed else ''}")
            if ambush is not None and ambush.kind == "silence":
                node.parted_until = scheduler.now + ambush.seconds
                scheduler.trace(f"{node} is cut off from the other nodes just now")
            if lost_back or node.deaf_until > scheduler.now or not network.passes(node, server):
                return
            back = network.delay(node)

            def come_back() -> None:
                answer.append((result, failed))
                scheduler.wake(me, turn)

            scheduler.at(back, come_back)

        scheduler.trace(f"{node} calls {method.name} at {self._address}{' in vain' if lost_there else ''}")
        if not lost_there:
            scheduler.at(network.delay(node), arrive)
        if ambush is not None and ambush.kind == "halt after":
            scheduler.stall(node, ambush.seconds)
        scheduler.park(f"{method.name} at {self._address}", timeout)
        if not answer:
            raise MetaUnavailable(f"{method.name} on the meta service at {self._address}: no answer", self._address)
        result, failed = answer[0]
        if failed:
            raise decode_error(result)
        return method.response.FromString(result)

    def subscribe(self, request: pb.SubscribeRequest) -> "SimStream":
        """Begin a subscription."""
        stream = SimStream(self._network, self._node, self._address)
        data = request.SerializeToString()
        self._scheduler.at(self._network.delay(self._node), lambda: stream.arrive(data))
        return stream

    def close(self) -> None:
        """Nothing to close."""

    def _serve(
        self, server: Node, meta: MetaNode, method: Method, data: bytes, reply: Callable[[Node, bytes, bool], None]
    ) -> None:
        try:
            result = meta.call(method.name, method.request.FromString(data), ANYONE).SerializeToString()
        except TussockError as error:
            reply(server, encode_error(error), True)
        except Exception as error:
            raise Violation(f"{server} failed at {method.name}: {error!r}") from error
        else:
            reply(server, result, False)


class SimStream:
    """The client's end of a subscription."""

    def __init__(self, network: Network, node: Node, address: str) -> None:
        self._network, self._node, self._address = network, node, address
        self._scheduler = network.scheduler
        self._events: deque[bytes] = deque()
        self._error: TussockError | None = None
        self._ended = False
        self._reader: tuple[Thread, int] | None = None
        self._due = 0.0
        self._server: Node | None = None

    def __iter__(self) -> Iterator[pb.Event]:
        while True:
            while self._events:
                yield pb.Event.FromString(self._events.popleft())
            if self._error is not None:
                raise self._error
            if self._ended:
                return
            me = self._scheduler.current()
            self._reader = me, me.turn + 1
            self._scheduler.park(f"events from {self._address}")
            self._reader = None

    def cancel(self) -> None:
        """End the iteration."""
        self._ended = True
        self._wake()

    # --- The server's end ----------------------------------------------------------------------------------------

    def arrive(self, data: bytes) -> None:
        """The request to subscribe has arrived."""
        found = self._network.server(self._address)
        if found is None or not self._network.passes(self._node, found[0]):
            self._scheduler.at(1.0, lambda: self._break("nobody answers"))
            return
        self._server = found[0]
        self._scheduler.spawn(found[0], "rpc Subscribe", lambda: self._serve(*found, data))
        self._watch()

    def _serve(self, server: Node, meta: MetaNode, data: bytes) -> None:
        try:
            mailbox = meta.subscribe(pb.SubscribeRequest.FromString(data), ANYONE)
        except TussockError as error:
            refused = decode_error(encode_error(error))
            self._deliver(lambda: self._end(refused))
            return
        self._scheduler.trace(f"{server} has a subscriber {self._node}")
        mailbox.on_ready(lambda: self._take(mailbox))

    def _take(self, mailbox: Mailbox) -> None:
        if self._scheduler.over:
            return
        for event in mailbox.take():
            self._deliver(lambda event=event: self._bring(event))
        if mailbox.closed:
            self._deliver(lambda: self._end(None))

    def _deliver(self, action: Callable[[], None]) -> None:
        """Deliver in order, after a message's latency."""
        self._due = max(self._due + 1e-9, self._scheduler.now + self._network.delay(self._node))
        server = self._server
        assert server is not None

        def come() -> None:
            # What a connection has lost does not come later: it breaks.
            if self._node.alive and not self._ended:
                if self._network.passes(self._node, server) and self._node.deaf_until <= self._scheduler.now:
                    action()
                else:
                    self._break("the connection broke")

        self._scheduler.at(self._due - self._scheduler.now, come)

    def _bring(self, event: bytes) -> None:
        self._events.append(event)
        self._wake()

    def _end(self, error: TussockError | None) -> None:
        self._error, self._ended = error, True
        self._wake()

    def _break(self, why: str) -> None:
        if not self._ended:
            self._end(MetaUnavailable(f"the stream from {self._address} ended: {why}", self._address))

    def _watch(self) -> None:
        """Keep-alives: a server that died or is out of reach is noticed after a while."""
        if self._ended or not self._node.alive or self._scheduler.over:
            return
        server = self._server
        if server is not None and (not server.alive or not self._network.passes(self._node, server)):
            self._break("the peer is gone")
            return
        self._scheduler.at(BROKEN_SECONDS, self._watch)

    def _wake(self) -> None:
        if self._reader is not None:
            self._scheduler.wake(*self._reader)
