# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The life of an instance on a real node: deployed, left alone, changed, failed and restored, stopped, removed."""

from __future__ import annotations

import json

import pytest
from node_testing import INSTANCES, Node, tiny

from devnode.steps import Steps

KEY = "k-3f9c1d7e5b2a4886"
_REFERENCE = """
import json, sys, torch, transformers
model = transformers.AutoModelForCausalLM.from_pretrained("/shared/tiny-qwen")
tokenizer = transformers.AutoTokenizer.from_pretrained("/shared/tiny-qwen")
answers = []
for prompt in json.load(sys.stdin):
    inputs = tokenizer(prompt, return_tensors="pt")
    with torch.no_grad():
        out = model.generate(**inputs, do_sample=False, max_new_tokens=24, min_new_tokens=24)
    answers.append(tokenizer.decode(out[0][inputs["input_ids"].shape[1]:], skip_special_tokens=True))
print(json.dumps(answers))
"""
PROMPTS = ["def main(", "import os", "The capital of France is"]


def reference(node: Node) -> list[str]:
    """What transformers generates greedily from the same checkpoint, on the node, in the engine's own venv."""
    python = "/opt/headroom/engines/names/default/venv/bin/python"
    script = f"cat > /tmp/reference.py <<'END'\n{_REFERENCE}\nEND\n"
    text = node.sh(
        script + f"echo {json.dumps(json.dumps(PROMPTS))} | HF_HUB_OFFLINE=1 {python} /tmp/reference.py 2>/dev/null"
    )
    answers: list[str] = json.loads(text)
    return answers


def test_deploy_serves_and_a_second_run_changes_nothing(empty: Node) -> None:
    check = empty.deploy(tiny(), options=["--check", "--diff"])
    assert check.recap("t-server")["changed"] > 0, check.output
    assert "+ExecStart=" in check.output
    assert empty.unit("tiny")["LoadState"] == "not-found", "check mode changed the node"

    first = empty.deploy(tiny())
    assert first.status == 0, first.output
    assert first.recap("t-server")["changed"] == 1, first.output
    for phase in ("starting release", "loading weights", "asking tiny-qwen for 8 tokens", "tiny-qwen serves"):
        assert f"tiny: {phase}" in first.output, first.output
    unit = empty.unit("tiny")
    assert (unit["ActiveState"], unit["UnitFileState"]) == ("active", "enabled")

    for prompt, expected in zip(PROMPTS, reference(empty), strict=True):
        answer = empty.complete("tiny-qwen", prompt, 24)
        assert answer["model"] == "tiny-qwen"
        assert answer["usage"]["completion_tokens"] == 24
        assert answer["choices"][0]["text"] == expected

    for options in ([], ["--check", "--diff"]):
        again = empty.deploy(tiny(), options=options)
        assert again.status == 0
        assert again.recap("t-server")["changed"] == 0, again.output
    assert empty.unit("tiny")["InvocationID"] == unit["InvocationID"], "a run without changes restarted the server"


def test_order_of_settings_causes_no_restart_but_a_value_does(empty: Node) -> None:
    assert empty.deploy(tiny(args={"schedule-policy": "lpm"})).status == 0
    before = empty.unit("tiny")["InvocationID"]
    turned = tiny(args={"schedule-policy": "lpm"})
    turned["args"] = dict(reversed(turned["args"].items()))
    turned["env"] = dict(reversed(turned["env"].items()))
    assert empty.deploy(turned).recap("t-server")["changed"] == 0
    assert empty.unit("tiny")["InvocationID"] == before

    changed = empty.deploy(tiny(args={"schedule-policy": "fcfs"}))
    assert changed.recap("t-server")["changed"] == 1, changed.output
    assert empty.unit("tiny")["InvocationID"] != before
    assert "--schedule-policy fcfs" in empty.sh("systemctl cat sglang-tiny")
    assert len(empty.sh(f"ls {INSTANCES}/tiny/releases").split()) == 2, "the old release is kept"
    assert empty.sh(f"readlink {INSTANCES}/tiny/current") == empty.sh(f"readlink {INSTANCES}/tiny/last_good")


def test_an_update_that_dies_puts_the_old_release_back(empty: Node) -> None:
    assert empty.deploy(tiny()).status == 0
    good = empty.sh(f"readlink {INSTANCES}/tiny/current")
    failed = empty.deploy(tiny(args={"context-length": 1000000}))
    assert failed.status != 0
    assert "start.died" in failed.error, failed.output
    assert "context" in failed.error, "the reason stands in the server's log and belongs into the error"
    assert "serves again" in failed.error
    assert empty.sh(f"readlink {INSTANCES}/tiny/current") == good
    assert empty.unit("tiny")["ActiveState"] == "active"
    assert "--context-length" not in empty.sh("systemctl cat sglang-tiny")
    assert empty.complete("tiny-qwen", "def", 4)["usage"]["completion_tokens"] == 4
    assert empty.deploy(tiny()).recap("t-server")["changed"] == 0


