package config

import (
	"maps"
	"regexp"
	"slices"

	"k8s.io/component-helpers/node/util/sysctl"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"

	"podd/internal/features"
)

const gatesField = "featureGates"

// atGate returns the path of a gate in the configuration.
func atGate[T ~string](name T) string { return gatesField + "[" + string(name) + "]" }

// addGates applies the gates of --feature-gates on top of those of the file, one by one, as
// the kubelet does.
func addGates(c *kc, s string) error {
	given, err := features.Parse(s)
	if err != nil {
		return err
	}
	if c.FeatureGates == nil {
		c.FeatureGates = map[string]bool{}
	}
	maps.Copy(c.FeatureGates, given)
	return nil
}

// atGates records for each gate of a flag that the flag has set it.
func atGates(lines map[string]Problem, ff *fieldFlag) {
	for _, s := range ff.given {
		given, _ := features.Parse(s) // was parsed before
		for name := range given {
			lines[atGate(name)] = Problem{Field: "--" + ff.name + ": " + name}
		}
	}
}

func (c *checker) gates(kc *kubeletv1beta1.KubeletConfiguration) {
	_, wrong := features.New(kc.FeatureGates)
	for _, n := range wrong {
		c.fail(atGate(n.Gate), "%s", n.Message)
	}
}

// sysctls checks defaultPodSysctls, as upstream does.
func (c *checker) sysctls(kc *kubeletv1beta1.KubeletConfiguration) {
	const path = "defaultPodSysctls"
	if len(kc.DefaultPodSysctls) == 0 {
		return
	}
	if set, wrong := features.New(kc.FeatureGates); len(wrong) == 0 && !set.Enabled(features.DefaultPodSysctls) {
		c.fail(path, "needs the feature gate DefaultPodSysctls: switch it on in featureGates, or write the sysctls into the pods")
		return
	}
	seen := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(kc.DefaultPodSysctls)) {
		normal := sysctl.NormalizeName(name)
		ns, _, _ := sysctl.GetNamespace(name)
		switch {
		case len(name) > maxSysctl || !sysctlName.MatchString(name):
			c.fail(path, "%q is not the name of a sysctl: give one such as net.ipv4.tcp_keepalive_time", name)
		case ns == sysctl.UnknownNamespace:
			c.fail(path, "the sysctl %q is not known to belong to a namespace of a pod: give kernel.shm*, kernel.msg*, kernel.sem, fs.mqueue.*, net.*, kernel.domainname or user.* only", name)
		case seen[normal] != "":
			c.fail(path, "%q and %q are one sysctl: keep one", seen[normal], name)
		}
		seen[normal] = name
	}
}

// sysctlName and maxSysctl are upstream's (pkg/kubelet/apis/config/validation).
var sysctlName = regexp.MustCompile(`^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$`)

const maxSysctl = 253

// fillSysctls must only be called if sysctls has found no problem.
func (c *Config) fillSysctls(kc *kubeletv1beta1.KubeletConfiguration) {
	for name, value := range kc.DefaultPodSysctls {
		if c.DefaultPodSysctls == nil {
			c.DefaultPodSysctls = map[string]string{}
		}
		c.DefaultPodSysctls[sysctl.NormalizeName(name)] = value
	}
}

// gateWarnings returns warnings about gates that have no effect, or that a later release drops.
func gateWarnings(kc *kubeletv1beta1.KubeletConfiguration, lines map[string]Problem) []string {
	var all []string
	for _, n := range features.Notes(kc.FeatureGates) {
		p := positionOf(lines, atGate(n.Gate))
		p.Message = n.Message
		all = append(all, p.String())
	}
	return all
}
