package config

import (
	"strings"
	"testing"

	"podd/internal/features"
	"podd/internal/versions"
)

func TestFeatureGates(t *testing.T) {
	c, err := load(t, head+"featureGates:\n  MemoryQoS: false\n  EmptyDirVolumeMode: true\n", "--feature-gates=EmptyDirVolumeMode=false,H2CContainerProbe=true", "--feature-gates=PodsAPI=false")
	if err != nil {
		t.Fatal(err)
	}
	for gate, want := range map[features.Gate]bool{"MemoryQoS": false, "EmptyDirVolumeMode": false, "H2CContainerProbe": true, "PodsAPI": false, "PodLevelResources": true} {
		if got := c.Features.Enabled(gate); got != want {
			t.Errorf("%s: got %t: each gate of a flag is over that of the file", gate, got)
		}
	}
}

// TestABadGateIsNamedWhereItIsWritten: a gate that is misspelt or locked ends the start.
func TestABadGateIsNamedWhereItIsWritten(t *testing.T) {
	for name, c := range map[string]struct {
		body string
		args []string
		want string
	}{
		"misspelt in the file": {"featureGates:\n  PodsAPI: true\n  MemoryQOS: true\n", nil, "FILE:5: featureGates[MemoryQOS]: unrecognized feature gate: Kubernetes " + versions.KubernetesMinor + " has none of this name: did you mean MemoryQoS?"},
		"misspelt in a flag":   {"", []string{"--feature-gates=MemoryQOS=true"}, "--feature-gates: MemoryQOS: unrecognized feature gate: Kubernetes " + versions.KubernetesMinor + " has none of this name: did you mean MemoryQoS?"},
		"locked":               {"featureGates: {DRAAdminAccess: false}\n", nil, "FILE:3: featureGates[DRAAdminAccess]: cannot set feature gate DRAAdminAccess to false, feature is locked to true: leave it out"},
		"locked, by a flag":    {"featureGates: {DRAAdminAccess: true}\n", []string{"--feature-gates=DRAAdminAccess=false"}, "--feature-gates: DRAAdminAccess: cannot set feature gate"},
		"without its need":     {"featureGates: {WorkloadWithJob: true}\n", nil, "FILE:3: featureGates[WorkloadWithJob]: WorkloadWithJob is enabled, but depends on features that are disabled: [GenericWorkload]"},
		"no value":             {"", []string{"--feature-gates=MemoryQoS"}, `"MemoryQoS" is not a feature gate with a value: give MemoryQoS=true or MemoryQoS=false`},
		"no boolean":           {"featureGates: {MemoryQoS: sometimes}\n", nil, "FILE:3: featureGates[MemoryQoS]: got a string, want true or false"},
	} {
		body := c.body
		if body != "" {
			body = head + body
		}
		if _, err := load(t, body, c.args...); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %s", name, err, c.want)
		}
	}
}

func TestAGateThatMakesNoDifferenceIsTold(t *testing.T) {
	c, err := load(t, head+"featureGates:\n  OpenAPIEnums: false\n  OpportunisticBatching: true\n")
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Warnings) != 1 || c.Warnings[0] != "FILE:4: featureGates[OpenAPIEnums]: makes no difference: podd does not have this feature gate" {
		t.Errorf("got %q", c.Warnings)
	}
	if c, err = load(t, "", "--feature-gates=OpenAPIEnums=false"); err != nil || len(c.Warnings) != 1 || !strings.HasPrefix(c.Warnings[0], "--feature-gates: OpenAPIEnums: makes no difference") {
		t.Errorf("got %v, %v", c, err)
	}
}

func TestDefaultPodSysctls(t *testing.T) {
	const on = head + "featureGates: {DefaultPodSysctls: true}\n"
	c, err := load(t, on+"defaultPodSysctls: {net/ipv4/tcp_keepalive_time: '60', kernel.shm_rmid_forced: '1'}\n")
	if err != nil {
		t.Fatal(err)
	}
	if len(c.DefaultPodSysctls) != 2 || c.DefaultPodSysctls["net.ipv4.tcp_keepalive_time"] != "60" {
		t.Errorf("got %v", c.DefaultPodSysctls)
	}
	for body, want := range map[string]string{
		head + "defaultPodSysctls: {net.core.somaxconn: '60'}\n":                          "FILE:3: defaultPodSysctls: needs the feature gate DefaultPodSysctls: switch it on in featureGates",
		on + "defaultPodSysctls: {vm.swappiness: '60'}\n":                                 `FILE:4: defaultPodSysctls: the sysctl "vm.swappiness" is not known to belong to a namespace of a pod`,
		on + "defaultPodSysctls: {net.*: '60'}\n":                                         `"net.*" is not the name of a sysctl`,
		on + "defaultPodSysctls: {'': '60'}\n":                                            `"" is not the name of a sysctl`,
		on + "defaultPodSysctls: {net.core.somaxconn: '1', net/core/somaxconn: '2'}\n":    `"net.core.somaxconn" and "net/core/somaxconn" are one sysctl: keep one`,
		on + "defaultPodSysctls: {net." + strings.Repeat("x", 250) + ": '1'}\n":           "is not the name of a sysctl",
		head + "featureGates: {DefaultPodSysctl: true}\ndefaultPodSysctls: {a.b: '60'}\n": "did you mean DefaultPodSysctls?",
	} {
		if _, err := load(t, body); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}