def test_stopped_started_absent_and_purge(empty: Node) -> None:
    assert empty.deploy(tiny()).status == 0
    stop = empty.deploy(tiny(state="stopped"))
    assert stop.recap("t-server")["changed"] == 1, stop.output
    unit = empty.unit("tiny")
    assert (unit["ActiveState"], unit["UnitFileState"]) == ("inactive", "disabled")
    assert empty.deploy(tiny(state="stopped")).recap("t-server")["changed"] == 0

    start = empty.deploy(tiny())
    assert start.recap("t-server")["changed"] == 1, start.output
    unit = empty.unit("tiny")
    assert (unit["ActiveState"], unit["UnitFileState"]) == ("active", "enabled")
    assert len(empty.sh(f"ls {INSTANCES}/tiny/releases").split()) == 1, "the same settings are the same release"

    check = empty.deploy({"name": "tiny", "state": "absent"}, options=["--check", "--diff"])
    assert check.recap("t-server")["changed"] == 1
    assert empty.unit("tiny")["ActiveState"] == "active", "check mode changed the node"
    absent = empty.deploy({"name": "tiny", "state": "absent"})
    assert absent.recap("t-server")["changed"] == 1, absent.output
    assert empty.unit("tiny")["LoadState"] == "not-found"
    assert empty.sh("systemctl list-unit-files 'sglang-*' --no-legend", check=False) == ""
    assert empty.sh(f"ls {INSTANCES}/tiny/releases"), "releases stay until purge"
    assert empty.deploy({"name": "tiny", "state": "absent"}).recap("t-server")["changed"] == 0
    purge = {"name": "tiny", "state": "absent", "purge": True}
    assert empty.deploy(purge).recap("t-server")["changed"] == 1
    assert empty.sh(f"ls {INSTANCES}") == ""
    assert empty.deploy(purge).recap("t-server")["changed"] == 0


def test_two_instances_and_one_that_is_no_longer_listed(empty: Node) -> None:
    both = empty.deploy(tiny("left"), tiny("right", port=30001, served_name="other"))
    assert both.status == 0, both.output
    assert empty.complete("tiny-qwen", "def", 4)["model"] == "tiny-qwen"
    assert empty.complete("other", "def", 4, port=30001)["model"] == "other"
    before = empty.unit("right")["InvocationID"]
    one = empty.deploy(tiny("left"))
    assert one.recap("t-server")["changed"] == 0
    assert "instance.unlisted" in one.output
    assert "'right'" in one.output
    assert empty.unit("right")["InvocationID"] == before, "an instance that is not listed is reported, not touched"
    table = empty.play("playbooks/status.yml").output
    for name, port in (("left", "30000"), ("right", "30001")):
        line = next(line for line in table.splitlines() if line.split()[:1] == [name])
        assert "active (running)" in line
        assert port in line
        assert "4,096" in line
        assert line.split()[-3:] == ["0", "0", "-"], "running and queued requests are known, and nothing was accepted"


def test_a_unit_changed_by_hand_is_repaired_without_a_restart(empty: Node) -> None:
    assert empty.deploy(tiny()).status == 0
    before = empty.unit("tiny")["InvocationID"]
    empty.sh("echo '# a hand was here' >> /etc/systemd/system/sglang-tiny.service; systemctl disable -q sglang-tiny")
    repair = empty.deploy(tiny(), options=["--diff"])
    assert repair.recap("t-server")["changed"] == 1, repair.output
    assert "-# a hand was here" in repair.output
    assert "a hand was here" not in empty.sh("cat /etc/systemd/system/sglang-tiny.service")
    assert empty.unit("tiny")["UnitFileState"] == "enabled"
    assert empty.unit("tiny")["InvocationID"] == before


def test_a_server_that_runs_with_other_settings_is_replaced(empty: Node) -> None:
    assert empty.deploy(tiny()).status == 0
    measured = empty.sh(f"cat {INSTANCES}/tiny/measured/*.json")
    empty.sh(
        "sed -i 's/--max-total-tokens 4096/--max-total-tokens 1024/' /etc/systemd/system/sglang-tiny.service; "
        "systemctl daemon-reload; systemctl restart sglang-tiny"
    )
    run = empty.deploy(tiny())
    assert run.recap("t-server")["changed"] == 1, run.output
    assert "was started with other settings" in run.output
    command = empty.sh("tr '\\0' ' ' < /proc/$(systemctl show -p MainPID --value sglang-tiny)/cmdline")
    assert "--max-total-tokens 4096" in command
    assert (
        json.loads(empty.sh(f"cat {INSTANCES}/tiny/measured/*.json"))["kv_tokens"] == json.loads(measured)["kv_tokens"]
    )
    assert empty.deploy(tiny()).recap("t-server")["changed"] == 0


