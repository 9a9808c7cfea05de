"""Run some or all benchmarks: ``python -m benchmarks aggregation --json``.

A benchmark is a module here with ``measure() -> dict``; a claim of speed is a ratio of two things
measured in one run.
"""

import argparse
import importlib
import json
import pkgutil
import sys

import benchmarks


def names() -> list[str]:
    """Every benchmark there is a module for."""
    found = (module.name for module in pkgutil.iter_modules(benchmarks.__path__))
    return sorted(name for name in found if not name.startswith("_"))


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("name", nargs="*", help=f"default: all ({', '.join(names())})")
    parser.add_argument("--json", action="store_true", help="one object for scripts")
    arguments = parser.parse_args()
    unknown = sorted(set(arguments.name) - set(names()))
    if unknown:
        sys.stderr.write(f"no benchmark '{unknown[0]}'; known: {', '.join(names())}\n")
        return 2
    chosen = arguments.name or names()
    for name in chosen:
        figures = importlib.import_module(f"benchmarks.{name}").measure()
        if arguments.json:
            print(json.dumps(figures if len(chosen) == 1 else {name: figures}, sort_keys=True))
        else:
            print(name)
            for key, value in figures.items():
                print(f"  {key}: {value}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
