package agent_test

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"podd/agent"
	"podd/cluster/apiserver"
	"podd/cri/critest/state"
	"podd/internal/pod"
	"podd/podconfig"
	podsource "podd/podconfig/apiserver"
	"podd/status"
)

// clustered is a node whose pods come from an apiserver, by the real client, source and
// uploader, in simulated time.
type clustered struct {
	*scenario
	api  *fakeAPI
	dir  string // of the stored pods
	halt func() // ends podd, and nothing else
}

// stop ends podd and the machine.
func (c *clustered) stop() {
	c.halt()
	c.end()
}

const kubeconfigText = `{apiVersion: v1, kind: Config, current-context: c, clusters: [{name: c, cluster: {server: "http://apiserver.test"}}],
users: [{name: u, user: {token: t}}], contexts: [{name: c, context: {cluster: c, user: u}}]}`

// boot starts a machine on which nothing runs, and its podd.
func boot(t *testing.T, api *fakeAPI, dir string) *clustered {
	t.Helper()
	return newNode(newFakeRuntime(t)).join(api, dir, nil)
}

// join starts a podd on a machine; responded, if it is not nil, is when its runtime responds.
func (n *node) join(api *fakeAPI, dir string, responded <-chan struct{}) *clustered {
	t := n.t
	t.Helper()
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(kubeconfig, []byte(kubeconfigText), 0o600); err != nil {
		t.Fatal(err)
	}
	client, err := apiserver.Connect(apiserver.Config{Kubeconfig: kubeconfig, WrapTransport: api.transport})
	if err != nil {
		t.Fatal(err)
	}
	n.sources = []pod.Source{pod.SourceAPIServer}
	c := &clustered{scenario: &scenario{node: n, began: time.Now(), files: map[string][]byte{}}, api: api, dir: dir}
	var uploader *status.Uploader
	writer := status.NewWriter(status.Config{OnForget: func(p *v1.Pod) { uploader.PodRemoved(p) }})
	log := slog.New(slog.NewTextHandler(logTo{t}, nil))
	uploader = status.NewUploader(client, writer, log)
	source := podsource.New(podsource.Config{Lister: seen{client, uploader}, NodeName: "node0", Server: client.Server(), StateDir: dir, Log: log})
	conf := podconfig.New(podconfig.Config{Sources: []podconfig.Source{source}, Log: log})
	n.edit = func(_ context.Context, _ *podd, cfg *agent.Config) {
		cfg.Status = both{n, writer}
		if responded != nil {
			parts := cfg.Parts
			cfg.AwaitRuntime = func(context.Context) (agent.Parts, error) {
				select {
				case <-responded:
					return parts, nil
				default:
					return agent.Parts{}, pod.ErrUnavailable
				}
			}
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	n.start()
	ended := make(chan struct{}, 3)
	go func() { _ = conf.Run(ctx); ended <- struct{}{} }()
	go func() { _ = uploader.Run(ctx); ended <- struct{}{} }()
	go func() {
		for u := range conf.Updates() {
			n.send(u)
		}
		ended <- struct{}{}
	}()
	c.halt = func() {
		cancel()
		for range 3 {
			<-ended
		}
		n.stop(false)
	}
	return c
}

// both are the test's status and the one that is uploaded.
type both struct {
	*node
	*status.Writer
}

func (b both) Report(r pod.Report) { b.node.Report(r); b.Writer.Report(r) }
func (b both) Forget(uid pod.UID)  { b.node.Forget(uid); b.Writer.Forget(uid) }
func (b both) Drop(uid pod.UID)    { b.node.Drop(uid); b.Writer.Drop(uid) }

// seen has the uploader see what the source sees, as node has it.
type seen struct {
	*apiserver.Client
	uploader *status.Uploader
}

func (s seen) FollowPods(ctx context.Context, node string, set func([]*v1.Pod, error)) {
	s.Client.FollowPods(ctx, node, func(pods []*v1.Pod, err error) {
		if err == nil {
			s.uploader.ObservePods(pods)
		}
		set(pods, err)
	})
}

// running are the pods of which a container runs, by name and the number of its restarts.
func (c *clustered) running() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := map[string]int{}
	for _, k := range c.rt.Containers() {
		if k.State == state.Running {
			out[k.Sandbox.Pod] = int(k.Data.RestartCount)
		}
	}
	return out
}

func (c *clustered) exit(name string) {
	c.t.Helper()
	c.play("exit " + name + "/main code=1")
}

func TestThroughAnOutagePodsRunOnAndEachChangedOneIsPatchedOnce(t *testing.T) {
	for _, how := range []outage{away, tooMany, broken, half, hanging} {
		t.Run(string(how), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := newFakeAPI(t)
				for i := range 6 {
					api.create(fmt.Sprintf("p%d", i), "")
				}
				c := boot(t, api, filepath.Join(t.TempDir(), "pods"))
				defer c.stop()
				time.Sleep(time.Minute)
				if got := len(c.running()); got != 6 || len(api.unready()) > 0 {
					t.Fatalf("before: %d run, %q are not ready in the apiserver", got, api.unready())
				}
				api.fail(how)
				var early runtime.MemStats
				goroutines := 0
				for minute := range 60 {
					time.Sleep(time.Minute)
					if minute%15 == 14 {
						c.exit("p0")
						c.exit("p1")
					}
					if minute == 10 {
						goroutines = runtime.NumGoroutine()
						runtime.GC()
						runtime.ReadMemStats(&early)
					}
				}
				time.Sleep(4 * time.Minute)
				var late runtime.MemStats
				runtime.GC()
				runtime.ReadMemStats(&late)
				if now := runtime.NumGoroutine(); now > goroutines+6 || late.HeapInuse > early.HeapInuse+(4<<20) {
					t.Errorf("after ten minutes %d goroutines and a heap of %d KiB, after an hour %d and %d", goroutines, early.HeapInuse>>10, now, late.HeapInuse>>10)
				}
				if got, want := c.running(), map[string]int{"p0": 4, "p1": 4, "p2": 0, "p3": 0, "p4": 0, "p5": 0}; !maps.Equal(got, want) {
					t.Errorf("during the outage: %v run, want %v", got, want)
				}
				asked := api.did()
				// A list and two statuses every ten seconds at most; or when a 429 says, five.
				if n := asked["requests"]; n > 2400 {
					t.Errorf("an hour without the apiserver: %d requests", n)
				}
				api.create("late", "")
				api.fail(none)
				time.Sleep(time.Minute)
				did := api.did()
				if did["patch p0"] != 1 || did["patch p1"] != 1 || did["patch late"] == 0 || did["patch p2"]+did["patch p3"]+did["patch p4"]+did["patch p5"] != 0 {
					t.Errorf("after the outage: got %v, want one patch of each of p0 and p1, and none of the others", did)
				}
				if got := c.running(); len(got) != 7 || len(api.unready()) > 0 {
					t.Errorf("after the outage: %v run, %q are not ready in the apiserver", got, api.unready())
				}
			})
		})
	}
}

