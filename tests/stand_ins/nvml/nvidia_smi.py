# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plays nvidia-smi from the file that the library beside it reads: its queries, its topology and its failures.

Status and wording are those of nvidia-smi 580, and of older ones where the file says so.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, field
from pathlib import Path

MIB = 2**20
OFF = "[N/A]"
NO_FIELD = 'Field "{}" is not a valid field to query.\n'
LOST = "Unable to determine the device handle for GPU{}: {}: {}\n"
ERRORS = {15: "GPU is lost.  Reboot the system to recover this GPU", 999: "Unknown Error"}
DEAD = {15: "[GPU is lost]", 16: "[GPU requires reset]"}
FAILURES = {
    9: "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest NVIDIA "
    "driver is installed and running.\n",
    18: "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: {}\n",
}


@dataclass
class Gpu:
    """A GPU of the file; values as they stand there."""

    index: int
    keys: dict[str, str] = field(default_factory=dict)
    processes: list[list[str]] = field(default_factory=list)

    def refuses(self, word: str) -> bool:
        return word in self.keys.get("unsupported", "").split()

    def number(self, key: str) -> int:
        return int(self.keys.get(key, "0"))


@dataclass
class Machine:
    """All of the file."""

    keys: dict[str, str] = field(default_factory=dict)
    gpus: list[Gpu] = field(default_factory=list)
    links: dict[tuple[int, int], str] = field(default_factory=dict)


def machine() -> Machine:
    """Read the file."""
    found = Machine()
    path = Path(os.environ.get("NVML_STAND_IN") or "/etc/nvml-stand-in.txt")
    if not path.exists():
        found.keys["fail"] = "9"
        return found
    for line in path.read_text(encoding="utf-8").splitlines():
        key, _space, value = line.strip().partition(" ")
        if key == "gpu":
            found.gpus.append(Gpu(len(found.gpus)))
        elif key == "link":
            one, other, kind = value.split()
            found.links[int(one), int(other)] = found.links[int(other), int(one)] = kind
        elif key == "process":
            found.gpus[-1].processes.append(value.split())
        elif key in ("driver", "cuda", "fail", "smi"):
            found.keys[key] = value
        elif found.gpus and key:
            found.gpus[-1].keys[key] = value
    return found


