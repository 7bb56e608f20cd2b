"""The table of each stage's counts."""

from __future__ import annotations

from blendstream.streams.names import InputStream
from blendstream.streams.tables.client_reports import ClientReportTable
from blendstream.streams.tables.optin_records import OptinRecordTable
from blendstream.streams.tables.redis import Client

__all__ = ["StageTable", "stage_table"]

StageTable = OptinRecordTable | ClientReportTable


def stage_table(stem: InputStream, client: Client, topic: str, *, prefix: str) -> StageTable:
    """Make the table of a stage's topic, in any version of it."""
    kind = OptinRecordTable if stem is InputStream.OPTIN_RECORDS else ClientReportTable
    return kind(client, topic, prefix=prefix)
