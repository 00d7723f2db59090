package nodestatus

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"podd/internal/logonce"
	"podd/internal/wake"
)

// NodeClient reads and writes this node's Node.
type NodeClient interface {
	// FollowNode calls set with the Node of that name, if it exists, and again after each
	// change. While the apiserver cannot tell, it calls set with the reason. It blocks until
	// ctx ends.
	FollowNode(ctx context.Context, name string, set func(nodes []*v1.Node, err error))
	CreateNode(ctx context.Context, node *v1.Node) (*v1.Node, error)
	Node(ctx context.Context, name string) (*v1.Node, error)
	PatchNode(ctx context.Context, name string, patch []byte, subresource ...string) (*v1.Node, error)
}

// Config configures a Registrar.
type Config struct {
	Client NodeClient
	Facts  Facts
	// State is called before each status. It may block for seconds.
	State func(ctx context.Context) State
	// RecordEvent records an event about the node. eventType is v1's Normal or Warning.
	RecordEvent func(eventType, reason, message string)
	// OnNodeUpdate is called with newer versions of the Node, in order, and always with the newest.
	// They are read-only. OnNodeUpdate may be nil, and may call the Registrar. It must not block: it
	// delays the next version.
	OnNodeUpdate func(node *v1.Node)
	// Register is registerNode. Without it podd maintains an existing Node but creates none.
	Register bool
	// ResetExtendedResources says that podd does not know what the node had before. Extended
	// resources of an existing Node are then set to 0, as in the kubelet: their device plugins may
	// be gone.
	ResetExtendedResources bool
	// UpdateFrequency is the time between computations of the state (nodeStatusUpdateFrequency,
	// 10 s). ReportFrequency is the time between reports of an unchanged state
	// (nodeStatusReportFrequency, 5 min).
	UpdateFrequency, ReportFrequency time.Duration
	// Started is when this podd started.
	Started time.Time
	Log     *slog.Logger
	// Metrics may be nil.
	Metrics prometheus.Registerer
}

// Registrar registers the node and keeps its status up to date. Create it with New, and Run it
// once. The other methods may be called by any goroutine at any time.
type Registrar struct {
	cfg  Config
	log  *slog.Logger
	poke wake.Signal
	// registered is closed once the Node exists.
	registered chan struct{}

	mu   sync.Mutex
	node *v1.Node // the newest version seen; nil for none
	// lastKnown is the last version of node that was not nil.
	lastKnown *v1.Node
	// undelivered is the version that OnNodeUpdate must still get. delivering is set while a
	// goroutine calls OnNodeUpdate.
	undelivered *v1.Node
	delivering  bool

	// The rest belongs to Run.
	lastReport     time.Time     // when the status was last sent
	reportJitter   time.Duration // shifts the next report, so that nodes do not report together
	failure        logonce.Failure
	rebootRecorded bool // the reboot event was recorded
	startup        startup
}

// New returns a Registrar; nothing is requested before Run.
func New(cfg Config) *Registrar {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &Registrar{
		cfg: cfg, log: cfg.Log, poke: wake.New(), registered: make(chan struct{}), startup: newStartup(cfg.Started, cfg.Metrics),
	}
}

// Node returns the newest version of the Node that podd has seen, or nil. It is read-only.
func (r *Registrar) Node() *v1.Node {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.node
}

// LastKnownNode returns the Node as it was last seen, even if somebody has deleted it since. It
// is nil before the registration. It is read-only.
func (r *Registrar) LastKnownNode() *v1.Node {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lastKnown
}

// Registered returns a channel that is closed once the Node has been registered.
func (r *Registrar) Registered() <-chan struct{} { return r.registered }

// Wake makes Run compute the state now. It never blocks.
func (r *Registrar) Wake() {
	r.poke.Notify()
}

// Run registers the node and maintains its status until ctx ends.
func (r *Registrar) Run(ctx context.Context) error {
	if err := r.register(ctx); err != nil {
		return err
	}
	close(r.registered)
	var follower sync.WaitGroup
	defer follower.Wait()
	follower.Go(func() { r.cfg.Client.FollowNode(ctx, r.cfg.Facts.Name, r.handleNodeUpdate) })
	for {
		r.sync(ctx)
		if !wake.Until(ctx, r.poke, time.Now().Add(r.cfg.UpdateFrequency)) {
			return ctx.Err()
		}
	}
}

