# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Any text reaches a process through a unit as it was meant: proved by systemd itself, on random text."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from conftest import MakeNode
from node_code import lay_collection
from node_testing import Node

from ansible_collections.headroom.serving.plugins.module_utils import unit_file

SPECIAL = (
    [chr(code) for code in range(1, 128)]
    + [chr(code) for code in range(0x80, 0xA1)]
    + list("éß日本\u2028\u2029\u200b\ufeff\ufffd\ufdcf\ufdf0")
    + [
        "\U0001f600",
        "\U0010fffd",
        "\\",
        "\\",
        '"',
        '"',
        "'",
        "%",
        "%",
        "$",
        "$",
        "${",
        "%%",
        "$$",
        "\n",
        " ",
        ";",
        "#",
        "\t",
        "\r",
    ]
)
# Arguments carry them, variables do not.
NO_VARIABLE = ["\ufdd0", "\ufdef", "\ufffe", "\uffff", "\U0001fffe", "\U0010ffff", "\udc80", "\udcff"]
TRAPS = [
    "", " ", "$NOPE", "${NOPE}", "$$", "$(id)", "%n", "%%n", "%", "\\x25n", "\\x24HOME", "\\", "\\\\", '"', '""', "'",
    "\n", "a\nb", "\r\n",
    ";", "\\;", "#", "-", "--", "@", "+", "!", ":", "|", "~", "*", "{a,b}", "a=b", "=", "[Service]",
    "\n[Service]\nExecStart=/bin/false",
    "x\\", "\\\n", "\x01", "\x1b[0m", "\x7f", "\u0085", "\u2028", "é", "日本", "\U0001f600", "a" * 2000, "%" * 50,
    "$" * 50, "\\" * 50,
    '{"rope_scaling": {"type": "yarn", "factor": 2.0}}', "--api-key", "-1", "0.88", "/shared/my models/50% \"x\"",
    "true", "$HOME/x", "`id`",
]  # fmt: skip
DUMP = """
import json, os, sys
with open(sys.argv[1], "w") as out:
    json.dump({"arguments": [os.fsencode(item).hex() for item in sys.argv[2:]],
               "environment": {name.decode("latin-1"): value.hex() for name, value in os.environb.items()}}, out)
"""
SETUP = """
import json, os, pathlib, subprocess, sys
sys.path.insert(0, "/root/collection.zip")
from ansible_collections.headroom.serving.plugins.module_utils import unit_file, unit_policy
work = json.loads({work!r})
folder = pathlib.Path("/var/lib/text"); folder.mkdir(exist_ok=True); os.chmod(folder, 0o777)
(folder / "dump.py").write_text({dump!r})
names = []
for index, (arguments, environment) in enumerate(work):
    argv = ["/usr/bin/python3", str(folder / "dump.py"), str(folder / f"{{index}}.json"), *arguments]
    if {whole!r}:
        text = unit_policy.render(unit_policy.UnitInputs(f"text{{index}}", argv, ["/bin/true"], environment, "nobody",
        str(folder), "/"))
        text = text.replace("Type=exec", "Type=oneshot").replace("Restart=on-failure", "Restart=no")
        text = text.replace("RestartForceExitStatus=137 SIGKILL", "RestartForceExitStatus=")
    else:
        lines = [("Type", "oneshot"), *(("Environment", unit_file.environment(*item)) for item in environment.items())]
        lines.append(("ExecStart", " ".join(unit_file.exec_word(word) for word in argv)))
        text = unit_file.render("text", [("Service", lines)])
    names.append(f"text{{index}}.service")
    path = pathlib.Path("/run/systemd/system") / names[-1]
    path.write_text(text, encoding="utf-8", errors="surrogateescape")
subprocess.run(["systemctl", "daemon-reload"], check=True)
failed = subprocess.run(["systemctl", "start", *names], capture_output=True, text=True).stderr
found = [json.loads((folder / f"{{index}}.json").read_text()) for index in range(len(work)) if not failed]
subprocess.run(["rm", "-r", str(folder)])
for name in names:
    os.unlink(pathlib.Path("/run/systemd/system") / name)
print(json.dumps([failed, found]))
"""


@pytest.fixture(scope="module")
def host(make_node: MakeNode, bare_image: str, tmp_path_factory: pytest.TempPathFactory) -> Node:
    """A bare node with the collection's code."""
    node = make_node("t-text", bare_image)
    lay_collection(node, tmp_path_factory.mktemp("code") / "collection.zip", "/root/collection.zip")
    return node


def random_texts(count: int, more: list[str], seed: int) -> list[str]:
    generator = random.Random(seed)
    pool = SPECIAL + more
    return ["".join(generator.choices(pool, k=generator.randint(0, 40))) for _text in range(count)]


def through_systemd(host: Node, work: list[tuple[list[str], dict[str, str]]], whole: bool = False) -> list[Any]:
    """Return what the processes of one unit for each item of `work` were given."""
    failed, found = host.python(SETUP.format(work=json.dumps(work), dump=DUMP, whole=whole))
    assert failed == ""
    assert len(found) == len(work)
    return list(found)


def compare(work: list[tuple[list[str], dict[str, str]]], found: list[Any]) -> None:
    for (arguments, environment), got in zip(work, found, strict=True):
        for wanted, item in zip(arguments, got["arguments"], strict=True):
            assert bytes.fromhex(item) == wanted.encode("utf-8", "surrogateescape")
        for name, value in environment.items():
            assert bytes.fromhex(got["environment"][name]) == value.encode("utf-8")


def batches(arguments: list[str], values: list[str], size: int) -> list[tuple[list[str], dict[str, str]]]:
    return [
        (
            arguments[start : start + size],
            {f"V{index}": value for index, value in enumerate(values[start : start + size])},
        )
        for start in range(0, len(arguments), size)
    ]


def test_random_text(host: Node) -> None:
    arguments = random_texts(300, NO_VARIABLE, 1)
    values = random_texts(300, [], 2)
    assert all(unit_file.is_carried_by_environment(value) for value in values)
    work = batches(arguments, values, 30)
    compare(work, through_systemd(host, work))


def test_text_that_traps(host: Node) -> None:
    work = batches(TRAPS, TRAPS, 20)
    compare(work, through_systemd(host, work))


def test_a_whole_unit_as_instances_have_it(host: Node) -> None:
    texts = [item for pair in zip(random_texts(60, NO_VARIABLE, 3), ["--flag"] * 60, strict=True) for item in pair]
    work = batches([*texts, *TRAPS], [*random_texts(120, [], 4), *TRAPS], 60)
    compare(work, through_systemd(host, work, whole=True))


def test_what_variables_do_not_carry_is_what_systemd_drops(host: Node) -> None:
    carried = ["\n", "\t", "\x01", "\x7f", "\u0085", "\ufdcf", "\ufdf0", "\ufffd", "\U0001fffd", "\U0010fffd", "é"]
    values = [f"a{text}b" for text in [*NO_VARIABLE, *carried]]
    (got,) = through_systemd(host, [([], {f"V{index}": value for index, value in enumerate(values)})])
    there = [f"V{index}" in got["environment"] for index in range(len(values))]
    assert there == [unit_file.is_carried_by_environment(value) for value in values]
    assert there == [False] * len(NO_VARIABLE) + [True] * len(carried)


def test_the_longest_argument(host: Node) -> None:
    text = "é" * 65_535 + "x"
    work = [([text], {"V": "y" * 100_000})]
    compare(work, through_systemd(host, work))
