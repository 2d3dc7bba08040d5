# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The instances of a node together: every wrong input is one finding with setting, value and cure, secrets never."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.headroom.serving.plugins.module_utils import instances
from ansible_collections.headroom.serving.plugins.module_utils.instances import Instance

SECRET = "s3cr3t-0123456789"


def entry(**changes: Any) -> dict[str, Any]:
    return {"name": "a", "model_path": "/shared/model", **changes}


def only_finding(**changes: Any) -> Any:
    wanted, found = instances.normalise([entry(**changes)])
    assert len(found) == 1, found
    assert wanted == []
    line = found[0].line()
    assert "\n" not in line and line.startswith("sglang_server_instances[0]")
    assert found[0].verdict == "refuse" and found[0].suggestion
    return found[0]


def test_defaults() -> None:
    (instance,), found = instances.normalise([entry()])
    assert found == []
    assert instance == Instance(name="a", model_path="/shared/model", served_name="model")
    assert (instance.state, instance.engine, instance.port, instance.host) == ("started", "default", 30000, "127.0.0.1")
    assert (instance.gpus, instance.start_timeout_s, instance.purge) == (None, 0, False)


def test_settings_that_were_left_out_of_a_module_are_none() -> None:
    nothing = dict.fromkeys(
        ("state", "served_name", "engine", "args", "env", "port", "host", "gpus", "api_key", "admin_api_key", "purge",
         "allow_unauthenticated", "start_timeout_s")
    )  # fmt: skip
    assert instances.normalise([entry(**nothing)]) == instances.normalise([entry()])


@pytest.mark.parametrize(
    ("changes", "key", "value"),
    [
        ({"model_path": "/shared/model/"}, "served_name", "model"),
        ({"model_path": "/shared/model///"}, "model_path", "/shared/model"),
        ({"model_path": "/m"}, "served_name", "m"),
        ({"served_name": "org/Name-1.5"}, "served_name", "org/Name-1.5"),
        ({"served_name": ""}, "served_name", "model"),
        ({"port": "8000"}, "port", 8000),
        ({"port": 1}, "port", 1),
        ({"port": 65535}, "port", 65535),
        ({"gpus": []}, "gpus", ()),
        ({"gpus": [0]}, "gpus", (0,)),
        ({"gpus": [3, 1]}, "gpus", (3, 1)),
        ({"gpus": ["0", "1"]}, "gpus", (0, 1)),
        ({"env": {"A": 1, "B": 2.5, "C": "x y", "D": ""}}, "env", {"A": "1", "B": "2.5", "C": "x y", "D": ""}),
        ({"start_timeout_s": 1}, "start_timeout_s", 1),
        ({"api_key": "abcDEF123-._~+/=="}, "api_key", "abcDEF123-._~+/=="),
        ({"host": "localhost"}, "host", "localhost"),
        ({"host": "127.0.0.53"}, "host", "127.0.0.53"),
        ({"host": "::1"}, "host", "::1"),
        ({"host": "0.0.0.0", "api_key": "k"}, "host", "0.0.0.0"),
        ({"host": "0.0.0.0", "allow_unauthenticated": True}, "host", "0.0.0.0"),
        ({"host": "::", "api_key": "k"}, "host", "::"),
        ({"name": "0"}, "name", "0"),
        ({"name": "a-b_c9"}, "name", "a-b_c9"),
        ({"name": "a" * 63}, "name", "a" * 63),
        ({"args": {"is-embedding": True}}, "is_embedding", True),
        ({"args": {"is-embedding": False}}, "is_embedding", False),
        ({"args": {"is-embedding": "true"}}, "is_embedding", False),
    ],
)
def test_takes(changes: dict[str, Any], key: str, value: Any) -> None:
    (instance,), found = instances.normalise([entry(**changes)])
    assert found == []
    assert getattr(instance, key) == value


@pytest.mark.parametrize(
    "name",
    [
        "",
        "A",
        "Qwen",
        "-a",
        "_a",
        "a.b",
        "a b",
        "a/b",
        "../a",
        "a@b",
        "a\n",
        "ä",
        "a" * 64,
        "a\0",
        "a%i",
        None,
        5,
        ["a"],
        {},
    ],
)
def test_a_name_that_no_unit_can_have(name: Any) -> None:
    item = only_finding(name=name)
    assert item.id == "settings.invalid"
    assert item.message == f"sglang_server_instances[0].name {name!r} can't name an instance."
    assert "lower-case letters" in item.suggestion


