# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: sglang_instances
short_description: Make a node run the SGLang instances that were asked for
version_added: "0.1.0"
author: headroom.serving contributors (@headroom-serving)
description:
  - Checks all instances of a node together, renders each one's release and compares it with what runs.
  - In check mode that is all, and it is what the role runs before anything is touched.
  - Otherwise the node itself stops, starts, watches and verifies what differs, in a transient unit of its own, while
    the controller shows its progress. A release that does not come up is replaced by the one that ran before.
attributes:
  check_mode:
    support: full
    description: Nothing is changed; the answer says what would be.
  diff_mode:
    support: full
    description: Shows the unit files before and after.
  idempotence:
    support: full
    description: An instance is restarted only if its release id changed.
options:
  instances:
    description: The instances of the node. Instances that the node has and that are not listed are reported.
    type: list
    elements: dict
    required: true
    suboptions:
      name:
        description: Name of the instance; its unit is C(sglang-NAME.service).
        type: str
        required: true
      state:
        description:
          - V(started) runs and starts at boot, V(stopped) neither, V(absent) has no unit.
            Releases stay until O(instances[].purge).
        type: str
        choices: [started, stopped, absent]
        default: started
      model_path:
        description: Directory of the model on the node. Needed for V(started).
        type: str
      served_name:
        description:
          - Name under which clients ask for the model; the last part of O(instances[].model_path) if not given.
        type: str
      engine:
        description: Name of the engine that runs the instance.
        type: str
        default: default
      args:
        description:
          - SGLang's flags without the leading dashes. V(true) gives the flag alone, V(false) leaves it out, a list its
            items behind one flag, a mapping JSON.
        type: dict
        default: {}
      env:
        description: Environment of the server, such as NCCL's variables.
        type: dict
        default: {}
      port:
        description: TCP port.
        type: int
        default: 30000
      host:
        description: Address to bind. Another one than the loopback address needs O(instances[].api_key).
        type: str
        default: 127.0.0.1
      gpus:
        description: Indices of the GPUs that the instance may use; all if not given.
        type: list
        elements: int
      api_key:
        description: Key that clients must send. It reaches the server through a file that only the server can read.
        type: str
      admin_api_key:
        description: Key for administrative requests.
        type: str
      allow_unauthenticated:
        description: Allow an address other than the loopback one without a key.
        type: bool
        default: false
      purge:
        description: With O(instances[].state=absent), remove the releases too.
        type: bool
        default: false
      start_timeout_s:
        description: Seconds that a start may take; computed from the size of the weights if not given.
        type: int
  engines:
    description: Engines that this run installs, by name, with C(id) and C(path); others are looked up on the node.
    type: dict
    default: {}
  engines_root:
    description: Directory of the engines on the node.
    type: path
    default: /opt/headroom/engines
  root:
    description: Directory of the releases on the node.
    type: path
    default: /var/lib/headroom
  user:
    description: Service account.
    type: str
    default: sglang
  home:
    description: Home of the service account, the only place where the server may write.
    type: path
    default: /var/lib/sglang
"""

EXAMPLES = r"""
- name: Run one model on two GPUs
  headroom.serving.sglang_instances:
    instances:
      - name: qwen
        model_path: /shared/qwen3-32b
        gpus: [0, 1]
        args:
          tp-size: 2
          mem-fraction-static: 0.88
"""

RETURN = r"""
instances:
  description: What was, or in check mode would be, done for each instance.
  returned: success
  type: list
  elements: dict
  sample:
    - name: qwen
      action: replace
      release: 0c5f27a1d3b9
      previous: 91aa04be77f2
      reason: the settings changed
work:
  description: Whether there is anything to do or to wait for.
  returned: success
  type: bool
findings:
  description: Everything that was found, with its stable id.
  returned: always
  type: list
  elements: dict
  sample:
    - id: instance.port_taken
      verdict: refuse
      message: "sglang_server_instances (qwen).port 30000 is held by python3 (PID 4242) on 127.0.0.1."
      suggestion: Choose another port or end that process.
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.headroom.serving.plugins.module_utils import deployment, job, transaction
from ansible_collections.headroom.serving.plugins.module_utils.errors import HeadroomError
from ansible_collections.headroom.serving.plugins.module_utils.findings import one_line, refusals

INSTANCE_OPTIONS: dict[str, Any] = {
    "name": {"type": "str", "required": True},
    "state": {"type": "str", "choices": ["started", "stopped", "absent"], "default": "started"},
    "model_path": {"type": "str"},
    "served_name": {"type": "str"},
    "engine": {"type": "str", "default": "default"},
    "args": {"type": "dict", "default": {}},
    "env": {"type": "dict", "default": {}},
    "port": {"type": "int", "default": 30000},
    "host": {"type": "str", "default": "127.0.0.1"},
    "gpus": {"type": "list", "elements": "int"},
    "api_key": {"type": "str", "no_log": True},
    "admin_api_key": {"type": "str", "no_log": True},
    "allow_unauthenticated": {"type": "bool", "default": False},
    "purge": {"type": "bool", "default": False},
    "start_timeout_s": {"type": "int"},
}


def main() -> None:
    """Compare, and outside check mode start the job that applies."""
    module = AnsibleModule(
        argument_spec={
            "instances": {"type": "list", "elements": "dict", "required": True, "options": INSTANCE_OPTIONS},
            "engines": {"type": "dict", "default": {}},
            "engines_root": {"type": "path", "default": "/opt/headroom/engines"},
            "root": {"type": "path", "default": "/var/lib/headroom"},
            "user": {"type": "str", "default": "sglang"},
            "home": {"type": "path", "default": "/var/lib/sglang"},
        },
        supports_check_mode=True,
    )
    try:
        plan = deployment.prepare(deployment.Settings.of(module.params), module.check_mode)
        findings = [item.as_dict() for item in plan.findings]
        if refusals(plan.findings):
            module.fail_json(msg=one_line(plan.findings), findings=findings)
        for item in plan.findings:
            module.warn(item.line())
        result = deployment.outcome(plan)
        if result["work"] and not module.check_mode:
            result["job"] = job.start("headroom-apply", transaction.run, module.params)
        module.exit_json(findings=findings, **result)
    except HeadroomError as error:
        module.fail_json(msg=str(error), findings=[item.as_dict() for item in error.findings])


if __name__ == "__main__":
    main()
