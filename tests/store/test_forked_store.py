"""A store in a process that was forked after it was opened."""

import os

from tussock.statestore import StoreClosed, connect


def test_a_forked_child_is_told_to_connect_again(tmp_path: object) -> None:
    """Threads and leases stay with the parent, which goes on as before; the child gets a clear error, not a hang."""
    with connect(f"file://{tmp_path}") as store:
        table = store.create_table("kv")
        table.ingest_batch([(b"a", b"1")], 1)
        store.commit_epoch(1)
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                list(table.scan())
                answer = "no error"
            except StoreClosed as error:
                answer = str(error)
            except BaseException as error:  # the child has to end here, whatever happens
                answer = repr(error)
            os.write(writer, answer.encode())
            os._exit(0)
        os.close(writer)
        os.waitpid(child, 0)
        assert "before this process was forked" in os.read(reader, 4096).decode()
        os.close(reader)
        assert table.get(b"a") == b"1"


def test_a_child_may_open_the_store_anew(tmp_path: object) -> None:
    """What the child opens itself works, with the parent's store open beside it."""
    with connect(f"file://{tmp_path}") as store:
        table = store.create_table("kv")
        table.ingest_batch([(b"a", b"1")], 1)
        store.commit_epoch(1)
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            with connect(f"file://{tmp_path}") as mine:
                os.write(writer, mine.table("kv").get(b"a"))
            os._exit(0)
        os.close(writer)
        os.waitpid(child, 0)
        assert os.read(reader, 16) == b"1"
        os.close(reader)
