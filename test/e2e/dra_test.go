package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"podd/test/cluster"
	"podd/test/e2e/testnode"
)

// draProgram builds test/dradriver, once for all tests.
var draProgram = sync.OnceValues(func() (string, error) {
	repo, err := testnode.RepoRoot()
	if err != nil {
		return "", err
	}
	binary := filepath.Join(base, "dradriver")
	cmd := exec.Command("go", "build", "-o", binary, ".")
	cmd.Dir, cmd.Env = filepath.Join(repo, "test/dradriver"), append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the driver of dynamic resources: %w\n%s", err, out)
	}
	return binary, nil
})

// draDriver is a driver of dynamic resources made with upstream's library, as a program of the
// host.
type draDriver struct {
	*member
	name, calls string
	cmd         *exec.Cmd
}

func (m *member) newDRADriver() *draDriver {
	d := &draDriver{member: m, name: fmt.Sprintf("node%d.dra.podd.example.com", m.node.Number), calls: filepath.Join(m.podd.Dir, "dra.calls")}
	m.Cleanup(func() {
		d.stop()
		left, _ := filepath.Glob("/var/run/cdi/" + d.name + "-*.json")
		for _, file := range left {
			os.Remove(file)
		}
	})
	return d
}

func (d *draDriver) start() {
	d.Helper()
	binary, err := draProgram()
	kubeconfig := filepath.Join(d.podd.Dir, "dra.kubeconfig")
	if err == nil {
		err = d.server.NodeKubeconfig(kubeconfig, d.podd.NodeName())
	}
	if err != nil {
		d.Fatal(err)
	}
	log, err := os.OpenFile(filepath.Join(d.podd.Dir, "dra.log"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		d.Fatal(err)
	}
	defer log.Close()
	d.cmd = exec.Command(binary, "-driver="+d.name, "-node="+d.podd.NodeName(), "-cdi=/var/run/cdi", "-calls="+d.calls, "-kubeconfig="+kubeconfig,
		"-registrar="+filepath.Join(d.node.Root(), "plugins_registry"), "-data="+filepath.Join(d.node.Root(), "plugins", d.name))
	d.cmd.Stdout, d.cmd.Stderr = log, log
	if err := d.cmd.Start(); err != nil {
		d.Fatal(err)
	}
}

// stop ends the driver, if it runs.
func (d *draDriver) stop() {
	if d.cmd != nil {
		_ = d.cmd.Process.Signal(unix.SIGTERM)
		_ = d.cmd.Wait()
		d.cmd = nil
	}
}

// heard are the calls so far.
func (d *draDriver) heard() []string {
	text, err := os.ReadFile(d.calls)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		d.Error(err)
	}
	return strings.Split(strings.TrimSpace(string(text)), "\n")
}

// sliced are the drivers with ResourceSlices.
func (m *member) sliced(ctx context.Context) (drivers []string, err error) {
	text, err := m.server.Client().Raw(ctx, "/apis/resource.k8s.io/v1/resourceslices")
	var list resourcev1.ResourceSliceList
	if err = errors.Join(err, json.Unmarshal(text, &list)); err != nil {
		return nil, err
	}
	for _, s := range list.Items {
		drivers = append(drivers, s.Spec.Driver)
	}
	return drivers, nil
}

func (m *member) hasSlicesOf(drivers ...string) {
	m.Helper()
	m.eventually(fmt.Sprintf("there are ResourceSlices of %q alone", drivers), func(ctx context.Context) error {
		got, err := m.sliced(ctx)
		if err == nil && !slices.Equal(got, drivers) {
			err = fmt.Errorf("there are those of %q", got)
		}
		return err
	})
}

// allocate gives a claim a device, and reserves it for pods, as the scheduler does.
func (m *member) allocate(claim, driver, device string, pods ...string) {
	m.Helper()
	o, c := cluster.Object{"kind": "ResourceClaim", "metadata": map[string]any{"name": claim}}, &resourcev1.ResourceClaim{}
	if err := m.server.Client().Get(m.Context(), o, c); err != nil {
		m.Fatal(err)
	}
	c.Kind, c.APIVersion = "ResourceClaim", "resource.k8s.io/v1"
	c.Status.Allocation = &resourcev1.AllocationResult{Devices: resourcev1.DeviceAllocationResult{Results: []resourcev1.DeviceRequestAllocationResult{
		{Request: "one", Driver: driver, Pool: m.podd.NodeName(), Device: device},
	}}}
	for _, name := range pods {
		var p v1.Pod
		if err := m.server.Client().Get(m.Context(), podNamed(name), &p); err != nil {
			m.Fatal(err)
		}
		c.Status.ReservedFor = append(c.Status.ReservedFor, resourcev1.ResourceClaimConsumerReference{Resource: "pods", Name: name, UID: p.UID})
	}
	if err := m.server.Client().PutStatus(m.Context(), o, c); err != nil {
		m.Fatal(err)
	}
}

// claiming is a pod whose container marks what it has of a claim.
func (m *member) claiming(name, claim string) string {
	text := m.podOf(name, "echo $DRA_DEVICE > /out/"+name+".has; : > /out/"+name+"; ${REST}", "resourceClaims: [{name: mine, resourceClaimName: "+claim+"}]")
	return replaced(m, text, "    volumeMounts:", "    resources: {claims: [{name: mine, request: one}]}\n    volumeMounts:")
}

