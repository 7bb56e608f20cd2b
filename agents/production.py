"""What a process warns of when it starts: a set-up that works, but not as production should."""

from __future__ import annotations

import logging

from streams.settings import Settings
from streams.stores.kafka import KafkaLog
from streams.stores.redis import Client, append_only
from streams.telemetry.structured_logs import Known
from streams.topics import copies_of_topics

__all__ = ["warn_of_risks"]

log = logging.getLogger(__name__)


async def warn_of_risks(settings: Settings, kafka: KafkaLog, redis: Client) -> None:
    """One warning with all of them; `doctor` says how to mend each."""
    risks = []
    if settings.topics.one_node:
        risks.append("topics.one_node is set, so losing one disk loses everything")
    copies, wanted = await copies_of_topics(settings, kafka), settings.topics.replication
    if few := sum(found < wanted for found in copies.values()):
        risks.append(f"{few} topics have fewer than topics.replication = {wanted} copies")
    if not await append_only(redis):
        risks.append("Redis has appendonly off, so a restart of it counts everything again")
    if risks:
        advice = "; ".join([*risks, "see `blendstream doctor`"])
        log.warning("not_for_production", extra={"advice": Known(advice)})
