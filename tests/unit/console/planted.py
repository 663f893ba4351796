"""Do the console's tests have teeth? Rules of the console are broken, one at a time, and a named test has to fail.

    python -m tests.unit.console.planted             # all of them, about three seconds each
    python -m tests.unit.console.planted own-origin  # one

The bug is put into a module while it is imported, in a process of its own (`tests/simulation/mutations.py`).
"""

from __future__ import annotations

import argparse
import importlib
import subprocess
import sys
from typing import Final, NamedTuple

from tests.simulation.mutations import ROOT, Mutation, Planter

FAILED: Final = 1
"""What pytest ends with where tests ran and failed."""


class Planted(NamedTuple):
    name: str
    module: str
    """Below `ottla.console`."""
    old: str
    new: str
    found_by: str
    """A test, below tests/unit/console."""

    @property
    def mutation(self) -> Mutation:
        return Mutation(self.name, "console", f"ottla.console.{self.module}", self.old, self.new)


PLANTED: Final = (
    Planted("token-not-checked", "tokens", "            if known is None and self._issued.get(token) != act:\n",
            "            if False:\n", "test_acts_refused.py::test_no_form_acts_without_its_token"),
    Planted("token-used-twice", "tokens", "            self._outcomes[act, token] = outcome\n", "            pass\n",
            "test_acts.py::test_a_form_that_is_sent_again_acts_once"),
    Planted("own-origin", "requests",
            'return origin is None or urlsplit(origin).netloc == request.headers.get("host", "")',
            "return True", "test_acts_refused.py::test_no_other_page_acts"),
    Planted("cookie-at-the-api", "acts.serving", "by_password=True)", "by_password=False)",
            "test_acts_refused.py::test_the_api_takes_no_cookie"),
    Planted("form-at-the-api", "acts.serving",
            '            if kind != "application/json":\n', "            if False:\n",
            "test_acts_refused.py::test_the_api_takes_no_form"),
    Planted("body-without-a-limit", "requests", "if len(body) > bytes_max:", "if False:",
            "test_acts_refused.py::test_bodies_have_a_limit"),
    Planted("hung-node-waited-for-again", "hung",
            "            found = self._hung.get(at)\n            if found is None:\n", "            if True:\n",
            "test_ill_brokers.py::test_a_hung_node_is_waited_for_once"),
    Planted("patient-without-a-sign", "brokers", "            if limit_s > ANSWER_S:\n", "            if False:\n",
            "test_ill_brokers.py::test_a_hung_node_costs_patient_reading_no_more"),
    Planted("preview-that-acts", "acts.serving",
            '    if own["preview"] == "true":', '    if own["preview"] == "never":',
            "test_acts.py::test_the_api_is_the_same"),
    Planted("name-not-typed-again", "acts.serving", "if act.confirm and confirm !=", "if False and confirm !=",
            "test_acts_refused.py::test_what_destroys_asks_for_the_name"),
    Planted("link-that-acts-without-a-preview", "acts.serving", "(act.is_direct and not act.destroys)", "True",
            "test_acts.py::test_a_link_of_a_destroying_act_shows_its_preview"),
    Planted("read-only-ignored", "acts.serving", "    if site.is_read_only:\n        return ()\n", "",
            "test_acts_refused.py::test_a_read_only_console_serves_no_act"),
    Planted("act-not-in-the-audit-log", "acts.serving", '    _log(host.site, act, user, values, "done", "")\n', "",
            "test_acts.py::test_every_act_is_a_line_of_the_audit_log"),
    Planted("reading-not-in-the-audit-log", "views.messages", "    asking.site.trail.note(\n",
            "    (lambda *_, **__: None)(\n", "test_audit.py::test_every_reading_and_every_act_is_a_line"),
    Planted("audit-log-of-everyone", "views.audit", "if sees_all or (", "if True or (",
            "test_audit.py::test_who_sees_which_lines"),
    Planted("audit-log-without-a-limit", "access.trail", "deque(maxlen=ENTRIES_MAX)", "deque()",
            "test_audit.py::test_it_has_a_limit"),
    Planted("acts-without-a-role", "access.roles", "        if not self.may_act(act):\n", "        if False:\n",
            "test_roles.py::test_an_act_needs_a_role"),
    Planted("records-without-a-role", "access.roles", "        if not self.may_read(topic):\n", "        if False:\n",
            "test_roles.py::test_records_of_topics_that_no_role_gives"),
    Planted("downloads-without-a-role", "access.roles", "        if not self.may_download:\n", "        if False:\n",
            "test_roles.py::test_downloads_are_a_right_of_their_own"),
    Planted("pages-without-a-role", "access.roles", "        if self.is_nobody:\n", "        if False:\n",
            "test_roles.py::test_a_user_without_a_role_sees_nothing"),
    Planted("masks-of-roles-ignored", "access.roles",
            "        return joined([*self._masks.rules_for(topic, self._user), *mine])",
            "        return joined(self._masks.rules_for(topic, self._user))",
            "test_roles.py::test_no_route_shows_what_a_mask_hides"),
    Planted("masked-record-downloaded", "access.roles",
            "        if not self.mask(topic).is_empty:\n", "        if False:\n",
            "test_roles.py::test_no_route_shows_what_a_mask_hides"),
    Planted("field-in-a-list-shown", "masks", "            return [self._masked(each, path) for each in value]\n",
            "            return value\n", "test_masks.py::test_lists_on_the_way_are_passed_through"),
    Planted("old-roles-go-on", "access.rule_files", "                read(path)\n            except",
            "                pass\n            except",
            "test_rule_files.py::test_a_right_is_given_and_taken_without_a_restart"),
    Planted("strange-host-answered", "app", "        if host not in self._hosts:\n", "        if False:\n",
            "test_server.py::test_other_names_are_refused_where_no_login_protects"),
    Planted("sessions-without-a-limit", "sessions", "while len(self._by_id) >= SESSIONS_MAX:", "while False:",
            "test_server.py::test_sessions_have_a_limit"),
    Planted("tails-without-a-limit", "live", "if len(self._open) >= TAILS_MAX or is_many:", "if False:",
            "test_tails.py::test_there_are_so_many_tails"),
    Planted("unsaid-lag-is-zero", "behind", "if value == 0 and any(", "if False and any(",
            "test_behind.py::test_an_unknown_lag_is_not_zero"),
    Planted("moves-before-the-throttle", "acts.throttles", "    if rate is None:\n        start()",
            "    if rate is not None:\n        start()",
            "test_moves.py::test_the_throttle_is_set_before_the_moves_begin"),
)  # fmt: skip


