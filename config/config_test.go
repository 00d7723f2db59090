package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"

	"podd/internal/instance"
	"podd/internal/strictyaml"
)

const head = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"

// load writes body to a file (unless it is empty) and loads it with the flags.
// The file's path in messages is replaced by FILE.
func load(t *testing.T, body string, args ...string) (*Config, error) {
	t.Helper()
	f := &Flags{}
	fs := pflag.NewFlagSet("podd run", pflag.ContinueOnError)
	f.Bind(fs)
	file := filepath.Join(t.TempDir(), "config.yaml")
	if body != "" {
		if err := os.WriteFile(file, []byte(body), 0o600); err != nil {
			t.Fatal(err)
		}
		args = append([]string{"--config=" + file}, args...)
	}
	if err := fs.Parse(args); err != nil {
		return nil, FlagError(fs, err)
	}
	c, err := f.Load()
	if err != nil {
		return nil, errors.New(strings.ReplaceAll(err.Error(), file, "FILE"))
	}
	for i := range c.Warnings {
		c.Warnings[i] = strings.ReplaceAll(c.Warnings[i], file, "FILE")
	}
	return c, nil
}

func TestWithoutAnythingPoddRunsStandalone(t *testing.T) {
	c, err := load(t, "", "--hostname-override=Node-1")
	if err != nil {
		t.Fatal(err)
	}
	if c.StaticPodPath != "/etc/podd/manifests" || c.ReadOnlyAddress != "127.0.0.1:10255" || c.HealthzAddress != "127.0.0.1:10248" ||
		c.RuntimeEndpoint != "" || c.NodeName != "node-1" || c.Socket() != "/run/podd/podd.sock" || len(c.Warnings) != 0 {
		t.Errorf("got %+v", c)
	}
	if c.FileCheckFrequency != 20*time.Second || c.RestartBackOffMax != 300*time.Second || c.ParallelImagePulls != 5 ||
		c.OOMScoreAdj != -999 || c.PodLogsDir != "/var/log/pods" || c.ResolvConf != "/etc/resolv.conf" || c.LogLevel != slog.LevelInfo {
		t.Errorf("defaults: got %+v", c)
	}
}

