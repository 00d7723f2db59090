package csi

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"podd/internal/pod"
)

// quiet returns a node for a bubble, on which nothing runs and no driver is called: one is
// known, whose volume h another call holds until the returned function is called.
func quiet(t *testing.T) (n *testNode, unlock func()) {
	t.Helper()
	n = &testNode{t: t, woken: make(chan pod.UID, 100), events: &testEvents{}, objects: &testObjects{drivers: map[string]*storagev1.CSIDriver{}, secrets: map[string]*v1.Secret{}}}
	var err error
	if n.Volumes, err = New(Config{RootDir: t.TempDir(), NodeName: "node", Objects: n.objects, Waker: n, Events: n.events, Cluster: NoCluster, Log: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry()}); err != nil {
		t.Fatal(err)
	}
	n.drivers.plugins = noPlugins{}
	n.drivers.byName[driverName] = &driver{name: driverName}
	if unlock, err = n.locks.Lock(t.Context(), driverName+"^h"); err != nil {
		t.Fatal(err)
	}
	return n, unlock
}

// noPlugins is a registry without any.
type noPlugins struct{}

func (noPlugins) Problem(string) (socket, problem string) { return "", "" }
func (noPlugins) Dir() string                             { return "" }

// recorded writes the record of a volume as an earlier podd has left it.
func (n *testNode) recorded(v pod.CSIVolume) {
	n.t.Helper()
	r := newRecord(&v, "node")
	r.State, r.Boot = stateDone, n.boot
	if err := r.write(v.Dir); err != nil {
		n.t.Fatal(err)
	}
}

// A pod is told after 10 s that its driver is slow, and the work ends after 2 minutes.
func TestHowLongATearDownTakesAtMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, unlock := quiet(t)
		defer unlock()
		v := n.persistent("a", driverName, "h")
		n.recorded(v)
		began := time.Now()
		for _, want := range []time.Duration{10 * time.Second, 20 * time.Second} { // the second joins the first
			err := n.TearDown(t.Context(), v.Dir)
			if took := time.Since(began); took != want || err == nil || !strings.HasSuffix(err.Error(), "has not unpublished it yet: the call continues") {
				t.Errorf("got %v after %v, want that it continues after %v", err, took, want)
			}
		}
		time.Sleep(95 * time.Second)
		err := n.TearDown(t.Context(), v.Dir)
		if took := time.Since(began); took != 2*time.Minute || err == nil || !strings.Contains(err.Error(), "another call for the volume is still in progress") {
			t.Errorf("got %v after %v, want its end after 2 minutes", err, took)
		}
	})
}

func TestHowLongASetUpTakesAtMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, unlock := quiet(t)
		defer unlock()
		v := n.sized("2Gi", "1Gi", v1.PersistentVolumeClaimNodeResizePending)
		n.allow(driverName, nil, storagev1.VolumeLifecyclePersistent)
		cluster := &testCluster{volumes: n.Volumes}
		cluster.has(v)
		n.cluster = cluster
		for what, do := range map[string]func() error{
			"SetUp":        func() error { _, err := n.SetUp(t.Context(), v); return err },
			"an expansion": func() error { return n.expandMounted(t.Context(), v) },
		} {
			began := time.Now()
			err := do()
			if took := time.Since(began); took != 2*time.Minute || err == nil || !strings.Contains(err.Error(), "deadline exceeded") {
				t.Errorf("%s: got %v after %v, want its end after 2 minutes", what, err, took)
			}
		}
		r := newRecord(&v, "node")
		if err := r.write(n.paths(v).stagingRecordDir); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		n.unstageUnused(t.Context(), driverName)
		if took := time.Since(began); took != 2*time.Minute {
			t.Errorf("unstaging what nobody uses: took %v, want 2 minutes", took)
		}
	})
}

// Each minute, as a kubelet does, and not after the pod's end.
func TestWhenAVolumeIsPublishedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, unlock := quiet(t)
		defer unlock()
		n.drivers.byName = map[string]*driver{} // it fails at once, and is tried again
		n.allow(driverName, republishes, storagev1.VolumeLifecycleEphemeral)
		v := n.inline("a", driverName)
		n.recorded(v)
		ctx, cancel := context.WithCancel(t.Context())
		var work sync.WaitGroup
		defer work.Wait()
		defer cancel()
		work.Go(func() { _ = n.Run(ctx) })
		asked := func() bool { // for the driver, for which the pod waits since then
			synctest.Wait()
			n.drivers.mu.Lock()
			defer n.drivers.mu.Unlock()
			waits := n.drivers.waiting[driverName][v.Pod.UID]
			delete(n.drivers.waiting, driverName)
			return waits
		}
		n.Adopt(v)
		for i := range 3 {
			time.Sleep(time.Minute - time.Nanosecond)
			if asked() {
				t.Errorf("attempt %d came early", i+1)
			}
			time.Sleep(time.Nanosecond)
			if !asked() {
				t.Errorf("attempt %d did not come after a minute", i+1)
			}
		}
		n.unfollow(v.Dir)
		time.Sleep(time.Hour)
		if asked() {
			t.Error("it was published again after its end")
		}
	})
}
