package credentials

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/distribution/reference"
	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
)

// secretTimeout is how long a pull waits for the apiserver's first answer about its
// Secrets (the kubelet waits a second for a watch that has not synced).
const secretTimeout = 2 * time.Second

// maxDockerConfig is the maximum size of a docker configuration in bytes.
const maxDockerConfig = 1 << 20

// Recorder records events of a pod as a whole.
type Recorder interface {
	Event(p *v1.Pod, eventType, reason, message string)
}

// Config configures a Keyring. All fields are optional.
type Config struct {
	// RootDir, WorkDir and Home are searched for a docker configuration, in this
	// order and then /, as in the kubelet; empty ones are skipped.
	RootDir, WorkDir, Home string
	// Providers are the credential provider plugins.
	Providers *Providers
	// Secret returns a Secret of the pod's namespace. It blocks until it is known whether
	// there is one, or until ctx ends; the error is then pod.ErrObjectPending or
	// pod.ErrAPIServerUnavailable. If nil, no Secrets exist.
	Secret   func(ctx context.Context, p *v1.Pod, name string) (*v1.Secret, error)
	Recorder Recorder
	Log      *slog.Logger
}

// Keyring provides credentials: those of a pod's own imagePullSecrets, then those of the
// node's docker configuration, then those of the plugins. It is safe for concurrent use.
type Keyring struct {
	cfg Config
	log *slog.Logger

	mu sync.Mutex // guards everything below
	// searched has the stamps of the searched files when file was read.
	searched map[string]fileStamp
	file     *dockerFile
	problems []pod.Problem
	// accounts are the accounts that gave pods credentials, by the pod's UID.
	accounts map[pod.UID]pod.CredentialSource
}

// fileStamp changes whenever a file does.
type fileStamp struct {
	size    int64
	modTime time.Time
}

// New returns a Keyring; it reads nothing yet.
func New(cfg Config) *Keyring {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &Keyring{cfg: cfg, log: cfg.Log, file: &dockerFile{}, accounts: map[pod.UID]pod.CredentialSource{}}
}

// Lookup returns the credentials for an image reference and a pod, in the order in which to
// try them; none for an anonymous pull. It blocks for plugins, at most a minute each, and
// for an apiserver that has not answered yet, at most secretTimeout. An error names the
// sources that failed. It comes with the credentials of the others, and the pull should go
// on: the image may need none.
func (k *Keyring) Lookup(ctx context.Context, ref string, p *v1.Pod) ([]pod.RegistryAuth, error) {
	named, err := reference.ParseNormalizedNamed(ref)
	if err != nil {
		return nil, fmt.Errorf("parse image name %q: %w", ref, err)
	}
	repo := named.Name()
	within, cancel := context.WithTimeout(ctx, secretTimeout)
	auths, missing, err := k.secretCredentials(within, repo, p)
	cancel()
	for _, m := range missing {
		if k.cfg.Secret != nil {
			k.log.Info("cannot read image pull secret: pulling without it", "pod", p.Namespace+"/"+p.Name, "error", m.err)
		}
	}
	auths = append(auths, k.dockerConfig().index.lookup(repo)...)
	if k.cfg.Providers != nil {
		more, providerErr := k.cfg.Providers.lookup(ctx, repo, p)
		k.rememberAccounts(p, more)
		auths, err = append(auths, more...), errors.Join(err, providerErr)
	}
	return auths, err
}

// PodCredentials returns the credentials for an image reference that come from the pod's own
// imagePullSecrets, which other pods may not have, and the Source of those that Lookup has
// found by its service account since podd started. It does not block. It leaves out what
// cannot be used; Lookup tells why. The error names the Secrets that the apiserver has not
// answered about: there may be more credentials.
func (k *Keyring) PodCredentials(ref string, p *v1.Pod) (auths []pod.RegistryAuth, unknown error) {
	named, err := reference.ParseNormalizedNamed(ref)
	if err != nil {
		return nil, nil
	}
	auths, missing, _ := k.secretCredentials(expiredContext(), named.Name(), p)
	var errs []error
	for _, m := range missing {
		if errors.Is(m.err, pod.ErrObjectPending) || errors.Is(m.err, pod.ErrAPIServerUnavailable) {
			errs = append(errs, m.err)
		}
	}
	k.mu.Lock()
	account, known := k.accounts[p.UID]
	k.mu.Unlock()
	if known && k.ServiceAccountFor(ref, p) != "" {
		auths = append(auths, pod.RegistryAuth{Source: account})
	}
	return auths, errors.Join(errs...)
}

func imageLocation(ref string) (location, error) {
	named, err := reference.ParseNormalizedNamed(ref)
	if err != nil {
		return location{}, err
	}
	return parseLocation(named.Name())
}

// Problems returns the problems of the node's docker configuration.
func (k *Keyring) Problems() []pod.Problem {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.problems)
}

// missingSecret is a Secret that a pod names and that is missing, with the reason.
type missingSecret struct {
	name string
	err  error
}