func TestFlagsWinOverDropInsWinOverFile(t *testing.T) {
	dir := t.TempDir()
	write := func(name, body string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(head+body), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("10-a.conf", "registryBurst: 20\nlogging: {format: json}\nclusterDNS: [10.0.0.10]\n")
	write("20-b.conf", "registryBurst: 30\n")
	write("25-b.conf", "registryPullQPS: null\ncgroupRoot: null\n")
	write("30-c.txt", "registryBurst: 40\n")
	c, err := load(t, head+"cgroupRoot: /x\nregistryBurst: 10\nlogging: {verbosity: 4}\nregistryPullQPS: 7\nreadOnlyPort: 10255\nclusterDNS: [10.0.0.1, 10.0.0.2]\n",
		"--config-dir="+dir, "--read-only-port=0", "--registry-qps=9", "--v=2")
	if err != nil {
		t.Fatal(err)
	}
	if c.RegistryBurst != 30 || c.LogFormat != "json" || c.LogLevel != slog.LevelInfo || c.RegistryPullQPS != 9 || c.ReadOnlyAddress != "" || c.CgroupRoot != "" {
		t.Errorf("got burst %d, %s, %s, %d, %q", c.RegistryBurst, c.LogFormat, c.LogLevel, c.RegistryPullQPS, c.ReadOnlyAddress)
	}
	if len(c.ClusterDNS) != 1 || c.ClusterDNS[0].String() != "10.0.0.10" {
		t.Errorf("clusterDNS: got %v, want the drop-in's list alone", c.ClusterDNS)
	}
}

// The kubelet defaults the file of --config before it merges others into it.
func TestADropInChangesOneDefaultAndLeavesTheOthers(t *testing.T) {
	for name, tc := range map[string]struct {
		base, dropIn string
		flags        []string
		hard         map[string]string
		report       time.Duration
	}{
		"a threshold": {
			dropIn: "evictionHard: {memory.available: 500Mi}\n", report: 5 * time.Minute,
			hard: map[string]string{"memory.available": "500Mi", "nodefs.available": "10%", "nodefs.inodesFree": "5%", "imagefs.available": "15%", "imagefs.inodesFree": "5%"},
		},
		"a threshold less": {
			dropIn: "evictionHard: {memory.available: null}\n", report: 5 * time.Minute,
			hard: map[string]string{"nodefs.available": "10%", "nodefs.inodesFree": "5%", "imagefs.available": "15%", "imagefs.inodesFree": "5%"},
		},
		"a threshold beside the file's": {
			base: "evictionHard: {nodefs.available: 1%}\n", dropIn: "evictionHard: {memory.available: 500Mi}\n", report: 5 * time.Minute,
			hard: map[string]string{"memory.available": "500Mi", "nodefs.available": "1%"},
		},
		"a threshold and the defaults": {
			base: "evictionHard: {nodefs.available: 1%}\nmergeDefaultEvictionSettings: true\n", dropIn: "evictionHard: {memory.available: 500Mi}\n", report: 5 * time.Minute,
			hard: map[string]string{"memory.available": "500Mi", "nodefs.available": "1%", "nodefs.inodesFree": "5%", "imagefs.available": "15%", "imagefs.inodesFree": "5%"},
		},
		"a flag": {
			dropIn: "evictionHard: {memory.available: 500Mi}\n", flags: []string{"--eviction-hard=nodefs.available<2%", "--node-status-update-frequency=20s"}, report: 5 * time.Minute,
			hard: map[string]string{"nodefs.available": "2%"},
		},
		"a frequency":      {base: "evictionHard: {}\n", dropIn: "nodeStatusUpdateFrequency: 20s\n", hard: map[string]string{}, report: 5 * time.Minute},
		"the file's other": {base: "evictionHard: {}\nnodeStatusUpdateFrequency: 30s\n", dropIn: "nodeStatusUpdateFrequency: 20s\n", hard: map[string]string{}, report: 30 * time.Second},
		"pulls":            {base: "evictionHard: {}\n", dropIn: "serializeImagePulls: true\n", hard: map[string]string{}, report: 5 * time.Minute},
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "10-a.conf"), []byte(head+tc.dropIn), 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := load(t, head+tc.base, append(tc.flags, "--hostname-override=n", "--kubeconfig=/x", "--config-dir="+dir)...)
		if err != nil || len(c.Warnings) > 0 {
			t.Errorf("%s: %v, %+v", name, err, c)
			continue
		}
		if got := c.Kubelet.EvictionHard; !maps.Equal(got, tc.hard) {
			t.Errorf("%s: got thresholds %v, want %v", name, got, tc.hard)
		}
		if c.StatusReportFrequency != tc.report {
			t.Errorf("%s: got reports every %s, want %s", name, c.StatusReportFrequency, tc.report)
		}
	}
}

