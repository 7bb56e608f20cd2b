#!/bin/sh
# Runs nginx in the foreground of a container, and reloads it when the certificate changes: Kubernetes and compose
# replace the file under a running process. SIGTERM or SIGQUIT lets requests in flight end.
# usage: serve.sh CONFIGURATION CERTIFICATE
set -eu
folder=${EDGE_FOLDER:-/run/blendstream-edge}
nginx -e stderr -c "$1" -g "daemon off; pid $folder/nginx.pid;" &
nginx=$!
trap 'kill -QUIT "$nginx"' TERM QUIT INT

loaded=$(cksum <"$2")
while sleep "${CHECK_S:-60}"; do
    # While the file is being replaced there may be none.
    found=$(cksum <"$2" 2>/dev/null) || continue
    [ "$found" = "$loaded" ] || kill -HUP "$nginx" || exit
    loaded=$found
done &
watching=$!

# A signal ends `wait` before nginx has ended.
status=0
while kill -0 "$nginx" 2>/dev/null; do
    wait "$nginx" && status=0 || status=$?
done
kill "$watching" 2>/dev/null || true
exit "$status"
