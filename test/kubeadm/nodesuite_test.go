package kubeadm

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"podd/test/cluster/conformance"
)

//go:embed cgroups.sh
var cgroupsScript string

// nodeConfig is upstream's test/e2e_node/jenkins/default-kubelet-config.yaml, for both versions
// of cgroups.
const nodeConfig = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
cgroupDriver: cgroupfs
cgroupRoot: /
failCgroupV1: false
podCIDR: 10.100.0.0/24
volumeStatsAggPeriod: 10s
fileCheckFrequency: 10s
evictionPressureTransitionPeriod: 30s
evictionHard: {memory.available: 250Mi, nodefs.available: 10%, nodefs.inodesFree: 5%}
evictionMinimumReclaim: {nodefs.available: 5%, nodefs.inodesFree: 5%}
serializeImagePulls: false
`

// systemSpec is what upstream's check of the system demands: that is about this machine's
// kernel and not about podd.
const systemSpec = `os: Linux
`

// testHandler is the handler that tests of RuntimeClasses expect of a node: runc once more.
const testHandler = `version = 4
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.test-handler]
  runtime_type = 'io.containerd.runc.v2'
  runtime_path = '%[1]s/containerd-shim-runc-v2'
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.test-handler.options]
  BinaryName = '%[1]s/runc'
  Root = '/run/podd/runc'
`

// TestPoddPassesUpstreamsSuiteOfANode has e2e_node start podd under the name kubelet, with an
// apiserver and an etcd of its own, and play its tests.
func TestPoddPassesUpstreamsSuiteOfANode(t *testing.T) {
	tests, ginkgo, archive := os.Getenv("PODD_TEST_E2ENODE"), os.Getenv("PODD_TEST_GINKGO"), os.Getenv("PODD_TEST_SUITE_IMAGES")
	if tests == "" || ginkgo == "" || archive == "" {
		t.Skip("PODD_TEST_E2ENODE, PODD_TEST_GINKGO or PODD_TEST_SUITE_IMAGES is not set: make node-suite sets them")
	}
	out := os.Getenv("PODD_TEST_OUT")
	if err := os.MkdirAll(out, 0o755); err != nil {
		t.Fatal(err)
	}
	procs, err := strconv.Atoi(os.Getenv("PODD_TEST_PROCS"))
	if err != nil {
		t.Fatalf("PODD_TEST_PROCS: %v", err)
	}
	atLeast, err := strconv.Atoi(os.Getenv("PODD_TEST_AT_LEAST"))
	if err != nil {
		t.Fatalf("PODD_TEST_AT_LEAST: %v", err)
	}
	b := prepare(t, map[string]string{})
	m := newMachine(t, b.dir, "node", "192.0.2.2", b.env)
	t.Cleanup(func() { m.keepLogs(out, "runtime") })
	m.run("bash", "-c", cgroupsScript, "cgroups", m.cgroups)
	m.alone()
	beside(t, out, "kubelet", os.Getenv("PODD_TEST_BINARY"))
	b.loadIn(m, archive)
	config, spec := m.write("node.yaml", nodeConfig), m.write("system.yaml", systemSpec)
	suite := conformance.Suite{
		Ginkgo: ginkgo, Tests: tests, Out: out,
		Focus: os.Getenv("PODD_TEST_FOCUS"), Skip: os.Getenv("PODD_TEST_SKIP"), Procs: procs, Expected: "nodesuite.txt", AtLeast: atLeast,
		Flags: []string{
			"--node-name=" + m.name, "--container-runtime-endpoint=" + socket, "--image-service-endpoint=" + socket,
			"--kubelet-config-file=" + config, "--system-spec-file=" + spec, "--prepull-images=false",
		},
		Command: func(ctx context.Context, args ...string) *exec.Cmd { return m.command(ctx, m.inCgroups(args)...) },
	}
	if err := suite.Run(t.Context(), t.Output()); err != nil {
		t.Error(err)
	}
}

// alone gives a machine an interface that has sent and received a megabyte, as a test expects
// of a node, though there is nobody else in its network. It takes systemd's commands from it,
// by which e2e_node finds out whether systemd runs.
func (m *machine) alone() {
	m.Helper()
	m.run("bash", "-euc", `ip link add eth0 type veth peer name wire
ip address add `+m.address+`/24 dev eth0
ip link set wire up
ip link set eth0 up
ip route add default via 192.0.2.1
echo `+m.address+` `+m.name+` >>/etc/hosts
ip address add 198.51.100.1/32 dev wire # a sender's, for as long as that takes
for from in "eth0 src `+m.address+`" "wire src 198.51.100.1"; do
	ip route replace 239.192.0.1 dev $from
	for _ in {1..40}; do
		printf %032000d 0 >/dev/udp/239.192.0.1/9
	done
done
ip route del 239.192.0.1
ip address del 198.51.100.1/32 dev wire
for name in systemd-run journalctl; do
	! at=$(command -v $name) || mount --bind /dev/null "$at"
done`)
}

// inCgroups is a command of the machine that runs in the cgroup /system of its own cgroups.
func (m *machine) inCgroups(args []string) []string {
	return append([]string{"nsenter", "--cgroup=/run/cgroups", "sh", "-euc", `
for at in /sys/fs/cgroup/system /sys/fs/cgroup/*/system; do
	[ ! -e "$at/cgroup.procs" ] || echo $$ >"$at/cgroup.procs"
done
exec "$@"`, "sh"}, args...)
}

// beside links a program into the directory of the tests' own program, where e2e_node looks for
// the kubelet.
func beside(t *testing.T, dir, name, program string) {
	t.Helper()
	link := filepath.Join(dir, name)
	if err := os.Remove(link); err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	if err := os.Symlink(program, link); err != nil {
		t.Fatal(err)
	}
}

// loadIn starts the runtime in the machine's own cgroups, and gives it the images of tests.
func (b *built) loadIn(m *machine, archive string) {
	m.Helper()
	m.run("sh", "-euc", "mkdir -p /etc/podd/containerd.d\necho \"$1\" >/etc/podd/containerd.d/test-handler.toml", "sh", fmt.Sprintf(testHandler, b.bundle.Bin))
	m.begin("runtime", `exec "$@"`, m.inCgroups([]string{"podd", "runtime"})...)
	b.imported(m, archive, filepath.Join(b.bundle.Images, "pause.tar"))
	b.pin(m)
	m.mirror(registryOf(m, archive))
}

// write writes a file of the machine's directory.
func (m *machine) write(name, text string) string {
	m.Helper()
	path := filepath.Join(m.dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		m.Fatal(err)
	}
	return path
}
