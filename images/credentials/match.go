package credentials

import (
	"fmt"
	"net"
	"net/url"
	"path"
	"strings"
)

// dockerHub is how docker's files call its own registry, whatever an
// image's name says (docker.io, or nothing at all).
const dockerHub = "index.docker.io"

// location is a registry or a part of one: a host, each part of which may be a
// glob, a port, and the beginning of a path. It is what matchImages and the keys
// of docker's files hold.
type location struct {
	parts      []string // of the host, between dots
	port, path string
}

// parseLocation reads host[:port][/path], without a scheme.
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

// covers says whether an image's repository lies in l, by the kubelet's rules
// (pkg/credentialprovider/keyring.go, URLsMatch): ports are equal, hosts have as
// many parts and each matches, the path is a prefix.
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

// isDefaultRegistry says whether an image comes from docker's own registry, by
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
