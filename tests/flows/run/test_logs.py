"""What `supmer run` prints about a stage is in the Prefect log of that stage's task."""

from support.following import WEB


def messages(api, stage):
    """The log of the latest task run of a stage."""
    asked = {"task_runs": {"name": {"any_": [stage]}}, "sort": "EXPECTED_START_TIME_DESC", "limit": 1}
    [task] = WEB.post(f"{api}/task_runs/filter", json=asked).json()
    logs = WEB.post(f"{api}/logs/filter", json={"logs": {"task_run_id": {"any_": [task["id"]]}}}).json()
    return [log["message"] for log in logs]


def test_the_log_of_a_stage_says_why_it_ran_and_what_became_of_it(served):
    printed = served.run("run", "-S", "sample.min_words=61")
    log = messages(served.api, "sample")
    assert "sample: parameter sample.min_words changed: 50 → 61" in log
    assert "sample ran: parameter sample.min_words changed: 50 → 61" in log
    said = [line.strip() for line in printed.splitlines() if line.startswith("  sample: ")]
    assert said
    assert set(said) <= set(log)


def test_the_log_of_a_failed_stage_says_what_was_wrong(served):
    (served.root / "texts" / "bad.jsonl").write_text('{"text": "one"}\n[1, 2]\n')
    served.run("run", expect=2)
    assert any(
        message.startswith("sample failed: ") and "line 2" in message for message in messages(served.api, "sample")
    )
