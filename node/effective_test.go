package node

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"

	"podd/config"
)

// logged is the line of a configuration.
func logged(kc *kubeletv1beta1.KubeletConfiguration) string {
	var b bytes.Buffer
	slog.New(slog.NewTextHandler(&b, nil)).Info("effective configuration", configAttrs(kc)...)
	return b.String()
}

func TestTheConfigurationIsOneLineOfTheLog(t *testing.T) {
	swap := true
	kc := &kubeletv1beta1.KubeletConfiguration{
		StaticPodPath: "/etc/podd/manifests", ClusterDNS: []string{"10.0.0.10"}, MaxPods: 7, FailSwapOn: &swap,
		StaticPodURL: "https://cfg.test/pods?token=geheim", StaticPodURLHeader: map[string][]string{"Authorization": {"Bearer geheim"}},
		EvictionHard: map[string]string{"memory.available": "100Mi"},
	}
	got := logged((&config.Config{Kubelet: kc}).Masked())
	for _, want := range []string{` staticPodPath=/etc/podd/manifests`, ` clusterDNS="[\"10.0.0.10\"]"`, ` maxPods=7`, ` failSwapOn=true`, ` evictionHard="{\"memory.available\":\"100Mi\"}"`, "Authorization"} {
		if !strings.Contains(got, want) {
			t.Errorf("it lacks %s: %s", want, got)
		}
	}
	if strings.Count(got, "\n") != 1 || strings.Contains(got, "geheim") || strings.Contains(got, "fields_omitted") {
		t.Errorf("got %s", got)
	}
}

func TestALargeConfigurationIsCut(t *testing.T) {
	kc := &kubeletv1beta1.KubeletConfiguration{StaticPodPath: "/x", SystemReserved: map[string]string{}}
	for i := range 10_000 {
		kc.AllowedUnsafeSysctls = append(kc.AllowedUnsafeSysctls, fmt.Sprint("net.", i))
		kc.SystemReserved[fmt.Sprint("x", i)] = "1"
	}
	got := logged(kc)
	if len(got) > 2*maxConfigLog || !strings.Contains(got, "net.3") || !strings.Contains(got, "…") || !strings.Contains(got, " staticPodPath=/x") {
		t.Errorf("%d bytes: %s", len(got), got)
	}
	long := strings.Repeat("x", maxConfigValue)
	kc.PodCIDR, kc.ProviderID, kc.ClusterDomain, kc.VolumePluginDir, kc.SystemCgroups, kc.KubeletCgroups, kc.CgroupRoot = long, long, long, long, long, long, long
	kc.TLSCertFile, kc.TLSPrivateKeyFile, kc.TLSMinVersion, kc.StaticPodURL, kc.Address, kc.HealthzBindAddress = long, long, long, long, long, long
	kc.ResolverConfig, kc.ContainerRuntimeEndpoint, kc.ImageServiceEndpoint, kc.ContainerLogMaxSize = &long, long, long, long
	kc.SystemReservedCgroup, kc.KubeReservedCgroup, kc.CPUManagerPolicy, kc.MemoryManagerPolicy, kc.TopologyManagerPolicy, kc.HairpinMode, kc.CgroupDriver, kc.TopologyManagerScope = long, long, long, long, long, long, long, long
	if got := logged(kc); len(got) > 2*maxConfigLog || !strings.Contains(got, " fields_omitted=") {
		t.Errorf("%d bytes: %s", len(got), got)
	}
}
