package server

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// ownHost refuses requests that came by somebody else's name. The ports ask
// nobody who they are and trust that only this machine reaches loopback; but a
// browser on it reaches loopback for any page whose name its owner resolves to
// 127.0.0.1, and then hands the answer to that page (DNS rebinding). Such a
// request still says the page's name. The kubelet does not look; podd's ports
// are on by default on machines where people also browse.
func (s *Server) ownHost(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !s.isOurs(r.Host) {
			http.Error(w, fmt.Sprintf("this port serves requests to an IP address, localhost or the node's name, not to %.100q; use one of these", r.Host), http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// isOurs takes a Host header, with or without port. An empty one is HTTP/1.0's:
// no browser sends it.
func (s *Server) isOurs(host string) bool {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	host = strings.TrimSuffix(strings.ToLower(host), ".")
	if host == "" || host == "localhost" || host == strings.ToLower(s.config.NodeName) {
		return true
	}
	_, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return err == nil
}
