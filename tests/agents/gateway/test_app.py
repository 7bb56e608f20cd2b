"""The public API apart from submissions: documents, history, states, health, errors, CORS."""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
import secrets
import shlex
from dataclasses import replace

import pytest

from blendstream.agents.gateway.http.cors import Cors
from blendstream.agents.gateway.http.negotiation import IMMUTABLE
from blendstream.agents.gateway.http.request_types import OPTIN_RECORDS, REPORTS
from blendstream.agents.gateway.read.estimates_csv import COLUMNS, csv_table
from blendstream.agents.gateway.state.publications import PublishedDocument
from blendstream.streams.releases.epoch_state import PauseNotice
from blendstream.streams.releases.epoch_view import EpochView
from blendstream.streams.settings.sections import GatewaySettings
from blendstream.streams.wire import submissions
from blendstream.streams.wire.estimates_document import (
    EstimatedQuery,
    EstimatedShare,
    EstimatesDocument,
    PublishedAgreement,
)
from blendstream.streams.wire.schemas import schema
from tests.agents.gateway.doubles import make_gateway, report
from tests.agents.gateway.published import estimates


def with_estimates(*epochs: int):
    gateway = make_gateway()
    gateway.publications.estimates = {
        epoch: PublishedDocument(epoch, f"{epoch:064x}", estimates(epoch)) for epoch in epochs
    }
    return gateway


# --- documents -----------------------------------------------------------------------------------


async def test_a_head_list_is_served_byte_for_byte_under_its_hash():
    """Devices check the bytes against the id."""
    gateway = make_gateway()
    body = b'{"schema":"blendstream/head-list/2","filler":"' + b"x" * 2000 + b'"}'
    document = PublishedDocument(7, "ab" * 32, body)
    gateway.publications.head_lists = {document.id: document}
    gateway.publications.current_head_list = document.id

    current = await gateway.ask("GET", "/v1/head-lists/current")
    named = await gateway.ask("GET", f"/v1/head-lists/{document.id}")
    packed = await gateway.ask(
        "GET", "/v1/head-lists/current", headers={"accept-encoding": "br, gzip"}
    )

    assert (current.status, current.body) == (200, body)
    assert named.body == body
    assert named.headers["cache-control"] == IMMUTABLE.decode()
    assert packed.headers["content-encoding"] == "gzip"
    assert gzip.decompress(packed.body) == body
    assert packed.headers["etag"] != current.headers["etag"], "other bytes, another tag"
    assert "accept-encoding" in packed.headers["vary"]


async def test_who_has_the_document_gets_304_and_no_body():
    """A million devices ask every day for the same list."""
    gateway = with_estimates(4)
    first = await gateway.ask("GET", "/v1/estimates/latest")

    for given in (first.headers["etag"], f'W/{first.headers["etag"]}, "x"', "*"):
        again = await gateway.ask("GET", "/v1/estimates/4", headers={"if-none-match": given})
        assert (again.status, again.body) == (304, b"")
        assert again.headers["etag"] == first.headers["etag"]
    other = await gateway.ask("GET", "/v1/estimates/4", headers={"if-none-match": '"other"'})
    assert other.status == 200


@pytest.mark.parametrize("form", ["", "?format=csv&table=records"])
async def test_an_empty_epoch_leaves_the_latest_results_and_their_tag(form):
    """A device replaces its copy by the answer, so an answer without rows would blank its search.

    The tag stays that of the results: who has them gets 304, and fetches the next ones.
    """
    gateway = with_estimates(4)
    before = await gateway.ask("GET", f"/v1/estimates/latest{form}")
    gateway.publications.estimates[5] = PublishedDocument(5, f"{5:064x}", b"{}", empty=True)

    known = {"if-none-match": before.headers["etag"]}
    after = await gateway.ask("GET", f"/v1/estimates/latest{form}")
    assert (after.status, after.body) == (200, before.body)
    assert after.headers["etag"] == before.headers["etag"]
    assert (await gateway.ask("GET", f"/v1/estimates/latest{form}", headers=known)).status == 304
    assert (await gateway.ask("GET", "/v1/estimates/5")).body == b"{}"

    gateway.publications.estimates[6] = PublishedDocument(6, f"{6:064x}", estimates(6))
    newer = await gateway.ask("GET", f"/v1/estimates/latest{form}", headers=known)
    assert newer.status == 200
    assert newer.headers["etag"] != before.headers["etag"]


