# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Building a venv: the installer's reason in one line, what reaches it, and real small installations."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.headroom.serving.plugins.module_utils import venv_build, venv_install
from ansible_collections.headroom.serving.plugins.module_utils.engine_store import Store
from ansible_collections.headroom.serving.plugins.module_utils.errors import HeadroomError

UV_HASH = """Using Python 3.11.2 environment at: /opt/headroom/engines/x/venv
error: Failed to read `six @ file:///w/six-1.17.0-py2.py3-none-any.whl`
  Caused by: Hash mismatch for `six @ file:///w/six-1.17.0-py2.py3-none-any.whl`

Expected:
  sha256:aaaa

Computed:
  sha256:bbbb
"""
UV_NONE = """  × No solution found when resolving dependencies:
  ╰─▶ Because six was not found in the provided package locations and you require six==9.9, we can conclude that
      your requirements are unsatisfiable.
"""


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        (UV_HASH, "Failed to read `six @ file:///w/six-1.17.0-py2.py3-none-any.whl` Caused by: Hash mismatch for `six "
                  "@ file:///w/six-1.17.0-py2.py3-none-any.whl` Expected: sha256:aaaa Computed: sha256:bbbb"),
        (UV_NONE, "No solution found when resolving dependencies: Because six was not found in the provided package "
                  "locations and you require six==9.9, we can conclude that your requirements are unsatisfiable."),
        ("ERROR: No matching distribution found for six==9.9\n", "No matching distribution found for six==9.9"),
        ("Resolved 3 packages in 1ms\nerror: no space left on device\n", "no space left on device"),
        ("", ""),
    ],
)  # fmt: skip
def test_one_reason(output: str, expected: str) -> None:
    assert venv_build.one_reason(output) == expected


def test_a_long_reason_is_cut() -> None:
    assert venv_build.one_reason("x " * 1000).endswith(" ...")


def test_what_reaches_the_installer() -> None:
    given = {"HTTPS_PROXY": "p", "no_proxy": "n", "SSL_CERT_FILE": "c", "UV_NATIVE_TLS": "1", "HOME": "/x", "LANG": "C"}
    assert sorted(venv_build.network_environment(given)) == [
        "HTTPS_PROXY",
        "SSL_CERT_FILE",
        "UV_NATIVE_TLS",
        "no_proxy",
    ]


@pytest.mark.parametrize(("active", "expected"), [([], "u"), (["u"], "u-2"), (["u", "u-2"], "u-3"), (["u-2"], "u")])
def test_a_busy_unit_gets_a_number(active: list[str], expected: str) -> None:
    assert venv_install.free_unit("u", lambda name: name in active) == expected


