"""The production example loads, is accepted, fits its host, and says why each of its settings is as it is."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.headroom.serving.plugins.module_utils import instances, runtime_settings, settings_check
from ansible_collections.headroom.serving.plugins.module_utils.instances import Instance

ROOT = Path(__file__).resolve().parents[2]
INVENTORY = ROOT / "inventory" / "blackwell"
ROLES = ("sglang_runtime", "sglang_server")

# The case: what the host has free, what SGLang leaves to it, and the model's size there.
HOST_BYTES = 408 * 10**9
RESERVE_BYTES = 10 * 2**30
BYTES_PER_TOKEN = (512 + 64) * 61 * 2
DEVICE_TOKENS = 159_489
CONTEXT = 262_144


@pytest.fixture(scope="module")
def variables() -> dict[str, dict[str, Any]]:
    """Return the variables of each host, as Ansible reads them."""
    command = [str(Path(sys.executable).parent / "ansible-inventory"), "-i", str(INVENTORY), "--list"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    listing = json.loads(done.stdout)
    hosts: dict[str, dict[str, Any]] = listing["_meta"]["hostvars"]
    assert sorted(listing["sglang"]["hosts"]) == sorted(hosts)
    return hosts


@pytest.fixture(scope="module")
def instance(variables: dict[str, dict[str, Any]]) -> Instance:
    found, findings = instances.normalise(variables["blackwell-1"]["sglang_server_instances"])
    assert findings == []
    (only,) = found
    return only


def _options(role: str) -> dict[str, Any]:
    text = (ROOT / "roles" / role / "meta" / "argument_specs.yml").read_text(encoding="utf-8")
    options: dict[str, Any] = yaml.safe_load(text)["argument_specs"]["main"]["options"]
    return options


def test_the_hosts_have_the_same_settings_and_their_own_addresses(variables: dict[str, dict[str, Any]]) -> None:
    assert len(variables) == 2
    assert len({host["ansible_host"] for host in variables.values()}) == 2
    first, second = (
        {key: value for key, value in host.items() if key != "ansible_host"} for host in variables.values()
    )
    assert first == second


@pytest.mark.parametrize("role", ROLES)
def test_the_roles_accept_every_setting(variables: dict[str, dict[str, Any]], role: str) -> None:
    options = _options(role)
    given = {name: value for name, value in variables["blackwell-1"].items() if name.startswith(f"{role}_")}
    assert given
    findings = settings_check.unknown_variables(f"{role}_", list(options), list(given))
    for name, value in given.items():
        findings += settings_check.check(name, options[name], value)
    assert findings == []


def test_the_engine_is_one_that_the_role_brings(variables: dict[str, dict[str, Any]], instance: Instance) -> None:
    engines = runtime_settings.normalise_engines(variables["blackwell-1"]["sglang_runtime_engines"], "engines")
    assert instance.engine in {engine["name"] for engine in engines}
    for engine in engines:
        assert (ROOT / "roles" / "sglang_runtime" / "files" / engine["lock"]).is_file()


def test_flags_and_variables_have_the_shape_of_flags_and_variables(instance: Instance) -> None:
    for flag, value in instance.args.items():
        assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", flag), flag
        # No flag of SGLang takes a literal `false`, and one that is off need not be named.
        assert value is True or (isinstance(value, (str, int, float)) and not isinstance(value, bool)), flag
    for name, value in instance.env.items():
        assert re.fullmatch(r"[A-Z][A-Z0-9_]*", name), name
        assert value not in ("True", "False"), name


def test_only_the_host_itself_may_ask(instance: Instance) -> None:
    assert instance.host == "127.0.0.1"
    assert instance.api_key == ""


def test_each_rank_has_a_gpu(instance: Instance) -> None:
    assert instance.gpus is not None
    assert len(instance.gpus) == instance.args["tp-size"] == 8


def test_the_host_tier_is_certain_to_fit(instance: Instance) -> None:
    ranks = instance.args["tp-size"]
    per_rank = instance.args["hicache-size"] * 10**9
    assert ranks * per_rank < HOST_BYTES - RESERVE_BYTES
    # 0.5.23 divides what is free by the ranks, and the last rank may look when all others have allocated.
    assert per_rank <= (HOST_BYTES - RESERVE_BYTES - (ranks - 1) * per_rank) / ranks
    # The next gigabyte would not be certain, so nothing is given away.
    more = per_rank + 10**9
    assert more > (HOST_BYTES - RESERVE_BYTES - (ranks - 1) * more) / ranks


def test_the_host_tier_holds_more_than_the_gpus(instance: Instance) -> None:
    assert instance.args["enable-hierarchical-cache"] is True
    assert instance.args["hicache-size"] * 10**9 // BYTES_PER_TOKEN > DEVICE_TOKENS


def test_the_gpus_keep_the_reserve_that_the_engine_asks_for(instance: Instance) -> None:
    table = (instance.args["max-running-requests"] + 1) * (CONTEXT + 4) * 4
    free_before_load = 93.6 * 2**30
    assert free_before_load * (1 - instance.args["mem-fraction-static"]) - table >= 10 * 2**30
    assert instance.args["cuda-graph-max-bs-decode"] <= instance.args["max-running-requests"]
    assert instance.args["kv-cache-dtype"] == "bf16"


def test_figures_in_the_comments_are_those_of_the_settings(instance: Instance) -> None:
    text = (INVENTORY / "group_vars" / "sglang.yml").read_text(encoding="utf-8")
    size, ranks = instance.args["hicache-size"], instance.args["tp-size"]
    assert f"{size} is {size * ranks} GB and {size * 10**9 // BYTES_PER_TOKEN:,} tokens" in text
    certain = (HOST_BYTES - RESERVE_BYTES) / (2 * ranks - 1) / 10**9
    assert f"(408 - 10.7) / (2 x 8 - 1) = {int(certain * 10) / 10}" in text


def settings_without_a_reason(text: str) -> list[str]:
    """Return the lines of a YAML text that set something and have no comment behind them."""
    return [
        line
        for line in text.splitlines()
        if line.strip() and line.strip() != "---" and not line.lstrip().startswith("#") and " # " not in line
    ]


@pytest.mark.parametrize("file", ["hosts.yml", "group_vars/sglang.yml"])
def test_every_setting_says_why(file: str) -> None:
    bare = settings_without_a_reason((INVENTORY / file).read_text(encoding="utf-8"))
    structure = {"  hosts:", "  vars:"} if file == "hosts.yml" else set()
    assert [line for line in bare if line not in structure] == []


def test_a_setting_without_a_reason_is_seen() -> None:
    assert settings_without_a_reason("---\n# x\na: 1  # why\nb: 2\n\n  - c: '#'\n") == ["b: 2", "  - c: '#'"]
