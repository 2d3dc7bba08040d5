# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The table of packages: which row a node gets, which packages it wants, what is refused."""

from __future__ import annotations

import pytest

from ansible_collections.headroom.serving.plugins.module_utils.errors import HeadroomError
from ansible_collections.headroom.serving.plugins.module_utils.os_packages import (
    TABLE,
    find_distribution,
    package_manager,
    parse_os_release,
    refuse_missing_interpreter,
    wanted_packages,
)

DEBIAN = 'PRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\nNAME="Debian GNU/Linux"\nVERSION_ID="12"\nID=debian\n'
ROCKY = 'NAME="Rocky Linux"\nID="rocky"\nID_LIKE="rhel centos fedora"\nVERSION_ID="9.6"\n'


def test_reads_os_release() -> None:
    values = parse_os_release("# comment\n\nID='debian'\nURL=https://example.org/?a=b\nbroken\n")
    assert values == {"ID": "debian", "URL": "https://example.org/?a=b"}


@pytest.mark.parametrize(
    ("release", "title"),
    [
        (parse_os_release(DEBIAN), "Debian 12"),
        ({"ID": "debian", "VERSION_ID": "13"}, "Debian 13"),
        ({"ID": "ubuntu", "ID_LIKE": "debian", "VERSION_ID": "22.04"}, "Ubuntu 22.04"),
        ({"ID": "ubuntu", "VERSION_ID": "24.04"}, "Ubuntu 24.04"),
        (parse_os_release(ROCKY), "RHEL 9 and its rebuilds"),
        ({"ID": "rhel", "VERSION_ID": "10.1"}, "RHEL 10 and its rebuilds"),
        ({"ID": "ol", "VERSION_ID": "9.5"}, "RHEL 9 and its rebuilds"),
        ({"ID": "centos", "VERSION_ID": "10"}, "RHEL 10 and its rebuilds"),
        ({"ID": "eurolinux", "ID_LIKE": "rhel fedora centos", "VERSION_ID": "9.3"}, "RHEL 9 and its rebuilds"),
    ],
)
def test_finds_the_row(release: dict[str, str], title: str) -> None:
    assert find_distribution(release, "x86_64").title == title


@pytest.mark.parametrize(
    ("release", "machine", "found"),
    [
        ({"ID": "debian", "VERSION_ID": "11", "PRETTY_NAME": "Debian GNU/Linux 11"}, "x86_64", "Debian GNU/Linux 11"),
        ({"ID": "ubuntu", "VERSION_ID": "20.04"}, "x86_64", "ubuntu 20.04"),
        ({"ID": "linuxmint", "ID_LIKE": "ubuntu debian", "VERSION_ID": "22"}, "x86_64", "linuxmint 22"),
        ({"ID": "amzn", "ID_LIKE": "fedora", "VERSION_ID": "2023"}, "x86_64", "amzn 2023"),
        ({"ID": "fedora", "VERSION_ID": "43"}, "x86_64", "fedora 43"),
        ({"ID": "rocky", "ID_LIKE": "rhel", "VERSION_ID": "8.10"}, "x86_64", "rocky 8.10"),
        ({"ID": "arch"}, "x86_64", "arch"),
        ({}, "x86_64", "an unknown distribution"),
        ({"ID": "debian", "VERSION_ID": "12"}, "ppc64le", "ppc64le"),
    ],
)
def test_names_what_it_found_and_what_is_supported(release: dict[str, str], machine: str, found: str) -> None:
    with pytest.raises(HeadroomError) as caught:
        find_distribution(release, machine)
    message = str(caught.value)
    assert found in message and "\n" not in message
    assert all(word in message for word in (["Debian 12", "RHEL 10"] if machine == "x86_64" else ["aarch64"]))
    assert [item.id for item in caught.value.findings] == ["host.unsupported_distribution"]


@pytest.mark.parametrize(
    ("key", "engines", "expected"),
    [
        (("debian", "12"), ["/usr/bin/python3"],
         "gcc g++ libc6-dev libnuma1 python3 python3-dev python3-venv"),
        (("debian", "13"), ["/usr/bin/python3.13"],
         "gcc g++ libc6-dev libnuma1 python3.13 python3.13-dev python3 python3-venv"),
        (("ubuntu", "24.04"), ["/usr/bin/python3.12", "/opt/python/bin/python3.13"],
         "gcc g++ libc6-dev libnuma1 python3.12 python3.12-dev python3 python3-venv"),
        (("ubuntu", "22.04"), [],
         "gcc g++ libc6-dev libnuma1 python3 python3-venv"),
        (("rhel", "9"), ["/usr/bin/python3.12"],
         "gcc gcc-c++ numactl-libs python3.12 python3.12-devel python3"),
        (("rhel", "10"), ["/usr/bin/python3.12", "/usr/bin/python3"],
         "gcc gcc-c++ numactl-libs python3 python3-devel"),
    ],
)  # fmt: skip
def test_wanted_packages(key: tuple[str, str], engines: list[str], expected: str) -> None:
    assert " ".join(wanted_packages(TABLE[key], engines, "/usr/bin/python3", with_compiler=True)) == expected


def test_tools_alone_need_no_compiler() -> None:
    found = wanted_packages(TABLE["debian", "12"], [], "/usr/bin/python3", with_compiler=False)
    assert found == ["python3", "python3-venv"]


@pytest.mark.parametrize(
    ("release", "expected"),
    [
        ({"ID": "debian"}, "apt"),
        ({"ID": "linuxmint", "ID_LIKE": "ubuntu debian"}, "apt"),
        ({"ID": "fedora"}, "dnf"),
        ({"ID": "amzn", "ID_LIKE": "fedora"}, "dnf"),
        ({"ID": "arch"}, "auto"),
    ],
)
def test_package_manager(release: dict[str, str], expected: str) -> None:
    assert package_manager(release) == expected


@pytest.mark.parametrize(
    ("path", "row", "packages"),
    [
        ("/usr/bin/python3.12", TABLE["ubuntu", "24.04"], []),
        ("/usr/bin/python3.12", None, ["python3.12", "gcc"]),
    ],
)
def test_an_interpreter_that_a_package_brings_may_be_missing(path: str, row: object, packages: list[str]) -> None:
    refuse_missing_interpreter("setting", path, row, packages)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("path", "row"), [("/usr/bin/python3.12", TABLE["debian", "12"]), ("/opt/py/bin/python3", None)]
)
def test_an_interpreter_that_nothing_brings_is_refused(path: str, row: object) -> None:
    setting = "sglang_runtime_engines[default].python"
    with pytest.raises(HeadroomError) as caught:
        refuse_missing_interpreter(setting, path, row, ["gcc"])  # type: ignore[arg-type]
    assert str(caught.value).startswith(f"{setting} is '{path}', which is not on the node")
    assert [item.id for item in caught.value.findings] == ["engine.interpreter_missing"]
    if row is not None:
        assert "/usr/bin/python3, /usr/bin/python3.11" in str(caught.value)
