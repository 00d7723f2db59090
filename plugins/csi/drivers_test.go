package csi

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"podd/internal/pod"
)

const driverName = "disk.example.com"

func TestADriverIsFoundAtTheStartAndLater(t *testing.T) {
	root, err := os.MkdirTemp("", "csi")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(root) }) // after the nodes have ended, which write into it
	before := newNode(t, root)
	before.stop()
	first := newFake(t, driverName).serve().register(before)
	n := newNode(t, root)
	n.has(driverName)
	if s := <-first.status; !s.PluginRegistered || s.Error != "" {
		t.Errorf("the registrar got %v", s)
	}
	second := newFake(t, "other.example.com").serve().register(n)
	n.has("other.example.com")
	<-second.status
	second.stop()
	eventually(t, "a driver whose socket is gone is forgotten", func() bool { return len(n.Drivers()) == 1 })
	if d, err := n.drivers.driver(driverName, ""); err != nil || d.nodeID != "here" || d.endpoint != first.endpoint() {
		t.Errorf("got %+v, %v", d, err)
	}
}

// registerAs is fake.register with another name of the socket.
func registerAs(f *fake, n *testNode, file string) {
	s := grpc.NewServer()
	registration.RegisterRegistrationServer(s, registrar{f: f})
	f.listen(s, filepath.Join(n.plugins.Dir(), file))
}

// The registrar and the pods that wait for the driver get the reason.
func TestAnInvalidDriverIsRejectedWithAReason(t *testing.T) {
	for name, tc := range map[string]struct {
		spoil func(*fake)
		// heard is the error for the registrar, empty for none; said the one for a pod.
		heard, said string
		late        bool // it answers, if ever, when nobody waits any more
	}{
		"lies about its name": {func(f *fake) { f.says = "other.example.com" },
			`says that it is "other.example.com", and its registrar that it is "disk.example.com"`, `says that it is "other.example.com"`, false},
		"has no version": {func(f *fake) { f.versions = nil },
			"empty array for supported versions", "empty array", false},
		"has an unsupported version": {func(f *fake) { f.versions = []string{"2.0.0"} },
			"could not find a highest supported version", "could not find a highest", false},
		"does not know its node": {func(f *fake) {
			f.on("NodeGetInfo", func(context.Context) error { return status.Error(codes.Internal, "no such node") })
		}, "no such node", "no such node", false},
		"answers late itself": {func(f *fake) {
			f.on("NodeGetInfo", func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
		}, "DeadlineExceeded", "DeadlineExceeded", true},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, "", func(v *Volumes) {
				if tc.late {
					v.drivers.timeout = 200 * time.Millisecond
				}
			})
			f := newFake(t, driverName)
			tc.spoil(f)
			f.serve().register(n)
			if tc.heard != "" {
				if s := <-f.status; s.PluginRegistered || !strings.Contains(s.Error, tc.heard) {
					t.Errorf("the registrar got %v, want %q", s, tc.heard)
				}
			}
			eventually(t, "a pod hears why", func() bool {
				_, err := n.drivers.driver(driverName, "")
				return err != nil && strings.Contains(err.Error(), "driver name disk.example.com not found in the list of registered CSI drivers") && strings.Contains(err.Error(), tc.said)
			})
			if len(n.Drivers()) > 0 {
				t.Errorf("registered: %v", n.Drivers())
			}
		})
	}
}

func TestAFailedRegistrationIsRetriedOnTheSameSocket(t *testing.T) {
	n := newNode(t, "")
	f := newFake(t, driverName)
	f.on("NodeGetInfo", func(context.Context) error { return status.Error(codes.Unavailable, "starting") })
	f.serve().register(n)
	if s := <-f.status; s.PluginRegistered {
		t.Fatal("registered at once")
	}
	f.on("NodeGetInfo", nil)
	n.has(driverName)
}

