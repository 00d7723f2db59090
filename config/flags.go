package config

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	logsapi "k8s.io/component-base/logs/api/v1"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"

	"podd/internal/instance"
)

// Flags are the flags of podd run. Bind them to a flag set, parse, then Load.
type Flags struct {
	configFile, configDir   string
	rootDir, stateDir       string
	certDir, defaultCertDir string
	kubeconfig, bootstrap   string
	hostname, nodeIP        string
	cloudProvider           string
	nodeLabels              []string

	images imageFlags

	// fields are the flags that stand for fields of the configuration file.
	fields []*fieldFlag
	// ignored are the flags that were given and have no effect.
	ignored []*ignoredFlag
}

// fieldFlag is a flag that overrides one field of the configuration file. It
// remembers what was given and applies it when the files are read.
type fieldFlag struct {
	name, field, kind, usage string
	apply                    func(kc *kubeletv1beta1.KubeletConfiguration, s string) error
	given                    []string
}

// values are what to apply, one after the other. Lists and pairs add up over
// repeated flags, as the kubelet's do; of others the last one counts.
func (f *fieldFlag) values() []string {
	if f.kind == "strings" || f.kind == "pairs" {
		return []string{strings.Join(f.given, ",")}
	}
	return f.given
}

func (f *fieldFlag) String() string { return strings.Join(f.given, ",") }
func (f *fieldFlag) Type() string   { return f.kind }

// Set tries the value on an empty configuration, so that a wrong one is rejected
// while flags are parsed, with the flag's name.
func (f *fieldFlag) Set(s string) error {
	if err := f.apply(&kubeletv1beta1.KubeletConfiguration{}, s); err != nil {
		return err
	}
	f.given = append(f.given, s)
	return nil
}

// Bind adds the flags to fs, under the kubelet's names.
func (f *Flags) Bind(fs *pflag.FlagSet) {
	fs.StringVar(&f.configFile, "config", "", "`file` with a KubeletConfiguration; without it podd runs standalone, with manifests in /etc/podd/manifests")
	fs.StringVar(&f.configDir, "config-dir", "", "`directory` with drop-in *.conf files, merged over --config in lexical order")
	fs.StringVar(&f.rootDir, "root-dir", instance.DefaultRootDir, "`directory` for what survives a reboot: pods, volumes, images to import")
	fs.StringVar(&f.stateDir, "state-dir", instance.DefaultStateDir, "`directory` for what a reboot may clear: sockets, the bundled runtime's state")
	f.defaultCertDir = instance.DefaultCertDir
	fs.StringVar(&f.certDir, "cert-dir", instance.DefaultCertDir, "`directory` of certificates (in a cluster only)")
	fs.StringVar(&f.kubeconfig, "kubeconfig", "", "kubeconfig `file` for reaching an apiserver")
	fs.StringVar(&f.bootstrap, "bootstrap-kubeconfig", "", "kubeconfig `file` by which a client certificate is requested, if --kubeconfig does not exist or its certificate has expired")
	fs.StringVar(&f.hostname, "hostname-override", "", "`name` of this node, instead of the host's")
	fs.StringVar(&f.nodeIP, "node-ip", "", "`address` of this node, or two of different families separated by a comma; 0.0.0.0 or :: has one of that family found")
	fs.StringVar(&f.cloudProvider, "cloud-provider", "", "external: a cloud controller manager initializes the node and says which addresses it has (in a cluster only)")
	fs.StringSliceVar(&f.nodeLabels, "node-labels", nil, "`labels` of the node, key=value separated by commas, which pods may select by")
	f.images.bind(fs)
	f.fields = fieldFlags()
	for _, ff := range f.fields {
		short := ""
		if ff.name == "v" {
			short = "v"
		}
		flag := fs.VarPF(ff, ff.name, short, ff.usage)
		if ff.kind == "bool" {
			flag.NoOptDefVal = "true"
		}
	}
	for name, why := range withoutEffect {
		f.ignore(fs, name, why)
	}
}

