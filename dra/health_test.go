package dra

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"google.golang.org/grpc"
	v1 "k8s.io/api/core/v1"
	healthapi "k8s.io/kubelet/pkg/apis/dra-health/v1alpha1"
)

func report(name string, health healthapi.HealthStatus, seconds int64, message string) []*healthapi.DeviceHealth {
	return []*healthapi.DeviceHealth{{Device: &healthapi.DeviceIdentifier{PoolName: "pool", DeviceName: name}, Health: health, HealthCheckTimeoutSeconds: seconds, Message: message}}
}

// shown is the health of a pod's container "c", as text.
func (r *rig) shown() string {
	p := aPod("web", "big")
	p.Spec.Containers[0].Resources.Claims = append(p.Spec.Containers[0].Resources.Claims, v1.ResourceClaim{Name: "my-big", Request: "b"})
	var all []string
	for _, s := range r.Health(p)["c"] {
		for _, d := range s.Resources {
			text := fmt.Sprintf("%s %s %s", s.Name, strings.TrimPrefix(string(d.ResourceID), gpu+"/gpu="), d.Health)
			if d.Message != nil {
				text += " " + *d.Message
			}
			all = append(all, text)
		}
	}
	return strings.Join(all, "; ")
}

func TestTheHealthOfDevices(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		f := newFake(gpu)
		r.plug(f)
		p := aPod("web", "big")
		r.api.add("big", "c1", gpu, p)
		r.prepares(p)
		expect := func(when string, woken int, want string) {
			t.Helper()
			synctest.Wait()
			if got := r.shown(); got != want || r.of(p.UID) != woken {
				t.Errorf("%s: got %q and %d wakes, want %q and %d", when, got, r.of(p.UID), want, woken)
			}
		}
		unknown := "claim:my-big big-0 Unknown; claim:my-big big-1 Unknown; claim:my-big/b big-1 Unknown"
		expect("before a report", 0, unknown)
		f.health <- report("1", healthapi.HealthStatus_UNHEALTHY, 0, "hot")
		f.health <- report("0", healthapi.HealthStatus_HEALTHY, 300, "")
		expect("reported", 2, "claim:my-big big-0 Healthy; claim:my-big big-1 Unhealthy hot; claim:my-big/b big-1 Unhealthy hot")
		f.health <- report("0", healthapi.HealthStatus_HEALTHY, 300, "")
		f.health <- report("of nobody", healthapi.HealthStatus_HEALTHY, 300, "")
		expect("no news", 2, "claim:my-big big-0 Healthy; claim:my-big big-1 Unhealthy hot; claim:my-big/b big-1 Unhealthy hot")
		time.Sleep(31 * time.Second)
		expect("one has expired", 3, "claim:my-big big-0 Healthy; claim:my-big big-1 Unknown; claim:my-big/b big-1 Unknown")
		f.health <- report("1", healthapi.HealthStatus_HEALTHY, 1<<60, "")
		close(f.health)
		expect("the stream has ended", 5, unknown)
		r.stop()
	})
}

func TestAMessageIsCutBetweenCharacters(t *testing.T) {
	if got := messageOf(strings.Repeat("x", 1020) + "€€"); len(got) > v1.ResourceHealthMessageMaxLength || !utf8.ValidString(got) || !strings.HasSuffix(got, "x...") {
		t.Errorf("got %d bytes, %q", len(got), got[1000:])
	}
	if got := messageOf(strings.Repeat("x", 1024)); len(got) != 1024 {
		t.Errorf("got %d bytes", len(got))
	}
}

// Over a socket: a driver with the service, and one without, which is not asked again.
func TestHealthIsReportedByADriverThatHasTheService(t *testing.T) {
	r := newRig(t, nil)
	f := newFake(gpu)
	path, _ := r.serve(f, "gpu.sock", func(s *grpc.Server) { healthapi.RegisterDRAResourceHealthServer(s, watched{fake: f}) })
	r.register(gpu, path)
	p := aPod("web", "big")
	r.api.add("big", "c1", gpu, p)
	r.prepares(p)
	f.health <- report("0", healthapi.HealthStatus_HEALTHY, 0, "")
	r.eventually("it is shown", func() bool { return strings.HasPrefix(r.shown(), "claim:my-big big-0 Healthy") })
	r.Deregister(gpu, path)
	if got := r.shown(); !strings.HasPrefix(got, "claim:my-big big-0 Unknown") {
		t.Errorf("got %q", got)
	}
}
