package node

import (
	"context"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"podd/admission"
	"podd/agent"
	"podd/bundle"
	"podd/cgroup"
	"podd/cluster/nodestatus"
	"podd/cri"
	"podd/cri/spec"
	"podd/eviction"
	"podd/hooks"
	"podd/images"
	"podd/images/archive"
	"podd/internal/features"
	"podd/internal/selinux"
	"podd/internal/wake"
	"podd/plugins/csi"
	"podd/plugins/devices"
	"podd/plugins/devices/podresources"
	"podd/plugins/dra"
	"podd/plugins/registry"
	"podd/podenv"
	"podd/podfs"
	"podd/prober"
	"podd/server/podsapi"
	"podd/stats"
	"podd/stats/kernel"
	"podd/volumes"
	"podd/volumes/quota"
	"podd/volumes/usage"
)

// loopback is the address where, without a cluster, probes and hooks that name no host reach
// containers on the node's own network. A program that only listens on 127.0.0.1 is healthy. A
// kubelet without an apiserver has no address for such pods in their status and dials an empty
// host, which is the same (pkg/kubelet, generateAPIPodStatus; its HTTP hooks fail there). An
// empty host would also be sent as the Host header, which many servers reject.
const loopback = "127.0.0.1"

// hostIP returns loopback, or in a cluster the node's address. That is the podIP of such pods,
// and Services reach them by it.
func (n *Node) hostIP() string {
	if n.membership != nil {
		if all := n.addresses.Current(); len(all) > 0 {
			return all[0]
		}
	}
	return loopback
}

// runtimeParts is the second stage: it runs pods on the runtime that the facts describe. It is
// built on the first stage.
type runtimeParts struct {
	*Node
	facts Facts

	cgroups    *cgroup.Tree
	oom        *cgroup.OOMDetector
	client     *cri.Client
	plugins    *registry.Registry
	csi        *csi.Volumes
	devices    *devices.Manager
	draManager *dra.Manager // nil without a cluster
	// resourceClaims and podResourcesClaims are draManager as the agent and the pod resources
	// API see it.
	resourceClaims     agent.ResourceClaims
	podResourcesClaims podresources.ResourceClaims
	volumes            *volumes.Mounter
	meter              *usage.Meter
	snapshotUsage      *snapshotUsage
	kernel             *kernel.Reader
	stats              *stats.Collector
	eviction           *eviction.Manager
	admission          *admission.Gate
	archives           *archive.Dir
	images             *images.Puller
	// nodeImages are the images that the Node shows.
	nodeImages   *nodestatus.Images
	prober       *prober.Prober
	hooks        *hooks.Runner
	housekeeping housekeeping

	imported   wake.Signal // notified when images were imported from the image directory
	callFailed wake.Signal // notified when a sandbox or container did not start, or a sandbox or cgroup not go
}

// serverRuntime implements server.Runtime with the second stage.
type serverRuntime struct{ *runtimeParts }

