package config

import (
	"fmt"
	"net/netip"
	"net/url"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"

	"podd/internal/mask"
)

// checker collects what is wrong with values, each with the place where it was
// written.
type checker struct {
	where    func(field string) Problem
	problems []Problem
}

func (c *checker) fail(field, format string, args ...any) {
	p := c.where(field)
	p.Message = fmt.Sprintf(format, args...)
	c.problems = append(c.problems, p)
}

func (c *checker) port(field string, port int32) {
	if port < 0 || port > 65535 {
		c.fail(field, "%d is not a port: give one from 1 to 65535, or 0 for none", port)
	}
}

func (c *checker) ip(field, s string) netip.Addr {
	ip, err := netip.ParseAddr(s)
	if err != nil {
		c.fail(field, "%q is not an IP address", s)
	}
	return ip
}

func (c *checker) interval(field string, d, least time.Duration) {
	if d < least {
		c.fail(field, "%s is too short: give at least %s", d, least)
	}
}

func (c *checker) absolute(field, path string) {
	if path != "" && !filepath.IsAbs(path) {
		c.fail(field, "%q is not an absolute path", path)
	}
}

// check judges the values of all honoured fields, after defaulting.
func (c *checker) check(kc *kubeletv1beta1.KubeletConfiguration) {
	c.interval("fileCheckFrequency", kc.FileCheckFrequency.Duration, 100*time.Millisecond)
	c.interval("httpCheckFrequency", kc.HTTPCheckFrequency.Duration, 100*time.Millisecond)
	c.interval("runtimeRequestTimeout", kc.RuntimeRequestTimeout.Duration, time.Second)
	c.absolute("staticPodPath", kc.StaticPodPath)
	c.absolute("podLogsDir", kc.PodLogsDir)
	c.absolute("resolvConf", *kc.ResolverConfig)
	c.port("readOnlyPort", kc.ReadOnlyPort)
	c.port("healthzPort", *kc.HealthzPort)
	if kc.ReadOnlyPort != 0 && kc.ReadOnlyPort == *kc.HealthzPort {
		c.fail("readOnlyPort", "%d is also the healthzPort: give each its own port", kc.ReadOnlyPort)
	}
	c.ip("address", kc.Address)
	c.ip("healthzBindAddress", kc.HealthzBindAddress)
	c.gates(kc)
	c.sysctls(kc)
	c.source(kc)
	c.pulls(kc)
	c.images(kc)
	c.network(kc)
	c.resources(kc)
	c.shutdown(kc)
	c.cluster(kc)
	c.api(kc)
	if n := *kc.OOMScoreAdj; n < -1000 || n > 1000 {
		c.fail("oomScoreAdj", "%d is out of range: give a number from -1000 to 1000", n)
	}
	if d := kc.CrashLoopBackOff.MaxContainerRestartPeriod.Duration; d < time.Second || d > 300*time.Second {
		c.fail("crashLoopBackOff.maxContainerRestartPeriod", "%s is out of range: give 1s to 300s", d)
	}
	if n := *kc.UserNamespaces.IDsPerPod; n < 1<<16 || n > 1<<31 || n%(1<<16) != 0 {
		c.fail("userNamespaces.idsPerPod", "%d is not a multiple of 65536 from 65536 to %d", n, int64(1<<31))
	}
	if d := kc.CgroupDriver; d != "cgroupfs" && d != "systemd" {
		c.fail("cgroupDriver", "%q is not a driver: give systemd or cgroupfs", d)
	}
	if r := kc.CgroupRoot; r != "" && !strings.HasPrefix(r, "/") {
		c.fail("cgroupRoot", "%q does not begin with a slash: give the cgroup's name from the root, such as /podd", r)
	}
	switch s := kc.SystemCgroups; {
	case s == "":
	case !strings.HasPrefix(s, "/"):
		c.fail("systemCgroups", "%q does not begin with a slash: give the cgroup's name from the root, such as /system", s)
	case filepath.Clean(s) == "/":
		c.fail("systemCgroups", "is the root of all cgroups: give one below it, such as /system")
	case kc.CgroupRoot == "":
		c.fail("systemCgroups", "is given without cgroupRoot: set that, too, to / if pods' cgroups are to be at the top")
	}
	if f := kc.Logging.Format; f != "text" && f != "json" {
		c.fail("logging.format", "%q is not a format: give text or json", f)
	}
	c.endpoint("containerRuntimeEndpoint", kc.ContainerRuntimeEndpoint)
}

func (c *checker) source(kc *kubeletv1beta1.KubeletConfiguration) {
	if kc.StaticPodURL == "" {
		if len(kc.StaticPodURLHeader) > 0 {
			c.fail("staticPodURLHeader", "is given without staticPodURL")
		}
		return
	}
	u, err := url.Parse(kc.StaticPodURL)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		c.fail("staticPodURL", "%q is not a URL: give http://host/path or https://host/path", mask.URL(kc.StaticPodURL))
	}
}

func (c *checker) pulls(kc *kubeletv1beta1.KubeletConfiguration) {
	if n := *kc.RegistryPullQPS; n < 0 {
		c.fail("registryPullQPS", "%d is negative: give 0 for no limit", n)
	}
	if kc.RegistryBurst < 0 {
		c.fail("registryBurst", "%d is negative", kc.RegistryBurst)
	}
	n := kc.MaxParallelImagePulls
	switch {
	case n == nil:
	case *n < 1:
		c.fail("maxParallelImagePulls", "%d is not positive: give 1 to pull one at a time, or more", *n)
	case *n > 1 && *kc.SerializeImagePulls:
		c.fail("maxParallelImagePulls", "%d contradicts serializeImagePulls: true: set that to false, or leave it out", *n)
	}
}

func (c *checker) network(kc *kubeletv1beta1.KubeletConfiguration) {
	for i, s := range kc.ClusterDNS {
		c.ip(fmt.Sprintf("clusterDNS[%d]", i), s)
	}
	if kc.ClusterDomain != "" {
		if wrong := validation.IsDNS1123Subdomain(strings.TrimSuffix(kc.ClusterDomain, ".")); len(wrong) > 0 {
			c.fail("clusterDomain", "%q is not a domain: %s", kc.ClusterDomain, wrong[0])
		}
	}
	if kc.PodCIDR == "" {
		return
	}
	if p, err := netip.ParsePrefix(kc.PodCIDR); err != nil {
		c.fail("podCIDR", "%q is not a network: give one such as 10.88.0.0/16", kc.PodCIDR)
	} else if p != p.Masked() {
		c.fail("podCIDR", "%s has bits set beyond its prefix: did you mean %s?", p, p.Masked())
	}
}

func (c *checker) endpoint(field, s string) {
	if s == "" {
		return
	}
	if path := strings.TrimPrefix(s, "unix://"); !filepath.IsAbs(path) {
		c.fail(field, "%q is not a socket: give unix:///run/containerd/containerd.sock or its like", s)
	}
}
