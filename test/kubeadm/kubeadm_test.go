package kubeadm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"podd/bundle"
	"podd/internal/versions"
	"podd/test/e2e/testnode"
)

const (
	token   = "abcdef.0123456789abcdef"
	network = "10.244.0.0/16"
	socket  = "unix:///run/podd/containerd.sock"
	// SystemVerification refuses cgroup v1, which this machine may have and the kubelet
	// then tolerates (failCgroupV1).
	ignored = "--ignore-preflight-errors=SystemVerification"
)

// initConfig is what a user writes for kubeadm init. Without maxPerCore kube-proxy sets a limit
// of the kernel's, which belongs to the whole machine.
const initConfig = `apiVersion: kubeadm.k8s.io/v1beta4
kind: InitConfiguration
bootstrapTokens: [{token: ${TOKEN}}]
localAPIEndpoint: {advertiseAddress: ${ADDRESS}}
nodeRegistration: {name: ${NAME}, criSocket: "${SOCKET}", kubeletExtraArgs: [{name: cgroup-root, value: ${CGROUPS}}]}
---
apiVersion: kubeadm.k8s.io/v1beta4
kind: ClusterConfiguration
kubernetesVersion: ${KUBERNETES}
imageRepository: localhost/podd/kubeadm
networking: {podSubnet: ${NETWORK}}
---
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
cgroupDriver: cgroupfs
failCgroupV1: false
---
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: nftables
conntrack: {maxPerCore: 0}
`

const joinConfig = `apiVersion: kubeadm.k8s.io/v1beta4
kind: JoinConfiguration
discovery: {bootstrapToken: {token: ${TOKEN}, apiServerEndpoint: "${SERVER}:6443", caCertHashes: ["${HASH}"]}}
nodeRegistration: {name: ${NAME}, criSocket: "${SOCKET}", kubeletExtraArgs: [{name: cgroup-root, value: ${CGROUPS}}]}
`

// kubelet is the ExecStart of 10-kubeadm.conf, with the files that it reads.
const kubelet = `. /var/lib/kubelet/kubeadm-flags.env
exec kubelet --bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf --kubeconfig=/etc/kubernetes/kubelet.conf --config=/var/lib/kubelet/config.yaml $KUBELET_KUBEADM_ARGS`

// work is a Deployment that runs where no control plane does.
const work = `apiVersion: apps/v1
kind: Deployment
metadata: {name: work}
spec:
  selector: {matchLabels: {app: work}}
  template:
    metadata: {labels: {app: work}}
    spec:
      terminationGracePeriodSeconds: 1
      containers:
      - {name: work, image: "` + testnode.ImageBusybox + `", imagePullPolicy: Never, command: [sh, -c, "echo at work; exec sleep 100000"]}
`

// built are the programs and archives of the test.
type built struct {
	dir, archives string
	bundle        testnode.Bundle
	env           []string
}

func programs(t *testing.T) *built {
	t.Helper()
	kubeadm, archives, kubectl := os.Getenv("PODD_TEST_KUBEADM"), os.Getenv("PODD_TEST_KUBEADM_IMAGES"), os.Getenv("PODD_TEST_KUBECTL")
	if kubeadm == "" || archives == "" || kubectl == "" {
		t.Skip("PODD_TEST_KUBEADM, PODD_TEST_KUBEADM_IMAGES or PODD_TEST_KUBECTL is not set: make kubeadm sets them")
	}
	b := prepare(t, map[string]string{"kubeadm": kubeadm, "kubectl": kubectl})
	b.archives = archives
	return b
}

// prepare makes a directory with these programs, and with podd under both of its names.
func prepare(t *testing.T, others map[string]string) *built {
	t.Helper()
	repo, err := testnode.RepoRoot()
	if err != nil {
		t.Fatal(err)
	}
	of := testnode.Bundle{Bin: filepath.Join(repo, "build/runtime/bin"), Images: filepath.Join(repo, "build/images")}
	return prepareOf(t, os.Getenv("PODD_TEST_BINARY"), of, others)
}

// prepareOf is prepare with another podd and its bundle.
func prepareOf(t *testing.T, podd string, of testnode.Bundle, others map[string]string) *built {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("making namespaces needs root")
	}
	dir, err := os.MkdirTemp("", "pk")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	b := &built{dir: dir, bundle: of}
	if err := b.bundle.Check(); err != nil {
		t.Fatal(err)
	}
	bin := filepath.Join(dir, "bin")
	all := maps.Clone(others)
	all["podd"], all["kubelet"] = podd, podd
	if err := os.Mkdir(bin, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, from := range all {
		if err := os.Symlink(from, filepath.Join(bin, name)); err != nil {
			t.Fatal(err)
		}
	}
	b.env = []string{"PATH=" + bin + ":/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", bundle.EnvDir + "=" + b.bundle.Bin, "KUBECONFIG=/etc/kubernetes/admin.conf"}
	return b
}

