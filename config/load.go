package config

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"

	"podd/internal/features"
)

// Load reads the files that the flags name, merges, defaults and checks. The
// error, if any, is an *Error with everything that is wrong.
func (f *Flags) Load() (*Config, error) {
	docs, err := f.documents()
	if err != nil {
		return nil, err
	}
	tree, lines := map[string]any{}, map[string]Problem{}
	for i, d := range docs {
		merge(tree, d.tree)
		if i == 0 {
			if err := setDependentDefaults(tree); err != nil {
				return nil, &Error{[]Problem{{File: d.file, Message: err.Error()}}}
			}
		}
		for field, line := range d.lines {
			lines[field] = Problem{File: d.file, Line: line, Field: field}
		}
	}
	kc, err := decodeTree(tree)
	if err != nil {
		return nil, &Error{[]Problem{{File: docs[len(docs)-1].file, Message: err.Error()}}}
	}
	resolvePaths(kc, docs[0].file)
	if err := f.applyFieldFlags(kc, lines); err != nil {
		return nil, err
	}
	c := &Config{File: docs[0].file, Kubelet: kc, RootDir: f.rootDir, StateDir: f.stateDir, CertDir: f.certDir}
	c.Warnings = f.warnings(kc, lines)
	c.ExemptLongPulls = kc.MaxParallelImagePulls == nil && (kc.SerializeImagePulls == nil || !*kc.SerializeImagePulls)
	address := cmp.Or(kc.Address, "0.0.0.0") // of the API for the cluster, as the kubelet's
	setDefaults(kc)
	check := &checker{where: func(field string) Problem { return positionOf(lines, field) }}
	check.check(kc)
	f.applyOtherFlags(c, check)
	if len(check.problems) > 0 {
		return nil, &Error{check.problems}
	}
	c.Features, _ = features.New(kc.FeatureGates) // was checked
	c.fill(kc)
	c.fillSysctls(kc)
	c.fillAPI(kc, address)
	return c, nil
}

// positionOf is where the field was written: itself, or what it is part of.
func positionOf(lines map[string]Problem, field string) Problem {
	for at := field; at != ""; {
		if p, ok := lines[at]; ok {
			if !strings.HasPrefix(p.Field, "--") {
				p.Field = field
			}
			return p
		}
		i := strings.LastIndexAny(at, ".[")
		at = at[:max(i, 0)]
	}
	return Problem{Field: field}
}

func (f *Flags) documents() ([]*document, error) {
	var docs []*document
	if f.configFile == "" {
		d, err := parseDocument(StandaloneName, Standalone)
		if err != nil {
			return nil, err
		}
		docs = append(docs, d)
	} else {
		d, err := readDocument(f.configFile)
		if err != nil {
			return nil, err
		}
		docs = append(docs, d)
	}
	if f.configDir == "" {
		return docs, nil
	}
	var problems []Problem
	err := filepath.WalkDir(f.configDir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if e.IsDir() || filepath.Ext(path) != ".conf" {
			return nil
		}
		d, err := readDocument(path)
		if wrong, ok := errors.AsType[*Error](err); ok {
			problems = append(problems, wrong.Problems...)
			return nil
		}
		docs = append(docs, d)
		return err
	})
	if err != nil {
		return nil, &Error{[]Problem{{File: f.configDir, Field: "--config-dir", Message: reasonOf(err)}}}
	}
	if len(problems) > 0 {
		return nil, &Error{problems}
	}
	return docs, nil
}

// resolvePaths makes the paths of a file relative to the file, as the kubelet
// does.
func resolvePaths(kc *kubeletv1beta1.KubeletConfiguration, file string) {
	dir, err := filepath.Abs(filepath.Dir(file))
	if err != nil || file == StandaloneName {
		return
	}
	for _, p := range []*string{
		&kc.StaticPodPath, &kc.PodLogsDir, kc.ResolverConfig, &kc.TLSCertFile, &kc.TLSPrivateKeyFile, &kc.Authentication.X509.ClientCAFile,
	} {
		if p != nil && *p != "" && !filepath.IsAbs(*p) {
			*p = filepath.Join(dir, *p)
		}
	}
}

