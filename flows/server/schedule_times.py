"""The times of a schedule: a cron expression in a time zone, or an interval from now on."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

from storage.errors import InputError

SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
INTERVAL = re.compile(rf"(\d+[{''.join(SECONDS)}])+")


def interval(text: str) -> timedelta:
    """Return the interval of a text like 90s, 1h30m or 1d; raise InputError if it is not one."""
    if not INTERVAL.fullmatch(text):
        raise InputError(f"--every {text}: not an interval: write it like 30m, 1h30m or 1d")
    length = sum(int(number) * SECONDS[unit] for number, unit in re.findall(r"(\d+)(.)", text))
    if not 0 < length <= timedelta(days=366).total_seconds():
        raise InputError(f"--every {text}: must be more than zero and at most a year")
    return timedelta(seconds=length)


def prefect_schedule(cron: str | None, every: str | None, timezone: str | None) -> Any:
    """Return Prefect's schedule for the options; raise InputError if they are wrong. Prefect must be set up before."""
    if (cron is None) == (every is None):
        raise InputError('a schedule is either --cron "0 3 * * *" or --every 1h')
    if every is not None and timezone is not None:
        raise InputError(f"--timezone {timezone}: only --cron uses it, and --every {every} was given: leave it out")
    if every is not None:
        from prefect.client.schemas.schedules import IntervalSchedule

        return IntervalSchedule(interval=interval(every), anchor_date=datetime.now(UTC))
    from prefect.client.schemas.schedules import CronSchedule
    from pydantic import ValidationError

    try:
        return CronSchedule(cron=str(cron), timezone=timezone or local_timezone())
    except ValidationError as error:
        if error.errors()[0]["loc"] == ("timezone",):
            raise InputError(f"--timezone {timezone}: unknown: write it like Europe/Berlin") from error
        fields = "minute hour day month weekday"
        raise InputError(f'--cron "{cron}": not a cron expression: five fields, {fields}, like "0 3 * * *"') from error


def local_timezone() -> str:
    """Return the name of this machine's time zone."""
    from tzlocal import get_localzone_name

    return str(get_localzone_name() or "UTC")
