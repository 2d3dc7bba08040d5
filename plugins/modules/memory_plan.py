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
attributes:
  check_mode:
    support: full
    description: The module never changes anything but its own cache of model headers, and in check mode not even that.
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
    description: V(all) plans every started instance, V(changes) only those that a deploy would start anew.
    type: str
    choices: [all, changes]
    default: all
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
"""

RETURN = r"""
reports:
  description: >-
    A plan for each instance, with C(instance), C(engine_version), C(sources), C(effective) (each value that sizes
    anything, with its origin), C(accepted) and C(plan). Units are in the names, C(_bytes), C(_gib) (2**30) or C(_gb)
    (10**9).
  returned: success
  type: list
  elements: dict
findings:
  description: Everything that was found, with its stable id; V(refuse) among them is no failure of this module.
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
