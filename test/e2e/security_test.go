package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// self is a script that writes to /out/$N what its process may do.
const self = `{ grep -E '^(Uid|Gid|Groups|CapEff|CapBnd|NoNewPrivs|Seccomp):' /proc/self/status | tr '\t' ' ';
echo "uidmap:" $(cat /proc/self/uid_map);
touch /file 2>/dev/null && echo "root: writable" || echo "root: read-only";
mkdir /tmp/dir 2>/dev/null && echo "mkdir: yes" || echo "mkdir: no";
chmod 700 /tmp/dir 2>/dev/null;
echo "scratch: $(stat -c '%a %u:%g' /scratch 2>/dev/null)";
echo "ports:" $(cat /proc/sys/net/ipv4/ip_unprivileged_port_start) "shm:" $(cat /proc/sys/kernel/shm_rmid_forced);
echo 1 2>/dev/null > /proc/sys/net/ipv4/ip_unprivileged_port_start && echo "sysctl: writable" || echo "sysctl: read-only";
[ "$(wc -c < /proc/timer_list 2>/dev/null)" = 0 ] && echo "timer_list: masked" || echo "timer_list: open";
echo "host: $(hostname)";
echo "alias: $(grep alias.test /etc/hosts)";
echo "resolv: $(tr '\n' ';' < /etc/resolv.conf)";
} > /out/$N.tmp 2>/dev/null; mv /out/$N.tmp /out/$N; ${REST}`

// selfScript is self as a part of a YAML string in double quotes.
func (e *env) selfScript() string {
	return strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", " ").Replace(e.vars().Replace(self))
}

// facts are the lines that a container wrote about itself, by the word before
// the colon.
func (e *env) facts(name string) map[string]string {
	e.Helper()
	e.mark(name)
	all := map[string]string{}
	for line := range strings.Lines(e.contents(name)) {
		word, rest, _ := strings.Cut(line, ":")
		all[word] = strings.Join(strings.Fields(rest), " ")
	}
	return all
}

func (e *env) expect(container string, got map[string]string, want map[string]string) {
	e.Helper()
	for word, value := range want {
		if got[word] != value {
			e.Errorf("%s: %s: got %q, want %q", container, word, got[word], value)
		}
	}
}

// worldWritable lets containers with any user leave their marks.
func (e *env) worldWritable() {
	e.Helper()
	if err := os.Chmod(e.out, 0o777); err != nil {
		e.Fatal(err)
	}
}

// TestContainersMayWhatTheirSecurityContextSays: users and groups,
// capabilities, seccomp profiles, sysctls, what is read-only and masked,
// hostname, hosts and resolver, in one pod.
func TestContainersMayWhatTheirSecurityContextSays(t *testing.T) {
	e := begin(t)
	e.worldWritable()
	profile := filepath.Join(e.node.Root(), "seccomp/test/no-mkdir.json")
	if err := os.MkdirAll(filepath.Dir(profile), 0o755); err != nil {
		t.Fatal(err)
	}
	const noMkdir = `{"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [{"names": ["mkdir", "mkdirat"], "action": "SCMP_ACT_ERRNO"}]}`
	if err := os.WriteFile(profile, []byte(noMkdir), 0o644); err != nil {
		t.Fatal(err)
	}
	e.apply("security.yaml", "${SELF}", e.selfScript())
	e.expect("plain", e.facts("plain"), map[string]string{
		"Uid": "1000 1000 1000 1000", "Gid": "2000 2000 2000 2000", "Groups": "2000 3000 4000",
		"CapEff": "0000000000000000", "NoNewPrivs": "0", "Seccomp": "2", "root": "read-only", "uidmap": "0 0 4294967295",
		"scratch": "2777 0:3000", "ports": "81 shm: 1", "sysctl": "read-only", "timer_list": "masked",
		"host": "named", "alias": "192.0.2.8 alias.test other.test",
		"resolv": "search search.test;nameserver 192.0.2.53;options ndots:3;",
	})
	e.expect("bound", e.facts("bound"), map[string]string{
		"Uid": "0 0 0 0", "Groups": "0 3000 4000", "CapEff": "0000000000000400", "CapBnd": "0000000000000400",
		"NoNewPrivs": "1", "Seccomp": "2", "root": "read-only", "mkdir": "no",
	})
	free := e.facts("free")
	e.expect("free", free, map[string]string{"Uid": "0 0 0 0", "Gid": "2000 2000 2000 2000", "Seccomp": "0", "NoNewPrivs": "0", "root": "writable", "mkdir": "yes"})
	if has(t, free, unix.CAP_NET_ADMIN) != true || has(t, free, unix.CAP_SYS_ADMIN) != false {
		t.Errorf("free: got capabilities %s, want NET_ADMIN and not SYS_ADMIN", free["CapEff"])
	}
	e.expect("profile", e.facts("profile"), map[string]string{"Seccomp": "2", "root": "writable", "mkdir": "no"})
	privileged := e.facts("privileged")
	e.expect("privileged", privileged, map[string]string{"Seccomp": "0", "root": "writable", "timer_list": "open", "sysctl": "writable"})
	if !has(t, privileged, unix.CAP_SYS_ADMIN) {
		t.Errorf("privileged: got capabilities %s, want SYS_ADMIN too", privileged["CapEff"])
	}
	e.ready("security")
}

