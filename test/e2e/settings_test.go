package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
)

// TestTheNodesSettingsReachItsPods: what a KubeletConfiguration says of quotas,
// seccomp, sysctls, reserved resources and back-off is seen in containers.
func TestTheNodesSettingsReachItsPods(t *testing.T) {
	e := prepare(t)
	e.podd.Config["cpuCFSQuotaPeriod"] = "50ms"
	e.podd.Config["seccompDefault"] = true
	e.podd.Config["allowedUnsafeSysctls"] = []string{"kernel.msg*"}
	e.podd.Config["systemReserved"] = map[string]string{"memory": "200Mi"}
	e.podd.Config["kubeReserved"] = map[string]string{"memory": "100Mi"}
	e.podd.Config["evictionHard"] = map[string]string{"memory.available": "50Mi"}
	e.podd.Config["crashLoopBackOff"] = map[string]string{"maxContainerRestartPeriod": "2s"}
	e.podd.Config["podsPerCore"] = 40
	e.start()
	e.write("limited.yaml", withResources(e.podOf("limited", "{ grep ^Seccomp: /proc/self/status; echo msgmax: $(cat /proc/sys/kernel/msgmax); } > /out/limited.tmp; mv /out/limited.tmp /out/limited; ${REST}",
		`securityContext: {sysctls: [{name: kernel.msgmax, value: "12345"}]}`), "{limits: {cpu: 500m, memory: 32Mi}}"))
	e.expect("limited", e.facts("limited"), map[string]string{"Seccomp": "2", "msgmax": "12345"})
	c, p := e.cgroups(), e.ready("limited")
	of := func(p *v1.Pod) string { return filepath.Join("pod"+string(p.UID), containerID(p, "main")) }
	c.want(of(p), "cpu.cfs_period_us", "cpu.max", "50000", "25000 50000")
	c.want(of(p), "cpu.cfs_quota_us", "cpu.max", "25000", "25000 50000")
	c.want("pod"+string(p.UID), "cpu.cfs_quota_us", "cpu.max", "25000", "25000 50000")

	// Of the node's memory the pods together may have what is not reserved; the
	// threshold of eviction counts for admission alone.
	total := memoryOfTheNode(t)
	enforced := fmt.Sprint((total - 300<<20) &^ 4095)
	c.want("", "memory.limit_in_bytes", "memory.max", enforced, enforced)
	e.write("big.yaml", withResources(e.podOf("big", "${REST}"), fmt.Sprintf("{requests: {memory: '%d'}}", total-(340<<20))))
	e.refused("big", "UnexpectedAdmissionError")

	// The node's ceiling of the back-off.
	e.write("crash.yaml", e.podOf("crash", "exit 1"))
	e.waitPod("crash", "held back for 2 s", func(p *v1.Pod) error {
		if s := p.Status.ContainerStatuses; len(s) != 1 || s[0].RestartCount < 3 || s[0].State.Waiting == nil || !strings.HasPrefix(s[0].State.Waiting.Message, "back-off 2s ") {
			return fmt.Errorf("it is %s", describe(p))
		}
		return nil
	})

	// And without quotas.
	e.stop()
	e.podd.Config["cpuCFSQuota"] = false
	e.podd.Config["enforceNodeAllocatable"] = []string{"none"}
	e.start()
	e.write("free.yaml", withResources(e.resting("free"), "{limits: {cpu: 500m, memory: 32Mi}}"))
	free := e.ready("free")
	c.want(of(free), "cpu.cfs_quota_us", "cpu.max", "-1", "max 100000")
	c.want(of(free), "memory.limit_in_bytes", "memory.max", "33554432", "33554432")
}

// TestANodeWithoutResolverNamesTheLocalSystemInItsFamilies: resolvConf: "" gives
// pods no lookups, on a node of IPv6 as on any other.
func TestANodeWithoutResolverNamesTheLocalSystemInItsFamilies(t *testing.T) {
	e := prepare(t)
	e.podd.Config["resolvConf"] = ""
	e.podd.Args = append(e.podd.Args, "--node-ip", "2001:db8::9,192.0.2.9")
	e.start()
	e.write("quiet.yaml", e.podOf("quiet", "cp /etc/resolv.conf /out/quiet.tmp; mv /out/quiet.tmp /out/quiet; ${REST}", "dnsPolicy: Default"))
	e.mark("quiet")
	if got := strings.Fields(e.contents("quiet")); strings.Join(got, " ") != "search . nameserver ::1 nameserver 127.0.0.1" {
		t.Errorf("resolv.conf: got %q, want no server but the local system", got)
	}
	if p := e.ready("quiet"); p.Status.HostIP != "2001:db8::9" {
		t.Errorf("hostIP: got %q, want the first address of --node-ip", p.Status.HostIP)
	}
}

// memoryOfTheNode is in bytes.
func memoryOfTheNode(t *testing.T) int {
	t.Helper()
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		t.Fatal(err)
	}
	var kb int
	if _, err := fmt.Sscanf(string(text), "MemTotal: %d kB", &kb); err != nil {
		t.Fatal(err)
	}
	return kb << 10
}
