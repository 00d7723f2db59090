package config

import (
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"strings"
	"text/tabwriter"

	"k8s.io/apimachinery/pkg/runtime"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
	"sigs.k8s.io/yaml"
)

// Field is what podd does with one field of KubeletConfiguration.
type Field struct {
	// Path as it is written in the file, with dots.
	Path string `json:"field"`
	// Honoured says that setting it has the effect that the kubelet documents,
	// but for what Remark says.
	Honoured bool `json:"honoured"`
	// Default is the effective value where it is not set; only for honoured ones.
	Default string `json:"default,omitempty"`
	// Flag is the kubelet's flag for the same, which podd has only for fields
	// that it honours, and for a few that kubeadm passes.
	Flag string `json:"flag,omitempty"`
	// Remark says why it is not honoured, or where podd differs.
	Remark string `json:"remark,omitempty"`

	// clusterOnly says that it has no effect without an apiserver.
	clusterOnly bool
	// harmless says that the value asks for what podd does anyway.
	harmless func(*kubeletv1beta1.KubeletConfiguration) bool
}

// Why whole groups of fields are not honoured.
const (
	needsResources = "CPU, memory and topology managers and reserved cgroups are not implemented yet"
	noIPTables     = "kube-proxy and the CNI plugins write the rules that they need; podd writes none of these"
)

func honoured(path, flag, remark string) Field {
	return Field{Path: path, Honoured: true, Flag: flag, Remark: remark}
}

func inCluster(path, flag, remark string) Field {
	return Field{Path: path, Honoured: true, clusterOnly: true, Flag: flag, Remark: remark}
}

func ignored(path, flag, why string) Field { return Field{Path: path, Flag: flag, Remark: why} }

// unless is f with the values that need no warning.
func (f Field) unless(harmless func(*kc) bool) Field {
	f.harmless = harmless
	return f
}

