import numpy as np
from streams.epochs import Stem
from tests.counting import contributors, installation, optin_entries


async def test_every_entry_is_counted_once(kafka, redis_server, name_prefix):
    rng = np.random.default_rng(1)
    async with installation(kafka.url, redis_server.url, name_prefix) as made:
        made.open_epoch(1)
        made.open_epoch(2)
        made.publish_head_list(1)
        for p in range(2):
            for _ in range(5):
                keys = contributors(rng, 100)
                made.send_reports(1, p, keys, rng)
                made.send_reports(1, p, keys[:10], rng)
                made.send_records(2, p, optin_entries(rng, contributors(rng, 50)))
        made.flush()
        made.start_worker()
        await made.until_counted(timeout_s=30)
        await made.assert_exact()
