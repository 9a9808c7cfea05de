"""What is installed is pinned by hashes, and what is built is the same bytes each time."""

import json
import os
import re
import subprocess
from importlib.metadata import requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from deploy import wheel as wheel_module
from deploy.audit import audit, told_of
from deploy.wheel import (
    LOCK,
    ROOT,
    Pinned,
    bill_of_materials,
    build_wheel,
    changes_in,
    main,
    pinned_in,
    sources_of,
)
from fedapa.toml import read_toml

EXTRAS = ("count", "flower", "mqtt", "privacy", "serve", "train")


def plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


@pytest.fixture(scope="module")
def lock() -> dict[str, Pinned]:
    return {plain(package.name): package for package in pinned_in(LOCK.read_text())}


def test_every_package_has_an_exact_version_and_hashes(lock: dict[str, Pinned]) -> None:
    assert len(lock) > 50
    assert all(package.hashes for package in lock.values())
    assert lock["torch"].version == "2.13.0"
    assert "setuptools" in lock, "it builds fedapa itself, without another download"
    assert "://" not in LOCK.read_text(), "where packages come from is the operator's choice"
    with pytest.raises(ValueError, match="'numpy>=2' is not name==version with hashes"):
        pinned_in("numpy>=2\n")


def test_the_versions_are_those_of_the_constraints(lock: dict[str, Pinned]) -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = dict(line.split("==") for line in lines if not line.startswith("#"))
    tested = {plain(name): version for name, version in pins.items()}
    assert {name: package.version for name, package in lock.items()} == {
        name: tested[name] for name in lock
    }


def test_nothing_that_a_deployment_needs_is_missing(lock: dict[str, Pinned]) -> None:
    """Whatever the extras want, and what those want, by the packages that are installed here."""
    project = read_toml(ROOT / "pyproject.toml")["project"]
    left = [Requirement(text) for text in project["dependencies"]]
    for extra in EXTRAS:
        left += [Requirement(text) for text in project["optional-dependencies"][extra]]
    seen: set[tuple[str, str]] = set()
    while left:
        wanted = left.pop()
        name = plain(wanted.name)
        if name == "fedapa":  # an extra that has another one in it
            continue
        assert name in lock, name
        assert lock[name].version in wanted.specifier, (wanted, lock[name].version)
        for extra in ("", *sorted(wanted.extras)):
            if (name, extra) in seen:
                continue
            seen.add((name, extra))
            further = [Requirement(text) for text in requires(name) or ()]
            left += [
                one
                for one in further
                if one.marker is None or one.marker.evaluate({"extra": extra})
            ]


def test_the_image_installs_by_hashes_alone() -> None:
    lines = (ROOT / "deploy" / "Dockerfile").read_text().splitlines()
    installs = [line for line in lines if "pip install" in line]
    assert len(installs) == 2
    assert "--no-deps --require-hashes -r requirements.txt" in installs[0]
    assert "--no-deps --no-build-isolation ." in installs[1]
    for page in ("docs/deploy.md", "deploy/requirements.txt"):
        told = re.findall("pip install.*--require-hashes.*", (ROOT / page).read_text())
        # Older pips refuse what packages want by a range; the list has it all.
        assert told
        assert all("--no-deps --require-hashes -r deploy/requirements.txt" in line for line in told)


