package dra

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	healthapi "k8s.io/kubelet/pkg/apis/dra-health/v1"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"

	"podd/internal/checkpoint"
	"podd/internal/pod"
)

func TestWhoMayNotRegister(t *testing.T) {
	r := newRig(t, nil)
	long := strings.Repeat("x", 100000)
	for name, tc := range map[string]struct {
		driver, endpoint, want string
		versions               []string
	}{
		"no versions":      {gpu, "/run/gpu.sock", "plugin validation failed with err: invalid supported gRPC versions of DRA driver plugin gpu.example.com at endpoint /run/gpu.sock: empty list of supported gRPC services (aka supported versions)", nil},
		"other versions":   {gpu, "/run/gpu.sock", `none of services supported by the plugin (["1.0.0"]) are supported by the kubelet (["v1.DRAPlugin" "v1beta1.DRAPlugin"])`, []string{"1.0.0"}},
		"a long version":   {gpu, "/run/gpu.sock", "none of services", []string{long}},
		"no name":          {"", "/run/gpu.sock", "want a DNS subdomain", supportedServices},
		"a long name":      {long, "/run/gpu.sock", "want a DNS subdomain", supportedServices},
		"a path as a name": {"../gpu", "/run/gpu.sock", "want a DNS subdomain", supportedServices},
		"a relative path":  {gpu, "gpu.sock", "is not the path of a socket", supportedServices},
		"a long path":      {gpu, "/" + long, "is not the path of a socket", supportedServices},
		"a path that ends": {gpu, "/run/gpu.sock\x00.txt", "is not the path of a socket", supportedServices},
	} {
		if err := r.Register(t.Context(), tc.driver, tc.endpoint, tc.versions); err == nil || !strings.Contains(err.Error(), tc.want) || len(err.Error()) > 2000 {
			t.Errorf("%s: got %.300v, want %q", name, err, tc.want)
		}
	}
	if len(r.drivers) > 0 {
		t.Errorf("got %v", r.drivers)
	}
	r.register(strings.Repeat("x", 63), "/"+strings.Repeat("x", maxPath-1)) // both as long as they may be
}

func TestTheNumberOfDriversIsBounded(t *testing.T) {
	r := newRig(t, nil)
	for n := range maxInstances {
		r.register(gpu, fmt.Sprintf("/nothing/%d.sock", n))
	}
	if err := r.Register(t.Context(), gpu, "/nothing/more.sock", supportedServices); err == nil || !strings.Contains(err.Error(), "has 16 instances, which is the most") {
		t.Errorf("got %v", err)
	}
	for n := range maxDrivers - 1 {
		r.register(fmt.Sprintf("d%d.example.com", n), "/nothing/gpu.sock")
	}
	if err := r.Register(t.Context(), "more.example.com", "/nothing/gpu.sock", supportedServices); err == nil || !strings.Contains(err.Error(), "there are 256 DRA drivers, which is the most") {
		t.Errorf("got %v", err)
	}
	r.Deregister("d7.example.com", "/nothing/gpu.sock")
	r.register("more.example.com", "/nothing/gpu.sock")
	if r.measuredDrivers["d7.example.com"] {
		t.Error("the driver that is gone is not forgotten")
	}
	if got := len(r.drivers); got != maxDrivers {
		t.Errorf("%d drivers are remembered, want %d", got, maxDrivers)
	}
}

