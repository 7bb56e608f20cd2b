"""The HTTP edge: submissions in, publications out. Stateless; any number behind a balancer.

    POST ─▶ http/ ─▶ app ─▶ http/request_types ─▶ submit/…_submissions ─▶ state/frame_… ─▶ Kafka
           (limits) (router)     (decode)            (judge, hash)        (pack, await)
    GET  ─▶ http/ ─▶ app ─▶ read/read_api ─▶ state/publications ◀─ state/release_follower ◀─ Kafka

http/ knows requests and answers, state/ what may be sent and was published, submit/ and read/ the
two kinds of addresses; each imports only what is before it.

`routes` lists every address once, for the router and for `openapi`; `gateway_process` puts
the parts together; `pages/` is what browsers show.
"""

__all__ = ["gateway_process", "http"]