// load starts the machine's container runtime, as podd-runtime.service does, and imports
// archives of images.
func (b *built) load(m *machine, archives ...string) {
	m.Helper()
	m.begin("runtime", "exec podd runtime")
	b.imported(m, archives...)
}

// imported imports archives once the runtime responds.
func (b *built) imported(m *machine, archives ...string) {
	m.Helper()
	ctr := b.ctr()
	m.eventually("the runtime of "+m.name+" responds", func(context.Context) error { _, err := m.try(append(ctr, "version")...); return err })
	for _, archive := range archives {
		m.run(append(ctr, "images", "import", archive)...)
	}
}

// ctr is the command line of the runtime's own client.
func (b *built) ctr() []string {
	return []string{filepath.Join(b.bundle.Bin, "ctr"), "--address", strings.TrimPrefix(socket, "unix://"), "--namespace", "k8s.io"}
}

// kubeadm runs kubeadm with a configuration, and the kubelet once the files are there that
// the service needs.
func (m *machine) kubeadm(command, config string, values []string, files ...string) string {
	m.Helper()
	values = append(values, "${TOKEN}", token, "${NAME}", m.name, "${SOCKET}", socket, "${CGROUPS}", m.cgroups)
	path := filepath.Join(m.dir, command+".yaml")
	if err := os.WriteFile(path, []byte(strings.NewReplacer(values...).Replace(config)), 0o600); err != nil {
		m.Fatal(err)
	}
	cmd := m.command(m.Context(), "kubeadm", command, "--config", path, ignored)
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		m.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	m.eventually("kubeadm has written the kubelet's files", func(context.Context) error {
		select {
		case err := <-ended:
			return testnode.Stop(fmt.Errorf("kubeadm %s ended: %v: %s", command, err, out.String()))
		default:
		}
		var errs []error
		for _, file := range append(files, "/var/lib/kubelet/config.yaml", "/var/lib/kubelet/kubeadm-flags.env") {
			errs = append(errs, m.has(file))
		}
		return errors.Join(errs...)
	})
	m.begin("kubelet", kubelet)
	if err := <-ended; err != nil {
		m.Fatalf("kubeadm %s: %v: %s", command, err, out.String())
	}
	return out.String()
}

// get reads an object as the administrator.
func (m *machine) get(into any, args ...string) {
	m.Helper()
	if err := json.Unmarshal([]byte(m.run(append([]string{"kubectl", "get", "-o", "json"}, args...)...)), into); err != nil {
		m.Fatal(err)
	}
}

// nodeReady waits until a Node is Ready and returns its pod CIDR, of which packets of the
// machine then find it: that is for a network's administrator to do, as there is no overlay.
func (m *machine) nodeReady(of *machine) netip.Prefix {
	m.Helper()
	m.run("kubectl", "wait", "--for=condition=Ready", "--timeout=2m", "node/"+of.name)
	var n v1.Node
	m.get(&n, "node", of.name)
	cidr, err := netip.ParsePrefix(n.Spec.PodCIDR)
	if err != nil {
		m.Fatalf("podCIDR of %s is %q", of.name, n.Spec.PodCIDR)
	}
	return cidr
}

func TestKubeadmMakesAClusterOfPodds(t *testing.T) {
	b := programs(t)
	plane, worker, ofPlane, ofWorker := b.cluster(t)
	plane.testWork(ofWorker)
	plane.testTaints(worker)
	plane.testVolume(worker)
	t.Log("the cluster:\n" + plane.run("kubectl", "get", "nodes,pods", "-A", "-o", "wide"))
	plane.testAddress(ofPlane, worker, ofWorker)
	plane.testRestart()
	plane.testReset(worker)
}

// cluster makes one of two nodes, whose pods find each other, and returns their pod CIDRs,
// too. The worker has busybox's image, and both those of more archives.
func (b *built) cluster(t *testing.T, more ...string) (plane, worker *machine, ofPlane, ofWorker netip.Prefix) {
	t.Helper()
	return b.clusterWith(t, b, more...)
}

