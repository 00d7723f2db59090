# Checks of a pod's life: in what order its containers start and end, what a
# restart of podd and a reboot do to it. Sourced by run.sh.

# said: what the containers of shop have said in this boot, and since forgotten.
said() { grep "^$(head -c 8 /proc/sys/kernel/random/boot_id)" /srv/shop/order | cut -d' ' -f2 | tail -n +$((${1:-0} + 1)) | tr '\n' ' '; }
said_is() { [ "$(said "$1")" = "$2 " ]; }
starts="first log log-hooked second net main"
ends="main-hooked main-ends net-ends log-ends"

shop_starts() {
	within 180 ready shop || { pod shop .status; return 1; }
	said_is 0 "$starts" || { echo "it said $(said)"; return 1; }
	said
}
# gone: podd and the runtime have answered, and neither has it.
gone() {
	listed=$(pod "$1" .metadata.name) && boxes=$(crictl pods --name "^$1" -q) && [ -z "$listed$boxes" ]
}
shop_ends() {
	rm $manifests/shop.yaml
	within 150 gone shop || { pod shop .status; return 1; }
	said_is 0 "$starts $ends"
	as_wanted=$?
	spoken=$(said)
	rm /srv/shop/order
	drop shop # what comes next has it
	[ $as_wanted = 0 ] || { echo "it said $spoken"; return 1; }
	echo "$ends"
}

# transition POD: when its Ready changed last, in seconds.
transition() { date -d "$(pod "$1" '.status.conditions[] | select(.type == "Ready") | .lastTransitionTime')" +%s; }
# look asks podd once whether shop and unready are ready; it fails where podd gives
# no answer about both, as it does until it is up and has looked.
look() {
	answer=$(api 2>/dev/null) || return 1
	seen=$(printf "%s\n" "$answer" | jq -r '.items[] | select(.metadata.name == "shop-podd-vm" or .metadata.name == "unready-podd-vm") |
		"\(.metadata.name) \(.status.conditions[]? | select(.type == "Ready") | .status)"' | sort | tr '\n' ' ')
	[ "$(echo "$seen" | wc -w)" = 4 ]
}
readiness() {
	within 150 ready shop && within 150 runs unready unready || return 1
	same_before=$(containers)
	spoken=$(said)
	systemctl stop podd.service && sleep 2 || return 1
	stopped=$(date +%s)
	[ "$(said)" = "$spoken" ] && same "$same_before" || { echo "a stop of podd ended something: $(said)"; return 1; }
	systemctl start --no-block podd.service
	looks=0
	uptime
	until=$((up + 12 * slow))
	while [ "$up" -lt $until ]; do
		uptime
		look || { sleep 0.1; continue; } # no answer says nothing
		[ "$seen" = "shop-podd-vm True unready-podd-vm False " ] || { echo "after $looks looks: $seen"; return 1; }
		looks=$((looks + 1))
	done
	[ $looks -ge 3 ] || { echo "podd answered $looks times only"; return 1; }
	same "$same_before" || return 1
	for each in shop unready; do
		[ "$(transition $each)" -lt "$stopped" ] || { echo "Ready of $each changed with the restart"; return 1; }
	done
	rm $manifests/unready.yaml
	within 150 gone unready || return 1
	echo "$looks looks"
}

# journal_knows: podd's lines about a pod are found by its name in the manifest, and by its own.
journal_knows() {
	for each in shop shop-podd-vm; do
		journalctl --no-pager -q -b -u podd.service PODD_POD=$each PODD_NAMESPACE=default -o json >$state/journal || return 1
		grep -q '"PODD_POD":\["shop-podd-vm","shop"\]' $state/journal || { journalctl -q -b -n 3 -u podd.service -o json; return 1; }
	done
	jq -r .MESSAGE <$state/journal | grep -v '^level=' && { echo "a line is not podd's"; return 1; }
	[ -z "$(journalctl --no-pager -q -b -u podd.service PODD_POD=sho)" ] && wc -l <$state/journal
}

# events_kept: those of a pod's start are the same after restarts and reboots.
events_of() { podd events "$1" -o json | jq -r '.items[] | select(.reason == "Started") | "\(.involvedObject.fieldPath) \(.firstTimestamp) \(.metadata.name)"' | sort; }
remember_events() { events_of shop >$state/events && [ "$(wc -l <$state/events)" -ge 4 ] || { podd events shop; return 1; }; }
events_kept() {
	events_of shop >$state/events.now && [ -s $state/events ] || return 1
	gone=$(comm -23 $state/events $state/events.now)
	[ -z "$gone" ] || { echo "podd events has no more: $gone"; return 1; }
	podd events shop --since=$((up + 60))s | tail -n +2 | wc -l
}

# before_reboot: a pod that waits five minutes for its next try, two that ended.
crashed() { waits crash crash '^CrashLoopBackOff: .*5m0s'; }
phase() { [ "$(pod "$1" '"\(.status.phase) \(.status.reason // "")"')" = "$2" ]; }
before_reboot() {
	drop crash
	within 150 phase late "Failed DeadlineExceeded" && within 20 phase once "Succeeded " && within 150 crashed
}

seconds() { date -d "$(container "$1" "$2" .state.running.startedAt)" +%s; }
after_reboot() {
	within 150 runs crash crash || { pod crash .status; return 1; }
	waited=$(($(seconds crash crash) - $(seconds scratch scratch)))
	# Of the five minutes that it would be held back.
	[ $waited -lt $((15 * slow)) ] || { echo "it was started $waited s after its neighbour"; return 1; }
	echo "started ${waited}s after its neighbour"
}
init_again() {
	within 150 ready shop || { pod shop .status; return 1; }
	said_is 0 "$starts" || { echo "it said $(said)"; return 1; }
	said
}
stay_ended() {
	phase late "Failed DeadlineExceeded" && phase once "Succeeded " || { pod late .status; pod once .status; return 1; }
	[ "$(cat /srv/ended/late /srv/ended/once | wc -l)" = 2 ] || { echo "started again: late $(wc -l </srv/ended/late), once $(wc -l </srv/ended/once)"; return 1; }
}