@pytest.mark.slow
def test_a_wheel_built_twice_is_the_same_bytes(tmp_path: Path) -> None:
    """With other rights on new files, another time and another folder."""
    before = os.umask(0o077)
    try:
        first = build_wheel(ROOT, tmp_path / "one", moment=1_700_000_000)
    finally:
        os.umask(before)
    second = build_wheel(ROOT, tmp_path / "a" / "b", moment=1_700_000_000)
    assert first.read_bytes() == second.read_bytes()
    later = build_wheel(ROOT, tmp_path / "later", moment=1_700_000_002)
    assert later.read_bytes() != first.read_bytes(), "else the test would see nothing"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A small repository with one commit."""
    root = tmp_path / "checkout"
    (root / "src" / "fedapa").mkdir(parents=True)
    (root / "deploy").mkdir()
    listed = ("deploy/requirements.txt", "deploy/wheel.py", "deploy/Dockerfile")
    for name in ("pyproject.toml", "README.md", "LICENSE", "src/fedapa/a.py", *listed):
        (root / name).write_text("told = 1\n")
    author = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    for words in (("init", "-q"), ("add", "-A"), (*author, "commit", "-q", "-m", "First")):
        subprocess.run(["git", "-C", str(root), *words], check=True)
    return root


def test_a_wheel_is_of_the_files_that_git_has(checkout: Path) -> None:
    """An archive without git has none that are its own and none that are left over."""
    known = ["LICENSE", "README.md", "pyproject.toml", "src/fedapa/a.py"]
    (checkout / "src" / "fedapa" / "notes.py").write_text("secret = 1\n")
    (checkout / "src" / "fedapa" / "__pycache__").mkdir()
    (checkout / "src" / "fedapa" / "__pycache__" / "a.pyc").write_bytes(b"")
    assert sources_of(checkout) == known
    (checkout / "deploy" / "Dockerfile").write_text("")
    assert not changes_in(checkout), "what is in no wheel changes none"
    (checkout / "deploy" / "requirements.txt").write_text("another==1.0\n")
    assert changes_in(checkout) == ["deploy/requirements.txt"], "it is in the list beside it"
    (checkout / ".git").rename(checkout.parent / "git")
    assert sources_of(checkout) == sorted([*known, "src/fedapa/notes.py"])


def test_a_wheel_of_changes_is_built_only_by_who_says_its_time(
    checkout: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.delenv("SOURCE_DATE_EPOCH", raising=False)
    (checkout / "src" / "fedapa" / "a.py").write_text("told = 2\n")
    assert main([str(tmp_path / "out")], checkout) == 2
    said = capsys.readouterr().err
    assert "changes that no commit has (src/fedapa/a.py)" in said
    assert "set SOURCE_DATE_EPOCH to another time" in said

    def built(root: Path, out: Path, *, moment: int) -> Path:
        assert moment == 1_700_000_000
        out.mkdir()
        made = out / "fedapa-0.1.0-py3-none-any.whl"
        made.write_bytes(b"a wheel")
        return made

    monkeypatch.setattr(wheel_module, "build_wheel", built)
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    assert main([str(tmp_path / "out")], checkout) == 0
    assert capsys.readouterr().err.startswith("wheel: it has changes that no commit has (src/")


def test_what_cannot_be_built_is_a_sentence(
    checkout: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = tmp_path / "file"
    file.write_text("")
    told = {}
    for moment in ("abc", "-1", str(2**32), "1700000000"):
        monkeypatch.setenv("SOURCE_DATE_EPOCH", moment)
        assert main([str(file)], checkout) == 2
        told[moment] = capsys.readouterr().err
    assert told.pop("1700000000") == f"wheel: {file}: is a file; name a folder for the wheel\n"
    for moment, said in told.items():
        assert said.startswith(f"wheel: SOURCE_DATE_EPOCH is '{moment}'; expected whole seconds")
    assert main([str(file / "below")], checkout) == 2
    said = f"wheel: {file}/below: cannot be made (Not a directory); name another folder\n"
    assert capsys.readouterr().err == said
    monkeypatch.setattr(wheel_module, "version", lambda _: "1.0")
    assert main([str(tmp_path / "out")], checkout) == 2
    assert "another one gives other bytes" in capsys.readouterr().err


def test_an_option_is_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for words, code in ((["--help"], 0), (["--sign"], 2), (["one", "two"], 2)):
        with pytest.raises(SystemExit) as ended:
            main(words)
        assert ended.value.code == code
        told = capsys.readouterr()
        assert "usage: python -m deploy.wheel [-h] [folder]" in told.out + told.err
    assert not list(tmp_path.iterdir())


def test_the_bill_of_materials_names_the_wheel_and_every_package(
    tmp_path: Path, lock: dict[str, Pinned]
) -> None:
    wheel = tmp_path / "fedapa-0.1.0-py3-none-any.whl"
    wheel.write_bytes(b"a wheel")
    text = bill_of_materials(wheel, list(lock.values()), moment=1_700_000_000)
    assert text == bill_of_materials(wheel, list(reversed(lock.values())), moment=1_700_000_000)
    told = json.loads(text)
    assert (told["bomFormat"], told["specVersion"]) == ("CycloneDX", "1.6")
    assert told["metadata"]["component"]["purl"] == "pkg:pypi/fedapa@0.1.0"
    assert told["metadata"]["timestamp"] == "2023-11-14T22:13:20+00:00"
    parts = {plain(part["name"]): part for part in told["components"]}
    assert set(parts) == set(lock)
    torch = parts["torch"]
    assert torch["purl"] == "pkg:pypi/torch@2.13.0"
    assert [one["content"] for one in torch["hashes"]] == list(lock["torch"].hashes)
    assert len(told["dependencies"][-1]) >= 1


def test_a_vulnerability_fails_and_a_database_out_of_reach_does_not(tmp_path: Path) -> None:
    found = {"id": "PYSEC-1", "fix_versions": ["2.0"]}
    report = {"dependencies": [{"name": "a", "version": "1.0", "vulns": [found]}]}
    assert told_of(report) == ["a 1.0: PYSEC-1; mended in 2.0"]
    said: list[str] = []
    (tmp_path / "report.json").write_text(json.dumps(report))
    assert audit(["cat", str(tmp_path / "report.json")], said.append) == 1
    (tmp_path / "report.json").write_text(
        json.dumps({"dependencies": [{"name": "a", "vulns": []}]})
    )
    assert audit(["cat", str(tmp_path / "report.json")], said.append) == 0
    assert audit(["false"], said.append) == 0
    assert audit(["there-is-no-such-program"], said.append) == 0
    assert said[:2] == [
        "pip-audit: a 1.0: PYSEC-1; mended in 2.0\n",
        "pip-audit: no known vulnerability in 1 of 1 packages of requirements.txt\n",
    ]
    nothing = "pip-audit: nothing was audited, it cannot be asked from here ("
    assert all(one.startswith(nothing) for one in said[2:])
    assert "there-is-no-such-program" in said[3], "what is in the way is told"
    assert len(said) == 4


def test_what_was_skipped_is_not_told_as_audited(tmp_path: Path) -> None:
    """pip-audit lists a package that its database does not know, with a reason."""
    skipped = [{"name": name, "skip_reason": f"{name} was not found"} for name in ("c", "b")]
    sound = {"name": "a", "version": "1.0", "vulns": []}
    bad = {**sound, "vulns": [{"id": "PYSEC-1", "fix_versions": []}]}
    file = tmp_path / "report.json"

    def told(*packages: dict[str, object]) -> tuple[int, str]:
        said: list[str] = []
        file.write_text(json.dumps({"dependencies": packages}))
        return audit(["cat", str(file)], said.append), "".join(said)

    nothing = "nothing was audited, none of 2 packages of requirements.txt (c was not found)"
    assert told(*skipped) == (0, f"pip-audit: {nothing}\n")
    assert told()[1].startswith("pip-audit: nothing was audited")
    assert told(sound, *skipped) == (
        0,
        "pip-audit: no known vulnerability in 1 of 3 packages of requirements.txt\n"
        "pip-audit: 1 of 3 packages of requirements.txt were audited; not audited: b, c\n",
    )
    code, text = told(bad, *skipped)
    assert code == 1
    assert "a 1.0: PYSEC-1; mended in no version yet" in text
    assert "not audited: b, c" in text