// assemble builds the second stage, bottom up, and starts none of it.
func (n *Node) assemble(facts Facts) (*runtimeParts, error) {
	p := &runtimeParts{Node: n, facts: facts, imported: wake.New(), callFailed: wake.New()}
	p.cgroups = n.cgroupTree(facts.CgroupDriver)
	if n.cfg.Features.Enabled(features.MemoryQoS) {
		memoryReservations(n.registry, p.cgroups)
	}
	p.oom = cgroup.NewOOMDetector(p.cgroups.OOMKills, n.log)
	options := n.specOptions(facts)
	p.client = cri.NewClient(n.conn, options)
	p.snapshotUsage = &snapshotUsage{client: p.client}
	wake := waker{n.agent}
	var err error
	p.devices = devices.New(devices.Config{RootDir: n.cfg.RootDir, Waker: deviceWaker{p}, Log: n.log, Metrics: n.registry})
	n.problems.add(p.devices.Problems)
	p.newDRAManager()
	if err := p.newPlugins(); err != nil {
		return nil, err
	}
	labels := selinux.Find()
	if p.csi, err = csi.New(csi.Config{
		RootDir: n.cfg.RootDir, NodeName: n.cfg.NodeName, Objects: n.objects, Waker: csiWaker{p}, Events: n.recorder, Cluster: n.cluster.storage, Plugins: p.plugins, SELinux: labels, Log: n.log, Metrics: n.registry,
	}); err != nil {
		return nil, err
	}
	p.plugins.Handle(registration.CSIPlugin, p.csi)
	projects := quota.New(n.log)
	if p.volumes, err = volumes.New(volumes.Options{
		RootDir: n.cfg.RootDir, NodeMemory: n.resources.Allocatable.Memory().Value(),
		RecursiveReadOnly: facts.RecursiveReadOnly, Objects: n.objects, Tokens: n.cluster.tokens, TrustBundles: n.cluster.trustBundles, PodCertificates: n.cluster.certificates, Claims: n.objects, Downward: podenv.Downward{Allocatable: n.resources.Allocatable},
		SELinux: labels, CSI: p.csi, Projects: projects, Events: n.recorder, Waker: wake, Features: n.cfg.Features,
	}, n.log, n.registry); err != nil {
		return nil, err
	}
	n.problems.add(p.pendingUnmounts)
	p.meter = usage.New(usage.Config{
		Path: p.volumes.Path, Stats: p.volumes.Stats, Driver: p.volumes.DriverOf, Dirs: n.dirs().WithDefaults(), Status: n.status.Pod, Layers: layers{p.client, facts.importsArchives()},
		Events: n.recorder, StatsPeriod: n.cfg.VolumeStatsAggPeriod, QuotaUsage: projects.Used, Log: n.log,
	})
	n.registry.MustRegister(p.meter.Collector(n.activePods))
	p.kernel = kernel.New(kernel.Config{V2: n.cgroupFacts.Version == cgroup.V2, Controllers: n.cgroupFacts.Controllers})
	p.stats = p.newStats()
	p.eviction = p.newEviction()
	n.problems.add(p.eviction.Problems)
	p.admission = admission.NewGate(&admission.Node{
		Name: n.cfg.NodeName, Labels: admission.Labels(n.cfg.NodeName, n.cfg.NodeLabels), Taints: n.cfg.Taints,
		Allocatable: n.resources.Allocatable, Sysctls: n.sysctls, StrictGroups: facts.StrictGroups, DeclaredFeatures: n.declaredFeatures(),
		AppArmorError: admission.HostAppArmor(), Swap: options.GetsSwap, Pressure: p.eviction.Conditions, ClusterNode: n.cluster.node, Refresh: n.cluster.rereadNode,
	}, p.devices, n.registry)
	if err := p.newImages(wake); err != nil {
		return nil, err
	}
	n.problems.add(p.archives.Problems)
	p.prober = prober.New(prober.Config{
		Execer: p.client, Waker: wake, Events: n.recorder, Features: n.cfg.Features,
		// Probe results are valid only within a boot: containers do not survive it.
		StateDir: filepath.Join(n.cfg.StateDir, "probes"),
		Budget:   n.budget,
		Log:      n.log, Metrics: n.registry, PerProbe: n.probeMetrics,
	})
	p.hooks = hooks.New(hooks.Config{Execer: p.client, Events: n.recorder, Log: n.log, Metrics: n.registry})
	return p, nil
}

// specOptions returns the node's settings for sandboxes and containers.
func (n *Node) specOptions(facts Facts) spec.Options {
	cfg := n.cfg
	return spec.Options{
		Instance: n.instance.id, InstanceFile: n.instance.file, Dirs: n.dirs(),
		CgroupV2: n.cgroupFacts.Version == cgroup.V2, MemoryCapacity: n.resources.Memory,
		NoCPUCFSQuota: !cfg.CPUQuota, CPUCFSQuotaPeriod: cfg.CPUQuotaPeriod, SingleProcessOOMKill: cfg.SingleProcessOOMKill,
		LimitedSwap: cfg.LimitedSwap, SwapCapacity: n.resources.Swap, MemoryQoS: n.memoryQoS(), DefaultSysctls: cfg.DefaultPodSysctls,
		AllowNegativeOOMScore: bundle.MayLowerOOMScore(), SeccompDefault: cfg.SeccompDefault, PauseProfile: facts.PauseProfile,
	}.WithDefaults()
}

// dirs returns the directories of pods' files.
func (n *Node) dirs() podfs.Dirs {
	return podfs.Dirs{Root: n.cfg.RootDir, PodLogs: n.cfg.PodLogsDir, ContainerLogs: n.options.ContainerLogsDir}
}

// newEnvResolver returns the resolver that computes the environment of pods.
func (n *runtimeParts) newEnvResolver() *podenv.Resolver {
	cfg := n.cfg
	return podenv.New(podenv.Config{
		NodeName: cfg.NodeName, NodeIPs: n.addresses.Current, Allocatable: n.resources.Allocatable,
		ClusterDNS: texts(cfg.ClusterDNS), ClusterDomain: cfg.ClusterDomain, ResolvConf: configuredResolvConf(cfg.ResolvConf),
		CgroupParent: n.cgroups.Parent, Objects: n.objects, Services: n.cluster.services, Volumes: n.volumes,
		BuiltinNetwork: n.network != nil, UserNamespace: userNamespaces(cfg, n.dirs(), n.network != nil, n.log),
	})
}

