# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: hardware_info
short_description: Tell the hardware of a node
version_added: "0.1.0"
author: headroom.serving contributors (@headroom-serving)
description:
  - Reads GPUs with their memory, processes and links, and the memory of the host with its limits. Works without any
    GPU, too.
  - GPUs are read through NVML where nvidia-ml-py is installed. For that the module goes on in the interpreter of the
    tools venv if the node has one, which the role P(headroom.serving.sglang_runtime#role) makes; this module never
    does. Without it they are read from C(nvidia-smi), and the record says so. Both ways tell the same, but
    C(nvidia-smi) tells memory in whole MiB.
  - The limits of control groups are those that bind a service of the system, not those of the login session.
  - Of processes only user, name and unit are told, never their arguments. Needs root to see those of others.
attributes:
  check_mode:
    support: full
    description: Only reads.
  diff_mode:
    support: none
    description: Changes nothing.
options:
  root:
    description: Directory of engines and tools.
    type: path
    default: /opt/headroom
  source:
    description: How GPUs are read. V(auto) takes V(nvml) where it works, else V(nvidia-smi).
    type: str
    choices: [auto, nvml, nvidia-smi]
    default: auto
"""

EXAMPLES = r"""
- name: Read the hardware
  headroom.serving.hardware_info:
  register: node
  become: true

- name: Keep it as a record, to plan for this node without it
  ansible.builtin.copy:
    content: "{{ node.hardware | to_nice_json }}"
    dest: "records/{{ inventory_hostname }}.json"
    mode: "0644"
  delegate_to: localhost
"""

RETURN = r"""
hardware:
  description: The record; its keys ending in C(_bytes) are bytes.
  returned: success
  type: dict
  contains:
    format:
      description: Number of the record's format.
      returned: success
      type: int
      sample: 1
    gpus:
      description: The GPUs that answer, by index.
      returned: success
      type: list
      elements: dict
      contains:
        index:
          description: Number of the GPU, as the driver counts.
          returned: success
          type: int
          sample: 0
        uuid:
          description: Unique identifier.
          returned: success
          type: str
          sample: GPU-b1ac0e11-0000-4000-8000-000000000000
        name:
          description: Name of the product.
          returned: success
          type: str
          sample: NVIDIA RTX PRO 6000 Blackwell Server Edition
        total_bytes:
          description: Size of its memory; 0 if it has none of its own.
          returned: success
          type: int
          sample: 102641958912
        used_bytes:
          description: Memory that programs hold, without what the driver reserves.
          returned: success
          type: int
          sample: 4194304
        free_bytes:
          description: Memory that programs can take.
          returned: success
          type: int
          sample: 101968773120
        compute_capability:
          description: CUDA's, as two numbers; null if the driver does not tell.
          returned: success
          type: list
          elements: int
          sample: [12, 0]
        pcie_gen:
          description: Highest generation that card and slot agree on; 0 if unknown.
          returned: success
          type: int
          sample: 5
        pcie_width:
          description: Number of lanes now; 0 if unknown.
          returned: success
          type: int
          sample: 16
        processes:
          description: The processes that compute on it, by number.
          returned: success
          type: list
          elements: dict
          contains:
            pid:
              description: Number of the process.
              returned: success
              type: int
              sample: 4711
            user:
              description: Its user; empty if the process can't be seen from here.
              returned: success
              type: str
              sample: sglang
            command:
              description: Its name, without arguments.
              returned: success
              type: str
              sample: sglang::scheduler_TP3
            used_bytes:
              description: Memory of the GPU that it holds; 0 if the driver does not tell.
              returned: success
              type: int
              sample: 94489280512
            unit:
              description: Its unit; empty if it has none.
              returned: success
              type: str
              sample: sglang-kimi.service
        numa_node:
          description: NUMA node of its slot; -1 if unknown.
          returned: success
          type: int
          sample: 0
        mig:
          description: Whether it is split into instances (MIG) now.
          returned: success
          type: bool
          sample: false
    driver_version:
      description: Version of NVIDIA's driver; empty without one.
      returned: success
      type: str
      sample: 580.95.05
    cuda_driver_version:
      description: Newest CUDA that the driver knows.
      returned: success
      type: str
      sample: "13.0"
    mem_total_bytes:
      description: Memory of the host.
      returned: success
      type: int
      sample: 412316860416
    mem_available_bytes:
      description: Memory that can be taken without swapping.
      returned: success
      type: int
      sample: 408000000000
    cgroup_limit_bytes:
      description: Lowest limit of the control groups above a service; null if there is none.
      returned: success
      type: int
      sample: null
    cgroup_available_bytes:
      description: The least that one of these limits leaves, page cache counted as free; null if there is none.
      returned: success
      type: int
      sample: null
    swap_bytes:
      description: Size of all swap.
      returned: success
      type: int
      sample: 0
    shm_total_bytes:
      description: Size of C(/dev/shm).
      returned: success
      type: int
      sample: 206158430208
    shm_free_bytes:
      description: What is free of it.
      returned: success
      type: int
      sample: 206158430208
    memlock_hard_bytes:
      description: The most memory that a service may lock; null without limit.
      returned: success
      type: int
      sample: null
    cpus:
      description: Number of processors, threads counted.
      returned: success
      type: int
      sample: 128
    numa_nodes:
      description: Number of NUMA nodes with processors.
      returned: success
      type: int
      sample: 2
    topology:
      description: >-
        A row and a column for each of C(gpus); V(X) on the diagonal, else the link between two of them, V(NVL),
        V(PIX), V(PXB), V(PHB), V(NODE) or V(SYS). Empty if unknown.
      returned: success
      type: list
      elements: list
      sample: [[X, NODE], [NODE, X]]
    source:
      description: How the GPUs were read, V(nvml), V(nvidia-smi), or V(none) if there is no way.
      returned: success
      type: str
      sample: nvml
    notes:
      description: What could not be read and why, for people.
      returned: success
      type: list
      elements: str
      sample: []
findings:
  description: What is wrong with GPUs or driver, each with C(id), C(verdict), C(message) and C(suggestion).
  returned: success
  type: list
  elements: dict
  sample:
    - id: gpu.lost
      verdict: warn
      message: "GPU 3 does not answer: GPU is lost"
      suggestion: Look for 'Xid' in the kernel log, then reset the GPU or power-cycle the node.
"""

import json

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.common.respawn import has_respawned, respawn_module

from ansible_collections.headroom.serving.plugins.module_utils import hardware
from ansible_collections.headroom.serving.plugins.module_utils.errors import HeadroomError


def main() -> None:
    """Read the hardware and exit."""
    module = AnsibleModule(
        argument_spec={
            "root": {"type": "path", "default": "/opt/headroom"},
            "source": {"type": "str", "choices": ["auto", "nvml", "nvidia-smi"], "default": "auto"},
        },
        supports_check_mode=True,
    )
    tools = hardware.tools_python(module.params["root"])
    if tools and not has_respawned():
        respawn_module(tools)
    try:
        found = hardware.read(module.params["source"])
    except HeadroomError as error:
        module.fail_json(msg=str(error), findings=[item.as_dict() for item in error.findings])
    module.exit_json(
        changed=False,
        hardware=json.loads(hardware.to_json(found)),
        findings=[item.as_dict() for item in hardware.findings(found)],
    )


if __name__ == "__main__":
    main()
