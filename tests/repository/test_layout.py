"""The clone is its own collection, and what is built from it holds the collection and nothing else."""

from __future__ import annotations

import importlib
import subprocess
import tarfile
from pathlib import Path

import pytest

from suite import links

# What a user of the collection gets. A new file at the root of the repository must be added here or to
# build_ignore in galaxy.yml.
PACKED = {
    "CHANGELOG.md",
    "FILES.json",
    "LICENSE",
    "MANIFEST.json",
    "README.md",
    "changelogs",
    "docs",
    "inventory",
    "meta",
    "playbooks",
    "plugins",
    "requirements.yml",
    "roles",
    "tests",
}


def _tracked(root: Path) -> list[str]:
    listing = subprocess.run(["git", "ls-files", "-z"], cwd=root, capture_output=True, text=True, check=True)
    return [name for name in listing.stdout.split("\0") if name]


def test_links_are_as_wanted(root: Path) -> None:
    assert links.problems(root) == [], "run scripts/generate"


def test_every_playbook_has_its_link(root: Path) -> None:
    playbooks = {path.name for path in (root / "playbooks").glob("*.yml")}
    assert "deploy.yml" in playbooks
    linked = {path.name: path for path in (root / links.COLLECTION / "playbooks").iterdir()}
    assert set(linked) == playbooks
    for name, link in linked.items():
        assert link.is_symlink()
        assert link.resolve() == root / "playbooks" / name


def test_links_resolve_and_make_no_cycle(root: Path) -> None:
    found = links.present(root)
    assert found
    for name in found:
        link = root / name
        assert link.is_symlink(), f"{name} is a file: what is in it would be a second truth"
        assert link.exists(), f"{name} leads nowhere"
        target = link.resolve()
        assert target.is_relative_to(root), f"{name} leaves the clone"
        assert not link.parent.is_relative_to(target), f"{name} leads to its own ancestor {target}"


def test_links_are_committed_as_links(root: Path) -> None:
    if not (root / ".git").exists():
        pytest.fail("the tests of the layout read what git tracks: run them in a clone")
    stage = subprocess.run(
        ["git", "ls-files", "--stage", "playbooks/collections"], cwd=root, capture_output=True, text=True, check=True
    )
    modes = {line.split("\t")[1]: line.split()[0] for line in stage.stdout.splitlines()}
    assert set(modes) == {str(link) for link in links.wanted(root)}
    assert set(modes.values()) == {"120000"}


def test_problems_names_each_kind_of_damage(tmp_path: Path) -> None:
    for name in ("README.md", "galaxy.yml", "playbooks/deploy.yml", "playbooks/new.yml"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert len(links.renew(tmp_path)) == len(links.wanted(tmp_path))
    assert links.problems(tmp_path) == []
    home = tmp_path / links.COLLECTION
    (home / "playbooks" / "deploy.yml").unlink()
    (home / "galaxy.yml").unlink()
    (home / "galaxy.yml").symlink_to("/etc/hostname")
    (home / "README.md").unlink()
    (home / "README.md").write_text("a copy")
    (tmp_path / "playbooks" / "new.yml").unlink()
    text = "\n".join(links.problems(tmp_path))
    assert "playbooks/deploy.yml: missing, must point to ../../../../../deploy.yml" in text
    assert "galaxy.yml: points to /etc/hostname" in text
    assert "README.md: points to nothing: it is a file" in text
    assert "playbooks/new.yml: nothing in this repository asks for it" in text
    assert len(text.splitlines()) == 4
    links.renew(tmp_path)
    assert links.problems(tmp_path) == []


def test_plugins_import_under_the_collections_name(root: Path) -> None:
    module = importlib.import_module("ansible_collections.headroom.serving.plugins.module_utils.findings")
    assert module.__file__ is not None
    assert Path(module.__file__).resolve() == root / "plugins" / "module_utils" / "findings.py"
    assert module.CATALOGUE


def test_archive_holds_the_collection_only(packed: dict[str, tarfile.TarInfo]) -> None:
    assert {name.split("/")[0] for name in packed} == PACKED
    unwanted = ("collections", "__pycache__", ".cache", ".venv", ".git", "molecule", "fragments", "demo")
    assert [name for name in packed if set(name.split("/")) & set(unwanted)] == []
    assert {name.split("/")[1] for name in packed if name.startswith("tests/")} == {"testinfra"}


def test_archive_holds_all_of_the_collection(root: Path, packed: dict[str, tarfile.TarInfo]) -> None:
    parts = ("plugins/", "roles/", "meta/", "tests/testinfra/", "docs/", "inventory/blackwell/")
    want = [name for name in _tracked(root) if name.startswith(parts) and (root / name).exists()]
    want += [f"playbooks/{path.name}" for path in (root / "playbooks").glob("*.yml")]
    assert [name for name in want if name not in packed] == []


def test_archive_holds_nothing_that_git_does_not_track(root: Path, packed: dict[str, tarfile.TarInfo]) -> None:
    tracked = set(_tracked(root)) | {"FILES.json", "MANIFEST.json"}
    assert [name for name, member in packed.items() if member.isfile() and name not in tracked] == []


def test_archive_holds_no_links(packed: dict[str, tarfile.TarInfo]) -> None:
    assert [name for name, member in packed.items() if member.issym() or member.islnk()] == []
