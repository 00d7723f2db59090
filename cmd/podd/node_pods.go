package main

import "podd/config"

// hostIP is where probes and hooks find containers on the node's own network.
func hostIP(cfg *config.Config) string {
	if ips := nodeAddresses(cfg); len(ips) > 0 {
		return ips[0]
	}
	return "127.0.0.1"
}
