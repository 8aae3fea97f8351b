"""`tussock check`, `sst` and `repair sst` on a store whose filters lie apart from the metas."""

from pathlib import Path

from support.store.command import Tussock
from support.store.stores import pairs
from tussock.statestore import connect
from tussock.statestore.base.limits import Limits
from tussock.statestore.contract.records import meta_path

ROWS = [(b"%04d" % at, b"value %d" % at) for at in range(300)]


def test_a_damaged_filter_is_found_and_made_anew(tussock: Tussock, tmp_path: Path) -> None:
    """All rows can be read without it, so none is lost: another SST takes the place of the damaged one."""
    url = (tmp_path / "state").as_uri()
    limits = Limits(whole_filter_bytes=40, one_object_bytes=0, commit_payload_bytes=1)
    with connect(url, compaction=False, limits=limits) as store:
        store.create_table("kv", block_bytes=512)
        store.table("kv").ingest_batch(ROWS, epoch := store.new_epoch())
        store.commit_epoch(epoch)
    assert tussock("check", "--store", url).code == 0
    (sst,) = tussock("ssts", "kv", "--store", url, "--json").json()["ssts"]
    assert sst["filter_parts"] == 64
    assert tussock("sst", "dump", sst["id"], "--store", url, "--json").lines()[0]["bloom_bytes"] >= 64 * 8
    path = tmp_path / "state" / meta_path(sst["id"])
    data = bytearray(path.read_bytes())
    data[sst["head_bytes"] + 40] ^= 1
    path.write_bytes(bytes(data))
    (problem,) = tussock("check", "--store", url, "--json").json()["problems"]
    assert problem["object"] == meta_path(sst["id"])
    assert "part 2 of the filter: checksum mismatch" in problem["problem"]
    block = tmp_path / "state" / f"sst/{sst['id']}.data"
    rows = block.read_bytes()
    block.write_bytes(rows[:100] + b"\0" + rows[101:])
    found = [one["object"] for one in tussock("check", "--store", url, "--json").json()["problems"]]
    assert found == [meta_path(sst["id"]), f"sst/{sst['id']}.data"], "the blocks are checked without the filter"
    block.write_bytes(rows)
    done = tussock("repair", "sst", "--store", url, "--yes")
    assert "No row is lost: only filters are damaged" in done.err
    assert f"Put SST {sst['id']} aside: 0 rows lost" in done.out
    (loss,) = tussock("version", "--store", url, "--json").json()["losses"]
    assert (loss["rows"], loss["ranges"]) == (0, [])
    assert tussock("repair", "sst", "--store", url).out.strip() == "Nothing is damaged that a read needs."
    assert tussock("check", "--store", url).code == 0
    with connect(url, compaction=False) as store:
        assert pairs(store.table("kv").scan()) == ROWS
