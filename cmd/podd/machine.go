package main

import (
	"log/slog"
	"net"
	"net/netip"
	"os"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"podd/bundle"
	"podd/config"
)

// capacity is the machine's memory in bytes (0 if unknown) and what pods may
// have of the machine.
func capacity() (memory int64, allocatable v1.ResourceList) {
	allocatable = v1.ResourceList{v1.ResourceCPU: *resource.NewQuantity(int64(runtime.NumCPU()), resource.DecimalSI)}
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err == nil {
		memory = int64(info.Totalram) * int64(info.Unit)
		allocatable[v1.ResourceMemory] = *resource.NewQuantity(memory, resource.BinarySI)
	}
	return memory, allocatable
}

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
