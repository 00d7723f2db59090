package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	v1 "k8s.io/api/core/v1"

	"podd/admission"
	"podd/agent"
	"podd/agent/backoff"
	"podd/bundle"
	"podd/cgroup"
	"podd/cni"
	"podd/config"
	"podd/cri"
	"podd/events"
	"podd/hooks"
	"podd/images"
	"podd/internal/places"
	"podd/internal/pod"
	"podd/pleg"
	"podd/podconfig"
	"podd/podconfig/file"
	"podd/podconfig/http"
	"podd/prober"
	"podd/server"
	"podd/status"
	"podd/systemd"
	"podd/volumes"
)

// node is podd wired: the only thing that knows all parts. The parts know one
// another only through the interfaces that each declares.
type node struct {
	cfg *config.Config
	own runFlags
	log *slog.Logger

	facts     cgroup.Facts
	resources nodeResources
	admission *admission.Gate
	registry  *prometheus.Registry
	notifier  *systemd.Notifier
	recorder  *events.Recorder
	status    *status.Writer
	config    *podconfig.PodConfig
	client    *cri.Client
	images    *images.Puller
	archives  *images.ImportDir
	imports   bool // the runtime takes archives; known from its greeting on
	volumes   *volumes.Mounter
	pleg      *pleg.Relister
	prober    *prober.Prober
	hooks     *hooks.Runner
	agent     *agent.Agent
	server    *server.Server
	keep      housekeeping

	// supervisor is nil when an endpoint is configured; somebody else starts
	// the runtime then. network is nil when that runtime is not the bundled one.
	supervisor *bundle.Supervisor
	network    *cni.Network

	// cgroups is known once the runtime has told its driver.
	cgroups atomic.Pointer[cgroup.Tree]
	// recursiveReadOnly and strictGroups are the runtime's, known from its
	// greeting on.
	recursiveReadOnly, strictGroups atomic.Bool
	// runtimeUp says when the process of a runtime that became ready began;
	// zero if only somebody else knows.
	runtimeUp chan time.Time
	// greeted is closed when the runtime has answered for the first time.
	greeted chan struct{}
	// probeMetrics is what /metrics/probes shows.
	probeMetrics *prometheus.Registry
	// imported is poked when images came from the image directory.
	imported chan struct{}
}

// newNode builds all parts, bottom up, and starts none.
func newNode(cfg *config.Config, own runFlags, log *slog.Logger) (*node, error) {
	n := &node{
		cfg: cfg, own: own, log: log, registry: prometheus.NewRegistry(),
		runtimeUp: make(chan time.Time, 1), imported: make(chan struct{}, 1), greeted: make(chan struct{}),
	}
	server.RegisterProcess(n.registry, cfg.NodeName, thisVersion())
	var err error
	if n.notifier, err = systemd.New(log); err != nil {
		return nil, err
	}
	if n.facts, err = cgroup.Detect(); err != nil {
		return nil, err
	}
	if n.resources, err = findResources(cfg); err != nil {
		return nil, err
	}
	n.cgroups.Store(n.cgroupTree(cgroup.Driver(cfg.CgroupDriver)))
	n.warnOfBounds(log)
	n.recorder = events.New(events.Config{Node: cfg.NodeName, Log: log, Metrics: n.registry})
	n.status = status.NewWriter(status.Config{
		Options: status.Options{HostIPs: nodeAddresses(cfg)}, Log: log, Metrics: n.registry,
	})
	if err := n.newRuntime(); err != nil {
		return nil, err
	}
	if err := n.newAdmission(); err != nil {
		return nil, err
	}
	if n.volumes, err = volumes.New(volumes.Options{
		RootDir: cfg.RootDir, NodeMemory: n.resources.allocatable.Memory().Value(), RecursiveReadOnly: n.recursiveReadOnly.Load, Variables: n.client.Variables,
	}, log, n.registry); err != nil {
		return nil, err
	}
	n.newSources()
	if err := n.newAgent(); err != nil {
		return nil, err
	}
	n.newServer()
	return n, nil
}

// cgroupRoot is below which the pods' cgroups are.
func (n *node) cgroupRoot() string {
	if n.cfg.CgroupRoot == "" {
		return cgroup.DefaultRoot
	}
	return filepath.Join("/", n.cfg.CgroupRoot, "kubepods")
}