// Fields is every field of KubeletConfiguration, in alphabetical order. A test
// holds it against the type.
var Fields = withDefaults([]Field{
	honoured("address", "address", "of the read-only port; podd's default is loopback, the kubelet's 0.0.0.0"),
	honoured("allowedUnsafeSysctls", "allowed-unsafe-sysctls", ""),
	honoured("apiVersion", "", "must be "+apiVersion),
	inCluster("authentication.anonymous.enabled", "anonymous-auth", ""),
	inCluster("authentication.webhook.cacheTTL", "authentication-token-webhook-cache-ttl", ""),
	inCluster("authentication.webhook.enabled", "authentication-token-webhook", ""),
	inCluster("authentication.x509.clientCAFile", "client-ca-file", ""),
	inCluster("authorization.mode", "authorization-mode", ""),
	inCluster("authorization.webhook.cacheAuthorizedTTL", "authorization-webhook-cache-authorized-ttl", ""),
	inCluster("authorization.webhook.cacheUnauthorizedTTL", "authorization-webhook-cache-unauthorized-ttl", ""),
	honoured("cgroupDriver", "cgroup-driver", "only for a runtime that does not name its own driver"),
	honoured("cgroupRoot", "cgroup-root", "podd's default is its own root, the kubelet's is /"),
	honoured("cgroupsPerQOS", "cgroups-per-qos", "must be true"),
	honoured("clusterDNS", "cluster-dns", ""),
	honoured("clusterDomain", "cluster-domain", ""),
	ignored("configMapAndSecretChangeDetectionStrategy", "", "each object that pods name is watched").unless(func(c *kc) bool { return c.ConfigMapAndSecretChangeDetectionStrategy == "Watch" }),
	honoured("containerLogMaxFiles", "container-log-max-files", ""),
	honoured("containerLogMaxSize", "container-log-max-size", "a log that grows fast is checked sooner than the interval says; -1 for no rotation"),
	honoured("containerLogMaxWorkers", "", "they compress; rotating needs none"),
	honoured("containerLogMonitorInterval", "", ""),
	honoured("containerRuntimeEndpoint", "container-runtime-endpoint", "podd's default is its bundled containerd"),
	ignored("contentType", "kube-api-content-type", "podd asks the apiserver for protobuf").unless(func(c *kc) bool { return c.ContentType == runtime.ContentTypeProtobuf }),
	honoured("cpuCFSQuota", "cpu-cfs-quota", ""),
	honoured("cpuCFSQuotaPeriod", "cpu-cfs-quota-period", ""),
	ignored("cpuManagerPolicy", "cpu-manager-policy", needsResources).unless(func(c *kc) bool { return c.CPUManagerPolicy == "none" }),
	ignored("cpuManagerPolicyOptions", "cpu-manager-policy-options", needsResources),
	ignored("cpuManagerReconcilePeriod", "cpu-manager-reconcile-period", needsResources),
	honoured("crashLoopBackOff.maxContainerRestartPeriod", "", ""),
	honoured("defaultPodSysctls", "", "with the feature gate DefaultPodSysctls"),
	ignored("enableContentionProfiling", "contention-profiling", "podd does not measure contention"),
	ignored("enableControllerAttachDetach", "enable-controller-attach-detach", "the cluster's controller attaches volumes").unless(func(c *kc) bool { return *c.EnableControllerAttachDetach }),
	inCluster("enableDebugFlagsHandler", "", ""),
	inCluster("enableDebuggingHandlers", "enable-debugging-handlers", ""),
	inCluster("enableProfilingHandler", "", "podd's own socket always serves profiles"),
	ignored("enableServer", "enable-server", "the API is served wherever podd is the node of a cluster"),
	inCluster("enableSystemLogHandler", "", "links that lead out of /var/log are not followed"),
	inCluster("enableSystemLogQuery", "", "by journalctl"),
	honoured("enforceNodeAllocatable", "enforce-node-allocatable", "pods and none; podd limits no cgroup but its pods'"),
	inCluster("eventBurst", "event-burst", ""),
	inCluster("eventRecordQPS", "event-qps", "0 for no limit"),
	honoured("evictionHard", "eviction-hard", "static pods are never evicted, as with the kubelet; 0% for none"),
	honoured("evictionMaxPodGracePeriod", "eviction-max-pod-grace-period", "negative for the pod's own"),
	honoured("evictionMinimumReclaim", "eviction-minimum-reclaim", ""),
	honoured("evictionPressureTransitionPeriod", "eviction-pressure-transition-period", "0s is 5m, as with the kubelet"),
	honoured("evictionSoft", "eviction-soft", ""),
	honoured("evictionSoftGracePeriod", "eviction-soft-grace-period", ""),
	ignored("failCgroupV1", "fail-cgroupv1", "podd runs on cgroup v1 and v2").unless(func(c *kc) bool { return !*c.FailCgroupV1 }),
	ignored("failSwapOn", "fail-swap-on", "podd runs with swap on; containers get none of it where the kernel can bound it").unless(func(c *kc) bool { return !*c.FailSwapOn }),
	honoured("featureGates", "feature-gates", "Kubernetes' own gates; podd warns at the start of one that makes no difference"),
	honoured("fileCheckFrequency", "file-check-frequency", "a fallback only: changes are found at once"),
	ignored("hairpinMode", "hairpin-mode", "the CNI configuration decides"),
	honoured("healthzBindAddress", "healthz-bind-address", ""),
	honoured("healthzPort", "healthz-port", ""),
	honoured("httpCheckFrequency", "http-check-frequency", ""),
	honoured("imageGCHighThresholdPercent", "image-gc-high-threshold", "podd also makes room when less than 1 GiB (of a small disk: a fifth) is free; 100 for never"),
	honoured("imageGCLowThresholdPercent", "image-gc-low-threshold", ""),
	honoured("imageMaximumGCAge", "", "0s for no limit"),
	honoured("imageMinimumGCAge", "minimum-image-ttl-duration", ""),
	honoured("imagePullCredentialsVerificationPolicy", "", "for the images that podd has pulled and those that it has not"),
	ignored("imageServiceEndpoint", "image-service-endpoint", "images are managed by the runtime at containerRuntimeEndpoint").
		unless(func(c *kc) bool { return c.ImageServiceEndpoint == c.ContainerRuntimeEndpoint }),
	ignored("iptablesDropBit", "", noIPTables),
	ignored("iptablesMasqueradeBit", "", noIPTables),
	honoured("kernelMemcgNotification", "kernel-memcg-notification", "on cgroup v2 by pressure stall information, which the kubelet does not use"),
	honoured("kind", "", "must be "+kindConfig),
	inCluster("kubeAPIBurst", "kube-api-burst", ""),
	inCluster("kubeAPIQPS", "kube-api-qps", "0 for no limit; watches, events, reviews, the Lease and the Node do not count"),
	honoured("kubeReserved", "kube-reserved", ""),
	ignored("kubeReservedCgroup", "kube-reserved-cgroup", needsResources),
	ignored("kubeletCgroups", "kubelet-cgroups", "systemd, or whoever starts podd, chooses its cgroup"),
	honoured("localStorageCapacityIsolation", "local-storage-capacity-isolation", "the node's capacity has ephemeral-storage without it, too"),
	ignored("logging.flushFrequency", "", "podd writes each line at once"),
	honoured("logging.format", "logging-format", ""),
	ignored("logging.options.json.infoBufferSize", "", "podd writes each line at once"),
	ignored("logging.options.json.splitStream", "", "podd writes all lines to standard error"),
	ignored("logging.options.text.infoBufferSize", "", "podd writes each line at once"),
	ignored("logging.options.text.splitStream", "", "podd writes all lines to standard error"),
	honoured("logging.verbosity", "v", "podd has two levels: from 4 on each step is logged"),
	ignored("logging.vmodule", "vmodule", "podd has no verbosity by file"),
	ignored("makeIPTablesUtilChains", "make-iptables-util-chains", noIPTables),
	ignored("maxOpenFiles", "max-open-files", "systemd's LimitNOFILE decides"),
	honoured("maxParallelImagePulls", "", "podd's default is 5, the kubelet's 1; where it is not set, pulls that take longer than 30s do not count, up to 20 in all"),
	honoured("maxPods", "max-pods", ""),
	ignored("memoryManagerPolicy", "memory-manager-policy", needsResources).unless(func(c *kc) bool { return c.MemoryManagerPolicy == "None" }),
	honoured("memoryReservationPolicy", "", "on cgroup v2; cgroups above cgroupRoot are left alone"),
	honoured("memorySwap.swapBehavior", "", ""),
	honoured("memoryThrottlingFactor", "", "on cgroup v2"),
	honoured("mergeDefaultEvictionSettings", "", "for evictionHard"),
	inCluster("nodeLeaseDurationSeconds", "", ""),
	inCluster("nodeStatusMaxImages", "node-status-max-images", "-1 for no limit"),
	inCluster("nodeStatusReportFrequency", "", ""),
	inCluster("nodeStatusUpdateFrequency", "node-status-update-frequency", ""),
	honoured("oomScoreAdj", "oom-score-adj", "lowered only where podd may"),
	honoured("podCIDR", "pod-cidr", "of the default bridge; without it the Node's podCIDR, or 10.88.0.0/16 without a cluster"),
	honoured("podLogsDir", "", ""),
	honoured("podPidsLimit", "pod-max-pids", ""),
	honoured("podsPerCore", "pods-per-core", ""),
	inCluster("port", "port", ""),
	honoured("preloadedImagesVerificationAllowlist", "", "for NeverVerifyAllowlistedImages"),
	ignored("protectKernelDefaults", "protect-kernel-defaults", "podd changes no kernel settings of the node"),
	inCluster("providerID", "provider-id", ""),
	ignored("qosReserved", "qos-reserved", needsResources),
	honoured("readOnlyPort", "read-only-port", "0 for none"),
	inCluster("registerNode", "register-node", ""),
	inCluster("registerWithTaints", "register-with-taints", "of a new node; static pods are exempt from taints"),
	honoured("registryBurst", "registry-burst", ""),
	honoured("registryPullQPS", "registry-qps", "0 for no limit"),
	ignored("reservedMemory", "reserved-memory", needsResources),
	ignored("reservedSystemCPUs", "reserved-cpus", needsResources),
	honoured("resolvConf", "resolv-conf", ""),
	inCluster("rotateCertificates", "rotate-certificates", "the client certificate of the kubeconfig; approved by the cluster"),
	ignored("runOnce", "runonce", "there is no run-once mode, nor is there in the kubelet"),
	honoured("runtimeRequestTimeout", "runtime-request-timeout", ""),
	honoured("seccompDefault", "seccomp-default", ""),
	honoured("serializeImagePulls", "serialize-image-pulls", "podd's default is false, the kubelet's true"),
	inCluster("serverTLSBootstrap", "rotate-server-certificates", "until somebody has approved the request, port 10250 cannot be used"),
	ignored("showHiddenMetricsForVersion", "", "podd hides no metrics"),
	honoured("shutdownGracePeriod", "", "without it, pods of a machine without a cluster have their own grace periods, five minutes at most"),
	honoured("shutdownGracePeriodByPodPriority", "", ""),
	honoured("shutdownGracePeriodCriticalPods", "", ""),
	honoured("singleProcessOOMKill", "", "podd's default is the cgroup version's: false on v2, true on v1, as the kubelet's"),
	honoured("staticPodPath", "pod-manifest-path", "a directory or a file"),
	honoured("staticPodURL", "manifest-url", ""),
	honoured("staticPodURLHeader", "manifest-url-header", ""),
	ignored("streamingConnectionIdleTimeout", "streaming-connection-idle-timeout", "sessions are the runtime's, whose own limit counts (containerd: stream_idle_timeout, 4h)"),
	ignored("syncFrequency", "sync-frequency", "a pod is synced when something happens to it, not periodically"),
	honoured("systemCgroups", "system-cgroups", "what /stats/summary measures as misc, if it is there; podd moves no process into it"),
	honoured("systemReserved", "system-reserved", ""),
	ignored("systemReservedCgroup", "system-reserved-cgroup", needsResources),
	inCluster("tlsCertFile", "tls-cert-file", ""),
	inCluster("tlsCipherSuites", "tls-cipher-suites", "insecure ones are served, with a warning"),
	ignored("tlsCurvePreferences", "", "Go's own preferences count"),
	inCluster("tlsMinVersion", "tls-min-version", "versions before VersionTLS12 are served, with a warning"),
	inCluster("tlsPrivateKeyFile", "tls-private-key-file", ""),
	ignored("topologyManagerPolicy", "topology-manager-policy", needsResources).unless(func(c *kc) bool { return c.TopologyManagerPolicy == "none" }),
	ignored("topologyManagerPolicyOptions", "topology-manager-policy-options", needsResources),
	ignored("topologyManagerScope", "topology-manager-scope", needsResources),
	ignored("tracing.endpoint", "", "podd sends no traces"),
	ignored("tracing.samplingRatePerMillion", "", "podd sends no traces"),
	honoured("userNamespaces.idsPerPod", "", ""),
	ignored("volumePluginDir", "volume-plugin-dir", "podd runs CSI drivers, and no FlexVolumes"),
	honoured("volumeStatsAggPeriod", "volume-stats-agg-period", "how long what was measured serves; nothing is measured while nobody asks"),
})