// applyFieldFlags applies the flags that stand for fields.
func (f *Flags) applyFieldFlags(kc *kubeletv1beta1.KubeletConfiguration, lines map[string]Problem) error {
	for _, ff := range f.fields {
		if len(ff.given) == 0 {
			continue
		}
		if ff.name == "manifest-url-header" {
			kc.StaticPodURLHeader = nil
		}
		for _, s := range ff.values() {
			if err := ff.apply(kc, s); err != nil {
				return &Error{[]Problem{{Field: "--" + ff.name, Message: err.Error()}}}
			}
		}
		lines[ff.field] = Problem{Field: "--" + ff.name}
		if ff.kind == "gates" {
			atGates(lines, ff)
		}
	}
	return nil
}

// applyOtherFlags checks and takes over the flags that are no fields of the file.
func (f *Flags) applyOtherFlags(c *Config, check *checker) {
	fail := func(flag, format string, args ...any) {
		check.problems = append(check.problems, Problem{Field: "--" + flag, Message: fmt.Sprintf(format, args...)})
	}
	if f.kubeconfig != "" {
		c.Kubeconfig = absolute(f.kubeconfig, func() {})
	}
	if f.bootstrap != "" {
		c.BootstrapKubeconfig = absolute(f.bootstrap, func() {})
		if f.kubeconfig == "" {
			fail("bootstrap-kubeconfig", "has no effect without --kubeconfig: give the file that podd is to write there")
		}
	}
	f.images.apply(c, fail)
	c.RootDir = absolute(c.RootDir, func() { fail("root-dir", "is empty: give a directory") })
	c.StateDir = absolute(c.StateDir, func() { fail("state-dir", "is empty: give a directory") })
	c.CertDir = absolute(c.CertDir, func() { fail("cert-dir", "is empty: give a directory") })
	var err error
	if c.NodeIPs, err = parseNodeIPs(f.nodeIP); err != nil {
		fail("node-ip", "%v", err)
	}
	if f.cloudProvider != "" && f.cloudProvider != externalCloud {
		fail("cloud-provider", "%q is not supported: give external, for a cloud controller manager, or leave it out", f.cloudProvider)
	}
	c.ExternalCloud = f.cloudProvider == externalCloud
	if c.NodeLabels, err = parseLabels(strings.Join(f.nodeLabels, ",")); err != nil {
		fail("node-labels", "%v", err)
	}
	name := f.hostname
	if name == "" {
		if name, err = os.Hostname(); err != nil {
			fail("hostname-override", "determine the host name: %v: give one", err)
			return
		}
	}
	c.NodeName = strings.ToLower(strings.TrimSpace(name))
	if wrong := validation.IsDNS1123Subdomain(c.NodeName); len(wrong) > 0 {
		fail("hostname-override", "%q cannot be the name of a node: %s", c.NodeName, wrong[0])
	}
}

// absolute makes a path absolute; one that is empty is a mistake.
func absolute(dir string, mistake func()) string {
	abs, err := filepath.Abs(dir)
	if err != nil || dir == "" {
		mistake()
		return dir
	}
	return abs
}

// warnings are about what is set and has no effect.
func (f *Flags) warnings(kc *kubeletv1beta1.KubeletConfiguration, lines map[string]Problem) []string {
	var all []string
	for _, field := range Fields {
		p, set := lines[field.Path]
		alone := field.clusterOnly && f.kubeconfig == ""
		if !set || field.Honoured && !alone || isUnset(kc, field.Path) || field.harmless != nil && field.harmless(kc) {
			continue
		}
		p.Message = "is not supported: " + field.Remark
		if alone {
			p.Message = "has no effect without an apiserver (--kubeconfig)"
		}
		all = append(all, p.String())
	}
	for _, flag := range f.ignored {
		all = append(all, fmt.Sprintf("--%s: has no effect: %s", flag.name, flag.why))
	}
	all = append(all, gateWarnings(kc, lines)...)
	all = append(all, evictionWarnings(kc, lines)...)
	if wrong := enforceWarning(kc.EnforceNodeAllocatable); wrong != "" {
		p := positionOf(lines, "enforceNodeAllocatable")
		p.Message = wrong
		all = append(all, p.String())
	}
	if f.kubeconfig != "" {
		all = append(all, tlsWarnings(kc, lines)...)
	}
	if f.kubeconfig == "" && f.cloudProvider != "" {
		all = append(all, "--cloud-provider: has no effect without an apiserver")
	}
	if f.kubeconfig == "" && f.certDir != f.defaultCertDir {
		all = append(all, "--cert-dir: has no effect without an apiserver")
	}
	return all
}

