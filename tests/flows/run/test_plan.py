"""The plan of a run: what changes above a stage is told below it."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from flows.dvc_state.dag import Node
from flows.dvc_state.freshness import Freshness
from flows.lock import Holder
from flows.run import plan as planning
from flows.run.plan import Step, summary

FRESH = Freshness("sample", "fresh", ("all is as dvc.lock has it",))


@pytest.fixture
def steps(monkeypatch):
    def of(first):
        states = {"acquire": first, "sample": FRESH}
        monkeypatch.setattr(planning, "assess", lambda _pipeline, name, _params, _returning: states[name])
        nodes = [Node("acquire", "", (), (), ()), Node("sample", "", ("acquire",), (), ())]
        session = SimpleNamespace(pipeline=None, what_if=None)
        return {step.stage: step for step in planning.plan(session, nodes)}

    return of


def test_a_stage_restored_as_it_was_at_an_earlier_time_may_change_what_is_below(steps):
    sample = steps(Freshness("acquire", "restorable", ("parameter acquire.x changed: 2 → 1",)))["sample"]
    assert sample.action == "run"
    assert sample.why == ("acquire would be restored before it, and may change its input",)


def test_a_stage_restored_as_dvc_lock_has_it_changes_nothing_below(steps):
    lost = Freshness("acquire", "restorable", ("output data is missing",), returning={"data": "hash"})
    assert steps(lost)["sample"].action == "fresh"


def test_the_name_of_a_run_says_what_runs_and_why():
    listed = Step("local@corpus-own", "run", ("a file was added",))
    fresh = Step("acquire", "fresh", ("as dvc.lock has them",))
    sample, report = (
        Step("sample", "run", ("parameter seed changed: 1 → 2",)),
        Step("report", "run", ("sample would run",)),
    )
    dead = Holder(1, "supmer run", "now")
    assert summary([listed, fresh, sample, report], None) == "sample and 1 more: parameter seed changed: 1 → 2"
    assert summary([fresh, sample], dead) == "sample: parameter seed changed: 1 → 2 (after a crash)"
    assert summary([listed, fresh], replace(dead, interrupted=True)) == "local@corpus-own: a file was added"
    assert summary([fresh], None) == "nothing to do: all stages are fresh"
