"""The HTTP edge: submissions in, publications out. Stateless; any number behind a balancer.

    POST ─▶ http/ ─▶ app ─▶ submit/request_types ─▶ submit/…_submissions ─▶ submit/frame_… ─▶ Kafka
           (limits) (router)       (decode)            (judge, hash)         (pack, await)
    GET  ─▶ http/ ─▶ app ─▶ read/read_api ─▶ read/publications ◀─ read/release_follower ◀──── Kafka

`routes` lists every address once, for the router and for `read/openapi`; `gateway_process` puts
the parts together; `pages/` is what browsers show.
"""
