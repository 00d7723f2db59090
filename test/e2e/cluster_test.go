package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/yaml"

	"podd/internal/versions"
	"podd/test/cluster"
)

// member is a podd that is the node of a cluster: a real kube-apiserver on loopback, and
// nobody else.
type member struct {
	*env
	server *cluster.APIServer
}

// join starts an apiserver, with more arguments, and a podd with its kubeconfig.
func join(t *testing.T, args ...string) *member {
	t.Helper()
	return joinWith(t, func(map[string]any) {}, args...)
}

// joinWith is join with a change of podd's configuration.
func joinWith(t *testing.T, change func(config map[string]any), args ...string) *member {
	t.Helper()
	m := meet(t, args...)
	change(m.podd.Config)
	if err := m.server.NodeKubeconfig(m.kubeconfig(), m.podd.NodeName()); err != nil {
		t.Fatal(err)
	}
	m.start()
	return m
}

// kubeconfig is the path of podd's.
func (m *member) kubeconfig() string { return filepath.Join(m.podd.Dir, "kubeconfig") }

// meet starts an apiserver, with args, and prepares a podd whose kubeconfig does not exist
// yet.
func meet(t *testing.T, args ...string) *member {
	t.Helper()
	return meetWith(t, nil, args...)
}

// meetWith is meet with users that have no rights.
func meetWith(t *testing.T, users []string, args ...string) *member {
	t.Helper()
	apiserverBinary(t)
	return meetOn(prepare(t), users, args...)
}

// apiserverBinary is the kube-apiserver's path; a test that has none is skipped.
func apiserverBinary(t *testing.T) string {
	t.Helper()
	binary := os.Getenv("PODD_TEST_APISERVER")
	if binary == "" {
		t.Skip("PODD_TEST_APISERVER is not set: make test-all sets it to a kube-apiserver")
	}
	return binary
}

// meetOn is meetWith for a podd that is prepared already.
func meetOn(e *env, users []string, args ...string) *member {
	t, binary := e.T, apiserverBinary(e.T)
	t.Helper()
	m := &member{e, &cluster.APIServer{
		Binary: binary, Dir: filepath.Join(e.podd.Dir, "apiserver"), Port: e.node.Port + 8, Nodes: []string{e.podd.NodeName()}, Users: users, Args: args, Audit: true,
	}}
	if err := m.server.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.server.Stop(); err != nil {
			t.Error(err)
		}
	})
	e.podd.Config["address"] = nil // of all ports; the apiserver comes by the node's address
	e.podd.Args = append(e.podd.Args, "--kubeconfig="+m.kubeconfig(), "--client-ca-file="+m.server.ClientCA(),
		"--cert-dir="+filepath.Join(e.podd.Dir, "pki"), "--port="+strconv.Itoa(e.node.Port+9))
	return m
}

// bind creates a pod that is bound to this node, from a manifest.
func (m *member) bind(manifest string) {
	m.Helper()
	if err := m.server.Client().Create(m.Context(), m.document(manifest)); err != nil {
		m.Fatal(err)
	}
}

func (m *member) document(manifest string) cluster.Object {
	m.Helper()
	var o cluster.Object
	text, err := yaml.YAMLToJSON([]byte(manifest))
	if err == nil {
		err = json.Unmarshal(text, &o)
	}
	if err != nil {
		m.Fatal(err)
	}
	if spec, ok := o["spec"].(map[string]any); ok && o["kind"] == "Pod" {
		spec["nodeName"] = m.podd.NodeName()
	}
	return o
}

func podNamed(name string) cluster.Object {
	return cluster.Object{"kind": "Pod", "metadata": map[string]any{"name": name}}
}

// delete requests a pod's deletion.
func (m *member) delete(names ...string) {
	m.Helper()
	for _, name := range names {
		if err := m.server.Client().Delete(m.Context(), podNamed(name)); err != nil {
			m.Fatal(err)
		}
	}
}

// shown waits until the apiserver shows a pod as want says (nil), and returns it.
func (m *member) shown(name, what string, want func(p *v1.Pod) error) *v1.Pod {
	m.Helper()
	var p v1.Pod
	m.eventually("the apiserver shows "+name+" as "+what, func(ctx context.Context) error {
		p = v1.Pod{}
		if err := m.server.Client().Get(ctx, podNamed(name), &p); err != nil {
			return err
		}
		if err := want(&p); err != nil {
			return fmt.Errorf("%w; it is %s", err, describe(&p))
		}
		return nil
	})
	return &p
}

