# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Machines with GPUs, played to unmodified nvidia-ml-py by a library and to the door of nvidia-smi by a command."""

from __future__ import annotations

import os
import pwd
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from ansible_collections.headroom.serving.plugins.module_utils import hardware, host_memory, nvidia_smi
from ansible_collections.headroom.serving.plugins.module_utils.gpu_facts import CannotRead
from ansible_collections.headroom.serving.plugins.module_utils.hardware import Gpu, GpuProcess, Hardware

ROOT = Path(__file__).resolve().parents[3]
STAND_IN = ROOT / "tests" / "stand_ins" / "nvml"
MACHINES = STAND_IN / "machines"
MIB = 2**20
WAYS = ("nvml", "nvidia-smi")
READ = """
import sys
from ansible_collections.headroom.serving.plugins.module_utils import hardware
print(hardware.to_json(hardware.read(sys.argv[1])))
"""
TWO = """driver 580.95.05
cuda 13.0
link 0 1 PHB
gpu
  name NVIDIA H200
  uuid GPU-a
  bus 00000000:18:00.0
  total 150754820096
  reserved 644874240
  used 0
  capability 9.0
  pcie 5 16
  mig 0
gpu
  name NVIDIA H200
  uuid GPU-b
  bus 00000000:2A:00.0
  total 150754820096
  reserved 644874240
  used 1048576
  capability 9.0
  pcie 5 8
"""


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("nvml")
    subprocess.run([STAND_IN / "build", path], check=True)
    return path


Reader = Callable[..., Hardware]


