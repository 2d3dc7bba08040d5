# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The launcher as a node runs it: a real process, a stand-in for the engine that logs its arguments,
and a real rank."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.headroom.serving.plugins.module_utils import launcher

KEY = "s3cr3t-0123456789"
ADMIN = "s3cr3t-0123456789-admin"
RANK = """
import logging

def run(given):
    logging.basicConfig(level=logging.INFO, force=True)
    logging.info(f"rank: server_args={given!r}")
    logging.getLogger("sglang.rank").warning("rank key %s", given.get("api-key"))
"""
# Logs what SGLang logs: all arguments, in the parent and in a rank that multiprocessing starts afresh.
ENGINE = """
import json, logging, multiprocessing, sys
from pathlib import Path
from sglang import rank

def arguments():
    path = sys.argv[sys.argv.index("--config") + 1] if "--config" in sys.argv else None
    return json.loads(Path(path).read_text()) if path else {}

def main():
    logging.basicConfig(level=logging.INFO, force=True)
    given = arguments()
    logging.info(f"parent: server_args={given!r}")
    logging.info("parent: %s and %r", given.get("api-key"), given.get("admin-api-key"))
    logging.info("parent: %(api-key)s", given)
    logging.info("argv %s", sys.argv[1:])
    logging.info(given)
    logging.error("wrong %d", given.get("api-key"))
    logging.info("100%")
    try:
        raise ValueError(f"bad {given!r}")
    except ValueError:
        logging.exception("failed with %s", given)
    child = multiprocessing.get_context("spawn").Process(target=rank.run, args=(given,))
    child.start()
    child.join()
    sys.exit(child.exitcode)

if __name__ == "__main__":
    main()
"""


@pytest.fixture
def site(tmp_path: Path) -> Path:
    (tmp_path / "site" / "sglang").mkdir(parents=True)
    (tmp_path / "site" / "sglang" / "__init__.py").write_text("")
    (tmp_path / "site" / "sglang" / "launch_server.py").write_text(ENGINE)
    (tmp_path / "site" / "sglang" / "rank.py").write_text(RANK)
    (tmp_path / "launch.py").write_text(Path(launcher.__file__).read_text())
    return tmp_path


def launch(site: Path, keys: dict[str, str] | None, *more: str) -> str:
    arguments = ["--model-path", "/m", *more]
    if keys is not None:
        (site / "credentials.yaml").write_text(json.dumps(keys))
        arguments += ["--config", str(site / "credentials.yaml")]
    done = subprocess.run(
        [sys.executable, str(site / "launch.py"), *arguments],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(site / "site")},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.mark.parametrize(
    "keys",
    [
        {"api-key": KEY},
        {"api-key": KEY, "admin-api-key": ADMIN},
        {"api-key": ADMIN, "admin-api-key": KEY},
        {"api-key": KEY, "admin-api-key": KEY},
        {"api-key": "abc.~+/==", "admin-api-key": "x-y_z"},
        {"api-key": 'it\'s \\ "quoted"', "admin-api-key": "tab\tline\nend"},
    ],
    ids=str,
)
def test_no_key_is_ever_logged(site: Path, keys: dict[str, str]) -> None:
    output = launch(site, keys)
    for key in keys.values():
        assert key not in output
        assert repr(key)[1:-1] not in output
    for line in (
        "parent: server_args=",
        "rank: server_args=",
        "WARNING:sglang.rank:rank key ",
        "failed with ",
        "ValueError: bad ",
    ):
        (found,) = [text for text in output.splitlines() if line in text]
        assert launcher.MASK in found, found


def test_the_rest_of_the_log_stays_as_it_is(site: Path) -> None:
    output = launch(site, {"api-key": KEY}, "--served-model-name", "tiny")
    assert "INFO:root:100%" in output
    assert "'--model-path', '/m', '--served-model-name', 'tiny', '--config'" in output
    assert f"server_args={{'api-key': '{launcher.MASK}'}}" in output


def test_without_keys_nothing_is_masked(site: Path) -> None:
    output = launch(site, None)
    assert launcher.MASK not in output
    assert "parent: server_args={}" in output and "rank: server_args={}" in output


def test_it_needs_nothing_of_the_collection() -> None:
    text = Path(launcher.__file__).read_text()
    assert "ansible" not in text.split('"""', 2)[2]


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({"api-key": "a"}, ["a"]),
        ({"api-key": "ab", "admin-api-key": "abc"}, ["abc", "ab"]),
        ({"api-key": "a\nb"}, ["a\\nb", "a\nb"]),
        ({"api-key": "a'b"}, ["a'b"]),
        ({"api-key": 12345}, ["12345"]),
        ({}, []),
    ],
)
def test_reads_the_keys_longest_first(tmp_path: Path, keys: dict[str, Any], expected: list[str]) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(json.dumps(keys))
    assert launcher.keys(["launch.py", "--port", "1", "--config", str(path), "--x"]) == expected


@pytest.mark.parametrize("content", [None, "", "api-key: x", "{"])
def test_keys_that_cannot_be_read_end_the_start(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "c").write_text(content)
    with pytest.raises((OSError, ValueError)):
        launcher.keys(["--config", str(tmp_path / "c")])


def test_no_config_no_keys() -> None:
    assert launcher.keys(["launch.py", "--port", "1"]) == []


@pytest.mark.parametrize(
    ("message", "arguments", "shown"),
    [
        ("key abc", (), "key ***"), ("key %s", ("abc",), "key ***"), ("%s%s", ("a", "bc"), "***"), ("x", (), "x"),
        ("%d%%", (5,), "5%"),
        ("%(k)s", ({"k": "abc"},), "***"), ("abcabc", (), "******"), (b"abc", (), "b'***'"), (("abc",), (), "('***',)"),
    ],
)  # fmt: skip
def test_masks_what_a_record_shows(message: Any, arguments: tuple[Any, ...], shown: str) -> None:
    build = launcher.masking(logging.LogRecord, ["abc"])
    record = build("name", logging.INFO, "path", 1, message, arguments, None)
    assert record.getMessage() == shown.replace("***", launcher.MASK)


@pytest.mark.parametrize(
    ("message", "arguments"), [("%d", ("x",)), ("%s", ()), ("%s %s", ("a",)), ("%(k)s", ({"j": 1},)), ("x", ("a",))]
)
def test_a_call_with_the_wrong_arguments_is_left_to_logging(message: str, arguments: tuple[Any, ...]) -> None:
    build = launcher.masking(logging.LogRecord, ["abc"])
    record = build("name", logging.INFO, "path", 1, message, arguments, None)
    assert record.msg == message
    assert launcher.MASK not in repr(record.args)


@pytest.mark.parametrize("arguments", [("abc",), ("x", "abc"), ({"k": "abc"},), (5, b"abc")])
def test_not_even_a_call_with_the_wrong_arguments_shows_a_key(arguments: tuple[Any, ...]) -> None:
    build = launcher.masking(logging.LogRecord, ["abc"])
    record = build("name", logging.INFO, "path", 1, "%d %d %d", arguments, None)
    assert "abc" not in record.getMessage() and launcher.MASK in record.getMessage()
