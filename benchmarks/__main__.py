"""Run some or all benchmarks: ``python -m benchmarks aggregation --json``.

A benchmark is a module here with ``measure() -> dict``, perhaps with options of its own: what
``options(parser)`` adds is given to ``measure``. A claim of speed is a ratio of two things measured
in one run. Without names all of speed are run, not those that say ``OF_SPEED = False``. A run of
them is appended to history.jsonl and compared with the last entry of the same machine, and
docs/performance.md is made from it.
"""

import argparse
import contextlib
import importlib
import json
import pkgutil
import sys
from typing import Any

import benchmarks
from benchmarks import _history, _page


def names() -> list[str]:
    """Every benchmark there is a module for."""
    modules = (module.name for module in pkgutil.iter_modules(benchmarks.__path__))
    return sorted(name for name in modules if not name.startswith("_"))


def main() -> int:
    """Measure, print, and remember a run of everything."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("name", nargs="*", help=f"default: those of speed; {', '.join(names())}")
    parser.add_argument("--json", action="store_true", help="one object for scripts")
    asked = {}
    # Those that are named come first: two may have an option of one name.
    for name in sorted(names(), key=lambda name: name not in sys.argv):
        known = set(vars(parser.parse_args([])))
        module = importlib.import_module(f"benchmarks.{name}")
        if hasattr(module, "options"):
            with contextlib.suppress(argparse.ArgumentError):
                module.options(parser)
            asked[name] = set(vars(parser.parse_args([]))) - known
    arguments = parser.parse_args()
    unknown = sorted(set(arguments.name) - set(names()))
    if unknown:
        sys.stderr.write(f"no benchmark '{unknown[0]}'; known: {', '.join(names())}\n")
        return 2
    for name, own in asked.items():
        given = [
            option
            for option in sorted(own)
            if getattr(arguments, option) != parser.get_default(option)
        ]
        if given and name not in arguments.name:
            sys.stderr.write(
                f"--{given[0]} is for the benchmark '{name}'; name it, or leave it out\n"
            )
            return 2
    chosen = arguments.name or [name for name in names() if _is_of_speed(name)]
    figures = {}
    for name in chosen:
        sys.stderr.write(f"{name} …\n")
        own = {option: getattr(arguments, option) for option in asked.get(name, ())}
        figures[name] = importlib.import_module(f"benchmarks.{name}").measure(**own)
    before = _history.last()
    if arguments.json:
        print(json.dumps(figures[chosen[0]] if len(chosen) == 1 else figures, sort_keys=True))
    else:
        _print_table(figures, before)
    if not arguments.name:
        _history.append(figures)
        _page.write()
    return 0


def _is_of_speed(name: str) -> bool:
    return getattr(importlib.import_module(f"benchmarks.{name}"), "OF_SPEED", True)


def _print_table(figures: dict[str, object], before: dict[str, Any] | None) -> None:
    print("\n".join(_history.compared(figures, before)))
    changed = _history.changes(figures, before["figures"] if before else None)
    rows = list(_history.flat(figures))
    width = max(len(name) for name, _ in rows)
    print(f"{'':{width}}  {'now':>12}  {'to last time':>12}")
    for name, value in rows:
        then = f"× {changed[name]:.2f}" if name in changed else "–"
        print(f"{name:{width}}  {value:12.6g}  {then:>12}")


if __name__ == "__main__":
    sys.exit(main())
