package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	v1 "k8s.io/api/core/v1"

	"podd/admission"
	"podd/agent"
	"podd/agent/backoff"
	"podd/bundle"
	"podd/cgroup"
	"podd/cluster/nodestatus"
	"podd/cni"
	"podd/config"
	"podd/cri"
	"podd/events"
	"podd/images/archive"
	"podd/images/credentials"
	"podd/images/records"
	"podd/internal/budget"
	"podd/internal/instance"
	"podd/internal/pod"
	"podd/internal/wake"
	"podd/node/capacity"
	"podd/nodeshutdown"
	"podd/objects"
	"podd/pleg"
	"podd/podconfig"
	"podd/podconfig/file"
	"podd/podconfig/http"
	"podd/podconfig/manifest"
	"podd/podfs"
	"podd/server"
	"podd/status"
	"podd/systemd"
)

// Config configures a Node.
type Config struct {
	// Kubelet is the configuration, with resolved directories.
	Kubelet *config.Config
	// RuntimeDir, Bridge and SandboxImage configure the bundled runtime. RuntimeRootDir is its
	// root directory; "" means Kubelet's.
	RuntimeDir, RuntimeRootDir, Bridge, SandboxImage string
	// ImageDir holds archives to import; "" means images in the runtime's root directory.
	ImageDir string
	// ContainerLogsDir holds links to the containers' logs.
	ContainerLogsDir string
	// AsKubelet says that podd runs under the name kubelet.
	AsKubelet  bool
	Validation manifest.Validation
	Version    server.Version
	Log        *slog.Logger
	// Flags returns the flags of the command line, without secrets. SetVerbosity sets the
	// verbosity of Log. Both may be nil.
	Flags        func() map[string]string
	SetVerbosity func(level int)
	// ImportLog is the log of imports. If ImportProgress is set, it receives them, too.
	ImportLog      *slog.Logger
	ImportProgress func(archive.Progress)
}

// Node is the first stage: the parts that do not depend on the runtime. Create it with New, Run
// it once.
type Node struct {
	cfg     *config.Config
	options Config
	log     *slog.Logger

	// started is when this podd started.
	started     time.Time
	cgroupFacts cgroup.Facts
	resources   capacity.Resources
	sysctls     admission.Sysctls
	instance    instanceIdentity
	addresses   *nodestatus.Addresses

	registry     *prometheus.Registry
	probeMetrics *prometheus.Registry // for /metrics/probes
	notifier     *systemd.Notifier
	recorder     *events.Recorder
	status       *status.Writer
	podConfig    *podconfig.PodConfig
	objects      *objects.Store
	keyring      *credentials.Keyring
	pullRecords  *records.Store
	problems     *problems
	conn         *cri.Conn
	files        *podfs.Files
	budget       *budget.Budget
	// losingSupport is 1 while the runtime lacks a call that a later kubelet requires.
	losingSupport *prometheus.GaugeVec
	agent         *agent.Agent
	pleg          *pleg.Relister
	server        *server.Server
	shutdown      *nodeshutdown.Manager
	membership    *membership // nil without a cluster
	cluster       clusterParts

	// supervisor is nil if an endpoint is configured: somebody else starts the runtime then.
	// network is nil if that runtime is not the bundled one.
	supervisor *bundle.Supervisor
	network    *cni.Network

	// runtimeStarted receives the time when the process of a newly ready runtime started; zero if
	// unknown.
	runtimeStarted chan time.Time
	// runtimeRecovered is notified when the runtime responds again after an outage.
	runtimeRecovered wake.Signal
	// agentParts receives the agent's parts, once.
	agentParts chan agent.Parts
}