def run_here(planted: Planted) -> int:
    """What pytest ends with, in this process."""
    import pytest

    planter = Planter(planted.mutation)
    importlib.import_module("ottla")  # which may put a finder of its own first
    sys.meta_path.insert(0, planter)
    code = pytest.main([f"tests/unit/console/{planted.found_by}", "-q", "-x", "-p", "no:cacheprovider", "--no-header"])
    assert planter.planted, f"{planted.mutation.module} was not imported"
    return int(code)


def is_found(planted: Planted) -> tuple[bool, str]:
    """Whether the named test fails, and what it printed."""
    command = [sys.executable, "-m", "tests.unit.console.planted", planted.name, "--here"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    return done.returncode == FAILED and "FAILED tests/" in done.stdout, f"{done.stdout}{done.stderr}"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.unit.console.planted", description=__doc__)
    parser.add_argument("names", nargs="*", help="only these")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    chosen = [each for each in PLANTED if not options.names or each.name in options.names]
    if options.here:
        return run_here(chosen[0])
    missed = 0
    for each in chosen:
        found, _ = is_found(each)
        missed += not found
        print(f"{each.name:36} {'found by' if found else 'NOT FOUND by'} {each.found_by}", flush=True)
    print(f"{len(chosen)} bugs planted, {len(chosen) - missed} found")
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