// kubeletFlags maps every flag of the kubelet's to the field that it stands
// for, or "".
var kubeletFlags = func() map[string]string {
	all := map[string]string{}
	for _, f := range Fields {
		if f.Flag != "" {
			all[f.Flag] = f.Path
		}
	}
	for name := range unsupportedFlags {
		all[name] = ""
	}
	return all
}()

// withDefaults fills Default from the values that setDefaults gives.
func withDefaults(all []Field) []Field {
	kc := &kubeletv1beta1.KubeletConfiguration{}
	setDefaults(kc)
	for i := range all {
		if v := fieldByPath(reflect.ValueOf(kc), all[i].Path); all[i].Honoured && v.IsValid() && !v.IsZero() {
			all[i].Default = strings.Trim(compact(v.Interface()), `"`)
		}
	}
	return all
}

// fieldByPath returns the value of the field with that path; not valid if a pointer on
// the way is nil.
func fieldByPath(v reflect.Value, path string) reflect.Value {
	name, rest, more := strings.Cut(path, ".")
	for v.Kind() == reflect.Pointer {
		if v.IsNil() {
			return reflect.Value{}
		}
		v = v.Elem()
	}
	for i := range v.NumField() {
		f := v.Type().Field(i)
		tag, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case tag == "" && f.Anonymous && f.Type.Kind() == reflect.Struct:
			if found := fieldByPath(v.Field(i), path); found.IsValid() {
				return found
			}
		case tag == name && more:
			return fieldByPath(v.Field(i), rest)
		case tag == name:
			return v.Field(i)
		}
	}
	return reflect.Value{}
}

// isUnset says that a field has the value of one that was never written: tools
// such as kubeadm write every field of the type, zero or not.
func isUnset(kc *kubeletv1beta1.KubeletConfiguration, path string) bool {
	v := fieldByPath(reflect.ValueOf(kc), path)
	if !v.IsValid() || v.IsZero() {
		return true
	}
	if v.Kind() == reflect.Pointer { // a pointer to zero was meant
		return false
	}
	switch compact(v.Interface()) {
	case "0", `"0"`, `"0s"`, "{}", "[]":
		return true
	}
	return false
}

// Explain writes the table of fields to w. Format is "" for a table for people,
// json or yaml.
func Explain(w io.Writer, format string) error {
	switch format {
	case "json":
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		return e.Encode(Fields)
	case "yaml":
		b, err := yaml.Marshal(Fields)
		if err != nil {
			return err
		}
		_, err = w.Write(b)
		return err
	case "":
	default:
		return fmt.Errorf("%q is not a format: give json or yaml", format)
	}
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(t, "FIELD\tSTATE\tDEFAULT\tREMARK")
	for _, f := range Fields {
		state := "ignored"
		if f.Honoured {
			state = "honoured"
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", f.Path, state, dash(f.Default), f.Remark)
	}
	return t.Flush()
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
