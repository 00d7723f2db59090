package dra

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/grpc"
	v1 "k8s.io/api/core/v1"
	quantity "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"
	drabeta "k8s.io/kubelet/pkg/apis/dra/v1beta1"

	"podd/internal/pod"
)

func TestAPodWithoutClaimsCostsNothing(t *testing.T) {
	r := newRig(t, nil)
	p := aPod("plain")
	r.prepares(p)
	if got := r.has(p); got != "" || r.HasPrepared(p.UID) || r.Health(p) != nil || r.Resources(p, &p.Spec.Containers[0]) != nil {
		t.Errorf("got %q", got)
	}
	r.unprepares(p)
	if _, err := os.Stat(r.checkpoint.Path); !os.IsNotExist(err) {
		t.Errorf("there is a checkpoint: %v", err)
	}
	if n, err := testutil.GatherAndCount(r.registry, "dra_operations_duration_seconds"); n != 0 || err != nil {
		t.Errorf("%d series, %v", n, err)
	}
}

// Two pods have one claim: it is prepared once, and unprepared with the last of them.
func TestAClaimIsSharedByPods(t *testing.T) {
	r := newRig(t, nil)
	f := r.served()
	one, two := aPod("one", "big"), aPod("two", "big")
	r.api.add("big", "c1", gpu, one, two)
	r.prepares(one)
	r.prepares(one)
	r.prepares(two)
	r.expect(f, "prepare default/big/c1")
	const all = "gpu.example.com/gpu=big-0 gpu.example.com/common=all gpu.example.com/gpu=big-1"
	if r.has(one) != all || r.has(two) != all {
		t.Errorf("got %q and %q, want %q", r.has(one), r.has(two), all)
	}
	if err := testutil.GatherAndCompare(r.registry, strings.NewReader(`# HELP dra_resource_claims_in_use ResourceClaims that are prepared, by driver and, as <any>, in all: one may have devices of several drivers.
# TYPE dra_resource_claims_in_use gauge
dra_resource_claims_in_use{driver_name="<any>"} 1
dra_resource_claims_in_use{driver_name="gpu.example.com"} 1
`), "dra_resource_claims_in_use"); err != nil {
		t.Error(err)
	}
	r.unprepares(one)
	r.unprepares(one)
	r.expect(f, "")
	if r.HasPrepared(one.UID) || !r.HasPrepared(two.UID) {
		t.Error("not the second pod alone uses it")
	}
	r.unprepares(two)
	r.expect(f, "unprepare default/big/c1")
	r.unprepares(two)
	r.expect(f, "")
	if !strings.Contains(r.has(two), "unable to get claim info for ResourceClaim big in namespace default") {
		t.Errorf("got %q", r.has(two))
	}
}

// What comes later about a claim waits for what goes on, as long as its own pod is wanted.
func TestCallsForOneClaimAreMadeOneAfterTheOther(t *testing.T) {
	r := newRig(t, nil)
	f := r.served()
	one, two, other := aPod("one", "big"), aPod("two", "big"), aPod("other", "small")
	r.api.add("big", "c1", gpu, one, two)
	r.api.add("small", "c2", gpu, other)
	entered, leave := make(chan bool, 1), make(chan bool)
	f.prepare = func(_ context.Context, q *drapb.NodePrepareResourcesRequest) (*drapb.NodePrepareResourcesResponse, error) {
		if q.Claims[0].Name == "big" {
			entered <- true
			<-leave
		}
		return f.usual(q), nil
	}
	first := make(chan error)
	go func() { first <- r.Prepare(t.Context(), one) }()
	<-entered
	r.prepares(other) // its claim is another one
	impatient, cancel := context.WithCancelCause(t.Context())
	second := make(chan error)
	go func() { second <- r.Prepare(impatient, two) }()
	cancel(errors.New("the pod is being stopped"))
	if err := <-second; err == nil || !strings.Contains(err.Error(), "the pod is being stopped") {
		t.Errorf("got %v", err)
	}
	go func() { second <- r.Prepare(t.Context(), two) }()
	close(leave)
	if err := errors.Join(<-first, <-second); err != nil {
		t.Error(err)
	}
	if got := f.heard(); strings.Count(got, "big") != 1 {
		t.Errorf("the driver has heard %q", got)
	}
}