// TestMistakes: every mistake says file, line, field and what to do.
func TestMistakes(t *testing.T) {
	tests := []struct{ name, body, want string }{
		{"unknown field", head + "staticPodPaht: /x\n", "FILE:3: staticPodPaht: is not a field of KubeletConfiguration: did you mean staticPodPath?"},
		{"unknown nested field", head + "logging:\n  formt: json\n", "FILE:4: logging.formt: is not a field of KubeletConfiguration: did you mean format?"},
		{"wrong case", head + "staticpodpath: /x\n", "FILE:3: staticpodpath: is not a field of KubeletConfiguration: did you mean staticPodPath?"},
		{"unlike anything", head + "zzzzzzzzz: 1\n", "FILE:3: zzzzzzzzz: is not a field of KubeletConfiguration"},
		{"twice", head + "maxPods: 1\nmaxPods: 2\n", "FILE:4: maxPods: is given twice, first in line 3: keep one"},
		{"wrong type", head + "maxPods: many\n", "FILE:3: maxPods: got a string, want an integer"},
		{"wrong duration", head + "fileCheckFrequency: soon\n", `FILE:3: fileCheckFrequency: value "soon": time: invalid duration "soon"`},
		{"no kind", "apiVersion: kubelet.config.k8s.io/v1beta1\n", `FILE: kind: got "", want KubeletConfiguration: podd reads only the kubelet's configuration`},
		{"other version", "apiVersion: v1\nkind: KubeletConfiguration\n", `FILE:1: apiVersion: got "v1", want kubelet.config.k8s.io/v1beta1: podd reads only the kubelet's configuration`},
		{"empty", " ", "FILE: is empty: it needs at least apiVersion: kubelet.config.k8s.io/v1beta1 and kind: KubeletConfiguration"},
		{"a list", "- a\n", "FILE:1: is not a mapping of fields: it needs at least apiVersion: kubelet.config.k8s.io/v1beta1 and kind: KubeletConfiguration"},
		{"tabs", head + "logging:\n\tformat: json\n", "FILE: is not YAML: line 4: found character that cannot start any token"},
		{"two documents", head + "---\n" + head, "FILE: contains more than one document: put only one KubeletConfiguration in the file"},
		{"port", head + "readOnlyPort: 70000\n", "FILE:3: readOnlyPort: 70000 is not a port: give one from 1 to 65535, or 0 for none"},
		{"same port", head + "readOnlyPort: 10248\n", "FILE:3: readOnlyPort: 10248 is also the healthzPort: give each its own port"},
		{"address", head + "address: localhost\n", `FILE:3: address: "localhost" is not an IP address`},
		{"dns", head + "clusterDNS:\n- 10.0.0.10\n- dns\n", `FILE:3: clusterDNS[1]: "dns" is not an IP address`},
		{"cidr", head + "podCIDR: 10.88.0.1/16\n", "FILE:3: podCIDR: 10.88.0.1/16 has bits set beyond its prefix: did you mean 10.88.0.0/16?"},
		{"back-off", head + "crashLoopBackOff: {maxContainerRestartPeriod: 10m}\n", "FILE:3: crashLoopBackOff.maxContainerRestartPeriod: 10m0s is out of range: give 1s to 300s"},
		{"driver", head + "cgroupDriver: docker\n", `FILE:3: cgroupDriver: "docker" is not a driver: give systemd or cgroupfs`},
		{"endpoint", head + "containerRuntimeEndpoint: tcp://x:1\n", `FILE:3: containerRuntimeEndpoint: "tcp://x:1" is not a socket: give unix:///run/containerd/containerd.sock or its like`},
		{"ids of a pod", head + "userNamespaces:\n  idsPerPod: 1000\n", "FILE:4: userNamespaces.idsPerPod: 1000 is not a multiple of 65536 from 65536 to 2147483648"},
		{"pulls", head + "serializeImagePulls: true\nmaxParallelImagePulls: 3\n", "FILE:4: maxParallelImagePulls: 3 contradicts serializeImagePulls: true: set that to false, or leave it out"},
		{"url", head + "staticPodURL: file:///x\n", `FILE:3: staticPodURL: "file:///x" is not a URL: give http://host/path or https://host/path`},
		{"format", head + "logging: {format: xml}\n", `FILE:3: logging.format: "xml" is not a format: give text or json`},
		{"the root as the system's cgroup", head + "cgroupRoot: /\nsystemCgroups: /\n", "FILE:4: systemCgroups: is the root of all cgroups: give one below it, such as /system"},
		{"the system's cgroup is no path", head + "cgroupRoot: /\nsystemCgroups: system\n", `FILE:4: systemCgroups: "system" does not begin with a slash: give the cgroup's name from the root, such as /system`},
		{"the system's cgroup alone", head + "systemCgroups: /system\n", "FILE:3: systemCgroups: is given without cgroupRoot: set that, too, to / if pods' cgroups are to be at the top"},
		{"oom", head + "oomScoreAdj: -2000\n", "FILE:3: oomScoreAdj: -2000 is out of range: give a number from -1000 to 1000"},
		{"image threshold", head + "imageGCHighThresholdPercent: 101\n", "FILE:3: imageGCHighThresholdPercent: 101 is out of range: give 0 to 100"},
		{"image thresholds", head + "imageGCHighThresholdPercent: 70\n", "imageGCLowThresholdPercent: 80 is not less than imageGCHighThresholdPercent, 70: images are removed from the high one on until the low one is reached"},
		{"image policy", head + "imagePullCredentialsVerificationPolicy: Sometimes\n", "FILE:3: imagePullCredentialsVerificationPolicy: \"Sometimes\" is unknown: give NeverVerify, NeverVerifyPreloadedImages, NeverVerifyAllowlistedImages or AlwaysVerify"},
		{"image list", head + "imagePullCredentialsVerificationPolicy: NeverVerifyAllowlistedImages\npreloadedImagesVerificationAllowlist: [\"a:1\"]\n", "FILE:3: imagePullCredentialsVerificationPolicy: preloadedImagesVerificationAllowlist has \"a:1\": leave out the tag or digest: an image is allowed with all of them, or not at all"},
		{"image ages", head + "imageMaximumGCAge: 1m\n", "FILE:3: imageMaximumGCAge: 1m0s is not more than imageMinimumGCAge, 2m0s"},
		{"log size", head + "containerLogMaxSize: big\n", `FILE:3: containerLogMaxSize: "big" is not a size: give one such as 10Mi`},
		{"no log size", head + "containerLogMaxSize: \"0\"\n", `FILE:3: containerLogMaxSize: "0" is not a size to rotate logs at: give one such as 10Mi, or -1 for no rotation`},
		{"log files", head + "containerLogMaxFiles: 1\n", "FILE:3: containerLogMaxFiles: 1 is too few: give at least 2, for the live log and one that was rotated"},
		{"log interval", head + "containerLogMonitorInterval: 1s\n", "FILE:3: containerLogMonitorInterval: 1s is too short: give at least 3s"},
		{"all at once", head + "registryBurst: -1\ncgroupDriver: x\n", "FILE:3: registryBurst: -1 is negative\nFILE:4: cgroupDriver: \"x\" is not a driver: give systemd or cgroupfs"},
	}
	for _, tt := range tests {
		_, err := load(t, tt.body, "--hostname-override=n")
		if err == nil || err.Error() != tt.want {
			t.Errorf("%s:\ngot  %v\nwant %s", tt.name, err, tt.want)
		}
	}
}