type kc = kubeletv1beta1.KubeletConfiguration

// fieldFlags are the flags for fields that podd honours.
func fieldFlags() []*fieldFlag {
	return []*fieldFlag{
		text("pod-manifest-path", "staticPodPath", "directory of manifests, or one file", func(c *kc) *string { return &c.StaticPodPath }),
		text("manifest-url", "staticPodURL", "URL of more manifests", func(c *kc) *string { return &c.StaticPodURL }),
		{name: "manifest-url-header", field: "staticPodURLHeader", kind: "headers", usage: "headers for --manifest-url, key:value separated by commas; may be repeated", apply: addHeaders},
		span("volume-stats-agg-period", "volumeStatsAggPeriod", "how long measured statistics of volumes serve; negative: there are none", func(c *kc) *time.Duration { return &c.VolumeStatsAggPeriod.Duration }),
		span("file-check-frequency", "fileCheckFrequency", "time between two rescans of the manifests, a fallback for notifications", func(c *kc) *time.Duration { return &c.FileCheckFrequency.Duration }),
		span("http-check-frequency", "httpCheckFrequency", "time between two requests to --manifest-url", func(c *kc) *time.Duration { return &c.HTTPCheckFrequency.Duration }),
		span("sync-frequency", "syncFrequency", "no effect: a pod is synced when something happens to it", func(c *kc) *time.Duration { return &c.SyncFrequency.Duration }),
		text("container-runtime-endpoint", "containerRuntimeEndpoint", "CRI socket; without it podd uses its bundled containerd", func(c *kc) *string { return &c.ContainerRuntimeEndpoint }),
		text("image-service-endpoint", "imageServiceEndpoint", "no effect: images are managed by the runtime", func(c *kc) *string { return &c.ImageServiceEndpoint }),
		span("runtime-request-timeout", "runtimeRequestTimeout", "timeout of a request to the runtime, except for pulls", func(c *kc) *time.Duration { return &c.RuntimeRequestTimeout.Duration }),
		text("cgroup-driver", "cgroupDriver", "systemd or cgroupfs, if the runtime does not say", func(c *kc) *string { return &c.CgroupDriver }),
		text("system-cgroups", "systemCgroups", "cgroup of the system's processes, which /stats/summary measures as misc", func(c *kc) *string { return &c.SystemCgroups }),
		text("cgroup-root", "cgroupRoot", "cgroup below which pods live", func(c *kc) *string { return &c.CgroupRoot }),
		list("cluster-dns", "clusterDNS", "DNS servers of the cluster, separated by commas", func(c *kc) *[]string { return &c.ClusterDNS }),
		text("cluster-domain", "clusterDomain", "DNS domain of the cluster", func(c *kc) *string { return &c.ClusterDomain }),
		{name: "resolv-conf", field: "resolvConf", kind: "file", usage: "resolver configuration that pods get", apply: func(c *kc, s string) error { c.ResolverConfig = &s; return nil }},
		text("pod-cidr", "podCIDR", "network of the pods", func(c *kc) *string { return &c.PodCIDR }),
		text("address", "address", "IP address of the read-only port", func(c *kc) *string { return &c.Address }),
		number("read-only-port", "readOnlyPort", "port for /pods and /metrics without authentication; 0 for none", func(c *kc) *int32 { return &c.ReadOnlyPort }),
		text("healthz-bind-address", "healthzBindAddress", "IP address of the healthz port", func(c *kc) *string { return &c.HealthzBindAddress }),
		numberp("healthz-port", "healthzPort", "port for /healthz; 0 for none", func(c *kc) **int32 { return &c.HealthzPort }),
		number("max-pods", "maxPods", "how many pods this node may run", func(c *kc) *int32 { return &c.MaxPods }),
		numberp("registry-qps", "registryPullQPS", "image pulls begun per second; 0 for no limit", func(c *kc) **int32 { return &c.RegistryPullQPS }),
		number("registry-burst", "registryBurst", "image pulls begun at once, above --registry-qps", func(c *kc) *int32 { return &c.RegistryBurst }),
		boolp("serialize-image-pulls", "serializeImagePulls", "pull one image at a time", func(c *kc) **bool { return &c.SerializeImagePulls }),
		boolp("seccomp-default", "seccompDefault", "RuntimeDefault is the seccomp profile of containers that name none", func(c *kc) **bool { return &c.SeccompDefault }),
		numberp("oom-score-adj", "oomScoreAdj", "oom_score_adj of podd itself", func(c *kc) **int32 { return &c.OOMScoreAdj }),
		boolp("fail-swap-on", "failSwapOn", "no effect: podd runs with swap on", func(c *kc) **bool { return &c.FailSwapOn }),
		boolp("fail-cgroupv1", "failCgroupV1", "no effect: podd runs on cgroup v1 and v2", func(c *kc) **bool { return &c.FailCgroupV1 }),
		number("pods-per-core", "podsPerCore", "how many pods this node may run per CPU; 0 for no such limit", func(c *kc) *int32 { return &c.PodsPerCore }),
		wide("pod-max-pids", "podPidsLimit", "how many processes a pod may have; -1 for no limit", func(c *kc) **int64 { return &c.PodPidsLimit }),
		boolp("local-storage-capacity-isolation", "localStorageCapacityIsolation", "enforce limits.ephemeral-storage, and sizeLimit of emptyDirs on disk", func(c *kc) **bool { return &c.LocalStorageCapacityIsolation }),
		boolp("cpu-cfs-quota", "cpuCFSQuota", "enforce CPU limits", func(c *kc) **bool { return &c.CPUCFSQuota }),
		span("cpu-cfs-quota-period", "cpuCFSQuotaPeriod", "period in which CPU limits are enforced", func(c *kc) *time.Duration {
			c.CPUCFSQuotaPeriod = &metav1.Duration{}
			return &c.CPUCFSQuotaPeriod.Duration
		}),
		boolp("cgroups-per-qos", "cgroupsPerQOS", "cgroups by QoS class; must be true", func(c *kc) **bool { return &c.CgroupsPerQOS }),
		list("enforce-node-allocatable", "enforceNodeAllocatable", "pods, to hold all pods together to what is not reserved, or none", func(c *kc) *[]string { return &c.EnforceNodeAllocatable }),
		pairs("kube-reserved", "kubeReserved", "=", "what podd and the runtime need, as cpu=100m,memory=200Mi", func(c *kc) *map[string]string { return &c.KubeReserved }),
		pairs("system-reserved", "systemReserved", "=", "what the rest of the machine needs, as cpu=100m,memory=200Mi", func(c *kc) *map[string]string { return &c.SystemReserved }),
		pairs("eviction-hard", "evictionHard", "<", "what the node keeps free by evicting pods at once, as memory.available<100Mi,nodefs.available<10%", func(c *kc) *map[string]string { return &c.EvictionHard }),
		pairs("eviction-soft", "evictionSoft", "<", "what the node keeps free by evicting pods after a grace period, as memory.available<1Gi", func(c *kc) *map[string]string { return &c.EvictionSoft }),
		pairs("eviction-soft-grace-period", "evictionSoftGracePeriod", "=", "how long each of --eviction-soft must have been met, as memory.available=1m30s", func(c *kc) *map[string]string { return &c.EvictionSoftGracePeriod }),
		pairs("eviction-minimum-reclaim", "evictionMinimumReclaim", "=", "by how much a threshold must be exceeded again once it was met, as nodefs.available=1Gi", func(c *kc) *map[string]string { return &c.EvictionMinimumReclaim }),
		span("eviction-pressure-transition-period", "evictionPressureTransitionPeriod", "how long a condition of pressure holds after its end", func(c *kc) *time.Duration { return &c.EvictionPressureTransitionPeriod.Duration }),
		number("eviction-max-pod-grace-period", "evictionMaxPodGracePeriod", "longest grace period, in seconds, of pods evicted for --eviction-soft; negative for the pod's own", func(c *kc) *int32 { return &c.EvictionMaxPodGracePeriod }),
		boolv("kernel-memcg-notification", "kernelMemcgNotification", "have the kernel tell when memory runs short, before the next look", func(c *kc) *bool { return &c.KernelMemcgNotification }),
		{name: "feature-gates", field: "featureGates", kind: "gates", usage: "feature gates, Name=true or Name=false separated by commas, over those of --config; may be repeated", apply: addGates},
		list("allowed-unsafe-sysctls", "allowedUnsafeSysctls", "sysctls that pods may set besides the safe ones, separated by commas; a trailing * matches any", func(c *kc) *[]string { return &c.AllowedUnsafeSysctls }),
		numberp("image-gc-high-threshold", "imageGCHighThresholdPercent", "disk usage in percent above which unused images are removed; 100 for never", func(c *kc) **int32 { return &c.ImageGCHighThresholdPercent }),
		numberp("image-gc-low-threshold", "imageGCLowThresholdPercent", "disk usage in percent at which removing them stops", func(c *kc) **int32 { return &c.ImageGCLowThresholdPercent }),
		span("minimum-image-ttl-duration", "imageMinimumGCAge", "minimum age of an image before it is removed", func(c *kc) *time.Duration { return &c.ImageMinimumGCAge.Duration }),
		text("container-log-max-size", "containerLogMaxSize", "size at which a container's log is rotated; -1 for never", func(c *kc) *string { return &c.ContainerLogMaxSize }),
		numberp("container-log-max-files", "containerLogMaxFiles", "how many log files a container may have", func(c *kc) **int32 { return &c.ContainerLogMaxFiles }),
		number("port", "port", "port of the kubelet's API", func(c *kc) *int32 { return &c.Port }),
		text("tls-cert-file", "tlsCertFile", "serving certificate of the kubelet's API; without it podd makes one in --cert-dir", func(c *kc) *string { return &c.TLSCertFile }),
		text("tls-private-key-file", "tlsPrivateKeyFile", "key of --tls-cert-file", func(c *kc) *string { return &c.TLSPrivateKeyFile }),
		text("tls-min-version", "tlsMinVersion", "VersionTLS12 or VersionTLS13; VersionTLS10 and VersionTLS11 are insecure", func(c *kc) *string { return &c.TLSMinVersion }),
		list("tls-cipher-suites", "tlsCipherSuites", "cipher suites for TLS up to 1.2, separated by commas", func(c *kc) *[]string { return &c.TLSCipherSuites }),
		text("client-ca-file", "authentication.x509.clientCAFile", "who signs client certificates for the kubelet's API", func(c *kc) *string { return &c.Authentication.X509.ClientCAFile }),
		boolv("rotate-certificates", "rotateCertificates", "renew the client certificate by requests to the cluster", func(c *kc) *bool { return &c.RotateCertificates }),
		boolv("rotate-server-certificates", "serverTLSBootstrap", "request the serving certificate from the cluster", func(c *kc) *bool { return &c.ServerTLSBootstrap }),
		boolp("anonymous-auth", "authentication.anonymous.enabled", "take requests without credentials as system:anonymous", func(c *kc) **bool { return &c.Authentication.Anonymous.Enabled }),
		boolp("authentication-token-webhook", "authentication.webhook.enabled", "have the apiserver review bearer tokens", func(c *kc) **bool { return &c.Authentication.Webhook.Enabled }),
		span("authentication-token-webhook-cache-ttl", "authentication.webhook.cacheTTL", "how long an answer about a token serves", func(c *kc) *time.Duration { return &c.Authentication.Webhook.CacheTTL.Duration }),
		text("authorization-mode", "authorization.mode", "Webhook, which has the apiserver review access, or AlwaysAllow", func(c *kc) *string { return (*string)(&c.Authorization.Mode) }),
		span("authorization-webhook-cache-authorized-ttl", "authorization.webhook.cacheAuthorizedTTL", "how long it serves that access is allowed", func(c *kc) *time.Duration { return &c.Authorization.Webhook.CacheAuthorizedTTL.Duration }),
		span("authorization-webhook-cache-unauthorized-ttl", "authorization.webhook.cacheUnauthorizedTTL", "how long it serves that access is denied", func(c *kc) *time.Duration { return &c.Authorization.Webhook.CacheUnauthorizedTTL.Duration }),
		boolp("register-node", "registerNode", "register this node with the apiserver", func(c *kc) **bool { return &c.RegisterNode }),
		{name: "register-with-taints", field: "registerWithTaints", kind: "taints", usage: "taints of a new node object, key=value:effect separated by commas", apply: func(c *kc, s string) (err error) {
			c.RegisterWithTaints, err = parseTaints(s)
			return err
		}},
		text("provider-id", "providerID", "identity of this machine in its cloud, for the node object", func(c *kc) *string { return &c.ProviderID }),
		boolp("enable-debugging-handlers", "enableDebuggingHandlers", "serve logs, sessions, profiles and the like on --port", func(c *kc) **bool { return &c.EnableDebuggingHandlers }),
		numberp("node-status-max-images", "nodeStatusMaxImages", "images that the Node shows, the largest; -1 for no limit", func(c *kc) **int32 { return &c.NodeStatusMaxImages }),
		numberp("kube-api-qps", "kubeAPIQPS", "requests to the apiserver per second; 0 for no limit", func(c *kc) **int32 { return &c.KubeAPIQPS }),
		number("kube-api-burst", "kubeAPIBurst", "requests to the apiserver at once, above --kube-api-qps", func(c *kc) *int32 { return &c.KubeAPIBurst }),
		numberp("event-qps", "eventRecordQPS", "events sent to the apiserver per second; 0 for no limit", func(c *kc) **int32 { return &c.EventRecordQPS }),
		number("event-burst", "eventBurst", "events sent to the apiserver at once, above --event-qps", func(c *kc) *int32 { return &c.EventBurst }),
		span("node-status-update-frequency", "nodeStatusUpdateFrequency", "how often the node's status is computed", func(c *kc) *time.Duration { return &c.NodeStatusUpdateFrequency.Duration }),
		text("logging-format", "logging.format", "text or json", func(c *kc) *string { return &c.Logging.Format }),
		{name: "v", field: "logging.verbosity", kind: "level", usage: "log verbosity; 4 and above also log each step", apply: func(c *kc, s string) error {
			n, err := strconv.ParseUint(s, 10, 31)
			if err != nil {
				return fmt.Errorf("%q is not a number of 0 or more", s)
			}
			c.Logging.Verbosity = logsapi.VerbosityLevel(n)
			return nil
		}},
	}
}

