"""What an interrupted run says: how to continue, and how to force again what was forced and has not ended."""

from flows.run.interrupt import advice, note_ended, note_forced


def test_forced_stages_that_have_not_ended_are_named():
    note_forced({"tune", "sample"})
    assert advice().endswith("and `supmer run --force sample --force tune` forces again")
    note_ended("sample")
    assert advice().endswith("and `supmer run --force tune` forces again")
    note_ended("tune")
    assert advice() == "`supmer run` continues from here"
