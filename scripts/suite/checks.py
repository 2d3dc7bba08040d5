"""Every check of this repository: how it runs and what it counts. Standard library only, as it starts before .venv."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from devnode.names import Clone
from suite.progress import Progress, Shown

# Tools that come from the distribution: ansible-test uses shellcheck, too; the others build tests/stand_ins.
CHECKERS = ("shellcheck", "gcc", "libc6-dev")
# What the pytest plugin suite.live writes in front of a test that ended.
TEST_ENDED = "test: "
_LINKS = "playbooks/collections/"
_SANITY_TEST = re.compile(r'^Running sanity test "', re.MULTILINE)
_SANITY_FAILED = re.compile(r"^FATAL: The (\d+) sanity test\(s\) listed below", re.MULTILINE)
_SANITY_HOLE = re.compile(r"^WARNING: .*(?:[Ss]kipping|not found).*$", re.MULTILINE)
_DEMO_STEP = re.compile(r"\[ *[0-9.]+ s\] (?P<text>.*\S)")
_MOLECULE_HOLE = re.compile(r"^.*(?:Skipping, no tests found|Missing playbook).*$", re.MULTILINE)
_MOLECULE_STEP = re.compile(r"(?:INFO|WARNING|CRITICAL|ERROR)\s+(?P<text>.*\S)")


@dataclass(frozen=True)
class Outcome:
    """What a check found: how many of its parts passed and failed, and what to read if any failed."""

    passed: int
    failed: int
    output: str = ""


@dataclass(frozen=True)
class Context:
    """What the checks share."""

    root: Path
    progress: Progress
    full: bool = False

    @property
    def cache(self) -> Path:
        """Where checks keep what they make."""
        return self.root / ".cache" / "test"

    def tool(self, name: str) -> str:
        """Return the path of a tool of the development dependencies."""
        return str(self.root / ".venv" / "bin" / name)

    def env(self, **more: str) -> dict[str, str]:
        """Return the environment of a check: the tools' folder first, UTF-8, and no colours in logs."""
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("ANSIBLE_", "MOLECULE_", "PYTEST_", "PYTHONP"))
        }
        kept["PATH"] = f"{self.root / '.venv' / 'bin'}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
        return {**kept, "LC_ALL": "C.UTF-8", "NO_COLOR": "1", "ANSIBLE_NOCOLOR": "1", **more}

    def run(self, name: str, command: list[str], shown: Shown | None = None) -> tuple[int, str]:
        """Run a check's command at the repository's root, with this package within its reach."""
        env = self.env(PYTHONPATH=str(self.root / "scripts"), PYTHONPYCACHEPREFIX=str(self.root / ".cache" / "pycache"))
        return self.progress.run(name, command, self.root, env, shown)


@dataclass(frozen=True)
class Check:
    """One line of scripts/test. Light ones may run beside each other; the others run alone, in their order."""

    name: str
    title: str
    run: Callable[[Context], Outcome]
    light: bool = False


def _command(name: str, title: str, *command: str) -> Check:
    """Return a light check that is one command and passes or fails as a whole."""

    def run(context: Context) -> Outcome:
        status, output = context.run(name, [context.tool(command[0]), *command[1:]])
        return Outcome(int(status == 0), int(status != 0), output)

    return Check(name, title, run, light=True)


def counted(reports: Iterable[Path], status: int, output: str) -> Outcome:
    """Return the outcome of a pytest run from its JUnit reports.

    A skipped test counts as failed, for what it would have shown was not seen; so does a run without any test.
    """
    total = bad = 0
    notes = []
    for report in reports:
        for suite in ET.parse(report).getroot().iter("testsuite"):
            total += int(suite.get("tests", 0))
            bad += sum(int(suite.get(kind, 0)) for kind in ("failures", "errors", "skipped"))
            notes += [
                f"{case.get('classname')}::{case.get('name')} was skipped: {skipped.get('message')}"
                for case in suite.iter("testcase")
                for skipped in case.iter("skipped")
            ]
    if total == 0:
        notes.append("no test ran")
    # An error of a test's tear-down is reported beside the test's own result.
    passed = max(total - bad, 0)
    failed = bad if bad or (status == 0 and total) else 1
    return Outcome(passed, failed, "\n".join([output, *notes]))


