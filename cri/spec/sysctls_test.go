package spec

import (
	"maps"
	"testing"

	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
)

// TestDefaultSysctlsAreForPodsWithTheNamespaceForThemselves: a sysctl of the node's own
// namespace would change the node, or fail.
func TestDefaultSysctlsAreForPodsWithTheNamespaceForThemselves(t *testing.T) {
	o := Options{DefaultSysctls: map[string]string{
		"net.ipv4.tcp_keepalive_time": "60", "kernel.shmmax": "1", "fs.mqueue.msg_max": "20", "kernel.domainname": "example", "user.max_user_namespaces": "5",
	}}
	no := false
	const net, domain, shm, mqueue, user = "net.ipv4.tcp_keepalive_time", "kernel.domainname", "kernel.shmmax", "fs.mqueue.msg_max", "user.max_user_namespaces"
	for name, c := range map[string]struct {
		change func(*v1.PodSpec)
		want   map[string]string
	}{
		"a plain pod":        {func(*v1.PodSpec) {}, map[string]string{net: "60", domain: "example", shm: "1", mqueue: "20"}},
		"the node's network": {func(s *v1.PodSpec) { s.HostNetwork = true }, map[string]string{shm: "1", mqueue: "20"}},
		"the node's IPC":     {func(s *v1.PodSpec) { s.HostIPC = true }, map[string]string{net: "60", domain: "example"}},
		"its own users":      {func(s *v1.PodSpec) { s.HostUsers = &no }, map[string]string{net: "60", domain: "example", shm: "1", mqueue: "20", user: "5"}},
		"a sysctl of its own": {func(s *v1.PodSpec) {
			s.SecurityContext = &v1.PodSecurityContext{Sysctls: []v1.Sysctl{{Name: "net/ipv4/tcp_keepalive_time", Value: "90"}}}
		}, map[string]string{net: "90", domain: "example", shm: "1", mqueue: "20"}},
	} {
		p := &v1.Pod{}
		c.change(&p.Spec)
		config, err := Sandbox(o, pod.SandboxRequest{Pod: p})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if !maps.Equal(config.Linux.Sysctls, c.want) {
			t.Errorf("%s: got %v, want %v", name, config.Linux.Sysctls, c.want)
		}
	}
}
