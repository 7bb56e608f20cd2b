"""Counters that never mislead Prometheus: what was told is not taken back, zero comes first."""

from __future__ import annotations

from prometheus_client import CollectorRegistry

from blendstream.agents.gateway.routes import ROUTES
from blendstream.agents.gateway.state.metrics import OTHER_ROUTES, GatewayTotals
from blendstream.agents.worker.metrics import EntryTotals
from blendstream.streams.names import InputStream

REPORTS = InputStream.CLIENT_REPORTS


def told(totals: EntryTotals, what: str = "received", **labels: str) -> float | None:
    registry = CollectorRegistry()
    registry.register(totals)
    return registry.get_sample_value(
        f"blender_client_reports_{what}_total", {"partition": "3", **labels}
    )


def test_a_redis_that_lost_its_tail_is_no_counter_that_began_anew():
    """Else ten lost entries of ten million would look like ten million new ones."""
    totals = EntryTotals()
    totals.set(REPORTS, 3, {"received": 10_000_000, "counted": 9_000_000, "refused:late": 7})
    totals.settle(REPORTS, 3)

    totals.set(REPORTS, 3, {"received": 9_999_990, "counted": 8_999_990, "refused:late": 7})
    assert told(totals) == 10_000_000
    assert told(totals, "counted") == 9_000_000
    totals.set(REPORTS, 3, {"received": 10_000_000, "counted": 9_000_000, "refused:late": 7})
    totals.settle(REPORTS, 3)
    totals.set(REPORTS, 3, {"received": 10_000_005, "counted": 9_000_004, "refused:late": 8})

    assert told(totals) == 10_000_005
    assert told(totals, "counted") == 9_000_004
    assert told(totals, "refused", reason="late") == 8


def test_what_no_replay_brings_back_does_not_make_the_counter_stand():
    """A Redis that came up empty counts what the log still has, and then new entries show."""
    totals = EntryTotals()
    totals.set(REPORTS, 3, {"received": 10_000_000, "counted": 9_000_000})
    totals.settle(REPORTS, 3)
    for received in (0, 20_000, 50_000):
        totals.set(REPORTS, 3, {"received": received, "counted": received})
        assert told(totals) == 10_000_000
    totals.settle(REPORTS, 3)

    for _ in range(2):
        totals.set(REPORTS, 3, {"received": 50_040, "counted": 50_030})
        totals.settle(REPORTS, 3)

    assert told(totals) == 10_000_040
    assert told(totals, "counted") == 9_000_030


def test_a_partition_that_went_to_another_worker_is_told_no_more():
    """That one tells it; two would be summed."""
    totals = EntryTotals()
    totals.set(REPORTS, 3, {"received": 10})
    totals.forget(REPORTS, 3)
    totals.settle(REPORTS, 3)
    assert told(totals) is None

    totals.set(REPORTS, 3, {"received": 4})
    assert told(totals) == 4


def test_every_routes_first_failure_is_a_rise():
    """`rate` sees nothing in a series that is born at one."""
    totals = GatewayTotals()
    for route in ROUTES:
        known = totals.route(route.method, route.path, route.answers).statuses()
        assert known == dict.fromkeys((*route.answers, 500), 0), route
    assert {200, 404, 500} <= OTHER_ROUTES.statuses().keys()
