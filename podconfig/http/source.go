package http

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"podd/internal/features"
	"podd/internal/mask"
	"podd/internal/pod"
	"podd/internal/wake"
	"podd/podconfig"
	"podd/podconfig/lastgood"
	"podd/podconfig/manifest"
)

const (
	// DefaultCheckFrequency is the kubelet's httpCheckFrequency.
	DefaultCheckFrequency = 20 * time.Second
	// timeout bounds a whole request, as upstream.
	timeout = 10 * time.Second
	// firstRetry is how soon podd asks a server again that never answered; it doubles up to the
	// check frequency.
	firstRetry = time.Second
	// relogInterval is how often a lasting failure is logged again.
	relogInterval = 10 * time.Minute
	maxRedirects  = 5
)

// Config configures a Source.
type Config struct {
	// URL must be absolute, http or https.
	URL string
	// Header is sent with each request (staticPodURLHeader), but never to another host than the
	// URL's.
	Header   http.Header
	NodeName string
	// Validation applies to unknown and duplicate fields; "" is strict.
	Validation manifest.Validation
	// Features are the feature gates. They decide which alpha fields podd honours.
	Features features.Set
	// CheckFrequency is the time between requests; 0 for the default.
	CheckFrequency time.Duration
	// StateDir stores the last good response across restarts; "" for none. Only this source
	// uses it. It is created when needed. A response with Secrets is in VolatileDir, which must
	// be in memory.
	StateDir, VolatileDir string
	// Mirrored says that podd creates a mirror pod of each pod in an apiserver.
	Mirrored bool
	// Transport defaults to one like http.DefaultTransport.
	Transport http.RoundTripper
	Log       *slog.Logger
}

// Source asks a URL for pods. It implements podconfig.Source.
type Source struct {
	cfg    Config
	log    *slog.Logger
	client *http.Client

	// etag and sum belong to the last body that was read.
	etag string
	sum  [sha256.Size]byte
	// ready says that a body was decoded. content and problems come from it.
	ready    bool
	content  manifest.Content
	problems []pod.Problem
	// failure is why the last request failed; nil if it did not.
	failure *pod.Problem
	logged  time.Time
	changed bool
	// lastGood holds the newest response that was good as a whole, by URL.
	lastGood *lastgood.Store
}

// New returns a Source. It requests nothing before Run.
func New(cfg Config) *Source {
	if cfg.CheckFrequency <= 0 {
		cfg.CheckFrequency = DefaultCheckFrequency
	}
	log := cfg.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	s := &Source{cfg: cfg, lastGood: lastgood.New(cfg.StateDir, cfg.VolatileDir)}
	s.log = log.With("source", pod.SourceHTTP, "url", s.origin())
	s.client = &http.Client{Timeout: timeout, Transport: cfg.Transport, CheckRedirect: s.redirect}
	return s
}

// checkURL returns an error if the configured URL is invalid.
func checkURL(text string) error {
	u, err := url.Parse(text)
	if err != nil {
		// The parser's error would show the URL with its password.
		return errors.New("the manifest URL cannot be read; write it as http://host/path or https://host/path")
	}
	if u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return fmt.Errorf("the manifest URL %q is not of the form http://host/path or https://host/path", mask.URL(text))
	}
	return nil
}

// Name returns pod.SourceHTTP.
func (s *Source) Name() pod.Source { return pod.SourceHTTP }

