package podenv

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
)

// dns reads the node's resolver configuration for each sandbox: it changes with the
// network, and is one small file.
func (r *Resolver) dns(p *v1.Pod) (pod.DNS, []pod.Warning, error) {
	var node resolvConf
	var err error
	none := r.cfg.ResolvConf != nil && *r.cfg.ResolvConf == ""
	if !none && p.Spec.DNSPolicy != v1.DNSNone {
		if node, err = nodeResolvConf(r.cfg.ResolvConf); err != nil {
			return pod.DNS{}, nil, err
		}
	}
	var local []string
	if none {
		local = localResolvers(r.nodeIPs())
	}
	dns, issues := podDNS(p, node, local, r.cfg.ClusterDNS, r.cfg.ClusterDomain)
	return dns, r.warnings(p, issues), nil
}

// warnings are about parts of the pod's DNS configuration that are not available.
func (r *Resolver) warnings(p *v1.Pod, issues dnsIssues) []pod.Warning {
	var out []pod.Warning
	// If no cluster DNS is configured at all, ClusterFirst is merely the default: not
	// worth a warning for each pod.
	if issues.noClusterDNS && r.cfg.ClusterDomain != "" {
		out = append(out, pod.Warning{Reason: "MissingClusterDNS", Message: fmt.Sprintf(
			"pod: %q. podd does not have ClusterDNS IP configured and cannot create Pod using %q policy. Falling back to %q policy.",
			p.Name+"_"+p.Namespace+"("+string(p.UID)+")", v1.DNSClusterFirst, v1.DNSDefault)})
	}
	for _, n := range issues.limits {
		out = append(out, pod.Warning{Reason: "DNSConfigForming", Message: n})
	}
	return out
}

// systemdResolved is where systemd-resolved writes the actual servers;
// /etc/resolv.conf only has its stub.
const systemdResolved = "/run/systemd/resolve/resolv.conf"

func nodeResolvConf(path *string) (resolvConf, error) {
	name := "/etc/resolv.conf"
	if path != nil {
		name = *path
	}
	rc, err := readResolvConf(name)
	if err != nil {
		if path == nil && errors.Is(err, fs.ErrNotExist) {
			return resolvConf{}, nil // pods run on a node without a resolver, too
		}
		return rc, err
	}
	if path == nil && rc.stubOnly() {
		if real, err := readResolvConf(systemdResolved); err == nil {
			return real, nil
		}
	}
	return rc, nil
}

func readResolvConf(name string) (resolvConf, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return resolvConf{}, fmt.Errorf("read the node's resolver configuration: %w", err)
	}
	rc, err := parseResolvConf(string(text))
	if err != nil {
		return rc, fmt.Errorf("parse %s: %w", name, err)
	}
	return rc, nil
}
