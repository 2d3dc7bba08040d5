"""scripts/test: install what the checks need, run every check, and tell the truth about them at the end."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from time import monotonic

from devnode import clean, packages, settings, venv
from devnode.names import Clone
from devnode.steps import StepError, Steps
from suite.checks import CHECKERS, CHECKS, Check, Context, Outcome
from suite.progress import Progress

_BESIDE_EACH_OTHER = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the checks; return 0 if all of them passed, 1 if not, 2 if they could not start."""
    options = _parser().parse_args(arguments)
    if options.list:
        for check in CHECKS:
            print(f"{check.name:14}{check.title}")
        return 0
    clone = Clone.here()
    if options.clean:
        clean.clean(clone, Steps(clone.cache / "logs"))
        return 0
    context = Context(clone.root, Progress(clone.cache / "logs" / "test"), full=options.all)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    # A shell starts what it puts into the background with SIGINT ignored, and so would everything started from here.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        _install(clone)
    except StepError as error:
        print(f"scripts/test: {error}", file=sys.stderr)
        return 2
    try:
        outcomes = run_all(context, options.only or CHECKS)
    except KeyboardInterrupt:
        print("scripts/test: stopped", file=sys.stderr)
        return 130
    passed, failed = (sum(getattr(outcome, kind) for outcome in outcomes.values()) for kind in ("passed", "failed"))
    broken = [name for name, outcome in outcomes.items() if outcome.failed]
    if broken:
        context.progress.say(f"failed: {' '.join(broken)}; again: scripts/test --only {','.join(broken)}")
    if not options.all:
        context.progress.say("the tests marked full were left out; scripts/test --all runs them, too")
    print(f"{passed} passed, {failed} failed", flush=True)
    return int(failed > 0)


def run_all(context: Context, checks: Sequence[Check]) -> dict[str, Outcome]:
    """Run checks, light ones beside each other, the others one by one; all of them, whatever fails."""
    context.cache.mkdir(parents=True, exist_ok=True)
    light = [check for check in checks if check.light]
    pool = ThreadPoolExecutor(_BESIDE_EACH_OTHER)
    try:
        at_once = list(pool.map(lambda check: _run(context, check), light))
        outcomes = {check.name: outcome for check, outcome in zip(light, at_once, strict=True)}
        for check in checks:
            if not check.light:
                context.progress.say(f"{check.title} ...")
                outcomes[check.name] = _run(context, check)
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        context.progress.stop()
        raise
    pool.shutdown()
    return outcomes


def _run(context: Context, check: Check) -> Outcome:
    """Run one check and print its line."""
    begun = monotonic()
    try:
        outcome = check.run(context)
    except Exception as error:  # noqa: BLE001  a check that breaks is a failed check, and the others still run
        outcome = Outcome(0, 1, f"{type(error).__name__}: {error}")
    seconds = monotonic() - begun
    if outcome.failed:
        context.progress.say(f"{check.title}: FAILED ({outcome.failed}) in {seconds:.1f} s", outcome.output)
    else:
        number = f" ({outcome.passed})" if outcome.passed > 1 else ""
        context.progress.say(f"{check.title}: ok{number} in {seconds:.1f} s")
    return outcome


def _install(clone: Clone) -> None:
    steps = Steps(clone.cache / "logs")
    packages.ensure(steps, (*settings.HOST_PACKAGES, *CHECKERS))
    venv.ensure(clone, steps)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="scripts/test", description=__doc__)
    parser.add_argument("--all", action="store_true", help="also run the tests that are marked `full`")
    parser.add_argument("--only", metavar="NAME[,NAME]", type=_checks, help="run these checks only (see --list)")
    parser.add_argument("--clean", action="store_true", help="remove what was made: nodes, images, caches, .venv")
    parser.add_argument("--list", action="store_true", help="show the checks and exit")
    return parser


def _checks(names: str) -> list[Check]:
    known = {check.name: check for check in CHECKS}
    unknown = [name for name in names.split(",") if name not in known]
    if unknown:
        raise argparse.ArgumentTypeError(f"no check {' '.join(unknown)}: there are {' '.join(known)}")
    return [known[name] for name in dict.fromkeys(names.split(","))]


if __name__ == "__main__":
    sys.exit(main())