// newRuntime builds the way to the container runtime: the configured one, or
// the bundled one with its supervisor. The bundled one may also be configured,
// which is how systemd runs it: then its network is podd's all the same.
func (n *node) newRuntime() error {
	cfg, bundled := n.cfg, "unix://"+bundle.Socket(n.cfg.StateDir)
	endpoint := cfg.RuntimeEndpoint
	if endpoint == "" {
		endpoint = bundled
		if err := n.newSupervisor(); err != nil {
			return err
		}
	} else if endpoint == bundled {
		if _, err := n.runtimeFlags(); err != nil {
			n.log.Warn("the pod network of the bundled runtime is not looked after", "error", err)
		}
	}
	id, err := instance(cfg.RootDir)
	if err != nil {
		return err
	}
	resolvConf := n.cfg.ResolvConf
	n.client, err = cri.New(endpoint, cri.Options{
		RequestTimeout: cfg.RuntimeRequestTimeout, Instance: id, Unsigned: n.hasDirectory,
		NodeName: cfg.NodeName, NodeIPs: nodeAddresses(cfg),
		RootDir: cfg.RootDir, PodLogsDir: cfg.PodLogsDir, ContainerLogsDir: n.own.containerLogsDir,
		CgroupParent: func(p *v1.Pod) string { return n.cgroups.Load().Parent(p) },
		CgroupV2:     n.facts.Version == cgroup.V2, MemoryCapacity: n.resources.memory, Allocatable: n.resources.allocatable,
		NoCPUCFSQuota: !cfg.CPUQuota, CPUCFSQuotaPeriod: cfg.CPUQuotaPeriod, SingleProcessOOMKill: cfg.SingleProcessOOMKill,
		LimitedSwap: cfg.LimitedSwap, SwapCapacity: n.resources.swap,
		AllowNegativeOOMScore: bundle.MayLowerOOMScore(),
		ClusterDNS:            addresses(cfg.ClusterDNS), ClusterDomain: cfg.ClusterDomain, ResolvConf: configuredResolvConf(resolvConf),
		SeccompDefault: cfg.SeccompDefault, UserNamespace: n.userNamespaces(),
		VolumePath: func(p *v1.Pod, volume string) (string, error) { return n.volumes.Path(p, volume) },
		Recorder:   n.recorder,
	}, n.log, n.registry)
	return err
}

// newSupervisor builds what keeps the bundled runtime running.
func (n *node) newSupervisor() error {
	flags, err := n.runtimeFlags()
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find podd's own binary: %w", err)
	}
	n.supervisor = bundle.NewSupervisor(bundle.SupervisorConfig{
		Socket: bundle.Socket(n.cfg.StateDir), Command: append([]string{self, "runtime"}, flags.args()...),
		LogFile: bundle.LogFile(n.cfg.StateDir), Log: n.log, Registerer: n.registry,
		OnReady: func(_ int, began time.Time) { n.noteRuntime(began) },
	})
	return nil
}

// noteRuntime says that a runtime whose process began then is there.
func (n *node) noteRuntime(began time.Time) {
	select {
	case n.runtimeUp <- began:
	default: // one is waiting to be read
	}
}

// runtimeFlags are what the bundled runtime is started with, and builds the
// pod network that goes with them.
func (n *node) runtimeFlags() (*runtimeFlags, error) {
	binDir, err := bundle.Find(n.own.runtimeDir)
	if err != nil {
		return nil, err
	}
	flags := &runtimeFlags{
		rootDir: n.cfg.RootDir, stateDir: n.cfg.StateDir, runtimeDir: binDir, configDir: defaultConfigDir,
		podCIDR: cni.DefaultPodCIDR, bridge: n.own.bridge, sandboxImage: n.own.sandboxImage, logLevel: "warn",
	}
	if n.cfg.PodCIDR.IsValid() {
		flags.podCIDR = n.cfg.PodCIDR.String()
	}
	n.network, err = flags.network(binDir, n.log)
	return flags, err
}

func (n *node) newSources() {
	var sources []podconfig.Source
	if n.cfg.StaticPodPath != "" {
		sources = append(sources, file.New(file.Config{
			Path: n.cfg.StaticPodPath, NodeName: n.cfg.NodeName, Validation: n.own.validation, CheckFrequency: n.cfg.FileCheckFrequency,
			StateDir: filepath.Join(n.cfg.RootDir, "manifests"), Log: n.log,
		}))
	}
	if n.cfg.StaticPodURL != "" {
		sources = append(sources, http.New(http.Config{
			URL: n.cfg.StaticPodURL, Header: n.cfg.StaticPodURLHeader, NodeName: n.cfg.NodeName, Validation: n.own.validation,
			CheckFrequency: n.cfg.HTTPCheckFrequency, StateDir: filepath.Join(n.cfg.RootDir, "manifest-url"), Log: n.log,
		}))
	}
	n.config = podconfig.New(podconfig.Config{Sources: sources, Log: n.log, Registerer: n.registry})
}

