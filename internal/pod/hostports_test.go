package pod

import (
	"testing"

	v1 "k8s.io/api/core/v1"
)

func TestHostPortsOverlapOnlyWhereOneTakesFromTheOther(t *testing.T) {
	tcp := func(ip string) HostPort { return HostPort{IP: ip, Protocol: v1.ProtocolTCP, Number: 53} }
	udp := HostPort{Protocol: v1.ProtocolUDP, Number: 53}
	other := HostPort{Protocol: v1.ProtocolTCP, Number: 54}
	for _, c := range []struct {
		a, b            HostPort
		meets, overlaps bool
	}{
		{tcp(""), tcp(""), true, true},
		{tcp(""), tcp("127.0.0.1"), true, true},
		{tcp(""), tcp("::"), true, true},
		{tcp("127.0.0.1"), tcp("127.0.0.1"), true, true},
		{tcp("127.0.0.1"), tcp("192.0.2.1"), false, false},
		{tcp("127.0.0.1"), tcp("::1"), false, false},
		{tcp("127.0.0.1"), tcp("::"), false, false},
		{tcp("192.0.2.1"), tcp("::ffff:192.0.2.1"), false, true},
		{tcp("::1"), tcp("0:0:0:0:0:0:0:1"), false, true},
		{tcp("::1"), tcp("::"), false, true},
		{tcp("2001:db8::1"), tcp("2001:db8::2"), false, false},
		{tcp("x"), tcp("y"), false, false},
		{tcp(""), udp, false, false},
		{tcp("::1"), HostPort{IP: "::", Protocol: v1.ProtocolUDP, Number: 53}, false, false},
		{tcp(""), other, false, false},
	} {
		for _, pair := range [][2]HostPort{{c.a, c.b}, {c.b, c.a}} {
			if meets, overlaps := pair[0].ConflictsWith(pair[1]), pair[0].Overlaps(pair[1]); meets != c.meets || overlaps != c.overlaps {
				t.Errorf("%s and %s: got meets %t, overlaps %t; want %t, %t", pair[0], pair[1], meets, overlaps, c.meets, c.overlaps)
			}
		}
	}
}