// New builds the first stage, bottom up, and starts nothing. Its errors come from the
// configuration and from this machine.
func New(c Config) (*Node, error) {
	cfg := c.Kubelet
	c.RuntimeRootDir = cmp.Or(c.RuntimeRootDir, cfg.RootDir)
	n := &Node{
		cfg: cfg, options: c, log: c.Log, started: time.Now(), registry: prometheus.NewRegistry(), probeMetrics: prometheus.NewRegistry(),
		runtimeStarted: make(chan time.Time, 1), runtimeRecovered: wake.New(), agentParts: make(chan agent.Parts, 1),
	}
	n.budget = budget.New(n.registry)
	server.RegisterProcess(n.registry, cfg.NodeName, c.Version)
	registerFeatures(n.registry, cfg.Features)
	var err error
	if n.notifier, err = systemd.New(n.log); err != nil {
		return nil, err
	}
	if n.cgroupFacts, err = cgroup.Detect(); err != nil {
		return nil, err
	}
	if n.resources, err = capacity.Find(cfg); err != nil {
		return nil, err
	}
	n.warnUnenforceableLimits()
	n.losingSupport = nodeMetrics(n.registry, n.cgroupFacts.Version)
	n.addresses = nodestatus.NewAddresses(nodestatus.AddressConfig{NodeName: cfg.NodeName, NodeIPs: cfg.NodeIPs, InCluster: cfg.Kubeconfig != ""})
	n.recorder = events.New(events.Config{Node: cfg.NodeName, Log: n.log, Metrics: n.registry})
	n.status = status.NewWriter(status.Config{
		Options: status.Options{HostIPs: n.addresses.Current()}, OnForget: func(last *v1.Pod) { n.cluster.podGone(last) }, Log: n.log, Metrics: n.registry,
	})
	if n.membership, err = n.newMembership(); err != nil {
		return nil, err
	}
	n.cluster = n.standaloneParts()
	if n.membership != nil {
		n.cluster = n.memberParts(n.membership)
	}
	if err := n.connect(); err != nil {
		return nil, err
	}
	if n.sysctls, err = admission.NewSysctls(n.resources.Kernel, cfg.UnsafeSysctls); err != nil {
		return nil, fmt.Errorf("allowedUnsafeSysctls: %w", err)
	}
	key := n.contentKey()
	n.pullRecords = records.New(records.Config{Root: cfg.RootDir, Policy: cfg.ImageAccess, Key: key, Log: n.log, Registerer: n.registry})
	n.objects = objects.New(objects.Config{
		BindingsFile: filepath.Join(n.cfg.RootDir, "volume-bindings.json"), NodeLabels: admission.Labels(n.cfg.NodeName, n.cfg.NodeLabels),
		Remote: n.cluster.remote, ClusterNodeLabels: n.cluster.labels, HashKey: key, Log: n.log, Metrics: n.registry,
	})
	if n.keyring, err = n.newKeyring(); err != nil {
		return nil, err
	}
	n.files = podfs.New(n.dirs(), n.log)
	sources := n.newSources()
	n.podConfig = podconfig.New(podconfig.Config{Sources: sources, Objects: n.objects, OnStaticPods: n.cluster.mirror, Log: n.log, Registerer: n.registry})
	n.problems = &problems{listFuncs: []func() []pod.Problem{n.podConfig.Problems, n.objects.Problems, n.keyring.Problems, n.cluster.problems}}
	n.newAgent(sources)
	n.shutdown = n.newShutdown()
	return n, n.newServer()
}

// newSources builds the sources of pods. If two desire the same name, the earlier source wins.
func (n *Node) newSources() []podconfig.Source {
	var sources []podconfig.Source
	if n.cfg.StaticPodPath != "" {
		sources = append(sources, file.New(file.Config{
			Path: n.cfg.StaticPodPath, NodeName: n.cfg.NodeName, Validation: n.options.Validation, Features: n.cfg.Features, CheckFrequency: n.cfg.FileCheckFrequency,
			StateDir: filepath.Join(n.cfg.RootDir, "manifests"), VolatileDir: filepath.Join(n.cfg.StateDir, "last-good", "manifests"), DeleteImmediately: n.options.AsKubelet,
			Mirrored: n.cluster.mirror != nil, Log: n.log,
		}))
	}
	if n.cfg.StaticPodURL != "" {
		sources = append(sources, http.New(http.Config{
			URL: n.cfg.StaticPodURL, Header: n.cfg.StaticPodURLHeader, NodeName: n.cfg.NodeName, Validation: n.options.Validation, Features: n.cfg.Features,
			CheckFrequency: n.cfg.HTTPCheckFrequency, StateDir: filepath.Join(n.cfg.RootDir, "manifest-url"),
			VolatileDir: filepath.Join(n.cfg.StateDir, "last-good", "manifest-url"), Mirrored: n.cluster.mirror != nil, Log: n.log,
		}))
	}
	return append(sources, n.cluster.sources...)
}

// newAgent builds the sync loop and the part that wakes it when the runtime changes. The sync
// loop gets its other parts when the runtime has responded.
func (n *Node) newAgent(sources []podconfig.Source) {
	policy := backoff.Default()
	policy.Max = n.cfg.RestartBackOffMax
	names := make([]pod.Source, len(sources))
	for i, s := range sources {
		names[i] = s.Name()
	}
	n.agent = agent.New(agent.Config{
		AwaitRuntime: n.awaitAgentParts, Logs: n.files, Status: n.status, Events: n.recorder, Objects: podObjects{n.objects, n.cluster.forgetPod},
		Sources: names, BackOff: policy, Budget: n.budget, LogRemovalsDir: n.logRemovalsDir(),
		CompletedDir: filepath.Join(n.cfg.RootDir, "ended"), AllocatedDir: filepath.Join(n.cfg.RootDir, "allocated"),
		AcceptedDir: filepath.Join(n.cfg.RootDir, "accepted"), StartsDir: filepath.Join(n.cfg.RootDir, "starts"), InterruptionsDir: filepath.Join(n.cfg.RootDir, "interrupted"), Log: n.log, Metrics: n.registry,
	})
	n.pleg = pleg.New(pleg.Config{Waker: n.agent, OnRecovery: n.onRuntimeRecovered, Log: n.log, Metrics: n.registry})
}