// configuredResolvConf returns nil for the default path. podenv then looks for
// systemd-resolved's real file.
func configuredResolvConf(path string) *string {
	if path == "/etc/resolv.conf" {
		return nil
	}
	return &path
}

// newAgentParts returns the agent's parts.
func (n *runtimeParts) newAgentParts() agent.Parts {
	groups := podCgroups{n.cgroups, n.client, n.callFailed, cgroupDurations(n.registry)}
	return agent.Parts{
		Observer: observer{n.client, n.oom}, Inputs: inputs{n.newEnvResolver(), n.cfg.Features}, Files: n.files,
		Sandboxes: sandboxes{n.client, n.network, n.objects, n.callFailed, n.sandboxImage()}, Containers: containers{n.client, n.callFailed}, Images: n.images, Volumes: n.volumes,
		Cgroups: groups, Admitter: n.admission, Devices: n.devices, ResourceClaims: n.resourceClaims, Limits: n.limits(), Resizer: resizer{groups, n.admission}, Probes: n.prober, Hooks: n.hooks,
		HostIP: n.hostIP, NodeIPs: n.addresses.Current(), MissingFeatures: n.admission.MissingFeatures, MemoryQoS: n.memoryQoS(),
	}
}

// start runs the second stage in g, except for the parts that wait until pods are adopted.
// started is a time before this podd's first call to the runtime.
func (n *runtimeParts) start(ctx context.Context, g *errgroup.Group, started time.Time) {
	if n.network != nil {
		leaks := bundle.NewLeakCollector(bundle.LeakCollectorConfig{
			Endpoint: n.conn.Endpoint(), RuntimeDir: n.options.RuntimeDir, RootDir: n.options.RuntimeRootDir, StateDir: n.cfg.StateDir,
			Lister: n.client, Network: leakedAddresses{n.network, n.log}, Ready: n.runtimeStarted, Failed: n.callFailed,
			Stopped: n.agent.RecheckLeftovers, Started: started, Log: n.log,
		})
		start(ctx, g, "leaks", leaks.Run)
	}
	start(ctx, g, "objects", func(ctx context.Context) error { return n.objects.Run(ctx, objectWaker{n.agent, n.volumes}) })
	start(ctx, g, "volumes", n.volumes.Run)
	start(ctx, g, "device plugins", n.devices.Run)
	start(ctx, g, "pod resources", podresources.New(podresources.Config{
		Socket: filepath.Join(n.cfg.RootDir, "pod-resources", "kubelet.sock"), Pods: n.activePods, Devices: n.devices, ResourceClaims: n.podResourcesClaims, Log: n.log, Metrics: n.registry,
	}).Run)
	if n.cfg.Features.Enabled(features.PodsAPI) {
		start(ctx, g, "PodsAPI", podsapi.New(podsapi.Config{
			Socket: filepath.Join(n.cfg.RootDir, "pods-api", "pods-api.sock"), Pods: n.status, Ready: n.agent.Surveyed, Log: n.log, Metrics: n.registry,
		}).Run)
	}
	if n.draManager != nil {
		start(ctx, g, "DRA drivers", n.draManager.Run)
	}
	start(ctx, g, "CSI volumes", n.csi.Run)
	start(ctx, g, "plugins", n.plugins.Run)
	start(ctx, g, "images", n.images.Run)
	start(ctx, g, "prober", n.prober.Run)
	if n.facts.importsArchives() {
		start(ctx, g, "image directory", n.archives.Run)
		start(ctx, g, "image directory", n.recheckArchives)
	}
}

// sandboxImage returns the image of all sandboxes, if podd chooses it and can import it.
func (n *runtimeParts) sandboxImage() sandboxImage {
	if n.network == nil || !n.facts.importsArchives() {
		return sandboxImage{}
	}
	return sandboxImage{name: n.options.SandboxImage, status: n.client.ImageStatus, archives: n.archives}
}

// recheckArchives re-imports images that the runtime has lost.
func (n *runtimeParts) recheckArchives(ctx context.Context) error {
	for {
		select {
		case <-n.runtimeRecovered:
			n.archives.Recheck()
		case <-ctx.Done():
			return nil
		}
	}
}

// awaitSandboxImage delays pods, on a machine's first start only. It waits until the image that
// every sandbox needs was imported from the image directory, or is known to be missing there.
func (n *runtimeParts) awaitSandboxImage(ctx context.Context) {
	settled := make(chan struct{})
	go func() {
		defer close(settled)
		_ = n.archives.WaitBriefly(ctx)
	}()
	if n.network == nil {
		return // the runtime has a sandbox image of its own
	}
	for {
		if image, err := n.client.ImageStatus(ctx, n.options.SandboxImage); err == nil && image != nil {
			return
		}
		select {
		case <-n.imported:
		case <-settled:
			return
		case <-ctx.Done():
			return
		}
	}
}