// A podd that is restarted knows what containers have, has it prepared again for a new sandbox
// and unprepares it.
func TestWhatIsPreparedOutlivesPodd(t *testing.T) {
	r := newRig(t, nil)
	p := aPod("web", "big")
	r.api.add("big", "c1", gpu, p)
	r.served()
	r.prepares(p)
	has := r.has(p)
	r = newRig(t, r)
	if got := r.has(p); got != has || !r.HasPrepared(p.UID) || len(r.Problems()) > 0 {
		t.Errorf("after a restart the container has %q, want %q; %v", got, has, r.Problems())
	}
	f := r.served()
	r.prepares(p)
	r.prepares(p)
	r.expect(f, "prepare default/big/c1")
	r.unprepares(p)
	r.expect(f, "unprepare default/big/c1")
	if r = newRig(t, r); r.HasPrepared(p.UID) {
		t.Error("it is remembered after it was unprepared")
	}
}

// podd may be killed during the call: what a driver may have prepared is written down before.
func TestAClaimIsWrittenDownBeforeItsDriverIsCalled(t *testing.T) {
	r := newRig(t, nil)
	f := r.served()
	p := aPod("web", "big")
	r.api.add("big", "c1", gpu, p)
	f.prepare = func(context.Context, *drapb.NodePrepareResourcesRequest) (*drapb.NodePrepareResourcesResponse, error) {
		if text, err := os.ReadFile(r.checkpoint.Path); err != nil || !strings.Contains(string(text), string(p.UID)) {
			t.Errorf("the checkpoint is %s, %v", text, err)
		}
		return nil, errors.New("no")
	}
	r.refused(p, "prepare dynamic resources: NodePrepareResources: rpc error: code = Unknown desc = no")
	if !r.HasPrepared(p.UID) {
		t.Error("it is not to be unprepared")
	}
	r.unprepares(p)
	if got := f.heard(); got != "prepare default/big/c1; unprepare default/big/c1" {
		t.Errorf("the driver has heard %q", got)
	}
}

func TestAPodWaitsForItsDriver(t *testing.T) {
	r := newRig(t, nil)
	p := aPod("web", "big")
	r.api.add("big", "c1", gpu, p)
	r.refused(p, "prepare dynamic resources: DRA driver gpu.example.com is not registered")
	if r.HasPrepared(p.UID) {
		t.Error("it is to be unprepared although no driver was called")
	}
	f := newFake(gpu)
	path, stop := r.serve(f, "gpu.sock")
	r.register(gpu, path)
	r.eventually("the pod is woken", func() bool { return r.of(p.UID) == 1 })
	r.prepares(p)
	// Away and back, without a new registration.
	stop()
	r.eventually("the driver is away", func() bool { return !r.connected(gpu) })
	if err := r.Unprepare(t.Context(), p.UID); err == nil || !strings.Contains(err.Error(), "unprepare dynamic resources: NodeUnprepareResources: ") {
		t.Errorf("got %v", err)
	}
	if all := r.Problems(); len(all) != 1 || all[0].Origin != "ResourceClaim default/big" {
		t.Errorf("got problems %v", all)
	}
	r.serve(f, "gpu.sock")
	r.eventually("the pod is woken again", func() bool { return r.of(p.UID) == 2 })
	r.unprepares(p)
	if all := r.Problems(); len(all) > 0 {
		t.Errorf("got problems %v", all)
	}
}

// During an update of a driver two instances are registered: the newest that is connected is
// called.
func TestTheNewestConnectedInstanceIsCalled(t *testing.T) {
	r := newRig(t, nil)
	p := aPod("web", "big")
	r.api.add("big", "c1", gpu, p)
	older, newer := newFake(gpu), newFake(gpu)
	path, _ := r.serve(older, "old.sock")
	r.register(gpu, path)
	r.eventually("it is connected", func() bool { return r.connected(gpu) })
	r.register(gpu, r.root+"/new.sock") // which does not listen yet
	r.prepares(p)
	r.expect(older, "prepare default/big/c1")
	r.serve(newer, "new.sock")
	r.eventually("the newer one is called", func() bool {
		i, err := r.instance(gpu)
		return err == nil && i.endpoint == r.root+"/new.sock"
	})
	if err := r.Register(t.Context(), gpu, path, supportedServices); err == nil || !strings.Contains(err.Error(), "already registered for DRA driver plugin gpu.example.com") {
		t.Errorf("got %v", err)
	}
	r.Deregister(gpu, r.root+"/new.sock")
	r.unprepares(p)
	r.expect(older, "unprepare default/big/c1")
	r.expect(newer, "")
}