func TestWhatADriverMayNotAnswer(t *testing.T) {
	r := newRig(t, nil)
	f := r.served()
	p := aPod("web", "big")
	r.api.add("big", "c1", gpu, p)
	long := strings.Repeat("x", 100000)
	with := func(devices ...*drapb.Device) *drapb.NodePrepareResourcesResponse {
		return &drapb.NodePrepareResourcesResponse{Claims: map[string]*drapb.NodePrepareResourceResponse{"c1": {Devices: devices}}}
	}
	cdi := func(name string) *drapb.NodePrepareResourcesResponse {
		return with(&drapb.Device{PoolName: "pool", DeviceName: "0", CdiDeviceIds: []string{name}})
	}
	many := make([]*drapb.Device, maxResults+1)
	for i := range many {
		many[i] = &drapb.Device{}
	}
	for name, tc := range map[string]struct {
		response *drapb.NodePrepareResourcesResponse
		err      error
		want     string
	}{
		"nothing":            {&drapb.NodePrepareResourcesResponse{}, nil, "NodePrepareResources skipped 1 ResourceClaims"},
		"another claim":      {&drapb.NodePrepareResourcesResponse{Claims: map[string]*drapb.NodePrepareResourceResponse{"c1": {}, long: {}}}, nil, "NodePrepareResources returned result for unknown claim UID xxx"},
		"an error":           {&drapb.NodePrepareResourcesResponse{Claims: map[string]*drapb.NodePrepareResourceResponse{"c1": {Error: "no " + long}}}, nil, "NodePrepareResources failed for ResourceClaim big: no xxx"},
		"many devices":       {with(many...), nil, "has prepared 1025 devices"},
		"many names":         {with(&drapb.Device{CdiDeviceIds: make([]string, maxNames+1)}), nil, "a device has 65 CDI devices"},
		"a long pool":        {with(&drapb.Device{PoolName: long}), nil, "a device has the name"},
		"a long share":       {with(&drapb.Device{ShareId: &long}), nil, "a device has the name"},
		"a long CDI name":    {cdi("example.com/gpu=" + long), nil, "is not the name of a CDI device"},
		"not qualified":      {cdi("gpu0"), nil, `"gpu0" is not the name of a CDI device`},
		"no device":          {cdi("example.com/gpu="), nil, "is not the name of a CDI device"},
		"a line break":       {cdi("example.com/gpu=0\n"), nil, "is not the name of a CDI device"},
		"a path":             {cdi("../../gpu=0"), nil, "is not the name of a CDI device"},
		"a large response":   {with(&drapb.Device{PoolName: strings.Repeat("x", maxResponse)}), nil, "larger than max"},
		"a code of its own":  {nil, status.Error(codes.Code(4711), "no"), "NodePrepareResources: rpc error: code = Code(4711) desc = no"},
		"an error that long": {nil, status.Error(codes.Internal, strings.Repeat("y", 5000)), "NodePrepareResources: rpc error: code = Internal desc = yyy"},
	} {
		f.set(func() {
			f.prepare = func(context.Context, *drapb.NodePrepareResourcesRequest) (*drapb.NodePrepareResourcesResponse, error) {
				return tc.response, tc.err
			}
		})
		err := r.Prepare(t.Context(), p)
		if err == nil || !strings.Contains(err.Error(), tc.want) || len(err.Error()) > 2500 {
			t.Errorf("%s: got %.300v, want %q", name, err, tc.want)
		}
	}
	if got := r.has(p); got != "" {
		t.Errorf("the container has %q", got)
	}
	families, err := r.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			for _, label := range m.GetLabel() {
				if strings.Contains(label.GetValue(), "4711") {
					t.Errorf("%s has a code of the driver's own for a label: %v", family.GetName(), label)
				}
			}
		}
	}
	f.set(func() { f.prepare = nil })
	r.prepares(p)
}

func TestTheMostThatADriverMayAnswer(t *testing.T) {
	r := newRig(t, nil)
	f := r.served()
	names := make([]string, maxNames)
	for i := range names {
		names[i] = fmt.Sprint("example.com/gpu=", i)
	}
	name := "example.com/gpu=" + strings.Repeat("x", maxCDI-len("example.com/gpu="))
	devices := make([]*drapb.Device, maxResults)
	for i := range devices {
		devices[i] = &drapb.Device{}
	}
	for what, tc := range map[string]struct {
		devices []*drapb.Device
		want    string // what the container has
	}{
		"devices":      {devices, ""},
		"CDI devices":  {[]*drapb.Device{{CdiDeviceIds: names}}, strings.Join(names, " ")},
		"requests":     {[]*drapb.Device{{RequestNames: names}}, ""},
		"a CDI device": {[]*drapb.Device{{CdiDeviceIds: []string{name}}}, name},
		"names":        {[]*drapb.Device{{PoolName: strings.Repeat("x", 2*maxName), DeviceName: strings.Repeat("y", 2*maxName)}}, ""},
	} {
		p := aPod("web", "big")
		r.api.add("big", "c1", gpu, p)
		f.set(func() {
			f.prepare = func(context.Context, *drapb.NodePrepareResourcesRequest) (*drapb.NodePrepareResourcesResponse, error) {
				return &drapb.NodePrepareResourcesResponse{Claims: map[string]*drapb.NodePrepareResourceResponse{"c1": {Devices: tc.devices}}}, nil
			}
		})
		r.prepares(p)
		if got := r.has(p); got != tc.want {
			t.Errorf("the most %s: the container has %.100q, want %.100q", what, got, tc.want)
		}
		r.unprepares(p)
	}
}

