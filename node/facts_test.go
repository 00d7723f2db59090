package node

import (
	"context"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"podd/agent"
	"podd/bundle"
	"podd/cgroup"
	"podd/cluster/nodestatus"
	"podd/cni"
	"podd/config"
	"podd/cri"
	"podd/cri/critest"
	"podd/internal/pod"
	"podd/systemd"
)

// newTestNode returns as much of a Node as awaitRuntime requires.
func newTestNode(t *testing.T, srv *critest.Server) *Node {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	conn, err := cri.Connect(srv.Endpoint(), 0, log, prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	notifier, err := systemd.New(log)
	if err != nil {
		t.Fatal(err)
	}
	cfg := &config.Config{CgroupDriver: "systemd", NodeIPs: []netip.Addr{netip.MustParseAddr("192.0.2.7")}}
	return &Node{
		cfg: cfg, addresses: nodestatus.NewAddresses(nodestatus.AddressConfig{NodeName: cfg.NodeName, NodeIPs: cfg.NodeIPs}),
		conn: conn, log: log, notifier: notifier, runtimeStarted: make(chan time.Time, 1), agentParts: make(chan agent.Parts, 1),
		losingSupport: nodeMetrics(prometheus.NewRegistry(), cgroup.V2),
	}
}

func TestFactsAreWhatTheRuntimeSaysAtTheGreeting(t *testing.T) {
	srv := critest.New(t)
	n := newTestNode(t, srv)
	facts, err := n.awaitRuntime(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if facts.Runtime.Name != "critest" || facts.importsArchives() || facts.CgroupDriver != cgroup.Cgroupfs {
		t.Errorf("got %+v, want the runtime's name and its driver, cgroupfs, over the configuration's", facts)
	}
	if now := n.addresses.Current(); !slices.Equal(now, []string{"192.0.2.7"}) || !slices.Equal(facts.status(now).HostIPs, now) {
		t.Errorf("got %v, and %v in statuses, want the configured address", now, facts.status(now).HostIPs)
	}
	select {
	case <-n.runtimeStarted:
	default:
		t.Error("the runtime was not reported as available")
	}
}

func TestPartsAreGivenWheneverTheyAreAskedFor(t *testing.T) {
	n := &Node{agentParts: make(chan agent.Parts, 1)}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := n.awaitAgentParts(ctx); err == nil {
		t.Error("before the greeting: got parts")
	}
	n.agentParts <- agent.Parts{HostIP: n.hostIP}
	for range 3 { // a failed list is requested again
		if p, err := n.awaitAgentParts(t.Context()); err != nil || p.HostIP == nil {
			t.Fatalf("got %v (%v), want the parts", p, err)
		}
	}
}

// TestTheNewestRuntimeCounts: before a runtime has responded it may be restarted several
// times while nothing reads.
func TestTheNewestRuntimeCounts(t *testing.T) {
	n := &Node{runtimeStarted: make(chan time.Time, 1)}
	for i := range 3 {
		n.recordRuntimeStart(time.Unix(int64(i), 0))
	}
	if got := <-n.runtimeStarted; got.Unix() != 2 {
		t.Errorf("got %v, want the last one", got)
	}
}

// TestWrongConfigurationIsReportedThoughTheRuntimeIsAway: the first stage validates all
// of it.
func TestWrongConfigurationIsReportedThoughTheRuntimeIsAway(t *testing.T) {
	for name, tc := range map[string]struct {
		edit func(*config.Config)
		want string
	}{
		"sysctls":              {func(c *config.Config) { c.UnsafeSysctls = []string{"vm.*"} }, "allowedUnsafeSysctls"},
		"credential providers": {func(c *config.Config) { c.ImageCredentialProviderConfig = "/nonexistent/providers.yaml" }, "credential provider plugins"},
		"endpoint":             {func(c *config.Config) { c.RuntimeEndpoint = "tcp://192.0.2.1" }, "only unix sockets"},
	} {
		dir := t.TempDir()
		cfg := &config.Config{RootDir: filepath.Join(dir, "lib"), StateDir: filepath.Join(dir, "run"), RuntimeEndpoint: "unix://" + dir + "/none.sock", MaxPods: 110}
		tc.edit(cfg)
		_, err := New(Config{Kubelet: cfg, Log: slog.New(slog.DiscardHandler)})
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: got %v, want an error with %q", name, err, tc.want)
		}
	}
}

func TestProblemsOfPartsThatCameLaterAreListed(t *testing.T) {
	of := func(origin string) func() []pod.Problem {
		return func() []pod.Problem { return []pod.Problem{{Origin: origin}} }
	}
	p := &problems{listFuncs: []func() []pod.Problem{of("a manifest")}}
	p.add(of("a mount"))
	if got := p.list(); len(got) != 2 || got[0].Origin != "a manifest" || got[1].Origin != "a mount" {
		t.Errorf("got %v", got)
	}
}

// TestThePauseProfileIsForWhatPoddKnows: podd's own image, which podd's own runc starts.
func TestThePauseProfileIsForWhatPoddKnows(t *testing.T) {
	programs := t.TempDir()
	for _, name := range []string{"containerd", "containerd-shim-runc-v2", "runc", "bridge", "host-local", "portmap", "loopback"} {
		if err := os.WriteFile(filepath.Join(programs, name), nil, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	runs := func(path string) string {
		return `{"containerd": {"defaultRuntimeName": "r", "runtimes": {"r": {"options": {"BinaryName": "` + path + `"}}}}}`
	}
	own := runs(filepath.Join(programs, "runc"))
	for name, tc := range map[string]struct {
		settings, image string
		foreign, want   bool
	}{
		"the bundled runtime":             {settings: own, image: bundle.PauseImage, want: true},
		"another image":                   {settings: own, image: "registry.test/pause:1"},
		"a runtime that somebody has":     {settings: own, image: bundle.PauseImage, foreign: true},
		"another program in containerd.d": {settings: runs("/usr/bin/crun"), image: bundle.PauseImage},
		"settings that nobody knows":      {settings: "{}", image: bundle.PauseImage},
	} {
		t.Run(name, func(t *testing.T) {
			srv := critest.New(t)
			srv.SetInfo("config", tc.settings)
			n := newTestNode(t, srv)
			n.cfg.StateDir = t.TempDir()
			n.options.RuntimeDir, n.options.SandboxImage = programs, tc.image
			if !tc.foreign {
				n.network = &cni.Network{}
			}
			facts, err := n.awaitRuntime(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			files, err := filepath.Glob(filepath.Join(n.cfg.StateDir, "*"))
			if err != nil {
				t.Fatal(err)
			}
			if !tc.want && (facts.PauseProfile != "" || len(files) > 0) || tc.want && !slices.Equal(files, []string{facts.PauseProfile}) {
				t.Errorf("got the profile %q, and files %q", facts.PauseProfile, files)
			}
		})
	}
}
