"""Known vulnerabilities in what deployments install: pip-audit over deploy/requirements.txt.

::

    python -m deploy.audit

A vulnerability fails the build and is told with the version that mends it. Where the database of
pip-audit cannot be reached, or does not know the packages, that is one line, and nothing fails: no
build may hang on a network that is not there, and nobody may take silence for safety.
"""

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

__all__ = ["audit", "skipped_in", "told_of"]

LOCK = Path(__file__).with_name("requirements.txt")
_SECONDS = 300
_LONGEST = 200
"""Letters of what pip-audit says where it cannot look."""


def told_of(report: Mapping[str, Any]) -> list[str]:
    """The vulnerabilities of a report of pip-audit, in sentences."""
    return [
        f"{package['name']} {package['version']}: {one['id']}; mended in "
        f"{', '.join(one['fix_versions']) or 'no version yet'}"
        for package in report["dependencies"]
        for one in package.get("vulns", [])
    ]


def skipped_in(report: Mapping[str, Any]) -> dict[str, str]:
    """The packages of a report of pip-audit that it did not audit, and why."""
    return {
        package["name"]: str(package["skip_reason"])
        for package in report["dependencies"]
        if "skip_reason" in package
    }


def audit(command: Sequence[str], say: Any = sys.stdout.write) -> int:
    """Run pip-audit; 1 where it finds something, 0 where it finds nothing or cannot look."""
    why = ""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS)
        why = (done.stderr.strip().splitlines() or [""])[-1]
        report = json.loads(done.stdout)
        found, skipped = told_of(report), skipped_in(report)
        audited = len(report["dependencies"]) - len(skipped)
    except (OSError, ValueError, KeyError, TypeError, subprocess.TimeoutExpired) as error:
        # Mostly its database cannot be reached; what it said itself tells.
        said = (why or f"{type(error).__name__}: {error}")[:_LONGEST]
        say(f"pip-audit: nothing was audited, it cannot be asked from here ({said})\n")
        return 0
    for sentence in found:
        say(f"pip-audit: {sentence}\n")
    if not audited:
        why = next(iter(skipped.values()), "it names no package")[:_LONGEST]
        of = f"{len(skipped)} packages of {LOCK.name}"
        say(f"pip-audit: nothing was audited, none of {of} ({why})\n")
        return 0
    of = f"{audited} of {audited + len(skipped)} packages of {LOCK.name}"
    if not found:
        say(f"pip-audit: no known vulnerability in {of}\n")
    if skipped:
        say(f"pip-audit: {of} were audited; not audited: {', '.join(sorted(skipped))}\n")
    return 1 if found else 0


def main() -> int:
    """Audit the lock file; its hashes say everything, so that nothing is installed for it."""
    options = ["--disable-pip", "--require-hashes", "--format=json", "--progress-spinner=off"]
    command = [sys.executable, "-m", "pip_audit", *options, "--timeout=15", "-r", str(LOCK)]
    return audit(command)


if __name__ == "__main__":
    sys.exit(main())
