package cri_test

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"podd/cgroup"
	"podd/cri/critest"
	"podd/internal/pod"
	"podd/podconfig/manifest"
	"podd/podfs"
	"podd/volumes"
)

const kubeletData = "testdata/kubelet"

// recorded is what an agent makes of one manifest: the pod as it understands
// it, and what it asks of the runtime. Places and identities are replaced by
// words such as $UID.
type recorded struct {
	Pod        any            `json:"pod"`
	Sandbox    any            `json:"sandbox"`
	Containers map[string]any `json:"containers"`
	Hosts      string         `json:"hosts"`
}

// machine is where the kubelet ran.
type machine struct {
	NodeIP        string   `json:"nodeIP"`
	Memory        int64    `json:"memory"`
	CPUs          int64    `json:"cpus"`
	HugePageSizes []string `json:"hugePageSizes"`
	CgroupV2      bool     `json:"cgroupV2"`
}

// resolvConfOfBoth is the node's resolver configuration.
const resolvConfOfBoth = "nameserver 192.0.2.53\nnameserver 192.0.2.54\nsearch node.example lan\noptions timeout:2 attempts:3\n"

// imagesOfBoth are the runtime's.
func imagesOfBoth(srv *critest.Server) {
	srv.AddImage(image)
	srv.PutImage(critest.Image{Ref: "localhost/podd/user:1", Size: 1, UID: ptr(int64(65532))})
	srv.PutImage(critest.Image{Ref: "localhost/podd/named:1", Size: 1, Username: "nobody"})
	srv.Script("ends-first", critest.Script{ExitAfter: time.Millisecond}) // an init container
}

// TestRequestsAreTheKubelets compares podd with recordings of upstream's
// kubelet; testdata/kubelet/README.md says how they are made, and lists what
// differs on purpose.
func TestRequestsAreTheKubelets(t *testing.T) {
	var where machine
	readJSON(t, filepath.Join(kubeletData, "machine.json"), &where)
	files, err := filepath.Glob(filepath.Join(kubeletData, "*.yaml"))
	if err != nil || len(files) < 25 {
		t.Fatalf("got %d manifests, %v", len(files), err)
	}
	met := make([]bool, len(intends))
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".yaml")
		t.Run(name, func(t *testing.T) {
			var want recorded
			readJSON(t, filepath.Join(kubeletData, name+".json"), &want)
			got := requestsOfPodd(t, file, where)
			for _, d := range differences("", tree(t, want), tree(t, got)) {
				i := intended(name, d)
				if i < 0 {
					t.Errorf("%s\n  kubelet %s\n  podd    %s", d.path, d.kubelet, d.podd)
					continue
				}
				met[i] = true
			}
		})
	}
	for i, in := range intends {
		if !met[i] && !t.Failed() {
			t.Errorf("no manifest shows the difference %s any more: %s", in.path, in.reason)
		}
	}
}

func readJSON(t *testing.T, file string, into any) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, into); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
}

// requestsOfPodd takes the manifest the way that it takes in podd: decoded,
// its volumes set up, a sandbox run and each container made.
func requestsOfPodd(t *testing.T, file string, where machine) recorded {
	t.Helper()
	r := newRig(t)
	imagesOfBoth(r.srv)
	r.env.NodeName, r.env.NodeIPs = "node", func() []string { return []string{where.NodeIP} }
	r.opts.MemoryCapacity, r.opts.AllowNegativeOOMScore = where.Memory, true
	r.env.Allocatable = v1.ResourceList{
		v1.ResourceCPU:    *resource.NewQuantity(where.CPUs, resource.DecimalSI),
		v1.ResourceMemory: *resource.NewQuantity(where.Memory, resource.BinarySI),
	}
	r.opts.HugePageSizes, r.opts.CgroupV2 = where.HugePageSizes, where.CgroupV2
	r.opts.SwapControl, r.opts.SELinux = ptr(true), ptr(false)
	r.env.ClusterDNS, r.env.ClusterDomain = []string{"192.0.2.10"}, "cluster.local"
	tree := cgroup.NewTree(cgroup.Facts{Version: cgroup.V1}, cgroup.Cgroupfs, "/podd/kubepods", cgroup.Settings{})
	r.env.CgroupParent = tree.Parent
	r.env.ResolvConf = ptr(filepath.Join(r.dir, "resolv.conf"))
	if err := os.WriteFile(*r.env.ResolvConf, []byte(resolvConfOfBoth), 0o644); err != nil {
		t.Fatal(err)
	}
	r.env.UserNamespace = func(pod.UID) (uint32, uint32, error) { return 7 * someIDs, someIDs, nil }
	r.dial(t)

	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	decoded := manifest.Decode(text, manifest.Options{NodeName: "node", Source: pod.SourceFile, Origin: file, Now: time.Now()})
	if len(decoded.Failed) > 0 || len(decoded.Pods) != 1 { // warnings are fine
		t.Fatalf("got %d pods and the problems %v", len(decoded.Pods), decoded.Problems)
	}
	p := decoded.Pods[0].Pod
	disk, err := volumes.New(volumes.Options{RootDir: r.opts.Dirs.Root, NodeMemory: where.Memory}, quiet, prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	if needsRoot(p) && os.Getuid() != 0 {
		t.Skip("mounts are root's")
	}
	defer func() {
		if err := disk.TearDown(t.Context(), p.UID); err != nil {
			t.Error(err)
		}
	}()
	for ready := false; !ready; {
		state, err := disk.Ensure(t.Context(), p)
		if err != nil {
			t.Fatal(err)
		}
		ready = state.Ready
	}
	r.env.Volumes = disk
	s := r.sandbox(t, p, 0)
	for _, c := range containersOf(p) {
		req := r.requestOf(t, p, c, s, 0)
		if req.Mounts, err = disk.Mounts(p, c, req.Inputs.SubPaths); err != nil {
			t.Fatal(err)
		}
		image, err := r.ImageStatus(t.Context(), c.Image)
		if err != nil || image == nil {
			t.Fatalf("image %s: %v", c.Image, err)
		}
		req.Image = pod.ImageState{Ready: true, Ref: image.ID, UID: image.UID, Username: image.Username}
		if _, err := r.CreateContainer(t.Context(), req); err != nil {
			t.Fatal(err)
		}
	}
	return recordedOf(t, r.srv, p, "10.99.0.3", places{r.opts.Dirs.Root, r.opts.Dirs.PodLogs, "/podd"}, where)
}

// containersOf are the pod's, in the order in which they start.
func containersOf(p *v1.Pod) []*v1.Container {
	var all []*v1.Container
	for _, list := range [][]v1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for i := range list {
			all = append(all, &list[i])
		}
	}
	return all
}