func TestASecondDriverOfTheSameNameIsRejectedUnlessItIsNewer(t *testing.T) {
	n := newNode(t, "")
	newFake(t, driverName).serve().register(n)
	n.has(driverName)
	second := newFake(t, driverName)
	second.serve()
	registerAs(second, n, "second.sock")
	if s := <-second.status; s.PluginRegistered || !strings.Contains(s.Error, "another driver with the same name is already registered") {
		t.Errorf("the registrar got %v", s)
	}
	third := newFake(t, driverName).serve()
	third.versions = []string{"1.1.0"}
	registerAs(third, n, "third.sock")
	if s := <-third.status; !s.PluginRegistered {
		t.Errorf("the registrar of the newer one got %v", s)
	}
	if d, err := n.drivers.driver(driverName, ""); err != nil || d.endpoint != third.endpoint() {
		t.Errorf("got %+v, %v, want the newer one", d, err)
	}
}

// The newer driver has its own plugin: the end of the older one's is no end of the driver.
func TestADriverOutlivesThePluginThatItReplaced(t *testing.T) {
	n := newNode(t, "")
	first := newFake(t, driverName).serve().register(n)
	n.has(driverName)
	newer := newFake(t, driverName).serve()
	newer.versions = []string{"1.1.0"}
	registerAs(newer, n, "newer.sock")
	if s := <-newer.status; !s.PluginRegistered {
		t.Fatalf("the registrar got %v", s)
	}
	first.stop()
	third := newFake(t, "other.example.com").serve().register(n) // the registry has seen the end of the first by then
	n.has(third.name)
	third.stop()
	eventually(t, "the third is forgotten", func() bool { return len(n.Drivers()) == 1 })
	if d, err := n.drivers.driver(driverName, ""); err != nil || d.endpoint != newer.endpoint() {
		t.Errorf("got %+v, %v, want the newer one", d, err)
	}
}

func TestPodsThatWaitForADriverAreWokenWhenItRegisters(t *testing.T) {
	n := newNode(t, "")
	_, err := n.SetUp(t.Context(), n.persistent("a", driverName, "h"))
	want := "kubernetes.io/csi: mounter.SetUpAt failed to get CSI client: driver name disk.example.com not found in the list of registered CSI drivers"
	if err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Fatalf("got %v, want upstream's words", err)
	}
	newFake(t, "other.example.com").serve().register(n)
	n.has("other.example.com")
	newFake(t, driverName, csipb.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME).serve().register(n)
	if uid := <-n.woken; uid != pod.UID("a") {
		t.Errorf("woke %s", uid)
	}
	n.mustSetUp(n.persistent("a", driverName, "h"))
	if len(n.woken) > 0 {
		t.Errorf("also woke %s", <-n.woken)
	}
}

// Nor for another registration, once it has the driver.
func TestAPodIsWokenOnceForADriver(t *testing.T) {
	n := newNode(t, "")
	if _, err := n.drivers.driver(driverName, "a"); err == nil {
		t.Fatal("found")
	}
	f := newFake(t, driverName)
	for range 2 {
		f.serve().register(n)
		if s := <-f.status; !s.PluginRegistered {
			t.Fatalf("the registrar got %v", s)
		}
		f.stop()
		eventually(t, "the driver is forgotten", func() bool { return len(n.Drivers()) == 0 })
	}
	if got := len(n.woken); got != 1 {
		t.Errorf("the pod was woken %d times, want once", got)
	}
}

// The reason for its first failure is none for the time after its end.
func TestADriverThatWasRegisteredIsNotRejected(t *testing.T) {
	n := newNode(t, "")
	f := newFake(t, driverName)
	f.on("NodeGetInfo", func(context.Context) error { return status.Error(codes.Unavailable, "starting") })
	f.serve().register(n)
	<-f.status
	f.on("NodeGetInfo", nil)
	n.has(driverName)
	newer := newFake(t, driverName)
	newer.versions = []string{"1.1.0"}
	newer.serve()
	registerAs(newer, n, "newer.sock")
	<-newer.status
	newer.stop()
	eventually(t, "the newer one is forgotten", func() bool { return len(n.Drivers()) == 0 })
	if _, err := n.drivers.driver(driverName, ""); err == nil || strings.Contains(err.Error(), "rejected") {
		t.Errorf("got %v", err)
	}
}

func TestAPodStopsWaitingForADriverWhenItIsTornDown(t *testing.T) {
	n := newNode(t, "")
	if _, err := n.drivers.driver(driverName, "a"); err == nil {
		t.Fatal("found")
	}
	n.drivers.removeWaiting(driverName, "a")
	if len(n.drivers.waiting) > 0 {
		t.Errorf("still waiting: %v", n.drivers.waiting)
	}
}
