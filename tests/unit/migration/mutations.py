"""Does the import have teeth? Known bugs are planted in it, one at a time, and the test that is named has to find each.

    python -m tests.unit.migration.mutations              # all of them
    python -m tests.unit.migration.mutations leaders-kept  # one

No run of the simulation imports a cluster, so its bugs are not among `tests.simulation.mutations`.
"""

from __future__ import annotations

import argparse
import importlib
import subprocess
import sys

import pytest

from tests.simulation.mutation import ROOT, Mutation
from tests.simulation.mutations import Planter

INTERRUPTED = "tests/unit/migration/test_interrupted.py"
IMPORTED = f"{INTERRUPTED}::test_an_import_goes_on_or_is_undone_after_any_step"
ROLLED_BACK = f"{INTERRUPTED}::test_a_roll_back_of_a_cluster_that_ran_goes_on_after_any_step"
LONGEST = f"{INTERRUPTED}::test_the_longest_log_of_a_majority_is_written_back"
HOSTS = "tests/unit/migration/test_hosts.py"
UNFINISHED = "tests/unit/migration/test_unfinished.py"
VOTERS = "tests/unit/migration/test_first_voters.py"
ZNODES = "tests/property/test_znodes.py::test_an_image_survives_the_way_through_znodes"

MUTATIONS = (
    Mutation("epoch-not-raised", IMPORTED, "ottla.migration.decision",
             "found.controller_epoch + 1, with_ids,", "found.controller_epoch, with_ids,"),
    Mutation("controllers-place-left-free", IMPORTED, "ottla.migration.decision",
             "        Create(cluster.CONTROLLER, controller),\n", ""),
    Mutation("leaders-kept", IMPORTED, "ottla.migration.importing",
             "LEVELS, keep_leaders=False)", "LEVELS, keep_leaders=True)"),
    Mutation("leader-epochs-from-zero", ZNODES, "ottla.znodes.reading",
             "            leader_epoch=state.leader_epoch,\n", ""),
    Mutation("tree-read-once", HOSTS, "ottla.migration.importing",
             "        refuse_change(planned.tree, await read_tree(client), apart_from=_OWN)\n",
             "        await read_tree(client)\n"),
    Mutation("hosts-write-what-they-see", HOSTS, "ottla.migration.importing",
             "    if digest != decided.digest:\n", "    if not digest:\n"),
    Mutation("names-of-deleted-topics-taken-over", IMPORTED, "ottla.migration.importing",
             "(*found.topics, *found.deleted)", "found.topics"),
    Mutation("reassignment-forgotten", UNFINISHED, "ottla.znodes.unfinished",
             "        adding={**was.adding, number: adding},\n", ""),
    Mutation("deletion-carried-out-again", ROLLED_BACK, "ottla.migration.rollback",
             'path == cluster.REASSIGNMENTS or path.startswith(f"{cluster.DELETIONS}/"):', "False:"),
    Mutation("rolled-back-by-a-minority", LONGEST, "ottla.migration.rollback",
             "len(seen) <= len(voters) // 2", "not seen"),
    Mutation("last-log-written-back", LONGEST, "ottla.migration.rollback",
             "    if here <= decided.written:\n", "    if here == decided.written:\n"),
    Mutation("removal-not-fsynced", ROLLED_BACK, "ottla.migration.directories",
             "                    fs.remove(file)\n                    fs.fsync_dir(directory)\n",
             "                    fs.remove(file)\n"),
    Mutation("meta-properties-lost", IMPORTED, "ottla.migration.directories",
             "    if fs.exists(kept):\n        return\n", ""),
    Mutation("states-of-an-older-epoch", ROLLED_BACK, "ottla.migration.rollback",
             "max(loaded.epoch + 1, decided.controller_epoch)", "decided.controller_epoch"),
    Mutation("voters-under-ids-of-their-own", VOTERS, "ottla.migration.directories",
             "            directory_id = snapshot.directory_ids.get(node.node_id, directory_id)\n",
             "            directory_id = directory_id or snapshot.directory_ids.get(node.node_id)\n"),
    Mutation("first-voters-not-counted", VOTERS, "ottla.migration.importing",
             "\"voters\": voter_ids(initial),", "\"voters\": (),"),
    Mutation("later-hosts-begin-another-quorum", VOTERS, "ottla.migration.first_voters",
             "    if decided is not None and given and tuple(given) != decided.controllers:\n",
             "    if decided is None and given and tuple(given) != given:\n"),
)  # fmt: skip


def play(mutation: Mutation) -> int:
    """In this process: pytest's exit status of the test, over the module with the bug in it."""
    importlib.import_module("ottla")  # which may put a finder of its own first
    planter = Planter(mutation)
    sys.meta_path.insert(0, planter)
    status = pytest.main(["-q", "-x", "-p", "no:cacheprovider", "-p", "no:xdist", "--tb=line", mutation.kind])
    assert planter.planted, f"{mutation.module} was not imported"
    return int(status)


def is_found(mutation: Mutation) -> bool:
    """In a process of its own, which nothing of the bug outlives."""
    command = [sys.executable, "-m", "tests.unit.migration.mutations", mutation.name, "--here"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED), done.stdout + done.stderr
    return done.returncode == pytest.ExitCode.TESTS_FAILED


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.unit.migration.mutations", description=__doc__)
    parser.add_argument("names", nargs="*", help="only these")
    parser.add_argument("--check", action="store_true", help="only whether each can still be planted")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    chosen = [each for each in MUTATIONS if not options.names or each.name in options.names]
    if options.here:
        return play(chosen[0])
    if options.check:
        for mutation in chosen:
            compile(mutation.source(), str(mutation.path), "exec")
        print(f"{len(chosen)} bugs of the import can be planted")
        return 0
    missed = []
    for mutation in chosen:
        found = is_found(mutation)
        print(f"{mutation.name:40} {'found' if found else 'NOT FOUND'} by {mutation.kind}", flush=True)
        missed += [] if found else [mutation.name]
    print(f"{len(chosen)} bugs planted, {len(chosen) - len(missed)} found")
    return bool(missed)


if __name__ == "__main__":
    sys.exit(main())
