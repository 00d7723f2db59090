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
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	configv1 "k8s.io/kubelet/config/v1"
	providerv1 "k8s.io/kubelet/pkg/apis/credentialprovider/v1"

	"podd/internal/child"
	"podd/internal/pod"
)

const (
	// providerTimeout bounds a run of a plugin, as in the kubelet.
	providerTimeout = time.Minute
	// providerWait is how long a plugin's children may keep its output open after that.
	providerWait = 2 * time.Second
	// maxProviderOutput and maxProviderErrors bound the part of a plugin's output that is
	// kept, in bytes.
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
	BinDir string
	// Accounts are the cluster's accounts, or NoServiceAccounts.
	Accounts   ServiceAccounts
	Log        *slog.Logger
	Registerer prometheus.Registerer
}

// Providers are credential provider plugins: executables that read a request for an image
// on standard input and respond with credentials (KEP-2133). Those with tokenAttributes
// respond for a pod's service account, and get a token of that account (KEP-4412).
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
	configs, hash, err := readProviders(cfg.Config, cfg.Accounts != NoServiceAccounts)
	if err != nil {
		return nil, err
	}
	ps := &Providers{log: cfg.Log, metrics: newProviderMetrics(cfg.Registerer, hash)}
	var missing []error
	for i := range configs {
		p := &provider{config: configs[i], program: filepath.Join(cfg.BinDir, configs[i].Name), metrics: ps.metrics, accounts: cfg.Accounts, cache: map[string]cached{}}
		for _, m := range configs[i].MatchImages {
			l, err := parseLocation(m)
			if err != nil {
				return nil, err
			}
			p.matchImages = append(p.matchImages, l)
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
func (ps *Providers) lookup(ctx context.Context, repo string, of *v1.Pod) ([]pod.RegistryAuth, error) {
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
		auths, from, err := p.provide(ctx, repo, of)
		if err != nil {
			said := ""
			if failed, ok := errors.AsType[*pluginError](err); ok {
				said = failed.stderr
			}
			ps.log.Warn("credential provider plugin failed", "plugin", p.config.Name, "image", repo, "error", err, "said", said)
			errs = append(errs, fmt.Errorf("credential provider %s: %w", p.config.Name, err))
			continue
		}
		for _, key := range sortedKeys(auths) {
			auth := pod.RegistryAuth{Username: auths[key].Username, Password: auths[key].Password, Source: from}
			if err := index.add(key, auth); err != nil {
				errs = append(errs, fmt.Errorf("credential provider %s: %w", p.config.Name, err))
			}
		}
	}
	return index.lookup(repo), errors.Join(errs...)
}

// provider is one plugin.
type provider struct {
	config      configv1.CredentialProvider
	program     string
	matchImages []location
	metrics     *providerMetrics
	// accounts are the cluster's; nil without tokenAttributes, or without a cluster.
	accounts ServiceAccounts
	// calls limits each image to one process at a time, for each account.
	calls sharedCalls

	mu    sync.Mutex
	cache map[string]cached // guarded by mu; by image, registry or globalKey
}

type cached struct {
	auths   map[string]providerv1.AuthConfig
	expires time.Time
}

func (p *provider) matches(repo location) bool {
	for _, l := range p.matchImages {
		if l.covers(repo) {
			return true
		}
	}
	return false
}

// provide returns cached credentials, or runs the plugin; from is the service account that
// the credentials belong to, if the plugin asks for one.
func (p *provider) provide(ctx context.Context, repo string, of *v1.Pod) (auths map[string]providerv1.AuthConfig, from pod.CredentialSource, err error) {
	who, asked, err := p.serviceAccountFor(ctx, of)
	if err != nil || !asked {
		return nil, from, err
	}
	registry, _, _ := strings.Cut(repo, "/")
	scope := who.scope()
	if auths, ok := p.cachedFor(time.Now(), scope+repo, scope+registry, scope+globalKey); ok {
		return auths, who.source(), nil
	}
	got, err := p.calls.do(ctx, scope+repo, func(ctx context.Context) (*pluginResponse, error) { return p.runWithToken(ctx, repo, who) })
	if err != nil {
		return nil, from, err
	}
	key := ""
	switch got.CacheKeyType {
	case providerv1.ImagePluginCacheKeyType:
		key = repo
	case providerv1.RegistryPluginCacheKeyType:
		key = registry
	case providerv1.GlobalPluginCacheKeyType:
		key = globalKey
	default:
		return nil, from, fmt.Errorf("its response has the cacheKeyType %q, want Image, Registry or Global", got.CacheKeyType)
	}
	keep := got.CacheDuration
	if keep == nil {
		keep = p.config.DefaultCacheDuration
	}
	p.addToCache(time.Now(), scope+key, got.Auth, got.cacheDuration(keep.Duration))
	return got.Auth, who.source(), nil
}

// pluginResponse is a response with the expiry of the token that the plugin got for it; zero if
// the expiry does not matter.
type pluginResponse struct {
	*providerv1.CredentialProviderResponse
	expires time.Time
}

// cacheDuration returns how long a response may be kept.
func (a *pluginResponse) cacheDuration(keep time.Duration) time.Duration {
	if a.expires.IsZero() {
		return keep
	}
	return min(keep, time.Until(a.expires))
}

// runWithToken runs the plugin, with a token if it asks for one.
func (p *provider) runWithToken(ctx context.Context, repo string, who *serviceAccount) (*pluginResponse, error) {
	token, expires, err := p.token(ctx, who)
	if err != nil {
		return nil, err
	}
	response, err := p.run(ctx, repo, token, who.annotations())
	if err != nil {
		return nil, err
	}
	if who != nil && p.config.TokenAttributes.CacheType != configv1.TokenServiceAccountTokenCacheType {
		expires = time.Time{}
		for _, auth := range response.Auth {
			if auth.Password == token {
				return nil, errors.New("it returned the service account's token as the password, which only cacheType Token allows")
			}
		}
	}
	return &pluginResponse{response, expires}, nil
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

func (p *provider) addToCache(now time.Time, key string, auths map[string]providerv1.AuthConfig, d time.Duration) {
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
func (p *provider) run(ctx context.Context, repo, token string, annotations map[string]string) (*providerv1.CredentialProviderResponse, error) {
	request, err := json.Marshal(&providerv1.CredentialProviderRequest{
		TypeMeta: metav1.TypeMeta{APIVersion: p.config.APIVersion, Kind: "CredentialProviderRequest"}, Image: repo,
		ServiceAccountToken: token, ServiceAccountAnnotations: annotations,
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
	err = child.Run(cmd)
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		err = fmt.Errorf("it was ended: %w", context.Cause(ctx))
	case ctx.Err() != nil:
		err = fmt.Errorf("it did not respond within %v", providerTimeout)
	}
	p.metrics.observe(p.config.Name, time.Since(began), err)
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
	stderr  string
}

func (e *pluginError) Error() string {
	text := e.program + ": " + e.err.Error()
	if e.stderr != "" {
		text += "; its output is in podd's log"
	}
	return text
}

func (e *pluginError) Unwrap() error { return e.err }

// decode decodes a response. Its errors never quote it: it may contain secrets.
func (p *provider) decode(out *boundedBuffer) (*providerv1.CredentialProviderResponse, error) {
	if out.truncated {
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
	buf       bytes.Buffer
	limit     int
	truncated bool
}

func (b *boundedBuffer) Write(p []byte) (int, error) {
	room := b.limit - b.buf.Len()
	if room < len(p) {
		b.truncated = true
	}
	b.buf.Write(p[:min(room, len(p))])
	return len(p), nil
}
