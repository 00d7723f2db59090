# Checks of a database (examples/postgres.yaml, PostgreSQL out of Debian's packages) over
# reboots of every kind, with writes going on: it is shut down each time, recovers
# nothing at the next start, and loses nothing that was committed. Sourced by run.sh.

pgready() { ready postgres; }
psql() { podd exec postgres -c postgres -- psql -qtA -U postgres -c "$1"; }
database_runs() {
	# The disk of the machine is small: without thresholds of disks, no image is removed from it.
	grep -q nodefs /etc/podd/config.yaml || echo "evictionHard: {memory.available: 50Mi}" >>/etc/podd/config.yaml
	cp /payload/postgres.tar /var/lib/podd/images/ && cp /payload/postgres.yaml $manifests/ || return 1
	systemctl restart podd.service
	within 300 pgready || { podd ps postgres; podd logs postgres --all-containers | tail -n 5; return 1; }
	psql 'CREATE TABLE IF NOT EXISTS t (n int PRIMARY KEY)' && podd ps postgres
}

# write goes on until the database ends: a line of /srv/committed is a number that was committed.
write() {
	first=$(($(wc -l </srv/committed 2>/dev/null || echo 0) + 1))
	podd exec postgres -c postgres -- sh -c "i=$first; while :; do echo \"INSERT INTO t VALUES (\$i) RETURNING n;\"; i=\$((i + 1)); sleep 0.02; done | psql -qtA -U postgres" >>/srv/committed 2>/dev/null &
	sleep 10
	committed=$(wc -l </srv/committed)
	[ "$committed" -gt "$first" ] || { echo "nothing is written"; return 1; }
	echo "$committed rows so far"
}

pglog() { cat "$(ls -d /var/log/pods/default_postgres-podd-vm_*/postgres/*.log | sort -V | tail -n "$1" | head -n 1)"; }
# intact: all of it is there, and the database had not to recover anything.
intact() {
	within 300 pgready || { podd ps postgres; podd logs postgres | tail -n 5; return 1; }
	pglog 2 | tail -n 1 | grep -q 'database system is shut down' || { echo "it was not shut down: $(pglog 2 | tail -n 3)"; return 1; }
	pglog 1 | grep -q 'database system was shut down at' || { ls -l /var/log/pods/default_postgres-podd-vm_*/postgres/; pglog 2 | tail -n 6; pglog 1 | head -n 8 | tail -n 4; journalctl --no-pager -q -b -1 -n 14 -u podd.service -o short-precise | cut -c1-200; return 1; }
	! pglog 1 | grep -E 'not properly shut down|redo starts|automatic recovery' || return 1
	last=$(tail -n 1 /srv/committed)
	[ "$(psql 'SELECT count(*) = max(n), max(n) >= '"$last"' FROM t')" = "t|t" ] || { echo "committed $last; it has $(psql 'SELECT count(*), max(n) FROM t')"; return 1; }
	echo "$last rows were committed, and are there"
}

boot_database() {
	must machine-has-systemd-and-cgroup-v2 machine
	must install-puts-files-in-place install_podd
	must runtime-unit-starts runtime_starts
	must agent-unit-starts agent_starts
	must a-database-runs database_runs
	check it-is-written-to-before-reboot write
	next database_rebooted
	systemctl reboot
}
boot_database_rebooted() {
	verbose=40
	must nothing-is-lost-by-reboot intact
	check it-is-written-to-before-ctrl-alt-del write
	next database_interrupted
	kill -INT 1
}
boot_database_interrupted() {
	must nothing-is-lost-by-ctrl-alt-del intact
	check it-is-written-to-before-a-reboot-without-d-bus write
	next database_without_bus
	systemctl stop dbus.socket
	systemctl kill -s KILL dbus.service
	systemctl reboot
}
boot_database_without_bus() {
	must nothing-is-lost-by-a-reboot-without-d-bus intact
	echo "done"
	systemctl poweroff
}