// TestASysctlInSlashNotationIsSet, and not left to chance where the runtime has
// a default for it: it knows the notation with dots only. Of both notations the
// later holds.
func TestASysctlInSlashNotationIsSet(t *testing.T) {
	e := begin(t)
	for i := range 6 { // the runtime's own default won in every other pod
		name := fmt.Sprintf("slash-%d", i)
		e.write(name+".yaml", e.podOf(name,
			"cat /proc/sys/net/ipv4/ip_unprivileged_port_start /proc/sys/net/ipv4/tcp_fin_timeout > /out/"+name+".tmp; mv /out/"+name+".tmp /out/"+name+"; ${REST}",
			"securityContext:", "  sysctls:", `  - {name: net/ipv4/ip_unprivileged_port_start, value: "81"}`,
			`  - {name: net.ipv4.tcp_fin_timeout, value: "31"}`, `  - {name: net/ipv4/tcp_fin_timeout, value: "32"}`))
	}
	for i := range 6 {
		name := fmt.Sprintf("slash-%d", i)
		e.mark(name)
		if got := strings.Fields(e.contents(name)); !slices.Equal(got, []string{"81", "32"}) {
			t.Errorf("%s: got %v, want 81 and 32", name, got)
		}
	}
}

// has says whether a container's process has a capability.
func has(t *testing.T, facts map[string]string, capability int) bool {
	t.Helper()
	mask, err := strconv.ParseUint(facts["CapEff"], 16, 64)
	if err != nil {
		t.Fatal(err)
	}
	return mask&(1<<capability) != 0
}

// needUserNamespaces skips where runtime or kernel cannot map a pod's IDs.
func (e *env) needUserNamespaces() {
	e.Helper()
	if !e.hasUserNamespaces() {
		e.Skip("the container runtime says that it cannot make user namespaces on this kernel")
	}
}

func (e *env) hasUserNamespaces() bool {
	e.Helper()
	r, err := e.node.CRI.Runtime.Status(e.Context(), &runtimeapi.StatusRequest{})
	if err != nil {
		e.Fatal(err)
	}
	for _, h := range r.RuntimeHandlers {
		if h.Name == "" && h.Features.GetUserNamespaces() {
			return true
		}
	}
	return false
}