func isReady(p *v1.Pod) error {
	if p.Status.Phase != v1.PodRunning || condition(p, v1.PodReady) != v1.ConditionTrue {
		return errors.New("not ready")
	}
	return nil
}

func isIn(phase v1.PodPhase) func(p *v1.Pod) error {
	return func(p *v1.Pod) error {
		if p.Status.Phase != phase {
			return errors.New("another phase")
		}
		return nil
	}
}

// gone waits until the apiserver does not have a pod any more.
func (m *member) gone(names ...string) {
	m.Helper()
	for _, name := range names {
		ctx, cancel := context.WithTimeout(m.Context(), patience)
		err := m.server.Client().Gone(ctx, podNamed(name))
		cancel()
		if err != nil {
			m.Fatal(err)
		}
	}
}

func TestANodeJoinsItsCluster(t *testing.T) {
	m := meet(t)
	name := m.podd.NodeName()
	m.podd.Args = append(m.podd.Args, "--node-labels=disk=ssd")
	m.podd.Config["registerWithTaints"] = []v1.Taint{{Key: "dedicated", Value: "db", Effect: v1.TaintEffectNoSchedule}}
	m.podd.Config["kubeReserved"] = map[string]any{"cpu": "100m", "memory": "64Mi"}
	m.podd.Config["systemReserved"] = map[string]any{"cpu": "50m", "memory": "32Mi"}
	m.podd.Config["enforceNodeAllocatable"] = []string{"none"}
	if err := m.server.NodeKubeconfig(m.kubeconfig(), name); err != nil {
		t.Fatal(err)
	}
	m.start()
	var n v1.Node
	m.eventually("the node is ready", func(ctx context.Context) error {
		n = v1.Node{}
		if err := m.server.Client().Get(ctx, cluster.Object{"kind": "Node", "metadata": map[string]any{"name": name}}, &n); err != nil {
			return err
		}
		for _, c := range n.Status.Conditions {
			if c.Type == v1.NodeReady && c.Status == v1.ConditionTrue {
				return nil
			}
		}
		return fmt.Errorf("its conditions are %+v", n.Status.Conditions)
	})
	if len(n.Status.Conditions) != 4 || n.Labels[v1.LabelHostname] != name || n.Labels[v1.LabelOSStable] != "linux" || n.Labels["disk"] != "ssd" {
		t.Errorf("got conditions %+v, labels %v", n.Status.Conditions, n.Labels)
	}
	if !slices.ContainsFunc(n.Spec.Taints, func(t v1.Taint) bool {
		return t.Key == "dedicated" && t.Value == "db" && t.Effect == v1.TaintEffectNoSchedule
	}) {
		t.Errorf("got taints %+v", n.Spec.Taints)
	}
	for of, want := range map[v1.ResourceName]string{v1.ResourceCPU: "150m", v1.ResourceMemory: "96Mi"} {
		reserved := n.Status.Capacity[of]
		if reserved.Sub(n.Status.Allocatable[of]); reserved.Cmp(resource.MustParse(want)) != 0 {
			t.Errorf("%s of %s is reserved, want %s", reserved.String(), of, want)
		}
	}
	for _, of := range []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory, v1.ResourcePods, v1.ResourceEphemeralStorage} {
		if q := n.Status.Allocatable[of]; q.Sign() <= 0 {
			t.Errorf("allocatable %s is %s", of, q.String())
		}
	}
	i := n.Status.NodeInfo
	if !strings.HasPrefix(i.ContainerRuntimeVersion, "containerd://") || !strings.HasPrefix(i.KubeletVersion, versions.Kubernetes) || i.BootID == "" || i.KernelVersion == "" || i.OSImage == "" || i.Architecture != runtime.GOARCH ||
		n.Status.DaemonEndpoints.KubeletEndpoint.Port != int32(m.node.Port+9) {
		t.Errorf("got %+v, port %d", i, n.Status.DaemonEndpoints.KubeletEndpoint.Port)
	}
	if want := []string{"InPlacePodLevelResourcesVerticalScaling", "InPlacePodVerticalScalingInitContainers", "RestartAllContainersOnContainerExits"}; !slices.Equal(n.Status.DeclaredFeatures, want) {
		t.Errorf("declared features are %q, want %q", n.Status.DeclaredFeatures, want)
	}
	if f := n.Status.Features; f == nil || f.SupplementalGroupsPolicy == nil || !slices.ContainsFunc(n.Status.RuntimeHandlers, func(h v1.NodeRuntimeHandler) bool { return h.Name == "" }) {
		t.Errorf("features are %+v, runtime handlers %+v", f, n.Status.RuntimeHandlers)
	}
	if all := n.Status.Images; len(all) == 0 || len(all) > 50 || len(all[0].Names) == 0 || !slices.IsSortedFunc(all, func(a, b v1.ContainerImage) int { return int(b.SizeBytes - a.SizeBytes) }) {
		t.Errorf("images are %+v", all)
	}
	var l coordinationv1.Lease
	m.eventually("the lease is the node's", func(ctx context.Context) error {
		err := m.server.Client().Get(ctx, cluster.Object{"kind": "Lease", "metadata": map[string]any{"name": name, "namespace": "kube-node-lease"}}, &l)
		if err == nil && (len(l.OwnerReferences) != 1 || l.OwnerReferences[0].UID != n.UID) {
			err = fmt.Errorf("its owners are %+v", l.OwnerReferences)
		}
		return err
	})
	if *l.Spec.HolderIdentity != name || *l.Spec.LeaseDurationSeconds != 40 {
		t.Errorf("got %+v", l.Spec)
	}
}

