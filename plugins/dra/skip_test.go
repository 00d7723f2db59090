package dra

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	resourcev1 "k8s.io/api/resource/v1"
)

const (
	noPrepare   = resourcev1.SkipNodeOperationNodePrepareResources
	noUnprepare = resourcev1.SkipNodeOperationNodeUnprepareResources
	noCall      = resourcev1.SkipNodeOperationAll
)

// TestWhichCallsADriverIsSpared: those that all of its devices in a claim want it to be.
func TestWhichCallsADriverIsSpared(t *testing.T) {
	type ops = []resourcev1.SkipNodeOperation
	for name, c := range map[string]struct {
		devices            []ops
		prepare, unprepare bool
	}{
		"none":                     {[]ops{nil}, false, false},
		"one":                      {[]ops{{noPrepare}}, true, false},
		"both":                     {[]ops{{noPrepare, noUnprepare}}, true, true},
		"all":                      {[]ops{{noCall}}, true, true},
		"two devices, the same":    {[]ops{{noPrepare}, {noPrepare}}, true, false},
		"two devices, not one":     {[]ops{{noPrepare}, {noUnprepare}}, false, false},
		"two devices, one in all":  {[]ops{{noPrepare, noUnprepare}, {noUnprepare}}, false, true},
		"all, and one":             {[]ops{{noCall}, {noUnprepare}}, false, true},
		"one, and all":             {[]ops{{noUnprepare}, {noCall}}, false, true},
		"the first needs its call": {[]ops{nil, {noCall}}, false, false},
		"the last needs its call":  {[]ops{{noCall}, {noCall}, nil}, false, false},
		"an unknown one":           {[]ops{{"Reset"}}, false, false},
	} {
		results := []resourcev1.DeviceRequestAllocationResult{{Driver: "other.example.com", SkipNodeOperations: ops{noCall}}}
		for _, spared := range c.devices {
			results = append(results, resourcev1.DeviceRequestAllocationResult{Driver: gpu, SkipNodeOperations: spared})
		}
		of := &claim{skips: skippedOperations(results)}
		if got := of.spares(gpu, noPrepare); got != c.prepare {
			t.Errorf("%s: NodePrepareResources is skipped: %t", name, got)
		}
		if got := of.spares(gpu, noUnprepare); got != c.unprepare {
			t.Errorf("%s: NodeUnprepareResources is skipped: %t", name, got)
		}
		if !of.spares("other.example.com", noPrepare) {
			t.Errorf("%s: the other driver is called", name)
		}
	}
	if got := skippedOperations(nil); len(got) > 0 {
		t.Errorf("got %v for no device", got)
	}
}

// TestADriverIsNotCalledForWhatNeedsNoCall: it need not even be on this node.
func TestADriverIsNotCalledForWhatNeedsNoCall(t *testing.T) {
	r := newRig(t, nil)
	r.optionalOperations = true
	p := aPod("one", "net")
	c := r.api.add("net", "c1", gpu, p) // nobody serves it
	skip := func(calls ...resourcev1.SkipNodeOperation) {
		for i := range c.Status.Allocation.Devices.Results {
			c.Status.Allocation.Devices.Results[i].SkipNodeOperations = calls
		}
	}
	skip(noCall)
	r.prepares(p)
	if got := r.has(p); got != "" || !r.HasPrepared(p.UID) {
		t.Errorf("got %q, prepared: %t", got, r.HasPrepared(p.UID))
	}
	r.unprepares(p)
	if r.HasPrepared(p.UID) {
		t.Error("it is prepared still")
	}
	if err := testutil.GatherAndCompare(r.registry, strings.NewReader(`# HELP dra_node_prepare_skips_total How often a driver was not called for a claim whose devices need no NodePrepareResources (SkipNodeOperations).
# TYPE dra_node_prepare_skips_total counter
dra_node_prepare_skips_total{driver_name="gpu.example.com"} 1
# HELP dra_node_unprepare_skips_total How often a driver was not called for a claim whose devices need no NodeUnprepareResources (SkipNodeOperations).
# TYPE dra_node_unprepare_skips_total counter
dra_node_unprepare_skips_total{driver_name="gpu.example.com"} 1
`), "dra_node_prepare_skips_total", "dra_node_unprepare_skips_total"); err != nil {
		t.Error(err)
	}

	f := r.served()
	skip(noUnprepare)
	r.prepares(p)
	r.expect(f, "prepare default/net/c1")
	r.unprepares(p)
	r.expect(f, "")
}

// TestWhatNeedsNoCallIsRememberedByTheNextPodd: it unprepares a claim without the cluster.
func TestWhatNeedsNoCallIsRememberedByTheNextPodd(t *testing.T) {
	r := newRig(t, nil)
	r.optionalOperations = true
	p := aPod("one", "net")
	c := r.api.add("net", "c1", gpu, p)
	for i := range c.Status.Allocation.Devices.Results {
		c.Status.Allocation.Devices.Results[i].SkipNodeOperations = []resourcev1.SkipNodeOperation{noCall}
	}
	r.prepares(p)
	later := newRig(t, r)
	later.unprepares(p) // by a driver that is nowhere
	if later.HasPrepared(p.UID) {
		t.Error("it is prepared still")
	}
}

func TestWithoutTheGateAClaimThatSparesItsDriverIsRejected(t *testing.T) {
	r := newRig(t, nil)
	r.served()
	p := aPod("one", "net")
	c := r.api.add("net", "c1", gpu, p)
	for i := range c.Status.Allocation.Devices.Results {
		c.Status.Allocation.Devices.Results[i].SkipNodeOperations = []resourcev1.SkipNodeOperation{noPrepare}
	}
	r.refused(p, "ResourceClaim net: DRAOptionalNodeOperations feature gate is disabled on kubelet")
}
