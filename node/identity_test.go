package node

import (
	"crypto/x509/pkix"
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"
)

func TestAServingCertificateIsForWhatTheNodeSays(t *testing.T) {
	for name, tc := range map[string]struct {
		of   []v1.NodeAddress
		want string
	}{
		"nothing":       {nil, "<nil>"},
		"only a name":   {[]v1.NodeAddress{{Type: v1.NodeHostName, Address: "n"}}, "<nil>"},
		"both":          {[]v1.NodeAddress{{Type: v1.NodeInternalIP, Address: "fd00::1"}, {Type: v1.NodeInternalIP, Address: "10.0.0.1"}, {Type: v1.NodeHostName, Address: "n"}}, "[n] [10.0.0.1 fd00::1]"},
		"name is an IP": {[]v1.NodeAddress{{Type: v1.NodeHostName, Address: "10.0.0.1"}, {Type: v1.NodeInternalIP, Address: "10.0.0.1"}}, "[] [10.0.0.1]"},
		"of a cloud": {[]v1.NodeAddress{
			{Type: v1.NodeExternalIP, Address: "1.2.3.4"}, {Type: v1.NodeExternalDNS, Address: "b.example"}, {Type: v1.NodeInternalDNS, Address: "a.example"},
			{Type: v1.NodeHostName, Address: "a.example"}, {Type: v1.NodeExternalIP},
		}, "[a.example b.example] [1.2.3.4]"},
		"nonsense": {[]v1.NodeAddress{{Type: v1.NodeInternalIP, Address: "x"}}, "<nil>"},
	} {
		got := "<nil>"
		if r := servingTemplate(pkix.Name{CommonName: "c"}, tc.of); r != nil {
			got = fmt.Sprint(r.DNSNames, " ", r.IPAddresses)
		}
		if got != tc.want {
			t.Errorf("%s: got %s, want %s", name, got, tc.want)
		}
	}
}