// fill translates the checked configuration into Go's own types.
func (c *Config) fill(kc *kubeletv1beta1.KubeletConfiguration) {
	c.StaticPodPath = kc.StaticPodPath
	c.StaticPodURL = kc.StaticPodURL
	c.StaticPodURLHeader = http.Header{}
	for name, values := range kc.StaticPodURLHeader {
		for _, v := range values {
			c.StaticPodURLHeader.Add(name, v)
		}
	}
	c.FileCheckFrequency = kc.FileCheckFrequency.Duration
	c.LimitStorage, c.VolumeStatsAggPeriod = *kc.LocalStorageCapacityIsolation, kc.VolumeStatsAggPeriod.Duration
	c.HTTPCheckFrequency = kc.HTTPCheckFrequency.Duration
	c.RuntimeEndpoint = endpointURL(kc.ContainerRuntimeEndpoint)
	c.RuntimeRequestTimeout = kc.RuntimeRequestTimeout.Duration
	c.CgroupRoot, c.CgroupDriver, c.SystemCgroup = kc.CgroupRoot, kc.CgroupDriver, kc.SystemCgroups
	for _, s := range kc.ClusterDNS {
		c.ClusterDNS = append(c.ClusterDNS, netip.MustParseAddr(s)) // was checked
	}
	c.ClusterDomain = kc.ClusterDomain
	c.ResolvConf = *kc.ResolverConfig
	if kc.PodCIDR != "" {
		c.PodCIDR = netip.MustParsePrefix(kc.PodCIDR) // was checked
	}
	c.ParallelImagePulls = 1
	if !*kc.SerializeImagePulls {
		c.ParallelImagePulls = DefaultParallelPulls
		if kc.MaxParallelImagePulls != nil {
			c.ParallelImagePulls = int(*kc.MaxParallelImagePulls)
		}
	}
	c.RegistryPullQPS, c.RegistryBurst = int(*kc.RegistryPullQPS), int(kc.RegistryBurst)
	c.fillResources(kc)
	c.fillCluster(kc)
	c.fillImages(kc)
	c.PodLogsDir = kc.PodLogsDir
	c.OOMScoreAdj = int(*kc.OOMScoreAdj)
	c.RestartBackOffMax = kc.CrashLoopBackOff.MaxContainerRestartPeriod.Duration
	c.SeccompDefault = *kc.SeccompDefault
	c.IDsPerPod = uint32(*kc.UserNamespaces.IDsPerPod)
	c.ReadOnlyAddress = hostPort(kc.Address, kc.ReadOnlyPort)
	c.HealthzAddress = hostPort(kc.HealthzBindAddress, *kc.HealthzPort)
	c.LogFormat = kc.Logging.Format
	c.LogLevel = LevelOf(int(kc.Logging.Verbosity))
}

// LevelOf returns the level of a verbosity: --v, or what /debug/flags/v sets.
func LevelOf(verbosity int) slog.Level {
	if verbosity >= 4 {
		return slog.LevelDebug
	}
	return slog.LevelInfo
}

func endpointURL(s string) string {
	if s == "" || strings.HasPrefix(s, "unix://") {
		return s
	}
	return "unix://" + s
}

func hostPort(host string, port int32) string {
	if port == 0 {
		return ""
	}
	if ip, err := netip.ParseAddr(host); err == nil {
		return netip.AddrPortFrom(ip, uint16(port)).String()
	}
	return host + ":" + strconv.Itoa(int(port))
}
