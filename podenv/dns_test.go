package podenv

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestParseResolvConf(t *testing.T) {
	rc, err := parseResolvConf("# a comment\nnameserver 192.0.2.53\n\tnameserver 2001:db8::53 \nsearch old.test\nsearch a.test. . b.test\noptions ndots:2 rotate\noptions ndots:5\nsortlist 1\r\n")
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(rc.servers, []string{"192.0.2.53", "2001:db8::53"}) || !slices.Equal(rc.searches, []string{"a.test", "b.test"}) || !slices.Equal(rc.options, []string{"ndots:5", "rotate"}) {
		t.Errorf("got %+v", rc)
	}
	if _, err := parseResolvConf("nameserver\n"); err == nil {
		t.Error("a nameserver line without an address: got no error")
	}
	for text, want := range map[string]bool{"nameserver 127.0.0.53\n": true, "nameserver 127.0.0.53\nnameserver 192.0.2.1\n": false, "": false, "nameserver 127.0.0.1\n": false} {
		if rc, _ := parseResolvConf(text); rc.stubOnly() != want {
			t.Errorf("stubOnly(%q): got %v, want %v", text, !want, want)
		}
	}
}

func TestPodDNS(t *testing.T) {
	node := resolvConf{servers: []string{"192.0.2.53"}, searches: []string{"node.test"}, options: []string{"rotate"}}
	five := "5"
	many := &v1.PodDNSConfig{Nameservers: []string{"1", "2", "3", "4"}}
	for i := range 40 {
		many.Searches = append(many.Searches, fmt.Sprintf("s%d.test", i))
	}
	for _, tc := range []struct {
		name    string
		policy  v1.DNSPolicy
		host    bool
		config  *v1.PodDNSConfig
		cluster []string
		local   []string
		want    string
		notes   int
		missing bool
	}{
		{name: "default", policy: v1.DNSDefault, want: "192.0.2.53/node.test/rotate"},
		{name: "none", policy: v1.DNSNone, config: &v1.PodDNSConfig{Nameservers: []string{"1.1.1.1"}, Options: []v1.PodDNSConfigOption{{Name: "ndots", Value: &five}}}, want: "1.1.1.1//ndots:5"},
		{name: "cluster", policy: v1.DNSClusterFirst, cluster: []string{"10.96.0.10"}, want: "10.96.0.10/shop.svc.cluster.local svc.cluster.local cluster.local node.test/ndots:5"},
		{name: "cluster without cluster", policy: v1.DNSClusterFirst, want: "192.0.2.53/node.test/rotate", missing: true},
		{name: "cluster on the host's network", policy: v1.DNSClusterFirst, host: true, cluster: []string{"10.96.0.10"}, want: "192.0.2.53/node.test/rotate"},
		{name: "cluster with host net", policy: v1.DNSClusterFirstWithHostNet, host: true, cluster: []string{"10.96.0.10"}, want: "10.96.0.10/shop.svc.cluster.local svc.cluster.local cluster.local node.test/ndots:5"},
		{name: "merged without doubles", policy: v1.DNSDefault, config: &v1.PodDNSConfig{Nameservers: []string{"192.0.2.53", "9.9.9.9"}, Searches: []string{"node.test", "x.test"}, Options: []v1.PodDNSConfigOption{{Name: "rotate"}, {Name: "ndots", Value: &five}}}, want: "192.0.2.53 9.9.9.9/node.test x.test/rotate ndots:5"},
		{name: "no resolver", policy: v1.DNSDefault, local: localResolvers(nil), want: "127.0.0.1/./"},
		{name: "no resolver on a node of IPv6", policy: v1.DNSDefault, local: localResolvers([]string{"2001:db8::1"}), want: "::1/./"},
		{name: "no resolver on a node of both", policy: v1.DNSClusterFirst, local: localResolvers([]string{"2001:db8::1", "192.0.2.1"}), want: "::1 127.0.0.1/./", missing: true},
		{name: "limits", policy: v1.DNSNone, config: many, want: "1 2 3/" + strings.Join(many.Searches[:32], " ") + "/", notes: 2},
	} {
		p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop"}, Spec: v1.PodSpec{DNSPolicy: tc.policy, HostNetwork: tc.host, DNSConfig: tc.config}}
		d, notes := podDNS(p, node, tc.local, tc.cluster, "cluster.local")
		if got := strings.Join(d.Servers, " ") + "/" + strings.Join(d.Searches, " ") + "/" + strings.Join(d.Options, " "); got != tc.want {
			t.Errorf("%s: got %q, want %q", tc.name, got, tc.want)
		}
		if len(notes.limits) != tc.notes || notes.noClusterDNS != tc.missing {
			t.Errorf("%s: notes: got %+v", tc.name, notes)
		}
	}
	if !slices.Equal(node.servers, []string{"192.0.2.53"}) || !slices.Equal(node.searches, []string{"node.test"}) {
		t.Errorf("the node's own configuration was changed: %+v", node)
	}
	long := resolvConf{searches: []string{strings.Repeat("a", 254), "ok.test"}}
	if got, notes := long.truncateToLimits(); !slices.Equal(got.searches, []string{"ok.test"}) || len(notes) != 1 {
		t.Errorf("a path over 253 characters: got %v", got.searches)
	}
	wide := resolvConf{}
	for i := range 20 {
		wide.searches = append(wide.searches, fmt.Sprintf("%02d%s", i, strings.Repeat("b", 148)))
	}
	if got, _ := wide.truncateToLimits(); len(strings.Join(got.searches, " ")) > 2048 || len(got.searches) != 13 {
		t.Errorf("a line over 2048 characters: got %d paths, want 13", len(got.searches))
	}
}