@pytest.mark.parametrize("path", ["", None])
def test_no_model(path: Any) -> None:
    item = only_finding(model_path=path)
    assert (item.id, item.message) == ("settings.invalid", "sglang_server_instances[0] (a) has no model_path.")


@pytest.mark.parametrize("port", [0, -1, 65536, 70000, 300000, "0", "-5"])
def test_what_is_no_port(port: Any) -> None:
    item = only_finding(port=port)
    assert item.id == "settings.invalid"
    assert f"(a).port {port} is no TCP port" in item.message


@pytest.mark.parametrize("limit", [0, -1, -600, "0"])
def test_what_is_no_time(limit: Any) -> None:
    item = only_finding(start_timeout_s=limit)
    assert item.id == "settings.invalid"
    assert f"(a).start_timeout_s {limit} is no time" in item.message


@pytest.mark.parametrize(
    ("gpus", "reason"),
    [
        ([-1], "has a negative index"),
        ([0, -7], "has a negative index"),
        ([0, 0], "names a GPU twice"),
        ([3, 1, 2, 3], "names a GPU twice"),
    ],
)
def test_gpus_that_are_none(gpus: list[int], reason: str) -> None:
    item = only_finding(gpus=gpus)
    assert (item.id, item.message) == ("settings.invalid", f"sglang_server_instances[0] (a).gpus {gpus!r} {reason}.")


@pytest.mark.parametrize("key", ["model_path", "served_name", "host"])
@pytest.mark.parametrize("text", ["/a\nb", "/a\0b", "/a\n", "\n/a"])
def test_text_that_no_line_can_hold(key: str, text: str) -> None:
    changes = {key: text, "allow_unauthenticated": True}
    item = only_finding(**changes)
    assert item.id == "settings.invalid"
    assert f"(a).{key} holds a line end or NUL" in item.message


@pytest.mark.parametrize(
    "host", ["0.0.0.0", "::", "10.0.0.1", "192.168.1.7", "fd00::1", "node1", "example.org", "128.0.0.1", "node1."]
)
@pytest.mark.parametrize("key", [None, ""])
def test_open_to_the_network_without_a_key(host: str, key: Any) -> None:
    item = only_finding(host=host, api_key=key)
    assert item.id == "instance.unauthenticated"
    assert f"(a).host {host} opens the server to the network" in item.message
    assert "allow_unauthenticated: true" in item.suggestion


@pytest.mark.parametrize(
    "host", ["not a host", "[::1]", "256.1.1.1", "1.2.3", "-a", "a-.b", "a..b", "node_1", "http://a", "a/b"]
)
@pytest.mark.parametrize("allowed", [True, False])
def test_a_host_that_is_none(host: str, allowed: bool) -> None:
    item = only_finding(host=host, allow_unauthenticated=allowed)
    assert item.id == "settings.invalid"
    assert f"(a).host {host!r} is no address" in item.message


def test_a_key_for_administration_alone_does_not_close_the_server() -> None:
    assert only_finding(host="0.0.0.0", admin_api_key="k").id == "instance.unauthenticated"


@pytest.mark.parametrize("key", ["api_key", "admin_api_key"])
@pytest.mark.parametrize(
    "text", [" ", "a b", "a\n", "ä", "a\0", 'a"b', "a'b", "a\\b", "a,b", "a:b", "=a", "a=b", "a$b", "日本", "a\t"]
)
def test_a_key_that_no_bearer_token_can_be(key: str, text: str) -> None:
    item = only_finding(**{key: text + SECRET})
    assert item.id == "settings.invalid"
    assert item.message == f"sglang_server_instances[0] (a).{key} has characters that a bearer token can't have."
    assert "openssl rand" in item.suggestion
    assert SECRET not in item.line()