async def test_without_results_there_is_no_latest_publication():
    """A device keeps what it has; the answer names the address that has the states."""
    gateway = make_gateway()
    gateway.publications.estimates[5] = PublishedDocument(5, f"{5:064x}", b"{}", empty=True)

    reply = await gateway.ask("GET", "/v1/estimates/latest")

    assert reply.status == 404
    assert reply.json()["detail"] == (
        "no epoch with results has been published yet; see /v1/epochs"
    )


async def test_a_header_in_several_lines_is_one_list():
    """Proxies may split a list; its second line counts as well."""
    gateway = with_estimates(4)
    first = await gateway.ask("GET", "/v1/estimates/4")
    lines = [("if-none-match", '"other"'), ("if-none-match", first.headers["etag"])]

    again = await gateway.ask("GET", "/v1/estimates/4", headers=lines)

    assert (again.status, again.body) == (304, b"")


@pytest.mark.parametrize(
    "path", ["/v1/epochs/", "//v1/epochs", "/v1/epochs\n", "/v1/estimates/4\n"]
)
async def test_an_address_has_one_spelling(path):
    """Neither a redirect nor a second address under which caches keep the same again."""
    assert (await with_estimates(4).ask("GET", path)).status == 404


@pytest.mark.parametrize(
    "path",
    [
        "/v1/head-lists/current",
        "/v1/head-lists/" + "0" * 64,
        "/v1/estimates/latest",
        "/v1/estimates/5",
        "/v1/estimates/05",
        "/v1/estimates/-1",
        "/v1/estimates/٤",
        "/v1/click-graphs/latest",
        "/v1/click-graphs/3",
        "/v1/nothing",
        "/",
    ],
)
async def test_what_is_not_there_is_a_problem_that_says_where_to_look(path):
    gateway = make_gateway()

    reply = await gateway.ask("GET", path)

    assert reply.status == 404
    assert reply.headers["content-type"] == "application/problem+json"
    assert reply.json()["title"]
    assert len(reply.json()["detail"]) > 20


async def test_a_head_list_is_missing_only_when_the_log_was_read_to_its_end():
    """A device that is told 404 forgets its report; one that is told 503 asks again."""
    gateway = make_gateway()

    async def read() -> bool:
        return False

    gateway.publications.read_to_end = read
    reply = await gateway.ask("GET", "/v1/head-lists/" + "0" * 64)

    assert reply.status == 503
    assert int(reply.headers["retry-after"]) >= 1


async def test_estimates_come_as_a_table_to_who_accepts_csv():
    """⋆ and numbers that do not exist are empty fields; commas in queries are quoted."""
    gateway = with_estimates(4)

    reply = await gateway.ask("GET", "/v1/estimates/4", headers={"accept": "text/csv"})

    assert reply.headers["content-type"].startswith("text/csv")
    rows = list(csv.DictReader(io.StringIO(reply.body.decode())))
    assert tuple(rows[0]) == COLUMNS["records"]
    assert (rows[0]["query"], rows[0]["blend_probability"]) == ("weather, today", "0.25")
    assert rows[0]["client_probability"] == ""
    assert (rows[1]["query"], rows[1]["url"], rows[1]["projected"]) == ("", "", "0.75")
    neither = await gateway.ask("GET", "/v1/estimates/4", headers={"accept": "image/png"})
    assert neither.status == 406


def test_a_table_says_which_records_are_disputed():
    for field, said in {"true": True, "false": False}.items():
        body = json.loads(estimates(4))
        for row in body["records"]:
            row["disputed"] = said
        table = csv_table(json.dumps(body).encode(), "records")
        read = csv.DictReader(io.StringIO(table.decode()))
        assert [row["disputed"] for row in read] == [field] * len(body["records"])


async def test_history_is_paged_newest_first_without_gaps():
    gateway = with_estimates(*range(1, 26))

    seen, path = [], "/v1/estimates?limit=10"
    while path is not None:
        reply = await gateway.ask("GET", path)
        page = reply.json()
        seen += [document["epoch"] for document in page["estimates"]]
        path = page["next"]
        assert ("link" in reply.headers) == (path is not None)

    assert seen == list(range(25, 0, -1))
    table = await gateway.ask("GET", "/v1/estimates?limit=2", headers={"accept": "text/csv"})
    rows = list(csv.DictReader(io.StringIO(table.body.decode())))
    assert [row["epoch"] for row in rows] == ["25", "25", "24", "24"]


