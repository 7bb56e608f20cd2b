"""The gateway: accepts submissions over HTTP and serves publications. Stateless, so it scales out.

    POST ─▶ http/ ─▶ app ─▶ http/request_types ─▶ submit/…_submissions ─▶ state/frame_… ─▶ Kafka
           (limits) (router)     (decode)            (validate, hash)     (pack, await)
    GET  ─▶ http/ ─▶ app ─▶ read/read_api ─▶ state/publications ◀─ state/release_follower ◀─ Kafka

http/ has requests and responses, state/ the open submission targets and the publications, submit/
and read/ the two kinds of endpoints; each imports only folders named before it.

`routes` lists every endpoint once, for the router and for `openapi`; `gateway_process` assembles
the parts; `pages/` has the files that browsers load.
"""

__all__ = ["gateway_process", "http"]
