# Gives a machine cgroups of its own: below $1 is what it sees as the root of each hierarchy.
# Processes enter them by /run/cgroups, and then go to the cgroup /system.
set -eu
below=$1
hierarchies=$(awk '$5 ~ "^/sys/fs/cgroup(/|$)" {
	for (i = 7; $i != "-"; i++);
	if ($(i + 1) ~ /^cgroup2?$/) print $5, $(i + 1), $(i + 3)
}' /proc/self/mountinfo)
echo "$hierarchies" | while read -r at type _; do
	if [ "$type" = cgroup2 ]; then
		for c in $(cat "$at/cgroup.controllers"); do
			echo "+$c" >"$at/cgroup.subtree_control" || true # one that is taken by v1, or not for groups of processes
		done
	fi
	mkdir -p "$at$below"
	for f in cpuset.cpus cpuset.mems; do
		[ ! -e "$at/$f" ] || cat "$at/$f" >"$at$below/$f"
	done
	[ ! -e "$at$below/cgroup.clone_children" ] || echo 1 >"$at$below/cgroup.clone_children"
	echo $$ >"$at$below/cgroup.procs"
done
# shellcheck disable=SC2016 # $1 is the inner shell's
exec unshare --cgroup sh -euc '
umount -l -R /sys/fs/cgroup # those of this machine alone: its mounts are private
case $1 in "/sys/fs/cgroup "*) ;; *) mount -t tmpfs tmpfs /sys/fs/cgroup ;; esac
echo "$1" | while read -r at type options; do
	mkdir -p "$at"
	if [ "$type" = cgroup2 ]; then
		mount -t cgroup2 cgroup2 "$at"
	else
		options=$(echo "$options" | tr , "\n" | grep -v -x -e rw -e xattr -e clone_children -e "release_agent=.*" | sed "s/^name=/none,name=/" | paste -s -d ,)
		mount -t cgroup -o "$options" cgroup "$at"
	fi
	mkdir "$at/system"
	for p in 0 $$; do # the shell of this loop, and that around it: on v2, what has children has no processes
		echo $p >"$at/system/cgroup.procs"
	done
	if [ "$type" = cgroup2 ]; then
		for c in $(cat "$at/cgroup.controllers"); do
			echo "+$c" >"$at/cgroup.subtree_control"
		done
	fi
done
: >/run/cgroups
mount --bind /proc/self/ns/cgroup /run/cgroups
' sh "$hierarchies"
