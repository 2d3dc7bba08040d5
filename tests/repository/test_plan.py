"""plan.yml without any host: in a fresh clone and as an installed collection, with good input and with bad."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

BIN = Path(sys.executable).parent
ROOT = Path(__file__).resolve().parents[2]
NODES = ("blackwell-1", "blackwell-2")
# Whatever used the connection would end with this program's absence.
NO_CONNECTION = ("--extra-vars", "ansible_ssh_executable=/nonexistent")
CleanEnv = Callable[[Path], dict[str, str]]


@dataclass(frozen=True)
class Run:
    """What a run of the playbook said."""

    status: int
    text: str

    def recap(self, node: str) -> dict[str, int]:
        line = re.search(rf"^{re.escape(node)} +: (.*)$", self.text, re.MULTILINE)
        assert line is not None, self.text
        return {name: int(count) for name, count in re.findall(r"(\w+)=(\d+)", line[1])}


class Planner:
    """Runs plan.yml in a clone, with an inventory and further variables."""

    def __init__(self, cwd: Path, playbook: str, inventory: str, env: dict[str, str]) -> None:
        self.cwd, self.playbook, self.inventory, self.env = cwd, playbook, inventory, env

    def run(self, *arguments: str, variables: dict[str, Any] | None = None, inventory: str = "") -> Run:
        command = [str(BIN / "ansible-playbook"), self.playbook, "-i", inventory or self.inventory, *NO_CONNECTION]
        more = ["--extra-vars", json.dumps(variables)] if variables else []
        done = subprocess.run(
            [*command, *more, *arguments], cwd=self.cwd, env=self.env, capture_output=True, text=True, check=False
        )
        return Run(done.returncode, done.stdout + done.stderr)


@pytest.fixture
def planner(clone: Path, tmp_path: Path, clean_env: CleanEnv) -> Planner:
    return Planner(clone, "playbooks/plan.yml", "inventory/blackwell", clean_env(tmp_path))


def changed_instances(**changes: Any) -> dict[str, Any]:
    """Return the example's instances with some flags set otherwise."""
    text = (ROOT / "inventory/blackwell/group_vars/sglang.yml").read_text(encoding="utf-8")
    instances = yaml.safe_load(text)["sglang_server_instances"]
    instances[0]["args"].update({name.replace("_", "-"): value for name, value in changes.items()})
    return {"sglang_server_instances": instances}


@pytest.mark.parametrize("mode", [(), ("--check",)])
def test_the_example_is_planned_without_its_hosts(planner: Planner, mode: tuple[str, ...]) -> None:
    done = planner.run("-e", "plan_offline=true", *mode)
    assert done.status == 0, done.text
    assert "WARNING" not in done.text
    for node in NODES:
        recap = done.recap(node)
        assert (recap["changed"], recap["failed"], recap["unreachable"]) == (0, 0, 0)
        verdict = re.search(rf"^{node}: kimi, SGLang 0\.5\.23: (\w+)$", done.text, re.MULTILINE)
        assert verdict is not None and verdict[1] in ("ok", "warn"), done.text
    for source in ("hardware  record records/blackwell/hardware.json", "model     record records/blackwell/model.json"):
        assert done.text.count(source) == len(NODES)


def test_the_installed_collection_plans_the_same(
    planner: Planner, installed: Path, tmp_path: Path, clean_env: CleanEnv
) -> None:
    env = {**clean_env(tmp_path), "ANSIBLE_COLLECTIONS_PATH": str(installed)}
    inventory = str(planner.cwd / "inventory" / "blackwell")
    done = Planner(tmp_path, "headroom.serving.plan", inventory, env).run("-e", "plan_offline=true")
    assert done.status == 0, done.text
    for node in NODES:
        assert f"{node}: kimi, SGLang 0.5.23: " in done.text


def test_the_command_that_died_is_refused_for_every_node_and_all_are_shown(planner: Planner) -> None:
    variables = {"plan_offline": True, **changed_instances(mem_fraction_static=0.93, hicache_size=300)}
    done = planner.run(variables=variables)
    assert done.status == 2, done.text
    for node in NODES:
        assert f"{node}: kimi, SGLang 0.5.23: refuse" in done.text
        assert done.recap(node)["failed"] == 1
    (first, *_rest) = re.findall(r"^\[ERROR\]: .*$", done.text, re.MULTILINE)
    assert "2,410.7 GB needed, 408 GB available" in first
    assert "[gpu.slack]" in first and "[hicache.node_budget]" in first
    assert len(re.findall(r"^  refuse +(?:gpu\.slack|hicache\.node_budget) ", done.text, re.MULTILINE)) == 4


def test_reports_are_written_where_the_command_was_given_and_only_once(planner: Planner, tmp_path: Path) -> None:
    variables = {"plan_offline": True, "plan_report_dir": str(tmp_path / "reports")}
    assert planner.run(variables=variables).status == 0
    files = sorted((tmp_path / "reports").iterdir())
    assert [path.name for path in files] == [f"{node}.kimi.{kind}" for node in NODES for kind in ("html", "json")]
    before = [(path.read_bytes(), path.stat().st_mtime_ns) for path in files]
    for node in NODES:
        data = json.loads((tmp_path / "reports" / f"{node}.kimi.json").read_text(encoding="utf-8"))
        assert (data["node"], data["instance"]) == (node, "kimi")
        assert data["plan"]["gpu"]["weights_bytes"]["best"] / 2**30 == pytest.approx(71.95708, rel=0.005)
        assert {finding["id"] for finding in data["plan"]["findings"]} >= {"plan.prefix_cache_only"}
        assert data["budgets"]["host"]["unit"] == "GB"
    done = planner.run("--check", variables=variables)
    assert f"written: {tmp_path}/reports/blackwell-1.kimi.html" in done.text
    assert sorted((tmp_path / "reports").iterdir()) == files
    assert [(path.read_bytes(), path.stat().st_mtime_ns) for path in files] == before


