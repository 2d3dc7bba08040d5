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
  accept:
    description:
      - Ids of findings of the memory plan that warn instead of refusing, such as V(gpu.slack). Kept with the release
        and shown by every later status.
    type: list
    elements: str
    default: []
extends_documentation_fragment:
  - headroom.serving.instances
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

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.headroom.serving.plugins.module_utils import (
    deployment,
    instance_options,
    job,
    transaction,
)
from ansible_collections.headroom.serving.plugins.module_utils.errors import HeadroomError
from ansible_collections.headroom.serving.plugins.module_utils.findings import one_line, refusals


def main() -> None:
    """Compare, and outside check mode start the job that applies."""
    module = AnsibleModule(
        argument_spec={
            **instance_options.NODE_OPTIONS,
            "accept": {"type": "list", "elements": "str", "default": []},
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
