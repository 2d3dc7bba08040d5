"""What pyproject.toml pins is what is installed, and the one package that breaks every pytest run stays out."""

from __future__ import annotations

import importlib.metadata
import re
import tomllib
from pathlib import Path

import pytest

PINNED = re.compile(r"^(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)==(?P<version>[0-9][^ ;*]*)$")


@pytest.fixture
def groups(root: Path) -> dict[str, list[str | dict[str, str]]]:
    with (root / "pyproject.toml").open("rb") as stream:
        found: dict[str, list[str | dict[str, str]]] = tomllib.load(stream)["dependency-groups"]
    return found


def test_every_direct_dependency_is_pinned(groups: dict[str, list[str | dict[str, str]]]) -> None:
    assert set(groups) == {"controller", "dev"}
    loose = [
        entry for group in groups.values() for entry in group if isinstance(entry, str) and not PINNED.match(entry)
    ]
    assert loose == []


def test_dev_holds_what_the_playbooks_need(groups: dict[str, list[str | dict[str, str]]]) -> None:
    assert {"include-group": "controller"} in groups["dev"]


def test_installed_versions_are_the_pinned_ones(groups: dict[str, list[str | dict[str, str]]]) -> None:
    entries = [entry for group in groups.values() for entry in group if isinstance(entry, str)]
    pins = {match["name"]: match["version"] for match in map(PINNED.match, entries) if match}
    installed = {name: importlib.metadata.version(name) for name in pins}
    assert installed == pins


def test_pytest_ansible_is_absent() -> None:
    # It defines --ansible-inventory, as pytest-testinfra does: with both, argument parsing of every pytest run fails.
    names = {(dist.metadata["Name"] or "").lower().replace("_", "-") for dist in importlib.metadata.distributions()}
    assert "pytest-testinfra" in names
    assert names & {"pytest-ansible", "ansible-dev-tools", "ansible-dev-environment", "tox-ansible"} == set()