// By the rules of NodePrepareResources.
func TestWhatADriverMayNotAnswerToNodeUnprepareResources(t *testing.T) {
	r := newRig(t, nil)
	f := r.served()
	p := aPod("web", "big")
	r.api.add("big", "c1", gpu, p)
	r.prepares(p)
	type answers = map[string]*drapb.NodeUnprepareResourceResponse
	for name, tc := range map[string]struct {
		claims answers
		err    error
		want   string
	}{
		"nothing":       {want: "NodeUnprepareResources skipped 1 ResourceClaims"},
		"another claim": {claims: answers{"c1": {}, "c2": {}}, want: "NodeUnprepareResources returned result for unknown claim UID c2"},
		"an error":      {claims: answers{"c1": {Error: "it is in use"}}, want: "NodeUnprepareResources failed for ResourceClaim big: it is in use"},
		"a code":        {err: status.Error(codes.Internal, "no"), want: "NodeUnprepareResources: rpc error: code = Internal desc = no"},
	} {
		f.set(func() {
			f.unprepare = func(context.Context, *drapb.NodeUnprepareResourcesRequest) (*drapb.NodeUnprepareResourcesResponse, error) {
				return &drapb.NodeUnprepareResourcesResponse{Claims: tc.claims}, tc.err
			}
		})
		if err := r.Unprepare(t.Context(), p.UID); err == nil || err.Error() != "unprepare dynamic resources: "+tc.want || !r.HasPrepared(p.UID) {
			t.Errorf("%s: got %v, still held: %v, want %q", name, err, r.HasPrepared(p.UID), tc.want)
		}
	}
	f.set(func() { f.unprepare = nil })
	r.unprepares(p)
}

func TestAllocationsAreBounded(t *testing.T) {
	r := newRig(t, nil)
	p := aPod("web", "big")
	claim := r.api.add("big", "c1", gpu, p)
	results := &claim.Status.Allocation.Devices.Results
	for len(*results) <= maxResults {
		*results = append(*results, (*results)[0])
	}
	r.refused(p, "ResourceClaim big: 1025 devices are allocated, and 1024 are the most")
	*results = (*results)[:maxResults]
	r.refused(p, "DRA driver gpu.example.com is not registered") // as many as there may be
	*results = (*results)[:1]
	(*results)[0].Driver = strings.Repeat("x", 100000)
	r.refused(p, "is not registered")
	(*results)[0].Driver = ""
	r.refused(p, "DRA driver name is empty")
}

func TestHealthIsBounded(t *testing.T) {
	r := newRig(t, nil)
	i := &instance{driver: gpu, devices: map[deviceKey]deviceHealth{}}
	var all []*healthapi.DeviceHealth
	for n := range maxReportedDevices + 1 {
		all = append(all, report(fmt.Sprint(n), healthapi.HealthStatus_HEALTHY, 0, "")...)
	}
	const want = "want 10000 devices at most, and 506 bytes"
	if err := r.applyHealthReport(i, all); err == nil || len(i.devices) != maxReportedDevices || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, %d devices, want %q", err, len(i.devices), want)
	}
	if err := r.applyHealthReport(i, report(strings.Repeat("x", 100000), healthapi.HealthStatus_HEALTHY, 0, "")); err == nil || len(err.Error()) > 2000 {
		t.Errorf("got %.300v", err)
	}
	longest := strings.Repeat("x", 2*maxName)
	for name, tc := range map[string]struct {
		pool, device string
		refused      bool
	}{
		"the longest":   {pool: longest, device: longest},
		"a long pool":   {pool: longest + "x", device: "0", refused: true},
		"a long device": {pool: "pool", device: longest + "x", refused: true},
	} {
		i := &instance{driver: gpu, devices: map[deviceKey]deviceHealth{}}
		one := report(tc.device, healthapi.HealthStatus_HEALTHY, 0, "")
		one[0].Device.PoolName = tc.pool
		if err := r.applyHealthReport(i, one); (err != nil) != tc.refused {
			t.Errorf("%s: got %.300v, want an error: %v", name, err, tc.refused)
		}
	}
}

func TestADamagedCheckpointIsSaid(t *testing.T) {
	r := newRig(t, nil)
	r.served()
	p := aPod("web", "big")
	r.api.add("big", "c1", gpu, p)
	r.prepares(p)
	whole, err := os.ReadFile(r.checkpoint.Path)
	if err != nil {
		t.Fatal(err)
	}
	later, err := checkpoint.Checksummed.Encode(checkpointData{Version: 2, Claims: []savedClaim{{Name: "big", UID: "c1", Pods: []pod.UID{p.UID}}}})
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{
		"cut off": string(whole[:len(whole)-10]), "empty": "", "changed": strings.Replace(string(whole), "big", "bag", 1), "null": "null",
		"another version": strings.Replace(string(whole), `"version":1`, `"version":2`, 1), "of a later version": string(later),
	} {
		if err := os.WriteFile(r.checkpoint.Path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		next := newRig(t, r)
		if all := next.Problems(); next.HasPrepared(p.UID) || len(all) != 1 || !strings.Contains(all[0].Hint, "is unprepared by nobody") {
			t.Errorf("%s: got %v, %v", name, next.claims, all)
		}
		if got := next.Problems()[0].Message; name == "of a later version" && !strings.Contains(got, "version 2 of it is not known") {
			t.Errorf("%s: got %q", name, got)
		}
		next.revision++
		if err := next.save(); err != nil {
			t.Fatal(err)
		}
		if kept, err := os.ReadFile(r.checkpoint.Path + ".broken"); err != nil || string(kept) != content {
			t.Errorf("%s: kept is %q, %v", name, kept, err)
		}
	}
}
