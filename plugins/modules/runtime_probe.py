# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: runtime_probe
short_description: Tell what a node lacks of the runtime
version_added: "0.1.0"
author: headroom.serving contributors (@headroom-serving)
description:
  - Looks once at everything that the role P(headroom.serving.sglang_runtime#role) manages, and returns what is missing
    or different, so that a run that changes nothing costs one remote call.
  - Locks, shims and wheelhouses lie on the controller; the action of this module reads and checks them there.
  - Refuses what can't work before anything is changed.
attributes:
  check_mode:
    support: full
    description: Only reads.
  diff_mode:
    support: none
    description: Changes nothing.
options:
  scope:
    description: V(tools) looks only at what the tools need.
    type: str
    choices: [all, tools]
    default: all
  root:
    description: Directory of engines and tools.
    type: path
    default: /opt/headroom
  user:
    description: Service account.
    type: str
    default: sglang
  group:
    description: Primary group of the service account.
    type: str
    default: sglang
  home:
    description: Home of the service account.
    type: path
    default: /var/lib/sglang
  instances:
    description: Directory whose releases keep engines from being pruned.
    type: path
    default: /var/lib/headroom/instances
  keep_unused:
    description: How many engines that nothing uses are kept.
    type: int
    default: 1
  packages:
    description: Packages of the distribution, in place of the built-in table.
    type: list
    elements: str
  tools:
    description: The venv of the tools.
    type: dict
    required: true
    suboptions:
      name:
        description: Name of the venv.
        type: str
        default: tools
      lock:
        description: Lock on the controller.
        type: path
        required: true
      python:
        description: Interpreter on the node.
        type: path
        default: /usr/bin/python3
      wheelhouse:
        description: Directory of wheels on the controller.
        type: path
      wheelhouse_on_node:
        description: Directory of wheels on the node.
        type: path
      index_url:
        description: Address of a simple index.
        type: str
      shim:
        description: Directory on the controller whose files are laid into site-packages.
        type: path
      lock_sha256:
        description: Digest of the lock; the action fills it in.
        type: str
      shim_sha256:
        description: Digest of the shim; the action fills it in.
        type: str
  engines:
    description: The engines that the node shall have.
    type: list
    elements: dict
    default: []
    suboptions:
      name:
        description: Name by which others reach the engine.
        type: str
        required: true
      lock:
        description: Lock on the controller.
        type: path
        required: true
      python:
        description: Interpreter on the node.
        type: path
        default: /usr/bin/python3
      wheelhouse:
        description: Directory of wheels on the controller.
        type: path
      wheelhouse_on_node:
        description: Directory of wheels on the node.
        type: path
      index_url:
        description: Address of a simple index.
        type: str
      shim:
        description: Directory on the controller whose files are laid into site-packages.
        type: path
      lock_sha256:
        description: Digest of the lock; the action fills it in.
        type: str
      shim_sha256:
        description: Digest of the shim; the action fills it in.
        type: str
"""

EXAMPLES = r"""
- name: See what the node lacks for the demo's engine
  headroom.serving.runtime_probe:
    tools:
      lock: tools.lock
    engines:
      - name: default
        lock: engine.lock
        python: /usr/bin/python3.12
  register: lacking
"""

RETURN = r"""
distribution:
  description: The distribution's row of the table of packages.
  returned: success
  type: str
package_manager:
  description: Ansible's name of the node's package manager.
  returned: success
  type: str
interpreters:
  description: What the interpreters say of themselves, null for one that is not there yet.
  returned: success
  type: dict
todo:
  description: >-
    What must be done, each a list: C(packages), C(groups), C(users), C(directories), C(tools), C(engines), C(prune). An
    entry of C(tools) and C(engines) has C(name), C(id), C(action) (V(install) or V(link)), C(reason) and its settings.
  returned: success
  type: dict
resolved:
  description: >-
    For each engine C(id), C(path), C(python) and C(version); null for what is not known before the installation.
  returned: success
  type: dict
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.headroom.serving.plugins.module_utils import runtime_todo
from ansible_collections.headroom.serving.plugins.module_utils.errors import HeadroomError


def main() -> None:
    """Look at the node and exit."""
    venv = {
        "lock": {"type": "path", "required": True},
        "python": {"type": "path", "default": "/usr/bin/python3"},
        "wheelhouse": {"type": "path"},
        "wheelhouse_on_node": {"type": "path"},
        "index_url": {"type": "str"},
        "shim": {"type": "path"},
        "lock_sha256": {"type": "str"},
        "shim_sha256": {"type": "str"},
    }
    module = AnsibleModule(
        argument_spec={
            "scope": {"type": "str", "choices": ["all", "tools"], "default": "all"},
            "root": {"type": "path", "default": "/opt/headroom"},
            "user": {"type": "str", "default": "sglang"},
            "group": {"type": "str", "default": "sglang"},
            "home": {"type": "path", "default": "/var/lib/sglang"},
            "instances": {"type": "path", "default": "/var/lib/headroom/instances"},
            "keep_unused": {"type": "int", "default": 1},
            "packages": {"type": "list", "elements": "str"},
            "tools": {
                "type": "dict",
                "required": True,
                "options": {"name": {"type": "str", "default": "tools"}, **venv},
            },
            "engines": {
                "type": "list",
                "elements": "dict",
                "default": [],
                "options": {"name": {"type": "str", "required": True}, **venv},
            },
        },
        supports_check_mode=True,
    )
    try:
        module.exit_json(changed=False, **runtime_todo.probe(module.params))
    except HeadroomError as error:
        module.fail_json(msg=str(error), findings=[item.as_dict() for item in error.findings])


if __name__ == "__main__":
    main()