func text(name, field, usage string, at func(*kc) *string) *fieldFlag {
	return &fieldFlag{name: name, field: field, kind: "string", usage: usage, apply: func(c *kc, s string) error {
		*at(c) = s
		return nil
	}}
}

func list(name, field, usage string, at func(*kc) *[]string) *fieldFlag {
	return &fieldFlag{name: name, field: field, kind: "strings", usage: usage, apply: func(c *kc, s string) error {
		*at(c) = slices.DeleteFunc(strings.Split(s, ","), func(part string) bool { return part == "" })
		return nil
	}}
}

func span(name, field, usage string, at func(*kc) *time.Duration) *fieldFlag {
	return &fieldFlag{name: name, field: field, kind: "duration", usage: usage, apply: func(c *kc, s string) error {
		d, err := time.ParseDuration(s)
		if err != nil {
			return fmt.Errorf("%q is not a duration: give one such as 20s or 1m30s", s)
		}
		*at(c) = d
		return nil
	}}
}

func number(name, field, usage string, at func(*kc) *int32) *fieldFlag {
	return &fieldFlag{name: name, field: field, kind: "number", usage: usage, apply: func(c *kc, s string) error {
		n, err := strconv.ParseInt(s, 10, 32)
		if err != nil {
			return fmt.Errorf("%q is not an integer", s)
		}
		*at(c) = int32(n)
		return nil
	}}
}

