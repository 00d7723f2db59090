package server

import "net"

// Address is where the listener of that name (socket, readonly, healthz) is
// found, or nil.
func (s *Server) Address(name string) net.Addr {
	for _, l := range s.listeners {
		if l.name == name {
			return l.Addr()
		}
	}
	return nil
}