func TestHostsFile(t *testing.T) {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "shop"}, Spec: v1.PodSpec{
		Subdomain: "sub", HostAliases: []v1.HostAlias{{IP: "192.0.2.9", Hostnames: []string{"db", "db.test"}}},
	}}
	got := string(hostsFile(p, []string{"10.0.0.2", "fd00::2"}, "cluster.local", nil))
	want := "# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\nfe00::0\tip6-localnet\nfe00::0\tip6-mcastprefix\nfe00::1\tip6-allnodes\nfe00::2\tip6-allrouters\n" +
		"10.0.0.2\tweb.sub.shop.svc.cluster.local\tweb\nfd00::2\tweb.sub.shop.svc.cluster.local\tweb\n\n# Entries added by HostAliases.\n192.0.2.9\tdb\tdb.test\n"
	if got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	p.Spec.HostNetwork = true
	got = string(hostsFile(p, nil, "", []byte("127.0.0.1 node\n")))
	if want := "# Kubernetes-managed hosts file (host network).\n127.0.0.1 node\n\n# Entries added by HostAliases.\n192.0.2.9\tdb\tdb.test\n"; got != want {
		t.Errorf("host network: got %q, want %q", got, want)
	}
}

func TestHostname(t *testing.T) {
	yes, override := true, "other.name"
	long := strings.Repeat("a", 62) + ".tail"
	for _, tc := range []struct {
		name string
		spec v1.PodSpec
		pod  string
		want string
		err  string
	}{
		{"the pod's name", v1.PodSpec{}, "web", "web", ""},
		{"its own", v1.PodSpec{Hostname: "h"}, "web", "h", ""},
		{"cut", v1.PodSpec{}, long, strings.Repeat("a", 62), ""},
		{"subdomain alone", v1.PodSpec{Subdomain: "s"}, "web", "web", ""},
		{"as FQDN", v1.PodSpec{Subdomain: "s", SetHostnameAsFQDN: &yes}, "web", "web.s.ns.svc.cluster.local", ""},
		{"FQDN without subdomain", v1.PodSpec{SetHostnameAsFQDN: &yes}, "web", "web", ""},
		{"override", v1.PodSpec{HostnameOverride: &override, Subdomain: "s", Hostname: "h"}, "web", "other.name", ""},
		{"FQDN too long", v1.PodSpec{Subdomain: "s", SetHostnameAsFQDN: &yes}, strings.Repeat("a", 60), "", "is too long (64 characters is the max, 83 characters requested)"},
	} {
		got, err := kernelHostname(&v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: tc.pod, Namespace: "ns"}, Spec: tc.spec}, "cluster.local")
		if got != tc.want || (err == nil) != (tc.err == "") || (err != nil && !strings.Contains(err.Error(), tc.err)) {
			t.Errorf("%s: got %q, %v, want %q, %q", tc.name, got, err, tc.want, tc.err)
		}
	}
}
