# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What an instance's unit says: command, environment, restarts, limits and sandbox."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ansible_collections.headroom.serving.plugins.module_utils import unit_file
from ansible_collections.headroom.serving.plugins.module_utils.unit_file import Directive

# SIGTERM lets running requests end; SGLang has no limit of its own (0.5.23 waits up to 75 s more for its children).
STOP_TIMEOUT_S = 120
# How long the guard waits for memory that is on its way back; a server of 8 ranks took most of a minute to let go.
GUARD_LIMIT_S = 120
# Three failed starts of two hours each, with guard and stop, still fall into one interval: a server that can't start
# ends as failed.
START_LIMIT_INTERVAL_S = 7 * 3600
START_LIMIT_BURST = 3
# In the first line of every unit file of the collection: by it they are known from others.
MADE_BY = "written by headroom.serving"
_HIDDEN_BY_SANDBOX = ("/home/", "/root/", "/run/user/", "/tmp/", "/var/tmp/")


@dataclass(frozen=True)
class UnitInputs:
    """Everything that the unit of an instance depends on; paths are paths of the node."""

    name: str
    argv: Sequence[str]
    guard: Sequence[str]
    environment: Mapping[str, str]
    user: str
    home: str
    model_path: str


def unit_name(instance: str) -> str:
    """Return the name of an instance's unit."""
    return f"sglang-{instance}.service"


def service_environment(
    user_env: Mapping[str, str], venv: str, home: str, gpus: Sequence[int] | None
) -> dict[str, str]:
    """Return the whole environment of the server, ordered by name; what the user sets wins."""
    values = {
        "HOME": home,
        # Kernels are compiled at run time by tools that the engine brings (ninja) and the system's compiler.
        "PATH": f"{venv}/bin:/usr/local/cuda/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        # Progress reaches the journal while it happens, not a buffer later.
        "PYTHONUNBUFFERED": "1",
    }
    if gpus is not None:
        values["CUDA_VISIBLE_DEVICES"] = ",".join(str(gpu) for gpu in gpus)
    return dict(sorted({**values, **user_env}.items()))


def settings(inputs: UnitInputs) -> list[Directive]:
    """Return what the running server depends on, comments left out: the part of the unit that a release id covers."""
    return [item for item in _service(inputs) if item[0] != "#"]


def start_limit_s(weight_bytes: int) -> int:
    """Return how many seconds a start may take before it counts as hung.

    Reading the weights over a 1 Gbit/s share is the slowest start that is still a start; the rest covers imports,
    kernel compilation and graph capture (75 to 147 s were measured on an H200) several times over.
    """
    return 900 + weight_bytes // 100_000_000


def render(inputs: UnitInputs) -> str:
    """Render the unit file of an instance.

    Raises:
        ValueError: If an argument or a variable holds a NUL character.
    """
    header = f"SGLang instance {inputs.name}, {MADE_BY}; changes by hand are lost at the next deploy."
    unit: list[Directive] = [
        ("Description", f"SGLang server {inputs.name}"),
        ("Documentation", "https://docs.sglang.ai"),
        ("Wants", "network-online.target"),
        ("After", "network-online.target remote-fs.target nvidia-persistenced.service nvidia-fabricmanager.service"),
        ("RequiresMountsFor", unit_file.quote(inputs.model_path)),
        ("StartLimitIntervalSec", str(START_LIMIT_INTERVAL_S)),
        ("StartLimitBurst", str(START_LIMIT_BURST)),
    ]
    install: list[Directive] = [("WantedBy", "multi-user.target")]
    return unit_file.render(header, [("Unit", unit), ("Service", _service(inputs)), ("Install", install)])