func TestAMachineThatBootsWithoutItsApiserverRunsWhatItHad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api, dir := newFakeAPI(t), filepath.Join(t.TempDir(), "pods")
		for _, name := range []string{"stays", "deleted", "recreated", "changed", "ended"} {
			api.create(name, "")
		}
		first := boot(t, api, dir)
		time.Sleep(time.Minute)
		api.edit("ended", func(p *v1.Pod) { p.Status.Phase = v1.PodFailed })
		time.Sleep(time.Minute)
		first.stop()

		api.fail(away)
		c := boot(t, api, dir)
		defer c.stop()
		time.Sleep(9 * time.Second)
		if got := c.running(); len(got) > 0 {
			t.Errorf("after 9s %v run: the apiserver may still answer", got)
		}
		time.Sleep(time.Minute)
		c.exit("stays")
		time.Sleep(time.Hour)
		want := map[string]int{"stays": 1, "deleted": 0, "recreated": 0, "changed": 0}
		if got := c.running(); !maps.Equal(got, want) {
			t.Errorf("without the apiserver %v run, want %v", got, want)
		}
		api.did()
		api.remove("deleted")
		api.remove("recreated")
		api.create("recreated", "-2")
		api.edit("changed", func(p *v1.Pod) { p.Spec.Containers[0].Image = "another" })
		api.create("new", "")
		api.fail(none)
		time.Sleep(2 * time.Minute)
		want = map[string]int{"stays": 1, "recreated": 0, "changed": 1, "new": 0}
		if got := c.running(); !maps.Equal(got, want) {
			t.Errorf("the apiserver is back: %v run, want %v", got, want)
		}
		if did := api.did(); did["patch stays"] != 1 || did["patch deleted"] != 0 {
			t.Errorf("got %v", did)
		}
		if left := api.unready(); !slices.Equal(left, []string{"ended"}) {
			t.Errorf("%q are not ready", left)
		}
		// A second boot has the new set.
		time.Sleep(2 * time.Second)
		entries, err := os.ReadDir(dir)
		if err != nil || len(entries) != 4 {
			t.Errorf("got %v, %v, want four stored pods", entries, err)
		}
	})
}

// The watch of a node that was away for long is too old for the apiserver.
func TestAWatchThatIsTooOldBeginsAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newFakeAPI(t)
		api.create("a", "")
		api.create("b", "")
		c := boot(t, api, filepath.Join(t.TempDir(), "pods"))
		defer c.stop()
		time.Sleep(time.Minute)
		api.fail(away)
		time.Sleep(time.Minute)
		api.remove("b")
		api.create("c", "")
		api.compact()
		api.fail(none)
		time.Sleep(time.Minute)
		if got, want := c.running(), map[string]int{"a": 0, "c": 0}; !maps.Equal(got, want) {
			t.Errorf("%v run, want %v", got, want)
		}
		if did := api.did(); did["gone"] == 0 {
			t.Errorf("got %v: no watch was refused as too old", did)
		}
		// And one that it ends in the middle.
		api.expire()
		api.create("d", "")
		time.Sleep(time.Minute)
		if got, want := c.running(), map[string]int{"a": 0, "c": 0, "d": 0}; !maps.Equal(got, want) {
			t.Errorf("%v run, want %v", got, want)
		}
	})
}
