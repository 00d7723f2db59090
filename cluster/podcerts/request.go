package podcerts

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"podd/internal/pod"
	"podd/internal/wake"
)

// The reasons of events. All but reasonInvalid are the kubelet's.
const (
	eventDenied   = certificatesv1.PodCertificateRequestConditionTypeDenied
	eventFailed   = certificatesv1.PodCertificateRequestConditionTypeFailed
	reasonOverdue = "CertificateOverdueForRefresh"
	reasonExpired = "CertificateExpired"
	reasonInvalid = "CertificateInvalid"
)

// dueLocked says whether to start an attempt now, and when to look at the credential again (zero
// for no time known). It adds the events that are due.
func (c *credential) dueLocked(now time.Time, due *news) (start bool, at time.Time) {
	later := func(m wake.Moment) {
		if at.IsZero() || m.Monotonic.Before(at) {
			at = m.Monotonic
		}
	}
	if c.refused != nil {
		return false, at
	}
	if c.current != nil {
		c.tellAgeLocked(now, due, later)
	}
	if p := c.pending; p != nil {
		if p.seen {
			return false, at
		}
		if !p.abandonAt.Reached(now) {
			later(p.abandonAt)
			return false, at
		}
		c.lostLocked(now)
		due.changed = append(due.changed, c.pod.UID)
	}
	attemptAt := c.nextAttempt
	if c.current != nil && c.err == nil {
		attemptAt = c.refreshAt
	}
	switch {
	case c.inFlight:
	case !attemptAt.Reached(now):
		later(attemptAt)
	default:
		return true, at
	}
	return false, at
}

// tellAgeLocked adds the events about a certificate that was not renewed in time, each once.
func (c *credential) tellAgeLocked(now time.Time, due *news, later func(wake.Moment)) {
	why := "the signer has not answered"
	if c.pending != nil {
		why = fmt.Sprintf("the signer has not answered PodCertificateRequest %q", c.pending.name)
	} else if c.err != nil {
		why = c.err.Error()
	}
	tell := func(told *bool, at wake.Moment, reason, format string) {
		switch {
		case *told:
		case at.Reached(now):
			*told = true
			due.warn(c, reason, format, c.current.notAfter.UTC().Format(time.RFC3339), why)
		default:
			later(at)
		}
	}
	tell(&c.overdueTold, c.overdueAt, reasonOverdue, "refresh overdue, the certificate expires at %s: %s")
	tell(&c.expiredTold, c.expiresAt, reasonExpired, "expired at %s, and the volume still has it: %s")
}

// lostLocked records that the pending request was deleted.
func (c *credential) lostLocked(now time.Time) {
	c.err = fmt.Errorf("PodCertificateRequest %q was deleted before the signer answered it: requesting again", c.pending.name)
	c.retryLocked(now, answerBackoff)
}

// retryLocked gives up the pending request, if any, and schedules another after a back-off.
func (c *credential) retryLocked(now time.Time, backoff wake.Backoff) {
	c.pending = nil
	c.delay = backoff.Next(c.delay)
	c.nextAttempt = wake.MomentAt(now.Add(c.delay))
}

// attempt creates a PodCertificateRequest.
func (m *Manager) attempt(ctx context.Context, c *credential) (n news) {
	r, key, err := m.request(ctx, c)
	now := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	c.inFlight = false
	if !m.wantedLocked(c) {
		return n // the apiserver deletes the request with its owner, the pod
	}
	if err != nil {
		if m.failedLocked(ctx, c, err) && c.current == nil {
			n.changed = append(n.changed, c.pod.UID)
		}
		return n
	}
	c.unused, c.err = nil, nil
	c.pending = &pendingRequest{name: r.Name, uid: r.UID, key: key, at: now, abandonAt: wake.MomentAt(now.Add(abandonAfter + rand.N(refreshJitter)))}
	if shown := m.shown[r.UID]; shown != nil { // the watch was faster than the answer
		c.handleShownLocked(shown, now, &n)
	}
	return n
}

