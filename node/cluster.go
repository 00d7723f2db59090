package node

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
	v1 "k8s.io/api/core/v1"

	"podd/cluster/apiserver"
	"podd/cluster/mirror"
	"podd/cluster/nodestatus"
	"podd/cluster/nodestorage"
	"podd/cluster/podcerts"
	"podd/cluster/tokens"
	"podd/cni"
	"podd/cri"
	"podd/events"
	"podd/internal/features"
	"podd/internal/pod"
	"podd/node/capacity"
	"podd/objects"
	podsource "podd/podconfig/apiserver"
	"podd/podenv"
	"podd/server"
	"podd/server/kubeletapi"
	"podd/status"
	"podd/volumes"
)

// membership holds the parts that only a node in a cluster has. It is nil for a podd without a
// cluster.
type membership struct {
	client       *apiserver.Client
	identity     *clientIdentity
	serving      *servingIdentity // nil if the cluster does not issue the serving certificate
	uploader     *status.Uploader
	tokens       *tokens.Manager
	certificates *podcerts.Manager
	services     *podenv.Services
	mirrors      *mirror.Manager
	registrar    *nodestatus.Registrar                // built once the runtime has responded
	built        atomic.Pointer[nodestatus.Registrar] // the same, for those who may ask before
	attached     *nodestorage.Attachments
	lease        *nodestatus.Lease
	drivers      *nodestorage.CSINodeUpdater // built once the runtime has responded
	volumes      *volumes.Mounter            // the same; no pod goes before that
	podCIDR      *cni.PodCIDR                // the same
	reread       *nodestatus.NodeRefresher
	version      *apiserverVersion
}

// newMembership reads the kubeconfig. The apiserver need not respond: this node runs pods of
// other sources without it.
func (n *Node) newMembership() (*membership, error) {
	if n.cfg.Kubeconfig == "" {
		return nil, nil
	}
	client, err := apiserver.Connect(apiserver.Config{
		Kubeconfig: n.cfg.Kubeconfig, BootstrapKubeconfig: n.cfg.BootstrapKubeconfig, UserAgent: n.userAgent(), QPS: n.cfg.APIQPS, Burst: n.cfg.APIBurst, Log: n.log, Metrics: n.registry,
	})
	if err != nil {
		return nil, err
	}
	own, err := n.newClientIdentity(client)
	if err != nil {
		return nil, err
	}
	m := &membership{
		client: client, identity: own, uploader: status.NewUploader(client, n.status, n.log), tokens: tokens.New(client, n.log),
		services: podenv.NewServices(filepath.Join(n.clusterDir(), "services.json"), client.Server()),
		attached: nodestorage.NewAttachments(client), version: &apiserverVersion{ask: client.ServerVersion, log: n.log},
	}
	m.lease = nodestatus.NewLease(nodestatus.LeaseConfig{
		Client: client, Name: n.cfg.NodeName, Duration: n.cfg.LeaseDuration, Node: func() *v1.Node { return m.registrar.Node() }, Log: n.log,
	})
	m.certificates = podcerts.New(podcerts.Config{
		Client: client, Events: n.recorder, NodeName: n.cfg.NodeName, Node: func() *v1.Node { return m.registrar.Node() }, Log: n.log,
	})
	n.registry.MustRegister(m.certificates)
	read := func(ctx context.Context) (*v1.Node, error) { return m.client.CurrentNode(ctx, n.cfg.NodeName) }
	m.reread = nodestatus.NewNodeRefresher(read, func(of *v1.Node) { m.registrar.ObserveNode(of) }, func() { n.agent.RetryAdmission() }, n.log)
	m.mirrors = mirror.New(mirror.Config{
		Client: client, Node: func() *v1.Node { return m.registrar.LastKnownNode() }, Status: n.statusOf, Changes: func() (<-chan struct{}, func()) { return n.status.Changes() }, Log: n.log, Metrics: n.registry,
	})
	return m, nil
}

// clusterDir holds what podd must know about the cluster when it starts without the apiserver.
func (n *Node) clusterDir() string { return filepath.Join(n.cfg.RootDir, "cluster") }

