package spec

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/node/util/sysctl"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"podd/internal/pod"
)

// Sandbox returns the configuration of a pod's sandbox. The error says which request of the
// pod cannot be met.
func Sandbox(o Options, req pod.SandboxRequest) (*runtimeapi.PodSandboxConfig, error) {
	p, in := req.Pod, req.Inputs
	config := &runtimeapi.PodSandboxConfig{
		Metadata:     &runtimeapi.PodSandboxMetadata{Name: p.Name, Namespace: p.Namespace, Uid: string(p.UID), Attempt: req.Attempt},
		Hostname:     in.Hostname,
		LogDirectory: o.Dirs.Logs(p.Namespace, p.Name, p.UID),
		DnsConfig:    &runtimeapi.DNSConfig{Servers: in.DNS.Servers, Searches: in.DNS.Searches, Options: in.DNS.Options},
		PortMappings: portMappings(p),
		Labels:       podLabels(p),
		Annotations:  podAnnotations(p, o.Instance, req.Source, req.StartTime),
	}
	security, err := sandboxSecurity(o, p, req.Handler)
	if err != nil {
		return nil, err
	}
	security.NamespaceOptions.UsernsOptions = userNamespace(in.UserNamespace)
	config.Linux = &runtimeapi.LinuxPodSandboxConfig{
		SecurityContext: security,
		Sysctls:         map[string]string{},
		Overhead:        overheadResources(o, p),
		Resources:       sandboxResources(o, p),
		CgroupParent:    in.CgroupParent,
	}
	for name, value := range o.DefaultSysctls {
		if ownsNamespace(p, name) {
			config.Linux.Sysctls[name] = value
		}
	}
	if sc := p.Spec.SecurityContext; sc != nil {
		for _, s := range sc.Sysctls {
			// Runtimes know the notation with dots only, and containerd adds its
			// own default for a name that it does not find. Of two
			// notations of one sysctl the later holds, as in the kubelet.
			config.Linux.Sysctls[sysctl.NormalizeName(s.Name)] = s.Value
		}
	}
	return config, nil
}

// ownsNamespace says that a sysctl belongs to a namespace that the pod does not share with the
// host, by upstream's rules (pkg/kubelet/kuberuntime, applyPodSysctls).
func ownsNamespace(p *v1.Pod, name string) bool {
	switch ns, _, _ := sysctl.GetNamespace(name); ns {
	case sysctl.IPCNamespace:
		return !p.Spec.HostIPC
	case sysctl.NetNamespace:
		return !p.Spec.HostNetwork
	case sysctl.UserNamespace:
		return p.Spec.HostUsers != nil && !*p.Spec.HostUsers
	case sysctl.UTSNamespace:
		return !p.Spec.HostNetwork
	}
	return false
}

// userNamespace returns the node's own for nil, or the pod's with its range of IDs.
func userNamespace(ids *pod.IDRange) *runtimeapi.UserNamespace {
	if ids == nil {
		return &runtimeapi.UserNamespace{Mode: runtimeapi.NamespaceMode_NODE}
	}
	mapping := []*runtimeapi.IDMapping{{HostId: ids.First, ContainerId: 0, Length: ids.Length}}
	return &runtimeapi.UserNamespace{Mode: runtimeapi.NamespaceMode_POD, Uids: mapping, Gids: mapping}
}

// portMappings returns the ports of the main containers, not of sidecars, as the kubelet
// does. The runtime's CNI maps those with a host port.
func portMappings(p *v1.Pod) []*runtimeapi.PortMapping {
	type key struct {
		protocol v1.Protocol
		ip       string
		host     int32
		port     int32
	}
	var out []*runtimeapi.PortMapping
	for i := range p.Spec.Containers {
		seen := map[key]bool{}
		for _, cp := range p.Spec.Containers[i].Ports {
			k := key{cp.Protocol, cp.HostIP, cp.HostPort, cp.ContainerPort}
			if seen[k] {
				continue
			}
			seen[k] = true
			out = append(out, &runtimeapi.PortMapping{
				Protocol:      protocol(cp.Protocol),
				ContainerPort: cp.ContainerPort,
				HostPort:      cp.HostPort,
				HostIp:        cp.HostIP,
			})
		}
	}
	return out
}

func protocol(p v1.Protocol) runtimeapi.Protocol {
	switch p {
	case v1.ProtocolUDP:
		return runtimeapi.Protocol_UDP
	case v1.ProtocolSCTP:
		return runtimeapi.Protocol_SCTP
	default:
		return runtimeapi.Protocol_TCP
	}
}
