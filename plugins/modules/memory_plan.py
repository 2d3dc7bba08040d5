# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: memory_plan
short_description: Tell what the instances of a node will need and get before they start
version_added: "0.1.0"
author: headroom.serving contributors (@headroom-serving)
description:
  - Reads the node's hardware, the headers of the models and what earlier starts have shown, and plans GPU memory, KV
    tokens and host memory of each instance. What does not fit is a finding, with values that would.
  - Memory that an outgoing release will give back counts as free.
  - The controller prints the plan. With O(offline=true) it also makes the plan, from records and without the node.
attributes:
  check_mode:
    support: full
    description:
      - Nothing is changed but a cache of model headers on the node, and in check mode not even that. Reports on the
        controller are written all the same.
  diff_mode:
    support: none
    description: There is nothing to compare.
  idempotence:
    support: full
    description: The same node gives the same plan.
options:
  accept:
    description: Ids of findings that warn instead of refusing.
    type: list
    elements: str
    default: []
  scope:
    description:
      - Which instances are planned, and how much is shown. With V(all) every one that is to run, and all of its plan.
      - With V(changes) those that a deploy would start anew, and only findings that warn or refuse.
    type: str
    choices: [all, changes]
    default: all
  offline:
    description:
      - Plan on the controller, for all instances that are to run. No connection is made, so the node need not exist.
    type: bool
    default: false
  hardware_record:
    description:
      - File on the controller with what M(headroom.serving.hardware_info) returned for the node, as a whole or only
        its C(hardware). Needed with O(offline=true), else ignored.
      - A relative path is looked for as a role's files are, then among the files that come with this collection's
        role, then in the directory of the command line.
    type: str
  model_record:
    description:
      - Path on the controller of a model's record or of its folder, found as O(hardware_record) is; or a mapping from
        names of instances to such paths. Only with O(offline=true), else ignored.
      - An instance without one takes its C(model_path) if the controller has that folder.
    type: raw
  report_dir:
    description:
      - Directory on the controller for a report of each instance, C(NODE.INSTANCE.json) and C(NODE.INSTANCE.html);
        made if it is missing. A relative path starts from the directory of the command line.
    type: str
  fail:
    description:
      - Whether a plan that refuses fails the task once all of it was shown. With O(scope=changes) it always does.
    type: bool
    default: true
extends_documentation_fragment:
  - headroom.serving.instances
"""

EXAMPLES = r"""
- name: Plan one model on two GPUs
  headroom.serving.memory_plan:
    instances:
      - name: qwen
        model_path: /shared/qwen3-32b
        gpus: [0, 1]
        args:
          tp-size: 2
          mem-fraction-static: 0.88

- name: Plan it without the node, and keep reports
  headroom.serving.memory_plan:
    instances: "{{ sglang_server_instances }}"
    offline: true
    hardware_record: records/{{ inventory_hostname }}.json
    model_record: /shared/qwen3-32b
    report_dir: reports
    fail: false
"""

RETURN = r"""
reports:
  description: >-
    A plan for each instance, with C(instance), C(engine_version), C(sources), C(effective) (each value that sizes
    anything, with its origin), C(accepted) and C(plan). Units are in the names, C(_bytes), C(_gib) (2**30) or C(_gb)
    (10**9).
  returned: if nothing refuses, or with O(fail=false)
  type: list
  elements: dict
report_files:
  description: Paths of the reports on the controller.
  returned: always
  type: list
  elements: str
  sample: [/home/me/reports/gpu1.qwen.json, /home/me/reports/gpu1.qwen.html]
findings:
  description: Everything that was found, with its stable id; of a task that failed what refuses.
  returned: always
  type: list
  elements: dict
  sample:
    - id: hicache.node_budget
      verdict: refuse
      message: "qwen: hicache-size is 300, for each rank: 8 ranks x 300 GB: 2,410.7 GB needed, 408 GB available"
      suggestion: The largest hicache-size that fits is 44.
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.headroom.serving.plugins.module_utils import deployment, instance_options, node_plan
from ansible_collections.headroom.serving.plugins.module_utils.errors import HeadroomError
from ansible_collections.headroom.serving.plugins.module_utils.findings import refusals


def main() -> None:
    """Plan and exit."""
    module = AnsibleModule(
        argument_spec={
            **instance_options.NODE_OPTIONS,
            "accept": {"type": "list", "elements": "str", "default": []},
            "scope": {"type": "str", "choices": ["all", "changes"], "default": "all"},
            # These are the controller's: it takes them out before it asks the node.
            "offline": {"type": "bool", "default": False},
            "hardware_record": {"type": "str"},
            "model_record": {"type": "raw"},
            "report_dir": {"type": "str"},
            "fail": {"type": "bool", "default": True},
        },
        supports_check_mode=True,
    )
    try:
        settings = deployment.Settings.of(module.params)
        # As in check mode: an engine that this run installs is planned for, though it is not there yet.
        wanted = deployment.prepare(settings, check_mode=True)
        everything = module.params["scope"] == "all"
        found = node_plan.make(settings, wanted.steps, everything, keep=not module.check_mode)
        module.exit_json(
            changed=False,
            reports=[planned.report() for planned in found.planned.values()],
            # What only a deploy is concerned with, such as a port, was told by its own preflight.
            findings=[item.as_dict() for item in [*refusals(wanted.findings), *found.findings]],
        )
    except HeadroomError as error:
        module.fail_json(msg=str(error), findings=[item.as_dict() for item in error.findings])


if __name__ == "__main__":
    main()
