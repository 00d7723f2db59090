#!/bin/sh
# Ends every pod of podd's on this machine in good order and leaves manifests and
# data where they are: podd runs once more, with an empty manifest directory, and
# removes what no manifest names. Used by `make uninstall`.
set -u
podd=${1:-/usr/bin/podd}
lib=${2:-/usr/lib/podd}
config=${3:-/etc/podd/config.yaml}
socket=unix:///run/podd/containerd.sock

pods() {
	"$lib/crictl" --runtime-endpoint "$socket" --timeout 30s pods -q
}

systemctl stop podd.service
systemctl start podd-runtime.service || exit 0 # no runtime, no pods
[ -n "$(pods)" ] || exit 0

empty=$(mktemp -d)
trap 'kill "$agent" 2>/dev/null; wait "$agent" 2>/dev/null; rmdir "$empty"' EXIT
"$podd" run --config="$config" --pod-manifest-path="$empty" >/dev/null 2>&1 &
agent=$!
for _ in $(seq 120); do
	[ -n "$(pods)" ] || exit 0
	kill -0 "$agent" 2>/dev/null || break
	sleep 1
done
echo "these pod sandboxes did not end in two minutes; look at them with $lib/crictl --runtime-endpoint $socket pods:" >&2
pods >&2
exit 1