func TestMistakesInFlags(t *testing.T) {
	tests := []struct{ arg, want string }{
		{"--cpu-manager-policy=static", "--cpu-manager-policy is a flag of the kubelet that podd does not have: omit it, and see the field cpuManagerPolicy in: podd config --explain"},
		{"--eviction-soft=memory.available<1Gi", "--eviction-soft: memory.available: has no grace period: give it one in evictionSoftGracePeriod"},
		{"--eviction-pressure-transition-period=-1s", "--eviction-pressure-transition-period: -1s is negative"},
		{"--containerd=/x.sock", "--containerd configured cAdvisor, and the kubelet dropped it in Kubernetes 1.37; podd has no cAdvisor: omit it (KUBELET_EXTRA_ARGS, kubeadm-flags.env and systemd drop-ins are the usual places)"},
		{"--cloud-config=/x", "--cloud-config is a flag of the kubelet that podd does not have: omit it"},
		{"--cloud-provider=aws", `--cloud-provider: "aws" is not supported: give external, for a cloud controller manager, or leave it out`},
		{"--pod-manifest-paht=/x", "--pod-manifest-paht is not a flag: did you mean --pod-manifest-path?"},
		{"--eviction-hard=memory.available=1Gi", `invalid argument "memory.available=1Gi" for "--eviction-hard" flag: "memory.available=1Gi" is not a name and a value separated by <`},
		{"--kube-reserved=gpu=1", "--kube-reserved: gpu cannot be reserved: give cpu, memory, ephemeral-storage or pid"},
		{"--system-reserved=cpu=x", `--system-reserved: cpu: "x" is not an amount: give one such as 500m or 1Gi`},
		{"--eviction-hard=memory.free<1Gi", "--eviction-hard: memory.free: is not a signal: give one of memory.available, nodefs.available, nodefs.inodesFree, imagefs.available, imagefs.inodesFree, containerfs.available, containerfs.inodesFree, allocatableMemory.available, pid.available"},
		{"--enforce-node-allocatable=nothing", `--enforce-node-allocatable: "nothing" is not known: give pods or none`},
		{"--cgroups-per-qos=false", "--cgroups-per-qos: false is not supported: pods always get cgroups by QoS class; leave it out"},
		{"--register-with-taints=a", `invalid argument "a" for "--register-with-taints" flag: "a" is not a taint: give key=value:NoSchedule, :PreferNoSchedule or :NoExecute`},
		{"--image-credential-provider-config=/x", "--image-credential-provider-config: has no effect without --image-credential-provider-bin-dir: give both"},
		{"--maximum-dead-containers=100", `invalid argument "100" for "--maximum-dead-containers" flag: podd keeps one dead container of each name as long as its pod is there, which is -1: omit the flag`},
		{"--max-pods=many", `invalid argument "many" for "--max-pods" flag: "many" is not an integer`},
		{"--node-ip=1.2.3", `--node-ip: "1.2.3" is not an IP address`},
		{"--node-ip=10.0.0.1,10.0.0.2", `--node-ip: "10.0.0.1,10.0.0.2": give one address, or one of each family`},
		{"--node-ip=10.0.0.1,::", `--node-ip: "10.0.0.1,::": 0.0.0.0 and :: are no addresses of a node: give both addresses`},
		{"--node-ip=10.0.0.1,::ffff:10.0.0.2", `--node-ip: "10.0.0.1,::ffff:10.0.0.2": give one address, or one of each family`},
		{"--node-labels=a", `--node-labels: "a" is not a label: give key=value`},
		{"--bootstrap-kubeconfig=/x", "--bootstrap-kubeconfig: has no effect without --kubeconfig: give the file that podd is to write there"},
		{"--read-only-port=99999", "--read-only-port: 99999 is not a port: give one from 1 to 65535, or 0 for none"},
		{"--root-dir=", "--root-dir: is empty: give a directory"},
	}
	for _, tt := range tests {
		_, err := load(t, "", "--hostname-override=n", tt.arg)
		if err == nil || err.Error() != tt.want {
			t.Errorf("%s:\ngot  %v\nwant %s", tt.arg, err, tt.want)
		}
	}
	if _, err := load(t, "", "--hostname-override=my_node"); err == nil || !strings.HasPrefix(err.Error(), `--hostname-override: "my_node" cannot be the name of a node: `) {
		t.Errorf("bad node name: got %v", err)
	}
}

