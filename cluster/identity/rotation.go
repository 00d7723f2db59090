package identity

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"podd/internal/pod"
	"podd/internal/wake"
)

// Config configures a Rotation.
type Config struct {
	Store *Store
	// Signer is one of the signer names of certificates.k8s.io/v1 for kubelets.
	Signer string
	// Template returns the required content of the certificate; nil while that is unknown.
	Template func() *x509.CertificateRequest
	// Requester returns the apiserver to ask. valid says whether there is a valid certificate
	// to authenticate with.
	Requester func(valid bool) Requester
	// NoRenewal makes podd request a certificate only if it has none, and never renew one.
	NoRenewal bool
	// StoreInitial stores the initial pair, if it is used, when Run begins. The kubelet does the
	// same with the pair of its kubeconfig: "kubeadm init" makes the kubeconfig name the
	// Store's file instead, if the file exists by then.
	StoreInitial bool
	// Issued is called with each new certificate, after it is stored; nil for nobody.
	Issued func(*Pair) error
	Log    *slog.Logger
	// Metrics may be nil.
	Metrics *Metrics
}

const (
	// The age at which a certificate is renewed, as a fraction of its life: from renewalAge to
	// renewalAge+renewalJitter, so that nodes created together do not renew together (client-go's
	// certificate manager).
	renewalAge, renewalJitter = 0.7, 0.2
	// maxSleep bounds how late podd notices that the clock was set.
	maxSleep = time.Hour
)

var (
	// failureBackoff is the pause after a failed request, as upstream.
	failureBackoff = wake.Backoff{Initial: 2 * time.Second, Max: 32 * time.Second}
	// refusalBackoff is the pause after a refused request. Upstream makes a new one as fast as
	// after any failure.
	refusalBackoff = wake.Backoff{Initial: 32 * time.Second, Max: 10 * time.Minute}
)

// Rotation keeps one certificate valid. Create it with New, and Run it once. The other methods
// may be called by any goroutine at any time; none blocks.
type Rotation struct {
	cfg  Config
	log  *slog.Logger
	poke wake.Signal
	// initial is the pair that the Store does not have; nil for none.
	initial *Pair

	mu      sync.Mutex
	current *Pair     // nil for none
	renewAt time.Time // when to renew now
	// problem is the reason why a certificate that is due has not been issued.
	problem *pod.Problem
}

// New returns a Rotation with the Store's pair. If the Store has none or its pair has expired,
// it uses initial, which may be nil.
func New(cfg Config, initial *Pair) *Rotation {
	r := &Rotation{cfg: cfg, log: cfg.Log.With("signer", cfg.Signer), poke: wake.New()}
	now := time.Now()
	stored, err := cfg.Store.Current()
	switch {
	case err == nil && now.Before(stored.TLS.Leaf.NotAfter):
		r.setLocked(stored)
	case initial != nil:
		r.setLocked(initial)
		r.initial = initial
		// As upstream: kubeadm gives a control plane's node more rights than a node has.
		r.renewAt = now
	case err == nil:
		r.setLocked(stored)
	}
	return r
}

// setLocked makes p the current pair. The caller holds r.mu, or has not shared r yet.
func (r *Rotation) setLocked(p *Pair) {
	leaf := p.TLS.Leaf
	life := leaf.NotAfter.Sub(leaf.NotBefore)
	r.current, r.renewAt = p, leaf.NotBefore.Add(time.Duration(float64(life)*(renewalAge+renewalJitter*rand.Float64())))
	r.cfg.Metrics.expires(leaf.NotAfter)
}

// Current returns the newest certificate, or nil if none is valid.
func (r *Rotation) Current() *tls.Certificate {
	if p := r.Pair(); p != nil {
		return p.TLS
	}
	return nil
}

// Pair is Current, with the PEM texts.
func (r *Rotation) Pair() *Pair {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.current == nil || time.Now().After(r.current.TLS.Leaf.NotAfter) {
		return nil
	}
	return r.current
}