// request generates the key, unless there is an unused one, and creates the request. It first
// reads what may be missing, since a key may be expensive.
func (m *Manager) request(ctx context.Context, c *credential) (*certificatesv1.PodCertificateRequest, *keyPair, error) {
	p := c.pod
	account, err := m.cfg.Client.ServiceAccount(ctx, p.Namespace, p.Spec.ServiceAccountName)
	if err != nil {
		return nil, nil, fmt.Errorf("read the service account of the pod: %w", err)
	}
	node := m.cfg.Node()
	if node == nil {
		return nil, nil, errors.New("this node is not registered yet")
	}
	key, err := m.keyOf(ctx, c)
	if err != nil {
		return nil, nil, err
	}
	r, err := m.cfg.Client.CreatePodCertificateRequest(ctx, &certificatesv1.PodCertificateRequest{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: p.Namespace, GenerateName: "req-",
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: p.Name, UID: p.UID}},
		},
		Spec: certificatesv1.PodCertificateRequestSpec{
			SignerName: c.source.SignerName, PodName: p.Name, PodUID: p.UID,
			ServiceAccountName: p.Spec.ServiceAccountName, ServiceAccountUID: account.UID,
			NodeName: types.NodeName(m.cfg.NodeName), NodeUID: node.UID,
			MaxExpirationSeconds: c.source.MaxExpirationSeconds, StubPKCS10Request: key.request, UnverifiedUserAnnotations: c.source.UserAnnotations,
		},
	})
	if err != nil {
		return nil, nil, fmt.Errorf("create a PodCertificateRequest: %w", explain(err))
	}
	return r, key, nil
}

