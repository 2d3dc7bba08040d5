# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: engine_prune
short_description: Remove engines that nothing uses
version_added: "0.1.0"
author: headroom.serving contributors (@headroom-serving)
description:
  - Removes engines that no name, no release and no process uses, but for the newest ones up to a number.
  - Names that are not listed any more are removed first. While an installation is at work on the node nothing is done.
  - With them go what interrupted installations left, the copied wheels that only they needed, and the installer's
    cache.
attributes:
  check_mode:
    support: full
    description: Tells which engines would go.
  diff_mode:
    support: full
    description: Lists the engines before and after.
options:
  root:
    description: Directory of engines and tools.
    type: path
    default: /opt/headroom
  instances:
    description: Directory whose releases keep their engines.
    type: path
    default: /var/lib/headroom/instances
  names:
    description: Names of engines that stay; without it all do.
    type: list
    elements: str
  keep:
    description: How many engines that nothing uses are kept.
    type: int
    default: 1
"""

EXAMPLES = r"""
- name: Keep only the engines that are in use
  headroom.serving.engine_prune:
    keep: 0
"""

RETURN = r"""
removed:
  description: Ids of the engines and names that were removed.
  returned: success
  type: list
  elements: str
"""

from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.headroom.serving.plugins.module_utils import engine_prune
from ansible_collections.headroom.serving.plugins.module_utils.errors import HeadroomError


def main() -> None:
    """Remove what is unused and exit."""
    module = AnsibleModule(
        argument_spec={
            "root": {"type": "path", "default": "/opt/headroom"},
            "instances": {"type": "path", "default": "/var/lib/headroom/instances"},
            "keep": {"type": "int", "default": 1},
            "names": {"type": "list", "elements": "str"},
        },
        supports_check_mode=True,
    )
    args = module.params
    root, instances = Path(args["root"]), Path(args["instances"])
    try:
        module.exit_json(**engine_prune.prune(root, instances, args["keep"], args["names"], module.check_mode))
    except HeadroomError as error:
        module.fail_json(msg=str(error))


if __name__ == "__main__":
    main()
