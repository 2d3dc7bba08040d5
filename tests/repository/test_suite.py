"""scripts/test tells the truth: what it counts, what it shows, and that one failure hides nothing of the rest."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from threading import Thread

import pytest

from suite import checks, run
from suite.checks import Check, Context, Outcome
from suite.progress import Progress

REPORT = """<testsuites><testsuite name="pytest" tests="{tests}" failures="{failures}" errors="{errors}"
 skipped="{skipped}"><testcase classname="test_x" name="test_y">{case}</testcase></testsuite></testsuites>"""


@pytest.fixture
def context(tmp_path: Path) -> Context:
    (tmp_path / "scripts").mkdir()
    return Context(tmp_path, Progress(tmp_path / "logs"))


@pytest.mark.parametrize(
    ("numbers", "status", "passed", "failed"),
    [
        ((5, 0, 0, 0), 0, 5, 0),
        ((5, 2, 1, 0), 1, 2, 3),
        ((5, 0, 0, 1), 0, 4, 1),  # a skip shows nothing, so it is no pass
        ((0, 0, 0, 0), 5, 0, 1),  # nothing ran
        ((0, 0, 0, 0), 0, 0, 1),
        ((5, 0, 0, 0), 1, 5, 1),  # pytest itself failed after good tests
    ],
)
def test_counts_of_a_pytest_run(
    tmp_path: Path, numbers: tuple[int, int, int, int], status: int, passed: int, failed: int
) -> None:
    tests, failures, errors, skipped = numbers
    case = '<skipped message="no reason"/>' if skipped else ""
    report = tmp_path / "report.xml"
    report.write_text(
        REPORT.format(tests=tests, failures=failures, errors=errors, skipped=skipped, case=case), encoding="utf-8"
    )
    outcome = checks.counted([report], status, "text")
    assert (outcome.passed, outcome.failed) == (passed, failed)
    assert ("test_x::test_y was skipped: no reason" in outcome.output) == bool(skipped)
    assert ("no test ran" in outcome.output) == (tests == 0)


def test_a_pytest_run_without_report_failed() -> None:
    assert checks.counted([], 0, "").failed == 1


@pytest.mark.parametrize(
    ("status", "output", "passed", "failed"),
    [
        (0, 'Running sanity test "a"\nRunning sanity test "b"\n', 2, 0),
        (
            1,
            'Running sanity test "a"\nRunning sanity test "b"\nERROR: x\n'
            "FATAL: The 1 sanity test(s) listed below (out of 2) failed. See error output above for details.\nb\n",
            1,
            1,
        ),
        (0, 'Running sanity test "a"\nWARNING: Skipping sanity test "a" because\n', 0, 1),
        (0, 'Running sanity test "a"\nWARNING: Required program "shellcheck" not found.\n', 0, 1),
        (1, "FATAL: something else\n", 0, 1),
        (0, "", 0, 1),
    ],
)
def test_counts_of_ansible_test_sanity(status: int, output: str, passed: int, failed: int) -> None:
    outcome = checks.sanity_outcome(status, output)
    assert (outcome.passed, outcome.failed) == (passed, failed)


def test_every_check_runs_whatever_fails(context: Context, capsys: pytest.CaptureFixture[str]) -> None:
    def broken(_context: Context) -> Outcome:
        raise RuntimeError("the tool is not there")

    wanted = [
        Check("first", "first", broken, light=True),
        Check("second", "second", lambda _: Outcome(3, 0), light=True),
        Check("third", "third", lambda _: Outcome(1, 2, "two are wrong")),
        Check("fourth", "fourth", lambda _: Outcome(1, 0, "not shown")),
    ]
    outcomes = run.run_all(context, wanted)
    assert list(outcomes) == ["first", "second", "third", "fourth"]
    assert sum(outcome.failed for outcome in outcomes.values()) == 3
    shown = capsys.readouterr().out
    assert "first: FAILED (1)" in shown
    assert "    RuntimeError: the tool is not there\n" in shown
    assert "second: ok (3)" in shown
    assert "    two are wrong\n" in shown
    assert "not shown" not in shown


@pytest.mark.parametrize(("bad", "status"), [(0, 0), (2, 1)])
def test_closing_line_and_exit_status(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], bad: int, status: int
) -> None:
    monkeypatch.setattr(run, "_install", lambda _clone: None)
    monkeypatch.setattr(run, "run_all", lambda _context, _checks: {"a": Outcome(4, 0), "b": Outcome(3, bad)})
    assert run.main([]) == status
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == f"7 passed, {bad} failed"
    assert any("again: scripts/test --only b" in line for line in lines) == bool(bad)


def test_an_unknown_check_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        run.main(["--only", "ruf"])
    assert "no check ruf: there are ruff format" in capsys.readouterr().err.splitlines()[-1]


def test_checks_have_names_of_their_own() -> None:
    names = [check.name for check in checks.CHECKS]
    assert len(set(names)) == len(names)
    light = [check.light for check in checks.CHECKS]
    assert light == sorted(light, reverse=True), "quick checks come first"


def test_output_is_shown_as_it_comes_and_kept(context: Context, capsys: pytest.CaptureFixture[str]) -> None:
    code = "import sys; print('one'); print('two', file=sys.stderr); print(repr(sys.stdin.read())); sys.exit(3)"
    command = [sys.executable, "-c", code]
    status, output = context.progress.run(
        "tool", command, context.root, context.env(), lambda line: line.upper() if line == "two" else None
    )
    assert status == 3
    assert sorted(output.splitlines()) == ["''", "one", "two"]
    assert [line.split(" s] ")[1] for line in capsys.readouterr().out.splitlines()] == ["tool: TWO"]
    log = context.root / "logs" / "tool.log"
    assert "one\n" in log.read_text("utf-8")
    context.progress.run("tool", [sys.executable, "-c", "print('again')"], context.root, context.env())
    assert {"one", "again"} <= set(log.read_text("utf-8").splitlines()), "one run, one log"
    Progress(context.root / "logs").run("tool", [sys.executable, "-c", ""], context.root, context.env())
    assert "one\n" not in log.read_text("utf-8"), "the next run begins anew"


def test_a_silent_command_is_spoken_for(
    context: Context, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("suite.progress._HEARTBEAT_S", 0.2)
    code = "import time; print('loading', flush=True); time.sleep(1.5)"
    context.progress.run("slow", [sys.executable, "-c", code], context.root, context.env())
    assert " s so far; loading\n" in capsys.readouterr().out


def test_stop_ends_a_command_with_its_children(context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    # A shell's background command ignores SIGINT, so the second signal is needed.
    monkeypatch.setattr("suite.progress._TIDY_UP_S", 1.0)
    pid_file = context.root / "pid"
    command = ["sh", "-c", f"sleep 60 & echo $! > {pid_file}; wait"]
    thread = Thread(target=context.progress.run, args=("tool", command, context.root, context.env()))
    thread.start()
    deadline = time.monotonic() + 10
    while not (pid_file.exists() and pid_file.read_text("utf-8").strip()) and time.monotonic() < deadline:
        time.sleep(0.05)
    context.progress.stop()
    thread.join(10)
    assert not thread.is_alive()
    child = Path("/proc") / pid_file.read_text("utf-8").strip() / "stat"
    state = child.read_text("utf-8").rsplit(")", 1)[1].split()[0] if child.exists() else "gone"
    assert state in ("gone", "Z")


TIDY = """
import pathlib, time
try:
    print("at work", flush=True)
    time.sleep(60)
