# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The hardware of a node as the plan needs it: GPUs with their processes and links, host memory and its limits."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ansible_collections.headroom.serving.plugins.module_utils import host_memory, nvidia_smi, nvml
from ansible_collections.headroom.serving.plugins.module_utils.findings import CATALOGUE, Finding, finding
from ansible_collections.headroom.serving.plugins.module_utils.gpu_facts import CannotRead, Gpu, GpuProcess, GpuReading
from ansible_collections.headroom.serving.plugins.module_utils.refusal import refusal

__all__ = [
    "FORMAT",
    "Gpu",
    "GpuProcess",
    "Hardware",
    "findings",
    "from_json",
    "read",
    "to_json",
    "tools_path",
    "tools_python",
]

FORMAT = 1
LINKS = ("X", "NVL", "PIX", "PXB", "PHB", "NODE", "SYS")
_DOORS = {"nvml": nvml.read, "nvidia-smi": nvidia_smi.read}
_CURES = {
    "gpu.lost": "Look for 'Xid' in the kernel log, then reset the GPU or power-cycle the node.",
    "gpu.driver_mismatch": "Reboot the node, or unload and load the nvidia kernel modules.",
}


@dataclass(frozen=True)
class Hardware:
    """A node's hardware at one moment.

    `gpus` holds those that answer, by index. `topology` has a row and a column for each of them: `X` on the diagonal,
    else the link (`NVL`, `PIX`, `PXB`, `PHB`, `NODE`, `SYS`); empty where unknown. The bytes of host memory are
    described in `host_memory.HostMemory`. `source` tells how the GPUs were read: `nvml`, `nvidia-smi`, or `none`.
    `notes` are lines for people; one that begins with the id of a finding is one (see `findings`).
    """

    format: int
    gpus: tuple[Gpu, ...]
    driver_version: str
    cuda_driver_version: str
    mem_total_bytes: int
    mem_available_bytes: int
    cgroup_limit_bytes: int | None
    cgroup_available_bytes: int | None
    swap_bytes: int
    shm_total_bytes: int
    shm_free_bytes: int
    memlock_hard_bytes: int | None
    cpus: int
    numa_nodes: int
    topology: tuple[tuple[str, ...], ...]
    source: str
    notes: tuple[str, ...]


def read(way: str = "auto") -> Hardware:
    """Read the hardware of this node; without any GPU or driver that is a record with no GPUs.

    Args:
        way: How GPUs are read: `nvml`, `nvidia-smi`, or `auto` for the first of them that works.

    Raises:
        HeadroomError: If the host's memory can't be read.
    """
    memory = host_memory.read()
    source, gpus = _gpus(way)
    return Hardware(
        format=FORMAT,
        gpus=gpus.gpus,
        driver_version=gpus.driver_version,
        cuda_driver_version=gpus.cuda_driver_version,
        mem_total_bytes=memory.total_bytes,
        mem_available_bytes=memory.available_bytes,
        cgroup_limit_bytes=memory.cgroup_limit_bytes,
        cgroup_available_bytes=memory.cgroup_available_bytes,
        swap_bytes=memory.swap_bytes,
        shm_total_bytes=memory.shm_total_bytes,
        shm_free_bytes=memory.shm_free_bytes,
        memlock_hard_bytes=memory.memlock_hard_bytes,
        cpus=os.cpu_count() or 1,
        numa_nodes=numa_nodes(),
        topology=gpus.topology,
        source=source,
        notes=(*gpus.notes, *memory.notes),
    )


def _gpus(way: str) -> tuple[str, GpuReading]:
    notes: list[str] = []
    for source in _DOORS if way == "auto" else (way,):
        try:
            found = _DOORS[source]()
        except CannotRead as error:
            notes.append(error.note)
            if error.is_final:
                break
        else:
            return source, GpuReading(
                found.gpus, found.driver_version, found.cuda_driver_version, found.topology, (*notes, *found.notes)
            )
    return "none", GpuReading((), "", "", (), tuple(notes))


def tools_path(root: str) -> Path:
    """Return where the interpreter of the tools venv below `root` is, if there is one."""
    return Path(root, "tools", "current", "bin", "python")


def tools_python(root: str) -> str:
    """Return the interpreter of the tools venv below `root`, which has nvidia-ml-py and psutil; empty if none works."""
    path = tools_path(root)
    if not os.access(path, os.X_OK):
        return ""
    try:
        done = subprocess.run([path, "-I", "-c", "import pynvml, psutil"], capture_output=True, timeout=30, check=False)
    except (OSError, subprocess.SubprocessError):
        return ""
    return str(path) if done.returncode == 0 else ""


def numa_nodes(sys: Path = Path("/sys")) -> int:
    """Return the number of NUMA nodes with processors; nodes that are only memory, such as a GPU's, do not count."""
    lists = (sys / "devices" / "system" / "node").glob("node[0-9]*/cpulist")
    return sum(1 for path in lists if path.read_text(encoding="ascii").strip()) or 1


def findings(hardware: Hardware) -> list[Finding]:
    """Return the notes of a record that are findings."""
    found = []
    for note in hardware.notes:
        kind, colon, message = note.partition(": ")
        if colon and kind in CATALOGUE:
            found.append(finding(kind, message, _CURES.get(kind, "")))
    return found


def to_json(hardware: Hardware) -> str:
    """Return the record as JSON."""
    return json.dumps(asdict(hardware), indent=2)


