# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Long work: what a job's process does with its directory,
run for real from the copied code; units are a node's part."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.headroom.serving.plugins.module_utils import job, own_code
from ansible_collections.headroom.serving.plugins.module_utils.errors import HeadroomError

KEY = "s3cr3t-0123456789"
WORK = """
import os
from ansible_collections.headroom.serving.plugins.module_utils import job
from ansible_collections.headroom.serving.plugins.module_utils.refusal import refusal

def run(params, progress):
    progress("one")
    progress("two\\nlines")
    progress("é \\udcff")
    return {"changed": True, "params": params, "code": job.__file__, "left": sorted(os.listdir(params["dir"]))}

def refuse(params, progress):
    raise refusal("model.missing", "a is b", "Use c.")

def crash(params, progress):
    progress("before")
    return {}["nothing"]

def leave(params, progress):
    raise SystemExit(7)
"""


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    path = tmp_path / "unit.0123"
    path.mkdir()
    (tmp_path / "work_of_a_test.py").write_text(WORK)
    own_code.write(path / "code.zip")
    return path


def work(directory: Path, function: str, entry: str = "work_of_a_test") -> subprocess.CompletedProcess[str]:
    params = {"key": KEY, "dir": str(directory), "list": [1, None, {"ü": True}]}
    job._write_private(directory / "work.json", json.dumps({"entry": f"{entry}:{function}", "params": params}))
    return subprocess.run(
        [sys.executable, "-B", "-c", job._BOOTSTRAP, str(directory / "code.zip"), str(directory)],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(directory.parent), "LC_ALL": "C.UTF-8"},
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
    )


def test_work_runs_from_the_copied_code_alone(directory: Path) -> None:
    done = work(directory, "run")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    result = job._result(directory)
    assert result is not None
    assert result["changed"] is True
    assert result["code"].startswith(str(directory / "code.zip"))
    assert result["params"] == {"key": KEY, "dir": str(directory), "list": [1, None, {"ü": True}]}
    assert job._lines(directory / "progress", 0)[0] == ["one", "two lines", "é \\udcff"]


def test_parameters_are_gone_before_the_work_begins(directory: Path) -> None:
    work(directory, "run")
    result = job._result(directory)
    assert result is not None
    assert result["left"] == ["code.zip", "progress"]
    assert sorted(path.name for path in directory.iterdir()) == ["code.zip", "progress", "result.json"]


def test_a_refusal_is_a_result_with_its_findings(directory: Path) -> None:
    done = work(directory, "refuse")
    assert (done.returncode, done.stderr) == (1, "a is b. Use c. [model.missing]\n")
    assert job._result(directory) == {
        "failed": True,
        "msg": "a is b. Use c. [model.missing]",
        "findings": [{"id": "model.missing", "verdict": "refuse", "message": "a is b", "suggestion": "Use c."}],
    }


def test_a_crash_is_one_line_for_the_user_and_a_trace_for_the_journal(directory: Path) -> None:
    done = work(directory, "crash")
    assert done.returncode == 1
    assert "Traceback" in done.stderr and "work_of_a_test.py" in done.stderr
    assert job._result(directory) == {
        "failed": True,
        "msg": "internal error in work_of_a_test:crash: KeyError: 'nothing'",
    }
    assert job._lines(directory / "progress", 0)[0] == ["before"]


@pytest.mark.parametrize(
    ("entry", "function", "reason"),
    [("work_of_a_test", "absent", "AttributeError"), ("no_such_module_here", "run", "ModuleNotFoundError")],
)
def test_work_that_is_not_there(directory: Path, entry: str, function: str, reason: str) -> None:
    assert work(directory, function, entry).returncode == 1
    result = job._result(directory)
    assert result is not None
    assert result["msg"].startswith(f"internal error in {entry}:{function}: {reason}: ")


def test_a_process_that_leaves_has_no_result(directory: Path) -> None:
    assert work(directory, "leave").returncode == 7
    assert job._result(directory) is None


def test_secrets_of_the_parameters_stay_in_a_private_file(directory: Path) -> None:
    job._write_private(directory / "work.json", json.dumps({"entry": "x:y", "params": {"key": KEY}}))
    assert stat.S_IMODE((directory / "work.json").stat().st_mode) == 0o600
    assert [path.name for path in directory.iterdir() if KEY.encode() in path.read_bytes()] == ["work.json"]


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_a_private_file_is_private_under_any_umask(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        job._write_private(tmp_path / "x", "é")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "x").stat().st_mode) == 0o600
    assert (tmp_path / "x").read_text(encoding="utf-8") == "é"
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


