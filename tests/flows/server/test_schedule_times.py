"""When a schedule fires."""

from datetime import timedelta

import pytest

from flows.server.schedule_times import interval, prefect_schedule
from storage.errors import InputError

# Of a library that Prefect reads dates with.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@pytest.mark.parametrize(
    ("text", "length"),
    [
        ("90s", timedelta(seconds=90)),
        ("1h30m", timedelta(hours=1, minutes=30)),
        ("1d", timedelta(days=1)),
        ("2w", timedelta(weeks=2)),
    ],
)
def test_an_interval_is_read(text, length):
    assert interval(text) == length
    assert prefect_schedule(None, text, None).interval == length


@pytest.mark.parametrize("text", ["", "soon", "1", "h", "-1h", "1.5h", "1h 30m", "1y"])
def test_what_is_no_interval_is_refused(text):
    with pytest.raises(InputError, match="not an interval: write it like"):
        interval(text)


@pytest.mark.parametrize("text", ["0s", "600d"])
def test_an_interval_has_bounds(text):
    with pytest.raises(InputError, match="at most a year"):
        interval(text)


def test_cron_is_read_in_its_time_zone():
    schedule = prefect_schedule("0 3 * * *", None, "Europe/Berlin")
    assert (schedule.cron, schedule.timezone) == ("0 3 * * *", "Europe/Berlin")
    assert prefect_schedule("0 3 * * *", None, None).timezone


@pytest.mark.parametrize("cron", ["", "0 3 * *", "61 * * * *", "daily"])
def test_what_is_no_cron_expression_is_refused(cron):
    with pytest.raises(InputError, match="not a cron expression: five fields"):
        prefect_schedule(cron, None, "UTC")


def test_an_unknown_time_zone_is_refused():
    with pytest.raises(InputError, match="--timezone Mars: unknown"):
        prefect_schedule("0 3 * * *", None, "Mars")


def test_a_time_zone_that_would_change_nothing_is_refused():
    with pytest.raises(InputError, match="--timezone Europe/Berlin: only --cron uses it"):
        prefect_schedule(None, "1h", "Europe/Berlin")


@pytest.mark.parametrize(("cron", "every"), [(None, None), ("0 3 * * *", "1h")])
def test_a_schedule_is_one_or_the_other(cron, every):
    with pytest.raises(InputError, match="either --cron"):
        prefect_schedule(cron, every, None)