def _shellcheck(context: Context) -> Outcome:
    """Check every shell script, known by its first line."""
    scripts = [name for name in files_to_copy(context.root) if _is_shell(context.root / name)]
    status, output = context.run("shellcheck", ["shellcheck", "--external-sources", *scripts])
    good = status == 0 and len(scripts) > 0
    return Outcome(int(good), int(not good), output)


def _is_shell(path: Path) -> bool:
    with path.open("rb") as file:
        first = file.readline(80).split()
    return len(first) > 0 and first[0].startswith(b"#!") and first[-1].endswith((b"/sh", b"bash"))


def _pytest(name: str, title: str, *paths: str) -> Check:
    """Return a check that runs pytest on some folders and shows each test as it ends if there are nodes in it."""

    def run(context: Context) -> Outcome:
        report = context.cache / f"{name}.xml"
        report.unlink(missing_ok=True)
        command = [context.tool("python"), "-m", "pytest", "-q", "-p", "suite.live", f"--junit-xml={report}", *paths]
        if not context.full:
            command += ["-m", "not full"]
        status, output = context.run(name, command, _shown_test if name == "node" else None)
        return counted([report] if report.exists() else [], status, _without_marks(output))

    return Check(name, title, run)


def _shown_test(line: str) -> str | None:
    return line.removeprefix(TEST_ENDED) if line.startswith(TEST_ENDED) else None


def _without_marks(output: str) -> str:
    return "".join(line for line in output.splitlines(keepends=True) if not line.startswith(TEST_ENDED))


def files_to_copy(root: Path) -> list[str]:
    """Return the files that git tracks or would track, without the links that make the clone its own collection."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listing = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True).stdout
    names = {name for name in listing.split("\0") if name and not name.startswith(_LINKS)}
    return sorted(name for name in names if (root / name).exists())


def copy_collection(root: Path, target: Path) -> None:
    """Bring a copy of the repository's files to where ansible-test accepts it.

    ansible-test wants to stand below ansible_collections and refuses links to directories. The environments that it
    made in tests/output stay from run to run.
    """
    names = files_to_copy(root)
    keep = (target / ".git", target / "tests" / "output")
    for path in sorted(target.rglob("*"), reverse=True):
        if any(path == kept or kept in path.parents or path in kept.parents for kept in keep):
            continue
        if path.is_dir() and not path.is_symlink():
            if not any(path.iterdir()):
                path.rmdir()
        elif str(path.relative_to(target)) not in names:
            path.unlink()
    for name in names:
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        if (target / name).is_symlink():
            (target / name).unlink()
        shutil.copy2(root / name, target / name, follow_symlinks=False)
    for git in (["init", "-q"], ["add", "--all"]):
        subprocess.run(["git", *git], cwd=target, capture_output=True, check=True)


def _ansible_test(context: Context, name: str, *arguments: str) -> tuple[int, str]:
    """Run ansible-test on a copy of the collection, in a home of its own."""
    tree = context.cache / "ansible_collections" / "headroom" / "serving"
    home = context.cache / "home"
    copy_collection(context.root, tree)
    _lay_pip_bootstrap(context, home)
    command = [context.tool("ansible-test"), *arguments, "--python", _python_version(), "--color", "no"]
    # It makes a dozen environments; what pip says about them would bury what the tests say.
    quiet = {"PIP_QUIET": "1", "PIP_PROGRESS_BAR": "off"}
    return context.progress.run(name, command, tree, context.env(HOME=str(home), **quiet))


def _python_version() -> str:
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def _lay_pip_bootstrap(context: Context, home: Path) -> None:
    """Let ansible-test make its environments with Python's own pip instead of a script from a server of its project."""
    question = (
        "import sys, types; from ansible_test._internal.python_requirements import get_venv_packages; "
        "print(get_venv_packages(types.SimpleNamespace(version=sys.argv[1]))['pip'])"
    )
    command = [context.tool("python"), "-c", question, _python_version()]
    version = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    script = home / ".ansible" / "test" / "cache" / f"get_pip_{version.replace('.', '_')}.py"
    script.parent.mkdir(parents=True, exist_ok=True)
    script.write_text("import ensurepip\n\nensurepip.bootstrap()\n", encoding="utf-8")


def _sanity(context: Context) -> Outcome:
    with Clone(context.root).locked("ansible-test"):
        status, output = _ansible_test(context, "sanity", "sanity", "--local", "--requirements")
    return sanity_outcome(status, output)


