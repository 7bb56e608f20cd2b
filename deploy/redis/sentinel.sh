#!/bin/sh
# One of three Sentinels. They watch the primary under the name blendstream, and two of them can replace it.
#
#   SENTINEL_HOST  this Sentinel's name, as the others and clients resolve it
#   FIRST_PRIMARY  "host:port" of the primary at the first start
#   SENTINEL_PORT, DATA_DIR, SILENCE_MS   26379, /data and 5000 unless given
#
# What a Sentinel learns it writes to its own settings file: the folder must be kept.
# A primary is replaced when it was silent for SILENCE_MS.
set -eu
port=${SENTINEL_PORT:-26379}
folder=${DATA_DIR:-/data}
file=$folder/sentinel.conf
mkdir -p "$folder"
if [ ! -s "$file" ]; then
  cat > "$file" <<SETTINGS
port $port
dir $folder
sentinel resolve-hostnames yes
sentinel announce-hostnames yes
sentinel announce-ip $SENTINEL_HOST
sentinel announce-port $port
sentinel monitor blendstream ${FIRST_PRIMARY%:*} ${FIRST_PRIMARY##*:} 2
sentinel down-after-milliseconds blendstream ${SILENCE_MS:-5000}
sentinel failover-timeout blendstream 15000
SETTINGS
fi
exec valkey-server "$file" --sentinel
