# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: wheel_store
short_description: Take wheels into a node's store
version_added: "0.1.0"
author: headroom.serving contributors (@headroom-serving)
description:
  - Keeps wheels by their SHA-256, so that the controller sends only those that the node lacks.
  - The action of M(headroom.serving.locked_venv) calls it; it is of little use by itself.
attributes:
  check_mode:
    support: full
    description: Takes nothing, tells what is lacking.
  diff_mode:
    support: none
    description: Wheels have no readable difference.
options:
  store:
    description: Directory of the store.
    type: path
    default: /var/cache/headroom/wheels
  python:
    description: Interpreter to describe, for the choice of wheels.
    type: path
  wheels:
    description: SHA-256 of each wheel mapped to its file name.
    type: dict
    default: {}
  sizes:
    description: SHA-256 of each wheel mapped to its size in bytes; needed with O(archive).
    type: dict
    default: {}
  archive:
    description: Archive of pieces of these wheels on the node, to be taken in.
    type: path
"""

EXAMPLES = r"""
- name: See which wheels the node lacks
  headroom.serving.wheel_store:
    wheels:
      9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08: example-1.0-py3-none-any.whl
"""

RETURN = r"""
lacking:
  description: SHA-256 of the wheels that the store does not have.
  returned: success
  type: list
  elements: str
interpreter:
  description: What the interpreter O(python) says of itself.
  returned: when O(python) is given
  type: dict
"""

from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.headroom.serving.plugins.module_utils import interpreter, wheel_store
from ansible_collections.headroom.serving.plugins.module_utils.errors import HeadroomError
from ansible_collections.headroom.serving.plugins.module_utils.refusal import refusal


def main() -> None:
    """Take in an archive or tell what is lacking, and exit."""
    module = AnsibleModule(
        argument_spec={
            "store": {"type": "path", "default": str(wheel_store.DEFAULT)},
            "python": {"type": "path"},
            "wheels": {"type": "dict", "default": {}},
            "sizes": {"type": "dict", "default": {}},
            "archive": {"type": "path"},
        },
        required_by={"archive": ["sizes"]},
        supports_check_mode=True,
    )
    args = module.params
    store = Path(args["store"])
    result: dict[str, Any] = {"changed": False}
    try:
        if args["archive"] and not module.check_mode:
            wheel_store.unpack(store, Path(args["archive"]), args["wheels"], args["sizes"])
            result["changed"] = True
        if args["python"]:
            found = interpreter.describe(args["python"])
            if found is None:
                raise refusal("engine.interpreter_missing", f"'{args['python']}' is not on the node.")
            result["interpreter"] = found.as_dict()
    except HeadroomError as error:
        module.fail_json(msg=str(error))
    module.exit_json(lacking=wheel_store.lacking(store, args["wheels"]), **result)


if __name__ == "__main__":
    main()
