"""A role's defaults, its argument specs and its variables' names say the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

ROLES = Path(__file__).resolve().parents[2] / "roles"
NAMES = sorted(path.name for path in ROLES.iterdir() if path.is_dir()) if ROLES.is_dir() else []


def _load(path: Path) -> dict[str, Any]:
    return yaml.safe_load(path.read_text(encoding="utf-8")) or {}


def drift(specs: dict[str, Any], defaults: dict[str, Any]) -> list[str]:
    """Return one line for each way in which a role's specs and defaults/main.yml disagree."""
    main = specs["main"].get("options", {})
    lines = [f"{name}: in defaults/main.yml, not in argument_specs" for name in defaults if name not in main]
    for name, option in main.items():
        default = option.get("default")
        if option.get("required"):
            if name in defaults:
                lines.append(f"{name}: required, but has a default in defaults/main.yml")
        elif name not in defaults:
            lines.append(f"{name}: in argument_specs, not in defaults/main.yml")
        elif default != defaults[name] or type(default) is not type(defaults[name]):
            lines.append(f"{name}: {default!r} in argument_specs, {defaults[name]!r} in defaults/main.yml")
    for entry_point, content in specs.items():
        for name, option in content.get("options", {}).items():
            if main.get(name) != option:
                lines.append(f"{name}: differs between the entry points main and {entry_point}")
    return lines


def undocumented(options: dict[str, Any], prefix: str = "") -> list[str]:
    """Return the dotted paths of options without a description or a type."""
    paths = [
        f"{prefix}{name}" for name, option in options.items() if not (option.get("description") and "type" in option)
    ]
    for name, option in options.items():
        paths += undocumented(option.get("options", {}), f"{prefix}{name}.")
    return paths


def test_there_are_roles() -> None:
    assert {"sglang_runtime", "sglang_server"} <= set(NAMES)


@pytest.mark.parametrize("role", NAMES)
def test_defaults_and_specs_agree(role: str) -> None:
    specs = _load(ROLES / role / "meta" / "argument_specs.yml")["argument_specs"]
    assert drift(specs, _load(ROLES / role / "defaults" / "main.yml")) == []


@pytest.mark.parametrize("role", NAMES)
def test_every_option_has_a_type_and_a_description(role: str) -> None:
    for content in _load(ROLES / role / "meta" / "argument_specs.yml")["argument_specs"].values():
        assert undocumented(content.get("options", {})) == []


@pytest.mark.parametrize("role", NAMES)
def test_variables_carry_the_roles_name(role: str) -> None:
    public = _load(ROLES / role / "defaults" / "main.yml")
    assert [name for name in public if not name.startswith(f"{role}_")] == []
    for file in sorted((ROLES / role / "vars").glob("*.yml")):
        assert [name for name in _load(file) if not name.startswith(f"__{role}_")] == []


def test_drift_sees_each_kind_of_difference() -> None:
    specs = {
        "main": {
            "options": {
                "r_same": {"default": 1},
                "r_value": {"default": 1},
                "r_type": {"default": 1},
                "r_spec_only": {"default": 1},
                "r_required": {"required": True},
                "r_must": {"required": True},
            }
        },
        "tools": {"options": {"r_same": {"default": 2}}},
    }
    defaults = {"r_same": 1, "r_value": 2, "r_type": True, "r_default_only": 1, "r_must": 1}
    assert drift(specs, defaults) == [
        "r_default_only: in defaults/main.yml, not in argument_specs",
        "r_value: 1 in argument_specs, 2 in defaults/main.yml",
        "r_type: 1 in argument_specs, True in defaults/main.yml",
        "r_spec_only: in argument_specs, not in defaults/main.yml",
        "r_must: required, but has a default in defaults/main.yml",
        "r_same: differs between the entry points main and tools",
    ]