func (n *Node) newServer() error {
	api, err := n.kubeletAPI()
	if err != nil {
		return err
	}
	n.server = server.New(server.Config{
		KubeletAddress: api.address, KubeletTLS: api.tls, KubeletGuard: api.guard, KubeletTrusts: api.trusts, Kubelet: n.kubeletOptions(),
		Socket: n.cfg.Socket(), ReadOnlyAddress: n.cfg.ReadOnlyAddress, HealthzAddress: n.cfg.HealthzAddress,
		Version: n.options.Version, NodeName: n.cfg.NodeName, Pods: n.status, Expects: n.agent.Expects, Problems: n.problems.list,
		Events: func(namespace, name string) []*v1.Event {
			return n.recorder.List(events.Filter{Namespace: namespace, Name: name})
		},
		Causes:  n.recorder.Causes,
		Objects: n.listObjects,
		Retry:   n.agent.Retry,
		Restart: n.agent.Restart,
		Drain:   n.agent.Drain,
		Configz: func() any { return map[string]any{"kubeletconfig": n.cfg.Masked()} },
		Health:  n.checks(),
		Changes: []func() (<-chan struct{}, func()){n.status.Changes, n.recorder.Watch, n.podConfig.Changes},
		Log:     n.log, Gather: n.registry, GatherProbes: n.probeMetrics, Metrics: n.registry,
	})
	return nil
}

// lockDirectories locks the root directories, and records the data that podd runtime stop needs.
func (n *Node) lockDirectories() error {
	a := instance.AgentRecord{Dirs: instance.Dirs{Root: n.cfg.RootDir, State: n.cfg.StateDir}, CgroupRoot: cgroupRoot(n.cfg)}
	if n.network == nil {
		a.Endpoint = n.conn.Endpoint()
		return instance.AcquireAgent(a, a.Root)
	}
	return instance.AcquireAgent(a, n.options.RuntimeRootDir)
}

// Run opens the socket and the ports, starts everything and blocks until ctx ends. Pods and
// runtime keep running after that.
func (n *Node) Run(ctx context.Context) error {
	if err := n.server.Listen(); err != nil {
		return err
	}
	if err := n.lockDirectories(); err != nil {
		n.server.Close()
		return err
	}
	n.removeClusterState()
	n.adoptLogRemovals()
	if err := errors.Join(n.awaitPodCIDR(), n.checkAndRecordEndpoint()); err != nil {
		n.server.Close()
		return err
	}
	n.log.Info("podd is starting", "version", n.options.Version.Version, "node", n.cfg.NodeName, "config", n.cfg.File,
		"runtime", n.conn.Endpoint(), "manifests", n.cfg.StaticPodPath, "cgroups", n.cgroupFacts.Version)
	keeper := events.NewKeeper(n.recorder, filepath.Join(n.cfg.RootDir, "events.jsonl"), n.log)
	n.recordStart()
	n.log.Info("effective configuration", configAttrs(n.cfg.Masked())...)
	started := time.Now() // before this podd's first call
	stop := ctx
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(stop))
	defer cancel(nil)
	g, ctx := errgroup.WithContext(ctx)
	start(ctx, g, "server", n.server.Run)
	start(ctx, g, "systemd", func(ctx context.Context) error { return n.notifier.Run(ctx, n.watchdog) })
	start(ctx, g, "pod configuration", n.podConfig.Run)
	start(ctx, g, "problems", n.recordProblems)
	start(ctx, g, "events", keeper.Run)
	start(ctx, g, "shutdown of the machine", n.shutdown.Run)
	if n.membership != nil {
		n.membership.identity.start(ctx, g)
		start(ctx, g, "version of the apiserver", n.membership.version.run)
		start(ctx, g, "address of the node's name", func(ctx context.Context) error { return n.addresses.Run(ctx, n.cfg.StatusUpdateFrequency) })
	}
	if n.supervisor != nil {
		start(ctx, g, "runtime supervisor", n.supervisor.Run)
	}
	start(ctx, g, "sync loop", func(ctx context.Context) error { return n.agent.Run(ctx, n.podConfig.Updates()) })
	start(ctx, g, "runtime", func(ctx context.Context) error { return n.runSecondStage(ctx, g, started) })
	n.notifier.Ready()
	n.awaitEnd(stop, ctx)
	cancel(context.Cause(stop))
	err := g.Wait()
	keeper.Close()
	if closeErr := n.conn.Close(); err == nil && !errors.Is(closeErr, context.Canceled) {
		err = closeErr
	}
	return err
}

// start runs a part until the group's ctx ends.
func start(ctx context.Context, g *errgroup.Group, name string, run func(context.Context) error) {
	g.Go(func() error {
		err := run(ctx)
		if err == nil || ctx.Err() != nil {
			return nil // parts return their context's error
		}
		return fmt.Errorf("%s: %w", name, err)
	})
}