// secretCredentials returns the credentials of the Secrets that the pod names, and the Secrets
// that are missing.
func (k *Keyring) secretCredentials(ctx context.Context, repo string, p *v1.Pod) (auths []pod.RegistryAuth, missing []missingSecret, err error) {
	var index authIndex
	var errs []error
	for _, ref := range p.Spec.ImagePullSecrets {
		if ref.Name == "" {
			continue
		}
		if k.cfg.Secret == nil {
			missing = append(missing, missingSecret{ref.Name, pod.ErrNotFound})
			continue
		}
		secret, err := k.cfg.Secret(ctx, p, ref.Name)
		if err != nil {
			missing = append(missing, missingSecret{ref.Name, err})
			continue
		}
		from := pod.CredentialSource{Namespace: p.Namespace, Name: ref.Name, UID: string(secret.UID)}
		if err := addSecret(&index, secret, from); err != nil {
			errs = append(errs, fmt.Errorf("image pull secret %s: %w", ref.Name, err))
		}
	}
	return index.lookup(repo), missing, errors.Join(errs...)
}

// RecordMissingSecrets records an event about missing Secrets after a pull has failed. A pull that
// succeeds without them gets no event: the registry did not ask
// (kubernetes/kubernetes#138432; the kubelet of 1.36 records it before each pull).
func (k *Keyring) RecordMissingSecrets(ref string, p *v1.Pod) {
	named, err := reference.ParseNormalizedNamed(ref)
	if err != nil || k.cfg.Recorder == nil {
		return
	}
	_, missing, _ := k.secretCredentials(expiredContext(), named.Name(), p)
	var names []string
	for _, m := range missing {
		names = append(names, m.name)
	}
	if len(names) > 0 {
		k.cfg.Recorder.Event(p, v1.EventTypeWarning, "FailedToRetrieveImagePullSecret", fmt.Sprintf(
			"Unable to retrieve some image pull secrets (%s); attempting to pull the image may not succeed.", strings.Join(names, ", ")))
	}
}

// expiredContext returns a context for a look that does not wait.
func expiredContext() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

var errSecretEntries = errors.New("some of its entries are not used: each must have the format that docker login writes without a credential helper")

// addSecret adds the credentials of a Secret of one of the two types that have any, marked
// as from there; other types are ignored. Its errors quote nothing from the Secret, not
// even the names of registries, which may contain a password.
func addSecret(index *authIndex, s *v1.Secret, from pod.CredentialSource) error {
	data, legacy := s.Data[v1.DockerConfigJsonKey], false
	switch s.Type {
	case v1.SecretTypeDockerConfigJson:
	case v1.SecretTypeDockercfg:
		data, legacy = s.Data[v1.DockerConfigKey], true
	default:
		return nil
	}
	if len(data) == 0 {
		return nil
	}
	file, err := parseDockerConfig(data, legacy)
	if err != nil {
		return err
	}
	for key, auths := range file.index.auths {
		for _, a := range auths {
			a.Source = from
			if index.add(key, a) != nil {
				return errSecretEntries
			}
		}
	}
	if len(file.problems) > 0 {
		return errSecretEntries
	}
	return nil
}

// dockerConfigPaths returns where a docker configuration may be, in order: every config.json
// before every .dockercfg.
func (k *Keyring) dockerConfigPaths() []string {
	var all []string
	add := func(dir string, name ...string) {
		if dir != "" {
			all = append(all, filepath.Join(append([]string{dir}, name...)...))
		}
	}
	add(k.cfg.RootDir, "config.json")
	add(k.cfg.WorkDir, "config.json")
	add(k.cfg.Home, ".docker", "config.json")
	add("/", ".docker", "config.json")
	for _, dir := range []string{k.cfg.RootDir, k.cfg.WorkDir, k.cfg.Home, "/"} {
		add(dir, ".dockercfg")
	}
	return all
}

// dockerConfig returns the first configuration that can be read, and reads it
// again if any of the searched files has changed. That costs a stat of each.
func (k *Keyring) dockerConfig() *dockerFile {
	k.mu.Lock()
	defer k.mu.Unlock()
	paths := k.dockerConfigPaths()
	seen := map[string]fileStamp{}
	for _, path := range paths {
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
			seen[path] = fileStamp{info.Size(), info.ModTime()}
		}
	}
	if k.searched != nil && maps.Equal(seen, k.searched) {
		return k.file
	}
	k.searched, k.file, k.problems = seen, &dockerFile{}, nil
	for _, path := range paths {
		if _, ok := seen[path]; !ok {
			continue
		}
		file, err := readDockerConfig(path)
		if err != nil {
			k.problemLocked(path, err.Error())
			continue
		}
		for _, w := range file.problems {
			k.problemLocked(path, w)
		}
		k.log.Info("read registry credentials", "file", path, "registries", len(file.index.keys))
		k.file = file
		break
	}
	return k.file
}

func (k *Keyring) problemLocked(path, message string) {
	k.problems = append(k.problems, pod.Problem{Origin: path, Message: message, Since: time.Now()})
	k.log.Warn("problem with registry credentials", "file", path, "problem", message)
}

func readDockerConfig(path string) (*dockerFile, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("cannot be read: %w", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxDockerConfig+1))
	if err != nil {
		return nil, fmt.Errorf("cannot be read: %w", err)
	}
	if len(data) > maxDockerConfig {
		return nil, fmt.Errorf("is larger than %d bytes, which no docker configuration is", maxDockerConfig)
	}
	return parseDockerConfig(data, filepath.Base(path) == ".dockercfg")
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