// clusterWith is cluster with a worker of other programs.
func (b *built) clusterWith(t *testing.T, w *built, more ...string) (plane, worker *machine, ofPlane, ofWorker netip.Prefix) {
	t.Helper()
	plane, worker = newMachine(t, b.dir, "plane", "172.30.0.1", b.env), newMachine(t, w.dir, "worker", "172.30.0.2", w.env)
	connect(plane, worker)
	busybox := filepath.Join(b.bundle.Images, "busybox.tar")
	pause := filepath.Join(b.bundle.Images, "pause.tar")
	b.load(plane, append(more, pause, b.archives+"-node.tar", b.archives+"-control-plane.tar")...)
	w.load(worker, append(more, pause, b.archives+"-node.tar", busybox)...)

	said := plane.kubeadm("init", initConfig, []string{"${KUBERNETES}", versions.Kubernetes, "${ADDRESS}", plane.address, "${NETWORK}", network}, "/etc/kubernetes/kubelet.conf")
	if !strings.Contains(said, `Updating "/etc/kubernetes/kubelet.conf" to point to a rotatable kubelet client certificate`) {
		t.Errorf("kubeadm has not found the kubelet's client certificate: %s", said)
	}
	ofPlane = plane.nodeReady(plane)
	hash := regexp.MustCompile(`sha256:[0-9a-f]{64}`).FindString(said)
	worker.kubeadm("join", joinConfig, []string{"${SERVER}", plane.address, "${HASH}", hash}, "/etc/kubernetes/bootstrap-kubelet.conf")
	ofWorker = plane.nodeReady(worker)
	if all := netip.MustParsePrefix(network); ofPlane == ofWorker || !all.Overlaps(ofPlane) || !all.Overlaps(ofWorker) {
		t.Errorf("the nodes have podCIDRs %s and %s of %s", ofPlane, ofWorker, all)
	}
	plane.run("ip", "route", "add", ofWorker.String(), "via", worker.address)
	worker.run("ip", "route", "add", ofPlane.String(), "via", plane.address)
	return plane, worker, ofPlane, ofWorker
}

// testWork has the second node run a Deployment, which finds the cluster.
func (m *machine) testWork(from netip.Prefix) {
	path := filepath.Join(m.dir, "work.yaml")
	if err := os.WriteFile(path, []byte(work), 0o644); err != nil {
		m.Fatal(err)
	}
	m.run("kubectl", "apply", "-f", path)
	m.run("kubectl", "rollout", "status", "--timeout=2m", "deployment/work")
	var pods v1.PodList
	m.get(&pods, "pods", "-l", "app=work")
	if len(pods.Items) != 1 || pods.Items[0].Spec.NodeName != "worker" {
		m.Fatalf("got %d pods, the first on %q", len(pods.Items), pods.Items[0].Spec.NodeName)
	}
	if ip, err := netip.ParseAddr(pods.Items[0].Status.PodIP); err != nil || !from.Contains(ip) {
		m.Errorf("the pod has address %s, want one of %s", ip, from)
	}
	if said := m.run("kubectl", "logs", "deployment/work"); said != "at work\n" {
		m.Errorf("its log is %q", said)
	}
	// As operators' tools read it, by the link in /var/log/containers of the node.
	of := pods.Items[0]
	link := fmt.Sprintf("%s_%s_work-%s.log", of.Name, of.Namespace, strings.TrimPrefix(of.Status.ContainerStatuses[0].ContainerID, "containerd://"))
	if said := m.run("kubectl", "get", "--raw", "/api/v1/nodes/worker/proxy/logs/containers/"+link); !strings.HasSuffix(said, " stdout F at work\n") {
		m.Errorf("%s is %q", link, said)
	}
	for _, addon := range []string{"daemonset/kube-proxy", "deployment/coredns"} {
		m.run("kubectl", "-n", "kube-system", "rollout", "status", "--timeout=2m", addon)
	}
	// By the Service of the cluster's DNS, on the other node, to that of its API.
	said := m.run("kubectl", "exec", "deployment/work", "--", "nslookup", "kubernetes.default.svc.cluster.local")
	if !strings.Contains(said, "10.96.0.1\n") {
		m.Errorf("kubernetes.default.svc.cluster.local is %s", said)
	}
}

