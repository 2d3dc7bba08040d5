# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations


class ModuleDocFragment:
    """The options of every module that takes the instances of a node."""

    DOCUMENTATION = r"""
options:
  instances:
    description: The instances of the node. Instances that the node has and that are not listed are reported.
    type: list
    elements: dict
    required: true
    suboptions:
      name:
        description: Name of the instance; its unit is C(sglang-NAME.service).
        type: str
        required: true
      state:
        description:
          - V(started) runs and starts at boot, V(stopped) neither, V(absent) has no unit.
            Releases stay until O(instances[].purge).
        type: str
        choices: [started, stopped, absent]
        default: started
      model_path:
        description: Directory of the model on the node. Needed for V(started).
        type: str
      served_name:
        description:
          - Name under which clients ask for the model; the last part of O(instances[].model_path) if not given.
        type: str
      engine:
        description: Name of the engine that runs the instance.
        type: str
        default: default
      args:
        description:
          - SGLang's flags without the leading dashes. V(true) gives the flag alone, V(false) leaves it out, a list its
            items behind one flag, a mapping JSON.
        type: dict
        default: {}
      env:
        description: Environment of the server, such as NCCL's variables.
        type: dict
        default: {}
      port:
        description: TCP port.
        type: int
        default: 30000
      host:
        description: Address to bind. Another one than the loopback address needs O(instances[].api_key).
        type: str
        default: 127.0.0.1
      gpus:
        description: Indices of the GPUs that the instance may use; all if not given.
        type: list
        elements: int
      api_key:
        description: Key that clients must send. It reaches the server through a file that only the server can read.
        type: str
      admin_api_key:
        description: Key for administrative requests.
        type: str
      allow_unauthenticated:
        description: Allow an address other than the loopback one without a key.
        type: bool
        default: false
      purge:
        description: With O(instances[].state=absent), remove the releases too.
        type: bool
        default: false
      start_timeout_s:
        description: Seconds that a start may take; computed from the size of the weights if not given.
        type: int
      expected_request_tokens:
        description:
          - Tokens of a usual request, prompt and answer. The plan tells how many of them run at a time; of the longest
            possible ones if not given.
        type: int
  engines:
    description: Engines that this run installs, by name, with C(id) and C(path); others are looked up on the node.
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
    description: Home of the service account, the only place where the server may write.
    type: path
    default: /var/lib/sglang
"""
