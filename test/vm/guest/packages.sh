# Checks of the Debian package: what a person types, from the first installation to
# the last byte. Sourced by run.sh.

deb=$(ls /payload/packages/podd_*_amd64.deb 2>/dev/null)
apt() { DEBIAN_FRONTEND=noninteractive dpkg "$@" 2>&1; }
installed_version() { dpkg-query -W -f '${Version}' podd; }

# another_version VERSION: the same package with another version, as $other.
another_version() {
	other=$state/podd_$1.deb
	[ -e "$other" ] && return
	rm -rf $state/repack && dpkg-deb -R "$deb" $state/repack &&
		sed -i "s/^Version: .*/Version: $1/" $state/repack/DEBIAN/control && dpkg-deb -Znone -b $state/repack "$other" >/dev/null
}

package_installs() {
	apt -i "$deb" || return 1
	for unit in podd-runtime.service podd.service; do
		[ "$(systemctl is-enabled $unit)" = enabled ] || { echo "$unit is not enabled"; return 1; }
	done
	within 60 healthy || { systemctl --no-pager status podd.service; return 1; }
	[ "$(stat -c %a /etc/podd/config.yaml) $(stat -c %a /etc/podd/manifests)" = "600 700" ] || { ls -la /etc/podd; return 1; }
	/usr/libexec/podd/runc --version | head -n 1
	for f in /usr/share/man/man8/podd-ps.8.gz /usr/share/man/man5/podd-manifests.5.gz /usr/share/bash-completion/completions/podd; do
		[ -s $f ] || grep -q path-exclude /etc/dpkg/dpkg.cfg.d/* || { echo "no $f"; return 1; }
	done
	podd version
}

# package_runs: the first pod, as README has it.
package_runs() {
	cp /payload/busybox.tar /var/lib/podd/images/
	drop web && drop scratch && within 90 running 2 && [ -s /srv/scratch/starts ] || { podd ps; return 1; }
	within 20 answers && curl -fsS http://127.0.0.1:10255/metrics | grep '^kubelet_running_pods'
}

# over_clone: the package goes over what make install has put in place, where an earlier one
# had the runtime elsewhere.
over_clone() {
	mkdir -p /usr/lib/podd && touch /usr/lib/podd/containerd
	before=$(containers)
	apt -i "$deb" && within 60 healthy && sleep 3 && same "$before" && answers || return 1
	[ ! -e /usr/lib/podd ] || { echo "/usr/lib/podd is left"; return 1; }
	[ "$(systemctl is-enabled podd.service)" = enabled ] && installed_version
}

# upgraded VERSION: neither asks, nor ends a container, nor touches an edited configuration.
upgraded() {
	another_version "$1" || return 1
	before=$(containers)
	agent=$(property podd.service MainPID)
	apt --force-confdef --force-confold -i "$other" </dev/null && within 60 healthy && sleep 3 && same "$before" && answers || return 1
	[ "$(installed_version)" = "$1" ] && [ "$(property podd.service MainPID)" != "$agent" ] || { echo "podd was not restarted"; return 1; }
	grep -q 'maxPods: 77' /etc/podd/config.yaml || { echo "the configuration has lost its edit"; return 1; }
	installed_version
}
package_upgrades() { echo "maxPods: 77" >>/etc/podd/config.yaml; upgraded 99.0.0; }
package_downgrades() { upgraded 0.0.0~first; }

package_removed() {
	apt -r podd || return 1
	left=$(processes)
	[ -z "$left" ] || { echo "still running: $left"; return 1; }
	[ "$(namespaces) $(veths) $(leases)" = "0 0 0" ] || { echo "left: netns $(namespaces), veths $(veths), leases $(leases)"; return 1; }
	[ ! -e /usr/bin/podd ] && [ -e $manifests/web.yaml ] && [ -d /var/lib/podd/containerd ] && grep -q 'maxPods: 77' /etc/podd/config.yaml || { ls /usr/bin/podd /etc/podd /var/lib/podd; return 1; }
	for unit in podd.service podd-runtime.service; do ! active $unit || { echo "$unit runs"; return 1; }; done
	ls /var/lib/podd | tr '\n' ' '
}

reinstalled() {
	starts_then=$(wc -l </srv/scratch/starts)
	apt -i "$deb" && within 120 running 2 && within 20 answers || { podd ps; return 1; }
	[ "$(wc -l </srv/scratch/starts)" -gt "$starts_then" ] && grep 'maxPods: 77' /etc/podd/config.yaml
}

package_purged() {
	apt -P podd || return 1
	left=$(ls -d /etc/podd /var/lib/podd /run/podd /var/log/pods /var/log/containers /etc/systemd/system/*podd* \
		/etc/systemd/system/*/podd* /usr/libexec/podd /usr/share/doc/podd /usr/lib/systemd/system/podd* 2>/dev/null | grep -v podd-vm-test)
	[ -z "$left" ] || { echo "left: $left"; return 1; }
	[ -z "$(processes)" ] && [ -s /srv/scratch/starts ] && ! dpkg -s podd >/dev/null 2>&1
}

# beside_kubelet: another agent keeps the machine.
beside_kubelet() {
	cp /bin/sleep $state/kubelet && $state/kubelet 1000 &
	sleep 1
	said=$(apt -i "$deb")
	echo "$said" | grep 'neither enabled nor started: kubelet' || { echo "$said"; return 1; }
	[ "$(systemctl is-enabled podd.service)" = disabled ] && ! active podd.service || { systemctl status podd.service; return 1; }
	pkill -x kubelet
	apt -P podd >/dev/null
}

boot_packages() {
	must machine-has-systemd-and-cgroup-v2 machine
	check a-package-beside-a-kubelet-starts-nothing beside_kubelet
	must a-package-installs-and-starts package_installs
	must the-first-pod-of-a-package-runs package_runs
	check prometheus-of-debian-scrapes-podd prometheus
	check a-package-goes-over-a-clone over_clone
	check an-upgrade-ends-no-container package_upgrades
	check a-downgrade-ends-no-container package_downgrades
	check a-removed-package-ends-pods-and-leaves-data package_removed
	check a-package-over-old-data-runs-its-pods reinstalled
	check a-purged-package-leaves-nothing package_purged
	echo "done"
	systemctl poweroff
}
