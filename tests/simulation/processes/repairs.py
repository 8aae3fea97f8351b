"""An operator in a simulation: finds the damaged SST of an idle table, puts it aside, and discards it later."""

from simulation.machine.scheduler import Violation
from simulation.processes.process import Process
from simulation.processes.workloads import UNAVAILABLE
from tussock.compactor.sst_repair import SstRepair
from tussock.statestore.errors import Conflict, InvalidOption, StaleUpload

__all__ = ["mend", "mend_all"]


def mend(process: Process, table: str) -> None:
    """At some moment, beside all that works; a successor begins again where this process died."""
    world, random = process.world, process.scheduler.random
    while not world.closing:
        process.system.sleep(random.random() * 60)
        try:
            mend_all(process, table)
            return
        except (*UNAVAILABLE, StaleUpload) as error:
            world.check_clock(process, error)


def mend_all(process: Process, table: str) -> None:
    """Put aside what of the table is damaged, wait, and discard all that is kept."""
    mending = SstRepair(process.bucket, process.system, owner=repr(process.node), open_source=_no_source)
    try:
        for state, sst in mending.named():
            damaged = mending.examine(state, sst) if state.spec.name == table else None
            if damaged is not None:
                try:
                    mending.put_aside(damaged)
                except Conflict:
                    # Another process did it, or a compaction that had read it while it was whole.
                    mending.log.refresh()
        process.system.sleep(process.scheduler.random.random() * 30)
        kept = sorted(mending.log.refresh().quarantined_ids())
        if kept:
            try:
                mending.discard(kept)
            except InvalidOption:
                # Another process was faster.
                if mending.log.refresh().quarantined_ids() >= {*kept}:
                    raise
    finally:
        mending.close()


def _no_source(url: str) -> Violation:
    raise Violation(f"no store was cloned, and {url} is asked for")