// keyOf returns the key of an attempt that failed, for which no certificate exists, or generates
// a new one.
func (m *Manager) keyOf(ctx context.Context, c *credential) (*keyPair, error) {
	if strings.HasPrefix(c.source.KeyType, "RSA") {
		select {
		case m.keySlots <- struct{}{}:
			defer func() { <-m.keySlots }()
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	m.mu.Lock()
	key, wanted := c.unused, m.wantedLocked(c)
	m.mu.Unlock()
	switch {
	case key != nil:
		return key, nil
	case !wanted:
		return nil, errForgotten
	}
	key, err := newKeyPair(c.source.KeyType)
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	c.unused = key
	m.mu.Unlock()
	return key, nil
}

// errForgotten is the error of an attempt whose pod is gone.
var errForgotten = errors.New("the pod is gone")

// wantedLocked says that nobody has forgotten the credential.
func (m *Manager) wantedLocked(c *credential) bool { return m.creds[c.pod.UID][c.key] == c }

// explain names what is missing if the apiserver does not have PodCertificateRequests.
func explain(err error) error {
	var status apierrors.APIStatus
	if !apierrors.IsNotFound(err) || !errors.As(err, &status) {
		return err
	}
	if of := status.Status().Details; of != nil && of.Name != "" {
		return err // another object is missing, such as the namespace
	}
	return fmt.Errorf("the apiserver does not serve podcertificaterequests of certificates.k8s.io/v1, which Kubernetes has since 1.37 (feature gate PodCertificateRequest): %w", err)
}

// failedLocked records why an attempt failed and schedules another. isNews says that the reason
// differs from the last one.
func (m *Manager) failedLocked(ctx context.Context, c *credential, err error) (isNews bool) {
	now := time.Now()
	var answered apierrors.APIStatus
	if errors.As(err, &answered) && now.Sub(c.firstRequested) < pod.BindingGrace {
		c.delay = max(2*c.delay, pod.BindingRetry)
		c.nextAttempt = wake.MomentAt(now.Add(c.delay))
		return false
	}
	c.retryLocked(now, requestBackoff)
	isNews = c.err == nil || c.err.Error() != err.Error()
	if ctx.Err() == nil && isNews {
		m.logRetry(c, err)
	}
	c.err = err
	return isNews
}

func (m *Manager) logRetry(c *credential, err error) {
	m.log.Warn("cannot get a pod certificate: trying again", "pod", c.pod.Namespace+"/"+c.pod.Name, "volume", c.key.volume, "signer", c.source.SignerName, "error", err)
}

// handleShown handles a call of FollowPodCertificateRequests.
func (m *Manager) handleShown(all []*certificatesv1.PodCertificateRequest, err error) (n news) {
	now := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	if err != nil {
		m.followErr = err // what was shown still counts
		return n
	}
	m.followErr, m.shown = nil, make(map[types.UID]*certificatesv1.PodCertificateRequest, len(all))
	for _, r := range all {
		m.shown[r.UID] = r
	}
	for _, of := range m.creds {
		for _, c := range of {
			m.followedLocked(c, now, &n)
		}
	}
	return n
}

// followedLocked looks for a credential's request among those that the apiserver shows.
func (m *Manager) followedLocked(c *credential, now time.Time, n *news) {
	if c.pending == nil {
		return
	}
	if r := m.shown[c.pending.uid]; r != nil {
		c.handleShownLocked(r, now, n)
		if c.pending == nil && c.err != nil {
			m.logRetry(c, c.err)
		}
	} else if c.pending.seen {
		c.lostLocked(now)
		m.logRetry(c, c.err)
		n.changed = append(n.changed, c.pod.UID)
	}
	if c.pending == nil {
		m.poke.Notify() // another time is due
	}
}

// handleShownLocked takes the answer to the pending request, if there is one.
func (c *credential) handleShownLocked(r *certificatesv1.PodCertificateRequest, now time.Time, n *news) {
	c.pending.seen = true
	got := answerOf(r, c.pending.key, now)
	switch {
	case got.refused != nil:
		// The volume keeps the files that it has; nothing here needs the keys any more.
		c.refused, c.state, c.pending, c.current, c.err = got.refused, got.state, nil, nil, nil
		reason := eventFailed
		if got.state == stateDenied {
			reason = eventDenied
		}
		n.warn(c, reason, "%v", got.refused)
	case got.bad != nil:
		c.err = got.bad
		c.retryLocked(now, answerBackoff)
		if c.current == nil {
			break // FailedMount reports it
		}
		n.warn(c, reasonInvalid, "%v; the volume keeps the certificate that it has, which expires at %s, and podd asks again", got.bad, c.current.notAfter.UTC().Format(time.RFC3339))
		return
	case got.issued != nil:
		c.useLocked(got.issued, now)
	default:
		return
	}
	n.changed = append(n.changed, c.pod.UID)
}

// useLocked makes a certificate the current one.
func (c *credential) useLocked(got *issued, now time.Time) {
	c.current, c.pending, c.err, c.delay = got, nil, nil, 0
	c.overdueTold, c.expiredTold = false, false
	// The durations come from this machine's wall clock; from here on, both clocks count.
	begin := max(got.beginRefreshAt.Sub(now)+rand.N(refreshJitter), minRefresh)
	c.refreshAt, c.overdueAt = wake.MomentAt(now.Add(begin)), wake.MomentAt(now.Add(begin+overdueAfter))
	c.expiresAt = wake.MomentAt(now.Add(got.notAfter.Sub(now)))
}

// state of a credential, as metrics have it.
const (
	stateNotIssued = "not_yet_issued"
	stateDenied    = "denied"
	stateFailed    = "failed"
	stateFresh     = "fresh"
	stateOverdue   = "overdue_for_refresh"
	stateExpired   = "expired"
)

func (c *credential) stateLocked(now time.Time) string {
	switch {
	case c.refused != nil:
		return c.state
	case c.current == nil:
		return stateNotIssued
	case c.expiresAt.Reached(now):
		return stateExpired
	case c.overdueAt.Reached(now):
		return stateOverdue
	}
	return stateFresh
}
