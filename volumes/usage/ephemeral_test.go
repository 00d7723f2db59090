package usage

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// limited returns a container, with a limit unless that is empty.
func limited(name, limit string) v1.Container {
	c := v1.Container{Name: name}
	if limit != "" {
		c.Resources.Limits = v1.ResourceList{v1.ResourceEphemeralStorage: resource.MustParse(limit)}
	}
	return c
}

// sidecar and initial mark init containers for byKind, by their restart policies.
func sidecar(c v1.Container) v1.Container { return withPolicy(c, v1.ContainerRestartPolicyAlways) }
func initial(c v1.Container) v1.Container { return withPolicy(c, v1.ContainerRestartPolicyNever) }

func withPolicy(c v1.Container, policy v1.ContainerRestartPolicy) v1.Container {
	c.RestartPolicy = &policy
	return c
}

func byKind(all []v1.Container) (first, regular []v1.Container) {
	for _, c := range all {
		if c.RestartPolicy != nil {
			first = append(first, c)
		} else {
			regular = append(regular, c)
		}
	}
	return first, regular
}

const logs = "/logs/default_web_u1/"

// In the order and with the messages of upstream's localStorageEviction.
func TestAPodThatExceedsItsEphemeralStorageLimit(t *testing.T) {
	const mib = 1 << 20
	one := []v1.Container{limited("web", "10Mi")}
	two := []v1.Container{limited("web", "10Mi"), limited("side", "5Mi")}
	data, config := empty("data", "", ""), v1.Volume{Name: "config", VolumeSource: v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{}}}
	ofPod := func(limit string) string {
		return "Pod ephemeral local storage usage exceeds the total limit of containers " + limit + ". "
	}
	for name, tc := range map[string]struct {
		containers []v1.Container
		volumes    []v1.Volume
		used       map[string]int64
		want       string // message, or nothing
		signal     string
	}{
		"the writable layer":      {one, nil, map[string]int64{"/layer/web-1": 10*mib + 1}, ofPod("10Mi"), "ephemeralpodfs.limit"},
		"exactly the limit":       {one, nil, map[string]int64{"/layer/web-1": 10 * mib}, "", ""},
		"the logs":                {one, nil, map[string]int64{logs + "web": 11 * mib}, ofPod("10Mi"), "ephemeralpodfs.limit"},
		"an emptyDir":             {one, []v1.Volume{data}, map[string]int64{"data": 11 * mib}, ofPod("10Mi"), "ephemeralpodfs.limit"},
		"a configMap":             {one, []v1.Volume{config}, map[string]int64{"config": 11 * mib}, ofPod("10Mi"), "ephemeralpodfs.limit"},
		"all together":            {one, []v1.Volume{data}, map[string]int64{"data": 4 * mib, logs + "web": 4 * mib, "/layer/web-1": 4 * mib}, ofPod("10Mi"), "ephemeralpodfs.limit"},
		"memory takes no disk":    {one, []v1.Volume{empty("data", "", v1.StorageMediumMemory)}, map[string]int64{"data": 11 * mib}, "", ""},
		"one container's":         {two, nil, map[string]int64{"/layer/side-1": 4 * mib, logs + "side": 2 * mib}, `Container side exceeded its local ephemeral storage limit "5Mi". `, "ephemeralcontainerfs.limit"},
		"no container has others": {two, []v1.Volume{data}, map[string]int64{"data": 14 * mib, "/layer/side-1": 1}, "", ""},
		"one without a limit counts for the pod": {[]v1.Container{limited("web", "10Mi"), limited("side", "")}, nil,
			map[string]int64{"/layer/side-1": 11 * mib}, ofPod("10Mi"), "ephemeralpodfs.limit"},
		"the emptyDir's own limit first": {one, []v1.Volume{empty("data", "1Mi", "")}, map[string]int64{"data": 11 * mib},
			`Usage of EmptyDir volume "data" exceeds the limit "1Mi". `, "emptydirfs.limit"},
		"a sidecar's": {[]v1.Container{limited("web", "10Mi"), sidecar(limited("proxy", "1Mi"))}, nil, map[string]int64{"/layer/proxy-1": 2 * mib},
			`Container proxy exceeded its local ephemeral storage limit "1Mi". `, "ephemeralcontainerfs.limit"},
		"an init container's is the pod's": {[]v1.Container{limited("web", "10Mi"), initial(limited("proxy", "1Mi"))}, nil, map[string]int64{"/layer/proxy-1": 2 * mib}, "", ""},
		"none at all":                      {[]v1.Container{limited("web", "")}, []v1.Volume{data}, map[string]int64{"data": 1 << 40}, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newDisk()
				d.used = tc.used
				d.run("web-1", "side-1", "proxy-1")
				p := aPod(tc.volumes...)
				p.Spec.InitContainers, p.Spec.Containers = byKind(tc.containers)
				ctx, stop := context.WithTimeout(t.Context(), time.Minute)
				defer stop()
				e, exceeded := d.limits(&bytes.Buffer{}).Watch(ctx, p)
				if exceeded != (tc.want != "") || e.Message != tc.want || e.Signal != tc.signal {
					t.Errorf("got %q by %q (%v), want %q by %q", e.Message, e.Signal, exceeded, tc.want, tc.signal)
				}
			})
		})
	}
}

