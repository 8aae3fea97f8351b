"""Turns results into Markdown: the tables that `run.py` prints and, on request, puts into `benchmarks/README.md`."""

import importlib.metadata
import platform
import statistics
import timeit
from pathlib import Path
from typing import Any

from figures import FIGURES, MEMORY_CASES, MIX_WANTED, US, Ratio

README = Path(__file__).parent / "README.md"
BEGIN = "<!-- measured: begin (written by run.py --publish) -->"
END = "<!-- measured: end -->"

PACKAGES = ("pyarrow", "polars", "numpy", "rocksdict", "slatedb", "pyspark")

Results = dict[str, Any]


def machine() -> dict[str, Any]:
    """Processor, cores, memory, system and versions, as far as Linux tells."""
    cpu = next(
        (line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line),
        platform.machine(),
    )
    flags = Path("/proc/cpuinfo").read_text()
    total_kib = int(Path("/proc/meminfo").read_text().split()[1])
    return {
        "cpu": cpu,
        "cores": flags.count("processor\t"),
        "virtual": "hypervisor" in flags,
        "memory_gib": round(total_kib / (1 << 20)),
        "system": f"{platform.system()} {platform.release().split('-')[0]}",
        "python": platform.python_version(),
        "packages": {name: _installed(name) for name in PACKAGES},
        "pace_ms": pace(),
    }


def pace() -> float:
    """Milliseconds of a fixed loop of Python, the best of nine: machines of one kind differ by half and more.

    Rates of two days can be compared as far as this is the same.
    """
    loop = "for key in range(100_000): counts[key & 1023] = counts.get(key & 1023, 0) + key"
    return round(min(timeit.repeat(loop, "counts = {}", number=10, repeat=9)) * 1000, 1)


def _installed(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "absent"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def _rate(value: float, unit: str) -> str:
    for size, prefix in ((1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{_number(value / size)} {prefix}{unit}"
    return f"{_number(value)} {unit}"


def _row(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def markdown_table(head: list[str], rows: list[list[str]], right: int) -> list[str]:
    """A Markdown table; the columns from `right` on are numbers."""
    return [_row(head), _row(["---" if at < right else "---:" for at in range(len(head))]), *map(_row, rows)]


def ratio_table(ratios: list[Ratio]) -> list[str]:
    """One line per figure and peer."""
    rows = []
    for one in ratios:
        wanted = "" if one.wanted is None else f"{one.wanted:g}x {'reached' if one.reached else 'MISSED'}"
        rates = [_rate(value, one.unit) for value in (one.ours, one.theirs)]
        spread = f"{_number(one.lowest)} to {_number(one.highest)}"
        rows.append([one.title, one.peer, *rates, f"**{_number(one.ratio)}x**", spread, wanted])
    return markdown_table(["figure", "against", "Tussock", "peer", "ratio", "spread", "wanted"], rows, 2)


def memory_table(memory: list[dict[str, Any]]) -> list[str]:
    """Peak memory per case and number of rows."""
    rows = [
        [MEMORY_CASES[one["case"]], f"{one['rows'] / 1e6:g} M", f"{one['peak_bytes'] / (1 << 20):,.0f} MiB"]
        for one in memory
    ]
    return markdown_table(["what", "rows", "peak resident memory"], rows, 1)


def mix_table(rounds: list[dict[str, dict[str, float]]]) -> list[str]:
    """One line per kind of read: alone, among the others on one open store, and how many times as long that is."""
    rows = []
    for kind in rounds[0]["alone"]:
        alone = statistics.median(one["alone"][kind] for one in rounds)
        mixed = statistics.median(one["mixed"][kind] for one in rounds)
        factors = [one["mixed"][kind] / one["alone"][kind] for one in rounds]
        factor = statistics.median(factors)
        told = f"{_number(min(factors))} to {_number(max(factors))}"
        wanted = f"at most {MIX_WANTED:g}x {'reached' if factor <= MIX_WANTED else 'MISSED'}"
        rows.append([kind, f"{alone * 1e3:,.1f} ms", f"{mixed * 1e3:,.1f} ms", f"**{factor:.2f}x**", told, wanted])
    return markdown_table(["a pass of", "alone", "among the others", "ratio", "spread", "wanted"], rows, 1)


def requests_table(samples: dict[str, list[dict[str, dict[str, Any]]]]) -> list[str]:
    """Requests and bytes of our samples in the first round, per figure, and the peak memory of the engines."""
    rows = []
    for figure in FIGURES:
        first = samples[figure.case][0]
        counts: dict[str, list[int]] = {}
        for operations in first[US]["requests"].values():
            for operation, (count, size) in operations.items():
                sums = counts.setdefault(operation, [0, 0])
                sums[0] += count
                sums[1] += size
        told = ", ".join(
            f"{count:,} {operation}" + (f" ({size / 1e6:,.1f} MB)" if size >= 50_000 else "")
            for operation, (count, size) in sorted(counts.items())
            if count
        )
        peaks = " / ".join(f"{first[engine]['peak_bytes'] / (1 << 20):,.0f}" for engine in figure.engines)
        rows.append([figure.title, told, peaks])
    return markdown_table(["figure", "Tussock's requests to the bucket, store opened and closed", "peak MiB"], rows, 2)


def markdown(results: Results, ratios: list[Ratio]) -> list[str]:
    """All that was measured, ready for the page."""
    found = results["machine"]
    packages = ", ".join(f"{name} {version}" for name, version in found["packages"].items())
    kind = "virtual, shared with other work" if found["virtual"] else "real"
    lines = [
        (
            f"Measured on {results['date']} with `{results['command']}`: {results['rows']:,} rows, "
            f"{results['rounds']} rounds, load average {results['load'][0]:.1f} at the start and "
            f"{results['load'][1]:.1f} at the end."
        ),
        (
            f"Machine ({kind}): {found['cpu']}, {found['cores']} cores, {found['memory_gib']} GiB, {found['system']}, "
            f"{results['filesystem']}; a million steps of Python take {found['pace_ms']:.0f} ms."
        ),
        f"Python {found['python']}, {packages}.",
        "",
        *ratio_table(ratios),
        "",
    ]
    if results["memory"]:
        settings = results["memory_settings"]
        lines += [
            f"Memory of the whole process, with `cache_bytes` and `buffer_bytes` of {settings >> 20} MiB each:",
            "",
            *memory_table(results["memory"]),
            "",
        ]
    lines += [
        "All kinds of reads in turn on one open store, whose rows fit into the cache (processor time):",
        "",
        *mix_table(results["mix"]),
        "",
    ]
    lines += ["What it costs (first round; peak memory includes the input, in the order of the engines):", ""]
    return lines + requests_table(results["samples"])


def publish(lines: list[str], begin: str = BEGIN, end: str = END) -> None:
    """Put the tables into the page, between two of its markers."""
    before, rest = README.read_text().split(begin)
    after = rest.split(end)[1]
    README.write_text("\n".join([before + begin, "", *lines, "", end]) + after)