def _service(inputs: UnitInputs) -> list[Directive]:
    words = [unit_file.exec_word(argument) for argument in inputs.argv]
    service: list[Directive] = [("Type", "exec"), ("User", inputs.user), ("WorkingDirectory", inputs.home)]
    service += [("Environment", unit_file.environment(key, value)) for key, value in inputs.environment.items()]
    service.append(
        ("#", "Checks the memory before each start. '+': as root, who alone can see and name other holders.")
    )
    service.append(("ExecStartPre", "+" + " ".join(unit_file.exec_word(word) for word in inputs.guard)))
    service.append(("TimeoutStartSec", str(GUARD_LIMIT_S + 60)))
    service.append(("ExecStart", " \\\n    ".join(_pairs(words))))
    service += _LIFE
    service += _SANDBOX
    service.append(("ReadWritePaths", unit_file.quote(inputs.home)))
    service += _home(inputs.model_path)
    return service


def _pairs(words: Sequence[str]) -> list[str]:
    """Group the words by flag, so that `systemctl cat` shows one flag a line."""
    lines: list[str] = []
    for word in words:
        if word.startswith(('"--', "--")) or not lines:
            lines.append(word)
        else:
            lines[-1] += f" {word}"
    return lines


def _home(model_path: str) -> list[Directive]:
    hidden = f"{model_path}/".startswith(_HIDDEN_BY_SANDBOX)
    return [
        ("ProtectHome", "tmpfs" if hidden else "yes"),
        *([("BindReadOnlyPaths", unit_file.quote(model_path))] if hidden else []),
    ]


_LIFE: list[Directive] = [
    ("#", "SGLang before 0.5.23 ends with SIGKILL of itself, after a clean drain as after a crash."),
    ("SuccessExitStatus", "137 SIGKILL"),
    ("RestartForceExitStatus", "137 SIGKILL"),
    ("Restart", "on-failure"),
    ("RestartSec", "10"),
    ("#", "SIGTERM goes to the main process, which lets running requests end; what is left after the limit is killed."),
    ("KillMode", "mixed"),
    ("TimeoutStopSec", str(STOP_TIMEOUT_S)),
    ("#", "CUDA and NCCL pin host memory; every connection and shard is a file."),
    ("LimitMEMLOCK", "infinity"),
    ("LimitNOFILE", "1048576"),
    ("LimitCORE", "0"),
    ("#", "Each rank starts hundreds of threads."),
    ("TasksMax", "infinity"),
]

_SANDBOX: list[Directive] = [
    ("NoNewPrivileges", "yes"),
    ("CapabilityBoundingSet", ""),
    ("AmbientCapabilities", ""),
    ("UMask", "0077"),
    ("ProtectSystem", "strict"),
    ("PrivateTmp", "yes"),
    ("RemoveIPC", "yes"),
    ("KeyringMode", "private"),
    ("LockPersonality", "yes"),
    ("ProtectControlGroups", "yes"),
    ("ProtectHostname", "yes"),
    ("ProtectKernelLogs", "yes"),
    ("ProtectKernelModules", "yes"),
    ("ProtectKernelTunables", "yes"),
    ("ProtectProc", "invisible"),
    ("RestrictNamespaces", "yes"),
    ("RestrictRealtime", "yes"),
    ("RestrictSUIDSGID", "yes"),
    ("#", "gloo needs AF_NETLINK, the processes of the server talk over AF_UNIX."),
    ("RestrictAddressFamilies", "AF_UNIX AF_INET AF_INET6 AF_NETLINK"),
    ("SystemCallArchitectures", "native"),
    ("SystemCallFilter", "~@clock @cpu-emulation @module @obsolete @raw-io @reboot @swap"),
    ("SystemCallErrorNumber", "EPERM"),
    (
        "#",
        "Off: PrivateDevices, DevicePolicy, ProtectClock (it closes the device list): the server opens /dev/nvidia*.",
    ),
    ("#", "Off: MemoryDenyWriteExecute (kernels are compiled at run time), PrivateUsers (pinned memory, peer access),"),
    ("#", "ProcSubset=pid (hides /proc/meminfo), @resources in the filter (NUMA binding, priorities)."),
]
