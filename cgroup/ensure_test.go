package cgroup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coreos/go-systemd/v22/dbus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"podd/internal/pod"
)

func TestPodLimits(t *testing.T) {
	full := list("cpu", "500m", "memory", "64Mi")
	always := v1.ContainerRestartPolicyAlways
	podLevel := func(requests, limits v1.ResourceList, p *v1.Pod) *v1.Pod {
		p.Spec.Resources = &v1.ResourceRequirements{Requests: requests, Limits: limits}
		return p
	}
	initHeavy := aPod(with(full, full))
	initHeavy.Spec.InitContainers = []v1.Container{{Resources: with(list("cpu", "2", "memory", "1Gi"), list("cpu", "2", "memory", "1Gi"))}}
	sidecar := aPod(with(full, full))
	sidecar.Spec.InitContainers = []v1.Container{{RestartPolicy: &always, Resources: with(list("cpu", "100m", "memory", "1Mi"), list("cpu", "1", "memory", "2Mi"))}}
	overhead := aPod(with(full, full))
	overhead.Spec.Overhead = list("cpu", "250m", "memory", "16Mi")
	pages := aPod(with(list("cpu", "1", "hugepages-2Mi", "4Mi"), list("hugepages-2Mi", "4Mi")))
	for name, c := range map[string]struct {
		settings Settings
		pod      *v1.Pod
		want     Limits
	}{
		"best effort":                           {Settings{}, aPod(v1.ResourceRequirements{}), Limits{CPUShares: 2}},
		"guaranteed":                            {Settings{}, aPod(with(full, full), with(full, full)), Limits{CPUShares: 1024, CPUQuota: 100000, CPUPeriod: 100000, Memory: 128 << 20}},
		"burstable, all limited":                {Settings{}, aPod(with(list("cpu", "100m"), full)), Limits{CPUShares: 102, CPUQuota: 50000, CPUPeriod: 100000, Memory: 64 << 20}},
		"burstable, one not limited":            {Settings{}, aPod(with(full, full), with(full, list("memory", "1Mi"))), Limits{CPUShares: 1024, Memory: 65 << 20}},
		"burstable, one without memory limit":   {Settings{}, aPod(with(full, full), with(full, list("cpu", "1"))), Limits{CPUShares: 1024, CPUQuota: 150000, CPUPeriod: 100000}},
		"burstable, nothing limited":            {Settings{}, aPod(with(full, nil)), Limits{CPUShares: 512}},
		"the largest init container":            {Settings{}, initHeavy, Limits{CPUShares: 2048, CPUQuota: 200000, CPUPeriod: 100000, Memory: 1 << 30}},
		"a sidecar":                             {Settings{}, sidecar, Limits{CPUShares: 614, CPUQuota: 150000, CPUPeriod: 100000, Memory: 66 << 20}},
		"overhead":                              {Settings{}, overhead, Limits{CPUShares: 768, CPUQuota: 75000, CPUPeriod: 100000, Memory: 80 << 20}},
		"the pod's own limits":                  {Settings{}, podLevel(nil, list("cpu", "2", "memory", "1Gi"), aPod(with(full, nil))), Limits{CPUShares: 512, CPUQuota: 200000, CPUPeriod: 100000, Memory: 1 << 30}},
		"the pod's own requests":                {Settings{}, podLevel(list("cpu", "2"), nil, aPod(with(full, nil))), Limits{CPUShares: 2048}},
		"no quota":                              {Settings{NoCPUQuota: true}, aPod(with(full, full)), Limits{CPUShares: 512, CPUQuota: -1, CPUPeriod: 100000, Memory: 64 << 20}},
		"another period":                        {Settings{CPUPeriod: 10 * time.Millisecond}, aPod(with(full, full)), Limits{CPUShares: 512, CPUQuota: 5000, CPUPeriod: 10000, Memory: 64 << 20}},
		"processes":                             {Settings{PodPIDs: 100}, aPod(v1.ResourceRequirements{}), Limits{CPUShares: 2, PIDs: 100}},
		"processes without a limit":             {Settings{PodPIDs: -1}, aPod(v1.ResourceRequirements{}), Limits{CPUShares: 2}},
		"huge pages":                            {Settings{}, pages, Limits{CPUShares: 1024, HugePages: map[int64]int64{2 << 20: 4 << 20}}},
		"limits of zero count as none declared": {Settings{}, aPod(with(list("cpu", "1"), list("cpu", "0"))), Limits{CPUShares: 1024}},
	} {
		c.want.LimitAllHugePages, c.want.SetMemoryQoS = true, true
		if got := PodLimits(c.settings, c.pod); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s:\n got %+v\nwant %+v", name, got, c.want)
		}
	}
}

