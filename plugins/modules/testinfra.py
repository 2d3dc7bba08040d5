# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: testinfra
short_description: Check that a deployed node is what its records and the inventory say
version_added: "0.1.0"
author: headroom.serving contributors (@headroom-serving)
description:
  - Runs on the controller and asks the node over the connection of the task, as the user that the task becomes, which
    has to be root.
  - Runs the collection's checks of C(tests/testinfra) and shows a line for each as it ends; if any fails, the task
    fails with one line that names them.
  - The instances that V(sglang_server_instances) of the node lists as started have to be those that run.
  - Over SSH with a key the checks take seconds; a password, for the connection or for becoming root, or another kind
    of connection makes them take minutes, as each question is then a run of C(ansible).
requirements:
  - pytest and pytest-testinfra on the controller, in the Python of ansible-core
attributes:
  check_mode:
    support: full
    description: Only reads, so it does the same in check mode.
  diff_mode:
    support: none
    description: Changes nothing.
options:
  root:
    description: Root directory of the instances on the node.
    type: path
    default: /var/lib/headroom
  tests:
    description: Run only the checks that this expression selects, as the option C(-k) of pytest takes it.
    type: str
"""

EXAMPLES = r"""
- name: Check the node
  headroom.serving.testinfra:
  become: true

- name: Check only who listens on the ports
  headroom.serving.testinfra:
    tests: port
  become: true
"""

RETURN = r"""
passed:
  description: How many checks passed.
  returned: when the checks could run
  type: int
  sample: 36
"""
