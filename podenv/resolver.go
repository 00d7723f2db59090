package podenv

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"

	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
)

// Volumes knows where volumes are.
type Volumes interface {
	// Path is where a volume of a pod, which is set up, is on the host.
	Path(p *v1.Pod, volume string) (string, error)
}

// Config is the node's facts and settings that pods see. The zero value of each
// field is usable.
type Config struct {
	// NodeName is spec.nodeName for pods that do not carry it.
	NodeName string
	// NodeIPs returns what answers status.hostIP and status.hostIPs now, primary first. It
	// must not block, and may be nil for none.
	NodeIPs func() []string
	// Allocatable answers resourceFieldRef for limits that are not set.
	Allocatable v1.ResourceList

	// ClusterDNS servers and ClusterDomain for dnsPolicy ClusterFirst.
	ClusterDNS    []string
	ClusterDomain string
	// ResolvConf is the node's resolver configuration, for dnsPolicy Default:
	// nil is /etc/resolv.conf, or systemd-resolved's real file when that one
	// only names its stub; "" is no resolver at all, as in the kubelet.
	ResolvConf *string

	// CgroupParent names a pod's cgroup, in the form of the runtime's driver;
	// nil leaves the choice to the runtime.
	CgroupParent func(*v1.Pod) string
	// UserNamespace gives a pod with hostUsers: false its range of the node's IDs:
	// the first, and how many. nil rejects such pods.
	UserNamespace func(uid pod.UID) (first, length uint32, err error)

	// BuiltinNetwork: the pod network is podd's, which has addresses of IPv4 only.
	BuiltinNetwork bool

	// Objects has the ConfigMaps and Secrets; nil for none.
	Objects Objects
	// Services are the cluster's, or NoServices.
	Services *Services
	// Volumes finds the files of variables (fileKeyRef); nil rejects these.
	Volumes Volumes
}

// Resolver computes inputs. Make it with New.
type Resolver struct{ cfg Config }

func (r *Resolver) nodeIPs() []string {
	if r.cfg.NodeIPs == nil {
		return nil
	}
	return r.cfg.NodeIPs()
}

// New returns a Resolver of these facts.
func New(cfg Config) *Resolver {
	if cfg.Objects == nil {
		cfg.Objects = noObjects{}
	}
	return &Resolver{cfg: cfg}
}

// Sandbox computes the inputs of a pod's sandbox. It reads the node's resolver
// configuration, and may block for the user namespace's range.
func (r *Resolver) Sandbox(p *v1.Pod) (in pod.SandboxInputs, err error) {
	if in.DNS, in.Warnings, err = r.dns(p); err != nil {
		return in, err
	}
	if r.cfg.BuiltinNetwork {
		for _, dead := range pod.UnreachableHostPorts(p) {
			in.Warnings = append(in.Warnings, pod.Warning{Reason: "HostPortUnreachable", Message: dead.String()})
		}
	}
	if !p.Spec.HostNetwork {
		if in.Hostname, err = kernelHostname(p, r.cfg.ClusterDomain); err != nil {
			return in, err
		}
	}
	if in.ResolvConf, in.HostnameFile, err = sandboxFiles(in.DNS, in.Hostname); err != nil {
		return in, err
	}
	if in.UserNamespace, err = r.userNamespace(p); err != nil {
		return in, err
	}
	if r.cfg.CgroupParent != nil {
		in.CgroupParent = r.cfg.CgroupParent(p)
	}
	return in, nil
}

// userNamespace is the pod's range of IDs, or nil for the node's namespace.
func (r *Resolver) userNamespace(p *v1.Pod) (*pod.IDRange, error) {
	if p.Spec.HostUsers == nil || *p.Spec.HostUsers {
		return nil, nil
	}
	if r.cfg.UserNamespace == nil {
		return nil, fmt.Errorf("can't set `spec.hostUsers: false`: this node has no user and group IDs for pods")
	}
	first, length, err := r.cfg.UserNamespace(p.UID)
	if err != nil {
		return nil, err
	}
	return &pod.IDRange{First: first, Length: length}, nil
}

// Container computes the inputs of a container that is about to start. sandboxIPs are the
// addresses of its ready sandbox, as observed; a pod on the node's network has the
// node's.
func (r *Resolver) Container(p *v1.Pod, c *v1.Container, sandboxIPs []string) (in pod.ContainerInputs, err error) {
	ips := sandboxIPs
	if p.Spec.HostNetwork {
		ips = r.nodeIPs()
	}
	if in.Env, err = r.environment(p, c, pod.PodIPs(ips, r.nodeIPs())); err != nil {
		return in, err
	}
	if in.SubPaths, err = subPaths(c, in.Env.Values); err != nil {
		return in, err
	}
	if !mounts(c, pod.EtcHosts) {
		in.Hosts, err = r.hosts(p, ips)
	}
	return in, err
}

// mounts says that the container mounts a volume there.
func mounts(c *v1.Container, place string) bool {
	for i := range c.VolumeMounts {
		if path.Join("/", c.VolumeMounts[i].MountPath) == place {
			return true
		}
	}
	return false
}

func (r *Resolver) hosts(p *v1.Pod, ips []string) ([]byte, error) {
	var node []byte
	if p.Spec.HostNetwork {
		var err error
		if node, err = os.ReadFile(pod.EtcHosts); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("read the node's hosts file: %w", err)
		}
	}
	return hostsFile(p, ips, r.cfg.ClusterDomain, node), nil
}
