package server

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// checkHost rejects requests for a foreign host name. The ports have no authentication and rely
// on loopback being local. But a web page can make a browser on this machine read them by
// resolving its own name to 127.0.0.1 (DNS rebinding); the Host header of such a request is the
// page's name. The kubelet has no such check. podd's ports are open by default on machines
// where people also browse.
func (s *Server) checkHost(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !s.isAcceptedHost(r.Host) {
			http.Error(w, fmt.Sprintf("this port serves requests to an IP address, localhost or the node's name, not to %.100q; use one of these", r.Host), http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// isAcceptedHost takes a Host header, with or without a port. An empty one means HTTP/1.0, which no
// browser speaks.
func (s *Server) isAcceptedHost(host string) bool {
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
