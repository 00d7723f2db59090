package cri_test

import (
	"bytes"
	"context"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"podd/cri/critest"
	"podd/cri/spec"
	"podd/internal/perftest"
	"podd/internal/pod"
)

func ptr[T any](v T) *T { return &v }

func TestSandboxConfiguration(t *testing.T) {
	r := newRig(t)
	r.env.ResolvConf = ptr(filepath.Join(r.dir, "resolv.conf"))
	r.env.CgroupParent = func(p *v1.Pod) string { return "/podd/kubepods/pod" + string(p.UID) }
	if err := os.WriteFile(*r.env.ResolvConf, []byte("nameserver 192.0.2.53\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	r.dial(t)
	p := aPod("web", func(p *v1.Pod) {
		p.Labels, p.Annotations = map[string]string{"app": "x"}, map[string]string{"note": "y"}
		p.Spec.DNSPolicy = v1.DNSClusterFirst
		p.Spec.Hostname, p.Spec.RuntimeClassName = "h", ptr("runc")
		p.Spec.SecurityContext = &v1.PodSecurityContext{Sysctls: []v1.Sysctl{
			{Name: "net.ipv4.ip_local_port_range", Value: "1 2"}, {Name: "net/ipv4/ip_unprivileged_port_start", Value: "81"},
			{Name: "net/ipv4/conf/eno2.100/rp_filter", Value: "1"}, {Name: "net.ipv4.tcp_fin_timeout", Value: "31"}, {Name: "net/ipv4/tcp_fin_timeout", Value: "32"},
		}, RunAsUser: ptr(int64(7)), FSGroup: ptr(int64(8))}
		p.Spec.Containers[0].Ports = []v1.ContainerPort{{ContainerPort: 80, HostPort: 8080, HostIP: "127.0.0.1", Protocol: v1.ProtocolUDP}}
		p.Spec.Containers[0].SecurityContext = &v1.SecurityContext{Privileged: ptr(true)}
	})
	r.sandbox(t, p, 2)
	c := r.srv.Sandboxes()[0].Config
	for what, got := range map[string]bool{
		"metadata":      c.Metadata.Name == "web" && c.Metadata.Namespace == "default" && c.Metadata.Uid == string(p.UID) && c.Metadata.Attempt == 2,
		"labels":        c.Labels["app"] == "x" && c.Labels["io.kubernetes.pod.name"] == "web" && c.Labels["io.kubernetes.pod.namespace"] == "default" && c.Labels["io.kubernetes.pod.uid"] == string(p.UID),
		"annotations":   c.Annotations["note"] == "y" && c.Annotations[pod.AnnotationSource] == "file" && c.Annotations[pod.AnnotationStartTime] != "",
		"hostname":      c.Hostname == "h",
		"log directory": c.LogDirectory == filepath.Join(r.dir, "pods", "default_web_uid-web"),
		"dns":           slices.Equal(c.DnsConfig.Servers, []string{"192.0.2.53"}),
		"port":          len(c.PortMappings) == 1 && c.PortMappings[0].HostPort == 8080 && c.PortMappings[0].HostIp == "127.0.0.1" && c.PortMappings[0].Protocol == runtimeapi.Protocol_UDP,
		"cgroup parent": c.Linux.CgroupParent == "/podd/kubepods/poduid-web",
		"sysctls": maps.Equal(c.Linux.Sysctls, map[string]string{
			"net.ipv4.ip_local_port_range": "1 2", "net.ipv4.ip_unprivileged_port_start": "81",
			"net.ipv4.conf.eno2/100.rp_filter": "1", "net.ipv4.tcp_fin_timeout": "32",
		}),
		"security":        c.Linux.SecurityContext.Privileged && c.Linux.SecurityContext.RunAsUser.Value == 7 && c.Linux.SecurityContext.SupplementalGroups[0] == 8,
		"seccomp":         c.Linux.SecurityContext.Seccomp.ProfileType == runtimeapi.SecurityProfile_RuntimeDefault,
		"pod annotations": p.Annotations[pod.AnnotationStartTime] == "" && len(p.Labels) == 1,
	} {
		if !got {
			t.Errorf("%s is wrong in %v", what, c)
		}
	}
}

// TestASandboxHasTheProfileOfThePauseProcess, unless something else than the bundled runtime
// starts it.
func TestASandboxHasTheProfileOfThePauseProcess(t *testing.T) {
	p := &v1.Pod{}
	for name, tc := range map[string]struct{ profile, handler, want string }{
		"of the bundled runtime": {profile: "/run/podd/pause.json", want: "Localhost /run/podd/pause.json"},
		"of another handler":     {profile: "/run/podd/pause.json", handler: "kata", want: "RuntimeDefault "},
		"of another runtime":     {want: "RuntimeDefault "},
	} {
		c, err := spec.Sandbox(spec.Options{PauseProfile: tc.profile}, pod.SandboxRequest{Pod: p, Handler: tc.handler})
		if err != nil {
			t.Fatal(err)
		}
		s := c.Linux.SecurityContext.Seccomp
		if got := s.ProfileType.String() + " " + s.LocalhostRef; got != tc.want {
			t.Errorf("%s: got %q, want %q", name, got, tc.want)
		}
	}
}

func TestSandboxThatCannotBeConfigured(t *testing.T) {
	r := newRig(t)
	for _, tc := range []struct {
		name, reason, want string
		edit               func(*v1.Pod)
	}{
		{"unknown RuntimeClass", "CreatePodSandboxError", `RuntimeClass "kata" not found: on a node without an apiserver it names a handler of the container runtime, which has "runc"`, func(p *v1.Pod) { p.Spec.RuntimeClassName = ptr("kata") }},
		{"user namespace", "ConfigPodSandboxError", "this node has no user and group IDs for pods", func(p *v1.Pod) { p.Spec.HostUsers = ptr(false) }},
		{"long FQDN", "ConfigPodSandboxError", "failed to construct FQDN", func(p *v1.Pod) {
			p.Spec.Hostname, p.Spec.Subdomain, p.Spec.SetHostnameAsFQDN = strings.Repeat("h", 63), "s", ptr(true)
		}},
	} {
		_, err := r.run(t.Context(), aPod("web", tc.edit), 0)
		if err == nil || pod.ReasonOf(err, "") != tc.reason || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: got %v (%s), want %s %q", tc.name, err, pod.ReasonOf(err, ""), tc.reason, tc.want)
		}
	}
	if n := r.srv.Count("RunPodSandbox"); n != 0 {
		t.Errorf("the runtime was asked %d times", n)
	}
}

func TestContainerConfiguration(t *testing.T) {
	r := newRig(t)
	p := aPod("web", func(p *v1.Pod) {
		p.Spec.TerminationGracePeriodSeconds = ptr(int64(11))
		c := &p.Spec.Containers[0]
		c.Command, c.Args = []string{"/bin/$(BIN)"}, []string{"$(NONE)", "$$(BIN)"}
		c.Env = []v1.EnvVar{{Name: "BIN", Value: "sh"}}
		c.WorkingDir, c.Stdin, c.StdinOnce, c.TTY = "/w", true, true, true
		c.Ports = []v1.ContainerPort{{Name: "http", ContainerPort: 80}}
		c.Lifecycle = &v1.Lifecycle{StopSignal: ptr(v1.SIGUSR1), PreStop: &v1.LifecycleHandler{HTTPGet: &v1.HTTPGetAction{Path: "/stop", Port: intstr.FromInt32(80)}}}
	})
	s := r.sandbox(t, p, 0)
	req := r.request(t, p, s, 3)
	req.Mounts = []pod.Mount{{HostPath: "/data", ContainerPath: "/d", ReadOnly: true, Propagation: v1.MountPropagationBidirectional}}
	if _, err := r.CreateContainer(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	c := r.srv.Containers()[0].Config
	mount := map[string]*runtimeapi.Mount{}
	for _, m := range c.Mounts {
		mount[m.ContainerPath] = m
	}
	hosts, _ := os.ReadFile(mount["/etc/hosts"].GetHostPath())
	log, _ := os.Stat(mount["/dev/termination-log"].GetHostPath())
	for what, got := range map[string]bool{
		"metadata":    c.Metadata.Name == "app" && c.Metadata.Attempt == 3,
		"image":       c.Image.Image == r.id && c.Image.UserSpecifiedImage == image,
		"command":     slices.Equal(c.Command, []string{"/bin/sh"}) && slices.Equal(c.Args, []string{"$(NONE)", "$(BIN)"}),
		"env":         len(c.Envs) == 1 && c.Envs[0].Key == "BIN" && string(c.Envs[0].Value) == "sh",
		"work dir":    c.WorkingDir == "/w",
		"terminal":    c.Stdin && c.StdinOnce && c.Tty,
		"log path":    c.LogPath == "app/3.log",
		"stop signal": c.StopSignal == runtimeapi.Signal_SIGNAL_SIGUSR1,
		"labels":      len(c.Labels) == 4 && c.Labels["io.kubernetes.container.name"] == "app",
		"restart":     c.Annotations["io.kubernetes.container.restartCount"] == "3",
		"grace":       c.Annotations["io.kubernetes.pod.terminationGracePeriod"] == "11",
		"preStop":     strings.Contains(c.Annotations["io.kubernetes.container.preStopHandler"], `"/stop"`),
		"ports":       strings.Contains(c.Annotations["io.kubernetes.container.ports"], `"http"`),
		"message":     c.Annotations["io.kubernetes.container.terminationMessagePath"] == "/dev/termination-log" && c.Annotations["io.kubernetes.container.terminationMessagePolicy"] == "File",
		"volume":      mount["/d"] != nil && mount["/d"].Readonly && mount["/d"].Propagation == runtimeapi.MountPropagation_PROPAGATION_BIDIRECTIONAL,
		"hosts":       strings.Contains(string(hosts), "10.99.0.3\tweb\n") && mount["/etc/hosts"].HostPath == filepath.Join(r.dir, "root", "pods", "uid-web", "etc-hosts"),
		"log file":    log != nil && log.Mode().Perm() == 0o666 && strings.HasPrefix(mount["/dev/termination-log"].HostPath, filepath.Join(r.dir, "root", "pods", "uid-web", "containers", "app")+"/"),
	} {
		if !got {
			t.Errorf("%s is wrong in %v", what, c)
		}
	}
}

// TestImageVolumeIsTheRuntimesToMount: also that its image counts as used, for as
// long as a container of it is there.
func TestImageVolumeIsTheRuntimesToMount(t *testing.T) {
	r := newRig(t)
	p := aPod("web", func(p *v1.Pod) { p.Annotations = map[string]string{"note": "y"} })
	req := r.request(t, p, r.sandbox(t, p, 0), 0)
	req.Mounts = []pod.Mount{{Image: pod.ImageMount{Volume: "model", Reference: "registry.example.com/model:1", SubPath: "a/b"}, ContainerPath: "/m", ReadOnly: true}}
	req.Image.Volumes = map[string]string{"model": "sha256:model", "rules": "sha256:rules"}
	if _, err := r.CreateContainer(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	mounts := r.srv.Containers()[0].Config.Mounts
	m := mounts[slices.IndexFunc(mounts, func(m *runtimeapi.Mount) bool { return m.ContainerPath == "/m" })]
	if m.HostPath != "" || !m.Readonly || m.ImageSubPath != "a/b" || m.GetImage().GetImage() != "sha256:model" ||
		m.Image.UserSpecifiedImage != "registry.example.com/model:1" || m.Image.Annotations["note"] != "y" {
		t.Errorf("got %v", m)
	}
	own, _, err := r.ContainerImages(t.Context())
	if err != nil || !slices.Contains(own, "sha256:model") || !slices.Contains(own, "sha256:rules") {
		t.Errorf("images in use: got %v (%v), want those of the volumes too", own, err)
	}
}

func TestContainerKeepsItsOwnFiles(t *testing.T) {
	r := newRig(t)
	p := aPod("web")
	req := r.request(t, p, r.sandbox(t, p, 0), 0)
	req.Mounts = []pod.Mount{{HostPath: "/my/hosts", ContainerPath: "/etc/hosts"}, {HostPath: "/my/log", ContainerPath: "/dev/termination-log"},
		{HostPath: "/my/resolv", ContainerPath: "/etc/resolv.conf"}, {HostPath: "/my/name", ContainerPath: "/etc//hostname"}}
	if _, err := r.CreateContainer(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	if m := r.srv.Containers()[0].Config.Mounts; len(m) != 4 || m[0].HostPath != "/my/hosts" || m[1].HostPath != "/my/log" {
		t.Errorf("mounts: got %v, want the pod's own only", m)
	}
}

func TestContainerThatCannotBeConfigured(t *testing.T) {
	r := newRig(t)
	p := aPod("web", func(p *v1.Pod) {
		p.Spec.SecurityContext = &v1.PodSecurityContext{RunAsNonRoot: ptr(true)}
	})
	_, err := r.CreateContainer(t.Context(), r.request(t, p, r.sandbox(t, p, 0), 0))
	if pod.ReasonOf(err, "") != "CreateContainerConfigError" || !strings.Contains(err.Error(), "image will run as root") {
		t.Errorf("got %v (%s)", err, pod.ReasonOf(err, ""))
	}
}

func TestHostsFileKeepsItsInode(t *testing.T) {
	r := newRig(t)
	p := aPod("web")
	s := r.sandbox(t, p, 0)
	r.start(t, p, s, 0)
	file := filepath.Join(r.dir, "root", "pods", "uid-web", "etc-hosts")
	before, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	s.IPs = []string{"10.99.0.77"}
	r.start(t, p, s, 1)
	after, _ := os.Stat(file)
	text, _ := os.ReadFile(file)
	if !os.SameFile(before, after) || !strings.Contains(string(text), "10.99.0.77\tweb") {
		t.Errorf("same file: %v, content %q", os.SameFile(before, after), text)
	}
}

// A container may write into its hosts file: one that made it 8 TiB had podd read
// all of that at its restart, and the kernel end what else there was.
func TestAGrownHostsFileIsNotRead(t *testing.T) {
	r := newRig(t)
	p := aPod("web")
	s := r.sandbox(t, p, 0)
	r.start(t, p, s, 0)
	file := filepath.Join(r.dir, "root", "pods", "uid-web", "etc-hosts")
	good, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	const grown = 64 << 20
	if err := os.Truncate(file, grown); err != nil {
		t.Fatal(err)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	r.start(t, p, s, 1)
	runtime.ReadMemStats(&after)
	if got := after.TotalAlloc - before.TotalAlloc; got > grown/16 {
		t.Errorf("allocated %d bytes for a hosts file of %d", got, grown)
	}
	if text, _ := os.ReadFile(file); !bytes.Equal(text, good) {
		t.Errorf("the restarted container has a hosts file of %d bytes", len(text))
	}
}

func TestLinksAfterARestartOfPodd(t *testing.T) {
	r := newRig(t)
	p := aPod("web")
	s := r.sandbox(t, p, 0)
	id := r.start(t, p, s, 0)
	link := filepath.Join(r.dir, "containers", "web_default_app-"+id+".log")
	if err := os.Remove(link); err != nil { // podd was killed between start and link
		t.Fatal(err)
	}
	r.dial(t)
	r.observe(t, p.UID)
	if _, err := os.Stat(link); err != nil {
		t.Errorf("the link is not made up for: %v", err)
	}
	foreign := filepath.Join(r.dir, "containers", "foreign.log")
	if err := os.Symlink("/no/such/file", foreign); err != nil {
		t.Fatal(err)
	}
	if err := r.files.PruneLinks(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(link); err != nil {
		t.Errorf("a live link was pruned: %v", err)
	}
	if err := r.files.RemoveLogs(p); err != nil {
		t.Fatal(err)
	}
	if err := r.files.PruneLinks(); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(link); err == nil {
		t.Error("a dead link is left")
	}
	if _, err := os.Lstat(foreign); err != nil {
		t.Error("somebody else's link is gone")
	}
	if err := r.files.RemoveLogs(&v1.Pod{}); err == nil {
		t.Error("logs of no pod: got no error")
	}
}

func TestManyPodsAreObservedAtOnce(t *testing.T) {
	r := newRig(t)
	const n = 50
	pods := make([]*v1.Pod, n)
	for i := range pods {
		pods[i] = aPod("web-" + string(rune('a'+i%26)) + string(rune('a'+i/26)))
		r.start(t, pods[i], r.sandbox(t, pods[i], 0), 0)
	}
	r.srv.Delay("", 5*time.Millisecond)
	look := func() time.Duration {
		start := time.Now()
		var wg sync.WaitGroup
		for _, p := range pods {
			wg.Go(func() {
				o, err := r.Observe(context.Background(), p.UID)
				if err != nil || o.LatestContainer("app") == nil || o.Name != p.Name {
					t.Errorf("%s: got %+v, %v", p.Name, o, err)
				}
			})
		}
		wg.Wait()
		return time.Since(start)
	}
	got := perftest.Compare(5, 1, look, func() time.Duration { return r.srv.Bare(len(pods)) })
	t.Logf("%d looks at a time: %v", len(pods), got)
	if got.Ratio() > 1 {
		t.Errorf("%d looks at a time take longer than as many calls one after the other: %v", len(pods), got)
	}
}

func TestStoppingRespectsTheGrace(t *testing.T) {
	r := newRig(t)
	r.srv.Script("app", critest.Script{IgnoreTERM: true})
	p := aPod("web")
	id := r.start(t, p, r.sandbox(t, p, 0), 0)
	start := time.Now()
	if err := r.StopContainer(t.Context(), id, 300*time.Millisecond); err != nil {
		t.Error(err)
	}
	if took := time.Since(start); took < time.Second { // CRI counts whole seconds; ours never cuts it short
		t.Errorf("took %v, want a second", took)
	}
	if c := r.observe(t, p.UID).LatestContainer("app"); c.ExitCode != 137 {
		t.Errorf("got %+v, want it killed", c)
	}
}
