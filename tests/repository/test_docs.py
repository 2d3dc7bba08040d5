"""Generated pages are up to date, and say what the code says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ansible_collections.headroom.serving.plugins.module_utils.findings import CATALOGUE, FindingKind
from suite import docs
from suite.generate import main

SPEC: dict[str, Any] = {
    "main": {
        "options": {
            "web_port": {"type": "int", "default": 0, "description": ["A port.", "Zero | none."]},
            "web_sites": {
                "type": "list",
                "elements": "dict",
                "required": True,
                "description": "The\nsites.",
                "options": {
                    "name": {"required": True, "description": "Its name."},
                    "tls": {
                        "type": "dict",
                        "description": "Its TLS.",
                        "options": {"mode": {"choices": ["a", "b"], "default": "a", "description": "The mode."}},
                    },
                },
            },
            "web_text": {"default": "", "description": "Empty."},
            "web_on": {"type": "bool", "default": False, "description": "Off."},
        }
    },
    "tools": {"short_description": "Makes tools.", "options": {}},
}

TABLE = """\
| variable | type | default | meaning |
| --- | --- | --- | --- |
| `web_port` | int | `0` | A port. Zero \\| none. |
| `web_sites` | list of dict | required | The sites. |
| `web_sites[].name` | str | required | Its name. |
| `web_sites[].tls` | dict |  | Its TLS. |
| `web_sites[].tls.mode` | str | `a` | The mode. One of `a`, `b`. |
| `web_text` | str | `""` | Empty. |
| `web_on` | bool | `false` | Off. |

With `tasks_from: tools`: Makes tools.

No variables."""


def test_generated_pages_are_up_to_date(root: Path) -> None:
    assert docs.stale(root) == [], "run scripts/generate"


def test_every_role_and_the_catalogue_have_a_page(root: Path) -> None:
    roles = {path.name for path in (root / "roles").iterdir()}
    assert {"sglang_runtime", "sglang_server"} <= roles
    assert set(docs.pages(root)) == {Path("docs/findings.md")} | {Path("roles", role, "README.md") for role in roles}


def test_variables_have_a_row_each_with_nested_ones_under_their_path() -> None:
    assert docs.variables(SPEC) == TABLE


def test_an_entry_point_with_the_variables_of_main_does_not_repeat_them() -> None:
    text = docs.variables({**SPEC, "apply": {"short_description": "Applies", "options": SPEC["main"]["options"]}})
    assert text.endswith("With `tasks_from: apply`: Applies.\nTakes the same variables.")
    assert text.count("web_sites[].tls.mode") == 1


def test_only_the_part_between_the_markers_changes() -> None:
    page = docs.role_page(f"# web\n\n{docs.BEGIN}\nold\n{docs.END}\n\nafter\n", SPEC, "README.md")
    assert page == f"# web\n\n{docs.BEGIN}\n\n{TABLE}\n\n{docs.END}\n\nafter\n"
    assert docs.role_page(page, SPEC, "README.md") == page


@pytest.mark.parametrize(
    "readme", ["", docs.BEGIN, docs.END + docs.BEGIN, docs.BEGIN + docs.END + docs.BEGIN + docs.END]
)
def test_a_readme_without_its_markers_is_named(readme: str) -> None:
    with pytest.raises(docs.DocsError, match=r"roles/web/README\.md needs exactly one line"):
        docs.role_page(readme, SPEC, "roles/web/README.md")


def test_findings_page_shows_every_kind_once() -> None:
    page = docs.findings_page({**CATALOGUE, "new.one": FindingKind("new.one", "warn", "A | b", "Text.")})
    for kind in CATALOGUE.values():
        assert page.count(f"| `{kind.id}` | {kind.verdict} | **{kind.title}.** ") == 1
    assert (
        "## new\n\n| id | verdict | meaning |\n| --- | --- | --- |\n| `new.one` | warn | **A \\| b.** Text. |" in page
    )


def test_catalogue_is_keyed_by_unique_ids_of_two_parts(root: Path) -> None:
    source = (root / "plugins/module_utils/findings.py").read_text("utf-8")
    assert source.count("    FindingKind(\n") == len(CATALOGUE)
    assert [kind_id for kind_id, kind in CATALOGUE.items() if kind_id != kind.id or kind_id.count(".") != 1] == []


def test_check_names_a_stale_page_and_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "roles").mkdir()
    monkeypatch.setattr("suite.generate.ROOT", tmp_path)
    assert main([]) == 0
    assert main(["--check"]) == 0
    page = tmp_path / "docs" / "findings.md"
    page.write_text(page.read_text("utf-8") + "by hand\n", "utf-8")
    capsys.readouterr()
    assert main(["--check"]) == 1
    assert "out of date: docs/findings.md" in capsys.readouterr().out
    assert page.read_text("utf-8").endswith("by hand\n")
    assert main([]) == 0
    assert not page.read_text("utf-8").endswith("by hand\n")
