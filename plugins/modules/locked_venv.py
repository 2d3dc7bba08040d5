# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: locked_venv
short_description: Install a venv from a lock, under an id made of all that goes into it
version_added: "0.1.0"
author: headroom.serving contributors (@headroom-serving)
description:
  - Installs the packages of one lock into a venv whose directory is named by the lock, the interpreter's full version,
    the platform and the shim. A venv of that name is never changed afterwards.
  - The work runs in a transient systemd unit of its own; the action of this module shows its progress.
  - A venv counts as installed when its record V(engine.json) is there. It is written last, after the venv was imported
    by the account that will use it.
attributes:
  check_mode:
    support: full
    description: Says which venv would be installed or which link switched.
  diff_mode:
    support: full
    description: Shows where the link points before and after.
options:
  kind:
    description: V(engine) is installed by C(uv) of the tools, V(tools) by C(pip).
    type: str
    choices: [engine, tools]
    required: true
  name:
    description: Name by which others reach the engine.
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
  root:
    description: Directory of engines and tools on the node.
    type: path
    default: /opt/headroom
  user:
    description: Account that will use the engine and imports it for verification; root when empty.
    type: str
    default: ""
  wheelhouse:
    description: Directory of wheels on the controller; those that the node lacks are copied.
    type: path
  wheelhouse_on_node:
    description: Directory of wheels that the node sees.
    type: path
  index_url:
    description: Address of a simple index; empty for the installer's own default.
    type: str
  shim:
    description: Directory on the controller whose files are laid into site-packages.
    type: path
  lock_text:
    description: Content of the lock; the action fills it in.
    type: str
  shim_files:
    description: Files of the shim, base64 encoded; the action fills it in.
    type: dict
  wheels:
    description: Wheels of the lock that lie in the node's store, by SHA-256; the action fills it in.
    type: dict
"""

EXAMPLES = r"""
- name: Install an engine from a directory of wheels
  headroom.serving.locked_venv:
    kind: engine
    name: default
    lock: engine.lock
    wheelhouse: wheels
    user: sglang
"""

RETURN = r"""
id:
  description: Id of the venv, null in check mode while its interpreter is not there.
  returned: success
  type: str
version:
  description: Version of SGLang, or of uv for the tools; null in check mode for what is not installed.
  returned: success
  type: str
resolved:
  description: The engine's name mapped to its C(id), C(path), C(python) and C(version).
  returned: success
  type: dict
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.headroom.serving.plugins.module_utils import job, venv_install
from ansible_collections.headroom.serving.plugins.module_utils.errors import HeadroomError


def main() -> None:
    """Install or switch what is needed and exit."""
    module = AnsibleModule(
        argument_spec={
            "kind": {"type": "str", "choices": ["engine", "tools"], "required": True},
            "name": {"type": "str", "default": "tools"},
            "lock": {"type": "path", "required": True},
            "python": {"type": "path", "default": "/usr/bin/python3"},
            "root": {"type": "path", "default": "/opt/headroom"},
            "user": {"type": "str", "default": ""},
            "wheelhouse": {"type": "path"},
            "wheelhouse_on_node": {"type": "path"},
            "index_url": {"type": "str"},
            "shim": {"type": "path"},
            "lock_text": {"type": "str"},
            "shim_files": {"type": "dict"},
            "wheels": {"type": "dict"},
        },
        supports_check_mode=True,
    )
    try:
        module.exit_json(**venv_install.install(module.params, module.check_mode, job.start))
    except HeadroomError as error:
        module.fail_json(msg=str(error), findings=[item.as_dict() for item in error.findings])


if __name__ == "__main__":
    main()