// TestIgnoredFieldsAreSaid covers what kubeadm writes and passes.
func TestIgnoredFieldsAreSaid(t *testing.T) {
	c, err := load(t, head+`evictionHard: {memory.available: 100Mi, containerfs.available: 10%}
authentication: {anonymous: {enabled: false}, webhook: {cacheTTL: 0s}}
evictionPressureTransitionPeriod: 0s # the default
memorySwap: {}
logging: {flushFrequency: 0, options: {json: {infoBufferSize: "0"}}, verbosity: 0}
failCgroupV1: false
failSwapOn: true
kubeAPIQPS: 0
`, "--hostname-override=n", "--pod-infra-container-image=localhost/pause:1", "--node-labels=a=b", "--cert-dir=/x")
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"FILE:4: authentication.anonymous.enabled: has no effect without an apiserver (--kubeconfig)",
		"FILE:9: failSwapOn: is not supported: podd runs with swap on; containers get none of it where the kernel can bound it",
		"FILE:10: kubeAPIQPS: has no effect without an apiserver (--kubeconfig)",
		"--pod-infra-container-image: has no effect: the sandbox image is the runtime's own setting",
		"FILE:3: evictionHard: containerfs.available has no effect: writable layers are on the images' file system, whose threshold is imagefs'",
		"--cert-dir: has no effect without an apiserver",
	}
	if !slices.Equal(c.Warnings, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(c.Warnings, "\n"), strings.Join(want, "\n"))
	}
	if c.NodeLabels["a"] != "b" {
		t.Errorf("labels: got %v", c.NodeLabels)
	}
}

