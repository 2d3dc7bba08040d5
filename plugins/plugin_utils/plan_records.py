# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a plan without a host is made from, read on the controller: records of hardware and models, and locks."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ansible_collections.headroom.serving.plugins.module_utils import hardware, model_shape, runtime_settings
from ansible_collections.headroom.serving.plugins.module_utils.errors import HeadroomError
from ansible_collections.headroom.serving.plugins.module_utils.hardware import Hardware
from ansible_collections.headroom.serving.plugins.module_utils.model_shape import ModelShape
from ansible_collections.headroom.serving.plugins.module_utils.refusal import refusal
from ansible_collections.headroom.serving.plugins.plugin_utils import controller_files
from ansible_collections.headroom.serving.plugins.plugin_utils.controller_files import Find

# A record has kilobytes. What is larger is something else, such as weights, and is not read at all.
_LARGEST_BYTES = 8_000_000
_HARDWARE = "plan_hardware_record"
_MODEL = "plan_model_record"
_ENGINES = "sglang_runtime_engines"


def read_hardware(find: Find, path: str) -> Hardware:
    """Return the hardware of a record: what hardware_info returns, as a whole or only its `hardware`.

    Args:
        find: Returns the absolute path of a file, or raises LookupError.
        path: The path as the user wrote it.

    Raises:
        HeadroomError: If there is no such file or it is no such record.
    """
    cure = "Give the JSON that hardware_info returns for the node, or plan on the node itself without plan_offline."
    if not path:
        raise refusal("settings.invalid", f"{_HARDWARE} is not set, and an offline plan asks no node.", cure)
    where = f"{_HARDWARE} '{path}'"
    text = _read(find, path, _HARDWARE, cure)
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return hardware.from_json(text, where)
    if isinstance(value, Mapping) and "gpus" not in value and "hardware" in value:
        text = json.dumps(value["hardware"])
    return hardware.from_json(text, where)


def check_names(record: Any, names: Sequence[str]) -> None:
    """Check that a mapping of model records names instances of the node.

    Args:
        record: A path, or a mapping from the name of an instance to one.
        names: The node's instances.

    Raises:
        HeadroomError: Naming what is wrong.
    """
    if not isinstance(record, Mapping):
        if not isinstance(record, (str, type(None))):
            raise refusal(
                "settings.invalid",
                f"{_MODEL} is {record!r:.60}, which is no path.",
                "Give the path of a record or of a model's folder, or a mapping from instances to such paths.",
            )
        return
    unknown = sorted(str(name) for name in record if name not in names)
    if unknown:
        known = ", ".join(names) or "none"
        raise refusal(
            "settings.unknown",
            f"{_MODEL} names the instance '{unknown[0]}', which this node does not have.",
            f"Its instances: {known}.",
        )


def read_model(find: Find, record: Any, instance: str, model_path: str, dummy: bool) -> tuple[ModelShape, str]:
    """Return the shape of an instance's model, and in words where it came from.

    Args:
        find: Returns the absolute path of a file, or raises LookupError.
        record: As `check_names` takes it; the model's own folder counts if it is empty or does not name the instance.
        instance: Name of the instance.
        model_path: The instance's model on the node.
        dummy: Whether the server makes up its weights.

    Raises:
        HeadroomError: If there is neither record nor folder, or it can't be read.
    """
    setting = f"{_MODEL}.{instance}" if isinstance(record, Mapping) else _MODEL
    path = str((record.get(instance) if isinstance(record, Mapping) else record) or "")
    cure = "Give the record of a ModelShape, or the folder of the model."
    if not path:
        if Path(model_path).is_dir():
            return _from_dir(model_path, f"{instance}: model_path '{model_path}'", dummy)
        raise refusal(
            "model.missing",
            f"{instance}: {setting} is not set, and model_path '{model_path}' is no folder on the controller.",
            cure,
        )
    try:
        found = Path(find(path))
    except LookupError:
        found = Path(path)
    if found.is_dir():
        return _from_dir(str(found), f"{setting} '{path}'", dummy)
    return model_shape.from_json(_read(find, path, setting, cure), f"{setting} '{path}'"), f"record {path}"


def _from_dir(path: str, where: str, dummy: bool) -> tuple[ModelShape, str]:
    try:
        return model_shape.from_dir(path, dummy), f"folder {path} of the controller"
    except HeadroomError as error:
        raise HeadroomError(f"{where}: {error}", error.findings) from None


def engine_version(find: Find, engines: Sequence[Mapping[str, Any]], name: str, instance: str) -> str:
    """Return the version of SGLang that an engine's lock pins.

    Args:
        find: Returns the absolute path of a lock, or raises LookupError.
        engines: The entries of sglang_runtime_engines.
        name: The engine.
        instance: The instance that names it, for messages.

    Raises:
        HeadroomError: If there is no such engine, or its lock can't be read or pins no SGLang.
    """
    listed = {item["name"]: item for item in runtime_settings.normalise_engines(engines, _ENGINES)}
    if name not in listed:
        there = f"It has {', '.join(listed)}." if listed else "It is empty."
        raise refusal(
            "engine.missing",
            f"{instance}: the engine '{name}' is not in {_ENGINES}, whose locks tell the version of SGLang.",
            there,
        )
    setting = f"{_ENGINES}[{name}].lock"
    path = listed[name]["lock"]
    _text, lock = controller_files.read_lock(find, path, setting)
    version = next((item.version for item in lock.requirements if item.name == "sglang"), "")
    if not version:
        raise refusal(
            "settings.invalid", f"{setting} is '{path}', which pins no sglang.", "Name the lock of an SGLang engine."
        )
    return version


def _read(find: Find, path: str, setting: str, cure: str) -> str:
    try:
        found = Path(find(path))
        size = found.stat().st_size
        if size > _LARGEST_BYTES:
            reason = f"has {size / 1e6:,.0f} MB, and a record has kilobytes"
        else:
            return found.read_text(encoding="utf-8")
    except LookupError:
        reason = "is no file on the controller"
    except OSError as error:
        reason = f"can't be read on the controller: {error.strerror or error}"
    except UnicodeError:
        reason = "is no text"
    raise refusal("settings.invalid", f"{setting} is '{path}', which {reason}.", cure)
