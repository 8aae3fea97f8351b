"""Every RPC with values that no client would send, from callers with every role and with none, at a real process.

Each call ends with an answer or a named error, in time; the service itself never fails, and has the memory that the
operator gives it. Then it serves others as before.
"""

import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from support.service.guarded_meta import Caller, CallRefusal, GuardedMeta, told_by
from support.service.hostile import Hostile
from tussock.meta.rpc import meta_pb2 as pb
from tussock.meta.rpc.methods import METHODS, PIECE_BYTES_MAX
from tussock.statestore.errors import TussockError

MEMORY_BYTES_MAX = 1 << 30
SECONDS = 20
SEED = "2026"
CALLERS = (None, "reader", "writer", "compactor", "admin")


@pytest.fixture
def meta(tmp_path: Path) -> Iterator[GuardedMeta]:
    with GuardedMeta(tmp_path, "--limits.calls-per-second", "0") as service:
        yield service


def one_call(caller: Caller, name: str, data: bytes) -> str:
    """How the call ended: `OK`, or the class of the error."""
    try:
        if METHODS[name].streams:
            for _ in caller.channel.unary_stream(METHODS[name].path)(data, metadata=caller.metadata, timeout=10):
                break
        elif len(data) <= PIECE_BYTES_MAX:
            caller.send_bytes(name, data)
        else:
            caller.in_pieces(name, [data[at : at + PIECE_BYTES_MAX] for at in range(0, len(data), PIECE_BYTES_MAX)])
    except grpc.RpcError as error:
        return type(told_by(error)).__name__
    except CallRefusal as refused:
        return str(refused.args)
    except TussockError as error:
        return type(error).__name__
    return "OK"


@pytest.mark.long
@pytest.mark.slow
def test_hostile_calls_end_with_named_errors_and_the_service_survives(meta: GuardedMeta) -> None:
    """The calls are seeded; there are as many as time allows."""
    ends: dict[str, Counter[str]] = {str(role): Counter() for role in CALLERS}
    until = time.monotonic() + SECONDS
    with meta.connect("writer") as store:
        kv = store.create_table("kv")
        store.create_table("sacrifice")

        def attack(role: str | None) -> None:
            caller = meta.caller(role)
            session = f"{CALLERS.index(role):032x}"
            made = Hostile(f"{SEED}/{role}", [session, session, session, "sacrifice", "job", "participant"])
            names = [name for name in METHODS if name != "CloseSession"]
            count = 0
            while time.monotonic() < until:
                if role and count % 20 == 0:
                    opening = pb.OpenSessionRequest(session_id=session, kind=pb.CLIENT, name="x")
                    one_call(caller, "OpenSession", opening.SerializeToString())
                name = names[count % len(names)]
                ends[str(role)][one_call(caller, name, made.request(METHODS[name]))] += 1
                count += 1

        attackers = [threading.Thread(target=attack, args=(role,)) for role in CALLERS]
        for attacker in attackers:
            attacker.start()
        for attacker in attackers:
            attacker.join()
        # A hostile administrator still has the rights of one: the table can be gone, or its retention be short.
        del kv
    told = {end for counts in ends.values() for end in counts}
    assert not {end for end in told if "INTERNAL" in end or "UNKNOWN" in end or end == "TussockError"}, ends
    assert set(ends["None"]) <= {"Unauthenticated", "RateLimited", "('RESOURCE_EXHAUSTED', 'x')"} | {
        end for end in told if "larger than max" in end
    }, ends["None"]
    assert [line[-2000:] for line in meta.process.raw if "Traceback" in line or '"level": "error"' in line] == []
    assert meta.process.process.poll() is None
    assert meta.memory("VmHWM") < MEMORY_BYTES_MAX
    with meta.connect("writer") as store:
        fresh = store.create_table("fresh")
        epoch = store.new_epoch()
        fresh.ingest_batch([(b"a", b"1")], epoch)
        store.commit_epoch(epoch)
        assert fresh.get(b"a") == b"1"
    assert sum(sum(counts.values()) for counts in ends.values()) > 500
