package credentials

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	configv1 "k8s.io/kubelet/config/v1"
	"sigs.k8s.io/yaml"
)

const (
	kindProviderConfig = "CredentialProviderConfig"
	// maxProviderConfig is the maximum size of one file, in bytes.
	maxProviderConfig = 1 << 20
)

// configVersions are the API versions of CredentialProviderConfig,
// providerVersions those of plugins' requests and responses. All versions have
// the same form.
var (
	configVersions   = []string{"kubelet.config.k8s.io/v1", "kubelet.config.k8s.io/v1beta1", "kubelet.config.k8s.io/v1alpha1"}
	providerVersions = []string{"credentialprovider.kubelet.k8s.io/v1", "credentialprovider.kubelet.k8s.io/v1beta1", "credentialprovider.kubelet.k8s.io/v1alpha1"}
)

// readProviders reads the configuration of credential provider plugins: a file, or all
// *.json, *.yaml and *.yml of a directory, sorted by name. The hash covers their content,
// as in the kubelet's metric. The error lists all problems.
func readProviders(path string, cluster bool) (all []configv1.CredentialProvider, hash string, err error) {
	files, err := providerFiles(path)
	if err != nil {
		return nil, "", err
	}
	sum := sha256.New()
	var wrong []error
	from := map[string]string{}
	for _, file := range files {
		data, err := readBounded(file, maxProviderConfig)
		if err != nil {
			return nil, "", err
		}
		_ = binary.Write(sum, binary.BigEndian, uint64(len(data))) // writing to a hash cannot fail
		sum.Write(data)
		config, err := decodeProviders(data)
		if err != nil {
			wrong = append(wrong, fmt.Errorf("%s: %w", file, err))
			continue
		}
		for i := range config.Providers {
			p := &config.Providers[i]
			for _, w := range checkProvider(p, cluster) {
				wrong = append(wrong, fmt.Errorf("%s: providers[%d].%s", file, i, w))
			}
			if before, ok := from[p.Name]; ok {
				wrong = append(wrong, fmt.Errorf("%s: providers[%d].name: %q is also the name of another provider, in %s: names must be unique", file, i, p.Name, before))
			}
			from[p.Name] = file
		}
		all = append(all, config.Providers...)
	}
	if len(wrong) == 0 && len(all) == 0 {
		wrong = append(wrong, fmt.Errorf("%s: providers: is empty: name at least one", path))
	}
	return all, fmt.Sprintf("sha256:%x", sum.Sum(nil)), errors.Join(wrong...)
}

func providerFiles(path string) ([]string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("read the configuration of credential providers: %w", err)
	}
	if !info.IsDir() {
		return []string{path}, nil
	}
	entries, err := os.ReadDir(path) // sorted by name
	if err != nil {
		return nil, fmt.Errorf("read the configuration of credential providers: %w", err)
	}
	var files []string
	for _, e := range entries {
		if !e.IsDir() && slices.Contains([]string{".json", ".yaml", ".yml"}, filepath.Ext(e.Name())) {
			files = append(files, filepath.Join(path, e.Name()))
		}
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("read the configuration of credential providers: no *.json, *.yaml or *.yml in %s", path)
	}
	return files, nil
}

func readBounded(file string, limit int64) ([]byte, error) {
	info, err := os.Stat(file)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", file, err)
	}
	if !info.Mode().IsRegular() || info.Size() > limit {
		return nil, fmt.Errorf("read %s: it is not a regular file of at most %d bytes", file, limit)
	}
	return os.ReadFile(file)
}

func decodeProviders(data []byte) (*configv1.CredentialProviderConfig, error) {
	config := &configv1.CredentialProviderConfig{}
	if err := yaml.UnmarshalStrict(data, config); err != nil {
		return nil, errors.New(strings.TrimPrefix(err.Error(), "error unmarshaling JSON: while decoding JSON: "))
	}
	if config.Kind != kindProviderConfig {
		return nil, fmt.Errorf("kind: got %q, want %s", config.Kind, kindProviderConfig)
	}
	if !slices.Contains(configVersions, config.APIVersion) {
		return nil, fmt.Errorf("apiVersion: got %q, want %s", config.APIVersion, configVersions[0])
	}
	return config, nil
}

