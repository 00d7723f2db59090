# Checks of a shutdown of the machine: pods end in order, within their grace, and
# run again; what had completed stays so. Sourced by run.sh.

login1() { busctl "$1" org.freedesktop.login1 /org/freedesktop/login1 org.freedesktop.login1.Manager "$2" ${3:+"$3" "$4"}; }
inhibits() {
	systemd-inhibit --list --no-pager --no-legend | grep '^podd ' | grep shutdown | grep -q delay &&
		[ "$(login1 get-property InhibitDelayMaxUSec)" = "t 310000000" ]
}
logged() { journalctl --no-pager -q -b -u podd.service | grep -q "$1"; }
runs_again() { said_is "$1" "$starts $ends $starts"; }

# called_off: logind says that the machine goes down, and, since systemd refuses to begin with
# that, that it does not. Debian's unattended-upgrades limits logind with a file of this name.
called_off() {
	mkdir -p /etc/systemd/logind.conf.d /run/systemd/system/reboot.target.d
	printf '[Login]\nInhibitDelayMaxSec=30\n' >/etc/systemd/logind.conf.d/unattended-upgrades-logind-maxdelay.conf
	printf '[Unit]\nRefuseManualStart=yes\n' >/run/systemd/system/reboot.target.d/refuse.conf
	systemctl daemon-reload
	cp /etc/podd/config.yaml $state/config.yaml
	printf 'shutdownGracePeriod: 310s\nshutdownGracePeriodCriticalPods: 10s\n' >>/etc/podd/config.yaml
	before=$(said | wc -w)
	begun=$((before - $(echo "$starts" | wc -w)))
	systemctl restart podd.service && within 60 inhibits || { systemd-inhibit --list --no-pager; login1 get-property InhibitDelayMaxUSec; return 1; }
	login1 call Reboot b false || return 1
	within 150 logged 'called off: pods start again' || return 1
	rm -r /run/systemd/system/reboot.target.d
	systemctl daemon-reload
	within 120 runs_again $begun || { echo "it said $(said $begun)"; return 1; }
	within 120 ready shop && within 20 inhibits || return 1
	stay_ended || return 1
	podd events | grep -c 'Shutdown manager detected shutdown'
	cp $state/config.yaml /etc/podd/config.yaml
	rm /etc/systemd/logind.conf.d/*
	systemctl kill -s HUP systemd-logind.service
	systemctl restart podd.service && within 60 healthy
}

job_runs() { drop job && within 60 runs job job; }

# reboot_order: the shutdown before this boot ended shop as the removal of its manifest does.
reboot_order() {
	last=$(grep "^$(cat $state/boot)" /srv/shop/order | cut -d' ' -f2 | tail -n "$(echo "$starts $ends" | wc -w)" | tr '\n' ' ')
	[ "$last" = "$starts $ends " ] || { echo "it said $last"; return 1; }
	journalctl --no-pager -q -b -1 -u podd.service | grep 'all pods have ended' || { journalctl --no-pager -q -b -1 -n 20 -u podd.service; return 1; }
}

# job_again: that it said that it had succeeded was the shutdown's doing.
job_again() {
	within 120 runs job job || { pod job .status; return 1; }
	boot=$(head -c 8 /proc/sys/kernel/random/boot_id) last=$(cat $state/boot)
	[ "$(cat /srv/ended/job)" = "$(printf '%s began\n%s ended\n%s began' "$last" "$last" "$boot")" ] || { cat /srv/ended/job; return 1; }
	cat /var/log/pods/default_job-podd-vm_*/job/*.log >$state/job.log
	grep -q "began in boot $last" $state/job.log && grep -q "began in boot $boot" $state/job.log || { cat $state/job.log; return 1; }
	rm $manifests/job.yaml /srv/ended/job
	within 150 gone job
}
