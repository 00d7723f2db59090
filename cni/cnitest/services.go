package cnitest

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// Services are what a node listens with on its loopback, which pods must not
// reach, and on the bridge, which they do: the controls.
type Services struct {
	bridge net.Interface
	ipv6   bool
	tcp    map[string]net.Listener
	udp    map[string]int // sockets
	// port is the source port of the last Frames. Each call takes another, because an
	// answer may be repeated.
	port uint16
}

// The names of the services in what Reached returns. Each one with "control" in its name
// must be reached.
const (
	loopback     = "127.0.0.1"
	loopback6    = "[::1]"
	nodeControl  = "control: the node's address on the bridge"
	ipv6Control  = "control: IPv6 on the bridge"
	fromLoopback = "the node's address, from 127.0.0.2"
	taggedSuffix = ", in VLAN 0"
)

// Serve listens in the network namespace of the calling thread, until the test's
// end. node is the bridge's address.
func Serve(t testing.TB, bridge string, node netip.Addr) (*Services, error) {
	link, err := net.InterfaceByName(bridge)
	if err != nil {
		return nil, err
	}
	s := &Services{bridge: *link, port: 40000, tcp: map[string]net.Listener{}, udp: map[string]int{}}
	with, err := os.ReadFile("/proc/thread-self/net/if_inet6")
	s.ipv6 = err == nil && strings.Contains(string(with), " "+bridge+"\n")
	for name, address := range map[string]string{loopback: "127.0.0.1", loopback6: "[::1]", nodeControl: node.String()} {
		if name == loopback6 && !s.ipv6 {
			continue
		}
		l, err := net.Listen("tcp", address+":0")
		if err != nil {
			return nil, err
		}
		t.Cleanup(func() { _ = l.Close() })
		s.tcp[name] = l
	}
	for name, at := range map[string]unix.Sockaddr{
		loopback: &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}, nodeControl: &unix.SockaddrInet4{Addr: node.As4()},
		loopback6: &unix.SockaddrInet6{Addr: netip.IPv6Loopback().As16()}, ipv6Control: &unix.SockaddrInet6{},
	} {
		family := unix.AF_INET
		if name == loopback6 || name == ipv6Control {
			if family = unix.AF_INET6; !s.ipv6 {
				continue
			}
		}
		fd, err := unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return nil, err
		}
		t.Cleanup(func() { _ = unix.Close(fd) })
		if err := unix.Bind(fd, at); err != nil {
			return nil, fmt.Errorf("listen on %s: %w", name, err)
		}
		s.udp[name] = fd
	}
	return s, nil
}

// Frames are all ways of a pod to these services, the control last.
func (s *Services) Frames(podMAC net.HardwareAddr, pod netip.Addr, hostPort uint16) [][]byte {
	s.port++
	from, from6 := netip.AddrPortFrom(pod, s.port), netip.AddrPortFrom(linkLocal(podMAC), s.port)
	var frames [][]byte
	add := func(from, to netip.AddrPort, text string, tagged bool) {
		frames = append(frames, Packet{FromMAC: podMAC, ToMAC: s.bridge.HardwareAddr, From: from, To: to, Text: text, Tagged: tagged}.Frame())
	}
	for _, tagged := range []bool{false, true} {
		suffix := ""
		if tagged {
			suffix = taggedSuffix
		}
		add(from, s.tcpAt(loopback), "", tagged)
		add(from, s.udpAt(loopback), loopback+suffix, tagged)
		add(netip.AddrPortFrom(netip.MustParseAddr("127.0.0.2"), s.port), s.udpAt(nodeControl), fromLoopback+suffix, tagged)
		if s.ipv6 {
			add(from6, s.tcpAt(loopback6), "", tagged)
			add(from6, s.udpAt(loopback6), loopback6+suffix, tagged)
			all := netip.AddrPortFrom(netip.IPv6LinkLocalAllNodes(), s.udpAt(ipv6Control).Port())
			add(from6, all, ipv6Control+suffix, tagged)
		}
		add(from, s.udpAt(nodeControl), nodeControl+suffix, tagged)
	}
	if hostPort != 0 {
		add(from, netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), hostPort), "", false)
	}
	add(from, s.tcpAt(nodeControl), "", false)
	return frames
}

// Reached returns the services, except the controls, that got something since the last
// call. answered is what Knock returned. It is an error if a control got nothing.
func (s *Services) Reached(answered []netip.AddrPort) ([]string, error) {
	var reached []string
	for _, who := range answered {
		if who != s.tcpAt(nodeControl) {
			reached = append(reached, "TCP "+who.String())
		}
	}
	controls := map[string]bool{nodeControl: false, nodeControl + taggedSuffix: false}
	if s.ipv6 {
		controls[ipv6Control], controls[ipv6Control+taggedSuffix] = false, false
	}
	buf := make([]byte, 256)
	for _, fd := range s.udp {
		for {
			n, _, err := unix.Recvfrom(fd, buf, unix.MSG_DONTWAIT)
			if errors.Is(err, unix.EAGAIN) {
				break
			}
			if err != nil {
				return nil, err
			}
			if _, ok := controls[string(buf[:n])]; ok {
				controls[string(buf[:n])] = true
			} else {
				reached = append(reached, "UDP "+string(buf[:n]))
			}
		}
	}
	for name, came := range controls {
		if !came {
			return nil, fmt.Errorf("%s got nothing, so this shows nothing", name)
		}
	}
	slices.Sort(reached)
	return slices.Compact(reached), nil
}

// IPv6 says whether the bridge speaks it.
func (s *Services) IPv6() bool { return s.ipv6 }

func (s *Services) tcpAt(name string) netip.AddrPort {
	at := s.tcp[name].Addr().(*net.TCPAddr).AddrPort()
	return netip.AddrPortFrom(at.Addr().Unmap(), at.Port())
}

func (s *Services) udpAt(name string) netip.AddrPort {
	at, err := unix.Getsockname(s.udp[name])
	if err != nil {
		panic(err) // our own open socket
	}
	switch at := at.(type) {
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(at.Addr), uint16(at.Port))
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(at.Addr), uint16(at.Port))
	}
	return netip.AddrPort{}
}

// linkLocal is the IPv6 address that an interface gives itself (RFC 4291, appendix A).
func linkLocal(mac net.HardwareAddr) netip.Addr {
	return netip.AddrFrom16([16]byte{0xfe, 0x80, 8: mac[0] ^ 2, 9: mac[1], 10: mac[2], 11: 0xff, 12: 0xfe, 13: mac[3], 14: mac[4], 15: mac[5]})
}
