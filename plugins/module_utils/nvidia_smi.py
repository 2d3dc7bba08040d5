# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The door to nvidia-smi, for nodes without nvidia-ml-py: its tables, and what it says when a GPU is gone."""

from __future__ import annotations

import csv
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ansible_collections.headroom.serving.plugins.module_utils import gpu_facts
from ansible_collections.headroom.serving.plugins.module_utils.gpu_facts import CannotRead, Gpu, GpuProcess, GpuReading

# A broken GPU can hold nvidia-smi for long; a healthy node of eight without persistence mode takes 10 to 20 s.
_TIMEOUT_S = 60
_MIB = 2**20
# Where the driver's installers and container tools put it, for accounts whose PATH is short.
_MORE_PATH = ("/usr/bin", "/usr/local/bin", "/usr/local/nvidia/bin", "/opt/bin")
# Fields that older drivers do not know are left out when nvidia-smi refuses them.
FIELDS = (
    "index",
    "uuid",
    "name",
    "pci.bus_id",
    "driver_version",
    "memory.total",
    "memory.used",
    "memory.free",
    "compute_cap",
    "pcie.link.gen.max",
    "pcie.link.width.current",
    "mig.mode.current",
)
_UNKNOWN_FIELD = re.compile(r'Field "(?P<field>[^"]+)" is not a valid field to query')
_LOST = re.compile(
    r"Unable to (?:determine|detect) the device handle for gpu\s*(?:\d+: )?"
    r"(?P<bus>[0-9a-f]{3,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f])?:? *(?P<reason>.*)",
    re.IGNORECASE,
)
_MISMATCH = re.compile(r"Driver/library version mismatch(?:\s+NVML library version: (?P<version>[\d.]+))?")
_CUDA = re.compile(r"CUDA(?: UMD)? Version\s*:\s*(\d+\.\d+)", re.IGNORECASE)
_DRIVER = re.compile(r"DRIVER version\s*:\s*(\d[\d.]+)", re.IGNORECASE)
_AS_CSV = "--format=csv,noheader,nounits"
_NO_DEVICES = "No devices were found"
_ESCAPES = re.compile(r"\x1b\[[0-9;]*m")
_UNSUPPORTED = ("N/A", "Not Supported")
_GONE = ("GPU is lost", "GPU requires reset")
_LEVELS = ("PIX", "PXB", "PHB", "NODE", "SYS")


@dataclass(frozen=True)
class _Answer:
    status: int
    text: str


def read(proc: Path = Path("/proc")) -> GpuReading:
    """Ask nvidia-smi for all GPUs.

    Raises:
        CannotRead: If it is not there, does not end in time, or finds no usable driver.
    """
    rows, notes = _rows(proc)
    versions = _run("--version").text
    if not _CUDA.search(versions):
        versions += _run().text  # older ones tell it in the headline of their table only
    driver, cuda = _DRIVER.search(versions), _CUDA.search(versions)
    used = list(_processes(_run("--query-compute-apps=gpu_uuid,pid,used_memory", _AS_CSV).text)) if rows else []
    gpus = tuple(_gpu(row, used) for row in sorted(rows, key=lambda row: int(row["index"])))
    notes += [
        f"GPU {gpu.index} has no memory of its own, or does not tell its size" for gpu in gpus if not gpu.total_bytes
    ]
    topology: tuple[tuple[str, ...], ...] = (("X",),) if len(gpus) == 1 else ()
    if len(gpus) > 1:
        topology = links(_run("topo", "-m").text, [gpu.index for gpu in gpus])
        if not topology:
            notes.append("the links between the GPUs are unknown: 'nvidia-smi topo -m' does not tell them")
    driver_version = rows[0]["driver_version"] if rows else driver[1] if driver else gpu_facts.module_version(proc)
    return GpuReading(gpus, driver_version, cuda[1] if cuda else "", topology, tuple(notes))


def _rows(proc: Path) -> tuple[list[dict[str, str]], list[str]]:
    """Return a row for each GPU that answers, and notes about the others."""
    fields = list(FIELDS)
    answer = _query(fields)
    while (unknown := _UNKNOWN_FIELD.search(answer.text)) and unknown["field"] in fields:
        fields.remove(unknown["field"])
        answer = _query(fields)
    rows = list(table(answer.text, fields))
    notes = [gpu_facts.lost(row["index"], broken(row)) for row in rows if broken(row)]
    rows = [row for row in rows if not broken(row)]
    if answer.status == 0 or _NO_DEVICES in answer.text:
        return rows, notes
    if mismatch := _MISMATCH.search(answer.text):
        raise gpu_facts.mismatch(mismatch["version"] or "", proc)
    gone = dict(lost(answer.text))
    if not gone:
        raise CannotRead(f"nvidia-smi: {_first_line(answer)}")
    # It gives up at the first GPU that is lost, so the others are asked one by one.
    for bus in _buses(proc):
        if bus not in gone and bus not in {_bus(row["pci.bus_id"]) for row in rows}:
            single = _query(fields, "--id", bus)
            rows += table(single.text, fields)
            if single.status != 0:
                gone.update(lost(single.text))
    return rows, notes + [gpu_facts.lost(bus or "at an unknown address", reason) for bus, reason in gone.items()]