// registerBackoff is the time between attempts to register. It is the kubelet's.
var registerBackoff = wake.Backoff{Initial: 200 * time.Millisecond, Max: 7 * time.Second}

// register creates the Node or adopts the existing one. It returns once that has succeeded.
func (r *Registrar) register(ctx context.Context) error {
	for wait := registerBackoff.Initial; ; wait = registerBackoff.Next(wait) {
		err := r.tryRegister(ctx)
		if err == nil {
			r.failure.Recovered()
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		r.logFailure("cannot register this node with the apiserver: trying again", err)
		if !wake.Sleep(ctx, wait) {
			return ctx.Err()
		}
	}
}

func (r *Registrar) tryRegister(ctx context.Context) error {
	var forbidden error
	if r.cfg.Register {
		r.startup.tries()
		created, err := r.cfg.Client.CreateNode(ctx, r.cfg.Facts.newNode(r.cfg.State(ctx), metav1.Now()))
		if err == nil {
			r.log.Info("node registered", "node", created.Name)
			r.startup.registers()
			r.startup.reports(&created.Status)
			r.ObserveNode(created)
			r.statusReported()
			return nil
		}
		switch {
		case apierrors.IsAlreadyExists(err):
		case apierrors.IsForbidden(err): // also if the Node exists: nothing looks further then
			forbidden = err
		default:
			return err
		}
	}
	existing, err := r.cfg.Client.Node(ctx, r.cfg.Facts.Name)
	if forbidden != nil && apierrors.IsNotFound(err) {
		return forbidden
	}
	if err != nil {
		return err
	}
	next := existing.DeepCopy()
	r.cfg.Facts.adopt(next)
	if r.cfg.ResetExtendedResources {
		zeroExtendedResources(next.Status.Capacity)
		zeroExtendedResources(next.Status.Allocatable)
	}
	if !equality.Semantic.DeepEqual(existing, next) {
		if next, err = r.patch(ctx, existing, next); err != nil {
			return err
		}
	}
	r.log.Info("node was registered before", "node", next.Name)
	r.ObserveNode(next)
	return nil
}

func (r *Registrar) patch(ctx context.Context, from, to *v1.Node) (*v1.Node, error) {
	patch, err := nodePatch(from, to)
	if err != nil {
		return nil, err
	}
	return r.cfg.Client.PatchNode(ctx, from.Name, patch, "status")
}

// ObserveNode records a version of the Node, unless a newer one is known. It does not block.
func (r *Registrar) ObserveNode(n *v1.Node) {
	r.mu.Lock()
	if r.node == nil || newer(n, r.node) {
		r.setLocked(n)
	}
	r.mu.Unlock()
	r.deliverNode()
}

func (r *Registrar) setLocked(n *v1.Node) { r.node, r.lastKnown, r.undelivered = n, n, n }

// deliverNode passes the newest version to OnNodeUpdate. If another goroutine already does so,
// this one leaves it to that goroutine. Versions thus keep their order without a lock held over
// the call.
func (r *Registrar) deliverNode() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.delivering {
		return
	}
	r.delivering = true
	for n := r.undelivered; n != nil; n = r.undelivered {
		r.undelivered = nil
		if r.cfg.OnNodeUpdate != nil {
			r.mu.Unlock()
			r.cfg.OnNodeUpdate(n)
			r.mu.Lock()
		}
	}
	r.delivering = false
}

// newer reports whether a is a different Node from b, or not an older version of it.
func newer(a, b *v1.Node) bool {
	order, err := resourceversion.CompareResourceVersion(a.ResourceVersion, b.ResourceVersion)
	return a.UID != b.UID || err != nil || order >= 0
}