def sanity_outcome(status: int, output: str) -> Outcome:
    """Return the outcome of ansible-test sanity from what it printed; a test it could not run counts as failed."""
    total = len(_SANITY_TEST.findall(output))
    holes = len(_SANITY_HOLE.findall(output))
    listed = _SANITY_FAILED.search(output)
    failed = (int(listed[1]) if listed else int(status != 0 or total == 0)) + holes
    return Outcome(max(total - failed, 0), failed, output)


def _units(context: Context) -> Outcome:
    reports = context.cache / "ansible_collections/headroom/serving/tests/output/junit"
    with Clone(context.root).locked("ansible-test"):
        shutil.rmtree(reports, ignore_errors=True)
        status, output = _ansible_test(context, "units", "units", "tests/unit/plugins/", "--venv")
        return counted(sorted(reports.glob("*.xml")), status, output)


def _demo(context: Context) -> Outcome:
    """Run the demo as a user does; leave its node only if it was there before."""
    devnode = [sys.executable, "-m", "devnode"]
    _status, nodes = context.run("demo", [*devnode, "list"])
    status, output = context.run("demo", [str(context.root / "scripts" / "demo")], demo_step)
    if not any(line.startswith("demo ") for line in nodes.splitlines()):
        context.run("demo", [*devnode, "down", "demo"])
    return Outcome(int(status == 0), int(status != 0), output)


def demo_step(line: str) -> str | None:
    """Return the step that a line of the demo's output tells, None for other lines."""
    match = _DEMO_STEP.match(line)
    return match["text"] if match else None


def _molecule(context: Context) -> Outcome:
    """Run every scenario, each by itself so that one that fails does not keep the next from being seen."""
    outcomes = []
    for name in scenarios(context.root):
        command = [context.tool("molecule"), "test", "--scenario-name", name]
        outcomes.append(molecule_outcome(*context.run("molecule", command, molecule_step)))
    if not outcomes:
        return Outcome(0, 1, "no scenario was found")
    bad = [outcome for outcome in outcomes if outcome.failed]
    return Outcome(len(outcomes) - len(bad), len(bad), "\n".join(outcome.output for outcome in bad))


def scenarios(root: Path) -> list[str]:
    """Return the names of molecule's scenarios."""
    return sorted(path.parent.name for path in root.glob("molecule/*/molecule.yml"))


def molecule_outcome(status: int, output: str) -> Outcome:
    """Return the outcome of a scenario; one that left out a step because it found nothing to do there failed."""
    holes = _MOLECULE_HOLE.findall(output)
    good = status == 0 and not holes
    return Outcome(int(good), int(not good), "\n".join([output, *holes]))


def molecule_step(line: str) -> str | None:
    """Return the name of the step that a line of molecule's output announces, None for other lines."""
    match = _MOLECULE_STEP.match(line)
    return match["text"] if match else None


CHECKS = (
    _command("ruff", "ruff check", "ruff", "check"),
    _command("format", "ruff format", "ruff", "format", "--check", "--diff"),
    _command("yamllint", "yamllint", "yamllint", "--strict", "."),
    Check("shellcheck", "shellcheck", _shellcheck, light=True),
    _command("mypy", "mypy, the collection", "mypy"),
    _command("mypy-scripts", "mypy, scripts", "mypy", "--python-version=3.11", "-p", "devnode", "-p", "suite"),
    _command(
        "python39", "no newer Python than a node has",
        "vermin", "--target=3.9-", "--violations", "--no-tips", "--no-parse-comments", "plugins", "tests/testinfra",
    ),
    _command("generated", "generated files", "python", "-m", "suite.generate", "--check"),
    _command(
        "markup", "documentation of modules and roles",
        "antsibull-docs", "lint-collection-docs", "--plugin-docs", "--validate-collection-refs=all",
        "--disallow-unknown-collection-refs", ".",
    ),
    _command("changelog", "changelog fragments", "antsibull-changelog", "lint"),
    _command("ansible-lint", "ansible-lint, profile production", "ansible-lint", "--strict", "--nocolor"),
    _pytest("unit", "unit tests", "tests/unit", "tests/repository"),
    Check("sanity", "ansible-test sanity", _sanity),
    Check("units", "ansible-test units", _units),
    Check("demo", "the demo", _demo),
    _pytest("node", "tests on real nodes", "tests/node"),
    Check("molecule", "molecule, every scenario", _molecule),
)  # fmt: skip