def table(text: str, fields: list[str]) -> Iterator[dict[str, str]]:
    """Yield the rows of a CSV answer; instead of a value there may be a reason in brackets why there is none."""
    for cells in csv.reader(text.splitlines(), skipinitialspace=True):
        if len(cells) == len(fields) and cells[0].strip().isdigit():
            yield dict(zip(fields, (cell.strip() for cell in cells)))


def broken(row: dict[str, str]) -> str:
    """Return why a GPU that nvidia-smi still lists does not answer, empty if it does."""
    for name, cell in row.items():
        reason = cell.strip("[]")
        wanted = name in ("uuid", "name", "memory.total") and reason not in _UNSUPPORTED
        if cell.startswith("[") and (wanted or reason in _GONE):
            return reason
    return ""


def lost(text: str) -> Iterator[tuple[str, str]]:
    """Yield the address and the reason for each GPU that nvidia-smi can't reach; it has spelt this in several ways."""
    for match in _LOST.finditer(text):
        yield _bus(match["bus"] or ""), match["reason"].strip()


def links(text: str, indices: list[int]) -> tuple[tuple[str, ...], ...]:
    """Return the links between the GPUs of `indices` from the matrix of `nvidia-smi topo -m`.

    The matrix has columns of network cards, processors and NUMA nodes, too, and is underlined on terminals.
    """
    lines = [[cell.strip() for cell in _ESCAPES.sub("", line).split("\t")] for line in text.splitlines()]
    head = next((cells for cells in lines if f"GPU{indices[0]}" in cells[1:]), [])
    body = {cells[0]: dict(zip(head[1:], cells[1:])) for cells in lines if cells is not head}
    rows = tuple(
        tuple("X" if one == other else _level(body.get(f"GPU{one}", {}).get(f"GPU{other}", "")) for other in indices)
        for one in indices
    )
    return rows if all(all(row) for row in rows) else ()


def _level(cell: str) -> str:
    if re.fullmatch(r"NV\d+", cell):
        return "NVL"
    return cell if cell in _LEVELS else ""


def _processes(text: str) -> Iterator[tuple[str, int, int]]:
    """Yield UUID of the GPU, PID and bytes of each process; the driver may tell no bytes."""
    for cells in csv.reader(text.splitlines(), skipinitialspace=True):
        if len(cells) == 3 and cells[1].strip().isdigit():
            yield cells[0].strip(), int(cells[1]), _number(cells[2]) * _MIB


def _gpu(row: dict[str, str], used: list[tuple[str, int, int]]) -> Gpu:
    capability = re.fullmatch(r"(\d+)\.(\d+)", row.get("compute_cap", ""))
    uuid = row["uuid"]
    found: list[GpuProcess] = [gpu_facts.process(pid, size) for owner, pid, size in sorted(used) if owner == uuid]
    return Gpu(
        index=int(row["index"]),
        uuid=uuid,
        name=row["name"],
        total_bytes=_number(row.get("memory.total", "")) * _MIB,
        used_bytes=_number(row.get("memory.used", "")) * _MIB,
        free_bytes=_number(row.get("memory.free", "")) * _MIB,
        compute_capability=(int(capability[1]), int(capability[2])) if capability else None,
        pcie_gen=_number(row.get("pcie.link.gen.max", "")),
        pcie_width=_number(row.get("pcie.link.width.current", "")),
        processes=tuple(found),
        numa_node=gpu_facts.numa_node(row["pci.bus_id"]),
        mig=row.get("mig.mode.current") == "Enabled",
    )


def _number(text: str) -> int:
    return int(text) if text.strip().isdigit() else 0


def _bus(address: str) -> str:
    """Return a PCI address as the kernel writes it: four digits of the domain, lower case."""
    domain, colon, rest = address.lower().partition(":")
    return f"{int(domain, 16):04x}:{rest}" if colon else ""


def _buses(proc: Path) -> list[str]:
    try:
        return sorted(entry.name.lower() for entry in (proc / "driver" / "nvidia" / "gpus").iterdir())
    except OSError:
        return []


def _first_line(answer: _Answer) -> str:
    lines = [line.strip() for line in answer.text.splitlines() if line.strip()]
    return lines[0] if lines else f"exit status {answer.status}"


def _query(fields: list[str], *more: str) -> _Answer:
    return _run(f"--query-gpu={','.join(fields)}", _AS_CSV, *more)


def _run(*arguments: str) -> _Answer:
    """Run nvidia-smi; it writes errors to both streams."""
    program = shutil.which("nvidia-smi", path=os.pathsep.join((os.environ.get("PATH", os.defpath), *_MORE_PATH)))
    if not program:
        raise CannotRead("nvidia-smi is not on this node")
    try:
        done = subprocess.run(
            [program, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
            env={**os.environ, "LC_ALL": "C"},
            timeout=_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise CannotRead(f"nvidia-smi did not answer within {_TIMEOUT_S} s: a GPU or the driver hangs") from None
    except OSError as error:
        raise CannotRead(f"nvidia-smi can't be run: {error}") from None
    return _Answer(done.returncode, done.stdout)
