package podenv

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
)

// The kubelet's limits (pkg/apis/core/validation): nameservers and searches
// beyond them are left out with an event. A search path over 255 characters
// makes some resolvers abort.
const (
	maxNameservers   = 3
	maxSearches      = 32
	maxSearchChars   = 2048
	maxSearchPathLen = 253
)

// resolvConf is the content of a resolver configuration.
type resolvConf struct {
	servers, searches, options []string
}

// parseResolvConf reads resolv.conf(5): nameserver lines are added up, the last
// search line wins, options are merged by name. A nameserver line without an address
// is an error, as in the kubelet.
func parseResolvConf(text string) (resolvConf, error) {
	var rc resolvConf
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) == 0 || strings.HasPrefix(f[0], "#") {
			continue
		}
		switch f[0] {
		case "nameserver":
			if len(f) < 2 {
				return rc, fmt.Errorf("a nameserver line has no address")
			}
			rc.servers = append(rc.servers, f[1])
		case "search":
			rc.searches = nil
			for _, s := range f[1:] {
				if s != "." {
					rc.searches = append(rc.searches, strings.TrimSuffix(s, "."))
				}
			}
		case "options":
			for _, o := range f[1:] {
				rc.options = setOption(rc.options, o)
			}
		}
	}
	return rc, nil
}

// stubOnly says that all nameservers are on loopback, as with systemd-resolved's
// stub: a pod with its own network cannot reach them.
func (rc resolvConf) stubOnly() bool {
	return len(rc.servers) > 0 && !slices.ContainsFunc(rc.servers, func(s string) bool {
		return s != "127.0.0.53" && s != "127.0.0.54"
	})
}

// setOption replaces the option of that name, or adds it.
func setOption(options []string, option string) []string {
	name, _, _ := strings.Cut(option, ":")
	for i, o := range options {
		if n, _, _ := strings.Cut(o, ":"); n == name {
			options[i] = option
			return options
		}
	}
	return append(options, option)
}

// dnsIssues are worth an event about a pod's DNS configuration.
type dnsIssues struct {
	// limits are messages of DNSConfigForming events.
	limits []string
	// noClusterDNS: the policy requires cluster DNS and the node has none.
	noClusterDNS bool
}

// podDNS computes a pod's DNS configuration. node is the node's resolver
// configuration; local replaces it (see localResolvers) if the node is configured to
// have none, else empty.
func podDNS(p *v1.Pod, node resolvConf, local, clusterDNS []string, clusterDomain string) (pod.DNS, dnsIssues) {
	var issues dnsIssues
	var rc resolvConf
	switch effectiveDNSPolicy(p) {
	case v1.DNSNone:
	case v1.DNSClusterFirst:
		if len(clusterDNS) > 0 {
			rc = resolvConf{
				servers:  slices.Clone(clusterDNS),
				searches: clusterSearches(p.Namespace, clusterDomain, node.searches),
				options:  []string{"ndots:5"},
			}
			break
		}
		issues.noClusterDNS = true
		rc = nodeDNS(node, local)
	default:
		rc = nodeDNS(node, local)
	}
	if d := p.Spec.DNSConfig; d != nil {
		rc.servers = unique(append(rc.servers, d.Nameservers...))
		rc.searches = unique(append(rc.searches, d.Searches...))
		for _, o := range d.Options {
			text := o.Name
			if o.Value != nil && *o.Value != "" {
				text += ":" + *o.Value
			}
			rc.options = setOption(rc.options, text)
		}
	}
	rc, issues.limits = rc.truncateToLimits()
	return pod.DNS{Servers: rc.servers, Searches: rc.searches, Options: rc.options}, issues
}

// effectiveDNSPolicy maps the four policies to three.
func effectiveDNSPolicy(p *v1.Pod) v1.DNSPolicy {
	switch p.Spec.DNSPolicy {
	case v1.DNSNone:
		return v1.DNSNone
	case v1.DNSDefault:
		return v1.DNSDefault
	case v1.DNSClusterFirst:
		if p.Spec.HostNetwork {
			return v1.DNSDefault
		}
	}
	return v1.DNSClusterFirst
}

// localResolvers are loopback addresses in the families of the node's addresses: what
// pods get with resolvConf: "", which means no lookups. With an empty list, runtimes
// would pass on the node's own file.
func localResolvers(nodeIPs []string) []string {
	var out []string
	for _, s := range nodeIPs {
		if ip, err := netip.ParseAddr(s); err == nil && ip.Is6() {
			out = append(out, "::1")
		} else {
			out = append(out, "127.0.0.1")
		}
	}
	if len(out) == 0 {
		return []string{"127.0.0.1"}
	}
	return out
}

func nodeDNS(node resolvConf, local []string) resolvConf {
	if len(local) > 0 {
		return resolvConf{servers: slices.Clone(local), searches: []string{"."}}
	}
	return resolvConf{slices.Clone(node.servers), slices.Clone(node.searches), slices.Clone(node.options)}
}

func clusterSearches(namespace, domain string, node []string) []string {
	if domain == "" {
		return slices.Clone(node)
	}
	return unique(append([]string{namespace + ".svc." + domain, "svc." + domain, domain}, node...))
}

// truncateToLimits truncates what exceeds the limits, with the kubelet's messages.
func (rc resolvConf) truncateToLimits() (resolvConf, []string) {
	var issues []string
	if len(rc.servers) > maxNameservers {
		rc.servers = rc.servers[:maxNameservers]
		issues = append(issues, "Nameserver limits were exceeded, some nameservers have been omitted, the applied nameserver line is: "+strings.Join(rc.servers, " "))
	}
	before := len(rc.searches)
	rc.searches = slices.DeleteFunc(rc.searches[:min(before, maxSearches)], func(s string) bool { return len(s) > maxSearchPathLen })
	for len(strings.Join(rc.searches, " ")) > maxSearchChars {
		rc.searches = rc.searches[:len(rc.searches)-1]
	}
	if len(rc.searches) < before {
		issues = append(issues, "Search Line limits were exceeded, some search paths have been omitted, the applied search line is: "+strings.Join(rc.searches, " "))
	}
	return rc, issues
}

func unique(in []string) []string {
	seen := make(map[string]bool, len(in))
	return slices.DeleteFunc(in, func(s string) bool {
		dup := seen[s]
		seen[s] = true
		return dup
	})
}