def test_a_port_is_handed_from_one_instance_to_the_next(empty: Node) -> None:
    assert empty.deploy(tiny("old")).status == 0
    taken = empty.deploy(tiny("old", port=30001), tiny("new"))
    assert "instance 'old'" in taken.error, "who holds the port is named as the user knows it"
    run = empty.deploy(tiny("new"), {"name": "old", "state": "absent", "purge": True})
    assert run.status == 0, run.output
    assert empty.unit("old")["LoadState"] == "not-found"
    assert empty.complete("tiny-qwen", "def", 4)["model"] == "tiny-qwen"


@pytest.mark.full
def test_a_deploy_that_was_killed_leaves_nothing_unseen(empty: Node) -> None:
    assert empty.deploy(tiny()).status == 0
    killer = "while ! systemctl -q is-active sglang-half; do sleep 0.1; done; systemctl kill -s KILL headroom-apply"
    empty.sh(f"systemd-run -q --unit=killer bash -c '{killer}'")
    killed = empty.deploy(tiny(), tiny("half", port=30001))
    assert killed.status != 0
    assert "ended without a result" in killed.error
    run = empty.deploy(tiny())
    assert "instance.unlisted" in run.output and "'half'" in run.output
    assert "half" in empty.play("playbooks/status.yml").output
    again = empty.deploy(tiny(), tiny("half", port=30001))
    assert again.status == 0, again.output
    assert empty.sh("ls /run/systemd/system/sglang-half.service.d", check=False) == "", "no trial is left behind"
    assert empty.unit("half", "Restart")["Restart"] == "on-failure"


def test_a_server_that_crashed_for_good_is_started_again(empty: Node) -> None:
    assert empty.deploy(tiny()).status == 0
    empty.sh("systemctl stop sglang-tiny")
    run = empty.deploy(tiny())
    assert run.recap("t-server")["changed"] == 1, run.output
    assert empty.unit("tiny")["ActiveState"] == "active"


def test_the_key_opens_the_server_and_shows_nowhere(empty: Node) -> None:
    began = empty.sh("date +%s")
    run = empty.deploy(tiny(api_key=KEY), options=["-vvv", "--diff"])
    assert run.status == 0, run.output
    assert KEY not in run.output
    assert empty.complete("tiny-qwen", "def", 4, key=KEY)["usage"]["completion_tokens"] == 4
    refused = empty.sh(
        "python3 -c \"import urllib.request as u; u.urlopen('http://127.0.0.1:30000/v1/models')\" 2>&1 | tail -1",
    )
    assert "401" in refused
    assert empty.deploy(tiny(api_key=KEY), options=["-vvv"]).recap("t-server")["changed"] == 0
    status = empty.play("playbooks/status.yml", None, "-vvv")
    assert "4,096" in status.output
    assert KEY not in status.output
    # The pattern is put together on the node and handed over as a file, so that the search does not find itself.
    half = len(KEY) // 2
    search = f"p={KEY[:half]}; exec 3<<<${{p}}{KEY[half:]}; "
    assert empty.sh(f"{search} journalctl --since @{began} | grep -cFf /dev/fd/3", check=False) == "0"
    seen = empty.sh(f"{search} cat /proc/[0-9]*/cmdline /proc/[0-9]*/environ | grep -acFf /dev/fd/3", check=False)
    assert seen == "0"
    places = "/etc /run /var/lib/headroom /var/lib/sglang /var/log"
    found = empty.sh(f"{search} grep -rlIFf /dev/fd/3 {places}", check=False)
    assert [line.rpartition("/")[2] for line in found.splitlines()] == ["credentials.yaml"]
    assert empty.sh(f"stat -c '%a %U' {found}") == "400 sglang"

    changed = empty.deploy(tiny(api_key=KEY + "x"))
    assert changed.recap("t-server")["changed"] == 1, "another key is another release"
    assert empty.complete("tiny-qwen", "def", 4, key=KEY + "x")["usage"]["completion_tokens"] == 4


@pytest.mark.full
def test_a_deploy_waits_for_a_server_that_systemd_restarts(empty: Node) -> None:
    assert empty.deploy(tiny()).status == 0
    before = empty.unit("tiny")["InvocationID"]
    empty.sh("kill -9 $(systemctl show -p MainPID --value sglang-tiny)")
    run = empty.deploy(tiny())
    assert run.status == 0, run.output
    assert run.recap("t-server")["changed"] == 0, "waiting and verifying change nothing"
    unit = empty.unit("tiny")
    assert unit["ActiveState"] == "active"
    assert unit["InvocationID"] != before
    assert empty.complete("tiny-qwen", "def", 4)["usage"]["completion_tokens"] == 4


@pytest.mark.full
def test_the_server_comes_back_after_a_reboot(empty: Node, steps: Steps) -> None:
    assert empty.deploy(tiny()).status == 0
    empty.reboot(steps)
    run = empty.deploy(tiny())
    assert run.status == 0, run.output
    assert run.recap("t-server")["changed"] == 0
    assert empty.complete("tiny-qwen", "def", 4)["usage"]["completion_tokens"] == 4