// fakeUnits records the calls to systemd.
type fakeUnits struct {
	calls   []string
	reloads int
	known   map[string]bool
	fail    error
	// stopped, if not nil, is called with the name of each stopped unit.
	stopped func(name string)
}

func (f *fakeUnits) start(_ context.Context, name string, props []dbus.Property) (bool, error) {
	f.calls = append(f.calls, "start "+name+values(props))
	made := !f.known[name]
	if f.known == nil {
		f.known = map[string]bool{}
	}
	f.known[name] = true
	return made, f.fail
}

func (f *fakeUnits) set(_ context.Context, name string, props []dbus.Property) error {
	f.calls = append(f.calls, "set "+name+values(props))
	return f.fail
}

func (f *fakeUnits) stop(_ context.Context, name string) error {
	f.calls = append(f.calls, "stop "+name)
	if f.stopped != nil {
		f.stopped(name)
	}
	return f.fail
}

func (f *fakeUnits) reload(context.Context) error {
	f.reloads++
	return nil
}

// values formats the properties that are limits.
func values(props []dbus.Property) string {
	var all []string
	for _, p := range props {
		if strings.HasPrefix(p.Name, "CPU") && p.Name != "CPUAccounting" || slices.Contains([]string{"MemoryMax", "MemoryMin", "MemoryLow", "MemoryHigh"}, p.Name) || p.Name == "TasksMax" {
			all = append(all, fmt.Sprintf(" %s=%v", p.Name, p.Value.Value()))
		}
	}
	return strings.Join(all, "")
}