// someIDs is how many a pod with a user namespace gets.
const someIDs = 1 << 16

// anyIDs makes the range of IDs that a pod got the first one; each agent chooses
// its own.
func anyIDs(t *testing.T, ns *runtimeapi.UserNamespace, mounts []*runtimeapi.Mount) {
	t.Helper()
	maps := [][]*runtimeapi.IDMapping{ns.GetUids(), ns.GetGids()}
	for _, m := range mounts {
		maps = append(maps, m.UidMappings, m.GidMappings)
	}
	first := uint32(0)
	for _, m := range slices.Concat(maps...) {
		if first == 0 {
			first = m.HostId
		}
		if m.HostId == first && first >= someIDs && first%someIDs == 0 {
			m.HostId = someIDs
		} else if m.HostId != someIDs { // mappings may be shared
			t.Errorf("the range %v is not %d", m, first)
		}
	}
}

// needsRoot says whether the pod's volumes mean a mount.
func needsRoot(p *v1.Pod) bool {
	for _, v := range p.Spec.Volumes {
		if v.EmptyDir != nil && v.EmptyDir.Medium == v1.StorageMediumMemory {
			return true
		}
	}
	for _, c := range p.Spec.Containers {
		for _, m := range c.VolumeMounts {
			if m.SubPath != "" || m.SubPathExpr != "" {
				return true
			}
		}
	}
	return false
}

// places are an agent's own, which say nothing about its requests.
type places struct{ root, logs, cgroups string }

// recordedOf is what the runtime was asked for that pod.
func recordedOf(t *testing.T, srv *critest.Server, p *v1.Pod, ip string, at places, where machine) recorded {
	t.Helper()
	if ip == "" || where.NodeIP == "" {
		t.Fatalf("%s: the pod's address is %q, the node's %q", p.Name, ip, where.NodeIP)
	}
	words := strings.NewReplacer(string(p.UID), "$UID", at.root, "$ROOT", at.logs, "$LOGS", where.NodeIP, "$NODE_IP", ip, "$POD_IP", at.cgroups+"/kubepods", "$CGROUP")
	nodeHosts, err := os.ReadFile("/etc/hosts")
	if err != nil || len(nodeHosts) == 0 {
		t.Skip("the node has no hosts file")
	}
	out := recorded{Containers: map[string]any{}}
	var sandbox string
	for _, s := range srv.Sandboxes() {
		if s.UID == string(p.UID) {
			config := proto.Clone(s.Config).(*runtimeapi.PodSandboxConfig)
			slices.Sort(config.DnsConfig.Options) // the kubelet keeps them in a map
			anyIDs(t, config.Linux.SecurityContext.NamespaceOptions.UsernsOptions, nil)
			sandbox, out.Sandbox = s.ID, fromProto(t, config, words)
		}
	}
	for _, c := range srv.Containers() {
		if c.SandboxID != sandbox {
			continue
		}
		config := proto.Clone(c.Config).(*runtimeapi.ContainerConfig)
		// One for each CPU of the machine.
		sc := config.Linux.SecurityContext
		anyIDs(t, sc.NamespaceOptions.UsernsOptions, config.Mounts)
		sc.MaskedPaths = slices.DeleteFunc(sc.MaskedPaths, func(path string) bool { return strings.HasSuffix(path, "/thermal_throttle") })
		// The kubelet leaves these two to the runtime, where they are in no limit.
		config.Mounts = slices.DeleteFunc(config.Mounts, func(m *runtimeapi.Mount) bool {
			return m.HostPath == podfs.Dirs{Root: at.root}.ResolvConf(p.UID) || m.HostPath == podfs.Dirs{Root: at.root}.Hostname(p.UID)
		})
		container := fromProto(t, config, words).(map[string]any)
		container["envs"] = variables(c.Config.Envs, words)
		out.Containers[c.Name] = container
		for _, m := range c.Config.Mounts {
			if filepath.Base(m.HostPath) == "etc-hosts" && strings.HasPrefix(m.HostPath, at.root) {
				text, err := os.ReadFile(m.HostPath)
				if err != nil {
					t.Fatal(err)
				}
				out.Hosts = words.Replace(strings.Replace(string(text), string(nodeHosts), "$NODE_HOSTS\n", 1))
			}
		}
	}
	text, err := json.Marshal(map[string]any{"metadata": p.ObjectMeta, "spec": p.Spec})
	if err != nil {
		t.Fatal(err)
	}
	out.Pod = fromJSON(t, text, words)
	return out
}

