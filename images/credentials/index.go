package credentials

import (
	"fmt"
	"slices"
	"strings"

	"podd/internal/pod"
)

// authIndex finds credentials by an image's repository. The zero value is empty.
type authIndex struct {
	// keys are in reverse alphabetical order: of two with a common prefix, the longer is
	// tried first, and a name is tried before a glob.
	keys  []string
	where map[string]location
	auths map[string][]pod.RegistryAuth
}

// add adds credentials for a key of a docker configuration: a registry's host, a
// URL, or a host with a path.
func (x *authIndex) add(key string, auth pod.RegistryAuth) error {
	short := strings.TrimPrefix(strings.TrimPrefix(key, "https://"), "http://")
	host, rest, _ := strings.Cut(short, "/")
	if v, after, ok := strings.Cut(rest, "/"); ok && (v == "v1" || v == "v2") { // the API's version is not part of the path
		rest = after
	}
	if rest != "" {
		host += "/" + rest
	}
	l, err := parseLocation(host)
	if err != nil {
		return fmt.Errorf("%q is not a registry or repository: %w", key, err)
	}
	if x.auths == nil {
		x.auths, x.where = map[string][]pod.RegistryAuth{}, map[string]location{}
	}
	if _, ok := x.auths[host]; !ok {
		x.keys = append(x.keys, host)
		slices.Sort(x.keys)
		slices.Reverse(x.keys)
	}
	x.where[host] = l
	x.auths[host] = append(x.auths[host], auth)
	return nil
}

// lookup returns all credentials for a repository (registry/path, without tag),
// the most specific first.
func (x *authIndex) lookup(repo string) []pod.RegistryAuth {
	at, err := parseLocation(repo)
	if err != nil {
		return nil
	}
	var found []pod.RegistryAuth
	for _, key := range x.keys {
		if x.where[key].covers(at) {
			found = append(found, x.auths[key]...)
		}
	}
	if len(found) == 0 && isDefaultRegistry(repo) {
		return x.auths[dockerHub]
	}
	return found
}
