package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// Check is one named health check.
type Check struct {
	// Name is the check's name in /healthz/<name> and ?verbose: syncloop, runtime ….
	Name string
	// Func returns nil if healthy. If it ignores ctx, only its own result is late.
	Func func(ctx context.Context) error
	// Level determines the endpoints that include it.
	Level Level
	// Note returns text that ?verbose shows after a check that has passed; "" for none. It may
	// be nil, and must not block.
	Note func() string
}

// Level determines which endpoints include a check.
type Level int

const (
	// Ready marks a check of something that pods need and that a restart of podd does not fix:
	// /readyz only. The network is an example: kubeadm waits for /healthz before anyone can
	// install one.
	Ready Level = iota
	// Healthy marks a check of something that podd needs for its work: /healthz and /readyz.
	Healthy
	// Live marks a check of something that a restart of podd may fix, which is what supervisors
	// do when /livez fails: /livez, /healthz and /readyz.
	Live
)

// checkTimeout is how long a response waits for a check before it counts as failed.
const checkTimeout = 2 * time.Second

// checkDeadline is the deadline of the check itself. It is earlier than checkTimeout, so that
// the check can report what it waited for.
const checkDeadline = checkTimeout - 250*time.Millisecond

type health struct {
	checks []*checkRunner
	slis   *sliMetrics
}

// checkRunner is a check that runs at most once at a time.
type checkRunner struct {
	Check

	mu      sync.Mutex
	current *run
}

type run struct {
	done chan struct{}
	err  error // read after done
}

func newHealth(checks []Check) *health {
	h := &health{slis: newSLIMetrics(), checks: []*checkRunner{{Check: Check{Name: "ping", Level: Live, Func: func(context.Context) error { return nil }}}}}
	for _, c := range checks {
		h.checks = append(h.checks, &checkRunner{Check: c})
	}
	return h
}

// result joins the current run, or starts one.
func (r *checkRunner) result(ctx context.Context) error {
	ctx, stop := context.WithTimeout(ctx, checkTimeout)
	defer stop()
	r.mu.Lock()
	current := r.current
	if current == nil {
		current = &run{done: make(chan struct{})}
		r.current = current
		// The run outlives this request, because other requests may wait for it too.
		own, cancel := context.WithTimeout(context.WithoutCancel(ctx), checkDeadline)
		go func() {
			defer cancel()
			current.err = r.Func(own)
			r.mu.Lock()
			r.current = nil
			r.mu.Unlock()
			close(current.done)
		}()
	}
	r.mu.Unlock()
	select {
	case <-current.done:
		return current.err
	case <-ctx.Done():
		return fmt.Errorf("no answer within %s", checkTimeout)
	}
}

// endpoint serves /healthz, /livez or /readyz in the apiserver's format, with the
// checks of the given level and above, and each check at its name below the path.
func (h *health) endpoint(name string, least Level) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var checks []*checkRunner
		one := strings.Trim(strings.TrimPrefix(r.URL.Path, "/"+name), "/")
		for _, c := range h.checks {
			if one == "" && c.Level >= least && !slices.Contains(r.URL.Query()["exclude"], c.Name) || c.Name == one {
				checks = append(checks, c)
			}
		}
		if len(checks) == 0 && one != "" {
			http.NotFound(w, r)
			return
		}
		results := h.results(r.Context(), checks)
		if one == "" {
			for i, c := range checks {
				h.slis.observe(c.Name, name, results[i])
			}
		}
		answer(w, r, name, checks, results)
	})
}

// results runs checks, all at once.
func (h *health) results(ctx context.Context, checks []*checkRunner) []error {
	results := make([]error, len(checks))
	var wg sync.WaitGroup
	for i, c := range checks {
		wg.Go(func() { results[i] = c.result(ctx) })
	}
	wg.Wait()
	return results
}

func answer(w http.ResponseWriter, r *http.Request, name string, checks []*checkRunner, results []error) {
	var b strings.Builder
	for i, c := range checks {
		note := ""
		if c.Note != nil {
			note = c.Note()
		}
		switch {
		case results[i] != nil:
			fmt.Fprintf(&b, "[-]%s failed: %v\n", c.Name, results[i])
		case note != "":
			fmt.Fprintf(&b, "[+]%s ok: %s\n", c.Name, note)
		default:
			fmt.Fprintf(&b, "[+]%s ok\n", c.Name)
		}
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Cache-Control", "no-cache, private")
	_, verbose := r.URL.Query()["verbose"]
	switch {
	case errors.Join(results...) != nil:
		w.WriteHeader(http.StatusInternalServerError)
		fmt.Fprintf(w, "%s%s check failed\n", b.String(), name)
	case verbose:
		fmt.Fprintf(w, "%s%s check passed\n", b.String(), name)
	default:
		fmt.Fprint(w, "ok")
	}
}
