#!/bin/sh
# Ends every pod of podd's on this machine in good order, then the runtime, and
# removes the network and the cgroups that they used. Manifests and data stay:
# podd runs once more, with an empty manifest directory, and ends what no
# manifest names. Used by `make uninstall`, under systemd only.
set -u
podd=${1:-/usr/bin/podd}
lib=${2:-/usr/libexec/podd}
config=${3:-/etc/podd/config.yaml}

# pods prints the sandboxes that there are; it fails where that cannot be known.
pods() {
	"$lib/crictl" --config=/dev/null --runtime-endpoint unix:///run/podd/containerd.sock --timeout 30s pods -q
}

# end_pods waits up to two minutes for podd to end them, each with its grace. What
# it writes lies in a directory that only root can enter: a name beside it could be
# somebody's link to any file.
end_pods() {
	left=$(pods) || return 1
	[ -n "$left" ] || return 0
	own=$(mktemp -d) && mkdir "$own/empty" || return 1
	"$podd" run --config="$config" --pod-manifest-path="$own/empty" >"$own/log" 2>&1 &
	agent=$!
	for _ in $(seq 120); do
		runs=yes; kill -0 "$agent" 2>/dev/null || runs= # before the look: it may end the last pod and exit
		left=$(pods) && [ -z "$left" ] && break
		[ -n "$runs" ] || break
		sleep 1
	done
	kill "$agent" 2>/dev/null
	wait "$agent" 2>/dev/null
	if [ -n "$left" ]; then
		echo "these pods did not end; look at them with $lib/crictl --runtime-endpoint unix:///run/podd/containerd.sock pods:" >&2
		echo "$left" >&2
		tail -n 5 "$own/log" >&2
	fi
	rm -r "$own"
	[ -z "$left" ]
}

systemctl stop podd.service
if systemctl start podd-runtime.service; then
	end_pods || exit 1
fi
systemctl stop podd-runtime.service
"$podd" runtime stop
