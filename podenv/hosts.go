package podenv

import (
	"bytes"
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
)

const (
	// hostnameMax is the kernel's limit of the node name as a DNS label.
	hostnameMax = 63
	// fqdnMax is the kernel's limit of the node name.
	fqdnMax = 64

	hostsHeader     = "# Kubernetes-managed hosts file.\n"
	hostsHeaderHost = "# Kubernetes-managed hosts file (host network).\n"
)

// hostnameAndDomain is the pod's short name and its domain ("" without a
// subdomain), by the rules of the kubelet's GeneratePodHostNameAndDomain.
func hostnameAndDomain(p *v1.Pod, clusterDomain string) (hostname, domain string) {
	if o := p.Spec.HostnameOverride; o != nil {
		return cutHostname(*o), ""
	}
	hostname = p.Name
	if p.Spec.Hostname != "" {
		hostname = p.Spec.Hostname
	}
	if p.Spec.Subdomain != "" {
		domain = fmt.Sprintf("%s.%s.svc.%s", p.Spec.Subdomain, p.Namespace, clusterDomain)
	}
	return cutHostname(hostname), domain
}

func cutHostname(name string) string {
	if len(name) <= hostnameMax {
		return name
	}
	return strings.TrimRight(name[:hostnameMax], "-.")
}

// kernelHostname is the host name in the sandbox's UTS namespace.
func kernelHostname(p *v1.Pod, clusterDomain string) (string, error) {
	hostname, domain := hostnameAndDomain(p, clusterDomain)
	if domain == "" || p.Spec.SetHostnameAsFQDN == nil || !*p.Spec.SetHostnameAsFQDN {
		return hostname, nil
	}
	fqdn := hostname + "." + domain
	if len(fqdn) > fqdnMax {
		return "", fmt.Errorf("failed to construct FQDN from pod hostname and cluster domain, FQDN %s is too long (%d characters is the max, %d characters requested)", fqdn, fqdnMax, len(fqdn))
	}
	return fqdn, nil
}

// hostsFile is the content of a pod's /etc/hosts. nodeHosts is the node's own file,
// to which aliases are appended for pods on the host's network.
func hostsFile(p *v1.Pod, ips []string, clusterDomain string, nodeHosts []byte) []byte {
	var b bytes.Buffer
	if p.Spec.HostNetwork {
		b.WriteString(hostsHeaderHost)
		b.Write(nodeHosts)
		writeAliases(&b, p.Spec.HostAliases)
		return b.Bytes()
	}
	b.WriteString(hostsHeader)
	b.WriteString("127.0.0.1\tlocalhost\n" +
		"::1\tlocalhost ip6-localhost ip6-loopback\n" +
		"fe00::0\tip6-localnet\n" +
		"fe00::0\tip6-mcastprefix\n" +
		"fe00::1\tip6-allnodes\n" +
		"fe00::2\tip6-allrouters\n")
	hostname, domain := hostnameAndDomain(p, clusterDomain)
	for _, ip := range ips {
		if domain == "" {
			fmt.Fprintf(&b, "%s\t%s\n", ip, hostname)
		} else {
			fmt.Fprintf(&b, "%s\t%s.%s\t%s\n", ip, hostname, domain, hostname)
		}
	}
	writeAliases(&b, p.Spec.HostAliases)
	return b.Bytes()
}

func writeAliases(b *bytes.Buffer, aliases []v1.HostAlias) {
	if len(aliases) == 0 {
		return
	}
	b.WriteString("\n# Entries added by HostAliases.\n")
	for _, a := range aliases {
		fmt.Fprintf(b, "%s\t%s\n", a.IP, strings.Join(a.Hostnames, "\t"))
	}
}