// aV2Mount makes a directory that looks like a cgroup v2 hierarchy with the given
// cgroups.
func aV2Mount(t *testing.T, groups ...string) (Facts, func(rel, name string) string) {
	t.Helper()
	mount := t.TempDir()
	for _, rel := range append(groups, "/") {
		if err := os.MkdirAll(filepath.Join(mount, rel), 0o755); err != nil {
			t.Fatal(err)
		}
		for name, text := range map[string]string{
			"cgroup.controllers": "cpu io memory pids\n", "cgroup.subtree_control": "", "cpu.weight": "", "cpu.max": "", "memory.max": "", "memory.min": "", "memory.low": "", "memory.high": "", "pids.max": "", "memory.current": "4096\n",
		} {
			if err := os.WriteFile(filepath.Join(mount, rel, name), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	facts := Facts{Version: V2, Mounts: []string{mount}, Controllers: map[string]string{"cpu": mount, "memory": mount, "pids": mount}}
	return facts, func(rel, name string) string {
		text, err := os.ReadFile(filepath.Join(mount, rel, name))
		if err != nil {
			return err.Error()
		}
		return string(text)
	}
}

func TestLimitsAreSetInSystemdAndInTheFiles(t *testing.T) {
	const root = "/podd.slice/podd-kubepods.slice"
	const podRel = root + "/podd-kubepods-burstable.slice/podd-kubepods-burstable-pod0f_a1.slice"
	facts, read := aV2Mount(t, root, "/podd.slice", root+"/podd-kubepods-burstable.slice", root+"/podd-kubepods-besteffort.slice", podRel)
	fake := &fakeUnits{}
	tree := NewTree(facts, Systemd, DefaultRoot, Settings{PodPIDs: 50, Pods: list("cpu", "2", "memory", "1Gi", "pid", "1000")})
	tree.units = fake
	tree.unitDirs = []string{t.TempDir()}
	p := aPod(with(list("cpu", "1"), list("cpu", "1500m", "memory", "64Mi")))
	if err := tree.Ensure(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"start podd.slice",
		"start podd-kubepods.slice CPUWeight=79 MemoryMax=1073741824 TasksMax=1000",
		"start podd-kubepods-burstable.slice CPUWeight=1",
		"start podd-kubepods-besteffort.slice CPUWeight=1",
		"start podd-kubepods-burstable-pod0f_a1.slice CPUWeight=39 CPUQuotaPerSecUSec=1500000 MemoryMax=67108864 TasksMax=50",
		"set podd-kubepods-burstable.slice CPUWeight=39",
	}
	if !slices.Equal(fake.calls, want) {
		t.Errorf("calls of systemd:\n got %q\nwant %q", fake.calls, want)
	}
	for name, value := range map[string]string{"cpu.weight": "39", "cpu.max": "150000 100000", "memory.max": "67108864", "pids.max": "50"} {
		if got := read(podRel, name); got != value {
			t.Errorf("%s of the pod: got %q, want %q", name, got, value)
		}
	}
	if got := read(root, "cgroup.subtree_control"); !strings.Contains(got, "+") {
		t.Errorf("delegated controllers: got %q", got)
	}

	fake.calls = nil
	if err := tree.Ensure(t.Context(), p); err != nil || len(fake.calls) != 0 {
		t.Errorf("again: got %v and calls %q, want none", err, fake.calls)
	}
	less := aPod(with(list("cpu", "500m"), list("cpu", "2", "memory", "32Mi")))
	refused := errors.New("refused")
	if err := tree.Raise(t.Context(), less, func(Limits, Limits) error { return refused }); !errors.Is(err, refused) || len(fake.calls) != 0 {
		t.Errorf("an announcement that is refused: got %v and calls %q, want none", err, fake.calls)
	}
	var announced []string
	announce := func(from, to Limits) error {
		announced = append(announced, fmt.Sprintf("%d/%d to %d/%d", from.CPUShares, from.Memory>>20, to.CPUShares, to.Memory>>20))
		return nil
	}
	if err := errors.Join(tree.Raise(t.Context(), less, announce), tree.Update(t.Context(), less, announce)); err != nil {
		t.Fatal(err)
	}
	if want := []string{"1024/64 to 1024/64", "1024/64 to 512/32"}; !slices.Equal(announced, want) {
		t.Errorf("announced: got %q, want %q", announced, want)
	}
	want = []string{
		"set podd-kubepods-burstable-pod0f_a1.slice CPUWeight=39 CPUQuotaPerSecUSec=2000000 MemoryMax=67108864 TasksMax=50",
		"set podd-kubepods-burstable.slice CPUWeight=20",
		"set podd-kubepods-burstable-pod0f_a1.slice CPUWeight=20 CPUQuotaPerSecUSec=2000000 MemoryMax=33554432 TasksMax=50",
	}
	if !slices.Equal(fake.calls, want) {
		t.Errorf("a resize:\n got %q\nwant %q", fake.calls, want)
	}
	if got, err := tree.Usage(less, ""); got != 4096 || err != nil {
		t.Errorf("usage: got %d, %v", got, err)
	}
}

// TestAMemoryLimitIsNotLoweredBelowWhatIsInUse when podd starts: the pod has the limit that an
// earlier podd gave it until a resize may lower it.
func TestAMemoryLimitIsNotLoweredBelowWhatIsInUse(t *testing.T) {
	const root = "/podd"
	for _, tt := range []struct{ had, used, want, now string }{
		{"67108864", "50331648", "67108864", "64Mi"},
		{"67108864", "1048576", "33554432", "32Mi"},
		{"max", "50331648", "max", "0"},
		{"16777216", "16777216", "33554432", "32Mi"},
	} {
		p := aPod(with(list("cpu", "1"), list("cpu", "1", "memory", "32Mi")))
		podRel := root + "/burstable/pod" + string(p.UID)
		facts, read := aV2Mount(t, root, root+"/burstable", root+"/besteffort", podRel)
		for name, text := range map[string]string{"memory.max": tt.had, "memory.current": tt.used + "\n"} {
			if err := os.WriteFile(filepath.Join(facts.Mounts[0], podRel, name), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		tree := NewTree(facts, Cgroupfs, root, Settings{})
		if err := tree.Ensure(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		if got := read(podRel, "memory.max"); got != tt.want {
			t.Errorf("%+v: the limit is %q", tt, got)
		}
		if now, next := tree.MemoryLimit(p); resource.NewQuantity(now, resource.BinarySI).String() != tt.now || next != 32<<20 {
			t.Errorf("%+v: the tree says %d now and %d next", tt, now, next)
		}
		if err := tree.Update(t.Context(), p, nil); err != nil || read(podRel, "memory.max") != "33554432" {
			t.Errorf("%+v, once it may: got %v and a limit of %q", tt, err, read(podRel, "memory.max"))
		}
	}
}

// TestFilesHaveTheQuotaAsSystemdRoundsIt: a pod's file once had the quota before
// rounding, and on v1 a container's, which runc rounds up, exceeded it.
func TestFilesHaveTheQuotaAsSystemdRoundsIt(t *testing.T) {
	for name, c := range map[string]struct {
		driver        Driver
		quota, period int64
		want          int64
	}{
		"between two steps": {Systemd, 1_500, 100_000, 2_000},
		"a step":            {Systemd, 2_000, 100_000, 2_000},
		"another period":    {Systemd, 5_100, 50_000, 5_500},
		"no limit":          {Systemd, -1, 100_000, -1},
		"without systemd":   {Cgroupfs, 1_500, 100_000, 1_500},
	} {
		for _, version := range []Version{V1, V2} {
			tree := NewTree(Facts{Version: version, Controllers: map[string]string{"cpu": "/"}}, c.driver, DefaultRoot, Settings{})
			want := []file{{"cpu", "cpu.cfs_period_us", number(c.period)}, {"cpu", "cpu.cfs_quota_us", number(c.want)}}
			if version == V2 {
				want = []file{{"cpu", "cpu.max", strings.Replace(number(c.want), "-1", "max", 1) + " " + number(c.period)}}
			}
			if got := tree.files(Limits{CPUQuota: c.quota, CPUPeriod: c.period}); !slices.Equal(got, want) {
				t.Errorf("%s, %v: got %v, want %v", name, version, got, want)
			}
		}
	}
}

func TestHugePagesAreLimitedInUseAndReserved(t *testing.T) {
	for version, limit := range map[Version]string{V1: "limit_in_bytes", V2: "max"} {
		mount := t.TempDir()
		tree := NewTree(Facts{Version: version, Mounts: []string{mount}, Controllers: map[string]string{"hugetlb": mount}}, Cgroupfs, DefaultRoot, Settings{})
		tree.pageSizes = []int64{2 << 20, 1 << 30}
		want := map[string]string{"hugetlb.2MB." + limit: "4194304", "hugetlb.2MB.rsvd." + limit: "4194304", "hugetlb.1GB." + limit: "0"} // without rsvd, as on an old kernel
		for name := range want {
			if err := os.WriteFile(filepath.Join(mount, name), nil, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if err := tree.apply("/", Limits{}, Limits{HugePages: map[int64]int64{2 << 20: 4 << 20}, LimitAllHugePages: true}); err != nil {
			t.Fatal(err)
		}
		for name, value := range want {
			if got, err := os.ReadFile(filepath.Join(mount, name)); string(got) != value || err != nil {
				t.Errorf("%v: %s: got %q, %v, want %q", version, name, got, err, value)
			}
		}
		if err := os.Remove(filepath.Join(mount, "hugetlb.1GB."+limit)); err != nil {
			t.Fatal(err)
		}
		if err := tree.apply("/", Limits{}, Limits{LimitAllHugePages: true}); err == nil {
			t.Errorf("%v: without the file of a limit: got no error", version)
		}
	}
}

func TestQuotaOfSystemd(t *testing.T) {
	for _, c := range []struct {
		quota, period int64
		want          uint64
	}{{-1, 100000, 1<<64 - 1}, {100000, 100000, 1000000}, {1000, 100000, 10000}, {12345, 100000, 130000}, {5000, 10000, 500000}} {
		if got := quotaPerSecond(c.quota, c.period); got != c.want {
			t.Errorf("%d/%d: got %d, want %d", c.quota, c.period, got, c.want)
		}
	}
}

func TestRaised(t *testing.T) {
	from := Limits{CPUShares: 10, CPUQuota: 100, CPUPeriod: 1, Memory: 100}
	for name, c := range map[string]struct{ from, to, want Limits }{
		"up":              {from, Limits{CPUShares: 20, CPUQuota: 200, CPUPeriod: 1, Memory: 200}, Limits{CPUShares: 20, CPUQuota: 200, CPUPeriod: 1, Memory: 200}},
		"down":            {from, Limits{CPUShares: 2, CPUQuota: 2, CPUPeriod: 1, Memory: 2}, from},
		"a limit is new":  {Limits{CPUShares: 10}, Limits{CPUShares: 10, CPUQuota: 5, CPUPeriod: 1, Memory: 5}, Limits{CPUShares: 10}},
		"a limit is gone": {from, Limits{CPUShares: 10}, Limits{CPUShares: 10}},
		"memory is protected": {
			Limits{MemoryQoS: pod.MemoryQoS{Min: 1, Low: 4, High: 5}}, Limits{MemoryQoS: pod.MemoryQoS{Min: 2, Low: 3, High: 6}, SetMemoryQoS: true},
			Limits{MemoryQoS: pod.MemoryQoS{Min: 2, Low: 4, High: 6}, SetMemoryQoS: true},
		},
		"memory is no longer throttled": {Limits{MemoryQoS: pod.MemoryQoS{High: 5}}, Limits{}, Limits{}},
		"memory was not throttled":      {Limits{}, Limits{MemoryQoS: pod.MemoryQoS{High: 5}}, Limits{}},
	} {
		if got := maxLimits(c.from, c.to); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: got %+v, want %+v", name, got, c.want)
		}
	}
}

// TestGroupsOfPodsOnRealHierarchies uses those of this machine, of either
// version.
func TestGroupsOfPodsOnRealHierarchies(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("making cgroups needs root")
	}
	facts, err := Detect()
	if err != nil {
		t.Fatal(err)
	}
	const root = "/podd-test-groups/kubepods"
	tree := NewTree(facts, Cgroupfs, root, Settings{PodPIDs: 77, Pods: list("cpu", "3", "memory", "1Gi", "pid", "1000")})
	t.Cleanup(func() {
		if err := tree.RemoveRoot(context.Background()); err != nil {
			t.Error(err)
		}
	})
	read := func(rel, v1Name, v2Name string) string {
		name := v1Name
		controller, _, _ := strings.Cut(v1Name, ".")
		if facts.Version == V2 {
			name = v2Name
		}
		text, err := os.ReadFile(filepath.Join(facts.Controllers[controller], rel, name))
		if err != nil {
			return err.Error()
		}
		return strings.TrimSpace(string(text))
	}
	full := list("cpu", "500m", "memory", "64Mi")
	burstable := aPod(with(list("cpu", "250m"), full))
	burstable.UID = "b1"
	guaranteed := aPod(with(full, full))
	guaranteed.UID = "g1"
	began := time.Now()
	for _, p := range []*v1.Pod{burstable, guaranteed} {
		if err := tree.Ensure(t.Context(), p); errors.Is(err, os.ErrPermission) {
			t.Skipf("cannot make a cgroup here: %v", err)
		} else if err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("two cgroups and those above them took %v", time.Since(began))
	v2 := facts.Version == V2
	pick := func(one, two string) string {
		if v2 {
			return two
		}
		return one
	}
	check := func(rel, v1Name, v2Name, want string) {
		t.Helper()
		if got := read(rel, v1Name, v2Name); got != want {
			t.Errorf("%s of %s: got %q, want %q", v1Name, rel, got, want)
		}
	}
	check(root, "cpu.shares", "cpu.weight", pick("3072", "118"))
	check(root, "memory.limit_in_bytes", "memory.max", "1073741824")
	check(root, "pids.max", "pids.max", "1000")
	check(root+"/besteffort", "cpu.shares", "cpu.weight", pick("2", "1"))
	check(root+"/burstable", "cpu.shares", "cpu.weight", pick("256", "10"))
	check(root+"/burstable/podb1", "cpu.shares", "cpu.weight", pick("256", "10"))
	check(root+"/burstable/podb1", "cpu.cfs_quota_us", "cpu.max", pick("50000", "50000 100000"))
	check(root+"/burstable/podb1", "memory.limit_in_bytes", "memory.max", "67108864")
	check(root+"/burstable/podb1", "pids.max", "pids.max", "77")
	check(root+"/podg1", "cpu.shares", "cpu.weight", pick("512", "20"))

	second := burstable.DeepCopy()
	second.UID = "b2"
	if err := tree.Ensure(t.Context(), second); err != nil {
		t.Fatal(err)
	}
	check(root+"/burstable", "cpu.shares", "cpu.weight", pick("512", "20"))
	began = time.Now()
	if err := tree.Ensure(t.Context(), second); err != nil {
		t.Fatal(err)
	}
	t.Logf("Ensure of an existing cgroup took %v", time.Since(began))
	if err := tree.Remove(t.Context(), "b2"); err != nil {
		t.Fatal(err)
	}
	check(root+"/burstable", "cpu.shares", "cpu.weight", pick("256", "10"))

	bigger := aPod(with(list("cpu", "1"), list("cpu", "2", "memory", "32Mi")))
	bigger.UID = "b1"
	if err := tree.Raise(t.Context(), bigger, nil); err != nil {
		t.Fatal(err)
	}
	check(root+"/burstable/podb1", "cpu.cfs_quota_us", "cpu.max", pick("200000", "200000 100000"))
	check(root+"/burstable/podb1", "memory.limit_in_bytes", "memory.max", "67108864")
	if err := tree.Update(t.Context(), bigger, nil); err != nil {
		t.Fatal(err)
	}
	check(root+"/burstable/podb1", "memory.limit_in_bytes", "memory.max", "33554432")
	check(root+"/burstable", "cpu.shares", "cpu.weight", pick("1024", "39"))

	// Removed by somebody else: Ensure creates it again.
	if err := tree.RemoveRoot(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := tree.Ensure(t.Context(), guaranteed); err != nil {
		t.Fatal(err)
	}
	check(root+"/podg1", "memory.limit_in_bytes", "memory.max", "67108864")
}

// TestSameLimits changes one field at a time.
func TestSameLimits(t *testing.T) {
	pages := func(n int64) map[int64]int64 { return map[int64]int64{2 << 20: n} }
	a := Limits{CPUShares: 1, CPUQuota: 2, CPUPeriod: 3, Memory: 4, PIDs: 5, HugePages: pages(6), LimitAllHugePages: true}
	b := a
	b.HugePages = pages(6)
	if !same(a, b) {
		t.Errorf("got %+v and %+v as different", a, b)
	}
	for name, change := range map[string]func(*Limits){
		"shares": func(l *Limits) { l.CPUShares++ }, "quota": func(l *Limits) { l.CPUQuota++ }, "period": func(l *Limits) { l.CPUPeriod++ },
		"memory": func(l *Limits) { l.Memory++ }, "processes": func(l *Limits) { l.PIDs++ },
		"pages": func(l *Limits) { l.HugePages = pages(7) }, "all pages": func(l *Limits) { l.LimitAllHugePages = false },
		"protection": func(l *Limits) { l.MemoryQoS.Low = 8 }, "no protection": func(l *Limits) { l.SetMemoryQoS = true },
	} {
		c := a
		if change(&c); same(a, c) {
			t.Errorf("%s: got %+v and %+v as the same", name, a, c)
		}
	}
}