// Run polls the URL until ctx is done. It returns at once if the URL is invalid.
func (s *Source) Run(ctx context.Context, out chan<- podconfig.Snapshot) error {
	if err := checkURL(s.cfg.URL); err != nil {
		return err
	}
	retry, delay := wake.Backoff{Initial: firstRetry, Max: s.cfg.CheckFrequency}, time.Duration(0)
	for {
		s.poll(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if s.changed {
			s.changed = false
			select {
			case out <- s.snapshot():
			case <-ctx.Done():
				return ctx.Err()
			}
			s.flush() // only now, so as not to delay a pod
		}
		wait := s.cfg.CheckFrequency
		if !s.ready {
			delay = retry.Next(delay)
			wait = delay
		}
		if !wake.Sleep(ctx, wait) {
			return ctx.Err()
		}
	}
}

// flush writes a good response that is not on disk yet, and then removes those of other URLs,
// which are no longer used.
func (s *Source) flush() {
	for url, err := range s.lastGood.Flush() {
		if err == nil {
			err = s.lastGood.Retain(url)
		}
		if err != nil {
			s.log.Warn("cannot save the last good response", "error", err)
		}
	}
}

func (s *Source) snapshot() podconfig.Snapshot {
	snap := podconfig.Snapshot{Pods: s.content.Pods, Objects: s.content.Objects, Problems: slices.Clone(s.problems), Incomplete: !s.ready}
	if s.failure != nil {
		snap.Problems = append(snap.Problems, *s.failure)
	}
	return snap
}

// identity returns the URL without its password, as the UIDs use it. It must not change: a
// different one would restart every pod of the URL.
func (s *Source) identity() string {
	if u, err := url.Parse(s.cfg.URL); err == nil {
		return u.Redacted()
	}
	return "the manifest URL"
}

// origin returns the URL as people see it.
func (s *Source) origin() string { return mask.URL(s.cfg.URL) }

// poll makes one request and applies its result.
func (s *Source) poll(ctx context.Context) {
	body, fault := s.fetch(ctx)
	if ctx.Err() != nil {
		return
	}
	s.recordResult(fault)
	if fault != nil || body == nil {
		return
	}
	sum := sha256.Sum256(body)
	if sum == s.sum {
		return
	}
	s.sum = sum
	opt := manifest.Options{NodeName: s.cfg.NodeName, Source: pod.SourceHTTP, Origin: s.identity(), DisplayOrigin: s.origin(), Now: time.Now(), Validation: s.cfg.Validation, Features: s.cfg.Features, Mirrored: s.cfg.Mirrored}
	r := manifest.Decode(body, opt)
	switch {
	case len(r.Failed) == 0:
		s.lastGood.Put(s.cfg.URL, body, r.HasSecret())
	case !s.ready && s.empty():
		// Take what ran before, if it is known: see package lastgood.
		if version := s.lastGood.Load(s.cfg.URL); version != nil {
			if s.content = manifest.Decode(version, opt).Content; s.content.HasSecret() {
				s.lastGood.Put(s.cfg.URL, version, true) // an older podd may have left it on disk
			}
		}
		if !s.empty() {
			s.ready = true // broken pods keep their last good version
		}
	}
	s.applyResult(r)
}

// fault is the reason why a request failed.
type fault struct{ message, hint string }

// fetch returns the body, or nil if the server says that it has not changed.
func (s *Source) fetch(ctx context.Context) ([]byte, *fault) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.cfg.URL, nil)
	if err != nil {
		return nil, &fault{"cannot request the manifest URL", "write it as http://host/path or https://host/path"}
	}
	req.Header = s.cfg.Header.Clone()
	if req.Header == nil {
		req.Header = http.Header{}
	}
	if s.etag != "" {
		req.Header.Set("If-None-Match", s.etag)
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return nil, explain(err)
	}
	defer resp.Body.Close()
	switch {
	case resp.StatusCode == http.StatusNotModified && s.etag != "":
		return nil, nil
	case resp.StatusCode == http.StatusUnauthorized, resp.StatusCode == http.StatusForbidden:
		return nil, &fault{"the server responds " + resp.Status, "check the manifest URL's headers (--manifest-url-header)"}
	case resp.StatusCode != http.StatusOK:
		return nil, &fault{"the server responds " + resp.Status, "check the URL and the server's log; a response without pods is a PodList without items"}
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, manifest.MaxBytes+1))
	switch {
	case err != nil:
		return nil, explain(err)
	case len(body) == 0:
		return nil, &fault{"the server's response is empty", "to stop all pods, respond with a PodList without items"}
	case len(body) > manifest.MaxBytes:
		return nil, &fault{"the server's response is longer than the limit of 10 MiB", "is this the right URL?"}
	}
	s.etag = resp.Header.Get("ETag")
	return body, nil
}

// explain turns the error of a failed request into a sentence.
func explain(err error) *fault {
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err
	}
	if n, ok := errors.AsType[net.Error](err); ok && n.Timeout() {
		return &fault{fmt.Sprintf("the server did not respond within %v", timeout), "check that it runs and can be reached from this node"}
	}
	if d, ok := errors.AsType[*net.DNSError](err); ok {
		return &fault{"the name " + d.Name + " cannot be resolved", "check the URL and the node's DNS"}
	}
	return &fault{"cannot query the server: " + err.Error(), "check that it runs and can be reached from this node"}
}

// recordResult records whether the request failed. The problem list logs new problems.
// recordResult logs a lasting failure again from time to time, without end.
func (s *Source) recordResult(f *fault) {
	now := time.Now()
	if f == nil {
		if s.failure != nil {
			s.failure, s.changed = nil, true
			s.log.Info("the server of the manifest URL responds again")
		}
		return
	}
	if s.failure == nil || s.failure.Message != f.message {
		s.failure = &pod.Problem{Origin: s.origin(), Message: f.message, Hint: f.hint, LastGoodInUse: !s.empty(), Since: now}
		s.logged, s.changed = now, true
		return
	}
	if now.Sub(s.logged) >= relogInterval {
		s.logged = now
		s.log.Warn("the manifest URL still fails", "message", f.message, "since", s.failure.Since)
	}
}

// applyResult applies a body. If the body has nothing usable, the last good set stays.
func (s *Source) applyResult(r manifest.Result) {
	s.changed = true
	old := s.content
	next := r.Reuse(old)
	s.problems = r.Problems
	retained := manifest.Retain(next, old, r.Failed)
	manifest.MarkRetained(s.problems, retained, r.Failed, old)
	s.content = manifest.Content{Pods: append(next.Pods, retained.Pods...), Objects: append(next.Objects, retained.Objects...)}
	if len(r.Pods)+len(r.Objects) > 0 || len(r.Failed) == 0 {
		s.ready = true
	}
}

// empty reports whether there is neither a pod nor an object.
func (s *Source) empty() bool { return len(s.content.Pods)+len(s.content.Objects) == 0 }

// redirect follows up to maxRedirects redirects, never from https to http. If the host changes,
// it drops the configured headers, which may hold a token.
func (s *Source) redirect(req *http.Request, via []*http.Request) error {
	first, last := via[0].URL, via[len(via)-1].URL
	req.Header.Del("Referer") // the redirecting URL, with its query
	switch {
	case len(via) > maxRedirects:
		return fmt.Errorf("the server redirects more than %d times", maxRedirects)
	case last.Scheme == "https" && req.URL.Scheme != "https":
		return fmt.Errorf("the server redirects from https to %s, which podd does not follow", mask.URL(req.URL.String()))
	case !strings.EqualFold(first.Host, req.URL.Host):
		for name := range s.cfg.Header {
			req.Header.Del(name)
		}
	}
	return nil
}
