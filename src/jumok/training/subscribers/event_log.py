"""Writes the events of a run to the logs in its folder: metrics.jsonl and samples.txt."""

from __future__ import annotations

import dataclasses
import json
import math

from jumok.runs.events import Alarm, Event, Finish, Notice, Sample, Save, Step, Verdict
from jumok.runs.folder import RunFolder


class EventLog:
    """A subscriber of events: each is a line of metrics.jsonl, notices and saves excepted."""

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder

    def __call__(self, event: Event) -> None:
        """Write one event."""
        if isinstance(event, Notice | Save):
            return
        fields = {"event": type(event).__name__.lower(), **dataclasses.asdict(event)}
        if isinstance(event, Alarm | Verdict):
            del fields["text"]  # which is in the language of the user
        if isinstance(event, Verdict):
            del fields["command"]  # which names the folder
        if isinstance(event, Step):
            fields |= fields.pop("figures")
        for name, value in fields.items():
            if isinstance(value, float) and not math.isfinite(value):
                fields[name] = None  # JSON has no NaN
        self._folder.append("metrics.jsonl", json.dumps(fields, ensure_ascii=False) + "\n")
        if isinstance(event, Sample):
            kept = " (kept)" if event.kept else ""
            self._folder.append("samples.txt", f"--- step {event.step}{kept} ---\n{event.text}\n\n")


class Ending:
    """A subscriber of events that comes last: config.json says that the run is finished once all else is written."""

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder

    def __call__(self, event: Event) -> None:
        """Record the end of a run that was not interrupted, once its logs are on the disk.

        A finished run is not continued from a state, so nobody would mend its logs: the end of metrics.jsonl was lost,
        or zeros, when the power failed after "finished" was on the disk and the last events were not.
        """
        if isinstance(event, Finish) and event.reason != "interrupted":
            with self._folder.writing("metrics.jsonl"):
                self._folder.logs.sync()
            ended = {"step": event.step, "reason": event.reason}
            self._folder.write_config({**self._folder.read_config(), "finished": ended})
