# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The argument specs of the modules that take the instances of a node; keys are marked as such."""

from __future__ import annotations

from typing import Any

INSTANCE_OPTIONS: dict[str, Any] = {
    "name": {"type": "str", "required": True},
    "state": {"type": "str", "choices": ["started", "stopped", "absent"], "default": "started"},
    "model_path": {"type": "str"},
    "served_name": {"type": "str"},
    "engine": {"type": "str", "default": "default"},
    "args": {"type": "dict", "default": {}},
    "env": {"type": "dict", "default": {}},
    "port": {"type": "int", "default": 30000},
    "host": {"type": "str", "default": "127.0.0.1"},
    "gpus": {"type": "list", "elements": "int"},
    "api_key": {"type": "str", "no_log": True},
    "admin_api_key": {"type": "str", "no_log": True},
    "allow_unauthenticated": {"type": "bool", "default": False},
    "purge": {"type": "bool", "default": False},
    "start_timeout_s": {"type": "int"},
    # A number of tokens and no secret, whatever its name suggests.
    "expected_request_tokens": {"type": "int", "no_log": False},
}
NODE_OPTIONS: dict[str, Any] = {
    "instances": {"type": "list", "elements": "dict", "required": True, "options": INSTANCE_OPTIONS},
    "engines": {"type": "dict", "default": {}},
    "engines_root": {"type": "path", "default": "/opt/headroom/engines"},
    "root": {"type": "path", "default": "/var/lib/headroom"},
    "user": {"type": "str", "default": "sglang"},
    "home": {"type": "path", "default": "/var/lib/sglang"},
}