@pytest.mark.parametrize("name", ["", "1A", "A-B", "A B", "A=B", "Ä", "A\n", "A.B", "$A"])
def test_what_can_name_no_variable(name: str) -> None:
    item = only_finding(env={name: "x"})
    assert (item.id, item.suggestion) == ("settings.invalid", "Use letters, digits and '_'.")
    assert repr(name) in item.message


@pytest.mark.parametrize(
    ("name", "cure"),
    [("CUDA_VISIBLE_DEVICES", "Set the instance's 'gpus' instead."), ("HOME", "The unit sets it: remove it.")],
)
def test_a_variable_that_follows_from_other_settings(name: str, cure: str) -> None:
    item = only_finding(env={name: "0"})
    assert (item.id, item.suggestion) == ("instance.reserved_flag", cure)
    assert f"(a).env.{name} " in item.message


@pytest.mark.parametrize("value", [True, False, None, [], ["x"], {}, {"a": 1}])
def test_a_variable_that_is_no_text(value: Any) -> None:
    item = only_finding(env={"NCCL_DEBUG": value})
    assert item.id == "settings.invalid"
    assert f"(a).env.NCCL_DEBUG is {value!r}, not text or a number" in item.message


@pytest.mark.parametrize(
    "value", ["a\0b", "\0", "\ud800", "\udcff", "\ufffe", "\uffff", "\ufdd0", "\ufdef", "\U0010ffff", "\U0001fffe"]
)
def test_a_variable_that_systemd_would_drop(value: str) -> None:
    item = only_finding(env={"A": f"x{value}y"})
    assert item.id == "settings.invalid"
    assert "(a).env.A holds a NUL, half a character or a noncharacter" in item.message


@pytest.mark.parametrize(
    "value",
    [
        "a\nb",
        "\t",
        "\x01\x7f",
        "\x85",
        "é",
        "\u2028",
        "\ufdcf",
        "\ufdf0",
        "\ufffd",
        "\U0001fffd",
        "%n $HOME",
        '"',
        "\\",
    ],
)
def test_variables_that_systemd_carries(value: str) -> None:
    (instance,), found = instances.normalise([entry(env={"A": value})])
    assert found == []
    assert instance.env["A"] == value


@pytest.mark.parametrize(
    "name",
    [
        "HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "TOKEN", "OPENAI_API_KEY", "API_KEY", "APIKEY", "MY_APIKEY",
        "SGLANG_API_KEY",
        "AWS_SECRET_ACCESS_KEY", "SECRET", "CLIENT_SECRET", "PASSWORD", "DB_PASSWORD", "PGPASSWORD", "PASSWD",
        "hf_token",
        "PRIVATE_KEY", "SECRET_KEY", "MINIO_SECRET_KEY", "AUTH_KEY", "ENCRYPTION_KEY", "KEY_PASSPHRASE", "Db_Password",
    ],
)  # fmt: skip
@pytest.mark.parametrize("value", [SECRET, [SECRET], {"x": SECRET}, SECRET + "\0"])
def test_a_secret_in_the_environment_is_refused_and_not_shown(name: str, value: Any) -> None:
    item = only_finding(env={name: value})
    assert item.id == "instance.secret_in_clear"
    assert f"(a).env.{name} " in item.message
    assert SECRET not in item.line()


@pytest.mark.parametrize(
    "name",
    [
        "NCCL_PROTO", "SGLANG_MAX_TOKENS", "TOKENIZERS_PARALLELISM", "TOKENIZER", "KEYBOARD", "SECRETS_DIR", "PATH",
        "LD_LIBRARY_PATH",
        "TORCHINDUCTOR_FUSION_PASS", "MONKEY", "CACHE_KEY", "_", "a1", "AWS_ACCESS_KEY_ID", "COMPAT",
    ],
)  # fmt: skip
def test_other_variables_are_no_secrets(name: str) -> None:
    assert instances.normalise([entry(env={name: "x"})])[1] == []