// variables have no order in the kubelet: it keeps them in a map.
func variables(envs []*runtimeapi.KeyValue, words *strings.Replacer) map[string]string {
	out := map[string]string{}
	for _, e := range envs {
		out[e.Key] = words.Replace(string(e.Value))
	}
	return out
}

func fromProto(t *testing.T, m proto.Message, words *strings.Replacer) any {
	t.Helper()
	text, err := protojson.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return fromJSON(t, text, words)
}

// chance is what no two runs have in common: when the manifest was seen, and
// the random name of a termination log.
var chance = regexp.MustCompile(`("kubernetes.io/config.seen": ?")[^"]*"|("\$ROOT/pods/\$UID/containers/[^/"]+/)[0-9a-f]{8}"`)

func fromJSON(t *testing.T, text []byte, words *strings.Replacer) any {
	t.Helper()
	var v any
	if err := json.Unmarshal(chance.ReplaceAll([]byte(words.Replace(string(text))), []byte(`$1$2*"`)), &v); err != nil {
		t.Fatal(err)
	}
	return v
}

func tree(t *testing.T, r recorded) any {
	t.Helper()
	text, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	return fromJSON(t, text, strings.NewReplacer())
}

// difference is one place where two recordings are not the same; "-" stands
// for nothing there.
type difference struct{ path, kubelet, podd string }

func differences(path string, kubelet, podd any) []difference {
	if reflect.DeepEqual(kubelet, podd) {
		return nil
	}
	var out []difference
	switch k := kubelet.(type) {
	case map[string]any:
		p, ok := podd.(map[string]any)
		if !ok {
			break
		}
		names := maps.Clone(k)
		maps.Copy(names, p)
		for _, name := range slices.Sorted(maps.Keys(names)) {
			out = append(out, differences(path+"/"+strings.ReplaceAll(name, "/", "~1"), k[name], p[name])...)
		}
		return out
	case []any:
		p, ok := podd.([]any)
		if !ok || len(p) != len(k) {
			break
		}
		for i := range k {
			out = append(out, differences(path+"/"+strconv.Itoa(i), k[i], p[i])...)
		}
		return out
	}
	return []difference{{path, shown(kubelet), shown(podd)}}
}

func shown(v any) string {
	if v == nil {
		return "-"
	}
	text, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// intends are the differences that stay: the manifest ("" for all), the place
// in its recording, and the reason, of which testdata/kubelet/README.md says more.
var intends = []struct{ manifest, path, reason string }{
	{"", `/annotations/podd~1start-time$`, "podd's own mark, by which it knows its pods after a restart"},
	{"", `/annotations/podd~1sidecar$`, "podd's own mark, by which a pod whose manifest is gone ends in order"},
	{"", `^/containers/[^/]+/annotations/kubernetes.io~1config.source$`, "a container that outlived its sandbox is known by it"},
	{"", `^/containers/[^/]+/annotations/io.kubernetes.container.hash$`, "each agent compares its own"},
	{"downward-host-network", `^/containers/app/envs/POD_IPS?$`, "the kubelet knows no address without an apiserver"},
	{"host-path", `^/containers/app/mounts/2/containerPath$`, "the same path, clean"},
	{"own-files", `^/containers/app/mounts$`, "what the pod mounts there itself is not hidden"},
}

// intended is the index of the reason why a difference stays, or -1.
func intended(manifest string, d difference) int {
	for i, in := range intends {
		if (in.manifest == "" || in.manifest == manifest) && regexp.MustCompile(in.path).MatchString(d.path) {
			return i
		}
	}
	return -1
}