type beta struct {
	drabeta.UnimplementedDRAPluginServer
	*fake
}

func (b beta) NodePrepareResources(ctx context.Context, q *drabeta.NodePrepareResourcesRequest) (*drabeta.NodePrepareResourcesResponse, error) {
	return drabeta.V1ServerWrapper{DRAPluginServer: b.fake}.NodePrepareResources(ctx, q)
}

func (b beta) NodeUnprepareResources(ctx context.Context, q *drabeta.NodeUnprepareResourcesRequest) (*drabeta.NodeUnprepareResourcesResponse, error) {
	return drabeta.V1ServerWrapper{DRAPluginServer: b.fake}.NodeUnprepareResources(ctx, q)
}

func TestADriverOfTheBetaAPI(t *testing.T) {
	r := newRig(t, nil)
	p := aPod("web", "big")
	r.api.add("big", "c1", gpu, p)
	f := newFake(gpu)
	path, _ := r.serve(newFake("of another version"), "gpu.sock", func(s *grpc.Server) { drabeta.RegisterDRAPluginServer(s, beta{fake: f}) })
	r.register(gpu, path, "v1alpha1.Other", drabeta.DRAPluginService)
	r.prepares(p)
	if got := r.has(p); !strings.HasPrefix(got, "gpu.example.com/gpu=big-0 ") {
		t.Errorf("got %q", got)
	}
	r.unprepares(p)
	r.expect(f, "prepare default/big/c1; unprepare default/big/c1")
}

// A pod was deleted by force and made anew, and its claim, too, while the old pod has not
// ended here.
func TestAnOldClaimOfTheSameNameIsUnpreparedFirst(t *testing.T) {
	r := newRig(t, nil)
	f := r.served()
	old, next := aPod("web", "big"), aPod("web", "big")
	next.UID = "uid-next"
	r.api.add("big", "c1", gpu, old)
	r.prepares(old)
	r.api.add("big", "c2", gpu, next)
	r.refused(next, "old ResourceClaim with same name big and different UID c1 still exists (previous pod force-deleted?!)")
	r.unprepares(old)
	r.prepares(next)
	r.expect(f, "prepare default/big/c1; unprepare default/big/c1; prepare default/big/c2")
	// The same claim, which was allocated other devices.
	again := aPod("web", "big")
	again.UID = "uid-again"
	claim := r.api.add("big", "c2", gpu, again)
	claim.Status.Allocation.Devices.Results[0].Device = "7"
	r.refused(again, "ResourceClaim big was allocated anew")
	r.unprepares(next)
	r.prepares(again)
	r.expect(f, "unprepare default/big/c2; prepare default/big/c2")
	// The same device, and another share of it.
	shared := aPod("web", "big")
	shared.UID = "uid-shared"
	share := types.UID("share")
	claim = r.api.add("big", "c2", gpu, shared)
	claim.Status.Allocation.Devices.Results[0].Device = "7"
	claim.Status.Allocation.Devices.Results[0].ShareID = &share
	r.refused(shared, "ResourceClaim big was allocated anew")
}

