# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: check_settings
short_description: Check the variables of a node against the roles' argument specs
version_added: "0.1.0"
author: headroom.serving contributors (@headroom-serving)
description:
  - Runs on the controller and never touches the node.
  - Finds variables with a role's prefix that the role does not know, unknown keys of nested settings, wrong types and
    missing values, and says for each which setting it is and what would work.
attributes:
  check_mode:
    support: full
    description: Only reads.
  diff_mode:
    support: none
    description: Changes nothing.
options:
  roles:
    description: Roles of this collection whose variables are checked.
    type: list
    elements: str
    required: true
  known:
    description: Variables that have a role's prefix but are not settings, such as a role's results.
    type: list
    elements: str
    default: []
"""

EXAMPLES = r"""
- name: Find typos before anything else happens
  headroom.serving.check_settings:
    roles: [sglang_server]
"""

RETURN = r"""
findings:
  description: Everything that is wrong.
  returned: always
  type: list
  elements: dict
  sample:
    - id: settings.unknown
      verdict: refuse
      message: "sglang_server_instances[0] (qwen): key 'modle_path' is unknown."
      suggestion: "Did you mean 'model_path'?"
"""
