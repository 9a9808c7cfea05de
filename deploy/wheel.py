"""The wheel with the same bytes whoever builds it, and beside it a list of what runs with it.

::

    python -m deploy.wheel dist      # dist/fedapa-0.1.0-py3-none-any.whl and ….cdx.json

The bytes of a wheel hang on the time, the rights and the leftovers of earlier builds in the folder
that it is made in. So it is made in a new folder with the files that git has of the checkout, all
of the time of the last commit and with the same rights, by the setuptools that is pinned: another
one is refused, and so are changes that no commit has. Who says the time (SOURCE_DATE_EPOCH) may
build with changes, which are then named, and from an archive that is no checkout. The list (SBOM)
is CycloneDX JSON: the wheel and every package of deploy/requirements.txt, with versions and hashes.
"""

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from cyclonedx.model import HashAlgorithm, HashType
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL

__all__ = [
    "BuildError",
    "Pinned",
    "bill_of_materials",
    "build_wheel",
    "changes_in",
    "commit_time",
    "main",
    "pinned_in",
    "sources_of",
]

ROOT = Path(__file__).resolve().parents[1]
LOCK = Path(__file__).with_name("requirements.txt")
_FILES = ("pyproject.toml", "README.md", "LICENSE")
_LISTED = ("deploy/requirements.txt", "deploy/wheel.py")
"""What the list beside the wheel is made of."""
_LEFT_OUT = re.compile(r"__pycache__|.*\.pyc|.*\.egg-info|\..*")
"""What an archive that is no checkout has beside its sources."""
_LATEST = 2**32
"""Seconds since 1970 that a wheel can hold."""


class BuildError(Exception):
    """Why nothing is built, as a sentence."""


@dataclass(frozen=True)
class Pinned:
    """One package of the lock file."""

    name: str
    version: str
    hashes: tuple[str, ...]
    """SHA-256 of each file that may be installed."""


def pinned_in(text: str) -> list[Pinned]:
    """The packages of a lock file, in its order; a line of any other form is a ValueError."""
    made = []
    for entry in re.sub(r"\s*\\\n\s*", " ", text).splitlines():
        if not entry.strip() or entry.startswith("#"):
            continue
        form = r"([A-Za-z0-9._-]+)==([^\s;]+)(?: ; [^-]+)?((?: --hash=sha256:[0-9a-f]{64})+)\s*"
        found = re.fullmatch(form, entry)
        if found is None:
            raise ValueError(f"'{entry[:80]}' is not name==version with hashes")
        hashes = re.findall(r"sha256:([0-9a-f]{64})", found[3])
        made.append(Pinned(found[1], found[2], tuple(hashes)))
    return made


def commit_time(root: Path) -> int:
    """When the last commit was made, in s since 1970; SOURCE_DATE_EPOCH where that is set."""
    if told := os.environ.get("SOURCE_DATE_EPOCH"):
        if not (re.fullmatch(r"[0-9]{1,10}", told) and int(told) < _LATEST):
            raise BuildError(
                f"SOURCE_DATE_EPOCH is '{told:.40}'; expected whole seconds since 1970, below 2³²"
            )
        return int(told)
    if not (root / ".git").exists():
        raise BuildError("no commit tells the time of the build; set SOURCE_DATE_EPOCH to it")
    return int(_git(root, "log", "-1", "--format=%ct"))


def sources_of(root: Path) -> list[str]:
    """What a wheel is made of, by path: of a checkout the files that git knows, as they are."""
    if (root / ".git").exists():
        known = _git(root, "ls-files", "-z", "--", *_FILES, "src").split("\0")
        return sorted(name for name in known if name and (root / name).is_file())
    below = [path.relative_to(root) for path in (root / "src").rglob("*") if path.is_file()]
    kept = [path for path in below if not any(map(_LEFT_OUT.fullmatch, path.parts))]
    return sorted([*_FILES, *(path.as_posix() for path in kept)])


def changes_in(root: Path) -> list[str]:
    """Files of a wheel and its list that differ from the last commit, by path; none without git."""
    if not (root / ".git").exists():
        return []
    made_of = (*_FILES, "src", *_LISTED)
    told = _git(root, "diff", "--name-only", "-z", "HEAD", "--", *made_of).split("\0")
    return sorted(name for name in told if name)


def _git(root: Path, *words: str) -> str:
    try:
        done = subprocess.run(["git", "-C", str(root), *words], capture_output=True, text=True)
    except OSError as error:
        raise BuildError(f"git cannot be asked what the checkout has ({error})") from error
    if done.returncode:
        said = (done.stderr.strip().splitlines() or ["it says nothing"])[0]
        raise BuildError(f"git does not tell what the checkout has: {said}")
    return done.stdout