finally:
    pathlib.Path("tidied").touch()
"""

INTERRUPTED = """
import os, pathlib, signal, sys
from suite import run
from suite.checks import Check, Context
from suite.progress import Progress

here = pathlib.Path.cwd()
context = Context(here, Progress(here / "logs"))


def slow(context):
    command = [sys.executable, "tidy.py"]
    return context.progress.run("slow", command, here, context.env(), lambda _: os.kill(os.getpid(), signal.SIGINT))


try:
    run.run_all(context, [Check("slow", "slow", slow)])
except KeyboardInterrupt:
    print("stopped")
"""


def test_an_interrupted_run_lets_its_checks_tidy_up(tmp_path: Path) -> None:
    (tmp_path / "tidy.py").write_text(TIDY, encoding="utf-8")
    (tmp_path / "interrupted.py").write_text(INTERRUPTED, encoding="utf-8")
    env = {**os.environ, "PYTHONPATH": str(Path(checks.__file__).parents[1])}
    command = [sys.executable, "interrupted.py"]
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False, timeout=50)
    assert done.stdout.splitlines()[-1] == "stopped", done.stderr
    assert (tmp_path / "tidied").exists()


def test_the_commands_for_people_refuse_a_machine_for_the_same_reasons() -> None:
    scripts = Path(checks.__file__).parents[1]
    guards = [
        [line.replace("scripts/demo", "").replace("scripts/test", "") for line in text.splitlines() if "fail" in line]
        for text in ((scripts / name).read_text("utf-8") for name in ("demo", "test"))
    ]
    assert len(guards[0]) > 3
    assert [line for line in guards[0] if line not in guards[1]] == []


def test_environment_of_a_check_is_clean(context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ANSIBLE_CONFIG", "PYTEST_ADDOPTS", "MOLECULE_GLOB", "PYTHONPATH"):
        monkeypatch.setenv(name, "foreign")
    env = context.env(PIP_QUIET="1")
    assert "foreign" not in env.values()
    assert env["PATH"].split(os.pathsep)[0] == str(context.root / ".venv" / "bin")
    assert env["PIP_QUIET"] == "1"


def test_copy_follows_the_clone_and_keeps_what_ansible_test_made(tmp_path: Path) -> None:
    root, target = tmp_path / "clone", tmp_path / "copy" / "ansible_collections" / "headroom" / "serving"
    for name in ("plugins/a.py", "gone.py", "playbooks/collections/x/link.py", "ignored.py"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name, encoding="utf-8")
    (root / ".gitignore").write_text("ignored.py\n", encoding="utf-8")
    (root / "link").symlink_to("plugins/a.py")
    subprocess.run(["git", "init", "-q"], cwd=root, check=True)
    subprocess.run(["git", "add", "--all"], cwd=root, check=True)
    target.mkdir(parents=True)
    checks.copy_collection(root, target)
    assert _files(target) == {".gitignore", "gone.py", "link", "plugins/a.py"}
    (target / "tests" / "output" / "env").mkdir(parents=True)
    (target / "tests" / "output" / "env" / "made").touch()
    (root / "gone.py").unlink()
    (root / "new.py").touch()
    (root / "plugins" / "a.py").write_text("changed", encoding="utf-8")
    checks.copy_collection(root, target)
    assert _files(target) == {".gitignore", "link", "new.py", "plugins/a.py", "tests/output/env/made"}
    assert (target / "link").is_symlink()
    assert (target / "plugins" / "a.py").read_text("utf-8") == "changed"


def _files(folder: Path) -> set[str]:
    names = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    return {name for name in names if not name.startswith(".git/")}


@pytest.mark.parametrize(
    ("line", "step"),
    [
        ("INFO     [default > converge] Executing", "[default > converge] Executing"),
        ("TASK [Gathering Facts] ***", None),
        ("", None),
    ],
)
def test_steps_of_molecule(line: str, step: str | None) -> None:
    assert checks.molecule_step(line) == step


@pytest.mark.parametrize(
    ("status", "output", "failed"),
    [
        (0, "INFO  [default > verify] Executed: Successful", 0),
        (1, "INFO  [default > verify] Executed: Successful", 1),
        (0, "WARNING  [default > verify] Skipping, no tests found.", 1),
        (0, "WARNING  [default > side_effect] Executed: Missing playbook (Remove from test_sequence to suppress)", 1),
    ],
)
def test_a_scenario_that_leaves_a_step_out_failed(status: int, output: str, failed: int) -> None:
    assert checks.molecule_outcome(status, output).failed == failed


MOLECULE = """#!/bin/sh
echo "$*" >>"{calls}"
echo "INFO  [$3 > converge] Executing"
[ "$3" != blackwell ]
"""


def _with_scenarios(context: Context, *names: str) -> Path:
    """Lay scenarios and a molecule that fails with one of them into a clone; return the file of its calls."""
    calls = context.root / "calls"
    tool = Path(context.tool("molecule"))
    tool.parent.mkdir(parents=True)
    tool.write_text(MOLECULE.format(calls=calls), encoding="utf-8")
    tool.chmod(0o755)
    (context.root / "molecule" / "tasks").mkdir(parents=True)
    for name in names:
        (context.root / "molecule" / name).mkdir()
        (context.root / "molecule" / name / "molecule.yml").touch()
    return calls


def test_every_scenario_of_molecule_runs_and_counts(context: Context, capsys: pytest.CaptureFixture[str]) -> None:
    calls = _with_scenarios(context, "default", "blackwell", "other")
    (check,) = (check for check in checks.CHECKS if check.name == "molecule")
    outcome = check.run(context)
    assert calls.read_text("utf-8").splitlines() == [
        f"test --scenario-name {name}" for name in ("blackwell", "default", "other")
    ]
    assert (outcome.passed, outcome.failed) == (2, 1)
    # Each step is shown while it runs; at the end only what is wrong.
    assert "molecule: [default > converge] Executing" in capsys.readouterr().out
    assert "blackwell > converge" in outcome.output and "default" not in outcome.output


def test_no_scenario_of_molecule_is_a_failure(context: Context) -> None:
    _with_scenarios(context)
    (check,) = (check for check in checks.CHECKS if check.name == "molecule")
    assert check.run(context).failed == 1


def test_steps_of_the_demo() -> None:
    assert checks.demo_step("[   1.2 s] booting node demo ...") == "booting node demo ..."
    assert checks.demo_step("TASK [Check the settings]") is None


@pytest.mark.parametrize("status", [0, 1, 2])
def test_continuous_integration_keeps_the_status_and_cleans_up(tmp_path: Path, status: int) -> None:
    (tmp_path / ".ci").mkdir()
    (tmp_path / "scripts").mkdir()
    (tmp_path / ".ci" / "run").write_bytes((Path(__file__).parents[2] / ".ci" / "run").read_bytes())
    fake = tmp_path / "scripts" / "test"
    fake.write_text(
        f'#!/bin/sh\necho "called:$*" >> {tmp_path}/calls\n[ "$1" = --clean ] || exit {status}\n', encoding="utf-8"
    )
    fake.chmod(0o755)
    done = subprocess.run(["bash", ".ci/run"], cwd=tmp_path, stdin=subprocess.DEVNULL, check=False)
    assert done.returncode == status
    assert (tmp_path / "calls").read_text("utf-8").splitlines() == ["called:", "called:--clean"]


def test_live_plugin_prints_one_line_for_each_test(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(
        "import pytest\n\n@pytest.fixture\ndef torn():\n    yield\n    raise RuntimeError\n\n"
        "def test_good(): pass\ndef test_bad(): assert 0\ndef test_torn(torn): pass\n"
        "@pytest.mark.skip\ndef test_skipped(): pass\n",
        encoding="utf-8",
    )
    scripts = Path(checks.__file__).parents[1]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "suite.live", "-p", "no:cacheprovider", "test_it.py"],
        cwd=tmp_path, capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": str(scripts)},
    )  # fmt: skip
    marked = [line.removeprefix(checks.TEST_ENDED) for line in done.stdout.splitlines() if checks.TEST_ENDED in line]
    assert [line.rsplit(" in ", 1)[0] for line in marked] == [
        "test_it.py::test_good: ok",
        "test_it.py::test_bad: FAILED",
        "test_it.py::test_torn: FAILED",
        "test_it.py::test_skipped: SKIPPED",
    ]
    assert "1 failed, 2 passed, 1 skipped, 1 error" in done.stdout
