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
	defaultDuration(&kc.FileCheckFrequency, 20*time.Second)
	defaultDuration(&kc.HTTPCheckFrequency, 20*time.Second)
	defaultDuration(&kc.VolumeStatsAggPeriod, time.Minute)
	defaultDuration(&kc.RuntimeRequestTimeout, 2*time.Minute)
	defaultValue(&kc.Address, "127.0.0.1")
	defaultValue(&kc.HealthzBindAddress, "127.0.0.1")
	defaultValue(&kc.CgroupDriver, "cgroupfs")
	defaultValue(&kc.PodLogsDir, instance.DefaultPodLogsDir)
	defaultValue(&kc.RegistryBurst, 10)
	defaultPointer(&kc.HealthzPort, 10248)
	defaultPointer(&kc.RegistryPullQPS, 5)
	defaultPointer(&kc.OOMScoreAdj, -999)
	defaultPointer(&kc.ResolverConfig, "/etc/resolv.conf")
	if kc.MaxParallelImagePulls == nil && kc.SerializeImagePulls == nil {
		defaultPointer(&kc.MaxParallelImagePulls, DefaultParallelPulls)
	}
	defaultPointer(&kc.SerializeImagePulls, kc.MaxParallelImagePulls != nil && *kc.MaxParallelImagePulls < 2)
	setResourceDefaults(kc)
	setClusterDefaults(kc)
	setAPIDefaults(kc)
	defaultPointer(&kc.CrashLoopBackOff.MaxContainerRestartPeriod, metav1.Duration{Duration: 300 * time.Second})
	defaultPointer(&kc.SeccompDefault, false)
	defaultPointer(&kc.LocalStorageCapacityIsolation, true)
	defaultPointer(&kc.UserNamespaces, kubeletv1beta1.UserNamespaces{})
	defaultPointer(&kc.UserNamespaces.IDsPerPod, 65536)
	setImageDefaults(kc)
	defaultValue(&kc.Logging.Format, logsapi.DefaultLogFormat)
	if kc.Logging.FlushFrequency.Duration.Duration == 0 {
		kc.Logging.FlushFrequency = logsapi.TimeOrMetaDuration{
			Duration: metav1.Duration{Duration: 5 * time.Second}, SerializeAsString: true,
		}
	}
}

// setDependentDefaults writes those defaults of the first file into it that depend on what else
// it says: what drop-in files and flags say then changes them one by one, as in the kubelet,
// which defaults that file first. serializeImagePulls and maxParallelImagePulls are not among
// them: with podd's defaults a drop-in file that has pulls serialized would contradict the first
// one.
func setDependentDefaults(tree map[string]any) error {
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

func defaultDuration(d *metav1.Duration, otherwise time.Duration) {
	if d.Duration == 0 {
		d.Duration = otherwise
	}
}

func defaultValue[T comparable](v *T, otherwise T) {
	var zero T
	if *v == zero {
		*v = otherwise
	}
}

func defaultPointer[T any](p **T, otherwise T) {
	if *p == nil {
		*p = &otherwise
	}
}
