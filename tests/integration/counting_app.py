"""A small Faust app for `test_first_agent`: counts the messages of one topic.

run: python -m tests.integration.counting_app worker   (COUNT_TOPIC, COUNT_PREFIX and the two URLs)
"""

import os

import faust
import redis.asyncio

prefix = os.environ["COUNT_PREFIX"]
store = redis.asyncio.Redis.from_url(os.environ["REDIS_URL"])
app = faust.App(
    prefix,
    broker=os.environ["KAFKA_URL"],
    datadir=os.environ["COUNT_FOLDER"],
    value_serializer="raw",
    web_enabled=False,
    topic_disable_leader=True,
    stream_wait_empty=False,
    broker_session_timeout=6.0,
    broker_heartbeat_interval=1.0,
    consumer_auto_offset_reset="earliest",
)


@app.agent(app.topic(os.environ["COUNT_TOPIC"], value_type=bytes))
async def count_messages(messages: faust.StreamT[bytes]) -> None:
    """topic → a set of offsets: its size is the count, however often a message is redelivered."""
    async for events in messages.noack_take(100, within=0.1):
        offsets = [f"{event.message.partition}/{event.message.offset}" for event in events]
        await store.sadd(f"{prefix}:counted", *offsets)
        for event in events:
            await messages.ack(event)


if __name__ == "__main__":
    app.main()
