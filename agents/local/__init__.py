"""A real Kafka and a real Redis on this machine, for tests, the demo and benchmarks.

    with Stack.start() as stack:
        stack.kafka.url, stack.redis.url

`LocalCluster` runs three Kafka nodes instead of one; `LocalRedisCluster` and `LocalSentinels` run a
Redis that survives the loss of a node.

`LocalKafka` and `LocalRedis` can be paused, killed, restarted and (Redis) rolled back. When the
program that started them ends, even by SIGKILL, `process_guard` ends them and removes their files.
"""

from blendstream.agents.local.local_cluster import LocalCluster
from blendstream.agents.local.local_kafka import LocalKafka
from blendstream.agents.local.local_redis import LocalRedis, RedisSnapshot
from blendstream.agents.local.process_guard import StackError
from blendstream.agents.local.replicated_redis import LocalRedisCluster, LocalSentinels
from blendstream.agents.local.servers import GivenServer, Stack

__all__ = [
    "GivenServer",
    "LocalCluster",
    "LocalKafka",
    "LocalRedis",
    "LocalRedisCluster",
    "LocalSentinels",
    "RedisSnapshot",
    "Stack",
    "StackError",
    "demo",
    "local_cluster",
    "local_edge",
    "local_server",
    "replicated_redis",
]