// TestRootInAPodWithAUserNamespaceIsNobodyOutside: each pod with hostUsers: false
// gets a range of its own and keeps it over a restart of podd and a new sandbox,
// what it writes to a volume has the IDs that it has inside, and a pod that went
// gives its range back.
func TestRootInAPodWithAUserNamespaceIsNobodyOutside(t *testing.T) {
	e := begin(t)
	e.needUserNamespaces()
	e.worldWritable()
	script := func(name string) string {
		return "echo \"uidmap:\" $(cat /proc/self/uid_map) > /out/NAME.tmp; echo \"gidmap:\" $(cat /proc/self/gid_map) >> /out/NAME.tmp; echo \"owner: $(stat -c %u:%g /out/NAME.tmp)\" >> /out/NAME.tmp;" +
			"echo mine > /scratch/file && echo \"scratch: $(stat -c %u:%g /scratch/file)\" >> /out/NAME.tmp;" +
			"mount -t tmpfs none /mnt 2>/dev/null && echo 'mount: yes' >> /out/NAME.tmp || echo 'mount: no' >> /out/NAME.tmp;" +
			"mv /out/NAME.tmp /out/NAME-$(ls /out | grep -c '^NAME-'); ${REST}"
	}
	write := func(name string) {
		text := e.podOf(name, replacedAll(e, script(name), "NAME", name), "hostUsers: false")
		text = replaced(e, text, "mountPath: /out}]", "mountPath: /out}, {name: scratch, mountPath: /scratch}]")
		e.write(name+".yaml", text+"  - {name: scratch, emptyDir: {}}\n")
	}
	write("one")
	write("two")
	one, two := e.facts("one-0"), e.facts("two-0")
	for name, got := range map[string]map[string]string{"one": one, "two": two} {
		e.expect(name, got, map[string]string{"gidmap": got["uidmap"], "owner": "0:0", "scratch": "0:0", "mount": "no"})
		first, length := mapping(t, got["uidmap"])
		if first < 1<<16 || first%(1<<16) != 0 || length != 1<<16 {
			t.Errorf("%s: got the range %d of %d", name, first, length)
		}
		if uid := e.uidOutside(e.ready(name)); uid != first {
			t.Errorf("%s: its root is %d on the node, want %d", name, uid, first)
		}
	}
	if one["uidmap"] == two["uidmap"] {
		t.Errorf("both pods have %s", one["uidmap"])
	}
	e.stop()
	e.start()
	write("three")
	three := e.facts("three-0")
	if three["uidmap"] == one["uidmap"] || three["uidmap"] == two["uidmap"] {
		t.Errorf("after a restart of podd: the third pod has %s, which is taken", three["uidmap"])
	}
	e.endSandbox("one")
	if again := e.facts("one-1"); again["uidmap"] != one["uidmap"] {
		t.Errorf("in its second sandbox the pod has %s, want %s as before", again["uidmap"], one["uidmap"])
	}
}

// TestThePauseProcessMayDoLittle: its seccomp profile is podd's own, and enough for pods with
// a process namespace, users or a network of one kind or another. A sandbox with a
// privileged container has none, as with the kubelet.
func TestThePauseProcessMayDoLittle(t *testing.T) {
	e := begin(t)
	pods := map[string][]string{
		"plain": nil, "host": {"hostNetwork: true"},
		"users": {"hostUsers: false"}, "user": {"securityContext: {runAsUser: 1000, runAsGroup: 1000, supplementalGroups: [7]}"},
	}
	for name, spec := range pods {
		e.write(name+".yaml", e.podOf(name, "${REST}", spec...))
	}
	const orphan = "(sh -c 'sleep 0.1 & exit 0'); sleep 0.5; ps > /out/shared.tmp; mv /out/shared.tmp /out/shared; ${REST}"
	e.write("shared.yaml", e.podOf("shared", orphan, "shareProcessNamespace: true"))
	pods["shared"] = nil
	e.write("privileged.yaml", replaced(e, e.resting("privileged"), "name: main", "name: main\n    securityContext: {privileged: true}"))
	for name := range pods {
		e.ready(name)
		info := e.pauseOf(name)
		allowed := 0
		for _, s := range info.RuntimeSpec.Linux.Seccomp.Syscalls {
			allowed += len(s.Names)
		}
		if s := e.status(info.Pid, "Seccomp"); s != "2" || allowed == 0 || allowed > 80 {
			t.Errorf("%s: the pause process is in mode %s with %d system calls, want a filter (2) with 80 at most", name, s, allowed)
		}
	}
	e.mark("shared")
	if left := e.contents("shared"); !strings.Contains(left, "/pause") || strings.Contains(left, "[sleep]") || strings.Contains(left, "{sleep}") {
		t.Errorf("in the shared process namespace, where the pause process takes in orphans:\n%s", left)
	}
	e.ready("privileged")
	if s := e.status(e.pauseOf("privileged").Pid, "Seccomp"); s != "0" {
		t.Errorf("of a privileged pod: the pause process is in mode %s, want none (0)", s)
	}
}

