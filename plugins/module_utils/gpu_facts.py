# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is known of the GPUs of a node, however it was read."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from ansible_collections.headroom.serving.plugins.module_utils import processes

# What `Gpu.numa_node` says where the kernel doesn't know; the kernel's own word for it.
NO_NODE = -1
_BUS_ID = re.compile(r"^(?P<domain>[0-9a-f]+):(?P<rest>[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f])$")


@dataclass(frozen=True)
class GpuProcess:
    """A process that computes on a GPU.

    `used_bytes` is 0 where the driver does not tell; `user`, `command` and `unit` are empty where the process can't be
    seen from here. `command` is its name without arguments.
    """

    pid: int
    user: str
    command: str
    used_bytes: int
    unit: str


@dataclass(frozen=True)
class Gpu:
    """A GPU that answers.

    `used_bytes` and `free_bytes` leave out what the driver reserves, so they sum up to less than `total_bytes`; all
    three are 0 where the GPU has no memory of its own. `pcie_gen` is the highest that card and slot agree on, for an
    idle GPU falls back to a slower one; `pcie_width` is the present number of lanes; 0 where unknown. `numa_node` is
    that of its slot, -1 where unknown. `mig` tells whether it is split into instances now.
    """

    index: int
    uuid: str
    name: str
    total_bytes: int
    used_bytes: int
    free_bytes: int
    compute_capability: tuple[int, int] | None
    pcie_gen: int
    pcie_width: int
    processes: tuple[GpuProcess, ...]
    numa_node: int
    mig: bool


@dataclass(frozen=True)
class GpuReading:
    """All GPUs, as one way of reading them tells it.

    `topology` has a row and a column for each entry of `gpus`: `X` on the diagonal, else the link between the two
    (`NVL`, `PIX`, `PXB`, `PHB`, `NODE` or `SYS`); it is empty where it could not be read. A note that begins with the
    id of a finding and a colon is that finding.
    """

    gpus: tuple[Gpu, ...]
    driver_version: str
    cuda_driver_version: str
    topology: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...]


class CannotRead(Exception):
    """This way tells nothing of GPUs; `is_final` where no other way can, as all rest on the same driver."""

    def __init__(self, note: str, is_final: bool = False) -> None:
        super().__init__(note)
        self.note = note
        self.is_final = is_final


def lost(which: str, reason: str) -> str:
    """Return the note about a GPU that does not answer."""
    return f"gpu.lost: GPU {which} does not answer: {reason.strip().rstrip('.')}"


def mismatch(library_version: str, proc: Path = Path("/proc")) -> CannotRead:
    """Return the error for a kernel module and libraries of different driver versions."""
    library = f"the libraries are {library_version}" if library_version else "the libraries are of another version"
    loaded = module_version(proc)
    module = f"the loaded kernel module is {loaded}" if loaded else "the loaded kernel module differs"
    return CannotRead(f"gpu.driver_mismatch: {library}, but {module}, so no GPU can be used", is_final=True)


def module_version(proc: Path = Path("/proc")) -> str:
    """Return the version of the loaded kernel module, empty if none is loaded."""
    try:
        text = (proc / "driver" / "nvidia" / "version").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    # NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build  (...)
    found = re.search(r"^NVRM version:.*?\s(\d+\.[\d.]+)\s", text, re.MULTILINE)
    return found[1] if found else ""


def numa_node(bus_id: str, sys: Path = Path("/sys")) -> int:
    """Return the NUMA node of the slot of a GPU, given its PCI address as the driver writes it."""
    match = _BUS_ID.match(bus_id.lower())
    if not match:
        return NO_NODE
    # The driver writes eight digits of the domain, the kernel four.
    address = f"{int(match['domain'], 16):04x}:{match['rest']}"
    try:
        return int((sys / "bus" / "pci" / "devices" / address / "numa_node").read_text())
    except (OSError, ValueError):
        return NO_NODE


def process(pid: int, used_bytes: int) -> GpuProcess:
    """Return a process that the driver knows only by its number."""
    facts = processes.look(pid)
    return GpuProcess(pid, facts.user, facts.command, used_bytes, facts.unit)
