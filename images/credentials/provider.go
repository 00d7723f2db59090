package credentials

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/singleflight"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	configv1 "k8s.io/kubelet/config/v1"
	providerv1 "k8s.io/kubelet/pkg/apis/credentialprovider/v1"

	"podd/internal/pod"
)

const (
	// providerTimeout bounds a run of a plugin, as in the kubelet.
	providerTimeout = time.Minute
	// providerWait is how long its children may keep its output open after that.
	providerWait = 2 * time.Second
	// maxProviderOutput and maxProviderErrors limit how much of a plugin's
	// output is kept, in bytes.
	maxProviderOutput = 1 << 20
	maxProviderErrors = 512
	// globalKey is the cache key of credentials for every image.
	globalKey = "<global>"
)

// ProvidersConfig configures the plugins of a node; Log and Registerer may be
// nil.
type ProvidersConfig struct {
	// Config is a CredentialProviderConfig, or a directory with several.
	Config string
	// BinDir has the plugins' executables.
	BinDir     string
	Log        *slog.Logger
	Registerer prometheus.Registerer
}

// Providers are credential provider plugins: executables that read a request for
// an image on standard input and respond with credentials (KEP-2133).
type Providers struct {
	log     *slog.Logger
	all     []*provider
	metrics *providerMetrics
}

// LoadProviders reads and validates the configuration once, as the kubelet does,
// and checks that the executables exist. The error is meant for users, one line
// per problem.
func LoadProviders(cfg ProvidersConfig) (*Providers, error) {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if info, err := os.Stat(cfg.BinDir); err != nil {
		return nil, fmt.Errorf("read the directory of credential provider plugins: %w", err)
	} else if !info.IsDir() {
		return nil, fmt.Errorf("read the directory of credential provider plugins: %s is not a directory", cfg.BinDir)
	}
	configs, hash, err := readProviders(cfg.Config)
	if err != nil {
		return nil, err
	}
	ps := &Providers{log: cfg.Log, metrics: newProviderMetrics(cfg.Registerer, hash)}
	var missing []error
	for i := range configs {
		p := &provider{config: configs[i], program: filepath.Join(cfg.BinDir, configs[i].Name), metrics: ps.metrics, cache: map[string]cached{}}
		for _, m := range configs[i].MatchImages {
			l, err := parseLocation(m)
			if err != nil {
				return nil, err
			}
			p.match = append(p.match, l)
		}
		if _, err := exec.LookPath(p.program); err != nil {
			missing = append(missing, fmt.Errorf("credential provider %s: no executable program at %s", p.config.Name, p.program))
		}
		ps.all = append(ps.all, p)
	}
	return ps, errors.Join(missing...)
}

// lookup runs every plugin that matches the repository. If several return
// credentials for the same location, those of the earlier one come first.
func (ps *Providers) lookup(ctx context.Context, repo string) ([]pod.RegistryAuth, error) {
	at, err := parseLocation(repo)
	if err != nil {
		return nil, nil
	}
	var index authIndex
	var errs []error
	for _, p := range ps.all {
		if !p.matches(at) {
			continue
		}
		auths, err := p.provide(ctx, repo)
		if err != nil {
			said := ""
			if failed, ok := errors.AsType[*pluginError](err); ok {
				said = failed.said
			}
			ps.log.Warn("credential provider plugin failed", "plugin", p.config.Name, "image", repo, "error", err, "said", said)
			errs = append(errs, fmt.Errorf("credential provider %s: %w", p.config.Name, err))
			continue
		}
		for _, key := range sortedKeys(auths) {
			auth := pod.RegistryAuth{Username: auths[key].Username, Password: auths[key].Password}
			if err := index.add(key, auth); err != nil {
				errs = append(errs, fmt.Errorf("credential provider %s: %w", p.config.Name, err))
			}
		}
	}
	return index.lookup(repo), errors.Join(errs...)
}

// provider is one plugin.
type provider struct {
	config  configv1.CredentialProvider
	program string
	match   []location
	metrics *providerMetrics
	// flight limits each image to one process at a time.
	flight singleflight.Group

	mu    sync.Mutex
	cache map[string]cached // guarded by mu; by image, registry or globalKey
}

type cached struct {
	auths   map[string]providerv1.AuthConfig
	expires time.Time
}

func (p *provider) matches(repo location) bool {
	for _, l := range p.match {
		if l.covers(repo) {
			return true
		}
	}
	return false
}