@pytest.mark.parametrize("accept", ["application/json", "text/csv"])
async def test_a_page_of_history_has_a_name_for_its_bytes(accept):
    """A cache asks whether its copy is still right, and is told so without the page."""
    gateway = make_gateway()
    gateway.publications.estimates = {
        n: PublishedDocument(n, f"{n:064x}", estimates(n)) for n in range(3)
    }

    first = await gateway.ask("GET", "/v1/estimates", headers={"accept": accept})
    known = {"accept": accept, "if-none-match": first.headers["etag"]}
    again = await gateway.ask("GET", "/v1/estimates", headers=known)
    gateway.publications.estimates[3] = PublishedDocument(3, f"{3:064x}", estimates(3))
    newer = await gateway.ask("GET", "/v1/estimates", headers=known)

    assert (first.status, again.status, newer.status) == (200, 304, 200)
    assert first.headers["vary"] == "accept"


@pytest.mark.parametrize("path", ["/v1/estimates/1", "/v1/estimates"])
@pytest.mark.parametrize(("form", "gzip_too"), [("json", False), ("csv", False), ("csv", True)])
async def test_readers_are_sent_what_is_kept_and_nothing_is_copied_for_one(path, form, gzip_too):
    """150 readers that took their time with a table of 7 MB held a gigabyte."""
    gateway = make_gateway()
    body = estimates(1, query="weather " * 20_000 + secrets.token_hex(100_000))
    gateway.publications.estimates = {1: PublishedDocument(1, "ab" * 32, body)}
    scope = {
        "type": "http",
        "method": "GET",
        "path": path,
        "query_string": f"format={form}".encode(),
        "headers": [(b"accept-encoding", b"gzip")] if gzip_too else [],
    }
    shared = []
    for _ in range(2):
        sent = []

        async def send(message, sent=sent):
            sent.append(message)

        await gateway.app(dict(scope), None, send)
        views = [m["body"] for m in sent if isinstance(m.get("body"), memoryview)]
        assert sum(map(len, views)) > 0.99 * sum(len(m.get("body", b"")) for m in sent)
        (whole,) = {id(view.obj): view.obj for view in views}.values()
        shared.append(whole)

    assert shared[0] is shared[1]
    assert form == "csv" or shared[0] is body


@pytest.mark.parametrize("query", ["limit=0", "limit=101", "limit=x", "before=-1", "before="])
async def test_a_bad_page_is_a_400(query):
    assert (await with_estimates(1).ask("GET", f"/v1/estimates?{query}")).status == 400


async def test_epochs_tell_states_and_times_and_what_a_device_needs():
    """LocalClient's opt-in mode reads `collecting`."""
    gateway = make_gateway()
    gateway.publications.epochs = {
        8: EpochView(8, "collecting", 999_000, 1_001_000, 1_001_060, 1, 1),
        7: EpochView(7, "reporting", 998_000, 999_000, 999_060, 1, 1, "ab" * 32, 1_001_000),
    }

    reply = await gateway.ask("GET", "/v1/epochs")

    assert [epoch["epoch"] for epoch in reply.json()["epochs"]] == [8, 7]
    assert submissions.read_collecting_epoch(reply.body) == submissions.CollectingEpoch(
        8, 999_000, 1_001_000, 1_001_060, 1
    )
    gateway.publications.epochs = {}
    gateway.publications.last_pause = PauseNotice(
        9, 999_999_000, 1_000_500_000, "the budget is spent"
    )
    paused = await gateway.ask("GET", "/v1/epochs")
    assert submissions.read_collecting_epoch(paused.body) is None
    assert paused.json()["paused"] == {"resumes_s": 1_000_500, "detail": "the budget is spent"}


# --- requests that are wrong as HTTP -------------------------------------------------------------


async def test_bodies_are_bounded_whether_announced_or_not():
    """A length that lies must not fill memory either."""
    gateway = make_gateway(limits=GatewaySettings(body_bytes=1000))

    announced = await gateway.ask("POST", "/v1/reports", b"{}", {"content-length": "1001"})
    lied = await gateway.ask("POST", "/v1/reports", b"[" + b" " * 1001, pieces=5)
    whole = await gateway.ask("POST", "/v1/reports", b"[" + b" " * 1001)

    assert [r.status for r in (announced, lied, whole)] == [413, 413, 413]
    assert "at most 1000 bytes" in announced.json()["detail"]


