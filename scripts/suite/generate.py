"""Renew the files that are written from others: the collection's links and the generated documentation."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from suite import links

ROOT = Path(__file__).resolve().parents[2]


def main(arguments: list[str] | None = None) -> int:
    """Renew, or with --check only compare; return the exit status."""
    parser = argparse.ArgumentParser(prog="scripts/generate", description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing; fail if something is out of date")
    check = parser.parse_args(arguments).check
    late = links.problems(ROOT) if check else links.renew(ROOT)
    # The pages are written from the collection's own code, which is found through the links.
    sys.path.insert(0, str(ROOT / links.COLLECTION.parents[2]))
    from suite import docs

    try:
        late += docs.stale(ROOT) if check else docs.renew(ROOT)
    except docs.DocsError as error:
        print(error, file=sys.stderr)
        return 1
    for line in late:
        print(f"{'out of date' if check else 'renewed'}: {line}")
    if check and late:
        print("run scripts/generate and commit what it changes", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