def from_json(text: str, where: str = "hardware record") -> Hardware:
    """Return the hardware of a record.

    Args:
        text: What `to_json` gave.
        where: The setting or file that it came from, for messages.

    Raises:
        HeadroomError: If it is no such record.
    """
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _invalid(where, f"is no JSON: {error}") from None
    record = _Record(where, value)
    if record.whole("format") != FORMAT:
        raise _invalid(where, f"has the format {record.whole('format')}, this version reads {FORMAT}")
    gpus = tuple(_gpu(item) for item in record.items("gpus"))
    topology = tuple(tuple(row) for row in record.matrix("topology"))
    if topology and (len(topology) != len(gpus) or any(len(row) != len(gpus) for row in topology)):
        raise _invalid(where, f"has a topology that is not {len(gpus)} x {len(gpus)}, one row for each GPU")
    return Hardware(
        format=FORMAT,
        gpus=gpus,
        driver_version=record.text("driver_version"),
        cuda_driver_version=record.text("cuda_driver_version"),
        mem_total_bytes=record.whole("mem_total_bytes"),
        mem_available_bytes=record.whole("mem_available_bytes"),
        cgroup_limit_bytes=record.whole_or_none("cgroup_limit_bytes"),
        cgroup_available_bytes=record.whole_or_none("cgroup_available_bytes"),
        swap_bytes=record.whole("swap_bytes"),
        shm_total_bytes=record.whole("shm_total_bytes"),
        shm_free_bytes=record.whole("shm_free_bytes"),
        memlock_hard_bytes=record.whole_or_none("memlock_hard_bytes"),
        cpus=record.whole("cpus"),
        numa_nodes=record.whole("numa_nodes"),
        topology=topology,
        source=record.text("source"),
        notes=tuple(record.texts("notes")),
    )


def _gpu(record: _Record) -> Gpu:
    capability = record.get("compute_capability")
    if capability is not None and not (_are(capability, int) and len(capability) == 2):
        raise record.wrong("compute_capability", "two numbers or null")
    return Gpu(
        index=record.whole("index"),
        uuid=record.text("uuid"),
        name=record.text("name"),
        total_bytes=record.whole("total_bytes"),
        used_bytes=record.whole("used_bytes"),
        free_bytes=record.whole("free_bytes"),
        compute_capability=None if capability is None else (capability[0], capability[1]),
        pcie_gen=record.whole("pcie_gen"),
        pcie_width=record.whole("pcie_width"),
        processes=tuple(
            GpuProcess(
                pid=item.whole("pid"),
                user=item.text("user"),
                command=item.text("command"),
                used_bytes=item.whole("used_bytes"),
                unit=item.text("unit"),
            )
            for item in record.items("processes")
        ),
        numa_node=record.whole("numa_node", lowest=-1),
        mig=record.flag("mig"),
    )


class _Record:
    """An object of a record, read key by key; what is missing or of another type is named by its full path."""

    def __init__(self, where: str, value: Any, path: str = "") -> None:
        if not isinstance(value, Mapping):
            raise _invalid(where, f"{path or 'as a whole'} is no object")
        self._where, self._value, self._path = where, value, path

    def get(self, key: str) -> Any:
        if key not in self._value:
            raise _invalid(self._where, f"lacks {self._name(key)}")
        return self._value[key]

    def wrong(self, key: str, wanted: str) -> Exception:
        shown = re.sub(r"\s+", " ", json.dumps(self._value[key]))[:60]
        return _invalid(self._where, f"has {self._name(key)} = {shown}, which is not {wanted}")

    def whole(self, key: str, lowest: int = 0) -> int:
        value = self.get(key)
        if not isinstance(value, int) or isinstance(value, bool) or value < lowest:
            raise self.wrong(key, f"a whole number from {lowest} up")
        return value

    def whole_or_none(self, key: str) -> int | None:
        return None if self.get(key) is None else self.whole(key)

    def text(self, key: str) -> str:
        value = self.get(key)
        if not isinstance(value, str):
            raise self.wrong(key, "a text")
        return value

    def flag(self, key: str) -> bool:
        value = self.get(key)
        if not isinstance(value, bool):
            raise self.wrong(key, "true or false")
        return value

    def texts(self, key: str) -> list[str]:
        value: list[str] = self.get(key)
        if not _are(value, str):
            raise self.wrong(key, "a list of texts")
        return value

    def items(self, key: str) -> list[_Record]:
        value = self.get(key)
        if not isinstance(value, list):
            raise self.wrong(key, "a list")
        return [_Record(self._where, item, f"{self._name(key)}[{place}]") for place, item in enumerate(value)]

    def matrix(self, key: str) -> list[list[str]]:
        value: list[list[str]] = self.get(key)
        if not _are(value, list) or any(cell not in LINKS for row in value for cell in row):
            raise self.wrong(key, f"rows of {', '.join(LINKS)}")
        return value

    def _name(self, key: str) -> str:
        return f"{self._path}.{key}" if self._path else key


def _are(value: Any, kind: type) -> bool:
    return isinstance(value, list) and all(isinstance(item, kind) and not isinstance(item, bool) for item in value)


def _invalid(where: str, reason: str) -> Exception:
    return refusal("settings.invalid", f"{where} {reason}.", "Give the JSON that hardware_info returns.")
