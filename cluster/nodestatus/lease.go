package nodestatus

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podd/internal/logonce"
	"podd/internal/pod"
	"podd/internal/wake"
)

// LeaseClient reads and writes the node's Lease.
type LeaseClient interface {
	Lease(ctx context.Context, name string) (*coordinationv1.Lease, error)
	CreateLease(ctx context.Context, lease *coordinationv1.Lease) (*coordinationv1.Lease, error)
	UpdateLease(ctx context.Context, lease *coordinationv1.Lease) (*coordinationv1.Lease, error)
}

// LeaseConfig configures a Lease.
type LeaseConfig struct {
	Client LeaseClient
	// Name is the name of the node, and of its Lease in kube-node-lease.
	Name string
	// Duration is nodeLeaseDurationSeconds: the time after which the node counts as dead. podd
	// renews after a quarter of it, as upstream.
	Duration time.Duration
	// Node returns the Node as far as it is known. The Node owns the Lease, so the Lease is
	// deleted with it.
	Node func() *v1.Node
	Log  *slog.Logger
}

// Lease renews the node's Lease (KEP-589). It also notices if somebody else renews it: two
// agents with one node's name both run its pods, and each overwrites the other's status.
type Lease struct {
	cfg LeaseConfig
	// last is the Lease as the apiserver stored it; nil if unknown.
	last    *coordinationv1.Lease
	failure logonce.Failure
	// ownRenewTimes are the renewal times that this podd may have written to the Lease: the last one
	// stored, and later ones that may have been stored. It is empty before the first.
	ownRenewTimes []time.Time
	// foreignRenewTime is the last renewal time that this podd did not write. consecutiveOwnRenewals
	// counts podd's renewals since.
	foreignRenewTime       time.Time
	consecutiveOwnRenewals int

	mu         sync.Mutex
	rivalSince time.Time // guarded by mu: since when another agent renews the Lease; zero for none
}

// NewLease returns a Lease; nothing is requested before Run.
func NewLease(cfg LeaseConfig) *Lease {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &Lease{cfg: cfg}
}

// maxOwnRenewTimes bounds the length of ownRenewTimes to the attempts of some hours.
const maxOwnRenewTimes = 1000

// Problems returns a problem if another agent renews this node's Lease, too.
func (l *Lease) Problems() []pod.Problem {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.rivalSince.IsZero() {
		return nil
	}
	return []pod.Problem{{Origin: "node " + l.cfg.Name, Message: rivalMessage, Since: l.rivalSince}}
}

const rivalMessage = "another agent uses the name of this node: both renew its lease and run its pods, and the cluster sees now one of them, now the other; " +
	"stop one of them, or give it another name (--hostname-override) and credentials of its own"

// detectRival compares the Lease that was read with what this podd has written. A foreign
// renewal time must be seen twice before it counts: a restored backup of the cluster has an old
// one.
func (l *Lease) detectRival(read *coordinationv1.Lease) {
	if len(l.ownRenewTimes) == 0 || read.Spec.RenewTime == nil {
		return
	}
	at := read.Spec.RenewTime.Time
	if slices.ContainsFunc(l.ownRenewTimes, at.Equal) {
		return
	}
	l.consecutiveOwnRenewals = 0
	before := l.foreignRenewTime
	if l.foreignRenewTime = at; before.IsZero() || before.Equal(at) {
		return
	}
	l.mu.Lock()
	first := l.rivalSince.IsZero()
	if first {
		l.rivalSince = time.Now()
	}
	l.mu.Unlock()
	if first {
		l.cfg.Log.Error(rivalMessage, "node", l.cfg.Name)
	}
}

// renewalStored records that the apiserver has stored the newest renewal.
func (l *Lease) renewalStored() {
	l.ownRenewTimes = l.ownRenewTimes[len(l.ownRenewTimes)-1:]
	if l.consecutiveOwnRenewals++; l.consecutiveOwnRenewals <= 4 { // four renewals are the lease's whole duration
		return
	}
	l.foreignRenewTime = time.Time{}
	l.mu.Lock()
	gone := !l.rivalSince.IsZero()
	l.rivalSince = time.Time{}
	l.mu.Unlock()
	if gone {
		l.cfg.Log.Info("no other agent uses the name of this node any longer", "node", l.cfg.Name)
	}
}