def build_wheel(root: Path, out: Path, *, moment: int) -> Path:
    """The wheel of a checkout; ``moment`` is what every file in it is said to be of."""
    if not out.is_dir() and out.exists():
        raise BuildError(f"{out}: is a file; name a folder for the wheel")
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BuildError(
            f"{out}: cannot be made ({error.strerror}); name another folder"
        ) from error
    with tempfile.TemporaryDirectory() as made_in:
        place = Path(made_in) / "fedapa"
        place.mkdir()
        for name in sources_of(root):
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(root / name, place / name)
        for path in [place, *place.rglob("*")]:
            path.chmod(0o755 if path.is_dir() else 0o644)
            os.utime(path, (moment, moment))
        command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps"]
        command += ["--disable-pip-version-check", "--no-build-isolation"]
        environment = {**os.environ, "SOURCE_DATE_EPOCH": str(moment), "PYTHONHASHSEED": "0"}
        subprocess.run(
            [*command, "--wheel-dir", str(place / "made"), str(place)],
            env=environment,
            umask=0o022,  # of the files that setuptools adds
            check=True,
        )
        (wheel,) = (place / "made").glob("*.whl")
        try:
            return Path(shutil.copy(wheel, out / wheel.name))
        except OSError as error:
            raise BuildError(
                f"{out}: cannot be written ({error.strerror}); name another folder"
            ) from error


def bill_of_materials(wheel: Path, lock: Sequence[Pinned], *, moment: int) -> str:
    """The SBOM of a wheel as CycloneDX JSON; equal things have equal bytes."""
    name, version = wheel.name.split("-")[:2]
    own = hashlib.sha256(wheel.read_bytes()).hexdigest()
    bom = Bom(serial_number=uuid.uuid5(uuid.NAMESPACE_OID, own))
    bom.metadata.timestamp = datetime.fromtimestamp(moment, UTC)
    root = _component(ComponentType.APPLICATION, Pinned(name, version, (own,)))
    bom.metadata.component = root
    parts = [_component(ComponentType.LIBRARY, package) for package in lock]
    for part in parts:
        bom.components.add(part)
    bom.register_dependency(root, parts)
    document: Mapping[str, Any] = json.loads(JsonV1Dot6(bom).output_as_string())
    return json.dumps(document, indent=1, sort_keys=True) + "\n"


def _component(kind: ComponentType, package: Pinned) -> Component:
    url = PackageURL("pypi", name=package.name.lower().replace("_", "-"), version=package.version)
    return Component(
        type=kind,
        name=package.name,
        version=package.version,
        purl=url,
        bom_ref=url.to_string(),
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=one) for one in package.hashes],
    )


def main(arguments: Sequence[str], root: Path = ROOT) -> int:
    """Build into the folder that is named; 2 where a sentence says why not."""
    parser = argparse.ArgumentParser(
        prog="python -m deploy.wheel", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("folder", nargs="?", type=Path, default=Path("dist"), help="default: dist")
    options = parser.parse_args(arguments)
    try:
        _build(options.folder, root)
    except BuildError as error:
        sys.stderr.write(f"wheel: {error}\n")
        return 2
    return 0


def _build(out: Path, root: Path) -> None:
    lock = pinned_in(LOCK.read_text())
    _check_setuptools(lock)
    moment = commit_time(root)
    if changed := changes_in(root):
        named = f"{changed[0]}{f' and {len(changed) - 1} more' if changed[1:] else ''}"
        if not os.environ.get("SOURCE_DATE_EPOCH"):
            raise BuildError(
                f"the checkout has changes that no commit has ({named}), and the wheel would be "
                "said to be of the last one; commit them, or set SOURCE_DATE_EPOCH to another time"
            )
        sys.stderr.write(f"wheel: it has changes that no commit has ({named})\n")
    wheel = build_wheel(root, out, moment=moment)
    listed = wheel.with_suffix(".cdx.json")
    listed.write_text(bill_of_materials(wheel, lock, moment=moment))
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    sys.stdout.write(f"{wheel} (SHA-256 {digest})\n{listed}\n")


def _check_setuptools(lock: Sequence[Pinned]) -> None:
    (pinned,) = (package.version for package in lock if package.name == "setuptools")
    if (here := version("setuptools")) != pinned:
        raise BuildError(
            f"setuptools {here} is installed, {LOCK.name} has {pinned}, and another one gives "
            f"other bytes; pip install setuptools=={pinned}"
        )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