@pytest.mark.parametrize(
    "changes",
    [
        {"api_key": SECRET},
        {"admin_api_key": SECRET},
        {"api_key": SECRET + " "},
        {"admin_api_key": SECRET + "ä"},
        {"args": {"api-key": SECRET}},
        {"args": {"api_key": SECRET}},
        {"args": {"--api-key": SECRET}},
        {"args": {"api-k": SECRET}},
        {"args": {"admin-api-key": SECRET}},
        {"args": {"admin_api_key": [SECRET]}},
        {"args": {"ssl-keyfile-password": SECRET}},
        {"env": {"HF_TOKEN": SECRET}},
        {"env": {"DB_PASSWORD": SECRET}},
        {"env": {"SGLANG_API_KEY": {"nested": SECRET}}},
    ],
    ids=str,
)
def test_no_message_ever_shows_a_secret(changes: dict[str, Any]) -> None:
    # Beside it everything else is wrong too, so that every message there is gets its chance.
    wrong = {"name": "a", "model_path": "", "port": 0, "gpus": [-1], "host": "10.0.0.1\n", "start_timeout_s": -1}
    for first in ({**entry(), **changes}, {**wrong, **changes}, {**wrong, "name": "A", **changes}):
        for second in (first, {**first, "name": "b"}, entry(name="c")):
            wanted, found = instances.normalise([first, second])
            shown = " ".join([*(item.line() for item in found), *(str(item.as_dict()) for item in found)])
            assert SECRET not in shown
            assert SECRET not in repr([instance for instance in wanted if not changes.get("args")])


def test_keys_are_no_part_of_what_an_instance_shows() -> None:
    (instance,), found = instances.normalise([entry(api_key=SECRET, admin_api_key=SECRET[::-1])])
    assert found == []
    assert (instance.api_key, instance.admin_api_key) == (SECRET, SECRET[::-1])
    for text in (repr(instance), str(instance), f"{instance}"):
        assert SECRET not in text and SECRET[::-1] not in text


@pytest.mark.parametrize("state", ["stopped", "absent"])
def test_what_does_not_run_needs_only_a_name(state: str) -> None:
    wanted, found = instances.normalise([{"name": "a", "state": state}])
    assert found == []
    assert [(item.name, item.state) for item in wanted] == [("a", state)]


@pytest.mark.parametrize("state", ["stopped", "absent"])
def test_what_does_not_run_still_needs_a_good_name(state: str) -> None:
    wanted, found = instances.normalise([{"name": "../a", "state": state}])
    assert wanted == []
    assert [item.id for item in found] == ["settings.invalid"]


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        pytest.param([("a", 1, "started"), ("b", 2, "started")], [], id="different"),
        pytest.param([("a", 1, "started"), ("a", 2, "started")], [("instance.name_duplicate", 1, 0)], id="one name"),
        pytest.param(
            [("a", 1, "started"), ("a", 1, "started")], [("instance.name_duplicate", 1, 0)], id="the same twice"
        ),
        pytest.param(
            [("a", 1, "started"), ("b", 2, "started"), ("a", 3, "absent")],
            [("instance.name_duplicate", 2, 0)],
            id="absent too",
        ),
        pytest.param([("a", 1, "started"), ("b", 1, "started")], [("instance.port_duplicate", 1, 0)], id="one port"),
        pytest.param(
            [("a", None, "started"), ("b", None, "started")], [("instance.port_duplicate", 1, 0)], id="default port"
        ),
        pytest.param(
            [("a", None, "started"), ("b", 30000, "started")], [("instance.port_duplicate", 1, 0)], id="named default"
        ),
        pytest.param(
            [("a", 1, "started"), ("b", "1", "started")], [("instance.port_duplicate", 1, 0)], id="text and number"
        ),
        pytest.param([("a", 1, "stopped"), ("b", 1, "started")], [], id="one of them stopped"),
        pytest.param([("a", 1, "started"), ("b", 1, "absent")], [], id="one of them absent"),
        pytest.param([("a", 1, None), ("b", 1, None)], [("instance.port_duplicate", 1, 0)], id="started by default"),
        pytest.param(
            [("a", 1, "started"), ("b", 1, "started"), ("c", 1, "started")],
            [("instance.port_duplicate", 1, 0), ("instance.port_duplicate", 2, 0)],
            id="three on one port",
        ),
        pytest.param(
            [("a", 65535, "started"), ("b", 65535, "started")], [("instance.port_duplicate", 1, 0)], id="the last port"
        ),
    ],
)
def test_collisions(entries: list[tuple[str, Any, str]], expected: list[tuple[str, int, int]]) -> None:
    given = [entry(name=name, port=port, state=state, gpus=[]) for name, port, state in entries]
    _wanted, found = instances.normalise(given)
    assert [item.id for item in found] == [kind for kind, _second, _first in expected]
    for item, (_kind, second, first) in zip(found, expected, strict=True):
        assert item.message.startswith(f"sglang_server_instances[{second}]")
        assert f"is taken by sglang_server_instances[{first}]" in item.message
        assert item.suggestion


