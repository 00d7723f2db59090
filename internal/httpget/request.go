package httpget

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"podd/internal/versions"
)

// UserAgent returns upstream's User-Agent for a purpose: probe or lifecycle. Firewalls and
// access logs match on the Kubernetes version in it.
func UserAgent(purpose string) string { return "kube-" + purpose + "/" + versions.KubernetesMinor }

// Port resolves a port of an action: a number, the name of one of the
// container's ports, or a number in a string. The result is between 1 and 65535.
func Port(port intstr.IntOrString, c *v1.Container) (int, error) {
	number := port.IntValue() // 0 for a string that is not a number
	if port.Type == intstr.String {
		named := false
		for i := range c.Ports {
			if c.Ports[i].Name == port.StrVal {
				number, named = int(c.Ports[i].ContainerPort), true
				break
			}
		}
		if _, err := strconv.Atoi(port.StrVal); err != nil && !named {
			return 0, fmt.Errorf("container %q has no port named %q", c.Name, port.StrVal)
		}
	}
	if number < 1 || number > 65535 {
		return 0, fmt.Errorf("invalid port number: %d", number)
	}
	return number, nil
}

// NewRequest returns the request of an action. podIP is the host if the action names
// none; purpose is part of the User-Agent (see UserAgent).
//
// Upstream's rules for headers (pkg/probe/http/request.go): those of the action come
// first, repeated names are appended; a missing User-Agent and Accept are added, an
// empty Accept removes the header; Host sets the request's host, not its destination.
func NewRequest(ctx context.Context, action *v1.HTTPGetAction, c *v1.Container, podIP, purpose string) (*http.Request, error) {
	port, err := Port(action.Port, c)
	if err != nil {
		return nil, err
	}
	host := action.Host
	if host == "" {
		host = podIP
	}
	if host == "" {
		// An empty host would be dialled as this node's own loopback.
		return nil, fmt.Errorf("the pod has no IP address yet")
	}
	scheme := strings.ToLower(string(action.Scheme))
	if scheme == "" {
		scheme = "http"
	}
	target := location(action.Path)
	target.Scheme, target.Host = scheme, net.JoinHostPort(host, strconv.Itoa(port))
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, target.String(), nil)
	if err != nil {
		return nil, err
	}
	req.Header = headers(action.HTTPHeaders, purpose)
	req.Host = req.Header.Get("Host")
	return req, nil
}

// location parses a path with its query; an invalid one is used literally.
func location(path string) *url.URL {
	if u, err := url.Parse(path); err == nil {
		return u
	}
	return &url.URL{Path: path}
}

func headers(list []v1.HTTPHeader, purpose string) http.Header {
	h := make(http.Header, len(list)+2)
	for _, one := range list {
		h.Add(one.Name, one.Value)
	}
	if _, ok := h["User-Agent"]; !ok {
		h.Set("User-Agent", UserAgent(purpose))
	}
	if accept, ok := h["Accept"]; !ok {
		h.Set("Accept", "*/*")
	} else if accept[0] == "" {
		h.Del("Accept")
	}
	return h
}