// provide returns cached credentials, or runs the plugin.
func (p *provider) provide(ctx context.Context, repo string) (map[string]providerv1.AuthConfig, error) {
	registry, _, _ := strings.Cut(repo, "/")
	if auths, ok := p.cachedFor(time.Now(), repo, registry, globalKey); ok {
		return auths, nil
	}
	// Others may wait for the same response: if one gives up, they must still
	// get it. The plugin has its own timeout.
	answer := p.flight.DoChan(repo, func() (any, error) { return p.run(context.WithoutCancel(ctx), repo) })
	var response *providerv1.CredentialProviderResponse
	select {
	case r := <-answer:
		if r.Err != nil {
			return nil, r.Err
		}
		response = r.Val.(*providerv1.CredentialProviderResponse)
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	key := ""
	switch response.CacheKeyType {
	case providerv1.ImagePluginCacheKeyType:
		key = repo
	case providerv1.RegistryPluginCacheKeyType:
		key = registry
	case providerv1.GlobalPluginCacheKeyType:
		key = globalKey
	default:
		return nil, fmt.Errorf("its response has the cacheKeyType %q, want Image, Registry or Global", response.CacheKeyType)
	}
	keep := response.CacheDuration
	if keep == nil {
		keep = p.config.DefaultCacheDuration
	}
	p.keep(time.Now(), key, response.Auth, keep.Duration)
	return response.Auth, nil
}

func (p *provider) cachedFor(now time.Time, keys ...string) (map[string]providerv1.AuthConfig, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, key := range keys {
		if c, ok := p.cache[key]; ok && !now.After(c.expires) {
			return c.auths, true
		}
	}
	return nil, false
}

func (p *provider) keep(now time.Time, key string, auths map[string]providerv1.AuthConfig, d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for k, c := range p.cache {
		if now.After(c.expires) {
			delete(p.cache, k)
		}
	}
	if d > 0 {
		p.cache[key] = cached{auths: auths, expires: now.Add(d)}
	}
}

// run runs the plugin and decodes its response.
func (p *provider) run(ctx context.Context, repo string) (*providerv1.CredentialProviderResponse, error) {
	request, err := json.Marshal(&providerv1.CredentialProviderRequest{
		TypeMeta: metav1.TypeMeta{APIVersion: p.config.APIVersion, Kind: "CredentialProviderRequest"}, Image: repo,
	})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, providerTimeout)
	defer cancel()
	out, complaint := &boundedBuffer{limit: maxProviderOutput}, &boundedBuffer{limit: maxProviderErrors}
	cmd := exec.CommandContext(ctx, p.program, p.config.Args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(request), out, complaint
	cmd.Env = os.Environ()
	for _, e := range p.config.Env {
		cmd.Env = append(cmd.Env, e.Name+"="+e.Value)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) } // with its children
	cmd.WaitDelay = providerWait
	began := time.Now()
	err = cmd.Run()
	if ctx.Err() != nil {
		err = fmt.Errorf("it did not respond within %v", providerTimeout)
	}
	p.metrics.ran(p.config.Name, time.Since(began), err)
	if err != nil {
		return nil, &pluginError{p.program, err, strings.TrimSpace(complaint.buf.String())}
	}
	return p.decode(out)
}

// pluginError reports a plugin that failed. Its standard error goes only to
// podd's log: it may contain secrets, and the error becomes part of an event and
// a status that everybody may read.
type pluginError struct {
	program string
	err     error
	said    string
}

func (e *pluginError) Error() string {
	text := e.program + ": " + e.err.Error()
	if e.said != "" {
		text += "; its output is in podd's log"
	}
	return text
}

func (e *pluginError) Unwrap() error { return e.err }

// decode decodes a response. Its errors never quote it: it may contain secrets.
func (p *provider) decode(out *boundedBuffer) (*providerv1.CredentialProviderResponse, error) {
	if out.full {
		return nil, fmt.Errorf("its response is longer than %d bytes", maxProviderOutput)
	}
	response := &providerv1.CredentialProviderResponse{}
	d := json.NewDecoder(&out.buf)
	d.DisallowUnknownFields()
	if err := d.Decode(response); err != nil {
		return nil, errors.New("its response is not the JSON of a CredentialProviderResponse")
	}
	if response.Kind != "CredentialProviderResponse" || response.APIVersion != p.config.APIVersion {
		return nil, fmt.Errorf("its response is a %q of %q, want a CredentialProviderResponse of %q", short(response.Kind), short(response.APIVersion), p.config.APIVersion)
	}
	return response, nil
}

func short(s string) string { return s[:min(len(s), 100)] }

// boundedBuffer accepts everything and keeps the first limit bytes. Its buffer
// is not embedded, since a promoted ReadFrom would bypass the limit.
type boundedBuffer struct {
	buf   bytes.Buffer
	limit int
	full  bool
}

func (b *boundedBuffer) Write(p []byte) (int, error) {
	room := b.limit - b.buf.Len()
	if room < len(p) {
		b.full = true
	}
	b.buf.Write(p[:min(room, len(p))])
	return len(p), nil
}