@pytest.fixture
def read(built: Path, tmp_path: Path) -> Reader:
    """Return a function that reads the hardware of a described machine in a process of its own."""

    def read(machine: str | None, way: str = "auto", library: Path = built, command: Path = built) -> Hardware:
        file = tmp_path / "machine.txt"
        file.unlink(missing_ok=True)
        if machine is not None:
            file.write_text(machine)
        env = {
            "PATH": f"{command}{os.pathsep}{os.environ['PATH']}",
            "LD_LIBRARY_PATH": str(library),
            "NVML_STAND_IN": str(file),
            "PYTHONPATH": str(ROOT / "playbooks" / "collections"),
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        done = subprocess.run([sys.executable, "-c", READ, way], env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return hardware.from_json(done.stdout)

    return read


@pytest.fixture
def holder() -> Iterator[subprocess.Popen[bytes]]:
    """A process that could hold memory of a GPU, with a secret among its arguments."""
    process = subprocess.Popen([sys.executable, "-c", "input()", "--api-key", "s3cr3t"], stdin=subprocess.PIPE)
    yield process
    process.communicate(b"\n")


def in_mib(found: Hardware) -> tuple[Gpu, ...]:
    """Return the GPUs with memory in whole MiB, as nvidia-smi tells it."""
    return tuple(
        replace(
            gpu,
            used_bytes=gpu.used_bytes // MIB * MIB,
            free_bytes=gpu.free_bytes // MIB * MIB,
            processes=tuple(replace(item, used_bytes=item.used_bytes // MIB * MIB) for item in gpu.processes),
        )
        for gpu in found.gpus
    )


def machine(name: str) -> str:
    return (MACHINES / f"{name}.txt").read_text()


@pytest.mark.parametrize("name", ["blackwell", "h200"])
def test_both_ways_tell_the_same(read: Reader, name: str) -> None:
    first, second = (read(machine(name), way) for way in WAYS)
    assert (first.source, second.source) == WAYS
    assert first.gpus and in_mib(first) == second.gpus
    same = ("driver_version", "cuda_driver_version", "topology", "notes", "mem_total_bytes", "cpus", "numa_nodes")
    assert [getattr(first, key) for key in same] == [getattr(second, key) for key in same]


@pytest.mark.parametrize("way", WAYS)
def test_the_blackwell_machine(read: Reader, way: str) -> None:
    found = read(machine("blackwell"), way)
    assert (found.driver_version, found.cuda_driver_version) == ("580.95.05", "13.0")
    assert [gpu.index for gpu in found.gpus] == list(range(8))
    assert len({gpu.uuid for gpu in found.gpus}) == 8
    for gpu in found.gpus:
        assert gpu.name == "NVIDIA RTX PRO 6000 Blackwell Server Edition"
        assert (gpu.total_bytes, gpu.used_bytes, gpu.free_bytes) == (97887 * MIB, 4 * MIB, 97245 * MIB)
        assert (gpu.compute_capability, gpu.pcie_gen, gpu.pcie_width, gpu.mig) == ((12, 0), 5, 16, False)
    assert found.topology[0] == ("X", "NODE", "NODE", "NODE", "SYS", "SYS", "SYS", "SYS")
    assert found.topology[7] == ("SYS", "SYS", "SYS", "SYS", "NODE", "NODE", "NODE", "X")


@pytest.mark.parametrize("way", WAYS)
def test_the_h200_machine(read: Reader, way: str) -> None:
    found = read(machine("h200"), way)
    assert found.topology == (("X", "NVL"), ("NVL", "X"))
    # Two processes that can't be seen from here, the driver tells the memory of one; as recorded, nothing is used on
    # the second GPU and 615 MiB are not free.
    assert [(item.pid, item.used_bytes) for item in found.gpus[0].processes] == [(2147480001, 0), (2147480002, 2**37)]
    assert found.gpus[0].processes[0] == GpuProcess(2147480001, "", "", 0, "")
    assert (found.gpus[1].total_bytes // MIB, found.gpus[1].used_bytes, found.gpus[1].free_bytes // MIB) == (
        143771,
        0,
        143156,
    )


@pytest.mark.parametrize("way", WAYS)
def test_a_process_is_named_without_its_arguments(read: Reader, holder: subprocess.Popen[bytes], way: str) -> None:
    found = read(f"{TWO}  process {holder.pid} 94489280512\n", way)
    (item,) = found.gpus[1].processes
    assert (item.pid, item.user, item.used_bytes) == (holder.pid, pwd.getpwuid(os.getuid()).pw_name, 94489280512)
    assert item.command.startswith("python")
    assert "s3cr3t" not in hardware.to_json(found)
    assert found.gpus[0].processes == ()


@pytest.mark.parametrize("way", WAYS)
def test_more_processes_than_one_call_expects(read: Reader, way: str) -> None:
    lines = "".join(f"  process {2147480000 + number} {number * MIB}\n" for number in range(60, 0, -1))
    found = read(TWO + lines, way)
    assert [item.used_bytes // MIB for item in found.gpus[1].processes] == list(range(1, 61))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("line", ["mig 1", "mig 0", ""])
def test_mig(read: Reader, way: str, line: str) -> None:
    assert read(f"{TWO}  {line}\n", way).gpus[1].mig is (line == "mig 1")


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("link", ["NVL", "PIX", "PXB", "PHB", "NODE", "SYS"])
def test_each_kind_of_link(read: Reader, way: str, link: str) -> None:
    assert read(TWO.replace("PHB", link), way).topology == (("X", link), (link, "X"))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("words", "changed"),
    [
        ("capability", {"compute_capability": None}),
        ("pcie", {"pcie_gen": 0, "pcie_width": 0}),
        ("mig", {}),
        ("processes", {"processes": ()}),
        ("p2p", {}),
    ],
)
def test_what_a_gpu_does_not_support(read: Reader, way: str, words: str, changed: dict[str, object]) -> None:
    whole = read(TWO, way)
    part = read(f"{TWO}  unsupported {words}\n", way)
    assert part.gpus == (whole.gpus[0], replace(whole.gpus[1], **changed))
    assert (part.topology, part.notes) == (whole.topology, whole.notes)


@pytest.mark.parametrize("way", WAYS)
def test_a_gpu_without_memory_of_its_own(read: Reader, way: str) -> None:
    found = read(f"{TWO}  unsupported memory\n", way)
    assert (found.gpus[1].total_bytes, found.gpus[1].free_bytes) == (0, 0)
    assert found.notes[0] == "GPU 1 has no memory of its own, or does not tell its size"


@pytest.mark.parametrize("way", WAYS)
def test_links_that_are_not_told(read: Reader, way: str) -> None:
    found = read(f"{TWO}  unsupported topology\n", way)
    assert len(found.gpus) == 2 and found.topology == ()
    assert found.notes[0].startswith("the links between the GPUs are unknown")


def test_a_driver_from_before_memory_was_told_apart(read: Reader) -> None:
    gpu = read(f"{TWO}  unsupported memory_v2\n", "nvml").gpus[1]
    assert (gpu.used_bytes, gpu.free_bytes) == (MIB + 644874240, 150754820096 - MIB - 644874240)


def test_a_nvidia_smi_from_before_some_fields(read: Reader) -> None:
    new, old = (read(f"{text}{TWO}", "nvidia-smi") for text in ("", "smi old\n"))
    assert old.cuda_driver_version == new.cuda_driver_version == "13.0"
    assert old.gpus == tuple(replace(gpu, compute_capability=None) for gpu in new.gpus)


@pytest.mark.parametrize("error", [15, 999])
def test_a_lost_gpu_leaves_the_others_readable_through_nvml(read: Reader, error: int) -> None:
    found = read(machine("blackwell").replace("  bus 00000000:61:00.0", f"  bus 00000000:61:00.0\n  error {error}"))
    assert found.source == "nvml"
    assert [gpu.index for gpu in found.gpus] == [0, 1, 2, 4, 5, 6, 7]
    assert found.topology[3] == ("SYS", "SYS", "SYS", "X", "NODE", "NODE", "NODE")
    (item,) = hardware.findings(found)
    reason = "GPU is lost" if error == 15 else "Unknown Error"
    assert (item.id, item.verdict, item.message) == ("gpu.lost", "warn", f"GPU 3 does not answer: {reason}")
    assert "Xid" in item.suggestion


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("error", "reason"), [(15, "GPU is lost"), (16, "GPU requires re"), (999, "Unknown Error")])
def test_a_gpu_that_is_there_but_answers_nothing(read: Reader, way: str, error: int, reason: str) -> None:
    found = read(f"{TWO}  dead {error}\n", way)
    assert ([gpu.index for gpu in found.gpus], found.topology) == ([0], (("X",),))
    (item,) = hardware.findings(found)
    assert item.id == "gpu.lost" and item.message.startswith(f"GPU 1 does not answer: {reason}")


def test_a_lost_gpu_is_named_by_nvidia_smi(read: Reader) -> None:
    # On this machine no driver lists the others, so they can't be asked one by one.
    found = read(f"{TWO}  error 15\n", "nvidia-smi")
    (item,) = hardware.findings(found)
    assert item.id == "gpu.lost"
    assert item.message.startswith("GPU 0000:2a:00.0 does not answer: GPU is lost")


def test_nvidia_smi_is_asked_for_each_gpu_that_the_driver_lists_when_one_is_lost(
    built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = machine("blackwell")
    for bus in ("21", "C1"):
        text = text.replace(f"  bus 00000000:{bus}:00.0", f"  bus 00000000:{bus}:00.0\n  error 999")
    (tmp_path / "machine.txt").write_text(text)
    for bus in ("01", "21", "41", "61", "81", "a1", "c1", "e1"):
        (tmp_path / "driver/nvidia/gpus" / f"0000:{bus}:00.0").mkdir(parents=True)
    monkeypatch.setenv("NVML_STAND_IN", str(tmp_path / "machine.txt"))
    monkeypatch.setenv("PATH", str(built), prepend=os.pathsep)
    found = nvidia_smi.read(tmp_path)
    assert [gpu.index for gpu in found.gpus] == [0, 2, 3, 4, 5, 7]
    assert found.notes == (
        "gpu.lost: GPU 0000:21:00.0 does not answer: Unknown Error",
        "gpu.lost: GPU 0000:c1:00.0 does not answer: Unknown Error",
        "the links between the GPUs are unknown: 'nvidia-smi topo -m' does not tell them",
    )


def test_a_command_that_hangs_or_can_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = tmp_path / "nvidia-smi"
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setattr(nvidia_smi, "_TIMEOUT_S", 0.2)
    command.write_text("#!/bin/sh\nexec sleep 60\n")
    command.chmod(0o755)
    with pytest.raises(CannotRead, match="did not answer within"):
        nvidia_smi.read(tmp_path)
    command.write_text("#!/no/such/interpreter\n")
    with pytest.raises(CannotRead, match="can't be run"):
        nvidia_smi.read(tmp_path)
    command.write_text("#!/bin/sh\nexit 3\n")
    with pytest.raises(CannotRead, match="nvidia-smi: exit status 3"):
        nvidia_smi.read(tmp_path)


def test_a_gpu_that_is_forbidden_is_not_lost(read: Reader) -> None:
    found = read(f"{TWO}  error 4\n", "nvml")
    assert [gpu.index for gpu in found.gpus] == [0]
    assert hardware.findings(found) == []
    assert found.notes[0] == "GPU 1 can't be opened: Insufficient Permissions"


@pytest.mark.parametrize("way", ["auto", *WAYS])
def test_driver_and_libraries_of_different_versions(read: Reader, way: str) -> None:
    found = read(f"fail 18\n{TWO}", way)
    assert (found.gpus, found.source) == ((), "none")
    (item,) = hardware.findings(found)
    assert (item.id, item.verdict) == ("gpu.driver_mismatch", "refuse")
    assert "Reboot" in item.suggestion
    if way == "nvidia-smi":
        assert "the libraries are 580.95," in item.message


def test_the_version_of_the_libraries_comes_from_their_file(read: Reader, built: Path, tmp_path: Path) -> None:
    folder = tmp_path / "lib"
    folder.mkdir()
    (folder / "libnvidia-ml.so.580.105.08").write_bytes((built / "libnvidia-ml.so.1").read_bytes())
    (folder / "libnvidia-ml.so.1").symlink_to("libnvidia-ml.so.580.105.08")
    (item,) = hardware.findings(read(f"fail 18\n{TWO}", "nvml", library=folder))
    assert item.message.startswith("the libraries are 580.105.08, but the loaded kernel module")


@pytest.mark.parametrize("way", WAYS)
def test_a_driver_without_any_gpu(read: Reader, way: str) -> None:
    found = read("driver 580.95.05\ncuda 13.0\n", way)
    assert (found.gpus, found.topology, found.source, found.notes) == ((), (), way, ())
    assert (found.driver_version, found.cuda_driver_version) == ("580.95.05", "13.0")


@pytest.mark.parametrize(
    ("way", "notes"),
    [
        ("auto", ["NVML: Driver Not Loaded"]),
        ("nvml", ["NVML: Driver Not Loaded"]),
        ("nvidia-smi", ["nvidia-smi: NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. "]),
    ],
)
def test_no_driver(read: Reader, way: str, notes: list[str]) -> None:
    found = read(None, way)
    assert (found.gpus, found.source, hardware.findings(found)) == ((), "none", [])
    assert [note[: len(start)] for note, start in zip(found.notes, notes, strict=True)] == notes


def test_no_library_but_the_command(read: Reader, tmp_path: Path) -> None:
    found = read(TWO, library=tmp_path)
    assert (found.source, len(found.gpus)) == ("nvidia-smi", 2)
    assert found.notes == ("NVML: NVML Shared Library Not Found",)


def test_neither_library_nor_command(read: Reader, tmp_path: Path) -> None:
    found = read(TWO, library=tmp_path, command=tmp_path)
    assert (found.source, found.gpus) == ("none", ())
    assert found.notes == ("NVML: NVML Shared Library Not Found", "nvidia-smi is not on this node")
    assert found.mem_available_bytes > 0


def test_memory_is_read_alike_with_and_without_psutil(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(psutil, "PROCFS_PATH", str(tmp_path))
    for total, free, available, swap in ((412, 300, 408, 0), (412, 1, 2, 8), (64, 30, 408, 4)):
        values = {"MemTotal": total, "MemFree": free, "MemAvailable": available, "Buffers": 1, "Cached": 1}
        values |= {"SwapTotal": swap, "SwapFree": swap, "Active": 1, "Inactive": 1, "Shmem": 1, "Slab": 1}
        text = "".join(f"{name}: {number * 10**6} kB\n" for name, number in values.items())
        (tmp_path / "meminfo").write_text(text)
        (tmp_path / "vmstat").write_text("pswpin 0\npswpout 0\n")
        assert host_memory.meminfo(tmp_path) == host_memory.plain_meminfo(tmp_path)


def test_the_shipped_record_is_that_of_the_played_machine(read: Reader) -> None:
    path = ROOT / "roles/sglang_server/files/records/blackwell/hardware.json"
    record = hardware.from_json(path.read_text(encoding="utf-8"), str(path))
    played = read(machine("blackwell"))
    # NUMA nodes come from /sys, which is that of the machine that runs the tests.
    gpus = tuple(replace(gpu, numa_node=-1) for gpu in record.gpus)
    assert gpus == tuple(replace(gpu, numa_node=-1) for gpu in played.gpus)
    assert [gpu.numa_node for gpu in record.gpus] == [0, 0, 0, 0, 1, 1, 1, 1]
    same = ("topology", "driver_version", "cuda_driver_version", "source")
    assert [getattr(record, key) for key in same] == [getattr(played, key) for key in same]
    assert record.mem_available_bytes == 408 * 10**9
    assert (record.cgroup_limit_bytes, record.cgroup_available_bytes, record.memlock_hard_bytes) == (None, None, None)
    assert path.read_text(encoding="utf-8") == hardware.to_json(record) + "\n"