// As the kubelet: external is what is left of --cloud-provider, and empty is none.
func TestAnExternalCloudProviderIsTheNodes(t *testing.T) {
	for _, tc := range []struct {
		args    []string
		want    bool
		warning string
	}{
		{[]string{"--kubeconfig=/x"}, false, ""},
		{[]string{"--kubeconfig=/x", "--cloud-provider="}, false, ""},
		{[]string{"--kubeconfig=/x", "--cloud-provider=external"}, true, ""},
		{[]string{"--cloud-provider=external"}, true, "--cloud-provider: has no effect without an apiserver"},
	} {
		var f Flags
		fs := pflag.NewFlagSet("kubelet", pflag.ContinueOnError)
		f.Bind(fs)
		f.BindKubelet(fs)
		if err := fs.Parse(append(tc.args, "--hostname-override=n")); err != nil {
			t.Fatal(err)
		}
		c, err := f.Load()
		if err != nil {
			t.Fatal(err)
		}
		if c.ExternalCloud != tc.want || strings.Join(c.Warnings, "\n") != tc.warning {
			t.Errorf("%q: got %t, %q, want %t, %q", tc.args, c.ExternalCloud, c.Warnings, tc.want, tc.warning)
		}
	}
}

// kubeadm looks for the client certificate where a kubelet has it, and names no --cert-dir;
// the pods of CSI drivers and device plugins mount the directories below the kubelet's root.
func TestUnderTheNameKubeletDirectoriesAreTheKubelets(t *testing.T) {
	for asKubelet, want := range map[bool][2]string{false: {instance.DefaultRootDir, instance.DefaultCertDir}, true: {"/var/lib/kubelet", "/var/lib/kubelet/pki"}} {
		var f Flags
		fs := pflag.NewFlagSet("podd", pflag.ContinueOnError)
		f.Bind(fs)
		if asKubelet {
			f.BindKubelet(fs)
		}
		c, err := f.Load()
		if err != nil {
			t.Fatal(err)
		}
		if got := [2]string{c.RootDir, c.CertDir}; got != want || len(c.Warnings) > 0 {
			t.Errorf("as the kubelet %t: got %s, %q, want %s", asKubelet, got, c.Warnings, want)
		}
	}
}

func TestSecretsAreMasked(t *testing.T) {
	c, err := load(t, head+"staticPodURL: http://x/\nstaticPodURLHeader: {Authorization: [Bearer geheim]}\n", "--hostname-override=n",
		"--manifest-url-header=X-A:b,X-B:c:d")
	if err != nil {
		t.Fatal(err)
	}
	if c.StaticPodURLHeader.Get("X-B") != "c:d" || c.StaticPodURLHeader.Get("Authorization") != "" {
		t.Errorf("headers: got %v, want those of the flag alone", c.StaticPodURLHeader)
	}
	c, err = load(t, head+"staticPodURL: http://x/\nstaticPodURLHeader: {Authorization: [Bearer geheim]}\n", "--hostname-override=n")
	if err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(c.Masked())
	if err != nil || bytes.Contains(b, []byte("geheim")) || !bytes.Contains(b, []byte(`masked`)) {
		t.Errorf("got %s, %v; want the header's value masked", b, err)
	}
	if c.StaticPodURLHeader.Get("Authorization") != "Bearer geheim" {
		t.Error("masking took the secret itself away")
	}
}

