"""docs/architecture.md names what there is: every room, every playbook, and nothing that is gone."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = ("README.md", "CONTRIBUTING.md", "docs/architecture.md", "docs/plan.md", "benchmarks/README.md")
PACKAGE = "ansible_collections.headroom.serving.plugins.module_utils"
_LINK = re.compile(r"\[[^\]]*\]\((?P<target>[^)#\s]+)(?:#[^)]*)?\)")


def rooms_of(page: str) -> list[str]:
    """Return the first cells of the table of rooms, in their order."""
    _before, _heading, rest = page.partition("\n## Rooms\n")
    table = rest.partition("\n## ")[0]
    return re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)


def imported_rooms(tree: ast.Module) -> set[str]:
    """Return the rooms that a module imports, as a whole or by parts."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == PACKAGE:
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and node.module.startswith(f"{PACKAGE}."):
            found.add(node.module.removeprefix(f"{PACKAGE}."))
    return found


def _page() -> str:
    return (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")


def test_every_room_has_its_row() -> None:
    files = {path.stem for path in (ROOT / "plugins" / "module_utils").glob("*.py")} - {"__init__"}
    rooms = rooms_of(_page())
    assert sorted(rooms) == sorted(files)
    assert len(rooms) == len(set(rooms))


def test_no_room_uses_one_that_stands_below_it() -> None:
    order = rooms_of(_page())
    for place, room in enumerate(order):
        tree = ast.parse((ROOT / "plugins" / "module_utils" / f"{room}.py").read_text(encoding="utf-8"))
        assert imported_rooms(tree) <= set(order[:place]), room


def test_both_ways_of_importing_a_room_are_seen() -> None:
    tree = ast.parse(f"from {PACKAGE} import a, b\nfrom {PACKAGE}.c import D\nimport json\nfrom pathlib import Path\n")
    assert imported_rooms(tree) == {"a", "b", "c"}


def test_every_file_of_the_controllers_side_is_named() -> None:
    for path in (ROOT / "plugins" / "plugin_utils").glob("[!_]*.py"):
        assert f"`{path.stem}`" in _page(), path.name


def test_rooms_are_read_from_their_table_only() -> None:
    table = "| room | in |\n| --- | --- |\n| `b` | x |\n| **more** | |\n| `c` | y |\n"
    page = f"\n| `a` |\n\n## Rooms\n\n{table}\n## X\n| `d` |\n"
    assert rooms_of(page) == ["b", "c"]


@pytest.mark.parametrize("name", PAGES)
def test_links_between_pages_lead_somewhere(name: str) -> None:
    page = ROOT / name
    targets = [match["target"] for match in _LINK.finditer(page.read_text(encoding="utf-8"))]
    local = [target for target in targets if "://" not in target]
    assert [target for target in local if not (page.parent / target).exists()] == []


def test_the_readme_tells_of_every_playbook() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for path in (ROOT / "playbooks").glob("*.yml"):
        assert f"`{path.name}`" in readme, path.name
