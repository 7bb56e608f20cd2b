"""The fixtures give real servers, and nothing of one test reaches another."""

import aiokafka
import pytest


@pytest.mark.parametrize("_again", [1, 2])
async def test_each_test_gets_a_topic_of_its_own_that_starts_empty(kafka, make_topic, _again):
    """Two tests that count messages would otherwise count each other's."""
    topic = make_topic("reports", partitions=2)
    async with aiokafka.AIOKafkaProducer(bootstrap_servers=kafka.bootstrap) as producer:
        sent = await producer.send_and_wait(topic, b"one", partition=1)

    assert sent.offset == 0


@pytest.mark.parametrize("_again", [1, 2])
async def test_each_test_gets_redis_keys_of_its_own(redis_client, name_prefix, _again):
    """A counter that another test left would be counted on."""
    assert await redis_client.incr(f"blender:{{{name_prefix}/0}}:count") == 1


async def test_a_cluster_refuses_a_script_whose_keys_lie_in_two_slots(own_cluster_redis):
    """So that a key without its hash tag fails in a test, not on somebody's cluster."""
    with own_cluster_redis.client() as client:
        assert client.eval("return redis.call('SET', KEYS[1], 1)", 1, "a")
        with pytest.raises(Exception, match="same slot"):
            client.eval("return 1", 2, "{a}x", "{b}y")