// handleNodeUpdate takes the updates from FollowNode.
func (r *Registrar) handleNodeUpdate(nodes []*v1.Node, err error) {
	if err != nil {
		return // the pods' source reports that the apiserver does not respond
	}
	r.mu.Lock()
	old := r.node
	switch {
	case len(nodes) == 0:
		r.node = nil
	case old == nil || newer(nodes[0], old):
		r.setLocked(nodes[0])
	}
	now, gone := r.node, old != nil && len(nodes) == 0
	r.mu.Unlock()
	r.deliverNode()
	switch {
	case gone:
		r.log.Warn("the Node was deleted: its pods are being deleted by the cluster; restart podd to register this node again", "node", r.cfg.Facts.Name)
	case old != nil && now != nil && old.Spec.Unschedulable != now.Spec.Unschedulable:
		reason := "NodeSchedulable"
		if now.Spec.Unschedulable {
			reason = "NodeNotSchedulable"
		}
		r.event(reason)
	}
	// Somebody else may have written the status: the cluster sets Unknown on a node that has
	// not renewed its lease.
	r.Wake()
}

func (r *Registrar) event(reason string) {
	r.cfg.RecordEvent(v1.EventTypeNormal, reason, "Node "+r.cfg.Facts.Name+" status is now: "+reason)
}

// recordReboot records one event, in the kubelet's words, if the machine has booted since the
// Node's status was last written.
func (r *Registrar) recordReboot(before string) {
	now := r.cfg.Facts.System.BootID
	if r.rebootRecorded || before == "" || before == now {
		return
	}
	r.rebootRecorded = true
	r.cfg.RecordEvent(v1.EventTypeWarning, "Rebooted", fmt.Sprintf("Node %s has been rebooted, boot id: %s", r.cfg.Facts.Name, now))
}

// sync sends the status if it has changed, or if the last report is old enough.
func (r *Registrar) sync(ctx context.Context) {
	base := r.Node()
	if base == nil {
		return
	}
	r.recordReboot(base.Status.NodeInfo.BootID)
	next := base.DeepCopy()
	r.cfg.Facts.update(next, r.cfg.State(ctx), metav1.Now())
	differs := statusChanged(&base.Status, &next.Status)
	if !differs && time.Since(r.lastReport) < r.cfg.ReportFrequency+r.reportJitter {
		return
	}
	stored, err := r.patch(ctx, base, next)
	if err != nil {
		if ctx.Err() == nil {
			r.logFailure("cannot send the node's status to the apiserver: trying again", err)
		}
		return
	}
	if r.failure.Recovered() {
		r.log.Info("the node's status is sent again")
	}
	r.ObserveNode(stored)
	r.startup.reports(&stored.Status)
	r.statusReported()
	if !differs {
		r.reportJitter = 0
	}
	for _, reason := range transitions(&base.Status, &stored.Status) {
		r.event(reason)
	}
}

// statusReported records that the status was sent. An unchanged status is next reported between
// half and one and a half times the frequency later.
func (r *Registrar) statusReported() {
	r.lastReport = time.Now()
	r.reportJitter = time.Duration((rand.Float64() - 0.5) * float64(r.cfg.ReportFrequency))
}

func (r *Registrar) logFailure(what string, err error) {
	if r.failure.IsNew(err) {
		r.log.Warn(what, "node", r.cfg.Facts.Name, "error", fmt.Sprint(err))
	}
}

// transitions returns the event reasons for conditions that changed. They are the kubelet's.
func transitions(before, after *v1.NodeStatus) []string {
	old := map[v1.NodeConditionType]v1.ConditionStatus{}
	for _, c := range before.Conditions {
		old[c.Type] = c.Status
	}
	names := map[v1.NodeConditionType][2]string{
		v1.NodeReady:          {"NodeReady", "NodeNotReady"},
		v1.NodeMemoryPressure: {"NodeHasInsufficientMemory", "NodeHasSufficientMemory"},
		v1.NodeDiskPressure:   {"NodeHasDiskPressure", "NodeHasNoDiskPressure"},
		v1.NodePIDPressure:    {"NodeHasInsufficientPID", "NodeHasSufficientPID"},
	}
	var reasons []string
	for _, c := range after.Conditions {
		reason, ok := names[c.Type]
		switch {
		case !ok || old[c.Type] == c.Status:
		case c.Status == v1.ConditionTrue:
			reasons = append(reasons, reason[0])
		case c.Status == v1.ConditionFalse:
			reasons = append(reasons, reason[1])
		}
	}
	return reasons
}