def values(machine: Machine, gpu: Gpu) -> dict[str, str]:
    """Return every field that can be asked for; memory in whole MiB."""
    keys = gpu.keys
    used, reserved = gpu.number("used"), gpu.number("reserved")
    generation, width = keys.get("pcie", "0 0").split()
    memory = {"total": gpu.number("total"), "used": used, "free": gpu.number("total") - used - reserved}
    fields = {
        "index": str(gpu.index),
        "uuid": keys.get("uuid", ""),
        "name": keys.get("name", ""),
        "pci.bus_id": keys.get("bus", "").upper(),
        "driver_version": machine.keys.get("driver", ""),
        "compute_cap": OFF if gpu.refuses("capability") else keys.get("capability", "0.0"),
        "pcie.link.gen.max": OFF if gpu.refuses("pcie") else generation,
        "pcie.link.width.current": OFF if gpu.refuses("pcie") else width,
        "mig.mode.current": {"1": "Enabled", "0": "Disabled"}.get(keys.get("mig", ""), OFF),
    }
    for name, size in memory.items():
        fields[f"memory.{name}"] = OFF if gpu.refuses("memory") else str(size // MIB)
    dead = gpu.number("dead")
    if dead:
        reason = DEAD.get(dead, "[Unknown Error]")
        kept = ("index", "pci.bus_id", "driver_version")
        fields = {name: value if name in kept else reason for name, value in fields.items()}
    return fields


def stop(text: str, status: int) -> None:
    """Write to the same stream as nvidia-smi does and end."""
    sys.stdout.write(text)
    sys.exit(status)


def chosen(found: Machine, arguments: list[str]) -> list[Gpu]:
    """Return the GPUs of `--id`, or all; the first that is lost ends everything."""
    gpus = found.gpus
    if "--id" in arguments:
        wanted = arguments[arguments.index("--id") + 1].lower()
        gpus = [gpu for gpu in gpus if gpu.keys.get("bus", "").lower().endswith(wanted)]
        if not gpus:
            stop("No devices were found\n", 6)
    for gpu in gpus:
        error = gpu.number("error")
        if error:
            bus = gpu.keys.get("bus", "")[-12:].upper()
            stop(LOST.format(gpu.index, bus, ERRORS.get(error, "Unknown Error")), error % 256)
    if not gpus:
        stop("No devices were found\n", 6)
    return gpus


def query_gpu(found: Machine, names: list[str], arguments: list[str]) -> None:
    """Answer --query-gpu=... --format=csv,noheader,nounits."""
    for name in names:
        if name == "compute_cap" and found.keys.get("smi") == "old":
            stop(NO_FIELD.format(name), 2)
    for gpu in chosen(found, arguments):
        fields = values(found, gpu)
        for name in names:
            if name not in fields:
                stop(NO_FIELD.format(name), 2)
        print(", ".join(fields[name] for name in names))


def query_processes(found: Machine, arguments: list[str]) -> None:
    """Answer --query-compute-apps=gpu_uuid,pid,used_memory."""
    for gpu in chosen(found, arguments):
        if gpu.refuses("processes"):
            continue
        for pid, *size in gpu.processes:
            print(f"{gpu.keys.get('uuid', '')}, {pid}, {int(size[0]) // MIB if size else OFF}")


def topology(found: Machine) -> None:
    """Print the matrix of `topo -m` with its columns behind the GPUs, underlined as on a terminal."""
    gpus = chosen(found, [])
    print(
        "\t\x1b[4m" + "\t".join(f"GPU{gpu.index}" for gpu in gpus) + "\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m"
    )
    for gpu in gpus:
        cells = []
        for other in gpus:
            kind = found.links.get((gpu.index, other.index), "SYS")
            cells.append(
                " X " if gpu is other else "NV18" if kind == "NVL" else "" if gpu.refuses("topology") else kind
            )
        print(f"GPU{gpu.index}\t" + "\t".join(cells) + "\t0-31\t0\t\tN/A")
    print(
        "\nLegend:\n\n  X    = Self\n  SYS  = Connection traversing PCIe as well as the SMP interconnect\n  NV#  = ..."
    )


def versions(found: Machine) -> None:
    """Answer --version, as nvidia-smi does since 530."""
    driver, cuda = found.keys.get("driver", ""), found.keys.get("cuda", "")
    short = ".".join(driver.split(".")[:2])
    print(f"NVIDIA-SMI version  : {driver}\nNVML version        : {short}\nDRIVER version      : {driver}")
    print(f"CUDA Version        : {cuda}")


def headline(found: Machine) -> None:
    """Print the table's headline, where older ones tell the versions."""
    driver, cuda = found.keys.get("driver", ""), found.keys.get("cuda", "")
    print(f"| NVIDIA-SMI {driver:<14} Driver Version: {driver:<14} CUDA Version: {cuda:<8} |")


def main(arguments: list[str]) -> None:
    """Answer one call."""
    found = machine()
    failure = int(found.keys.get("fail", "0"))
    if failure:
        driver = ".".join(found.keys.get("driver", "").split(".")[:2])
        stop(FAILURES.get(failure, "Failed to initialize NVML: Unknown Error\n").format(driver), failure % 256)
    first = arguments[0] if arguments else ""
    if first.startswith("--query-gpu="):
        query_gpu(found, first.partition("=")[2].split(","), arguments)
    elif first == "--query-compute-apps=gpu_uuid,pid,used_memory":
        query_processes(found, arguments)
    elif arguments == ["topo", "-m"]:
        topology(found)
    elif first == "--version" and found.keys.get("smi") != "old":
        versions(found)
    elif not arguments:
        headline(found)
    else:
        stop(f"Invalid combination of input arguments. Please run 'nvidia-smi -h' for help.\n{arguments}\n", 1)


if __name__ == "__main__":
    main(sys.argv[1:])
