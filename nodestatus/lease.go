package nodestatus

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// LeaseClient reads and writes the node's Lease.
type LeaseClient interface {
	Lease(ctx context.Context, name string) (*coordinationv1.Lease, error)
	CreateLease(ctx context.Context, lease *coordinationv1.Lease) (*coordinationv1.Lease, error)
	UpdateLease(ctx context.Context, lease *coordinationv1.Lease) (*coordinationv1.Lease, error)
}

// LeaseConfig is what a Lease is made of.
type LeaseConfig struct {
	Client LeaseClient
	// Name is the node's, and that of its Lease in kube-node-lease.
	Name string
	// Duration is nodeLeaseDurationSeconds: when the node counts as dead. A quarter of
	// it is the time between renewals, as upstream.
	Duration time.Duration
	// Node returns the Node as far as it is known; the Lease is owned by it, so that it
	// goes with it.
	Node func() *v1.Node
	Log  *slog.Logger
}

// Lease renews the node's Lease (KEP-589).
type Lease struct {
	cfg LeaseConfig
	// last is the Lease as the apiserver stored it; nil if that is not known.
	last *coordinationv1.Lease
	told string
}

// NewLease returns a Lease; nothing is requested before Run.
func NewLease(cfg LeaseConfig) *Lease {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &Lease{cfg: cfg}
}

// leaseRetry is how soon a failed renewal is retried, at first; it doubles up to the
// time between renewals.
const leaseRetry = 200 * time.Millisecond

// Run renews the Lease until ctx ends.
func (l *Lease) Run(ctx context.Context) error {
	every := l.cfg.Duration / 4
	retry := leaseRetry
	for {
		wait := every
		if err := l.renew(ctx); err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			wait, retry = retry, min(2*retry, every)
			l.failed(err)
		} else {
			retry = leaseRetry
			l.renewed()
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(wait):
		}
	}
}

func (l *Lease) failed(err error) {
	if l.told != err.Error() {
		l.told = err.Error()
		l.cfg.Log.Warn("cannot renew the node's lease: the cluster will consider this node dead", "after", l.cfg.Duration, "error", err)
	}
}

func (l *Lease) renewed() {
	if l.told != "" {
		l.told = ""
		l.cfg.Log.Info("the node's lease is renewed again")
	}
}

// renew writes the present time into the Lease, and creates it if there is none. What
// others wrote into it stays.
func (l *Lease) renew(ctx context.Context) (err error) {
	if l.last == nil {
		l.last, err = l.cfg.Client.Lease(ctx, l.cfg.Name)
		if apierrors.IsNotFound(err) {
			l.last, err = l.cfg.Client.CreateLease(ctx, l.next(nil))
			if err == nil {
				return nil
			}
		}
		if err != nil {
			l.last = nil
			return fmt.Errorf("get or create the node's lease: %w", err)
		}
	}
	l.last, err = l.cfg.Client.UpdateLease(ctx, l.next(l.last))
	if err != nil {
		l.last = nil
		return fmt.Errorf("renew the node's lease: %w", err)
	}
	return nil
}

// next is the Lease to write.
func (l *Lease) next(last *coordinationv1.Lease) *coordinationv1.Lease {
	out := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: l.cfg.Name, Namespace: v1.NamespaceNodeLease}}
	if last != nil {
		out = last.DeepCopy()
	}
	seconds, now := int32(l.cfg.Duration/time.Second), metav1.NowMicro()
	out.Spec.HolderIdentity, out.Spec.LeaseDurationSeconds, out.Spec.RenewTime = &l.cfg.Name, &seconds, &now
	if node := l.cfg.Node(); node != nil {
		out.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID}}
	}
	return out
}
