# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: sglang_status
short_description: Show the SGLang instances of a node
version_added: "0.1.0"
author: headroom.serving contributors (@headroom-serving)
description:
  - Reads releases and units, and asks each running server for its figures. Changes nothing.
  - The controller prints the answer as a table.
attributes:
  check_mode:
    support: full
    description: Only reads.
  diff_mode:
    support: none
    description: Changes nothing.
options:
  root:
    description: Directory of the releases on the node.
    type: path
    default: /var/lib/headroom
"""

EXAMPLES = r"""
- name: Show what runs
  headroom.serving.sglang_status:
"""

RETURN = r"""
instances:
  description: One row an instance; figures are null where the server does not answer.
  returned: success
  type: list
  elements: dict
  sample:
    - name: qwen
      release: 0c5f27a1d3b9
      unit: active (running)
      since: Mon 2026-11-30 06:38:33 UTC
      serving: "yes"
      model: qwen3-32b
      port: 30000
      kv_tokens: 116171
      running: 46
      queued: 0
      accepted: [gpu.slack]
"""

from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.headroom.serving.plugins.module_utils import status
from ansible_collections.headroom.serving.plugins.module_utils.errors import HeadroomError


def main() -> None:
    """Collect the rows and exit."""
    module = AnsibleModule(
        argument_spec={"root": {"type": "path", "default": "/var/lib/headroom"}},
        supports_check_mode=True,
    )
    try:
        rows = [row.as_dict() for row in status.rows(Path(module.params["root"]))]
        module.exit_json(changed=False, instances=rows)
    except HeadroomError as error:
        module.fail_json(msg=str(error))


if __name__ == "__main__":
    main()
