package dra

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"
)

// counted are the observations of a histogram, or the value of a gauge, by the values of the
// labels.
func (r *rig) counted(name string) map[string]int {
	r.t.Helper()
	families, err := r.registry.Gather()
	if err != nil {
		r.t.Fatal(err)
	}
	all := map[string]int{}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetValue())
			}
			if family.GetName() == name {
				all[strings.Join(labels, " ")] = int(m.GetGauge().GetValue()) + int(m.GetHistogram().GetSampleCount())
			}
		}
	}
	return all
}

func (r *rig) counts(name string, want map[string]int) {
	r.t.Helper()
	if got := r.counted(name); !maps.Equal(got, want) {
		r.t.Errorf("%s: got %v, want %v", name, got, want)
	}
}

func TestOperationsAndCallsAreMeasured(t *testing.T) {
	r := newRig(t, nil)
	f := r.served()
	p := aPod("web", "big")
	r.api.add("big", "c1", gpu, p)
	for _, err := range []error{status.Error(codes.Unauthenticated, "who?"), status.Error(codes.Code(17), "a code of its own"), errors.New("no")} {
		f.set(func() {
			f.prepare = func(context.Context, *drapb.NodePrepareResourcesRequest) (*drapb.NodePrepareResourcesResponse, error) {
				return nil, err
			}
		})
		r.refused(p, "NodePrepareResources")
	}
	r.counts("dra_resource_claims_in_use", map[string]int{"<any>": 0}) // it is not prepared
	f.set(func() { f.prepare = nil })
	r.prepares(p)
	r.counts("dra_resource_claims_in_use", map[string]int{"<any>": 1, gpu: 1})
	r.unprepares(p)
	r.counts("dra_resource_claims_in_use", map[string]int{"<any>": 0})
	r.counts("dra_operations_duration_seconds", map[string]int{"true PrepareResources": 3, "false PrepareResources": 1, "false UnprepareResources": 1})
	const prepare, unprepare = " /k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodePrepareResources", " /k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodeUnprepareResources"
	r.counts("dra_grpc_operations_duration_seconds", map[string]int{
		gpu + " Unauthenticated" + prepare: 1, gpu + " Unknown" + prepare: 2, gpu + " OK" + prepare: 1, gpu + " OK" + unprepare: 1,
	})
}

// A series is kept as long as there is room for it.
func TestTheMetricsOfDriversThatAreGoneAreDroppedOneByOne(t *testing.T) {
	r := newRig(t, nil)
	measured := func() (drivers []string) {
		for labels := range r.counted("dra_grpc_operations_duration_seconds") {
			drivers = append(drivers, strings.Fields(labels)[0])
		}
		slices.Sort(drivers)
		return slices.Compact(drivers)
	}
	for n := range 2 {
		f := newFake(fmt.Sprintf("old%d.example.com", n))
		path, _ := r.serve(f, fmt.Sprintf("%d.sock", n))
		r.register(f.name, path)
		p := aPod(fmt.Sprint("pod", n), fmt.Sprint("claim", n))
		r.api.add(fmt.Sprint("claim", n), "c1", f.name, p)
		r.prepares(p)
		r.Deregister(f.name, path)
	}
	for n := range maxDrivers - 2 {
		r.register(fmt.Sprintf("d%d.example.com", n), "/nothing/gpu.sock")
	}
	if got := measured(); len(got) != 2 {
		t.Errorf("while there is room: got the drivers %v, want both", got)
	}
	r.register("one.example.com", "/nothing/gpu.sock")
	if got := measured(); len(got) != 1 {
		t.Errorf("one more driver: got the drivers %v, want one of the old ones", got)
	}
	r.register("two.example.com", "/nothing/gpu.sock")
	if got := measured(); len(got) != 0 {
		t.Errorf("two more drivers: got the drivers %v, want none", got)
	}
}