async def test_all_bodies_together_are_bounded():
    """Ten thousand slow senders of a megabyte each would be ten gigabytes."""
    gateway = make_gateway(limits=GatewaySettings(max_in_flight_body_bytes=1000))
    body = json.dumps([report(n) for n in range(10)]).encode()

    pieces = await gateway.ask("POST", "/v1/reports", body, pieces=10)
    whole = await gateway.ask("POST", "/v1/reports", body)
    small = await gateway.report(report())

    assert (pieces.status, pieces.json()["reason"]) == (503, "busy")
    assert (whole.status, whole.json()["reason"]) == (503, "busy")
    assert small.status == 202


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 202),
        ({"content-type": "application/json"}, 202),
        ({"content-type": 'application/JSON; charset="UTF-8"'}, 202),
        ({"content-type": "application/json; charset=latin-1"}, 415),
        ({"content-type": "text/plain"}, 415),
        ({"content-encoding": "gzip"}, 415),
        ({"content-length": "x"}, 400),
    ],
)
async def test_the_body_must_be_plain_json(headers, status):
    reply = await make_gateway().ask("POST", "/v1/reports", report(), headers)
    assert reply.status == status


async def test_a_body_in_pieces_is_read_whole():
    reply = await make_gateway().ask("POST", "/v1/reports", report(), pieces=7)
    assert reply.status == 202


@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [
        ("GET", "/v1/reports", "OPTIONS, POST"),
        ("DELETE", "/v1/epochs", "GET, HEAD, OPTIONS"),
        ("POST", "/v1/estimates/4", "GET, HEAD, OPTIONS"),
    ],
)
async def test_another_method_is_405_with_those_that_are_offered(method, path, allow):
    reply = await make_gateway().ask(method, path)
    assert (reply.status, reply.headers["allow"]) == (405, allow)


async def test_an_unexpected_error_is_a_500_that_tells_nothing(caplog):
    """Neither the sender nor the log learns what was in the request."""
    gateway = make_gateway()
    gateway.writer.add_reports = None

    reply = await gateway.report(report(contributor=0xDECAF))

    assert reply.status == 500
    assert "request_failed" in caplog.text
    assert "decaf" not in caplog.text.lower()
    assert b"decaf" not in reply.body.lower()


# --- browsers ------------------------------------------------------------------------------------


async def test_only_listed_origins_may_read_answers():
    gateway = make_gateway(cors=Cors(["https://news.example"]))
    ours, theirs = {"origin": "https://news.example"}, {"origin": "https://evil.example"}

    good = await gateway.ask("GET", "/v1/epochs", headers=ours)
    bad = await gateway.ask("GET", "/v1/epochs", headers=theirs)
    asked = await gateway.ask("OPTIONS", "/v1/reports", headers=ours)
    refused = await gateway.ask("OPTIONS", "/v1/reports", headers=theirs)

    assert good.headers["access-control-allow-origin"] == "https://news.example"
    # Devices in browsers compare their clock with the server's, and wait as long as they are told.
    assert {"date", "retry-after"} <= set(good.headers["access-control-expose-headers"].split(", "))
    assert "access-control-allow-origin" not in bad.headers
    assert asked.status == 204
    assert "POST" in asked.headers["access-control-allow-methods"]
    assert "access-control-allow-methods" not in refused.headers
    # A shared cache must not hand a page what it keeps from a reader without an origin.
    plain = await gateway.ask("GET", "/v1/epochs")
    assert [good.headers["vary"], bad.headers["vary"], plain.headers["vary"]] == ["origin"] * 3


@pytest.mark.parametrize(
    ("origins", "origin", "may_send_a_token"),
    [
        (["https://app.example"], "https://app.example", True),
        (["*", "https://app.example"], "https://app.example", True),
        (["*"], "https://any.example", False),
        (["*", "https://app.example"], "https://any.example", False),
    ],
)
async def test_only_origins_listed_by_name_may_send_a_token(origins, origin, may_send_a_token):
    """`*` lets every page read and report; sending records as they are takes a page we know."""
    gateway = make_gateway(cors=Cors(origins))

    asked = await gateway.ask("OPTIONS", "/v1/optin-records", headers={"origin": origin})

    assert asked.headers["access-control-allow-origin"] in ("*", origin)
    allowed = asked.headers["access-control-allow-headers"].split(", ")
    assert {"content-type", "if-none-match"} <= set(allowed)
    assert ("authorization" in allowed) == may_send_a_token


async def test_schemas_of_documents_are_served_and_named_where_the_documents_are_described():
    """Who writes a client in another language starts from the description."""
    gateway = make_gateway()
    described = (await gateway.ask("GET", "/openapi.json")).json()["paths"]

    for path, name in (
        ("/v1/head-lists/current", "head-list"),
        ("/v1/head-lists/{id}", "head-list"),
        ("/v1/estimates/latest", "estimates"),
        ("/v1/click-graphs/{epoch}", "click-graph"),
    ):
        address = described[path]["get"]["externalDocs"]["url"]
        served = await gateway.ask("GET", address)
        assert address == f"/v1/schemas/{name}"
        assert served.json() == schema(name)
        assert served.headers["content-type"] == "application/json"
    for name in ("", "nothing", "../estimates", "head-list.schema.json"):
        assert (await gateway.ask("GET", f"/v1/schemas/{name}")).status == 404


