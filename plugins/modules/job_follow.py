# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: job_follow
short_description: Read the progress and the result of long work on a node
version_added: "0.1.0"
author: headroom.serving contributors (@headroom-serving)
description:
  - Waits for the next progress lines of a job that another module of this collection started on the node.
  - The collection's own actions call it; in a playbook it serves to follow a job after a lost connection.
attributes:
  check_mode:
    support: full
    description: Only reads.
  diff_mode:
    support: none
    description: Changes nothing.
options:
  dir:
    description: Directory of the job, as the module that started it returned it.
    type: path
    required: true
  unit:
    description: Transient unit of the job, without C(.service).
    type: str
    required: true
  offset:
    description: Bytes of progress that were read before.
    type: int
    default: 0
  wait_s:
    description: Longest time in seconds to wait for something new.
    type: float
    default: 5
"""

EXAMPLES = r"""
- name: See how far the work on the node is
  headroom.serving.job_follow:
    dir: /run/headroom/jobs/headroom-apply.1f2e3d4c
    unit: headroom-apply
"""

RETURN = r"""
lines:
  description: New progress lines.
  returned: success
  type: list
  elements: str
offset:
  description: Bytes of progress read so far.
  returned: success
  type: int
finished:
  description: Whether the work has ended.
  returned: success
  type: bool
result:
  description: What the work returned; its C(failed) says whether it succeeded.
  returned: when finished
  type: dict
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.headroom.serving.plugins.module_utils import job
from ansible_collections.headroom.serving.plugins.module_utils.errors import HeadroomError


def main() -> None:
    """Read the job's progress and exit."""
    module = AnsibleModule(
        argument_spec={
            "dir": {"type": "path", "required": True},
            "unit": {"type": "str", "required": True},
            "offset": {"type": "int", "default": 0},
            "wait_s": {"type": "float", "default": 5},
        },
        supports_check_mode=True,
    )
    args = module.params
    try:
        module.exit_json(changed=False, **job.follow(args["dir"], args["unit"], args["offset"], args["wait_s"]))
    except HeadroomError as error:
        module.fail_json(msg=str(error))


if __name__ == "__main__":
    main()