func numberp(name, field, usage string, at func(*kc) **int32) *fieldFlag {
	return number(name, field, usage, func(c *kc) *int32 {
		*at(c) = new(int32)
		return *at(c)
	})
}

func wide(name, field, usage string, at func(*kc) **int64) *fieldFlag {
	return &fieldFlag{name: name, field: field, kind: "number", usage: usage, apply: func(c *kc, s string) error {
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil {
			return fmt.Errorf("%q is not an integer", s)
		}
		*at(c) = &n
		return nil
	}}
}

// pairs reads names and values with sep between, separated by commas.
func pairs(name, field, sep, usage string, at func(*kc) *map[string]string) *fieldFlag {
	return &fieldFlag{name: name, field: field, kind: "pairs", usage: usage, apply: func(c *kc, s string) error {
		*at(c) = map[string]string{}
		for pair := range strings.SplitSeq(s, ",") {
			key, val, ok := strings.Cut(strings.TrimSpace(pair), sep)
			if pair == "" {
				continue
			}
			if !ok || key == "" {
				return fmt.Errorf("%q is not a name and a value separated by %s", pair, sep)
			}
			(*at(c))[key] = val
		}
		return nil
	}}
}

func boolv(name, field, usage string, at func(*kc) *bool) *fieldFlag {
	return &fieldFlag{name: name, field: field, kind: "bool", usage: usage, apply: func(c *kc, s string) error {
		b, err := strconv.ParseBool(s)
		if err != nil {
			return fmt.Errorf("%q is neither true nor false", s)
		}
		*at(c) = b
		return nil
	}}
}

