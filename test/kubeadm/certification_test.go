package kubeadm

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"podd/test/cluster/conformance"
	"podd/test/cluster/suiteimages"
)

// TestADistributionOfPoddsIsConformant runs the tests that a distribution is certified by, in
// a cluster of two nodes, both of which take pods.
func TestADistributionOfPoddsIsConformant(t *testing.T) {
	tests, ginkgo, images := os.Getenv("PODD_TEST_E2E"), os.Getenv("PODD_TEST_GINKGO"), os.Getenv("PODD_TEST_SUITE_IMAGES")
	if tests == "" || ginkgo == "" || images == "" {
		t.Skip("PODD_TEST_E2E, PODD_TEST_GINKGO or PODD_TEST_SUITE_IMAGES is not set: make certification sets them")
	}
	b := programs(t)
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
	archives := strings.Fields(images)
	plane, worker, _, _ := b.cluster(t, archives...)
	pulled := registryOf(t, archives[0])
	for _, m := range []*machine{plane, worker} {
		b.pin(m)
		m.mirror(pulled)
		t.Cleanup(func() { m.keepLogs(out, "kubelet", "runtime") })
	}
	plane.run("kubectl", "taint", "node", plane.name, "node-role.kubernetes.io/control-plane-")
	for _, addon := range []string{"daemonset/kube-proxy", "deployment/coredns"} {
		plane.run("kubectl", "-n", "kube-system", "rollout", "status", "--timeout=2m", addon)
	}
	suite := conformance.Suite{
		Ginkgo: ginkgo, Tests: tests, Kubectl: filepath.Join(b.dir, "bin", "kubectl"), Kubeconfig: "/etc/kubernetes/admin.conf", Out: out,
		Focus: os.Getenv("PODD_TEST_FOCUS"), Skip: os.Getenv("PODD_TEST_SKIP"), Procs: procs, Nodes: 2,
		Expected: "expected.txt", AtLeast: atLeast,
		Command: func(ctx context.Context, args ...string) *exec.Cmd { return plane.command(ctx, args...) },
	}
	if err := suite.Run(t.Context(), t.Output()); err != nil {
		t.Error(err)
	}
}

// pin gives images the names by which tests call them, and keeps the node from removing any
// of them when space is short: nothing could bring them back.
func (b *built) pin(m *machine) {
	m.Helper()
	images := strings.Join(append(b.ctr(), "images"), " ")
	m.run("sh", "-ec", images+" tag --force localhost/podd/pause:1 "+strings.Join(suiteimages.Pauses, " ")+`
names=$(`+images+` list --quiet 2>/dev/null)
for name in $names; do `+images+` label "$name" io.cri-containerd.pinned=pinned; done`)
}

// keepLogs copies what the machine's programs have logged to a directory that stays.
func (m *machine) keepLogs(out string, names ...string) {
	for _, name := range names {
		text, err := os.ReadFile(filepath.Join(m.dir, name+".log"))
		if err == nil {
			err = os.WriteFile(filepath.Join(out, fmt.Sprintf("%s-%s.log", m.name, name)), text, 0o600)
		}
		if err != nil {
			m.Error(err)
		}
	}
}
