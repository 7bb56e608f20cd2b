#!/bin/sh
# One Valkey node behind Sentinel: the primary, or a replica of the one that the Sentinels name.
#
#   NODE_HOST      this node's name, as Sentinels and clients resolve it
#   FIRST_PRIMARY  the node that is the primary when no Sentinel knows better: at the first start
#   SENTINELS      "host:port host:port host:port"
#   NODE_PORT, DATA_DIR   6379 and /data unless given
#
# Replication is asynchronous: a replica that takes over may lack the newest counts. Workers notice by the offset that
# is stored with them and count these again from Kafka. So min-replicas-to-write stays off: it would stop counting
# whenever the replica is away, and protect nothing that is not protected.
set -eu
port=${NODE_PORT:-6379}

# Host and port of the primary, as the first Sentinel that answers says; nothing if none does.
primary() {
  for sentinel in $SENTINELS; do
    # shellcheck disable=SC2046  # two lines: host and port
    set -- $(timeout 2 valkey-cli -h "${sentinel%:*}" -p "${sentinel##*:}" --raw \
      sentinel get-master-addr-by-name blendstream 2>/dev/null)
    if [ $# -eq 2 ]; then
      echo "$1:$2"
      return
    fi
  done
}

primary=$(primary)
primary=${primary:-$FIRST_PRIMARY}
set --
# Named itself, it was restarted before it was replaced, or this is the first start: it is the primary.
if [ "$primary" != "$NODE_HOST:$port" ]; then
  set -- --replicaof "${primary%:*}" "${primary##*:}"
fi
exec valkey-server --port "$port" --dir "${DATA_DIR:-/data}" --appendonly yes --appendfsync everysec \
  --maxmemory-policy noeviction --hash-max-listpack-entries 64 \
  --replica-announce-ip "$NODE_HOST" --replica-announce-port "$port" "$@"