// removeClusterState removes everything that a cluster gave this node, so that it does not come
// back if the node joins a cluster again.
func (n *Node) removeClusterState() {
	if n.membership != nil {
		return
	}
	err := os.RemoveAll(n.clusterDir())
	if n.network != nil {
		err = errors.Join(err, n.network.Unassign())
	}
	if err != nil {
		n.log.Warn("cannot remove what is stored of a cluster that this node has left", "error", err)
	}
}

// kubeletAPI says how to serve the kubelet's API. It is the zero value without an apiserver.
type kubeletAPI struct {
	address string
	tls     *tls.Config
	guard   func(next http.Handler) http.Handler
	trusts  func([]*x509.Certificate) bool
}

func (n *Node) kubeletAPI() (a kubeletAPI, err error) {
	if n.membership == nil {
		return a, nil
	}
	c := &n.cfg.API
	certificate, err := n.servingCertificate()
	if err != nil {
		return a, err
	}
	guard := kubeletapi.Config{
		Node: n.cfg.NodeName, Anonymous: c.Anonymous, Tokens: c.Tokens, TokenTTL: c.TokenTTL,
		Review: c.Review, AllowedTTL: c.AllowedTTL, DeniedTTL: c.DeniedTTL, Reviewer: n.membership.client, Log: n.log,
		Subresources: server.KubeletSubresources, Admit: server.Admit, Reject: server.Reject,
	}
	if c.ClientCAFile != "" {
		authorities, err := kubeletapi.ClientAuthorities(c.ClientCAFile, n.log)
		if err != nil {
			return a, err
		}
		guard.ClientCAs = authorities.Pool
	}
	g := kubeletapi.NewGuard(guard)
	return kubeletAPI{
		address: c.Address, guard: g.Wrap, trusts: g.Trusts,
		// The guard decides which certificates count: a request may have a token instead.
		tls: &tls.Config{GetCertificate: certificate, ClientAuth: tls.RequestClientCert, MinVersion: c.MinVersion, CipherSuites: c.CipherSuites},
	}, nil
}

// systemLogs is the directory that the kubelet's API shows.
const systemLogs = "/var/log"

func (n *Node) kubeletOptions() server.Kubelet {
	c := &n.cfg.API
	var allocated func() []*v1.Pod
	if n.cfg.Features.Enabled(features.KubeletAllocatedPodsEndpoint) {
		allocated = n.agent.Allocated
	}
	return server.Kubelet{
		Debugging: c.Debugging, DebugFlags: c.DebugFlags, Profiling: c.Profiling, SystemLogs: c.SystemLogs, LogQuery: c.LogQuery,
		LogDir: systemLogs, Flags: n.options.Flags, SetVerbosity: n.options.SetVerbosity, CheckpointDir: filepath.Join(n.cfg.RootDir, "checkpoints"), AllocatedPods: allocated,
	}
}

// podObjects holds what pods refer to: objects, and the tokens and certificates of a cluster.
type podObjects struct {
	*objects.Store
	forget func(pod.UID) // forgets the tokens and certificates of a pod
}

// Unregister forgets the objects, tokens and certificates of a pod.
func (o podObjects) Unregister(uid pod.UID) {
	o.Store.Unregister(uid)
	o.forget(uid)
}

// forgetPod forgets the tokens, certificates and keys of a pod.
func (m *membership) forgetPod(uid pod.UID) {
	m.tokens.Forget(uid)
	m.certificates.Forget(uid)
}

// statusOf returns the status of a pod that is on the node, without a phase until podd has
// looked at it. It returns nil if the pod is not on the node.
func (n *Node) statusOf(uid pod.UID) *v1.PodStatus {
	if p := n.status.Observed(uid); p != nil {
		return &p.Status
	}
	if n.status.Pod(uid) != nil {
		return &v1.PodStatus{}
	}
	return nil
}

// podGone passes a forgotten pod to the uploader, which deletes its object. It waits until none of
// the pod's volumes is mounted here any more: others rely on that once the object is gone.
func (m *membership) podGone(last *v1.Pod) {
	m.volumes.OnceRemoved(last.UID, func() { m.uploader.PodRemoved(last) })
	m.mirrors.Wake()
}

// nodeStatusChanged makes the registrar write the Node's status. Before the registrar is built
// it does nothing: the first status will include the change.
func (m *membership) nodeStatusChanged() {
	if registrar := m.built.Load(); registrar != nil {
		registrar.Wake()
	}
}

