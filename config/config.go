package config

import (
	_ "embed"
	"log/slog"
	"net/http"
	"net/netip"
	"time"

	v1 "k8s.io/api/core/v1"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"

	"podd/images/records"
	"podd/internal/features"
	"podd/internal/mask"

	"podd/eviction/threshold"
)

// Standalone is the configuration of podd on one machine: what podd run uses
// without --config, and what an installation puts in /etc/podd/config.yaml.
//
//go:embed standalone.yaml
var Standalone []byte

// StandaloneName is how messages name the embedded configuration.
const StandaloneName = "(built-in standalone configuration)"

// DefaultParallelPulls bounds image pulls at a time when the configuration does
// not say. The kubelet pulls one by one, a default it keeps for a bug of Docker's
// of 2015 (kubernetes/kubernetes#108405).
const DefaultParallelPulls = 5

// Config is what podd run is wired from: effective values, checked, in Go's own
// types. It is read-only once Load returned it.
type Config struct {
	// File is the path of --config, or StandaloneName.
	File string
	// Kubelet is the merged configuration with podd's defaults in the fields
	// that podd honours. Header values in it are secrets: show Masked instead.
	Kubelet *kubeletv1beta1.KubeletConfiguration
	// Warnings are sentences to log once at start: fields that are set and not
	// honoured, flags without effect, settings that are insecure.
	Warnings []string

	// Features says which feature gates are on.
	Features features.Set

	// NodeName is a DNS subdomain in lower case.
	NodeName string
	// NodeIPs are those of --node-ip, at most one of each family; empty when
	// the node's address is to be found out, and the unspecified one of the
	// family that it should have, alone.
	NodeIPs []netip.Addr
	// RootDir holds what survives a boot, StateDir what a boot may forget.
	RootDir, StateDir string
	// CertDir matters in a cluster only. NodeLabels are what pods may select.
	CertDir    string
	NodeLabels map[string]string

	// Kubeconfig is the path of the file with an apiserver; empty for a podd that is not
	// the node of a cluster, for which the rest of this group means nothing.
	Kubeconfig string
	// BootstrapKubeconfig is the path of one by which podd may request a client certificate,
	// if Kubeconfig is not usable; empty for none.
	BootstrapKubeconfig string
	// RotateCertificates: podd renews its client certificate.
	RotateCertificates bool
	// APIQPS 0 is no limit.
	APIQPS   float32
	APIBurst int
	// EventQPS and EventBurst are the same for events alone.
	EventQPS   float64
	EventBurst int
	// LeaseDuration is when the cluster considers a silent node dead.
	LeaseDuration time.Duration
	// StatusUpdateFrequency is the time between looks at the node's state,
	// StatusReportFrequency that between reports of one that does not change.
	StatusUpdateFrequency, StatusReportFrequency time.Duration
	// StatusMaxImages is how many images the Node shows; -1 is no limit.
	StatusMaxImages int
	// API is the kubelet's API.
	API KubeletAPI
	// RegisterNode: a Node is created if there is none. ProviderID is that of the machine
	// in its cloud; empty for none.
	RegisterNode bool
	ProviderID   string
	// ExternalCloud: a cloud controller manager initializes the Node and says which
	// addresses it has.
	ExternalCloud bool

	// StaticPodPath is a directory or a file; empty without a file source.
	StaticPodPath string
	// StaticPodURL is empty without an HTTP source. The header may hold secrets.
	StaticPodURL       string
	StaticPodURLHeader http.Header
	FileCheckFrequency time.Duration
	HTTPCheckFrequency time.Duration

	// RuntimeEndpoint is a unix:// URL; empty asks for the bundled runtime.
	RuntimeEndpoint       string
	RuntimeRequestTimeout time.Duration

	// CgroupRoot is empty for podd's own. CgroupDriver is "systemd" or
	// "cgroupfs"; it counts only when the runtime does not name its driver.
	CgroupRoot, CgroupDriver string
	// SystemCgroup has the processes that belong to no pod; empty for none.
	SystemCgroup string

	// LimitStorage says that limits.ephemeral-storage and sizeLimits on disk are
	// enforced.
	LimitStorage bool
	// VolumeStatsAggPeriod is how long statistics of volumes serve; negative: there are
	// none.
	VolumeStatsAggPeriod time.Duration
	// CPUQuota says that CPU limits are enforced, in periods of CPUQuotaPeriod.
	CPUQuota       bool
	CPUQuotaPeriod time.Duration
	// PodPIDsLimit is 0 for none.
	PodPIDsLimit int64
	// MemoryTieredReservation protects the memory that pods request (memoryReservationPolicy
	// TieredReservation).
	MemoryTieredReservation bool
	// MemoryThrottlingFactor is greater than 0 and at most 1; 0 if it is not set.
	MemoryThrottlingFactor float64
	// LimitedSwap lets Burstable containers have their share of the swap.
	LimitedSwap bool
	// SingleProcessOOMKill is nil for what the cgroup version has.
	SingleProcessOOMKill *bool
	// MaxPods is at least 1; PodsPerCore 0 is no such bound.
	MaxPods, PodsPerCore int
	// Reserved is kubeReserved and systemReserved together.
	Reserved v1.ResourceList
	// Eviction is what the node keeps free.
	Eviction Eviction
	// Shutdown is what pods have when the machine goes down.
	Shutdown Shutdown
	// EnforcePods says that the pods together are held to what is not reserved.
	EnforcePods bool
	// DefaultPodSysctls maps the normalized names of sysctls to their values for pods that do
	// not set them.
	DefaultPodSysctls map[string]string
	// UnsafeSysctls are names and beginnings of names, with * at the end.
	UnsafeSysctls []string
	// Taints are those of --register-with-taints.
	Taints []v1.Taint

	ClusterDNS    []netip.Addr
	ClusterDomain string
	// ResolvConf is a path, or empty for none.
	ResolvConf string
	// PodCIDR is the network of the default bridge; invalid (the zero value)
	// when it is podd's choice.
	PodCIDR netip.Prefix

	// ParallelImagePulls is at least 1.
	ParallelImagePulls int
	// ExemptLongPulls: nobody said how many pulls there may be at a time, so
	// one that takes long need not count.
	ExemptLongPulls bool
	// RegistryPullQPS 0 is no limit.
	RegistryPullQPS, RegistryBurst int

	// ImageGCHighThreshold and ImageGCLowThreshold in percent; high 100 is never.
	ImageGCHighThreshold, ImageGCLowThreshold int
	// ImageAccess is for which images of the node a pod needs credentials.
	ImageAccess records.Policy
	// ImageMaximumGCAge 0 keeps images for ever.
	ImageMinimumGCAge, ImageMaximumGCAge time.Duration
	// ImageCredentialProviderConfig is a file or directory, both absolute paths,
	// or both empty.
	ImageCredentialProviderConfig, ImageCredentialProviderBinDir string

	// ContainerLogMaxSize in bytes; negative for no rotation.
	ContainerLogMaxSize                          int64
	ContainerLogMaxFiles, ContainerLogMaxWorkers int
	ContainerLogMonitorInterval                  time.Duration

	PodLogsDir string
	// OOMScoreAdj of podd itself, -1000 to 1000.
	OOMScoreAdj int
	// RestartBackOffMax is the longest wait before a restart of a container.
	RestartBackOffMax time.Duration

	// SeccompDefault makes RuntimeDefault the profile of containers that name none.
	SeccompDefault bool
	// IDsPerPod is how many user and group IDs a pod with hostUsers: false gets, a
	// multiple of 65536.
	IDsPerPod uint32

	// ReadOnlyAddress and HealthzAddress are host:port, or empty for none.
	ReadOnlyAddress, HealthzAddress string

	// LogLevel is Info, and Debug from verbosity 4 on. LogFormat is text or json.
	LogLevel  slog.Level
	LogFormat string
}

// Socket is podd's own unix socket.
func (c *Config) Socket() string { return c.StateDir + "/podd.sock" }

// Masked is Kubelet without the secrets in it, for people and for /configz.
func (c *Config) Masked() *kubeletv1beta1.KubeletConfiguration {
	kc := c.Kubelet.DeepCopy()
	for name := range kc.StaticPodURLHeader {
		kc.StaticPodURLHeader[name] = []string{mask.Value}
	}
	kc.StaticPodURL = mask.URL(kc.StaticPodURL)
	return kc
}

// Eviction are the settings of node-pressure eviction.
type Eviction struct {
	// Thresholds are most urgent first; none for no eviction.
	Thresholds []threshold.Threshold
	// Transition is evictionPressureTransitionPeriod, MaxGrace evictionMaxPodGracePeriod;
	// negative for no bound.
	Transition, MaxGrace time.Duration
	// Alarm is kernelMemcgNotification.
	Alarm bool
}
