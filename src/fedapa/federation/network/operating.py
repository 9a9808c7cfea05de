"""What whoever runs a server does with a run: begin it, follow it, ask how far it is."""

import contextlib
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from fedapa.errors import RunError
from fedapa.evaluation.record import JsonLines, not_taken, privacy_spent, suspects, uncompared
from fedapa.federation import run_files
from fedapa.federation.network.flower_calls import Control, NodeSeen
from fedapa.federation.network.running import check_plan
from fedapa.federation.network.server import running_process
from fedapa.federation.network.server_folder import Job, ServerFolder
from fedapa.federation.plan import Plan
from fedapa.files import write_text
from fedapa.toml import read_toml

__all__ = ["begin_run", "follow", "status_of"]

_LOOK = 0.5


def begin_run(server: ServerFolder, plan: Path, name: str) -> None:
    """Let the server carry out a plan; one of the same name goes on, by this plan from now on."""
    resolved = Plan(**read_toml(plan))
    check_plan(resolved)
    if running_process(server) is None:
        raise RunError(
            f"{server.path}: its server does not run; start it with 'fedapa server start "
            f"{server.path}'"
        )
    if not server.nodes():
        raise RunError(
            f"{server.path}: no room is enrolled; enrol some with 'fedapa server enrol "
            f"{server.path} room.pub --name NAME'"
        )
    current = server.job()
    if current is not None and current.wanted and current.run != name:
        raise RunError(
            f"run '{current.run}' goes on; wait for it, or see 'fedapa server status {server.path}'"
        )
    server.plan_file(name).parent.mkdir(exist_ok=True)
    write_text(server.plan_file(name), resolved.toml())
    before = None if current is None or current.run != name else current.flower_run
    server.save_status({"run": name, "state": "beginning", "at": time.time()})
    server.save_job(Job(name, since=time.time(), flower_run=before))


def follow(server: ServerFolder, name: str, say: Callable[[str], None]) -> None:
    """Tell what happens until a run has ended; one that failed is an error."""
    told = 0.0
    shown: Any = None
    while True:
        status = server.status()
        if status.get("run") == name:
            failed = status.get("state") == "failed"
            said = status.get("said", [])
            for entry in said[:-1] if failed else said:  # the last is the error
                if entry["at"] > told:
                    told = entry["at"]
                    say(entry["said"])
            step = (status.get("round"), status.get("rounds"), status.get("note"))
            if step != shown and step[0]:
                shown = step
                say(f"round {step[0]} of {step[1]} {step[2]}".rstrip())
            if status.get("state") == "finished":
                for sentence in _told_at_the_end(server, name):
                    say(sentence)
                say(f"finished: {server.run(name)}")
                return
            if failed:
                why = said[-1]["said"] if said else "it failed"
                own = why.startswith(f"run '{name}'")
                raise RunError(why if own else f"run '{name}': {why}")
        if running_process(server) is None:
            raise RunError(
                f"the server ended; run '{name}' goes on with 'fedapa server start {server.path}'"
            )
        time.sleep(_LOOK)


