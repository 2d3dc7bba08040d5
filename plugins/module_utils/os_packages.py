# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What an engine needs of the distribution: compiler, headers of its interpreter, libnuma; a table per distribution."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ansible_collections.headroom.serving.plugins.module_utils.refusal import refusal

_RHEL_LIKE = ("rhel", "centos", "rocky", "almalinux", "ol")
_MACHINES = ("x86_64", "aarch64")


@dataclass(frozen=True)
class Interpreter:
    """Packages that bring an interpreter: itself, its C headers, and the venv module where that is a package apart."""

    itself: str
    headers: str
    venv: str = ""


@dataclass(frozen=True)
class Distribution:
    """A row of the table; `interpreters` maps paths on the node."""

    title: str
    manager: str
    base: tuple[str, ...]
    interpreters: Mapping[str, Interpreter] = field(default_factory=dict)


def _deb(title: str, minor: int) -> Distribution:
    versioned = f"python3.{minor}"
    return Distribution(
        title,
        "apt",
        # Triton compiles its launchers with the C compiler, torch and flashinfer need C++; the kernels load libnuma.
        ("gcc", "g++", "libc6-dev", "libnuma1"),
        {
            "/usr/bin/python3": Interpreter("python3", "python3-dev", "python3-venv"),
            f"/usr/bin/{versioned}": Interpreter(versioned, f"{versioned}-dev", f"{versioned}-venv"),
        },
    )


def _rpm(title: str, default_minor: int, others: Sequence[int]) -> Distribution:
    default = Interpreter("python3", "python3-devel")
    interpreters = {"/usr/bin/python3": default, f"/usr/bin/python3.{default_minor}": default}
    for minor in others:
        interpreters[f"/usr/bin/python3.{minor}"] = Interpreter(f"python3.{minor}", f"python3.{minor}-devel")
    return Distribution(title, "dnf", ("gcc", "gcc-c++", "numactl-libs"), interpreters)


# Keyed by ID and VERSION_ID of /etc/os-release; of the Red Hat family only the major version counts.
TABLE: dict[tuple[str, str], Distribution] = {
    ("debian", "12"): _deb("Debian 12", 11),
    ("debian", "13"): _deb("Debian 13", 13),
    ("ubuntu", "22.04"): _deb("Ubuntu 22.04", 10),
    ("ubuntu", "24.04"): _deb("Ubuntu 24.04", 12),
    ("rhel", "9"): _rpm("RHEL 9 and its rebuilds", 9, (11, 12)),
    ("rhel", "10"): _rpm("RHEL 10 and its rebuilds", 12, ()),
}


def parse_os_release(text: str) -> dict[str, str]:
    """Return the assignments of an os-release file, unquoted."""
    values = {}
    for line in text.splitlines():
        key, equals, value = line.strip().partition("=")
        if equals and not key.startswith("#"):
            values[key] = value.strip().strip("'\"")
    return values


def find_distribution(os_release: Mapping[str, str], machine: str) -> Distribution:
    """Return the row for a node.

    Args:
        os_release: What parse_os_release returns.
        machine: Processor as `uname -m` names it.

    Raises:
        HeadroomError: If the table has no row for it; what was found and what is supported are named.
    """
    found = os_release.get("PRETTY_NAME") or " ".join(
        part for part in (os_release.get("ID", "an unknown distribution"), os_release.get("VERSION_ID", "")) if part
    )
    if machine not in _MACHINES:
        raise refusal(
            "host.unsupported_distribution",
            f"The node's processor is {machine} ({found}).",
            f"Supported are {' and '.join(_MACHINES)}.",
        )
    row = TABLE.get(_key(os_release))
    if row is None:
        titles = ", ".join(item.title for item in TABLE.values())
        raise refusal(
            "host.unsupported_distribution",
            f"The node runs {found}, for which there is no package table.",
            f"Supported are {titles}; elsewhere set sglang_runtime_packages to the packages that bring a C and C++ "
            "compiler, the headers of the engine's Python, its venv module and libnuma.",
        )
    return row


def _key(os_release: Mapping[str, str]) -> tuple[str, str]:
    name, version = os_release.get("ID", ""), os_release.get("VERSION_ID", "")
    if name in _RHEL_LIKE or "rhel" in os_release.get("ID_LIKE", "").split():
        return "rhel", version.partition(".")[0]
    return name, version


def package_manager(os_release: Mapping[str, str]) -> str:
    """Return Ansible's name of the node's package manager, or `auto` where the family is not known."""
    names = {os_release.get("ID", ""), *os_release.get("ID_LIKE", "").split()}
    if names & {"debian", "ubuntu"}:
        return "apt"
    return "dnf" if names & {"fedora", *_RHEL_LIKE} else "auto"


def wanted_packages(
    row: Distribution, engine_interpreters: Iterable[str], tools_interpreter: str, with_compiler: bool
) -> list[str]:
    """Return the packages for these interpreters (paths), without repeats; a path outside the table adds none."""
    wanted: list[str] = list(row.base) if with_compiler else []
    for path in engine_interpreters:
        entry = row.interpreters.get(path)
        if entry is not None:
            wanted += [entry.itself, entry.headers]
    tools = row.interpreters.get(tools_interpreter)
    if tools is not None:
        wanted += [tools.itself, *([tools.venv] if tools.venv else [])]
    return list(dict.fromkeys(wanted))


def refuse_missing_interpreter(setting: str, path: str, row: Distribution | None, packages: Iterable[str]) -> None:
    """Refuse an interpreter that is not on the node unless a package that will be installed brings it.

    Args:
        setting: The setting that names it.
        path: Where it should be on the node.
        row: The distribution's row, or None where the packages are given by the user.
        packages: The packages that will be installed.

    Raises:
        HeadroomError: If nothing brings it.
    """
    if row is not None and path in row.interpreters:
        return
    if path.rpartition("/")[2] in packages:
        return
    known = f" Packages of {row.title} bring {', '.join(row.interpreters)}." if row is not None else ""
    raise refusal(
        "engine.interpreter_missing",
        f"{setting} is '{path}', which is not on the node, and no package of its table brings it.",
        f"Install it first or name another.{known}",
    )