@pytest.mark.parametrize(
    ("ports", "free"),
    [
        ([30000, 30000], 30001), ([30000, 30000, 30001], 30002), ([30000, 30001, 30000], 30002), ([65535, 65535], 1024),
        ([65534, 65535, 65534], 1024), ([65535, 1024, 65535], 1025), ([1, 1], 2),
    ],
)  # fmt: skip
def test_a_port_is_proposed_that_no_instance_has(ports: list[int], free: int) -> None:
    given = [entry(name=f"n{index}", port=port, gpus=[index]) for index, port in enumerate(ports)]
    _wanted, found = instances.normalise(given)
    assert [item.suggestion for item in found] == [f"{free} is used by no instance of this node."]


def test_ports_that_are_none_and_the_same() -> None:
    _wanted, found = instances.normalise([entry(name="a", port=70000, gpus=[0]), entry(name="b", port=70000, gpus=[1])])
    assert [item.id for item in found] == ["settings.invalid", "settings.invalid", "instance.port_duplicate"]


def test_names_that_are_none_and_the_same_are_not_also_duplicates() -> None:
    _wanted, found = instances.normalise([entry(name="A", port=1), entry(name="A", port=2)])
    assert [item.id for item in found] == ["settings.invalid", "settings.invalid"]


def test_each_finding_names_its_entry_and_good_ones_are_kept() -> None:
    bad = [entry(name="b", port=0, gpus=[1]), entry(name="c", port=3, model_path="", gpus=[2])]
    wanted, found = instances.normalise([entry(gpus=[0]), *bad])
    assert [item.name for item in wanted] == ["a"]
    assert [item.message.split(".")[0].split(" has")[0] for item in found] == [
        "sglang_server_instances[1] (b)",
        "sglang_server_instances[2] (c)",
    ]


def test_everything_that_is_wrong_is_told_at_once() -> None:
    _wanted, found = instances.normalise(
        [entry(model_path="", port=0, gpus=[-1], env={"1": "x"}, args={"a_b": 1}, host="0.0.0.0", start_timeout_s=-1)]
    )
    assert len(found) == 7


def test_no_instances_at_all() -> None:
    assert instances.normalise([]) == ([], [])


CPU = {"device": "cpu"}


@pytest.mark.parametrize(
    ("first", "second", "shared"),
    [
        pytest.param({}, {}, "may use all", id="neither says which"),
        pytest.param({"gpus": [0]}, {}, "may use all", id="one may use all"),
        pytest.param({"gpus": [0, 1]}, {"gpus": [1, 2]}, "[1]", id="one in common"),
        pytest.param({"gpus": ["0", "1"]}, {"gpus": [1]}, "[1]", id="as text"),
        pytest.param({"gpus": [0, 1]}, {"gpus": [2, 3]}, "", id="none in common"),
        pytest.param({"gpus": []}, {}, "", id="one uses none"),
        pytest.param({"args": CPU}, {}, "", id="one runs on the CPU"),
        pytest.param({"args": CPU}, {"args": CPU}, "", id="both run on the CPU"),
        pytest.param({"state": "stopped"}, {}, "", id="one does not run"),
        pytest.param({}, {"state": "absent"}, "", id="one goes away"),
    ],
)
def test_instances_that_share_gpus(first: dict[str, Any], second: dict[str, Any], shared: str) -> None:
    given = [entry(name="a", port=1001, **first), entry(name="b", port=1002, **second)]
    _wanted, found = instances.normalise(given)
    assert [item.id for item in found] == (["instance.gpu_shared"] if shared else [])
    for item in found:
        assert item.verdict == "warn", "whether both fit is a question of their sizes"
        assert shared in item.message
        assert "(a)" in item.message and "(b)" in item.message
