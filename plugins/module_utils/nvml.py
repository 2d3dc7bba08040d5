# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The door to NVML, NVIDIA's library of the driver, through nvidia-ml-py."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ansible_collections.headroom.serving.plugins.module_utils import gpu_facts
from ansible_collections.headroom.serving.plugins.module_utils.gpu_facts import CannotRead, Gpu, GpuProcess, GpuReading


def read() -> GpuReading:
    """Ask NVML for all GPUs.

    Raises:
        CannotRead: If nvidia-ml-py or the driver is not there, or they don't fit together.
    """
    try:
        import pynvml
    except ImportError:
        raise CannotRead(f"nvidia-ml-py is not installed for {sys.executable}") from None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        if error.value == pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH:
            raise gpu_facts.mismatch(library_version(Path("/proc/self/maps").read_text())) from None
        raise CannotRead(f"NVML: {error}", is_final=error.value == pynvml.NVML_ERROR_DRIVER_NOT_LOADED) from None
    try:
        return _Nvml(pynvml).reading()
    except pynvml.NVMLError as error:
        raise CannotRead(f"NVML: {error}") from None
    finally:
        pynvml.nvmlShutdown()


def library_version(maps: str) -> str:
    """Return the version that the file name of the loaded library tells, from the text of /proc/self/maps."""
    found = re.search(r"/libnvidia-ml\.so\.(\d+\.[\d.]*\d)$", maps, re.MULTILINE)
    return found[1] if found else ""


class _Nvml:
    """An initialised NVML; what a GPU or an older driver does not support becomes a default."""

    def __init__(self, api: Any) -> None:
        self._api = api
        self._levels = {
            # Two GPUs of one board, which nvidia-smi shows like two below one switch.
            api.NVML_TOPOLOGY_INTERNAL: "PIX",
            api.NVML_TOPOLOGY_SINGLE: "PIX",
            api.NVML_TOPOLOGY_MULTIPLE: "PXB",
            api.NVML_TOPOLOGY_HOSTBRIDGE: "PHB",
            api.NVML_TOPOLOGY_NODE: "NODE",
            api.NVML_TOPOLOGY_SYSTEM: "SYS",
        }

    def reading(self) -> GpuReading:
        """Read every GPU; one that fails becomes a note and leaves the others as they are."""
        api = self._api
        gpus: list[Gpu] = []
        handles: list[Any] = []
        notes: list[str] = []
        for index in range(api.nvmlDeviceGetCount()):
            try:
                handle = api.nvmlDeviceGetHandleByIndex(index)
                gpus.append(self._gpu(index, handle, notes))
                handles.append(handle)
            except api.NVMLError as error:
                denied = error.value == api.NVML_ERROR_NO_PERMISSION
                notes.append(
                    f"GPU {index} can't be opened: {error}" if denied else gpu_facts.lost(str(index), str(error))
                )
        topology = self._topology(handles)
        if gpus and not topology:
            notes.append("the links between the GPUs are unknown: NVML does not tell them")
        return GpuReading(tuple(gpus), self._driver_version(), self._cuda_version(), topology, tuple(notes))

    def _gpu(self, index: int, handle: Any, notes: list[str]) -> Gpu:
        api = self._api
        total, used, free = self._memory(handle)
        if not total:
            notes.append(f"GPU {index} has no memory of its own, or does not tell its size")
        mig = self._ask([0], api.nvmlDeviceGetMigMode, handle)
        return Gpu(
            index=index,
            uuid=api.nvmlDeviceGetUUID(handle),
            name=api.nvmlDeviceGetName(handle),
            total_bytes=total,
            used_bytes=used,
            free_bytes=free,
            compute_capability=self._ask(None, api.nvmlDeviceGetCudaComputeCapability, handle),
            pcie_gen=self._ask(0, api.nvmlDeviceGetMaxPcieLinkGeneration, handle),
            pcie_width=self._ask(0, api.nvmlDeviceGetCurrPcieLinkWidth, handle),
            processes=self._processes(handle),
            numa_node=gpu_facts.numa_node(_text(api.nvmlDeviceGetPciInfo(handle).busId)),
            mig=mig[0] == api.NVML_DEVICE_MIG_ENABLE,
        )

    def _memory(self, handle: Any) -> tuple[int, int, int]:
        """Return total, used and free bytes; drivers before 510 count their own reserve as used."""
        api = self._api
        for version in ((api.nvmlMemory_v2,), ()):
            try:
                found = api.nvmlDeviceGetMemoryInfo(handle, *version)
                return found.total, found.used, found.free
            except api.NVMLError as error:
                if error.value not in (api.NVML_ERROR_NOT_SUPPORTED, api.NVML_ERROR_FUNCTION_NOT_FOUND):
                    raise
        return 0, 0, 0

    def _processes(self, handle: Any) -> tuple[GpuProcess, ...]:
        found = self._ask([], self._api.nvmlDeviceGetComputeRunningProcesses, handle)
        return tuple(sorted((gpu_facts.process(item.pid, item.usedGpuMemory or 0) for item in found), key=_by_pid))

    def _topology(self, handles: list[Any]) -> tuple[tuple[str, ...], ...]:
        rows = tuple(tuple("X" if one is other else self._link(one, other) for other in handles) for one in handles)
        return rows if all(all(row) for row in rows) else ()

    def _link(self, one: Any, other: Any) -> str:
        """Return the link between two GPUs, empty if NVML doesn't tell.

        NVLink is asked as SGLang asks (srt/distributed/device_communicators/custom_all_reduce_utils.py), which sees a
        link through a switch, too.
        """
        api = self._api
        status = self._ask(None, api.nvmlDeviceGetP2PStatus, one, other, api.NVML_P2P_CAPS_INDEX_NVLINK)
        if status == api.NVML_P2P_STATUS_OK:
            return "NVL"
        return self._levels.get(self._ask(None, api.nvmlDeviceGetTopologyCommonAncestor, one, other), "")

    def _driver_version(self) -> str:
        return str(self._ask("", self._api.nvmlSystemGetDriverVersion))

    def _cuda_version(self) -> str:
        number = self._ask(0, self._api.nvmlSystemGetCudaDriverVersion)
        return f"{number // 1000}.{number % 1000 // 10}" if number else ""

    def _ask(self, default: Any, function: Callable[..., Any], *arguments: Any) -> Any:
        """Return what NVML answers, or the default where this GPU or driver can't tell it."""
        api = self._api
        try:
            return function(*arguments)
        except api.NVMLError as error:
            if error.value in (api.NVML_ERROR_GPU_IS_LOST, api.NVML_ERROR_RESET_REQUIRED):
                raise
            return default


def _by_pid(item: GpuProcess) -> int:
    return item.pid


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
