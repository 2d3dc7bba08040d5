# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which files of a wheelhouse a lock needs, and how they are cut for the journey."""

from __future__ import annotations

import pytest

from ansible_collections.headroom.serving.plugins.module_utils.errors import HeadroomError
from ansible_collections.headroom.serving.plugins.module_utils.lock_file import parse_lock
from ansible_collections.headroom.serving.plugins.module_utils.wheel_files import (
    Target,
    Wheel,
    cut,
    fits,
    parse_wheel_name,
    select_wheels,
)

TARGET = Target((3, 11), "x86_64")
SETTING = "sglang_runtime_engines[x].wheelhouse 'wheels'"
TORCH = "torch-2.13.0+cpu-cp311-cp311-manylinux_2_28_x86_64.whl"
SIX = "six-1.17.0-py2.py3-none-any.whl"
HASHES = {TORCH: "a" * 64, SIX: "b" * 64}
LOCK = parse_lock(f"torch==2.13.0+cpu --hash=sha256:{'a' * 64}\nsix==1.17.0 --hash=sha256:{'b' * 64}\n", "lock")


@pytest.mark.parametrize(
    ("filename", "expected"),
    [
        (TORCH, ("torch", "2.13.0+cpu", ("cp311",), ("cp311",), ("manylinux_2_28_x86_64",))),
        (SIX, ("six", "1.17.0", ("py2", "py3"), ("none",), ("any",))),
        ("Ruamel_Yaml-0.18-1build-py3-none-any.whl", ("ruamel-yaml", "0.18", ("py3",), ("none",), ("any",))),
        ("six-1.17.0.tar.gz", None),
        ("notes.whl", None),
        ("a-b-c-d-e-f-g.whl", None),
    ],
)
def test_reads_names(filename: str, expected: tuple[object, ...] | None) -> None:
    name = parse_wheel_name(filename)
    found = None if name is None else (name.project, name.version, name.pythons, name.abis, name.platforms)
    assert found == expected


@pytest.mark.parametrize(
    ("tags", "expected"),
    [
        ("py3-none-any", True),
        ("py2.py3-none-any", True),
        ("py2-none-any", False),
        ("cp311-cp311-manylinux_2_28_x86_64", True),
        ("cp311-cp311-manylinux_2_17_x86_64.manylinux2014_x86_64", True),
        ("cp311-cp311-linux_x86_64", True),
        ("cp310-cp310-manylinux_2_28_x86_64", False),
        ("cp312-cp312-manylinux_2_28_x86_64", False),
        ("cp39-abi3-manylinux_2_28_x86_64", True),
        ("cp312-abi3-manylinux_2_28_x86_64", False),
        ("py38-none-any", True),
        ("py312-none-any", False),
        ("cp311-cp311-manylinux_2_28_aarch64", False),
        ("cp311-cp311-musllinux_1_2_x86_64", False),
        ("cp311-cp311-macosx_11_0_arm64", False),
        ("cp311-cp311-win_amd64", False),
        ("pp311-pypy311_pp73-manylinux_2_28_x86_64", False),
    ],
)
def test_what_fits_a_node(tags: str, expected: bool) -> None:
    name = parse_wheel_name(f"x-1-{tags}.whl")
    assert name is not None and fits(name, TARGET) is expected


def test_selects_by_hash_and_reads_no_other_file() -> None:
    files = {TORCH: 100, SIX: 10, "unrelated-1-py3-none-any.whl": 5, "README": 1}
    asked = []

    def sha256_of(filename: str) -> str:
        asked.append(filename)
        return HASHES[filename]

    found = select_wheels(LOCK, files, sha256_of, lambda _marker: True, TARGET, SETTING)
    assert found == [Wheel(SIX, 10, "b" * 64), Wheel(TORCH, 100, "a" * 64)]
    assert sorted(asked) == [SIX, TORCH]


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({SIX: "b"}, "torch==2.13.0+cpu"),
        ({TORCH: "a"}, "six==1.17.0"),
        ({TORCH: "a", SIX: "c"}, f"six==1.17.0 ({SIX} has another SHA-256 than the lock names)"),
        ({SIX: "b", TORCH.replace("x86_64", "aarch64"): "a"}, "torch==2.13.0+cpu"),
        ({SIX: "b", TORCH.replace("cp311", "cp312"): "a"}, "torch==2.13.0+cpu"),
        ({TORCH: "a", "six-1.17.0.tar.gz": "b"}, "six==1.17.0"),
    ],
)
def test_names_the_wheel_that_lacks(files: dict[str, str], expected: str) -> None:
    with pytest.raises(HeadroomError) as caught:
        select_wheels(LOCK, dict.fromkeys(files, 1), lambda name: files[name] * 64, lambda _m: True, TARGET, SETTING)
    assert str(caught.value).startswith(f"{SETTING} lacks a wheel of the lock for the node's Python: {expected}.")
    assert [item.id for item in caught.value.findings] == ["engine.wheelhouse_incomplete"]


def test_names_three_and_counts_the_rest() -> None:
    lock = parse_lock("".join(f"p{index}==1 --hash=sha256:{'a' * 64}\n" for index in range(7)), "lock")
    with pytest.raises(HeadroomError, match=r"p0==1, p1==1, p2==1 and 4 more\."):
        select_wheels(lock, {}, lambda _name: "", lambda _m: True, TARGET, SETTING)


def test_a_requirement_for_other_nodes_needs_no_wheel() -> None:
    text = f"six==1.17.0 --hash=sha256:{'b' * 64}\ncolorama==1 ; sys_platform == 'win32' --hash=sha256:{'c' * 64}\n"
    lock = parse_lock(text, "lock")
    assert select_wheels(lock, {SIX: 1}, lambda name: HASHES[name], lambda _m: False, TARGET, SETTING) == [
        Wheel(SIX, 1, "b" * 64)
    ]
    with pytest.raises(HeadroomError, match="colorama==1"):
        select_wheels(lock, {SIX: 1}, lambda name: HASHES[name], lambda _m: True, TARGET, SETTING)


def test_for_an_unknown_interpreter_every_platform_counts() -> None:
    other = TORCH.replace("cp311", "cp312")
    hashes = {**HASHES, other: "a" * 64}
    found = select_wheels(LOCK, dict.fromkeys(hashes, 1), lambda name: hashes[name], lambda _m: True, None, SETTING)
    assert [wheel.filename for wheel in found] == [SIX, TORCH, other]


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ([], []),
        ([10], [[(0, 0, 10)]]),
        ([10, 20, 70], [[(0, 0, 10), (1, 0, 20), (2, 0, 70)]]),
        ([60, 60], [[(0, 0, 60), (1, 0, 40)], [(1, 40, 20)]]),
        ([250, 1], [[(0, 0, 100)], [(0, 100, 100)], [(0, 200, 50), (1, 0, 1)]]),
        ([0, 5], [[(1, 0, 5)]]),
    ],
)
def test_cuts_into_batches(sizes: list[int], expected: list[list[tuple[int, int, int]]]) -> None:
    wheels = [Wheel(f"w{index}", size, str(index)) for index, size in enumerate(sizes)]
    batches = cut(wheels, piece_bytes=100)
    found = [[(int(piece.wheel.sha256), piece.offset, piece.length) for piece in batch] for batch in batches]
    assert found == expected
