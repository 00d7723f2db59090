package dra

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	v1 "k8s.io/api/core/v1"
	healthapi "k8s.io/kubelet/pkg/apis/dra-health/v1"
	healthalpha "k8s.io/kubelet/pkg/apis/dra-health/v1alpha1"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"
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
	if got := messageOf(strings.Repeat("x", 1024)); got != strings.Repeat("x", 1024) {
		t.Errorf("as long as it may be: got %d bytes, %q", len(got), got[1000:])
	}
}

// A pod is woken by each change that its status shows, and by no other.
func TestAPodIsWokenWhenTheHealthOfItsDeviceChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		defer r.stop()
		older, newer := newFake(gpu), newFake(gpu)
		r.plug(older)
		p, shown := aPod("web", "big"), func() string { text, _, _ := strings.Cut(r.shown(), ";"); return text }
		r.api.add("big", "c1", gpu, p)
		r.prepares(p)
		for i, step := range []struct {
			from  *fake
			that  []*healthapi.DeviceHealth // reported
			wait  time.Duration
			woken int
			want  string
		}{
			{older, report("0", healthapi.HealthStatus_HEALTHY, 300, ""), 0, 1, "Healthy"},
			{older, report("0", healthapi.HealthStatus_HEALTHY, 300, ""), 0, 1, "Healthy"},
			{older, report("0", healthapi.HealthStatus_UNHEALTHY, 300, ""), 0, 2, "Unhealthy"},
			{older, report("0", healthapi.HealthStatus_UNHEALTHY, 300, "hot"), 0, 3, "Unhealthy hot"},
			{older, report("0", healthapi.HealthStatus_HEALTHY, 300, "cool"), 0, 4, "Healthy cool"},
			{older, report("0", healthapi.HealthStatus_UNKNOWN, 300, "cool"), 0, 5, "Unknown cool"},
			{older, report("0", healthapi.HealthStatus_HEALTHY, 300, "cool"), 299 * time.Second, 6, "Healthy cool"},
			{older, nil, 2 * time.Second, 7, "Unknown"}, // it has expired
			{older, report("0", healthapi.HealthStatus_HEALTHY, 1<<60, ""), 364 * 24 * time.Hour, 8, "Healthy"},
			{older, nil, 2 * 24 * time.Hour, 9, "Unknown"}, // a year is the most
			{older, report("0", healthapi.HealthStatus_HEALTHY, 300, "of the older instance"), 0, 10, "Healthy of the older instance"},
			{newer, report("0", healthapi.HealthStatus_UNHEALTHY, 300, "of the newer"), 0, 11, "Unhealthy of the newer"},
		} {
			if step.from == newer {
				r.plug(newer)
			}
			if step.that != nil {
				step.from.health <- step.that
			}
			time.Sleep(step.wait)
			synctest.Wait()
			if got := strings.TrimPrefix(shown(), "claim:my-big big-0 "); got != step.want || r.of(p.UID) != step.woken {
				t.Errorf("step %d: got %q and %d wakes, want %q and %d", i, got, r.of(p.UID), step.want, step.woken)
			}
		}
		r.Deregister(gpu, endpointOf(newer))
		synctest.Wait()
		if got := shown(); got != "claim:my-big big-0 Healthy of the older instance" || r.of(p.UID) < 12 {
			t.Errorf("the newer is gone: got %q and %d wakes, want the older one's and another wake", got, r.of(p.UID))
		}
	})
}

func TestADriverIsAskedForHealthAgainUnlessItDoesNotKnowTheCall(t *testing.T) {
	away, unknown := status.Error(codes.Unavailable, "away"), status.Error(codes.Unimplemented, "what?")
	for name, c := range map[string]struct {
		unwatchable, unreported error
		asked                   int // within 11 seconds
	}{
		"it does not know the call":             {unwatchable: unknown, asked: 1},
		"it says so later":                      {unreported: unknown, asked: 1},
		"it is away":                            {unwatchable: away, asked: 3},
		"it ends the stream":                    {unreported: away, asked: 3},
		"it goes on, and nothing else is asked": {asked: 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, f := newRig(t, nil), newFake(gpu)
				defer r.stop()
				f.unwatchable, f.unreported = c.unwatchable, c.unreported
				r.plug(f)
				time.Sleep(11 * time.Second)
				synctest.Wait()
				f.mu.Lock()
				defer f.mu.Unlock()
				if f.watches != c.asked {
					t.Errorf("asked %d times in 11 s, want %d", f.watches, c.asked)
				}
			})
		})
	}
}