func TestAPodOfTheClusterRunsAndGoesWhenItIsDeleted(t *testing.T) {
	m := join(t)
	m.bind(m.podOf("web", "trap 'echo bye > /out/bye; exit 0' TERM; : > /out/web; while :; do sleep 3600 & wait; done"))
	m.mark("web") // it would not be told of its end before its trap is there
	p := m.shown("web", "ready", isReady)
	if p.Status.PodIP == "" || p.Status.HostIP == "" || p.Status.StartTime == nil || p.Status.QOSClass != v1.PodQOSBestEffort || !p.Status.ContainerStatuses[0].Ready {
		t.Errorf("got %+v", p.Status)
	}
	m.delete("web")
	m.gone("web")
	if !m.marked("bye") {
		t.Error("the pod's object was deleted before its container had ended")
	}
	if err := m.waitNothingLeft(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestAPodThatEndedIsShownSoAndDoesNotRunAgain(t *testing.T) {
	m := join(t)
	m.bind(m.podOf("job", "echo x >> /out/runs", "restartPolicy: Never"))
	p := m.shown("job", "succeeded", isIn(v1.PodSucceeded))
	if s := p.Status.ContainerStatuses[0].State.Terminated; s == nil || s.Reason != "Completed" || s.ExitCode != 0 {
		t.Errorf("got %+v", p.Status.ContainerStatuses[0])
	}
	m.stop()
	// What podd itself knew of that, and the runtime, is gone: as after a new root disk.
	if err := errors.Join(os.RemoveAll(filepath.Join(m.node.Root(), "ended")), m.node.CRI.RemoveAll(t.Context())); err != nil {
		t.Fatal(err)
	}
	m.start()
	m.bind(m.resting("marker"))
	m.shown("marker", "ready", isReady)
	if runs := strings.Count(m.contents("runs"), "x"); runs != 1 {
		t.Errorf("it ran %d times", runs)
	}
	if after := m.shown("job", "succeeded", isIn(v1.PodSucceeded)); after.Status.ContainerStatuses[0].State.Terminated == nil {
		t.Errorf("got %+v", after.Status)
	}
	m.delete("job", "marker")
	m.gone("job", "marker")
}

func TestADeletionIsFinishedAcrossARestartOfPodd(t *testing.T) {
	m := join(t)
	m.bind(m.resting("a"))
	m.bind(m.podOf("b", "exit 1", "restartPolicy: Never"))
	m.shown("a", "ready", isReady)
	m.shown("b", "failed", isIn(v1.PodFailed))
	m.kill()
	m.delete("a", "b")
	m.bind(m.resting("c"))
	m.delete("c") // which never ran
	m.start()
	m.gone("a", "b", "c")
	if m.marked("c") {
		t.Error("a pod whose deletion had been requested was started")
	}
}

// Labels and readiness gates are written by others while a pod runs.
func TestWhatOthersWriteOfAPodIsHeeded(t *testing.T) {
	m := join(t)
	m.bind(m.podOf("web", ": > /out/web; ${REST}", `readinessGates: [{conditionType: "example.com/gate"}]`))
	p := m.shown("web", "running and not ready", func(p *v1.Pod) error {
		if condition(p, v1.ContainersReady) != v1.ConditionTrue || condition(p, v1.PodReady) != v1.ConditionFalse {
			return errors.New("another condition")
		}
		return nil
	})
	p.Status.Conditions = append(p.Status.Conditions, v1.PodCondition{Type: "example.com/gate", Status: v1.ConditionTrue})
	if err := m.server.Client().PutStatus(t.Context(), podNamed("web"), p); err != nil {
		t.Fatal(err)
	}
	after := m.shown("web", "ready", isReady)
	if !slices.ContainsFunc(after.Status.Conditions, func(c v1.PodCondition) bool { return c.Type == "example.com/gate" }) {
		t.Errorf("got %+v", after.Status.Conditions)
	}
	m.delete("web")
	m.gone("web")
}

// accessible is a pod with the volume that admission puts into every pod of a cluster, and
// with variables and a volume of objects.
const accessible = `
apiVersion: v1
kind: Pod
metadata: {name: access}
spec:
  serviceAccountName: robot
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: ${IMAGE}
    command: [/bin/sh, -c, "trap 'exit 0' TERM; cd /var/run/secrets/kubernetes.io/serviceaccount;
      { cut -c 1-3 token; cat ca.crt; echo; cat namespace; echo; echo $PASSWORD; } > /out/access.tmp; mv /out/access.tmp /out/access;
      while :; do v=$(cat /settings/level) && : > /out/level-$v; sleep 0.05; done"]
    env: [{name: PASSWORD, valueFrom: {secretKeyRef: {name: password, key: value}}}]
    volumeMounts:
    - {name: out, mountPath: /out}
    - {name: settings, mountPath: /settings}
    - {name: kube-api-access, mountPath: /var/run/secrets/kubernetes.io/serviceaccount, readOnly: true}
  volumes:
  - {name: out, hostPath: {path: ${OUT}, type: Directory}}
  - {name: settings, configMap: {name: settings}}
  - name: kube-api-access
    projected:
      sources:
      - serviceAccountToken: {path: token, expirationSeconds: 3607}
      - configMap: {name: kube-root-ca.crt, items: [{key: ca.crt, path: ca.crt}]}
      - downwardAPI: {items: [{path: namespace, fieldRef: {fieldPath: metadata.namespace}}]}
`

func TestAPodOfTheClusterHasItsTokenAndItsObjects(t *testing.T) {
	m := join(t)
	apply := func(text string) {
		t.Helper()
		if err := m.server.Client().Apply(t.Context(), m.document(text)); err != nil {
			t.Fatal(err)
		}
	}
	apply("{apiVersion: v1, kind: ServiceAccount, metadata: {name: robot}}")
	apply("{apiVersion: v1, kind: ConfigMap, metadata: {name: kube-root-ca.crt}, data: {ca.crt: THE-CA}}")
	apply("{apiVersion: v1, kind: ConfigMap, metadata: {name: settings}, data: {level: low}}")
	// Static manifests have objects of their own, which are nobody else's.
	m.write("password.yaml", "{apiVersion: v1, kind: Secret, metadata: {name: password}, stringData: {value: of-a-manifest}}")
	m.bind(m.vars().Replace(accessible))
	m.shown("access", "waiting for its Secret", func(p *v1.Pod) error {
		for _, c := range p.Status.ContainerStatuses {
			if w := c.State.Waiting; w != nil && w.Reason == "CreateContainerConfigError" && w.Message == `secret "password" not found` {
				return nil
			}
		}
		return errors.New("not waiting")
	})
	apply("{apiVersion: v1, kind: Secret, metadata: {name: password}, stringData: {value: of-the-cluster}}")
	m.mark("access", "level-low")
	if got, want := strings.Fields(m.contents("access")), []string{"eyJ", "THE-CA", "default", "of-the-cluster"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	apply("{apiVersion: v1, kind: ConfigMap, metadata: {name: settings}, data: {level: high}}")
	m.mark("level-high")
	m.stop()
	m.start()
	apply("{apiVersion: v1, kind: ConfigMap, metadata: {name: settings}, data: {level: middle}}")
	m.mark("level-middle")
	// Its token and ConfigMaps came a moment after the pod, and after podd's restart, which is
	// no failure. By the time that a change of one has arrived, events have, too.
	var events v1.EventList
	text, err := m.server.Client().Raw(t.Context(), "/api/v1/namespaces/default/events?fieldSelector=involvedObject.name=access")
	if err == nil {
		err = json.Unmarshal(text, &events)
	}
	if err != nil || len(events.Items) == 0 || slices.ContainsFunc(events.Items, func(e v1.Event) bool { return e.Reason == "FailedMount" }) {
		t.Errorf("got %v and the events %+v, want none of FailedMount", err, events.Items)
	}
	m.delete("access")
	m.gone("access")
}

func TestLogsOfAPodComeThroughTheApiserver(t *testing.T) {
	m := join(t)
	m.bind(m.podOf("speaker", "echo first; echo second; : > /out/said; exit 3", "restartPolicy: Always"))
	m.shown("speaker", "restarted and ended again", func(p *v1.Pod) error {
		if c := p.Status.ContainerStatuses; len(c) != 1 || c[0].RestartCount < 1 || c[0].State.Running != nil {
			return errors.New("not ended twice")
		}
		return nil
	})
	for query, want := range map[string]string{"": "first\nsecond\n", "?previous=true": "first\nsecond\n", "?tailLines=1": "second\n", "?limitBytes=3": "fir"} {
		got, err := m.server.Client().Raw(t.Context(), "/api/v1/namespaces/default/pods/speaker/log"+query)
		if err != nil || string(got) != want {
			t.Errorf("%q: got %q, %v, want %q", query, got, err, want)
		}
	}
	m.delete("speaker")
	m.gone("speaker")
}

func TestEventsOfAPodReachTheApiserver(t *testing.T) {
	m := join(t)
	m.bind(withFields(m.resting("web"), "readinessProbe: {exec: {command: [\"false\"]}, periodSeconds: 1, timeoutSeconds: 30}"))
	for _, reason := range []string{"Pulled", "Created", "Started"} {
		m.told("web", reason)
	}
	m.eventually("what repeats is one event that counts", func(ctx context.Context) error {
		text, err := m.server.Client().Raw(ctx, "/api/v1/namespaces/default/events?fieldSelector=involvedObject.name=web,reason=Unhealthy")
		var list v1.EventList
		if err = errors.Join(err, json.Unmarshal(text, &list)); err != nil {
			return err
		}
		if len(list.Items) != 1 || list.Items[0].Count < 3 || !list.Items[0].FirstTimestamp.Before(&list.Items[0].LastTimestamp) {
			return fmt.Errorf("got %+v", list.Items)
		}
		return nil
	})
	m.delete("web")
	m.gone("web")
}

func TestAPodHasVariablesOfTheServicesOfItsNamespace(t *testing.T) {
	m := join(t)
	if err := m.server.Client().Apply(t.Context(), m.document(
		"{apiVersion: v1, kind: Service, metadata: {name: data-base}, spec: {ports: [{name: sql, port: 5432}]}}")); err != nil {
		t.Fatal(err)
	}
	var s v1.Service
	if err := m.server.Client().Get(t.Context(), cluster.Object{"kind": "Service", "metadata": map[string]any{"name": "data-base"}}, &s); err != nil {
		t.Fatal(err)
	}
	m.eventually("a new pod has them", func(ctx context.Context) error {
		m.bind(m.podOf("user", "echo $DATA_BASE_SERVICE_HOST:$DATA_BASE_SERVICE_PORT_SQL $KUBERNETES_SERVICE_PORT > /out/.user; mv /out/.user /out/user", "restartPolicy: Never"))
		m.shown("user", "succeeded", isIn(v1.PodSucceeded))
		got := strings.TrimSpace(m.contents("user"))
		m.delete("user")
		m.gone("user")
		if want := s.Spec.ClusterIP + ":5432 443"; got != want { // the watch may have come later
			return fmt.Errorf("got %q, want %q", got, want)
		}
		return nil
	})
}

// TestAPodOnTheNodesNetworkIsProbedWhereItsServicesReachIt: at the node's address, as by a
// kubelet of a cluster. What listens there alone is healthy.
func TestAPodOnTheNodesNetworkIsProbedWhereItsServicesReachIt(t *testing.T) {
	m := join(t)
	port := m.node.Port + 4
	script := fmt.Sprintf("mkdir /tmp/w; echo hello > /tmp/w/index.html; httpd -p $HOST_IP:%d -h /tmp/w; : > /out/web; ${REST}", port)
	probe := fmt.Sprintf("readinessProbe: {httpGet: {path: /index.html, port: %d}, periodSeconds: 1, timeoutSeconds: 30}", port)
	m.bind(withFields(m.podOf("web", script, "hostNetwork: true"), probe, "env: [{name: HOST_IP, valueFrom: {fieldRef: {fieldPath: status.hostIP}}}]"))
	if p := m.shown("web", "ready", isReady); p.Status.PodIP != p.Status.HostIP {
		t.Errorf("podIP %s, hostIP %s", p.Status.PodIP, p.Status.HostIP)
	}
	m.delete("web")
	m.gone("web")
}
