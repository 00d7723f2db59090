package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"podd/test/cluster"
	"podd/test/e2e/testnode"
)

// runs starts one of upstream's programs, the one that an environment variable names, and
// ends it with the test.
func (m *member) runs(variable, name string, args ...string) *cluster.Program {
	m.Helper()
	p := &cluster.Program{Name: name, Binary: os.Getenv(variable), Dir: m.podd.Dir, Args: args}
	if err := p.Start(); err != nil {
		m.Fatal(err)
	}
	m.Cleanup(func() {
		if err := errors.Join(p.Check(), p.Stop()); err != nil {
			m.Error(err)
		}
		if m.Failed() {
			m.Logf("the end of %s's log:\n%s", name, p.LogTail())
		}
	})
	return p
}

// needs skips the test where no program is named.
func needs(t *testing.T, variable string) {
	t.Helper()
	if os.Getenv(variable) == "" {
		t.Skip(variable + " is not set: make e2e sets it where the program can be had")
	}
}

// roles are what metrics-server's own manifests grant it (manifests/base/rbac.yaml of its
// release), and how the apiserver finds it: at a port of this machine.
const roles = `
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: metrics}, rules: [{apiGroups: [""], resources: [nodes/metrics], verbs: [get]}, {apiGroups: [""], resources: [pods, nodes], verbs: [get, list, watch]}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: metrics}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: metrics}, subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: metrics-server}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: delegator}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: "system:auth-delegator"}, subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: metrics-server}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: reader, namespace: kube-system}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: extension-apiserver-authentication-reader}, subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: metrics-server}]}
---
{apiVersion: v1, kind: Service, metadata: {name: metrics-server, namespace: kube-system}, spec: {type: ExternalName, externalName: localhost}}
---
{apiVersion: apiregistration.k8s.io/v1, kind: APIService, metadata: {name: v1beta1.metrics.k8s.io}, spec: {group: metrics.k8s.io, version: v1beta1, groupPriorityMinimum: 100, versionPriority: 100, insecureSkipTLSVerify: true, service: {name: metrics-server, namespace: kube-system, port: PORT}}}
`

// TestKubectlTopShowsWhatMetricsServerReadsOfTheNode: upstream's metrics-server, as a user
// with the rights that its manifests give it, reads the node by /metrics/resource.
func TestKubectlTopShowsWhatMetricsServerReadsOfTheNode(t *testing.T) {
	const variable = "PODD_TEST_METRICSSERVER"
	needs(t, variable)
	m := meetWith(t, []string{"metrics-server"})
	kubeconfig := filepath.Join(m.podd.Dir, "metrics-server.kubeconfig")
	if err := errors.Join(m.server.NodeKubeconfig(m.kubeconfig(), m.podd.NodeName()), m.server.UserKubeconfig(kubeconfig, "metrics-server")); err != nil {
		t.Fatal(err)
	}
	m.start()
	port := strconv.Itoa(m.node.Port + 2)
	m.apply(replacedAll(m, roles, "PORT", port))
	script := fmt.Sprintf("dd if=/dev/zero of=/dev/shm/held bs=1M count=%d; : > /out/busy; while :; do :; done", busyMemory>>20)
	m.bind(replaced(m, m.podOf("busy", script), "    volumeMounts:", "    resources: {requests: {cpu: 50m}, limits: {cpu: 200m, memory: 192Mi}}\n    volumeMounts:"))
	m.bind(m.resting("idle"))
	m.shown("busy", "ready", isReady)
	m.shown("idle", "ready", isReady)
	server := m.runs(variable, "metrics-server", "--kubeconfig="+kubeconfig, "--authentication-kubeconfig="+kubeconfig, "--authorization-kubeconfig="+kubeconfig,
		"--bind-address=127.0.0.1", "--secure-port="+port, "--cert-dir="+filepath.Join(m.podd.Dir, "metrics-server"),
		"--kubelet-insecure-tls", "--kubelet-use-node-status-port", "--kubelet-preferred-address-types=InternalIP", "--metric-resolution=10s", "--kubelet-request-timeout=5s")
	m.eventually("metrics-server has read the node twice", func(ctx context.Context) error {
		if err := server.Check(); err != nil {
			return testnode.Stop(err)
		}
		for _, of := range []string{"nodes", "pods"} {
			text, err := m.server.Client().Raw(ctx, "/apis/metrics.k8s.io/v1beta1/"+of)
			if err != nil {
				return err
			}
			var list struct{ Items []any }
			if err := json.Unmarshal(text, &list); err != nil || of == "nodes" && len(list.Items) != 1 || of == "pods" && len(list.Items) != 2 {
				return fmt.Errorf("%s: got %s, %v", of, text, err)
			}
		}
		return nil
	})
	out, err := m.says("top", "nodes", "--no-headers")
	node := strings.Fields(out)
	if err != nil || len(node) != 5 || node[0] != m.podd.NodeName() || number(node[1], "m") < 1 || number(node[3], "Mi") < busyMemory>>20 || number(node[4], "%") < 1 {
		t.Errorf("kubectl top nodes: got %q, %v", out, err)
	}
	if out, err = m.says("top", "pods", "--containers", "--no-headers", "--sort-by=cpu"); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if len(lines) != 2 {
		t.Fatalf("kubectl top pods --containers: got %q", out)
	}
	t.Logf("kubectl top:\n%s\n%s", strings.Join(node, " "), out)
	// A loop with a limit of 0.2 cores, of which a busy machine gives it less, and what it holds
	// of memory, with what a shell needs.
	busy, idle := strings.Fields(lines[0]), strings.Fields(lines[1])
	if len(busy) != 4 || busy[0] != "busy" || busy[1] != "main" || number(busy[2], "m") < 1 || number(busy[2], "m") > 300 ||
		number(busy[3], "Mi") < busyMemory>>20 || number(busy[3], "Mi") > busyMemory>>20*13/10 {
		t.Errorf("kubectl top pods --containers: got %q", lines[0])
	}
	if len(idle) != 4 || idle[0] != "idle" || number(idle[2], "m") < 0 || number(idle[2], "m") >= number(busy[2], "m") || number(idle[3], "Mi") > 16 {
		t.Errorf("kubectl top pods --containers: got %q", lines[1])
	}
	if out, err := m.says("get", "--raw", "/apis/metrics.k8s.io/v1beta1/namespaces/default/pods/busy"); err != nil || !strings.Contains(out, `"window":"`) {
		t.Errorf("the pod's metrics: got %q, %v", out, err)
	}
	m.delete("busy", "idle")
	m.gone("busy", "idle")
}

// number is the number before a unit; -1 for anything else.
func number(text, unit string) int {
	digits, ok := strings.CutSuffix(text, unit)
	n, err := strconv.Atoi(digits)
	if !ok || err != nil {
		return -1
	}
	return n
}