// As with the kubelet's dedicated image file system: it counts for the pod's limit only.
func TestALayerOnAnotherFileSystemDoesNotCountForItsContainer(t *testing.T) {
	root := t.TempDir()
	if err := os.Mkdir(root+"/pods", 0o755); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		on       string
		exceeded bool
	}{{root, true}, {"/proc", false}} {
		synctest.Test(t, func(t *testing.T) {
			d := newDisk()
			d.run("web-1")
			d.layer["web-1"] = Layer{Used: Amount{Bytes: 6 << 20}, FSPath: tc.on}
			m := d.limits(&bytes.Buffer{})
			m.cfg.Dirs.Root = root
			p := aPod()
			p.Spec.Containers = []v1.Container{limited("web", "5Mi"), limited("side", "5Mi")}
			ctx, stop := context.WithTimeout(t.Context(), time.Minute)
			defer stop()
			if e, exceeded := m.Watch(ctx, p); exceeded != tc.exceeded {
				t.Errorf("on %s: got %q (%v), want %v", tc.on, e.Message, exceeded, tc.exceeded)
			}
		})
	}
}

// A restarted container has a new layer, and the layer of one that has exited no longer
// counts. The runtime is asked once for a layer's directory, and each time for the usage
// of a layer without one.
func TestOnlyRunningContainersAreWatched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, log := newDisk(), &bytes.Buffer{}
		d.used = map[string]int64{"/layer/web-1": 4 << 20, "/layer/web-2": 4 << 20}
		d.run("web-1")
		time.AfterFunc(35*time.Second, func() { d.run() })
		time.AfterFunc(65*time.Second, func() {
			d.run("web-2", "side-1")
			d.mu.Lock()
			d.layer["side-1"] = Layer{Used: Amount{Bytes: 1}, FSPath: "/"}
			d.mu.Unlock()
		})
		time.AfterFunc(95*time.Second, func() { d.fill("/layer/web-2", 11<<20) })
		p, began := aPod(), time.Now()
		p.Spec.Containers = []v1.Container{limited("web", "7Mi"), limited("side", "1Mi")}
		e, exceeded := d.limits(log).Watch(t.Context(), p)
		if took := time.Since(began); !exceeded || took != 100*time.Second || !strings.HasPrefix(e.Message, "Pod ephemeral") {
			t.Errorf("got %q (%v) after %v, want the pod's limit at the measurement after 100s", e.Message, exceeded, took)
		}
		if d.asked["web-1"] != 1 || d.asked["web-2"] != 1 || d.asked["side-1"] < 2 {
			t.Errorf("the runtime was asked %v, want once for each directory", d.asked)
		}
		if log.Len() > 0 {
			t.Errorf("log: %s", log)
		}
	})
}

// TestWhatContainersWriteToPoddsFilesCounts, also when the container that wrote it has
// exited, and not for another container; statistics have the same sum.
func TestWhatContainersWriteToPoddsFilesCounts(t *testing.T) {
	const mib = 1 << 20
	for _, tc := range []struct{ name, file, want string }{
		{"nothing", "", ""},
		{"the hosts file", "etc-hosts", "Pod ephemeral local storage usage exceeds the total limit of containers 5Mi. "},
		{"resolv.conf", "etc-resolv.conf", "Pod ephemeral local storage usage exceeds the total limit of containers 5Mi. "},
		{"hostname", "etc-hostname", "Pod ephemeral local storage usage exceeds the total limit of containers 5Mi. "},
		{"a termination log", "containers/side/0a1b2c3d", `Container side exceeded its local ephemeral storage limit "1Mi". `},
		{"one of a container that has exited", "containers/done/0a1b2c3d", ""},
	} {
		root := t.TempDir()
		if tc.file != "" {
			file := filepath.Join(root, "pods", "u1", tc.file)
			if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
				t.Fatal(err)
			}
			size := 2 * mib
			if strings.HasPrefix(tc.file, "etc-") {
				size = 6 * mib
			}
			if err := os.WriteFile(file, make([]byte, size), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Test(t, func(t *testing.T) {
			d := newDisk()
			d.run("web-1", "side-1")
			m := d.limits(&bytes.Buffer{})
			m.cfg.Dirs.Root = root
			p := aPod()
			p.Spec.InitContainers = []v1.Container{limited("done", "")}
			p.Spec.Containers = []v1.Container{limited("web", "4Mi"), limited("side", "1Mi")}
			p.Status = d.status(p.UID).Status
			ctx, stop := context.WithTimeout(t.Context(), time.Minute)
			defer stop()
			if e, exceeded := m.Watch(ctx, p); exceeded != (tc.want != "") || e.Message != tc.want {
				t.Errorf("%s: got %q (%v), want %q", tc.name, e.Message, exceeded, tc.want)
			}
			m.statfs = func(string) (fileSystem, error) { return fileSystem{}, nil }
			s := m.Pods(t.Context(), []*v1.Pod{p})
			if got := *s[0].EphemeralStorage.UsedBytes; (got >= 2*mib) != (tc.file != "") {
				t.Errorf("%s: statistics: got %d bytes", tc.name, got)
			}
		})
	}
}

// TestACountThatWasCutIsAnExcess of a limit, whatever was counted.
func TestACountThatWasCutIsAnExcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk()
		m := d.limits(&bytes.Buffer{})
		size := m.size
		m.size = func(ctx context.Context, dir string, enough int64) (Amount, error) {
			used, err := size(ctx, dir, enough)
			if err == nil && dir == "data" {
				err = errIncomplete
			}
			return used, err
		}
		e, exceeded := m.Watch(t.Context(), aPod(empty("data", "1Gi", "")))
		if !exceeded || e.Signal != "emptydirfs.limit" || !strings.Contains(e.Message, "cannot be counted") || !strings.Contains(e.Message, `volume "data" exceeds`) {
			t.Errorf("got %q by %q (%v)", e.Message, e.Signal, exceeded)
		}
	})
}
