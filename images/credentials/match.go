package credentials

import (
	"fmt"
	"net"
	"net/url"
	"path"
	"strings"
)

// dockerHub is the name of docker's own registry in docker's files, however an
// image's name spells it (docker.io, or not at all).
const dockerHub = "index.docker.io"

// location is a registry or a part of one: a host (its labels may be globs), a port, and a
// path prefix. matchImages and the keys of docker's files have this form.
type location struct {
	parts      []string // labels of the host
	port, path string
}

// parseLocation parses host[:port][/path], without a scheme.
func parseLocation(s string) (location, error) {
	u, err := url.Parse("https://" + s)
	if err != nil {
		return location{}, err
	}
	host, port, err := net.SplitHostPort(u.Host)
	if err != nil {
		host, port = u.Host, ""
	}
	l := location{parts: strings.Split(host, "."), port: port, path: u.Path}
	for _, p := range l.parts {
		if _, err := path.Match(p, ""); err != nil {
			return location{}, fmt.Errorf("%q is not a pattern", p)
		}
	}
	return l, nil
}

// covers reports whether an image's repository is in l, by the kubelet's rules
// (pkg/credentialprovider/keyring.go, URLsMatch): equal ports, the same number
// of labels in the host, each matching, and the path as a prefix.
func (l location) covers(repo location) bool {
	if l.port != repo.port || len(l.parts) != len(repo.parts) || !strings.HasPrefix(repo.path, l.path) {
		return false
	}
	for i, glob := range l.parts {
		if ok, err := path.Match(glob, repo.parts[i]); err != nil || !ok {
			return false
		}
	}
	return true
}

// isDefaultRegistry reports whether an image is from docker's own registry, by
// its name.
func isDefaultRegistry(repo string) bool {
	first, _, more := strings.Cut(repo, "/")
	switch {
	case first == "":
		return false
	case !more, first == "docker.io", first == dockerHub:
		return true
	}
	return !strings.ContainsAny(first, ".:")
}
