"""The HTTP edge: submissions in, publications out. Stateless; any number behind a balancer.

    POST ─▶ protocol ─▶ app ─▶ bodies ─▶ reports/optin_records ─▶ frame_writer ─▶ producer ─▶ Kafka
            (limits)          (decode)   (judge, hash)            (pack, await)
    GET  ─▶ protocol ─▶ app ─▶ reading ─▶ publications ◀─ release_reader ◀─────────────────── Kafka

`routes` lists every address once, for dispatching and for `openapi` and `docs_page`; `server`
puts the parts together; `tokens`, `admission`, `limits`, `clock` and `cors` are what they say.
"""
