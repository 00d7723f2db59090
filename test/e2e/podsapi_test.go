package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	podsapi "k8s.io/kubelet/pkg/apis/pods/v1alpha1"
)

// podsClient is a client of the PodsAPI.
func (e *env) podsClient() podsapi.PodsClient {
	e.Helper()
	conn, err := grpc.NewClient("unix://"+filepath.Join(e.node.Root(), "pods-api", "pods-api.sock"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		e.Fatal(err)
	}
	e.Cleanup(func() { conn.Close() })
	return podsapi.NewPodsClient(conn)
}

// podWatch is a watch of the PodsAPI after its first pods.
type podWatch struct {
	*env
	events grpc.ServerStreamingClient[podsapi.WatchPodsEvent]
	first  map[types.UID]*v1.Pod
}

func (e *env) watchPods(ctx context.Context, client podsapi.PodsClient) *podWatch {
	e.Helper()
	events, err := client.WatchPods(ctx, &podsapi.WatchPodsRequest{})
	if err != nil {
		e.Fatal(err)
	}
	w := &podWatch{e, events, map[types.UID]*v1.Pod{}}
	for {
		kind, p := w.next()
		if kind == podsapi.EventType_INITIAL_SYNC_COMPLETE {
			return w
		}
		if kind != podsapi.EventType_ADDED {
			e.Fatalf("%v before the first pods are complete", kind)
		}
		w.first[p.UID] = p
	}
}

func (w *podWatch) next() (podsapi.EventType, *v1.Pod) {
	w.Helper()
	event, err := w.events.Recv()
	p := &v1.Pod{}
	if err == nil {
		err = p.Unmarshal(event.Pod)
	}
	if err != nil {
		w.Fatal(err)
	}
	return event.Type, p
}

// until reads the events of the pod with that name until one is the last, and returns their
// types.
func (w *podWatch) until(name string, last func(podsapi.EventType, *v1.Pod) bool) (types []podsapi.EventType) {
	w.Helper()
	for {
		kind, p := w.next()
		if p.Name != name {
			continue
		}
		if kind != podsapi.EventType_DELETED && (p.Status.Phase == "" || len(p.Spec.Containers) != 1) {
			w.Errorf("%v of %s without a status or a spec: %v", kind, name, p)
		}
		if types = append(types, kind); last(kind, p) {
			return types
		}
	}
}

// What upstream's test (e2e_node, pods_api_test.go) expects: pods are listed, got and watched,
// each is added, modified and deleted once, and no pod that runs is missing or not ready after
// a restart of the agent.
func TestTheNodesPodsAreOnThePodsAPI(t *testing.T) {
	e := begin(t)
	e.write("web.yaml", e.resting("web"))
	web := e.ready("web")
	client := e.podsClient()
	ctx, cancel := context.WithTimeout(t.Context(), 3*patience)
	defer cancel()

	list, err := client.ListPods(ctx, &podsapi.ListPodsRequest{}, grpc.WaitForReady(true))
	if err != nil || len(list.Pods) != 1 {
		t.Fatalf("got %v, %v", list, err)
	}
	one, err := client.GetPod(ctx, &podsapi.GetPodRequest{PodUID: string(web.UID)})
	if err != nil || string(one.Pod) != string(list.Pods[0]) {
		t.Errorf("GetPod: got %v, %v, want what ListPods has", one, err)
	}
	w := e.watchPods(ctx, client)
	if p := w.first[web.UID]; len(w.first) != 1 || p == nil || p.Name != web.Name || condition(p, v1.PodReady) != v1.ConditionTrue {
		t.Errorf("the watch begins with %v", w.first)
	}
	name := "second-" + e.podd.NodeName()
	e.write("second.yaml", e.resting("second"))
	began := w.until(name, func(_ podsapi.EventType, p *v1.Pod) bool { return condition(p, v1.PodReady) == v1.ConditionTrue })
	e.remove("second.yaml")
	ended := w.until(name, func(kind podsapi.EventType, _ *v1.Pod) bool { return kind == podsapi.EventType_DELETED })
	for i, kind := range append(began[1:], ended[:len(ended)-1]...) {
		if began[0] != podsapi.EventType_ADDED || kind != podsapi.EventType_MODIFIED {
			t.Errorf("event %d: got %v then %v", i, began, ended)
			break
		}
	}
	body, err := e.podd.Get(ctx, "/metrics")
	if want := `kubelet_pod_requests_get_total{server_api_version="v1alpha1",status_code="OK"} 1`; err != nil || !strings.Contains(string(body), want) {
		t.Errorf("/metrics lacks %s (%v)", want, err)
	}
	if info, err := os.Stat(filepath.Join(e.node.Root(), "pods-api", "pods-api.sock")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the socket is %v, %v", info, err)
	}

	e.kill()
	e.start()
	e.eventually("the PodsAPI answers after a crash", func(ctx context.Context) error {
		got, err := client.GetPod(ctx, &podsapi.GetPodRequest{PodUID: string(web.UID)})
		switch status.Code(err) {
		case codes.Unavailable, codes.FailedPrecondition:
			return err
		case codes.OK:
		default:
			t.Errorf("while podd starts, a pod that runs is %v", err)
			return nil
		}
		p := &v1.Pod{}
		if err := p.Unmarshal(got.Pod); err != nil {
			return err
		}
		if condition(p, v1.PodReady) != v1.ConditionTrue {
			t.Errorf("after the restart, a pod that runs is not ready: %s", fmt.Sprint(p.Status))
		}
		return nil
	})
	if w := e.watchPods(ctx, client); w.first[web.UID] == nil {
		t.Errorf("the watch begins with %v", w.first)
	}
}

// setLabel sets the only label of a pod of the cluster.
func (m *member) setLabel(name, key, value string) {
	m.Helper()
	m.eventually("the label of "+name+" is set", func(ctx context.Context) error {
		var p v1.Pod
		if err := m.server.Client().Get(ctx, podNamed(name), &p); err != nil {
			return err
		}
		p.Labels = map[string]string{key: value}
		return m.server.Client().Put(ctx, podNamed(name), &p) // fails if podd has written its status in between
	})
}

// What upstream's test expects of pods of an apiserver: each change of the object is an event,
// and so is the request to delete it.
func TestChangesOfAPodOfTheClusterAreOnThePodsAPI(t *testing.T) {
	m := join(t)
	client := m.podsClient()
	m.eventually("the PodsAPI knows all pods", func(ctx context.Context) error {
		_, err := client.ListPods(ctx, &podsapi.ListPodsRequest{})
		return err
	})
	ctx, cancel := context.WithTimeout(t.Context(), 3*patience)
	defer cancel()
	w := m.watchPods(ctx, client)
	m.bind(m.resting("web"))
	ready := func(_ podsapi.EventType, p *v1.Pod) bool { return condition(p, v1.PodReady) == v1.ConditionTrue }
	if types := w.until("web", ready); types[0] != podsapi.EventType_ADDED {
		t.Errorf("it begins with %v", types)
	}
	for _, state := range []string{"one", "two"} {
		m.setLabel("web", "state", state)
		w.until("web", func(kind podsapi.EventType, p *v1.Pod) bool {
			return kind == podsapi.EventType_MODIFIED && p.Labels["state"] == state && p.Status.Phase == v1.PodRunning
		})
	}
	m.delete("web")
	terminating := false
	w.until("web", func(kind podsapi.EventType, p *v1.Pod) bool {
		if kind == podsapi.EventType_DELETED {
			return true
		}
		if terminating && p.DeletionTimestamp == nil || kind != podsapi.EventType_MODIFIED {
			t.Errorf("after the request to delete it: %v of %v", kind, p.ObjectMeta)
		}
		terminating = terminating || p.DeletionTimestamp != nil
		return false
	})
	if !terminating {
		t.Error("no event has the request to delete the pod")
	}
	m.gone("web")
}
