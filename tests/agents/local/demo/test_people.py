"""The demo's people: who has a record, and what those without one say."""

import asyncio
import json
import time
from typing import Any

import httpx
import numpy as np
import pytest

from blendstream.agents.local.demo.people import FALLING, NO_RECORD, RISING, Crowd, Window
from blendstream.agents.local.demo.population import Population
from blendstream.agents.local.demo.senders import BatchSender
from blendstream.blender.values.cells import Cells
from tests.localclient.support import head_list


def test_four_in_five_people_have_a_record_and_the_seed_decides_who():
    """Two runs with one seed are about the same people. 4 standard errors of 10 000 are .016."""
    crowd = Crowd()
    first, again = (crowd.window(50, 10_000, np.random.default_rng(7)) for _ in range(2))

    assert sum(first.truth.values()) == pytest.approx(0.8)
    assert abs(np.mean(first.clients != NO_RECORD) - 0.8) < 0.016
    assert (first.optin == again.optin).all()
    assert (len(first.optin), len(first.clients)) == (50, 10_000)


async def test_a_seed_repeats_the_people_and_never_the_noise_of_their_devices():
    """`--seed` says so; seven runs with one seed had printed 6.66 or 6.67 % beside ± 0.39 points.

    That 1 000 devices draw the same answers twice is about as likely as 1 000 coins all heads.
    """
    (first, posted), (again, posted_again) = await asyncio.gather(one_run(7), one_run(7))

    assert len(posted) == len(posted_again) == 1_000
    assert (first.optin == again.optin).all()
    assert (first.clients == again.clients).all()
    assert [r["answers"] for r in posted] != [r["answers"] for r in posted_again]


async def one_run(seed: int) -> tuple[Window, list[dict[str, Any]]]:
    """What the people of one epoch searched for, and every report of their devices."""
    now_s, posted = int(time.time()), []
    crowd = Crowd()
    shown = head_list(
        0,
        records=tuple(crowd.records[:8]),
        window_start_s=now_s - 10,
        window_end_s=now_s,
        reports_until_s=now_s,
    ).to_bytes()

    def answer(request: httpx.Request) -> httpx.Response:
        if request.method == "GET":
            return httpx.Response(200, content=shown)
        entries = json.loads(request.content)
        if request.url.path == "/v1/reports":
            posted.extend(entries)
        return httpx.Response(202, json={"verdicts": [{"status": "accepted"}] * len(entries)})

    async with httpx.AsyncClient(
        transport=httpx.MockTransport(answer), base_url="https://gateway.example"
    ) as http, asyncio.TaskGroup() as tasks:  # fmt: skip
        people = Population(http, "token", people=1_100, optin_share=1 / 11, seed=seed)
        opened_s = time.time()
        collecting = {"epoch": 0, "window_start_s": opened_s, "window_end_s": opened_s + 1}
        window = await people.act({"collecting": collecting}, tasks)
    assert window is not None
    return window, posted


async def test_the_crowds_people_without_a_record_say_none_and_star():
    """Both groups of the demo estimate the share of people, as the service's devices do."""
    crowd, posted = Crowd(), []

    def answer(request: httpx.Request) -> httpx.Response:
        posted.extend(json.loads(request.content))
        return httpx.Response(202, json={"verdicts": [{"status": "accepted"}] * len(posted)})

    async with httpx.AsyncClient(
        transport=httpx.MockTransport(answer), base_url="https://gateway.example"
    ) as http:
        numbers = np.array([0, NO_RECORD, len(crowd.records) - 1])
        await BatchSender(http, "token").send_optin(crowd, numbers, 3, 0.0)

    texts = [(entry["query"], entry["url"]) for entry in posted]
    assert texts == [crowd.records[0], (None, None), crowd.records[-1]]
    assert {(entry["slot"], entry["epoch"]) for entry in posted} == {(0, 3)}
    cells = Cells(tuple(crowd.records[:2]), False)
    assert crowd.cell_of_number(cells)[numbers].tolist() == [0, 2, 2]


def test_one_query_rises_one_falls_and_the_others_keep_their_share():
    """Without a change between epochs the page's trends had nothing to show."""
    crowd = Crowd()
    shares = []
    for before in range(6):
        truth = crowd.window(1, 1, np.random.default_rng(7), before).truth
        by_query = dict.fromkeys((RISING, FALLING, "weather tomorrow"), 0.0)
        for record, share in truth.items():
            if record.query in by_query:
                by_query[record.query] += share
        shares.append(by_query)
        assert sum(truth.values()) == pytest.approx(0.8)
        assert min(truth.values()) > 0

    rising, falling, steady = ([share[query] for share in shares] for query in shares[0])
    assert rising[:5] == sorted(rising[:5])
    assert rising[4] > 5 * rising[0]
    assert falling[:5] == sorted(falling[:5], reverse=True)
    assert falling[0] > 5 * falling[4]
    assert (rising[4], falling[4]) == (rising[5], falling[5]), "a demo that runs for a day"
    assert max(steady) == min(steady)