// A driver made with upstream's library comes after the pods that need it. Two pods share a
// claim; podd is killed in between; the driver has unprepared the claim before the last pod's
// end can be seen.
func TestPodsOfTheClusterHaveTheDevicesOfTheirResourceClaims(t *testing.T) {
	m := meet(t)
	if err := m.server.NodeKubeconfig(m.kubeconfig(), m.podd.NodeName()); err != nil {
		t.Fatal(err)
	}
	slice := "apiVersion: resource.k8s.io/v1\nkind: ResourceSlice\nmetadata: {name: %s}\nspec: {driver: %s, nodeName: %s, pool: {name: %[1]s, generation: 1, resourceSliceCount: 1}}\n"
	m.apply(fmt.Sprintf(slice, "old", "old.example.com", m.podd.NodeName()))
	m.apply(fmt.Sprintf(slice, "others", "others.example.com", "another-node"))
	m.start()
	m.hasSlicesOf("others.example.com") // of this node, none whose driver may not come back

	d := m.newDRADriver()
	m.apply("apiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nmetadata: {name: gpu}\nspec: {devices: {requests: [{name: one, exactly: {deviceClassName: gpu}}]}}\n")
	m.bind(m.claiming("web", "gpu"))
	m.told("web", "FailedPrepareDynamicResources", "Failed to prepare dynamic resources: prepare dynamic resources: pod web (", ") is not allowed to use ResourceClaim gpu (")
	m.bind(m.claiming("two", "gpu"))
	m.allocate("gpu", d.name, "gpu1", "web", "two")
	m.told("web", "FailedPrepareDynamicResources", "Failed to prepare dynamic resources: prepare dynamic resources: DRA driver "+d.name+" is not registered")
	d.start()
	web := m.shown("web", "ready", isReady)
	m.shown("two", "ready", isReady)
	m.hasSlicesOf(d.name, "others.example.com")
	for _, name := range []string{"web", "two"} {
		m.mark(name)
		if got := m.contents(name + ".has"); got != "gpu1\n" {
			t.Errorf("%s has %q", name, got)
		}
	}
	if got := d.heard(); len(got) != 1 || !strings.HasPrefix(got[0], "prepare gpu ") {
		t.Errorf("the driver has heard %q", got)
	}
	m.healthOfClaim("web", v1.ResourceHealthStatusUnknown) // this driver says nothing of it
	m.resourcesOfClaim("web", d.name)

	m.kill()
	m.start()
	if again := m.shown("web", "ready", isReady); containerID(again, "main") != containerID(web, "main") {
		t.Errorf("the pod did not stay as it was: %s", describe(again))
	}
	if err := os.Remove(filepath.Join(m.out, "web.has")); err != nil {
		t.Fatal(err)
	}
	m.terminate(m.shown("web", "ready", isReady), "main")
	m.eventually("the restarted container has its device", func(context.Context) error {
		if got, err := os.ReadFile(filepath.Join(m.out, "web.has")); err != nil || string(got) != "gpu1\n" {
			return fmt.Errorf("it has %q, %w", got, err)
		}
		return nil
	})
	m.delete("web")
	m.gone("web")
	if got := d.heard(); len(got) != 1 {
		t.Errorf("after one of two pods has gone the driver has heard %q", got)
	}
	// Without the driver the last pod's end is not reported.
	d.stop()
	m.delete("two")
	m.shows("it cannot be unprepared")
	m.shown("two", "running", isIn(v1.PodRunning))
	d.start()
	m.gone("two")
	if got := d.heard(); len(got) != 2 || got[1] != "unprepare gpu two=Running" {
		t.Errorf("the driver has heard %q", got)
	}
	if text, err := os.ReadFile(filepath.Join(m.node.Root(), "dra.json")); err != nil || strings.Contains(string(text), "gpu") {
		t.Errorf("dra.json says %s, %v", text, err)
	}
	if err := m.waitNothingLeft(t.Context()); err != nil {
		t.Error(err)
	}
}

// healthOfClaim waits until a pod's container shows one device of its claim with this health.
func (m *member) healthOfClaim(name string, health v1.ResourceHealthStatus) {
	m.Helper()
	m.shown(name, "with a device that is "+string(health), func(p *v1.Pod) error {
		all := firstContainer(p).AllocatedResourcesStatus
		if len(all) != 1 || all[0].Name != "claim:mine/one" || len(all[0].Resources) != 1 || all[0].Resources[0].Health != health {
			return fmt.Errorf("it has %v", all)
		}
		return nil
	})
}

// resourcesOfClaim checks what the pod resources API says of a pod's container.
func (m *member) resourcesOfClaim(name, driver string) {
	m.Helper()
	r := resourcesOf(m.env, func(ctx context.Context, c podresources.PodResourcesListerClient) (*podresources.GetPodResourcesResponse, error) {
		return c.Get(ctx, &podresources.GetPodResourcesRequest{PodNamespace: "default", PodName: name})
	})
	all := r.GetPodResources().GetContainers()[0].GetDynamicResources()
	if len(all) != 1 || all[0].ClaimName != "gpu" || len(all[0].ClaimResources) != 1 || all[0].ClaimResources[0].DriverName != driver ||
		all[0].ClaimResources[0].DeviceName != "gpu1" || len(all[0].ClaimResources[0].CdiDevices) != 1 {
		m.Errorf("the pod resources API says %v", all)
	}
}