// Adopt uses a certificate that somebody else installed in place of the last one.
func (r *Rotation) Adopt(p *Pair) {
	r.mu.Lock()
	r.setLocked(p)
	r.problem = nil
	r.mu.Unlock()
	r.Wake()
}

// Wake reports that the Template may return something else.
func (r *Rotation) Wake() {
	r.poke.Notify()
}

// Problems returns the reason if a certificate is due and has not been issued.
func (r *Rotation) Problems() []pod.Problem {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.problem == nil {
		return nil
	}
	return []pod.Problem{*r.problem}
}

// Run renews the certificate in time until ctx ends.
func (r *Rotation) Run(ctx context.Context) error {
	if r.cfg.StoreInitial && r.initial != nil {
		if err := r.cfg.Store.Update(r.initial, time.Now()); err != nil {
			r.log.Warn("cannot store the kubeconfig's client certificate: it is used all the same", "error", err)
		}
	}
	var pause time.Duration // after a failed attempt
	for ctx.Err() == nil {
		template := r.cfg.Template()
		if due := r.untilDue(template); due > 0 {
			pause = 0
			r.sleep(ctx, due)
			continue
		}
		if err := r.renew(ctx, template); err != nil {
			pause = backOff(pause, err)
			r.sleep(ctx, pause)
		}
	}
	return ctx.Err()
}

// sleep returns early if the Rotation is woken.
func (r *Rotation) sleep(ctx context.Context, d time.Duration) {
	if d > 0 {
		wake.Until(ctx, r.poke, time.Now().Add(d))
	}
}

// backOff returns how long to wait after a failed attempt. last is the previous wait.
func backOff(last time.Duration, err error) time.Duration {
	if _, refused := errors.AsType[*refusedError](err); refused {
		return refusalBackoff.Next(last)
	}
	if errors.Is(err, errRequestObsolete) {
		return 0
	}
	return failureBackoff.Next(last)
}

// untilDue returns how long to wait, at most maxSleep, before a new certificate must be
// requested; 0 means now.
func (r *Rotation) untilDue(template *x509.CertificateRequest) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	switch {
	case template == nil:
		return maxSleep
	case r.current == nil, now.After(r.current.TLS.Leaf.NotAfter), !satisfies(r.current.TLS.Leaf, template):
		return 0
	case r.cfg.NoRenewal:
		return maxSleep
	}
	return max(0, min(r.renewAt.Sub(now), maxSleep))
}

// satisfies reports whether a certificate has all the required content. It may have more.
func satisfies(c *x509.Certificate, template *x509.CertificateRequest) bool {
	if c.Subject.CommonName != template.Subject.CommonName {
		return false
	}
	ips := make([]string, len(c.IPAddresses))
	for i, ip := range c.IPAddresses {
		ips[i] = ip.String()
	}
	for _, ip := range template.IPAddresses {
		if !slices.Contains(ips, ip.String()) {
			return false
		}
	}
	return containsAll(c.DNSNames, template.DNSNames) && containsAll(c.Subject.Organization, template.Subject.Organization)
}

func containsAll(all, some []string) bool {
	return !slices.ContainsFunc(some, func(s string) bool { return !slices.Contains(all, s) })
}

// errRequestObsolete ends the wait for a certificate that is no longer the right one.
var errRequestObsolete = errors.New("another certificate is needed")