def status_of(server: ServerFolder) -> dict[str, Any]:
    """Rooms, the run, who was refused, as plain values."""
    process, job = running_process(server), server.job()
    said = server.status()
    records: list[dict[str, Any]] = []
    data: Mapping[str, Any] = {}
    if job is not None and (server.run(job.run) / "data.json").is_file():
        records = JsonLines(server.run(job.run) / "rounds.jsonl").read()
        data = run_files.read_data(server.run(job.run))["rooms"]
    spent, claim = privacy_spent(records), ""
    if spent and job is not None:
        privacy = run_files.read_plan(server.run(job.run)).privacy
        claim = privacy.claim()
        if not privacy.is_on:  # a room may report any number, also an ε that nobody has asked for
            spent = {}
    nodes = _nodes(server) if process is not None else {}
    seen = said.get("seen", {})
    rooms = {}
    for room, entry in sorted(server.rooms().items()):
        node = nodes.get(entry.node or 0)
        lines = [line["rooms"].get(room, {}) for line in records]
        took_part = [line["round"] for line in records if _participated(line, room)]
        about = data.get(room, {})
        rooms[room] = {
            "expelled": entry.expelled,
            "online": node is not None and node.online,
            "last_seen": max(seen.get(room, 0.0), _last_heartbeat(node)) or None,
            "round": took_part[-1] if took_part else None,
            "windows": about.get("train"),
            "accuracy": next(
                (line["accuracy"] for line in reversed(lines) if "accuracy" in line), None
            ),
            "bytes": sum(line.get("bytes_up", 0) + line.get("bytes_down", 0) for line in lines),
            "rejected": sum(room in line.get("rejected", {}) for line in records),
            "diverged": sum(room in line.get("diverged", {}) for line in records),
            "withheld": sum(room in line.get("withheld", {}) for line in records),
            "privacy": spent.get(room),
        }
    run: dict[str, Any] = {}
    if job is not None:
        # Without a server nobody carries it out, whatever was told last.
        state = said.get("state") if process is not None or not job.wanted else "waiting"
        run = {"name": job.run, "wanted": job.wanted, "state": state}
        if state == "finished":
            run["end"] = _told_at_the_end(server, job.run)
    if records:
        run["round"] = records[-1]["round"]
        run["mean"] = records[-1]["mean"]
    run["rounds"] = said.get("rounds")
    if spent:
        run["privacy"] = claim
    return {
        "server": {"running": process is not None, "process": process},
        "rooms": rooms,
        "run": run,
        "not_taken": not_taken(records),
        "suspects": suspects(records),
        "sentences": [_dated(entry) for entry in said.get("said", [])[-5:]],
        "refused": len(server.refused()),
        "trouble": server.disk_trouble(),
    }


def _told_at_the_end(server: ServerFolder, name: str) -> list[str]:
    """What people should know of a finished run: which rooms have no model, why, and what to do."""
    out = server.run(name)
    summary = run_files.read_summary(out)
    last = f"exchange {summary['rounds'] + 1}: "
    notes = summary.get("notes", [])
    told = [note.removeprefix(last) for note in notes if note.startswith(last)]
    told += uncompared(notes)
    taken = run_files.read_data(out)["rooms"]
    enrolled = {room for room, entry in server.rooms().items() if not entry.expelled}
    all_refused = enrolled - set(taken) == enrolled - set(summary["confusion"])
    for room in sorted(enrolled - set(taken)):
        refusal = f"room '{room}' is refused: "
        said = [entry["said"] for entry in server.status().get("said", [])]
        refused = next((one.removeprefix(refusal) for one in said if one.startswith(refusal)), "")
        why = f"it was refused ({refused})" if refused else "it was never connected"
        all_refused = all_refused and bool(refused)
        told.append(f"room '{room}' has no model of this run: {why}")
    if enrolled - set(summary["confusion"]):
        when = (
            "once what it was refused for is put right there" if all_refused else "when it is back"
        )
        plan = server.plan_file(name)
        other = "; if it was refused for the plan, run one of another name" if all_refused else ""
        told.append(
            f"to give a room its model {when}, set rounds = {summary['rounds'] + 1} in {plan}, "
            f"then: fedapa server run {server.path} {plan}{other}"
        )
    return told


def _dated(entry: Mapping[str, Any]) -> str:
    """A sentence with its time: what was so an hour ago may be well again."""
    return f"{time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(entry['at']))} {entry['said']}"


def _participated(line: Mapping[str, Any], room: str) -> bool:
    return bool(line["rooms"].get(room, {}).get("participated"))


def _nodes(server: ServerFolder) -> dict[int, NodeSeen]:
    try:
        with contextlib.closing(Control(server.inner_address, server.authority)) as control:
            return control.nodes()
    except RunError:  # it begins, or was killed: who is there is not known
        return {}


def _last_heartbeat(node: NodeSeen | None) -> float:
    """Roughly when a node was heard last: it promises to be heard again within 30 s."""
    return 0.0 if node is None or not node.online_until else min(node.online_until, time.time())