// An instance that reports more than it may is asked for it anew, as after any other end.
func TestAReportThatIsTooLongEndsTheStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, f := newRig(t, nil), newFake(gpu)
		defer r.stop()
		r.plug(f)
		p := aPod("web", "big")
		r.api.add("big", "c1", gpu, p)
		r.prepares(p)
		f.health <- append(report("0", healthapi.HealthStatus_HEALTHY, 300, ""), report(strings.Repeat("x", 2*maxName+1), healthapi.HealthStatus_HEALTHY, 0, "")...)
		synctest.Wait()
		if got := r.shown(); !strings.HasPrefix(got, "claim:my-big big-0 Unknown") {
			t.Errorf("got %q, want nothing of that report", got)
		}
		f.health <- report("0", healthapi.HealthStatus_HEALTHY, 300, "")
		time.Sleep(6 * time.Second)
		synctest.Wait()
		if got := r.shown(); !strings.HasPrefix(got, "claim:my-big big-0 Healthy") {
			t.Errorf("the next stream: got %q, want Healthy", got)
		}
	})
}

func TestHealthIsThatOfThePodsOwnClaims(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, f := newRig(t, nil), newFake(gpu)
		defer r.stop()
		r.plug(f)
		p, other := aPod("web", "big"), aPod("other", "big")
		r.api.add("big", "c1", gpu, p, other)
		if got := r.Health(p); got != nil {
			t.Errorf("before its claim is prepared: got %v", got)
		}
		f.prepare = func(_ context.Context, q *drapb.NodePrepareResourcesRequest) (*drapb.NodePrepareResourcesResponse, error) {
			response := f.usual(q)
			response.Claims["c1"].Devices[0].CdiDeviceIds = nil
			return response, nil
		}
		r.prepares(p)
		if got := r.Health(other); got != nil {
			t.Errorf("of another pod's claim: got %v", got)
		}
		wants := &p.Spec.Containers[0].Resources.Claims
		*wants = append(*wants, (*wants)[0], v1.ResourceClaim{Name: "of nobody"})
		var got []string
		for _, s := range r.Health(p)["c"] {
			for _, d := range s.Resources {
				got = append(got, fmt.Sprintf("%s %s", s.Name, d.ResourceID))
			}
		}
		if want := "[claim:my-big gpu.example.com/pool/0 claim:my-big gpu.example.com/gpu=big-1]"; fmt.Sprint(got) != want {
			t.Errorf("got %v, want %s", got, want)
		}
		template := "template"
		p.Spec.ResourceClaims[0] = v1.PodResourceClaim{Name: "my-big", ResourceClaimTemplateName: &template}
		if got := r.Health(p); got != nil {
			t.Errorf("its claim is not made yet: got %v", got)
		}
	})
}

// alphaWatched serves v1alpha1, with its own messages.
type alphaWatched struct {
	healthalpha.UnimplementedDRAResourceHealthServer
	*fake
}

func (w alphaWatched) NodeWatchResources(_ *healthalpha.NodeWatchResourcesRequest, stream grpc.ServerStreamingServer[healthalpha.NodeWatchResourcesResponse]) error {
	for devices := range w.health {
		var of healthalpha.NodeWatchResourcesResponse
		text, err := proto.Marshal(&healthapi.NodeWatchResourcesResponse{Devices: devices})
		if err := errors.Join(err, proto.Unmarshal(text, &of)); err != nil {
			return err
		}
		if err := stream.Send(&of); err != nil {
			return err
		}
	}
	return nil
}

// Over a socket: a driver with the service in its newest version, or in the older one, as
// drivers made for Kubernetes 1.36 have it.
func TestHealthIsReportedByADriverThatHasTheService(t *testing.T) {
	for version, serve := range map[string]func(*grpc.Server, *fake){
		"v1":       func(s *grpc.Server, f *fake) { healthapi.RegisterDRAResourceHealthServer(s, watched{fake: f}) },
		"v1alpha1": func(s *grpc.Server, f *fake) { healthalpha.RegisterDRAResourceHealthServer(s, alphaWatched{fake: f}) },
	} {
		t.Run(version, func(t *testing.T) {
			r := newRig(t, nil)
			f := newFake(gpu)
			path, _ := r.serve(f, "gpu.sock", func(s *grpc.Server) { serve(s, f) })
			defer close(f.health)
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
		})
	}
}
