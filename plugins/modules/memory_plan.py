# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: memory_plan
short_description: Plan the memory of SGLang instances before they start
version_added: "0.1.0"
author: headroom.serving contributors (@headroom-serving)
description:
  - Tells for each instance of a node what it will need and get of GPU and host memory. Changes nothing.
  - The controller prints the plan. With O(offline=true) it also makes the plan, from records and without the node.
attributes:
  check_mode:
    support: full
    description: Only reads. Reports are written all the same, as no node is changed by them.
  diff_mode:
    support: none
    description: Changes nothing.
options:
  instances:
    description: The instances of the node, as M(headroom.serving.sglang_instances) takes them.
    type: list
    elements: dict
    required: true
  engines:
    description: Engines that this run installs, by name.
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
    description: Home of the service account.
    type: path
    default: /var/lib/sglang
  accept:
    description: Ids of findings that may not refuse.
    type: list
    elements: str
    default: []
  scope:
    description:
      - Which instances are planned, and how much is shown. With V(all) every one that is to run, and all of its plan.
      - With V(changes) those that a deploy would start anew, and only findings that warn or refuse.
    type: str
    choices: [changes, all]
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
"""

EXAMPLES = r"""
- name: Plan what the node is to run
  headroom.serving.memory_plan:
    instances: "{{ sglang_server_instances }}"
  become: true

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
  description: One report an instance; figures are in the units that their names say.
  returned: if no plan refuses, or with O(fail=false)
  type: list
  elements: dict
findings:
  description: The findings of all reports; of a task that failed those that refuse.
  returned: always
  type: list
  elements: dict
report_files:
  description: Paths of the reports on the controller.
  returned: always
  type: list
  elements: str
  sample: [/home/me/reports/gpu1.qwen.json, /home/me/reports/gpu1.qwen.html]
"""

from ansible.module_utils.basic import AnsibleModule


def main() -> None:
    """Refuse: replaced before release."""
    module = AnsibleModule(argument_spec={}, supports_check_mode=True)
    module.fail_json(msg="replaced")


if __name__ == "__main__":
    main()
