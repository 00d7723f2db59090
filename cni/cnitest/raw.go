package cnitest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

// Packet is what a pod with a raw socket (CAP_NET_RAW) can put on its wire, with
// any address it likes: a TCP SYN, or with Text a UDP datagram.
type Packet struct {
	FromMAC, ToMAC net.HardwareAddr
	From, To       netip.AddrPort
	Text           string
	// Tagged puts the packet into VLAN 0; the kernel removes that tag.
	Tagged bool
}

// Frame is the packet as it goes onto the wire.
func (p Packet) Frame() []byte {
	protocol, segment := byte(unix.IPPROTO_TCP), p.syn()
	if p.Text != "" {
		protocol, segment = unix.IPPROTO_UDP, p.datagram()
	}
	sum := checksum(p.pseudo(protocol, len(segment)), segment)
	if protocol == unix.IPPROTO_UDP {
		binary.BigEndian.PutUint16(segment[6:], sum)
	} else {
		binary.BigEndian.PutUint16(segment[16:], sum)
	}
	frame := append(append([]byte{}, p.ToMAC...), p.FromMAC...)
	if p.Tagged {
		frame = binary.BigEndian.AppendUint32(frame, unix.ETH_P_8021Q<<16)
	}
	if p.To.Addr().Is4() {
		frame = binary.BigEndian.AppendUint16(frame, unix.ETH_P_IP)
	} else {
		frame = binary.BigEndian.AppendUint16(frame, unix.ETH_P_IPV6)
	}
	return append(append(frame, p.header(protocol, len(segment))...), segment...)
}

func (p Packet) syn() []byte {
	s := make([]byte, 20)
	binary.BigEndian.PutUint16(s[0:], p.From.Port())
	binary.BigEndian.PutUint16(s[2:], p.To.Port())
	binary.BigEndian.PutUint32(s[4:], 1) // sequence number
	s[12], s[13] = 5<<4, 0x02            // five words, SYN
	binary.BigEndian.PutUint16(s[14:], 1024)
	return s
}

func (p Packet) datagram() []byte {
	d := make([]byte, 8, 8+len(p.Text))
	binary.BigEndian.PutUint16(d[0:], p.From.Port())
	binary.BigEndian.PutUint16(d[2:], p.To.Port())
	binary.BigEndian.PutUint16(d[4:], uint16(8+len(p.Text)))
	return append(d, p.Text...)
}

func (p Packet) header(protocol byte, length int) []byte {
	if p.To.Addr().Is4() {
		h := make([]byte, 20)
		h[0], h[8], h[9] = 4<<4|5, 64, protocol
		binary.BigEndian.PutUint16(h[2:], uint16(20+length))
		copy(h[12:], p.From.Addr().AsSlice())
		copy(h[16:], p.To.Addr().AsSlice())
		binary.BigEndian.PutUint16(h[10:], checksum(h))
		return h
	}
	h := make([]byte, 40)
	h[0], h[6], h[7] = 6<<4, protocol, 64
	binary.BigEndian.PutUint16(h[4:], uint16(length))
	copy(h[8:], p.From.Addr().AsSlice())
	copy(h[24:], p.To.Addr().AsSlice())
	return h
}

// pseudo is the header that the checksums of TCP and UDP cover too.
func (p Packet) pseudo(protocol byte, length int) []byte {
	h := append(p.From.Addr().AsSlice(), p.To.Addr().AsSlice()...)
	h = binary.BigEndian.AppendUint32(h, uint32(length))
	return binary.BigEndian.AppendUint32(h, uint32(protocol))
}

// checksum is the internet's (RFC 1071). All parts but the last are of even length.
func checksum(parts ...[]byte) uint16 {
	sum := uint32(0)
	for _, part := range parts {
		for i, b := range part {
			sum += uint32(b) << (8 * (1 - i%2))
		}
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}

// Knock sends frames on an interface, in order, and returns the addresses that answered a
// SYN from the port of the last frame. The last frame must be a SYN over IPv4 that gets
// an answer: by then the frames before it have been taken or dropped. It is an error if
// no answer comes within ten seconds.
func Knock(iface string, frames [][]byte) (answered []netip.AddrPort, err error) {
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, int(toNetwork(unix.ETH_P_ALL)))
	if err != nil {
		return nil, fmt.Errorf("open a raw socket: %w", err)
	}
	defer unix.Close(fd)
	link, err := net.InterfaceByName(iface)
	if err != nil {
		return nil, err
	}
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: toNetwork(unix.ETH_P_ALL), Ifindex: link.Index}); err != nil {
		return nil, fmt.Errorf("bind to %s: %w", iface, err)
	}
	for _, frame := range frames {
		if _, err := unix.Write(fd, frame); err != nil {
			return nil, fmt.Errorf("send: %w", err)
		}
	}
	last := frames[len(frames)-1]
	port := binary.BigEndian.Uint16(last[14+20:])
	control := netip.AddrPortFrom(netip.AddrFrom4([4]byte(last[14+16:])), binary.BigEndian.Uint16(last[14+20+2:]))
	buf := make([]byte, 2048)
	for limit := time.Now().Add(10 * time.Second); time.Now().Before(limit); {
		wait := unix.NsecToTimeval(max(1000, time.Until(limit).Nanoseconds()))
		if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &wait); err != nil {
			return nil, err
		}
		n, err := unix.Read(fd, buf)
		if errors.Is(err, unix.EINTR) || errors.Is(err, unix.EAGAIN) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("receive: %w", err)
		}
		if from, to := synAck(buf[:n]); to == port {
			answered = append(answered, from)
			if from == control {
				return answered, nil
			}
		}
	}
	return answered, fmt.Errorf("%v did not answer, so this shows nothing", control)
}

// synAck returns the address that accepts a connection by this frame, and the port that
// asked for it; 0 if the frame says something else.
func synAck(frame []byte) (from netip.AddrPort, to uint16) {
	if len(frame) < 14 {
		return from, 0
	}
	kind, rest := binary.BigEndian.Uint16(frame[12:]), frame[14:]
	var segment []byte
	var addr netip.Addr
	switch {
	case kind == unix.ETH_P_IP && len(rest) >= 20 && rest[9] == unix.IPPROTO_TCP:
		addr, segment = netip.AddrFrom4([4]byte(rest[12:])), rest[min(len(rest), int(rest[0]&15)*4):]
	case kind == unix.ETH_P_IPV6 && len(rest) >= 40 && rest[6] == unix.IPPROTO_TCP:
		addr, segment = netip.AddrFrom16([16]byte(rest[8:])), rest[40:]
	}
	if len(segment) < 20 || segment[13]&0x12 != 0x12 {
		return from, 0
	}
	return netip.AddrPortFrom(addr, binary.BigEndian.Uint16(segment)), binary.BigEndian.Uint16(segment[2:])
}

func toNetwork(v uint16) uint16 { return v<<8 | v>>8 }