func TestThePasswordInAURLIsMasked(t *testing.T) {
	c, err := load(t, "", "--hostname-override=n", "--manifest-url=https://node:geheim@cfg.test/pods?token=geheim")
	if err != nil {
		t.Fatal(err)
	}
	if got := c.Masked().StaticPodURL; got != "https://node:xxxxx@cfg.test/pods?<masked>" {
		t.Errorf("got %s", got)
	}
	if c.StaticPodURL != "https://node:geheim@cfg.test/pods?token=geheim" {
		t.Errorf("masking took the secret itself away: %s", c.StaticPodURL)
	}
	for _, wrong := range []string{"cfg.test/pods?token=geheim", "http://node:geheim@%zz/pods", "ftp://cfg.test/?token=geheim"} {
		if _, err := load(t, "", "--hostname-override=n", "--manifest-url="+wrong); err == nil || strings.Contains(err.Error(), "geheim") {
			t.Errorf("%s: got %v, want a refusal that does not show the secret", wrong, err)
		}
	}
}

// Of a list or of pairs the last flag counted, silently.
func TestRepeatedFlagsAddUp(t *testing.T) {
	c, err := load(t, head+"clusterDNS: [192.0.2.1]\nsystemReserved: {pid: '10'}\n", "--hostname-override=n",
		"--system-reserved=memory=1Gi", "--system-reserved=cpu=500m,memory=2Gi", "--cluster-dns=10.0.0.10", "--cluster-dns=10.0.0.11",
		"--node-labels=a=1", "--node-labels=b=2,c=3", "--allowed-unsafe-sysctls=", "--max-pods=1", "--max-pods=2")
	if err != nil {
		t.Fatal(err)
	}
	got := fmt.Sprint(c.Kubelet.SystemReserved, c.ClusterDNS, c.NodeLabels, len(c.Kubelet.AllowedUnsafeSysctls), c.Kubelet.MaxPods)
	if want := "map[cpu:500m memory:2Gi] [10.0.0.10 10.0.0.11] map[a:1 b:2 c:3] 0 2"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestPathsAreRelativeToTheFile(t *testing.T) {
	c, err := load(t, head+"staticPodPath: manifests\n", "--hostname-override=n")
	if err != nil {
		t.Fatal(err)
	}
	if want := filepath.Join(filepath.Dir(c.File), "manifests"); c.StaticPodPath != want {
		t.Errorf("got %s, want %s", c.StaticPodPath, want)
	}
}

func TestBadFiles(t *testing.T) {
	dir := t.TempDir()
	for name, args := range map[string][]string{
		"missing":     {"--config=" + dir + "/none.yaml"},
		"directory":   {"--config=" + dir},
		"missing dir": {"--config-dir=" + dir + "/none"},
	} {
		if _, err := load(t, "", append(args, "--hostname-override=n")...); err == nil || !strings.Contains(err.Error(), dir) {
			t.Errorf("%s: got %v, want an error that names it", name, err)
		}
	}
	big := filepath.Join(dir, "big.yaml")
	if err := os.WriteFile(big, append([]byte(head), bytes.Repeat([]byte("# x\n"), 1<<19)...), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := load(t, "", "--config="+big); err == nil || !strings.Contains(err.Error(), "at most") {
		t.Errorf("2 MB: got %v", err)
	}
}

func TestExplain(t *testing.T) {
	var out bytes.Buffer
	if err := Explain(&out, ""); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"FIELD", "evictionHard", needsResources, "staticPodPath", "honoured", "20s"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("table lacks %q", want)
		}
	}
	out.Reset()
	if err := Explain(&out, "json"); err != nil {
		t.Fatal(err)
	}
	var back []Field
	if err := json.Unmarshal(out.Bytes(), &back); err != nil || len(back) != len(Fields) {
		t.Errorf("json: %d fields, %v", len(back), err)
	}
	if err := Explain(&out, "xml"); err == nil {
		t.Error("xml: got no error")
	}
}

// FuzzParseDocument: no file makes podd panic, and what is refused says why.
func FuzzParseDocument(f *testing.F) {
	f.Add([]byte(head + "logging: {format: json}\n"))
	f.Add([]byte("a: &a [*a]"))
	f.Add([]byte("\x00\x01"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if _, err := parseDocument("f", data); err != nil && err.Error() == "" {
			t.Error("an error without a sentence")
		}
	})
}