def wheel(directory: Path, project: str, version: str, files: dict[str, str]) -> str:
    """Make a wheel; return its line for a lock."""
    info = f"{project}-{version}.dist-info"
    path = directory / f"{project}-{version}-py3-none-any.whl"
    contents = {
        **files,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {project}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{name},,\n" for name in [*contents, f"{info}/RECORD"])
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in {**contents, f"{info}/RECORD": record}.items():
            archive.writestr(name, content)
    return f"{project}=={version} --hash=sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}\n"


# The tools are checked by importing these; stand-ins let a real pip install a real venv without an index.
TOOLS = {
    "psutil": {"psutil.py": ""},
    "pynvml": {"pynvml.py": ""},
    "huggingface_hub": {"huggingface_hub.py": ""},
    "hf_xet": {"hf_xet.py": ""},
    "uv": {"uv_stand_in.py": "answer = 42\n"},
}


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A wheelhouse and the lock of all its wheels."""
    directory = tmp_path_factory.mktemp("house")
    lines = [wheel(directory, name, "1.5", files) for name, files in TOOLS.items()]
    lines.append(wheel(directory, "old", "1.0", {"old.py": "print 'of Python 2'\n"}))
    return directory, "".join(lines)


def options(root: Path, house: Path, lock: str, **changes: Any) -> dict[str, Any]:
    return {
        "kind": "tools",
        "name": "tools",
        "lock": "tools.lock",
        "lock_text": lock,
        "python": sys.executable,
        "root": str(root),
        "user": "",
        "wheelhouse_on_node": str(house),
        "index_url": "",
        "shim_files": {"late.py": base64.b64encode(b"late = True\n").decode()},
        "wheels": {},
        **changes,
    }


def install(params: dict[str, Any], check_mode: bool = False) -> tuple[dict[str, Any], list[str]]:
    """Install as the module and its job do, in this process; return the result and the lines of progress."""
    lines: list[str] = []

    def start(unit: str, entry: Any, work: dict[str, Any]) -> dict[str, Any]:
        assert unit.startswith("headroom-tools-")
        return dict(entry(json.loads(json.dumps(work)), lines.append))

    answer = venv_install.install(params, check_mode, start)
    return {**answer, **answer.pop("job", {})}, lines


@pytest.fixture(autouse=True, scope="module")
def unchanged_process() -> Iterator[None]:
    """The job may change its own niceness and umask; a test must not keep them."""
    umask = os.umask(0o022)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "nice", lambda _by: 0)
        yield
    os.umask(umask)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the venvs of this file lie."""
    return tmp_path_factory.mktemp("root") / "headroom"


@pytest.fixture
def installed(root: Path, house: tuple[Path, str]) -> Path:
    """The same with tools in it, whichever tests ran in this process before: workers share the tests among them."""
    install(options(root, *house))
    return root


def test_check_mode_tells_and_makes_nothing(tmp_path: Path, house: tuple[Path, str]) -> None:
    root = tmp_path / "headroom"
    told, lines = install(options(root, *house), check_mode=True)
    version = ".".join(map(str, sys.version_info[:3]))
    assert told["changed"] and lines == [] and not root.exists()
    assert told["msg"] == f"would install tools 'tools' {told['id']} with cpython-{version}"


def test_installs_links_records_and_then_has_nothing_to_do(root: Path, house: tuple[Path, str]) -> None:
    params = options(root, *house)
    store = Store(root, "tools")
    told, _lines = install(params, check_mode=True)
    answer, lines = install(params)
    assert answer["changed"] and answer["version"] == "1.5" and answer["id"] == told["id"]
    assert answer["resolved"]["tools"] == store.resolve(answer["id"], "1.5")
    assert lines[0].endswith(f"installing 6 packages with {sys.executable}") and lines[-1].startswith("tools (")
    record = store.record(answer["id"])
    assert record is not None and record["packages"] == 6 and set(record["seconds"]) == {"install", "compile", "verify"}
    assert (store.path(answer["id"]) / "lock.txt").read_text() == house[1]
    python = root / "tools" / "current" / "bin" / "python"
    check = "import late, uv_stand_in as u; print(late.late, u.answer)"
    assert subprocess.run([python, "-c", check], capture_output=True, text=True, check=True).stdout == "True 42\n"
    # What is no Python of this version is no failure.
    compiled = [path.name for path in store.venv(answer["id"]).rglob("*.pyc")]
    assert [name for name in compiled if name.startswith(("old.", "uv_stand_in."))] == [
        f"uv_stand_in.{sys.implementation.cache_tag}.pyc"
    ]

    again, lines = install(params)
    assert not again["changed"] and again["version"] == "1.5" and lines == []


@pytest.mark.parametrize("spoilt", ["hash", "import"])
def test_what_does_not_install_leaves_all_as_it_was(installed: Path, house: tuple[Path, str], spoilt: str) -> None:
    directory, lock = house
    store = Store(installed, "tools")
    before = store.target("tools"), store.installed()
    first = lock.splitlines()[0]
    if spoilt == "hash":
        bad, expected = lock.replace(first, first[:-4] + "0000"), "(?i)hash"
    else:
        line = wheel(directory, "psutil", "1.6", {"psutil.py": "raise RuntimeError('no such thing')\n"})
        bad, expected = lock.replace(first + "\n", line), "can't be imported: RuntimeError: no such thing"
    with pytest.raises(HeadroomError, match=expected) as caught:
        install(options(installed, directory, bad))
    assert str(caught.value).startswith("tools 'tools': lock 'tools.lock' does not install: ")
    assert "\n" not in str(caught.value)
    assert [item.id for item in caught.value.findings] == ["engine.install_failed"]
    assert (store.target("tools"), store.installed()) == before and before[0] is not None


def test_a_half_directory_is_rebuilt(installed: Path, house: tuple[Path, str]) -> None:
    store = Store(installed, "tools")
    before = store.target("tools")
    assert before is not None
    (store.path(before) / "engine.json").unlink()
    (store.path(before) / "bin" / "python").unlink()
    again, lines = install(options(installed, *house))
    assert again["id"] == before and store.record(before) is not None
    assert lines[0].startswith("removing what an interrupted installation left in ")


def test_tools_of_an_older_lock_go(installed: Path, house: tuple[Path, str]) -> None:
    directory, lock = house
    store = Store(installed, "tools")
    before = store.target("tools")
    assert before is not None
    answer, _lines = install(options(installed, directory, lock + wheel(directory, "more", "1.0", {"more.py": ""})))
    assert [item.id for item in store.installed()] == [answer["id"]] == [store.target("tools")] != [before]


def test_an_interpreter_that_is_missing(tmp_path: Path, house: tuple[Path, str]) -> None:
    params = options(tmp_path / "root", *house, python="/nonexistent/python3")
    told, _lines = install(params, check_mode=True)
    assert told["changed"] and told["id"] is None and "once /nonexistent/python3 is there" in told["msg"]
    with pytest.raises(HeadroomError, match="not on the node"):
        install(params)


def test_an_engine_needs_the_tools(tmp_path: Path, house: tuple[Path, str]) -> None:
    with pytest.raises(HeadroomError, match=r"needs .*/tools/current/bin/uv: install the tools first"):
        install(options(tmp_path / "root", *house, kind="engine", name="default"))