// newAgent builds what makes pods run. A pull wakes the agent, which exists
// only after the puller: the one knot that a function has to tie.
func (n *node) newAgent() error {
	wake := wakeFunc(func(uid pod.UID) { n.agent.Wake(uid, time.Time{}) })
	if err := n.newImages(wake); err != nil {
		return err
	}
	n.newProbes(wake)
	curve := backoff.Default()
	curve.Max = n.cfg.RestartBackOffMax
	var names []pod.Source
	if n.cfg.StaticPodPath != "" {
		names = append(names, pod.SourceFile)
	}
	if n.cfg.StaticPodURL != "" {
		names = append(names, pod.SourceHTTP)
	}
	n.agent = agent.New(agent.Config{
		Observer: observer{n.client, n.greeted, n.newOOMWitness()}, Sandboxes: sandboxes{n.client, n.network}, Containers: n.client, Images: n.images, Volumes: n.volumes,
		Cgroups: podCgroups{n}, Admitter: n.admission, Resizer: resizer{podCgroups{n}, n.admission}, Logs: n.client, Status: n.status, Events: n.recorder,
		Probes: n.prober, Hooks: n.hooks, Sources: names, BackOff: curve, Graves: filepath.Join(n.cfg.RootDir, "graves"),
		Ended: filepath.Join(n.cfg.RootDir, "ended"), HostIP: hostNetworkIP, NodeIPs: nodeAddresses(n.cfg), Log: n.log, Metrics: n.registry,
	})
	n.pleg = pleg.New(pleg.Config{
		Runtime: n.client, Waker: n.agent, Recovered: n.runtimeBack, Log: n.log, Metrics: n.registry,
	})
	return nil
}

func (n *node) newServer() {
	n.server = server.New(server.Config{
		Socket: n.cfg.Socket(), ReadOnlyAddress: n.cfg.ReadOnlyAddress, HealthzAddress: n.cfg.HealthzAddress,
		Version: thisVersion(), NodeName: n.cfg.NodeName, Pods: n.status, Problems: n.problems,
		Events: func(namespace, name string) []*v1.Event {
			return n.recorder.List(events.Filter{Namespace: namespace, Name: name})
		},
		Causes:  n.recorder.Causes,
		Retry:   n.agent.Retry,
		Configz: func() any { return map[string]any{"kubeletconfig": n.cfg.Masked()} },
		Health:  n.checks(),
		Changes: []func() (<-chan struct{}, func()){n.status.Changes, n.recorder.Watch, n.config.Changes},
		Log:     n.log, Gather: n.registry, GatherProbes: n.probeMetrics, Metrics: n.registry,
	})
}

// claim takes the root directory, and notes what podd runtime stop must know.
func (n *node) claim() error {
	a := places.Agent{Dirs: places.Dirs{Root: n.cfg.RootDir, State: n.cfg.StateDir}, CgroupRoot: n.cgroupRoot()}
	if n.network == nil {
		a.Endpoint = n.client.Endpoint()
	}
	return places.ClaimAgent(a)
}

// run takes the socket and the ports, starts everything and blocks until ctx
// ends. Pods and runtime stay as they are.
func (n *node) run(ctx context.Context) error {
	if err := n.server.Listen(); err != nil {
		return err
	}
	if err := n.claim(); err != nil {
		n.server.Close()
		return err
	}
	if err := n.settleEndpoint(); err != nil {
		n.server.Close()
		return err
	}
	n.log.Info("podd is starting", "version", thisVersion().Version, "node", n.cfg.NodeName, "config", n.cfg.File,
		"runtime", n.client.Endpoint(), "manifests", n.cfg.StaticPodPath, "cgroups", n.facts.Version)
	g, ctx := errgroup.WithContext(ctx)
	start := func(name string, run func(context.Context) error) {
		g.Go(func() error { return ignoreCanceled(ctx, name, run(ctx)) })
	}
	start("server", n.server.Run)
	start("systemd", func(ctx context.Context) error { return n.notifier.Run(ctx, n.watchdog) })
	start("pod configuration", n.config.Run)
	start("problems", n.tellProblems)
	start("volumes", n.volumes.Run)
	start("images", n.images.Run)
	start("prober", n.prober.Run)
	if n.supervisor != nil {
		start("runtime supervisor", n.supervisor.Run)
	}
	start("runtime", n.followRuntime)
	n.notifier.Ready()
	<-ctx.Done()
	n.notifier.Stopping()
	n.log.Info("podd is stopping; pods and runtime go on")
	err := g.Wait()
	if closeErr := n.client.Close(); err == nil && !errors.Is(closeErr, context.Canceled) {
		err = closeErr
	}
	return err
}
