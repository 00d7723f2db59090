package sender_test

import (
	"net/netip"
	"testing"

	"podd/internal/sender"
)

func TestWhichAddressesAreOneSender(t *testing.T) {
	for _, c := range []struct {
		a, b string
		one  bool
	}{
		{"192.0.2.1", "192.0.2.1", true},
		{"192.0.2.1", "192.0.2.2", false},
		{"::ffff:192.0.2.1", "192.0.2.1", true},
		{"2001:db8::1", "2001:db8::2", true},
		{"2001:db8::1", "2001:db8:0:1::1", false},
		{"fe80::1%eth0", "fe80::2%eth1", true},
		{"@", "", true}, // no addresses
		{"@", "0.0.0.0", false},
	} {
		a, _ := netip.ParseAddr(c.a)
		b, _ := netip.ParseAddr(c.b)
		if got := sender.Prefix(a) == sender.Prefix(b); got != c.one {
			t.Errorf("%s and %s: one sender: got %v, want %v", c.a, c.b, got, c.one)
		}
	}
}