def test_without_a_directory_nothing_is_written(planner: Planner) -> None:
    def listing() -> set[Path]:
        return {path for path in planner.cwd.rglob("*") if not path.is_symlink()}

    before = listing()
    assert planner.run("-e", "plan_offline=true").status == 0
    assert listing() == before


def test_each_bad_input_is_one_line_that_says_what_would_work(planner: Planner, tmp_path: Path) -> None:
    (tmp_path / "garbled.json").write_text('{"gpus": [', encoding="utf-8")
    (tmp_path / "other.json").write_text('{"format": 7, "gpus": []}', encoding="utf-8")
    (tmp_path / "folder").mkdir()
    engines = {"sglang_runtime_engines": [{"name": "mine", "lock": "engines/sglang-0.5.23.lock"}]}
    cases: dict[str, tuple[dict[str, Any], str]] = {
        "missing": ({"plan_hardware_record": "absent.json"}, "plan_hardware_record is 'absent.json', which is no file"),
        "unset": ({"plan_hardware_record": ""}, "plan_hardware_record is not set"),
        "garbled": ({"plan_hardware_record": f"{tmp_path}/garbled.json"}, "garbled.json' is no JSON: "),
        "format": (
            {"plan_hardware_record": f"{tmp_path}/other.json"},
            "other.json' has the format 7, this version reads",
        ),
        "shape": ({"plan_model_record": f"{tmp_path}/other.json"}, "other.json' has format 7; this collection reads"),
        "folder": ({"plan_model_record": f"{tmp_path}/folder"}, "folder has no config.json."),
        "nowhere": ({"plan_model_record": ""}, "model_path '/shared/kimi-k2.5-int4' is no folder on the controller"),
        "name": ({"plan_model_record": {"kim": "x"}}, "plan_model_record names the instance 'kim', which this node"),
        "engine": (engines, "the engine 'default' is not in sglang_runtime_engines"),
        "file": ({"plan_report_dir": f"{tmp_path}/other.json"}, "other.json': it is no directory."),
        "below": ({"plan_report_dir": f"{tmp_path}/other.json/x"}, "which is no directory."),
        "switch": ({"plan_offline": "maybe"}, "plan_offline is 'maybe', which is neither true nor false."),
        "flag": (changed_instances(tp_size="many"), "sglang_server_instances (kimi): args.tp-size is 'many'"),
        "typo": ({"sglang_server_instance": []}, "Did you mean 'sglang_server_instances'?"),
    }
    example = yaml.safe_load((ROOT / "inventory/blackwell/group_vars/sglang.yml").read_text(encoding="utf-8"))
    hosts = {name: variables for name, (variables, _said) in cases.items()}
    inventory = {"sglang": {"hosts": {"good": {}, **hosts}, "vars": {"plan_offline": True, **example}}}
    (tmp_path / "hosts.yml").write_text(yaml.safe_dump(inventory), encoding="utf-8")
    done = planner.run(inventory=str(tmp_path / "hosts.yml"))
    assert done.status == 2, done.text
    assert "Traceback" not in done.text
    assert (done.recap("good")["failed"], done.recap("good")["unreachable"]) == (0, 0)
    for name, (_variables, said) in cases.items():
        recap = done.recap(name)
        assert (recap["failed"], recap["unreachable"], recap["changed"]) == (1, 0, 0), name
        lines = [line for line in re.findall(r"^\[ERROR\]: .*$", done.text, re.MULTILINE) if said in line]
        assert len(lines) == 1, (name, lines)
        assert re.search(r"\. [A-Z].*\. \[[a-z_.]+\]$|\? \[[a-z_.]+\]$", lines[0]), lines[0]


def test_the_page_tells_every_finding_and_term_that_a_plan_shows() -> None:
    page = (ROOT / "docs/plan.md").read_text(encoding="utf-8")
    source = (ROOT / "plugins/plugin_utils/plan_budgets.py").read_text(encoding="utf-8")
    labels = re.findall(r'Row\("\w+", "\w+", f?"([^"{]+?)(?:,? \{|")', source)
    labels += re.findall(r'^    \("\w+", "([^"]+)"\),$', source, re.MULTILINE)
    labels += re.findall(r'^        \("\w+", f?"([^"{(]+?)(?:,? [({]|",)', source, re.MULTILINE)
    assert len(set(labels)) > 20
    assert [label for label in labels if label.strip() not in page] == []


def test_the_pages_way_to_a_model_record_works(tmp_path: Path) -> None:
    page = (ROOT / "docs/plan.md").read_text(encoding="utf-8")
    (command,) = re.findall(r"^PYTHONPATH=.*model_shape.*$", page, re.MULTILINE)
    config = {
        "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "dtype": "bfloat16", "hidden_size": 1024,
        "intermediate_size": 3072, "num_hidden_layers": 28, "num_attention_heads": 16, "num_key_value_heads": 8,
        "head_dim": 128, "vocab_size": 151936, "max_position_embeddings": 40960,
    }  # fmt: skip
    from suite import checkpoints

    checkpoints.write(tmp_path / "m", config, [("model.embed_tokens.weight", "BF16", (151936, 1024))])
    made = command.replace("/shared/qwen3-32b", shlex.quote(str(tmp_path / "m"))).replace(
        "records/qwen3-32b.json", shlex.quote(str(tmp_path / "record.json"))
    )
    assert made != command
    done = subprocess.run(["bash", "-c", made], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    record = json.loads((tmp_path / "record.json").read_text(encoding="utf-8"))
    assert (record["architecture"], record["layers"]) == ("Qwen3ForCausalLM", 28)