func TestAContainerHasTheDevicesOfItsRequests(t *testing.T) {
	r := newRig(t, nil)
	r.served()
	p := aPod("web", "big")
	r.api.add("big", "c1", gpu, p)
	r.api.add("extended", "c2", gpu, p)
	p.Status.ExtendedResourceClaimStatus = &v1.PodExtendedResourceClaimStatus{ResourceClaimName: "extended", RequestMappings: []v1.ContainerExtendedResourceRequest{
		{ContainerName: "c", ResourceName: "example.com/gpu", RequestName: "b"},
		{ContainerName: "c", ResourceName: "example.com/other", RequestName: "a"},
		{ContainerName: "d", ResourceName: "example.com/gpu", RequestName: "a"},
	}}
	r.prepares(p)
	c := &p.Spec.Containers[0]
	for want, change := range map[string]func(){
		"gpu.example.com/gpu=big-0 gpu.example.com/common=all": func() { c.Resources.Claims[0].Request = "a" },
		"gpu.example.com/gpu=big-1 gpu.example.com/common=all": func() { c.Resources.Claims[0].Request = "b" },
		"": func() { c.Resources.Claims = nil },
		"gpu.example.com/gpu=extended-1 gpu.example.com/common=all": func() {
			c.Resources.Claims = nil
			c.Resources.Requests = v1.ResourceList{"example.com/gpu": quantity.MustParse("1")}
		},
	} {
		c.Resources = v1.ResourceRequirements{Claims: []v1.ResourceClaim{{Name: "my-big"}}}
		change()
		if got := r.has(p); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	c.Resources = v1.ResourceRequirements{Claims: []v1.ResourceClaim{{Name: "my-big", Request: "a"}}}
	all := r.Resources(p, c)
	if len(all) != 1 || all[0].ClaimName != "big" || all[0].ClaimNamespace != "default" || len(all[0].ClaimResources) != 2 {
		t.Fatalf("got %v", all)
	}
	if got := r.Resources(p, &v1.Container{Name: "of nothing"}); got != nil {
		t.Errorf("a container without claims: got %v", got)
	}
	if d := all[0].ClaimResources[1]; d.DriverName != gpu || d.PoolName != "pool" || d.DeviceName != "1" || len(d.CdiDevices) != 2 || d.CdiDevices[0].Name != "gpu.example.com/gpu=big-1" {
		t.Errorf("got %v", d)
	}
}

func TestWhichClaimsAPodMayUse(t *testing.T) {
	r := newRig(t, nil)
	f := r.served()
	p := aPod("web")
	template, made, isController := "template", "web-made", true
	p.Spec.ResourceClaims = []v1.PodResourceClaim{{Name: "x", ResourceClaimTemplateName: &template}}
	r.refused(p, `pod "default/web": ResourceClaim not created yet`)
	p.Spec.Containers[0].Resources.Claims = []v1.ResourceClaim{{Name: "x"}}
	if got := r.has(p); got != `pod "default/web": ResourceClaim not created yet` || r.Resources(p, &p.Spec.Containers[0]) != nil {
		t.Errorf("the container has %q", got)
	}
	p.Status.ResourceClaimStatuses = []v1.PodResourceClaimStatus{{Name: "x"}}
	r.prepares(p) // none is needed
	if got := r.has(p); got != "" {
		t.Errorf("the container has %q, and needs nothing", got)
	}
	other := "other"
	p.Status.ResourceClaimStatuses = []v1.PodResourceClaimStatus{{Name: "of another claim", ResourceClaimName: &other}, {Name: "x", ResourceClaimName: &made}}
	r.refused(p, `fetch ResourceClaim web-made: resourceclaims.resource.k8s.io "web-made" not found`)
	claim := r.api.add(made, "c1", gpu, p)
	r.refused(p, "ResourceClaim default/web-made was not created for Pod default/web (Pod is not owner)")
	claim.OwnerReferences = []metav1.OwnerReference{{UID: p.UID, Controller: &isController}}
	reserved := claim.Status.ReservedFor
	claim.Status.ReservedFor = nil
	r.refused(p, "pod web (uid-web) is not allowed to use ResourceClaim web-made (c1)")
	allocation := claim.Status.Allocation
	claim.Status.ReservedFor, claim.Status.Allocation = reserved, nil
	r.refused(p, "ResourceClaim web-made: not allocated")
	claim.Status.Allocation = allocation.DeepCopy()
	claim.Status.Allocation.Devices.Results[0].Driver = "other.example.com"
	r.refused(p, "DRA driver other.example.com is not registered")
	claim.Status.Allocation = allocation
	p.Spec.ResourceClaims = append(p.Spec.ResourceClaims, v1.PodResourceClaim{Name: "y"})
	r.refused(p, `pod "default/web", spec.resourceClaim "y": none of the supported fields are set`)
	p.Spec.ResourceClaims = p.Spec.ResourceClaims[:1]
	p.Status.ExtendedResourceClaimStatus = &v1.PodExtendedResourceClaimStatus{ResourceClaimName: "extended"}
	r.refused(p, `fetch ResourceClaim extended: resourceclaims.resource.k8s.io "extended" not found`)
	p.Status.ExtendedResourceClaimStatus = nil
	if got := r.has(p); !strings.HasPrefix(got, "unable to get claim info for ResourceClaim web-made") || r.Resources(p, &p.Spec.Containers[0]) != nil {
		t.Errorf("not prepared yet: the container has %q", got)
	}
	if got, err := r.Container(p, &v1.Container{Name: "of nothing"}); got != nil || err != nil {
		t.Errorf("a container without claims has %q, %v", got, err)
	}
	if r.HasPrepared(p.UID) || f.heard() != "" {
		t.Error("what was refused has left a trace")
	}
	r.prepares(p)
	r.expect(f, "prepare default/web-made/c1")
	stranger := aPod("stranger", made)
	if got := r.has(stranger); !strings.HasPrefix(got, "unable to get claim info") || r.Resources(stranger, &stranger.Spec.Containers[0]) != nil {
		t.Errorf("a pod that has not prepared it has %q", got)
	}
}

// A claim that one of two drivers has unprepared is not forgotten, and one that both have is.
func TestADriverThatIsAwayKeepsOnlyItsOwnClaims(t *testing.T) {
	r := newRig(t, nil)
	f, nic := r.served(), newFake("nic.example.com")
	path, _ := r.serve(nic, "nic.sock")
	r.register(nic.name, path)
	p := aPod("web", "big", "net")
	r.api.add("big", "c1", gpu, p)
	r.api.add("net", "c2", nic.name, p)
	r.prepares(p)
	r.Deregister(nic.name, path)
	if err := r.Unprepare(t.Context(), p.UID); err == nil || err.Error() != "unprepare dynamic resources: DRA driver nic.example.com is not registered" {
		t.Errorf("got %v", err)
	}
	r.expect(f, "prepare default/big/c1; unprepare default/big/c1")
	r.register(nic.name, path)
	r.eventually("the pod is woken", func() bool { return r.of(p.UID) > 0 })
	r.unprepares(p)
	r.expect(f, "")
	r.expect(nic, "prepare default/net/c2; unprepare default/net/c2")
}

// Pods that vanished while no podd ran have their claims unprepared when the driver is there.
func TestClaimsOfPodsThatAreGoneAreUnprepared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		f := newFake(gpu)
		r.plug(f)
		gone, stays := aPod("gone", "big"), aPod("stays", "small")
		r.api.add("big", "c1", gpu, gone)
		r.api.add("small", "c2", gpu, stays)
		r.prepares(gone)
		r.prepares(stays)
		f.heard()
		r = newRig(t, r)
		r.Retain(map[pod.UID]bool{stays.UID: true})
		time.Sleep(time.Hour)
		synctest.Wait()
		if !r.HasPrepared(gone.UID) || len(r.Problems()) != 1 {
			t.Errorf("it is forgotten, or not shown: %v", r.Problems())
		}
		f = newFake(gpu)
		f.unprepare = func(context.Context, *drapb.NodeUnprepareResourcesRequest) (*drapb.NodeUnprepareResourcesResponse, error) {
			return nil, errors.New("not now")
		}
		r.plug(f)
		synctest.Wait()
		r.expect(f, "unprepare default/big/c1") // at once
		f.set(func() { f.unprepare = nil })
		time.Sleep(61 * time.Second)
		synctest.Wait()
		r.expect(f, "unprepare default/big/c1")
		if r.HasPrepared(gone.UID) || !r.HasPrepared(stays.UID) || len(r.Problems()) > 0 {
			t.Errorf("not the pod that is gone alone is forgotten: %v", r.Problems())
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		r.expect(f, "")
		r.stop()
	})
}

// A pod that comes back before that keeps what it has.
func TestAPodThatComesBackKeepsItsClaims(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		f := newFake(gpu)
		connect := r.plug(f)
		p := aPod("web", "big")
		r.api.add("big", "c1", gpu, p)
		r.prepares(p)
		f.set(func() {
			f.unprepare = func(context.Context, *drapb.NodeUnprepareResourcesRequest) (*drapb.NodeUnprepareResourcesResponse, error) {
				return nil, errors.New("not now")
			}
		})
		r.Drop(p.UID)
		synctest.Wait()
		r.expect(f, "prepare default/big/c1; unprepare default/big/c1")
		if all := r.Problems(); len(all) != 1 || !strings.Contains(all[0].Message, "not now") {
			t.Errorf("got problems %v", all)
		}
		r.prepares(p)
		r.expect(f, "prepare default/big/c1")
		if all := r.Problems(); len(all) > 0 {
			t.Errorf("it is back: got problems %v", all)
		}
		connect(true)
		time.Sleep(time.Hour)
		synctest.Wait()
		r.expect(f, "")
		r.stop()
	})
}
