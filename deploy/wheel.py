"""The wheel with the same bytes whoever builds it, and beside it a list of what runs with it.

::

    python -m deploy.wheel dist      # dist/fedapa-0.1.0-py3-none-any.whl and ….cdx.json

The bytes of a wheel hang on the time, the rights and the leftovers of earlier builds in the folder
that it is made in. So it is made in a new folder with the files of the checkout alone, all of the
time of the last commit (SOURCE_DATE_EPOCH) and with the same rights, by the setuptools that is
pinned. The list (SBOM) is CycloneDX JSON: the wheel and every package of deploy/requirements.txt,
with versions and hashes.
"""

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
from pathlib import Path
from typing import Any

from cyclonedx.model import HashAlgorithm, HashType
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL

__all__ = ["Pinned", "bill_of_materials", "build_wheel", "commit_time", "pinned_in"]

ROOT = Path(__file__).resolve().parents[1]
LOCK = Path(__file__).with_name("requirements.txt")
_FILES = ("pyproject.toml", "README.md", "LICENSE")
_LEFT_OUT = ("__pycache__", "*.pyc", "*.egg-info", ".*")


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
        return int(told)
    made = subprocess.run(
        ["git", "-C", str(root), "log", "-1", "--format=%ct"], capture_output=True, text=True
    )
    if made.returncode:
        raise SystemExit("no commit tells the time of the build; set SOURCE_DATE_EPOCH to it")
    return int(made.stdout)


def build_wheel(root: Path, out: Path, *, moment: int) -> Path:
    """The wheel of a checkout; ``moment`` is what every file in it is said to be of."""
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as made_in:
        place = Path(made_in) / "fedapa"
        place.mkdir()
        for name in _FILES:
            shutil.copyfile(root / name, place / name)
        shutil.copytree(root / "src", place / "src", ignore=shutil.ignore_patterns(*_LEFT_OUT))
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
        return Path(shutil.copy(wheel, out / wheel.name))


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


def main() -> None:
    """Build into the folder that the first argument names."""
    out, moment = Path(sys.argv[1] if len(sys.argv) > 1 else "dist"), commit_time(ROOT)
    wheel = build_wheel(ROOT, out, moment=moment)
    listed = wheel.with_suffix(".cdx.json")
    listed.write_text(bill_of_materials(wheel, pinned_in(LOCK.read_text()), moment=moment))
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    sys.stdout.write(f"{wheel} (SHA-256 {digest})\n{listed}\n")


if __name__ == "__main__":
    main()