// testTaints keeps pods away from the second node, and drives them from it, as an operator does.
func (m *machine) testTaints(worker *machine) {
	run := func(name string) {
		m.run("kubectl", "run", name, "--image="+testnode.ImageBusybox, "--image-pull-policy=Never", `--overrides={"spec": {"terminationGracePeriodSeconds": 1}}`, "--", "sleep", "100000")
	}
	for _, keep := range []struct {
		pod, reason string
		begin, end  []string
	}{
		{"cordoned", "node(s) were unschedulable", []string{"cordon", worker.name}, []string{"uncordon", worker.name}},
		{"tainted", "node(s) had untolerated taint", []string{"taint", "node", worker.name, "upkeep=now:NoSchedule"}, []string{"taint", "node", worker.name, "upkeep=now:NoSchedule-"}},
	} {
		m.run(append([]string{"kubectl"}, keep.begin...)...)
		run(keep.pod)
		m.eventually("the pod is kept away: "+keep.pod, func(context.Context) error {
			var p v1.Pod
			m.get(&p, "pod", keep.pod)
			if c := p.Status.Conditions; p.Spec.NodeName != "" || len(c) != 1 || c[0].Reason != v1.PodReasonUnschedulable || !strings.Contains(c[0].Message, keep.reason) {
				return fmt.Errorf("it is on %q, with %+v", p.Spec.NodeName, c)
			}
			return nil
		})
		m.run(append([]string{"kubectl"}, keep.end...)...)
		m.run("kubectl", "wait", "--for=condition=Ready", "--timeout=2m", "pod/"+keep.pod)
	}
	work := strings.TrimSpace(m.run("kubectl", "get", "pods", "-l", "app=work", "-o", "name"))
	m.run("kubectl", "taint", "node", worker.name, "upkeep=now:NoExecute")
	m.run("kubectl", "wait", "--for=delete", "--timeout=2m", "pod/cordoned", "pod/tainted", work)
	m.run("kubectl", "taint", "node", worker.name, "upkeep=now:NoExecute-")
	m.run("kubectl", "rollout", "status", "--timeout=2m", "deployment/work")
}

// testAddress gives the second node another address, by which the cluster then reaches it:
// what a machine in a network without fixed addresses may have to bear.
func (m *machine) testAddress(own netip.Prefix, worker *machine, pods netip.Prefix) {
	const moved = "172.30.0.3"
	worker.run("sh", "-ec", fmt.Sprintf(`ip address del %[2]s/24 dev eth0; ip address add %[1]s/24 dev eth0
ip route replace default via %[3]s; ip route replace %[4]s via %[3]s`, moved, worker.address, m.address, own))
	worker.address = moved
	m.run("ip", "route", "replace", pods.String(), "via", moved)
	m.eventually("the Node has the new address", func(context.Context) error {
		var n v1.Node
		m.get(&n, "node", worker.name)
		if a := n.Status.Addresses; len(a) != 2 || a[0].Address != moved {
			return fmt.Errorf("it has %+v", a)
		}
		return nil
	})
	m.eventually("the pod's status has it", func(context.Context) error {
		var list v1.PodList
		m.get(&list, "pods", "-l", "app=work")
		if s := list.Items[0].Status; s.HostIP != moved || s.ContainerStatuses[0].RestartCount != 0 {
			return fmt.Errorf("it is on %s, with %d restarts", s.HostIP, s.ContainerStatuses[0].RestartCount)
		}
		return nil
	})
	if said := m.run("kubectl", "logs", "deployment/work"); said != "at work\n" {
		m.Errorf("by the new address its log is %q", said)
	}
}

// testRestart kills podd below the control plane, which does not notice.
func (m *machine) testRestart() {
	containers := func() map[string]string {
		var pods v1.PodList
		m.get(&pods, "pods", "-n", "kube-system", "-l", "tier=control-plane")
		all := map[string]string{}
		for _, p := range pods.Items {
			for _, c := range p.Status.ContainerStatuses {
				all[p.Name] += fmt.Sprint(c.Name, c.ContainerID, c.RestartCount, c.Ready)
			}
		}
		return all
	}
	before := containers()
	if len(before) != 4 {
		m.Errorf("the control plane is %q, want four pods", before)
	}
	m.kill("kubelet", "KILL")
	m.begin("kubelet", kubelet)
	// A mirror pod that is deleted comes again only by the podd that runs now.
	m.run("kubectl", "delete", "pod", "-n", "kube-system", "etcd-"+m.name, "--wait=false")
	m.eventually("the control plane is as it was", func(context.Context) error {
		if after := containers(); fmt.Sprint(after) != fmt.Sprint(before) {
			return fmt.Errorf("it is %q, was %q", after, before)
		}
		return nil
	})
	m.nodeReady(m)
}

// testReset takes the nodes out of the cluster, the control plane's last.
func (m *machine) testReset(worker *machine) {
	m.run("kubectl", "drain", "--ignore-daemonsets", "--timeout=1m", worker.name)
	m.run("kubectl", "delete", "node", worker.name)
	for _, of := range []*machine{worker, m} {
		of.kill("kubelet", "TERM")
		of.run("kubeadm", "reset", "--force", "--cri-socket", socket)
		of.run("podd", "runtime", "stop")
		if left := of.processes(); left != "" {
			m.Errorf("%s still has processes:\n%s", of.name, left)
		}
		if left := of.cgroupRoots(); len(left) > 0 {
			m.Errorf("%s still has cgroups: %q", of.name, left)
		}
		mounts := of.run("sh", "-c", `awk '$5 ~ "^/(run/podd|var/lib/(podd|kubelet))/"' /proc/self/mountinfo`)
		if mounts != "" {
			m.Errorf("%s still has mounts:\n%s", of.name, mounts)
		}
	}
}