// source returns the source of the pods that are bound to this node.
func (m *membership) source(n *Node) *podsource.Source {
	return podsource.New(podsource.Config{
		Lister: m, NodeName: n.cfg.NodeName, Server: m.client.Server(), StateDir: filepath.Join(n.clusterDir(), "pods"), Log: n.log,
	})
}

// FollowPods implements podsource.Lister. It also passes the pods to the uploader.
func (m *membership) FollowPods(ctx context.Context, node string, set func([]*v1.Pod, error)) {
	m.client.FollowPods(ctx, node, func(pods []*v1.Pod, err error) {
		if err == nil {
			m.uploader.ObservePods(pods)
			m.mirrors.ObservePods(pods)
		}
		set(pods, err)
	})
}

// build builds the parts that need the facts of the runtime, before any of the second stage
// runs.
func (m *membership) build(p *runtimeParts) {
	m.volumes = p.volumes
	m.podCIDR = p.newPodCIDR()
	m.registrar = nodestatus.New(nodestatus.Config{
		Client: m.client, Facts: p.nodeFacts(), State: func(ctx context.Context) nodestatus.State {
			m.serving.renewOnAddressChange()
			return p.nodeState(ctx)
		}, RecordEvent: p.recorder.NodeEvent, OnNodeUpdate: func(of *v1.Node) { m.attached.ObserveNode(of); m.podCIDR.ObserveNode(of); p.followNodeAddresses(of) }, Register: p.cfg.RegisterNode, ResetExtendedResources: p.devices.ShouldResetExtendedResourceCapacity(),
		UpdateFrequency: p.cfg.StatusUpdateFrequency, ReportFrequency: p.cfg.StatusReportFrequency, Started: p.started, Log: p.log, Metrics: p.registry,
	})
	m.built.Store(m.registrar)
	m.drivers = nodestorage.NewCSINodeUpdater(nodestorage.CSINodeConfig{Client: m.client, Node: p.cfg.NodeName, Registered: p.csi.Registered, RefreshAttachLimit: p.csi.RefreshAttachLimit, Log: p.log})
}