def test_a_private_file_is_never_written_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "x.new").symlink_to(tmp_path / "target")
    with pytest.raises(FileExistsError):
        job._write_private(tmp_path / "x", KEY)
    assert not (tmp_path / "target").exists()


def test_the_code_is_the_collections_module_utils(directory: Path) -> None:
    with zipfile.ZipFile(directory / "code.zip") as archive:
        names = set(archive.namelist())
    package = "ansible_collections/headroom/serving/plugins/module_utils/"
    here = {path.name for path in Path(job.__file__).parent.glob("*.py")} | {"__init__.py"}
    assert {name.removeprefix(package) for name in names if name.startswith(package)} == here
    assert names - {package + name for name in here} == {
        "ansible_collections/__init__.py",
        "ansible_collections/headroom/__init__.py",
        "ansible_collections/headroom/serving/__init__.py",
        "ansible_collections/headroom/serving/plugins/__init__.py",
    }


def test_code_that_came_in_an_archive_is_copied_from_it(directory: Path, tmp_path: Path) -> None:
    script = (
        "import sys; sys.path.insert(0, sys.argv[1]); from pathlib import Path\n"
        "from ansible_collections.headroom.serving.plugins.module_utils import own_code\n"
        "own_code.write(Path(sys.argv[2]))"
    )
    with zipfile.ZipFile(directory / "code.zip", "a") as archive:
        archive.writestr("ansible/other.py", "")
        archive.writestr("ansible_collections/headroom/serving/plugins/module_utils/extra.py", "x = 1\n")
    copy = tmp_path / "copy.zip"
    subprocess.run([sys.executable, "-I", "-c", script, str(directory / "code.zip"), str(copy)], check=True)
    with zipfile.ZipFile(copy) as archive:
        names = archive.namelist()
    assert "ansible/other.py" not in names
    assert "ansible_collections/headroom/serving/plugins/module_utils/extra.py" in names
    assert "ansible_collections/headroom/serving/plugins/module_utils/job.py" in names


@pytest.mark.parametrize(
    ("written", "offset", "lines", "after"),
    [
        (b"", 0, [], 0),
        (b"one\n", 0, ["one"], 4),
        (b"one\ntwo\n", 0, ["one", "two"], 8),
        (b"one\ntwo\n", 4, ["two"], 8),
        (b"one\ntwo\n", 8, [], 8),
        (b"one\ntw", 0, ["one"], 4),
        (b"one\ntw", 4, [], 4),
        (b"on", 0, [], 0),
        (b"one\n", 100, [], 100),
        (b"\n\n", 0, ["", ""], 2),
        ("é\n".encode(), 0, ["é"], 3),
        (b"\xff\n", 0, ["\ufffd"], 2),
        ("x\né".encode()[:-1], 0, ["x"], 2),
    ],
)
def test_reads_whole_lines_from_where_it_left_off(
    tmp_path: Path, written: bytes, offset: int, lines: list[str], after: int
) -> None:
    (tmp_path / "progress").write_bytes(written)
    assert job._lines(tmp_path / "progress", offset) == (lines, after)


@pytest.mark.parametrize("offset", [0, 5])
def test_no_progress_yet(tmp_path: Path, offset: int) -> None:
    assert job._lines(tmp_path / "progress", offset) == ([], offset)


def test_no_result_yet(tmp_path: Path) -> None:
    assert job._result(tmp_path) is None


def test_a_job_that_is_gone(tmp_path: Path) -> None:
    with pytest.raises(HeadroomError, match=r"no job directory .*/absent on this node: was the node rebooted\?"):
        job.follow(str(tmp_path / "absent"), "unit", 0, 0)


@pytest.mark.parametrize(
    "result", [{"changed": False}, {"failed": True, "msg": "x"}, {"text": "é\udcff\n"}, {"deep": {"a": [1, 2.5, None]}}]
)
def test_a_result_reads_back(tmp_path: Path, result: dict[str, Any]) -> None:
    job._write_private(tmp_path / "result.json", json.dumps(result))
    assert job._result(tmp_path) == result