// checkProvider returns the problems of one provider, each prefixed with its
// field; the rules are the kubelet's (pkg/credentialprovider/plugin/config.go).
func checkProvider(p *configv1.CredentialProvider, cluster bool) []string {
	var wrong []string
	say := func(field, format string, args ...any) {
		wrong = append(wrong, field+": "+fmt.Sprintf(format, args...))
	}
	switch {
	case p.Name == "" || p.Name == "." || p.Name == "..":
		say("name", "%q is not the name of a program", p.Name)
	case strings.ContainsAny(p.Name, "/ "):
		say("name", "%q contains a slash or a space: give the name of a program in the directory of plugins", p.Name)
	}
	switch {
	case p.APIVersion == "":
		say("apiVersion", "is missing: give %s", providerVersions[0])
	case !slices.Contains(providerVersions, p.APIVersion):
		say("apiVersion", "got %q, want one of %s", p.APIVersion, strings.Join(providerVersions, ", "))
	}
	if len(p.MatchImages) == 0 {
		say("matchImages", "is empty: name at least one registry")
	}
	for i, m := range p.MatchImages {
		if _, err := parseLocation(m); err != nil {
			say(fmt.Sprintf("matchImages[%d]", i), "%q is not host[:port][/path]: %v", m, err)
		}
	}
	switch {
	case p.DefaultCacheDuration == nil:
		say("defaultCacheDuration", "is missing: give 0s for no caching")
	case p.DefaultCacheDuration.Duration < 0:
		say("defaultCacheDuration", "%s is negative", p.DefaultCacheDuration.Duration)
	}
	switch {
	case p.TokenAttributes == nil:
	case !cluster:
		say("tokenAttributes", "service account tokens come from a cluster, and this podd runs standalone: leave it out")
	default:
		checkTokenAttributes(p, func(field, format string, args ...any) { say("tokenAttributes"+field, format, args...) })
	}
	return wrong
}

// checkTokenAttributes is checkProvider for tokenAttributes.
func checkTokenAttributes(p *configv1.CredentialProvider, say func(field, format string, args ...any)) {
	t := p.TokenAttributes
	if p.APIVersion != providerVersions[0] {
		say("", "is for plugins of apiVersion %s only", providerVersions[0])
	}
	if t.ServiceAccountTokenAudience == "" {
		say(".serviceAccountTokenAudience", "is missing: give the audience that the plugin's tokens are for")
	}
	switch {
	case t.RequireServiceAccount == nil:
		say(".requireServiceAccount", "is missing: give false if the plugin is also to be asked for pods without a service account")
	case !*t.RequireServiceAccount && len(t.RequiredServiceAccountAnnotationKeys) > 0:
		say(".requiredServiceAccountAnnotationKeys", "needs requireServiceAccount: true")
	}
	if !slices.Contains([]configv1.ServiceAccountTokenCacheType{configv1.ServiceAccountServiceAccountTokenCacheType, configv1.TokenServiceAccountTokenCacheType}, t.CacheType) {
		say(".cacheType", "got %q, want ServiceAccount or Token", t.CacheType)
	}
	seen := map[string]bool{}
	for _, keys := range [][]string{t.RequiredServiceAccountAnnotationKeys, t.OptionalServiceAccountAnnotationKeys} {
		for _, key := range keys {
			if errs := validation.IsQualifiedName(strings.ToLower(key)); len(errs) > 0 {
				say("", "%q is not the key of an annotation: %s", key, strings.Join(errs, "; "))
			}
			if seen[key] {
				say("", "the annotation %q is named twice", key)
			}
			seen[key] = true
		}
	}
}