// start registers the node, and maintains the cluster's view of it and its pods.
func (m *membership) start(ctx context.Context, g *errgroup.Group, p *runtimeParts) {
	start(ctx, g, "node status", m.registrar.Run)
	if m.serving != nil {
		start(ctx, g, "serving certificate", func(ctx context.Context) error { return m.serving.run(ctx, m.registrar) })
	}
	start(ctx, g, "node read for pods", m.reread.Run)
	start(ctx, g, "node lease", m.lease.Run)
	start(ctx, g, "pod CIDR", m.podCIDR.Run)
	start(ctx, g, "pod statuses", m.uploader.Run)
	start(ctx, g, "event uploads", events.NewUploader(events.UploaderConfig{
		Recorder: p.recorder, Client: m.client, QPS: p.cfg.EventQPS, Burst: p.cfg.EventBurst, Rush: m.uploader.Rush, Node: func() *v1.Node { return m.registrar.Node() }, Log: p.log,
	}).Run)
	start(ctx, g, "mirror pods", func(ctx context.Context) error {
		select {
		case <-m.registrar.Registered():
			return m.mirrors.Run(ctx)
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	start(ctx, g, "CSI drivers of the node", func(ctx context.Context) error {
		select {
		case <-m.registrar.Registered():
			return m.drivers.Run(ctx)
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	start(ctx, g, "ResourceSlices", func(ctx context.Context) error {
		select {
		case <-m.registrar.Registered():
			p.draManager.WipeResourceSlices(ctx)
		case <-ctx.Done():
		}
		return nil
	})
	start(ctx, g, "services", func(ctx context.Context) error { return m.services.Run(ctx, m.client) })
	start(ctx, g, "pod certificates", func(ctx context.Context) error { return m.certificates.Run(ctx, objectWaker{p.agent, p.volumes}) })
	start(ctx, g, "service account tokens", func(ctx context.Context) error { return m.tokens.Run(ctx, objectWaker{p.agent, p.volumes}) })
}

// nodeFacts returns the facts that the Node states about this machine.
func (n *runtimeParts) nodeFacts() nodestatus.Facts {
	f := nodestatus.Facts{
		Name: n.cfg.NodeName, Hostname: n.cfg.NodeName, Labels: n.cfg.NodeLabels, Taints: n.cfg.Taints, ProviderID: n.cfg.ProviderID,
		ExternalCloudProvider: n.cfg.ExternalCloud, NodeIPs: n.cfg.NodeIPs,
		Capacity: n.resources.Capacity, Allocatable: n.resources.Allocatable,
		Port: n.cfg.API.Port, System: capacity.System(), StrictGroups: n.facts.StrictGroups, DeclaredFeatures: n.declaredFeatures(),
	}
	f.System.KernelVersion = n.resources.Kernel
	f.System.ContainerRuntimeVersion = n.facts.Runtime.Name + "://" + strings.TrimPrefix(n.facts.Runtime.Version, "v")
	f.System.KubeletVersion = n.options.Version.Kubernetes + "+podd"
	if n.resources.Swap > 0 {
		f.System.Swap = &v1.NodeSwapStatus{Capacity: &n.resources.Swap}
	}
	for _, h := range n.facts.Handlers {
		f.RuntimeHandlers = append(f.RuntimeHandlers, v1.NodeRuntimeHandler{
			Name: h.Name, Features: &v1.NodeRuntimeHandlerFeatures{RecursiveReadOnlyMounts: &h.RecursiveReadOnly, UserNamespaces: &h.UserNamespaces},
		})
	}
	return f
}

// nodeState returns the part of the Node's status that may change.
func (n *runtimeParts) nodeState(ctx context.Context) nodestatus.State {
	n.addresses.AwaitFirstLookup(ctx)
	n.refreshAddresses()
	s := nodestatus.State{NotReady: n.notReady(ctx), Addresses: n.addresses.Current(), VolumesInUse: n.csi.InUse(), Images: n.nodeImages.Current(ctx)}
	s.DeviceCapacity, s.DeviceAllocatable = n.devices.Resources()
	s.MemoryPressure, s.DiskPressure, s.PIDPressure = n.pressures()
	return s
}

// newNodeImages builds the Node's list of images. Only a node in a cluster uses it.
func (n *runtimeParts) newNodeImages() *nodestatus.Images {
	return nodestatus.NewImages(nodestatus.ImagesConfig{
		List: n.client.ListImages, Max: n.cfg.StatusMaxImages, MaxAge: n.cfg.StatusReportFrequency, Log: n.log,
	})
}

// imageService notices the runtime calls that change the set of images.
type imageService struct {
	*cri.Client
	changed func()
}

// PullImage pulls an image.
func (c imageService) PullImage(ctx context.Context, ref string, auth *pod.RegistryAuth, annotations map[string]string) (string, error) {
	defer c.changed()
	return c.Client.PullImage(ctx, ref, auth, annotations)
}

// RemoveImage removes an image.
func (c imageService) RemoveImage(ctx context.Context, image string) error {
	defer c.changed()
	return c.Client.RemoveImage(ctx, image)
}

// notReady returns the reason why the node is not ready, in the kubelet's words where it has
// some.
func (n *runtimeParts) notReady(ctx context.Context) error {
	if n.supervisor != nil {
		if err := n.supervisor.Healthy(); err != nil {
			return fmt.Errorf("container runtime is down: %w", err)
		}
	}
	s, err := n.conn.Status(ctx)
	if err != nil {
		return fmt.Errorf("container runtime is down: %w", n.explainTimeout(err))
	}
	var why []error
	if !s.Runtime.OK {
		why = append(why, fmt.Errorf("container runtime not ready: RuntimeReady=false reason:%s message:%s", s.Runtime.Reason, s.Runtime.Message))
	}
	if err := n.pleg.Healthy(); err != nil {
		why = append(why, fmt.Errorf("PLEG is not healthy: %w", err))
	}
	if err := n.membership.podCIDR.NotReady(); err != nil {
		why = append(why, err)
	}
	if err := n.shutdown.ShuttingDown(); err != nil {
		why = append(why, err)
	}
	if !s.Network.OK {
		why = append(why, fmt.Errorf("container runtime network not ready: NetworkReady=false reason:%s message:%s", s.Network.Reason, s.Network.Message))
	}
	return errors.Join(why...)
}
