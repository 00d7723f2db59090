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

// maxDockerConfig bounds what is read of a docker configuration, in bytes.
const maxDockerConfig = 1 << 20

// Recorder takes events of a pod as a whole.
type Recorder interface {
	Event(p *v1.Pod, eventType, reason, message string)
}

// Config is what a Keyring is made of. All may be empty.
type Config struct {
	// RootDir, WorkDir and Home are where a docker configuration is looked for,
	// in this order, and / after them, as the kubelet does; empty leaves one out.
	RootDir, WorkDir, Home string
	// Providers are the credential provider plugins.
	Providers *Providers
	// Secret reads a Secret of a pod's namespace. Without it, none exists.
	Secret   func(namespace, name string) (*v1.Secret, error)
	Recorder Recorder
	Log      *slog.Logger
}

// Keyring knows the credentials that this node has: those of a pod's own
// imagePullSecrets, then those of the node's docker configuration, then those
// that plugins give. It may be used from many goroutines.
type Keyring struct {
	cfg Config
	log *slog.Logger

	mu sync.Mutex // guards everything below
	// looked is what the places looked like when file was read.
	looked   map[string]fileShape
	file     *dockerFile
	problems []pod.Problem
}

// fileShape changes whenever a file does.
type fileShape struct {
	size    int64
	modTime time.Time
}

// New makes a Keyring; it reads nothing yet.
func New(cfg Config) *Keyring {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &Keyring{cfg: cfg, log: cfg.Log, file: &dockerFile{}}
}

// Lookup finds the credentials for an image reference and a pod, to be tried in
// this order; none for an anonymous pull. It blocks for plugins, at most a minute
// each. An error says which source could not be asked; what the others gave is
// returned with it, and the pull should go on: the image may need none.
func (k *Keyring) Lookup(ctx context.Context, ref string, p *v1.Pod) ([]pod.RegistryAuth, error) {
	named, err := reference.ParseNormalizedNamed(ref)
	if err != nil {
		return nil, fmt.Errorf("parse image name %q: %w", ref, err)
	}
	repo := named.Name()
	auths, err := k.fromSecrets(repo, p)
	auths = append(auths, k.dockerConfig().index.lookup(repo)...)
	if k.cfg.Providers != nil {
		more, providerErr := k.cfg.Providers.lookup(ctx, repo)
		auths, err = append(auths, more...), errors.Join(err, providerErr)
	}
	return auths, err
}

// Problems are what is wrong with the node's docker configuration.
func (k *Keyring) Problems() []pod.Problem {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.problems)
}

// fromSecrets looks into the Secrets that the pod names. One that is missing is
// an event, as in the kubelet, and the pull goes on.
func (k *Keyring) fromSecrets(repo string, p *v1.Pod) ([]pod.RegistryAuth, error) {
	var index authIndex
	var missing []string
	var errs []error
	for _, ref := range p.Spec.ImagePullSecrets {
		if ref.Name == "" {
			continue
		}
		if k.cfg.Secret == nil {
			missing = append(missing, ref.Name)
			continue
		}
		secret, err := k.cfg.Secret(p.Namespace, ref.Name)
		if err != nil {
			k.log.Info("cannot read image pull secret: pulling without it", "pod", p.Namespace+"/"+p.Name, "error", err)
			missing = append(missing, ref.Name)
			continue
		}
		if err := addSecret(&index, secret); err != nil {
			errs = append(errs, fmt.Errorf("image pull secret %s: %w", ref.Name, err))
		}
	}
	if len(missing) > 0 && k.cfg.Recorder != nil {
		k.cfg.Recorder.Event(p, v1.EventTypeWarning, "FailedToRetrieveImagePullSecret", fmt.Sprintf(
			"Unable to retrieve some image pull secrets (%s); attempting to pull the image may not succeed.", strings.Join(missing, ", ")))
	}
	return index.lookup(repo), errors.Join(errs...)
}

var errSecretEntries = errors.New("some of its entries are not used: each is to be as docker login writes it without a credential helper")

// addSecret takes the credentials of a Secret of one of the two types that hold
// any; another type holds none. Its errors quote nothing of it, not even the names
// of registries, in which there may be a password.
func addSecret(index *authIndex, s *v1.Secret) error {
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
			if index.add(key, a) != nil {
				return errSecretEntries
			}
		}
	}
	if len(file.wrong) > 0 {
		return errSecretEntries
	}
	return nil
}

// places are where a docker configuration may be, in order: every config.json
// comes before every .dockercfg.
func (k *Keyring) places() []string {
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

// dockerConfig is the first of the places that can be read, read again when any
// of them changed since. That costs a stat of each.
func (k *Keyring) dockerConfig() *dockerFile {
	k.mu.Lock()
	defer k.mu.Unlock()
	places := k.places()
	seen := map[string]fileShape{}
	for _, path := range places {
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
			seen[path] = fileShape{info.Size(), info.ModTime()}
		}
	}
	if k.looked != nil && maps.Equal(seen, k.looked) {
		return k.file
	}
	k.looked, k.file, k.problems = seen, &dockerFile{}, nil
	for _, path := range places {
		if _, ok := seen[path]; !ok {
			continue
		}
		file, err := readDockerConfig(path)
		if err != nil {
			k.problemLocked(path, err.Error())
			continue
		}
		for _, w := range file.wrong {
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