// leaves lists the paths of every field of a configuration type that can be
// set by itself: those of structs within it, not of lists and mappings.
func leaves(t reflect.Type, path string) []string {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Kind() == reflect.Struct {
		if inner := strictyaml.FieldsOf(t); len(inner.Names) > 0 {
			var all []string
			for _, name := range inner.Names {
				all = append(all, leaves(t.FieldByIndex(inner.Index[name]).Type, strings.TrimPrefix(path+"."+name, "."))...)
			}
			return all
		}
	}
	return []string{path}
}

// Without a frequency of reports of its own, a status is reported as often as it is
// computed, if that is configured (upstream's SetDefaults_KubeletConfiguration).
func TestTheFrequencyOfReportsFollowsThatOfLooks(t *testing.T) {
	for body, want := range map[string][2]time.Duration{
		"":                                 {10 * time.Second, 5 * time.Minute},
		"nodeStatusUpdateFrequency: 20s\n": {20 * time.Second, 20 * time.Second},
		"nodeStatusUpdateFrequency: 20s\nnodeStatusReportFrequency: 1m\n": {20 * time.Second, time.Minute},
		"nodeStatusReportFrequency: 1m\n":                                 {10 * time.Second, time.Minute},
	} {
		c, err := load(t, head+body, "--hostname-override=n", "--kubeconfig=/x")
		if err != nil || len(c.Warnings) > 0 {
			t.Fatal(err, c.Warnings)
		}
		if c.StatusUpdateFrequency != want[0] || c.StatusReportFrequency != want[1] {
			t.Errorf("%q: got %v and %v, want %v", body, c.StatusUpdateFrequency, c.StatusReportFrequency, want)
		}
	}
}

func TestEventRecordQPSZeroIsNoLimit(t *testing.T) {
	for body, want := range map[string]float64{"": 50, "eventRecordQPS: 0\n": 0, "eventRecordQPS: 3\n": 3} {
		if c, err := load(t, head+body); err != nil || c.EventQPS != want {
			t.Errorf("%q: got %v, %v, want %v", body, c, err, want)
		}
	}
	if c, err := load(t, head, "--event-qps=0"); err != nil || c.EventQPS != 0 {
		t.Errorf("--event-qps=0: got %v, %v", c, err)
	}
}

// TestMemoryQoSIsJudgedAsUpstreamDoes: pkg/kubelet/apis/config/validation.
func TestMemoryQoSIsJudgedAsUpstreamDoes(t *testing.T) {
	factor := func(f float64) *float64 { return &f }
	for name, c := range map[string]struct {
		policy kubeletv1beta1.MemoryReservationPolicy
		factor *float64
		on     bool
		want   string
	}{
		"defaults":                     {"None", nil, true, ""},
		"all":                          {"TieredReservation", factor(1), true, ""},
		"off":                          {"None", nil, false, ""},
		"the former default":           {"None", factor(0.9), false, ""},
		"a factor without the gate":    {"None", factor(0.8), false, "memoryThrottlingFactor: must not be set"},
		"a policy without the gate":    {"TieredReservation", nil, false, "requires the feature gate MemoryQoS"},
		"zero":                         {"None", factor(0), true, "memoryThrottlingFactor: 0 is out of range"},
		"above one":                    {"None", factor(1.1), true, "memoryThrottlingFactor: 1.1 is out of range"},
		"a policy that does not exist": {"Tiered", nil, true, `memoryReservationPolicy: "Tiered" is not known: give None or TieredReservation`},
	} {
		check := checker{where: func(field string) Problem { return Problem{Field: field} }}
		check.memoryQoS(&kubeletv1beta1.KubeletConfiguration{MemoryReservationPolicy: c.policy, MemoryThrottlingFactor: c.factor, FeatureGates: map[string]bool{"MemoryQoS": c.on}})
		got := ""
		for _, p := range check.problems {
			got += p.String()
		}
		if c.want == "" && got != "" || !strings.Contains(got, c.want) {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}
