package config

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	logsapi "k8s.io/component-base/logs/api/v1"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"

	"podd/internal/instance"
)

// setDefaults fills the fields that podd honours with the kubelet's values
// (pkg/kubelet/apis/config/v1beta1/defaults.go), except where Fields says that
// podd's differ. Fields that it does not honour stay as they are: a default in
// them would claim something.
func setDefaults(kc *kubeletv1beta1.KubeletConfiguration) {
	duration(&kc.FileCheckFrequency, 20*time.Second)
	duration(&kc.HTTPCheckFrequency, 20*time.Second)
	duration(&kc.VolumeStatsAggPeriod, time.Minute)
	duration(&kc.RuntimeRequestTimeout, 2*time.Minute)
	value(&kc.Address, "127.0.0.1")
	value(&kc.HealthzBindAddress, "127.0.0.1")
	value(&kc.CgroupDriver, "cgroupfs")
	value(&kc.PodLogsDir, instance.DefaultPodLogsDir)
	value(&kc.RegistryBurst, 10)
	pointer(&kc.HealthzPort, 10248)
	pointer(&kc.RegistryPullQPS, 5)
	pointer(&kc.OOMScoreAdj, -999)
	pointer(&kc.ResolverConfig, "/etc/resolv.conf")
	if kc.MaxParallelImagePulls == nil && kc.SerializeImagePulls == nil {
		pointer(&kc.MaxParallelImagePulls, DefaultParallelPulls)
	}
	pointer(&kc.SerializeImagePulls, kc.MaxParallelImagePulls != nil && *kc.MaxParallelImagePulls < 2)
	setResourceDefaults(kc)
	setClusterDefaults(kc)
	setAPIDefaults(kc)
	pointer(&kc.CrashLoopBackOff.MaxContainerRestartPeriod, metav1.Duration{Duration: 300 * time.Second})
	pointer(&kc.SeccompDefault, false)
	pointer(&kc.LocalStorageCapacityIsolation, true)
	pointer(&kc.UserNamespaces, kubeletv1beta1.UserNamespaces{})
	pointer(&kc.UserNamespaces.IDsPerPod, 65536)
	setImageDefaults(kc)
	value(&kc.Logging.Format, logsapi.DefaultLogFormat)
	if kc.Logging.FlushFrequency.Duration.Duration == 0 {
		kc.Logging.FlushFrequency = logsapi.TimeOrMetaDuration{
			Duration: metav1.Duration{Duration: 5 * time.Second}, SerializeAsString: true,
		}
	}
}

// settle writes those defaults of the first file into it that depend on what else it says: what
// drop-in files and flags say then changes them one by one, as in the kubelet, which defaults
// that file first. serializeImagePulls and maxParallelImagePulls are not among them: with
// podd's defaults a drop-in file that has pulls serialized would contradict the first one.
func settle(tree map[string]any) error {
	kc, err := decodeTree(tree)
	if err != nil {
		return err
	}
	setEvictionHard(kc)
	setReportFrequency(kc)
	thresholds := map[string]any{}
	for signal, amount := range kc.EvictionHard {
		thresholds[signal] = amount
	}
	tree["evictionHard"] = thresholds
	tree["nodeStatusReportFrequency"] = kc.NodeStatusReportFrequency.Duration.String()
	return nil
}

func duration(d *metav1.Duration, otherwise time.Duration) {
	if d.Duration == 0 {
		d.Duration = otherwise
	}
}

func value[T comparable](v *T, otherwise T) {
	var zero T
	if *v == zero {
		*v = otherwise
	}
}

func pointer[T any](p **T, otherwise T) {
	if *p == nil {
		*p = &otherwise
	}
}