// errNoNode means that the Node is unknown. As upstream, there is no Lease without the Node
// that owns it.
var errNoNode = errors.New("the Node is not known yet")

// leaseRetry is the first delay before a failed renewal is retried. It doubles up to the time
// between renewals.
const leaseRetry = 200 * time.Millisecond

// Run renews the Lease until ctx ends.
func (l *Lease) Run(ctx context.Context) error {
	every := l.cfg.Duration / 4
	retry, delay := wake.Backoff{Initial: leaseRetry, Max: every}, time.Duration(0)
	for {
		wait := every
		if err := l.renew(ctx); err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			delay = retry.Next(delay)
			wait = delay
			if !errors.Is(err, errNoNode) {
				l.logFailure(err)
			}
		} else {
			delay = 0
			l.logRecovery()
		}
		if !wake.Sleep(ctx, wait) {
			return ctx.Err()
		}
	}
}

func (l *Lease) logFailure(err error) {
	if l.failure.IsNew(err) {
		l.cfg.Log.Warn("cannot renew the node's lease: the cluster will consider this node dead", "after", l.cfg.Duration, "error", err)
	}
}

func (l *Lease) logRecovery() {
	if l.failure.Recovered() {
		l.cfg.Log.Info("the node's lease is renewed again")
	}
}

// renew writes the current time into the Lease, and creates the Lease if there is none. Fields
// that others wrote stay.
func (l *Lease) renew(ctx context.Context) error {
	known := l.last != nil
	err := l.tryRenew(ctx)
	if known && apierrors.IsConflict(err) {
		err = l.tryRenew(ctx) // after reading the Lease again
	}
	return err
}

func (l *Lease) tryRenew(ctx context.Context) (err error) {
	if l.last == nil {
		l.last, err = l.cfg.Client.Lease(ctx, l.cfg.Name)
		if apierrors.IsNotFound(err) {
			if l.cfg.Node() == nil {
				l.last = nil
				return errNoNode
			}
			l.last, err = l.cfg.Client.CreateLease(ctx, l.nextLease(nil))
			if err == nil {
				l.renewalStored()
				return nil
			}
		}
		if err != nil {
			l.last = nil
			return fmt.Errorf("get or create the node's lease: %w", err)
		}
		l.detectRival(l.last)
	}
	l.last, err = l.cfg.Client.UpdateLease(ctx, l.nextLease(l.last))
	if err != nil {
		l.last = nil
		return fmt.Errorf("renew the node's lease: %w", err)
	}
	l.renewalStored()
	return nil
}

// nextLease returns the Lease to write. Its renewal time never goes back, even if the clock is set
// back. The node lifecycle controller counts a Lease as renewed only if its time is later than
// before, and a node as dead if its Lease is not renewed.
func (l *Lease) nextLease(last *coordinationv1.Lease) *coordinationv1.Lease {
	out := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: l.cfg.Name, Namespace: v1.NamespaceNodeLease}}
	if last != nil {
		out = last.DeepCopy()
	}
	seconds, now := int32(l.cfg.Duration/time.Second), metav1.NewMicroTime(time.Now().Truncate(time.Microsecond))
	if out.Spec.RenewTime != nil && !out.Spec.RenewTime.Before(&now) {
		now.Time = out.Spec.RenewTime.Add(time.Microsecond)
	}
	l.ownRenewTimes = append(l.ownRenewTimes[max(0, len(l.ownRenewTimes)-maxOwnRenewTimes):], now.Time)
	out.Spec.HolderIdentity, out.Spec.LeaseDurationSeconds, out.Spec.RenewTime = &l.cfg.Name, &seconds, &now
	if node := l.cfg.Node(); node != nil {
		out.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID}}
	}
	return out
}