async def test_without_the_setting_no_origin_is_allowed():
    reply = await make_gateway().ask("GET", "/v1/epochs", headers={"origin": "https://a.example"})
    assert not any(name.startswith("access-control") for name in reply.headers)


async def test_the_description_says_how_many_entries_this_gateway_takes():
    """A sender that goes by the description must not be answered with 413."""
    gateway = make_gateway(limits=GatewaySettings(batch_entries=10))
    described = (await gateway.ask("GET", "/openapi.json")).json()
    schema = described["paths"]["/v1/reports"]["post"]["requestBody"]["content"]
    [_, batch] = schema["application/json"]["schema"]["oneOf"]

    assert (await gateway.report(*(report(n) for n in range(batch["maxItems"])))).status == 202
    over = await gateway.report(*(report(n) for n in range(batch["maxItems"] + 1)))
    assert over.status == 413


async def test_the_description_has_a_curl_command_for_each_submission_that_fits_its_types():
    """The first thing that a developer copies; it must not be answered with 400 or "malformed"."""
    described = (await make_gateway().ask("GET", "/openapi.json")).json()["paths"]

    for path, decoder in (("/v1/reports", REPORTS), ("/v1/optin-records", OPTIN_RECORDS)):
        operation = described[path]["post"]
        (command,) = re.findall(r"^```sh\n(.+)\n```", operation["description"], re.MULTILINE)
        words = shlex.split(command)
        body = words[words.index("-d") + 1].encode()
        example = operation["requestBody"]["content"]["application/json"]["example"]
        (entry,) = decoder.decode([body])
        assert words[:2] == ["curl", f"http://127.0.0.1:8080{path}"]
        assert not isinstance(entry, str), entry
        assert json.loads(body) == example
        assert ("Authorization: Bearer $TOKEN" in words) == ("security" in operation)


async def test_a_table_can_be_asked_for_in_the_address_alone():
    """`pandas.read_csv(url)` and a browser's address bar send no Accept of one's choice."""
    gateway = with_estimates(3, 4)
    plain = await gateway.ask("GET", "/v1/estimates/4?format=csv")
    accepted = await gateway.ask("GET", "/v1/estimates/4", headers={"accept": "text/csv"})
    documents = await gateway.ask(
        "GET", "/v1/estimates/4?format=json", headers={"accept": "text/csv"}
    )

    assert plain.headers["content-type"].startswith("text/csv")
    assert plain.body == accepted.body
    assert documents.json()["epoch"] == 4
    page = await gateway.ask("GET", "/v1/estimates?limit=1&format=csv&table=queries")
    assert page.body.splitlines() == [",".join(COLUMNS["queries"]).encode()]
    assert "</v1/estimates?before=4&limit=1&format=csv&table=queries>" in page.headers["link"]
    assert (await gateway.ask("GET", "/v1/estimates/4?format=xml")).status == 406
    for path in ("/v1/estimates/4", "/v1/estimates"):
        assert (await gateway.ask("GET", f"{path}?format=csv&table=urls")).status == 400


@pytest.mark.parametrize(("prefer", "share"), [("blend", "0.25"), ("client", "0.5")])
async def test_a_tables_share_is_the_one_that_the_publication_says_to_read(prefer, share):
    """A reader of columns would otherwise take the blend, which misleads where groups disagree."""
    figures = EstimatedShare(0.25, 0.0001, 0.2, 0.3), EstimatedShare(0.5, 0.0001, 0.4, 0.6)
    blend, client = figures
    document = replace(
        EstimatesDocument.from_bytes(estimates(4)),
        queries=(EstimatedQuery("weather, today", blend, client, blend, 0.4),),
        agreement=PublishedAgreement(9.0, 0.001, prefer == "blend", prefer),
    )
    gateway = make_gateway()
    gateway.publications.estimates = {4: PublishedDocument(4, "4" * 64, document.to_bytes())}

    table = await gateway.ask("GET", "/v1/estimates/latest?format=csv&table=queries")

    (row,) = csv.DictReader(io.StringIO(table.body.decode()))
    assert tuple(row) == COLUMNS["queries"]
    assert (row["query"], row["share"], row["preferred"]) == ("weather, today", share, prefer)
    assert (row["low"], row["high"]) == (("0.2", "0.3") if prefer == "blend" else ("0.4", "0.6"))
