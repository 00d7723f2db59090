# Checks that none of podd's waits goes by the wall clock: it is set while pods
# wait. What they do they note by the time since boot, which nobody can set.
# Sourced by run.sh.

set_clock() { date -u -s "@$(($(date +%s) + $1))" >/dev/null; }
now() { cut -d' ' -f1 /proc/uptime; }
# noted FILE: how often; since FILE UP: how often since then.
noted() { wc -l <"/srv/clock/$1" 2>/dev/null || echo 0; }
since() { awk -v up="$2" '$1 >= up' "/srv/clock/$1" | wc -l; }
since_is() { [ "$(since "$1" "$2")" -ge "$3" ]; }
noted_is() { [ "$(noted "$1")" -ge "$2" ]; }

# What goes on while the clock is set, a crash loop, starts that fail and probes, takes most of
# a processor where one is emulated: containerd, which gives its shims some seconds, would give
# them up on a slow machine. So it goes on at the machine's pace: every 4 s where slow is 2.
beat=$((2 * slow))

clock_pods() {
	mkdir -p /srv/clock
	sed "s/: 4s/: ${beat}s/g; s/periodSeconds: 5$/periodSeconds: $((beat + 1))/; s/periodSeconds: 15$/periodSeconds: $((3 * beat + 3))/; s/timeoutSeconds: 20$/timeoutSeconds: $((10 * slow))/" \
		/payload/manifests/clock.yaml >$manifests/.clock && mv $manifests/.clock $manifests/clock.yaml
	drop clockquiet
	for each in clock-probed clock-limited clock-quiet; do within 150 ready $each || { pod $each .status; return 1; }; done
	within 150 noted_is loop 3 && within 60 noted_is probe 3 && within 60 noted_is job 1 && within 60 noted_is init 1
}

# paced UP: since then the crash loop went on at its pace, no faster, and the probes at theirs.
paced() {
	within 60 since_is loop "$1" 3 || { echo "the crash loop stands still"; return 1; }
	within 60 since_is probe "$1" 3 || { echo "the probes stand still"; return 1; }
	hot=$(awk -v up="$1" -v beat="$beat" 'last && $1 >= up && $1 - last < beat - 0.5 {print $1 - last} {last = $1}' /srv/clock/loop)
	[ -z "$hot" ] || { echo "the crash loop waited $hot s only, of $beat"; return 1; }
	ready clock-probed || { pod clock-probed .status; return 1; }
	phase clock-limited "Running " || { pod clock-limited .status; return 1; }
}

# clock_back: the job and the init container fail, and their successors, which
# succeed, are older than they by the clock.
clock_back() {
	at=$(now)
	set_clock -3600
	touch /srv/clock/go
	paced "$at" || return 1
	within 60 phase clock-job "Succeeded " || { pod clock-job .status; return 1; }
	within 60 ready clock-init || { pod clock-init .status; return 1; }
	at=$(now)
	paced "$at" || return 1
	[ "$(noted job) $(noted init)" = "2 2" ] || { echo "the job has run $(noted job) times, the init container $(noted init), want 2"; return 1; }
	phase clock-job "Succeeded " && ready clock-init && echo "an hour back: crash loop, probes, job and init container as before"
}

clock_forward() {
	at=$(now)
	set_clock 7200
	paced "$at" || return 1
	[ "$(noted job) $(noted init)" = "2 2" ] && phase clock-job "Succeeded " || { pod clock-job .status; return 1; }
	echo "two hours forward: crash loop, probes and deadline as before"
}

# clock_gone: the pods end in time, whatever the clock says.
clock_gone() {
	rm $manifests/clock.yaml
	for each in loop probed limited job init broken; do within 150 gone clock-$each || { pod clock-$each .status; return 1; }; done
}

# clock_hint: what happens right after a small step back has an older time than
# the look before it.
clock_hint() {
	set_clock -3600
	before=$(noted quiet)
	podd retry clock-quiet || return 1 # which looks
	pid=$(crictl inspect "$(crictl ps --name quiet -q)" | jq .info.pid)
	podd retry clock-quiet || return 1
	set_clock -4
	kill -9 "$pid"
	within 20 noted_is quiet $((before + 1)) || { pod clock-quiet .status; return 1; }
	set_clock 4
	rm $manifests/clockquiet.yaml
	within 150 gone clock-quiet || { pod clock-quiet .status; return 1; }
}

clock() {
	check pods-wait-while-the-clock-is-right clock_pods &&
		check clock-set-back-moves-no-wait clock_back
	check clock-set-forward-moves-no-wait clock_forward
	check pods-end-after-the-clock-was-set clock_gone
	check an-exit-after-a-small-step-back-is-heard clock_hint
}

# boot_clock is that alone, for who boots the machine with podd.test=clock.
boot_clock() {
	must install-puts-files-in-place install_podd
	must runtime-unit-starts runtime_starts
	must agent-unit-starts agent_starts
	clock
	echo "done"
	systemctl poweroff
}