func boolp(name, field, usage string, at func(*kc) **bool) *fieldFlag {
	return &fieldFlag{name: name, field: field, kind: "bool", usage: usage, apply: func(c *kc, s string) error {
		b, err := strconv.ParseBool(s)
		if err != nil {
			return fmt.Errorf("%q is neither true nor false", s)
		}
		*at(c) = &b
		return nil
	}}
}

// addHeaders reads key:value,key:value. A header that is given in flags is not
// mixed with that of a file; within flags values add up, as in the kubelet.
func addHeaders(c *kc, s string) error {
	if c.StaticPodURLHeader == nil {
		c.StaticPodURLHeader = map[string][]string{}
	}
	for pair := range strings.SplitSeq(s, ",") {
		if pair == "" {
			continue
		}
		key, val, ok := strings.Cut(pair, ":")
		if !ok || strings.TrimSpace(key) == "" {
			return errors.New("a header is given as key:value")
		}
		key = strings.TrimSpace(key)
		c.StaticPodURLHeader[key] = append(c.StaticPodURLHeader[key], strings.TrimSpace(val))
	}
	return nil
}

func parseNodeIPs(s string) ([]netip.Addr, error) {
	if s == "" {
		return nil, nil
	}
	var all []netip.Addr
	for part := range strings.SplitSeq(s, ",") {
		ip, err := netip.ParseAddr(strings.TrimSpace(part))
		if err != nil {
			return nil, fmt.Errorf("%q is not an IP address", part)
		}
		all = append(all, ip.Unmap())
	}
	if len(all) == 2 && (all[0].IsUnspecified() || all[1].IsUnspecified()) {
		return nil, fmt.Errorf("%q: 0.0.0.0 and :: are no addresses of a node: give both addresses", s)
	}
	if len(all) > 2 || len(all) == 2 && all[0].Is4() == all[1].Is4() {
		return nil, fmt.Errorf("%q: give one address, or one of each family", s)
	}
	return all, nil
}

func parseLabels(s string) (map[string]string, error) {
	if s == "" {
		return nil, nil
	}
	labels := map[string]string{}
	for pair := range strings.SplitSeq(s, ",") {
		key, val, ok := strings.Cut(pair, "=")
		if !ok || key == "" {
			return nil, fmt.Errorf("%q is not a label: give key=value", pair)
		}
		labels[strings.TrimSpace(key)] = strings.TrimSpace(val)
	}
	return labels, nil
}