// renew requests one certificate and uses it. It waits until the request is decided, or until a
// different one is needed.
func (r *Rotation) renew(ctx context.Context, template *x509.CertificateRequest) error {
	r.log.Info("requesting a certificate", "subject", template.Subject.CommonName)
	next, err := r.requestWhileNeeded(ctx, template)
	if err == nil && !satisfies(next.TLS.Leaf, template) {
		r.cfg.Store.removePendingKey()
		err = &refusedError{fmt.Sprintf("the signer issued a certificate for %q, %q, %s, which is not what was requested", next.TLS.Leaf.Subject, next.TLS.Leaf.DNSNames, next.TLS.Leaf.IPAddresses)}
	}
	if err == nil {
		err = r.install(next)
	}
	if err != nil && ctx.Err() == nil && !errors.Is(err, errRequestObsolete) {
		r.setProblem(err.Error(), hintOf(err))
		r.cfg.Metrics.failed()
	}
	return err
}

func hintOf(err error) string {
	if _, refused := errors.AsType[*refusedError](err); refused {
		return "podd makes a new request later; ask whoever approves certificates of this cluster, and see kubectl get csr"
	}
	return "podd tries again by itself; check that the apiserver runs, and that the credentials of the kubeconfig or bootstrap kubeconfig may create CertificateSigningRequests"
}

// requestWhileNeeded is Store.request, but returns early when a different certificate is needed.
func (r *Rotation) requestWhileNeeded(ctx context.Context, template *x509.CertificateRequest) (*Pair, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var watcher sync.WaitGroup
	defer watcher.Wait()
	defer cancel(nil)
	watcher.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-r.poke:
				if now := r.cfg.Template(); r.untilDue(now) > 0 || !sameTemplate(now, template) {
					cancel(errRequestObsolete)
					return
				}
			}
		}
	})
	return r.cfg.Store.request(ctx, r.cfg.Requester(r.Pair() != nil), r.cfg.Signer, template, func(name string, err error) {
		message := "waiting until the CertificateSigningRequest " + name + " is approved and its certificate issued"
		if err != nil {
			message += ": " + err.Error()
		}
		r.setProblem(message, "approve it, if no controller does: kubectl certificate approve "+name)
	})
}

func sameTemplate(a, b *x509.CertificateRequest) bool {
	return a != nil && a.Subject.String() == b.Subject.String() && slices.Equal(a.DNSNames, b.DNSNames) && fmt.Sprint(a.IPAddresses) == fmt.Sprint(b.IPAddresses)
}

// install stores a certificate and makes it the current one.
func (r *Rotation) install(next *Pair) error {
	if err := r.cfg.Store.Update(next, time.Now()); err != nil {
		return err
	}
	r.cfg.Store.removePendingKey()
	r.mu.Lock()
	last := r.current
	r.setLocked(next)
	if now := time.Now(); r.renewAt.Before(now) { // signers may backdate by more than a short life
		r.renewAt = now.Add(time.Duration(renewalAge * float64(next.TLS.Leaf.NotAfter.Sub(now))))
	}
	r.problem = nil
	r.mu.Unlock()
	if last != nil {
		r.cfg.Metrics.rotated(time.Since(last.TLS.Leaf.NotBefore))
	}
	r.log.Info("got a new certificate", "file", r.cfg.Store.Path(), "expires", next.TLS.Leaf.NotAfter)
	if r.cfg.Issued == nil {
		return nil
	}
	if err := r.cfg.Issued(next); err != nil { // the next start uses it: it is stored
		r.setProblem("the new certificate cannot be used: "+err.Error(), "restart podd once that is right")
	}
	return nil
}

// setProblem records why no new certificate was issued.
func (r *Rotation) setProblem(message, hint string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := &pod.Problem{Origin: r.cfg.Store.Path(), Message: message, Hint: hint, Since: time.Now(), Warning: r.current != nil}
	if r.current != nil && time.Now().After(r.current.TLS.Leaf.NotAfter) {
		p.Warning, p.Message = false, fmt.Sprintf("the certificate expired at %s; %s", r.current.TLS.Leaf.NotAfter.UTC().Format(time.RFC3339), message)
	}
	if r.problem != nil && r.problem.Message == p.Message {
		return
	}
	r.problem = p
	r.log.Warn("there is no new certificate yet", "why", p.Message, "hint", hint)
}
