"""The links that make a clone its own Ansible collection, below playbooks/collections.

Ansible looks for collections beside the playbook, so `ansible-playbook playbooks/deploy.yml` finds
headroom.serving in a fresh clone from any directory. Each link leads to a leaf: a link to `playbooks` (or to the
root) would make the tree contain itself, and tools that follow links would never return. Therefore playbooks are
linked file by file.
"""

from __future__ import annotations

import os
from pathlib import Path

COLLECTION = Path("playbooks/collections/ansible_collections/headroom/serving")
_LEAVES = ("README.md", "galaxy.yml", "meta", "plugins", "roles", "tests/testinfra")


def wanted(root: Path) -> dict[Path, str]:
    """Return each link (relative to the repository) with the relative target it must have."""
    leaves = [Path(name) for name in _LEAVES]
    leaves += sorted(path.relative_to(root) for path in (root / "playbooks").glob("*.yml"))
    links = {}
    for leaf in leaves:
        link = COLLECTION / leaf
        links[link] = os.path.relpath(leaf, link.parent)
    return links


def present(root: Path) -> dict[Path, str]:
    """Return everything that is not a plain directory below the collection, with its target ("" if not a link)."""
    found = {}
    for directory, folders, files in os.walk(root / COLLECTION.parts[0] / COLLECTION.parts[1]):
        for name in folders + files:
            path = Path(directory, name)
            if path.is_symlink():
                found[path.relative_to(root)] = str(path.readlink())
            elif not path.is_dir():
                found[path.relative_to(root)] = ""
    return found


def problems(root: Path) -> list[str]:
    """Return one line for each link that is missing, wrong or too many."""
    want, have = wanted(root), present(root)
    lines = [f"{link}: missing, must point to {target}" for link, target in want.items() if link not in have]
    for link, target in have.items():
        if link not in want:
            lines.append(f"{link}: nothing in this repository asks for it")
        elif target != want[link]:
            lines.append(f"{link}: points to {target or 'nothing: it is a file'}, must point to {want[link]}")
    return sorted(lines)


def renew(root: Path) -> list[str]:
    """Bring the links into the wanted state and return a line for each change."""
    changes = problems(root)
    want, have = wanted(root), present(root)
    for link, target in have.items():
        if want.get(link) != target:
            (root / link).unlink()
    for link, target in want.items():
        if have.get(link) != target:
            (root / link).parent.mkdir(parents=True, exist_ok=True)
            (root / link).symlink_to(target)
    return changes
