package pod

import (
	"slices"
	"testing"
)

func TestPodIPsAreOneOfEachFamilyInTheNodesOrder(t *testing.T) {
	for name, tc := range map[string]struct{ reported, node, want []string }{
		"none":                   {nil, []string{"192.0.2.1"}, nil},
		"as reported":            {[]string{"10.0.0.2", "fd00::2"}, []string{"192.0.2.1", "2001:db8::1"}, []string{"10.0.0.2", "fd00::2"}},
		"IPv6 reported first":    {[]string{"fd00::2", "10.0.0.2"}, []string{"192.0.2.1"}, []string{"10.0.0.2", "fd00::2"}},
		"a node of IPv6":         {[]string{"10.0.0.2", "fd00::2"}, []string{"2001:db8::1", "192.0.2.1"}, []string{"fd00::2", "10.0.0.2"}},
		"a node without address": {[]string{"fd00::2", "10.0.0.2"}, nil, []string{"10.0.0.2", "fd00::2"}},
		"two of a family":        {[]string{"10.0.0.2", "10.0.0.3", "fd00::2", "fd00::3"}, nil, []string{"10.0.0.2", "fd00::2"}},
		"the other family alone": {[]string{"10.0.0.2"}, []string{"2001:db8::1"}, []string{"10.0.0.2"}},
		"what is no address":     {[]string{"", "x", "10.0.0.2"}, nil, []string{"10.0.0.2"}},
		"in one way of writing":  {[]string{"FD00:0:0::2"}, nil, []string{"fd00::2"}},
		"a node of no address":   {[]string{"10.0.0.2", "fd00::2"}, []string{"not an address"}, []string{"10.0.0.2", "fd00::2"}},
	} {
		if got := PodIPs(tc.reported, tc.node); !slices.Equal(got, tc.want) {
			t.Errorf("%s: got %v, want %v", name, got, tc.want)
		}
	}
}