// pause is what the runtime reports of a sandbox's own process.
type pause struct {
	Pid         int
	RuntimeSpec struct {
		Linux struct {
			Seccomp struct{ Syscalls []struct{ Names []string } }
		}
	}
}

// pauseOf is that of a pod that runs, found by the name in its manifest.
func (e *env) pauseOf(name string) (info pause) {
	e.Helper()
	boxes, err := e.node.CRI.Sandboxes(e.Context())
	if err != nil {
		e.Fatal(err)
	}
	for _, box := range boxes {
		if box.Metadata.Name != name+"-"+e.podd.NodeName() {
			continue
		}
		r, err := e.node.CRI.Runtime.PodSandboxStatus(e.Context(), &runtimeapi.PodSandboxStatusRequest{PodSandboxId: box.Id, Verbose: true})
		if err == nil {
			err = json.Unmarshal([]byte(r.Info["info"]), &info)
		}
		if err != nil || info.Pid == 0 {
			e.Fatalf("the runtime does not report the process of %s: %v", name, err)
		}
	}
	return info
}

// status is a line of the kernel's about a process.
func (e *env) status(pid int, key string) string {
	e.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		e.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, key+":"); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// mapping reads "0 FIRST LENGTH".
func mapping(t *testing.T, text string) (first, length int) {
	t.Helper()
	var zero int
	if _, err := fmt.Sscan(text, &zero, &first, &length); err != nil || zero != 0 {
		t.Fatalf("%q is no mapping: %v", text, err)
	}
	return first, length
}

// uidOutside is the user, on the node, of the first process of the pod's first
// container.
func (e *env) uidOutside(p *v1.Pod) int {
	e.Helper()
	r, err := e.node.CRI.Runtime.ContainerStatus(e.Context(), &runtimeapi.ContainerStatusRequest{
		ContainerId: containerID(p, p.Spec.Containers[0].Name), Verbose: true,
	})
	if err != nil {
		e.Fatal(err)
	}
	var info struct{ Pid int }
	if err := json.Unmarshal([]byte(r.Info["info"]), &info); err != nil || info.Pid == 0 {
		e.Fatalf("the runtime does not tell a process: %v: %s", err, r.Info["info"])
	}
	status, err := os.Stat(fmt.Sprintf("/proc/%d", info.Pid))
	if err != nil {
		e.Fatal(err)
	}
	return int(status.Sys().(*syscall.Stat_t).Uid)
}

// endSandbox stops the sandbox of a pod, found by the name in its manifest, as
// if it had died.
func (e *env) endSandbox(name string) {
	e.Helper()
	boxes, err := e.node.CRI.Sandboxes(e.Context())
	if err != nil {
		e.Fatal(err)
	}
	for _, box := range boxes {
		if box.Metadata.Name == name+"-"+e.podd.NodeName() {
			if _, err := e.node.CRI.Runtime.StopPodSandbox(e.Context(), &runtimeapi.StopPodSandboxRequest{PodSandboxId: box.Id}); err != nil {
				e.Fatal(err)
			}
		}
	}
}
