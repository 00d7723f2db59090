package main

import (
	"log/slog"
	"net"
	"net/netip"
	"os"
	"strconv"

	"podd/bundle"
	"podd/config"
)

// nodeAddresses are the configured ones, or the address that this machine
// would use to reach others; none where it has no route.
func nodeAddresses(cfg *config.Config) []string {
	var out []string
	for _, ip := range cfg.NodeIPs {
		out = append(out, ip.String())
	}
	if len(out) > 0 {
		return out
	}
	// Connecting a datagram socket sends nothing: it only picks the route. The
	// addresses are of documentation networks (RFC 5737, RFC 3849).
	for _, target := range []string{"192.0.2.1:9", "[2001:db8::1]:9"} {
		conn, err := net.Dial("udp", target)
		if err != nil {
			continue
		}
		if local, ok := conn.LocalAddr().(*net.UDPAddr); ok && !local.IP.IsLoopback() {
			out = append(out, local.IP.String())
		}
		_ = conn.Close()
	}
	return out
}

func addresses(ips []netip.Addr) []string {
	out := make([]string, len(ips))
	for i, ip := range ips {
		out[i] = ip.String()
	}
	return out
}

// configuredResolvConf is nil for the default, behind which cri looks for
// systemd-resolved's real file.
func configuredResolvConf(path string) *string {
	if path == "/etc/resolv.conf" {
		return nil
	}
	return &path
}

// lowerOOMScore makes podd one of the last processes that the kernel takes
// when memory runs out. A machine that does not allow it is no obstacle.
func lowerOOMScore(score int, log *slog.Logger) {
	if score < 0 && !bundle.MayLowerOOMScore() {
		log.Info("podd keeps its OOM score: this machine does not let it lower scores", "wanted", score)
		return
	}
	if err := os.WriteFile("/proc/self/oom_score_adj", []byte(strconv.Itoa(score)), 0o644); err != nil {
		log.Warn("podd keeps its OOM score", "wanted", score, "error", err)
	}
}
