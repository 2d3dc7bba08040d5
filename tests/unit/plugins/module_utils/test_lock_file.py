# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Locks: what is read, what is refused, and that the digest follows the meaning alone."""

from __future__ import annotations

import pytest

from ansible_collections.headroom.serving.plugins.module_utils.errors import HeadroomError
from ansible_collections.headroom.serving.plugins.module_utils.lock_file import (
    canonical_name,
    canonical_version,
    parse_lock,
)

A, B = "a" * 64, "b" * 64
ORIGIN = "sglang_runtime_engines[x].lock 'x.lock'"
PLAIN = f"""# made by hand
Py_Zstd==1.2.0 \\
    --hash=sha256:{A} \\
    --hash=sha256:{B}
torch==2.13.0+cpu --hash=sha256:{B}
"""


def test_reads_names_versions_hashes_and_lines() -> None:
    first, second = parse_lock(PLAIN, ORIGIN).requirements
    assert (first.name, first.version, first.marker, first.hashes, first.line) == ("py-zstd", "1.2.0", "", (A, B), 2)
    assert (second.name, second.version, second.line) == ("torch", "2.13.0+cpu", 5)


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(f"torch==2.13.0+cpu --hash=sha256:{B}\n"
                     f"py-zstd==1.2.0 --hash=sha256:{A} --hash=sha256:{B}\n", id="order"),
        pytest.param(f"py.zstd==1.2.0 --hash=sha256:{B} --hash=sha256:{A}\n"
                     f"Torch==2.13.0+CPU --hash=sha256:{B}", id="spelling"),
        pytest.param(f"py-zstd[fast]==1.2.0 --hash=sha256:{A} --hash=sha256:{B} --hash=sha256:{A}\n"
                     f"torch == 2.13.0+cpu --hash=sha256:{B} # why\n", id="extras, repeats, blanks, comment"),
        pytest.param("--require-hashes\n--only-binary :all:\n" + PLAIN, id="harmless options"),
        pytest.param(PLAIN.replace("\n", "\r\n"), id="line ends"),
    ],
)  # fmt: skip
def test_digest_is_that_of_the_meaning(other: str) -> None:
    assert parse_lock(other, ORIGIN).digest() == parse_lock(PLAIN, ORIGIN).digest()


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(PLAIN.replace("1.2.0", "1.2.1"), id="version"),
        pytest.param(PLAIN.replace("2.13.0+cpu", "2.13.0"), id="local version"),
        pytest.param(PLAIN.replace(A, "c" * 64), id="hash"),
        pytest.param(PLAIN.replace(f" \\\n    --hash=sha256:{B}\n", "\n", 1), id="one hash less"),
        pytest.param(PLAIN.replace("Py_Zstd", "pyzstd"), id="name"),
        pytest.param(PLAIN.replace("1.2.0 ", "1.2.0 ; python_version < '3.14' "), id="marker"),
        pytest.param(PLAIN + f"more==1 --hash=sha256:{A}\n", id="one more"),
    ],
)
def test_digest_changes_with_the_meaning(other: str) -> None:
    assert parse_lock(other, ORIGIN).digest() != parse_lock(PLAIN, ORIGIN).digest()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "it holds no requirement"),
        ("# nothing\n", "it holds no requirement"),
        ("torch==2.13.0\n", "line 1, 'torch==2.13.0': no --hash=sha256:..."),
        (f"{PLAIN}\n\nsix==1.17.0\n", "line 8, 'six==1.17.0': no --hash=sha256:..."),
        (f"six>=1.0 --hash=sha256:{A}", "line 1, 'six>=1.0': not pinned to one version as name==version"),
        (f"six==1.* --hash=sha256:{A}", "line 1, 'six==1.*': not pinned"),
        (f"six --hash=sha256:{A}", "line 1, 'six': not pinned"),
        (f"six==1.0,!=1.1 --hash=sha256:{A}", "not pinned"),
        (f"six @ https://x.org/six.whl --hash=sha256:{A}", "'six @ https://x.org/six.whl': a requirement by"),
        (f"https://example.org/six-1-py3-none-any.whl --hash=sha256:{A}", "a requirement by URL"),
        (f"git+https://example.org/six.git --hash=sha256:{A}", "a requirement by URL"),
        (f"./six-1-py3-none-any.whl --hash=sha256:{A}", "a requirement by URL or path"),
        (f"/wheels/six-1-py3-none-any.whl --hash=sha256:{A}", "a requirement by URL or path"),
        (f"--index-url https://x.org/simple\nsix==1 --hash=sha256:{A}", "line 1, '--index-url https://x.org/simple'"),
        (f"six==1 --hash=sha256:{A}\n--find-links=w", "line 2, '--find-links=w': a lock holds requirements only"),
        ("-r other.txt", "line 1, '-r other.txt'"),
        ("-e .", "line 1, '-e .'"),
        (f"six==1 --hash=sha512:{A}", "is not a SHA-256 of 64 hex digits"),
        ("six==1 --hash=sha256:abc", "hash 'sha256:abc' is not a SHA-256"),
        (f"six==1 --hash=sha256:{A}\n\nSix==2 --hash=sha256:{B}", "line 3, 'six==2': line 1 pins it already, to 1"),
        (f"six==1 ; python_version<'3' --hash=sha256:{A}\nsix==2 --hash=sha256:{B}", "'six==2': line 1 pins it"),
    ],
)  # fmt: skip
def test_refuses_with_line_and_requirement(text: str, expected: str) -> None:
    with pytest.raises(HeadroomError) as caught:
        parse_lock(text, ORIGIN)
    message = str(caught.value)
    assert message.startswith(ORIGIN) and expected in message and "\n" not in message
    assert [item.id for item in caught.value.findings] == ["engine.lock_invalid"]


def test_a_name_may_be_forked_by_markers() -> None:
    text = (
        f"click==8.1.8 ; python_full_version < '3.10' --hash=sha256:{A}\n"
        f'click==8.5.1 ; python_full_version >= "3.10" --hash=sha256:{B}\n'
    )
    markers = [item.marker for item in parse_lock(text, ORIGIN).requirements]
    assert markers == ["python_full_version < '3.10'", "python_full_version >= '3.10'"]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("Jinja2", "jinja2"),
        ("ruamel.yaml", "ruamel-yaml"),
        ("a__b--c", "a-b-c"),
        ("a_b", "a-b"),
    ],
)
def test_canonical_name(given: str, expected: str) -> None:
    assert canonical_name(given) == expected


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("2.13.0+cpu", "2.13.0+cpu"),
        ("2.13.0%2Bcpu", "2.13.0+cpu"),
        ("2.11.0+CU130_1", "2.11.0+cu130.1"),
        ("2026.07.01", "2026.7.1"),
        ("0.2.1.1.post7", "0.2.1.1.post7"),
        ("1.0rc01", "1.0rc01"),
        ("10.0", "10.0"),
    ],
)
def test_canonical_version(given: str, expected: str) -> None:
    assert canonical_version(given) == expected
