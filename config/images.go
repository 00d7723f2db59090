package config

import (
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"

	"podd/images/records"
)

// setImageDefaults: images and the logs of containers.
func setImageDefaults(kc *kubeletv1beta1.KubeletConfiguration) {
	defaultPointer(&kc.ImageGCHighThresholdPercent, 85)
	defaultPointer(&kc.ImageGCLowThresholdPercent, 80)
	defaultDuration(&kc.ImageMinimumGCAge, 2*time.Minute)
	defaultValue(&kc.ImagePullCredentialsVerificationPolicy, kubeletv1beta1.NeverVerifyPreloadedImages)
	defaultValue(&kc.ContainerLogMaxSize, "10Mi")
	defaultPointer(&kc.ContainerLogMaxFiles, 5)
	defaultPointer(&kc.ContainerLogMaxWorkers, 1)
	defaultPointer(&kc.ContainerLogMonitorInterval, metav1.Duration{Duration: 10 * time.Second})
}

// images judges what is said of images and of logs, by the kubelet's rules.
func (c *checker) images(kc *kubeletv1beta1.KubeletConfiguration) {
	high, low := *kc.ImageGCHighThresholdPercent, *kc.ImageGCLowThresholdPercent
	switch {
	case high < 0 || high > 100:
		c.fail("imageGCHighThresholdPercent", "%d is out of range: give 0 to 100", high)
	case low < 0 || low > 100:
		c.fail("imageGCLowThresholdPercent", "%d is out of range: give 0 to 100", low)
	case low >= high:
		c.fail("imageGCLowThresholdPercent", "%d is not less than imageGCHighThresholdPercent, %d: images are removed from the high one on until the low one is reached", low, high)
	}
	least, most := kc.ImageMinimumGCAge.Duration, kc.ImageMaximumGCAge.Duration
	switch {
	case least < 0:
		c.fail("imageMinimumGCAge", "%s is negative", least)
	case most < 0:
		c.fail("imageMaximumGCAge", "%s is negative: give 0s to keep images without limit", most)
	case most > 0 && most <= least:
		c.fail("imageMaximumGCAge", "%s is not more than imageMinimumGCAge, %s", most, least)
	}
	if _, err := records.NewPolicy(kc.ImagePullCredentialsVerificationPolicy, kc.PreloadedImagesVerificationAllowlist); err != nil {
		c.fail("imagePullCredentialsVerificationPolicy", "%v", err)
	}
	if _, err := logSize(kc.ContainerLogMaxSize); err != nil {
		c.fail("containerLogMaxSize", "%v", err)
	}
	if n := *kc.ContainerLogMaxFiles; n < 2 {
		c.fail("containerLogMaxFiles", "%d is too few: give at least 2, for the live log and one that was rotated", n)
	}
	if n := *kc.ContainerLogMaxWorkers; n < 1 {
		c.fail("containerLogMaxWorkers", "%d is not positive", n)
	}
	c.interval("containerLogMonitorInterval", kc.ContainerLogMonitorInterval.Duration, 3*time.Second)
}

// logSize is in bytes; negative for no rotation.
func logSize(s string) (int64, error) {
	q, err := resource.ParseQuantity(s)
	if err != nil {
		return 0, fmt.Errorf("%q is not a size: give one such as 10Mi", s)
	}
	n, ok := q.AsInt64()
	if !ok || n == 0 {
		return 0, fmt.Errorf("%q is not a size to rotate logs at: give one such as 10Mi, or -1 for no rotation", s)
	}
	return n, nil
}

func (c *Config) fillImages(kc *kubeletv1beta1.KubeletConfiguration) {
	c.ImageGCHighThreshold, c.ImageGCLowThreshold = int(*kc.ImageGCHighThresholdPercent), int(*kc.ImageGCLowThresholdPercent)
	c.ImageMinimumGCAge, c.ImageMaximumGCAge = kc.ImageMinimumGCAge.Duration, kc.ImageMaximumGCAge.Duration
	c.ImageAccess, _ = records.NewPolicy(kc.ImagePullCredentialsVerificationPolicy, kc.PreloadedImagesVerificationAllowlist) // was checked
	c.ContainerLogMaxSize, _ = logSize(kc.ContainerLogMaxSize)                                                               // was checked
	c.ContainerLogMaxFiles, c.ContainerLogMaxWorkers = int(*kc.ContainerLogMaxFiles), int(*kc.ContainerLogMaxWorkers)
	c.ContainerLogMonitorInterval = kc.ContainerLogMonitorInterval.Duration
}

// imageFlags are the flags for images and dead containers that stand for no
// field.
type imageFlags struct{ providerConfig, providerDir string }

func (f *imageFlags) bind(fs *pflag.FlagSet) {
	fs.StringVar(&f.providerConfig, "image-credential-provider-config", "", "`file` with a CredentialProviderConfig, or a directory of such files")
	fs.StringVar(&f.providerDir, "image-credential-provider-bin-dir", "", "`directory` of the credential provider plugins")
	for name, only := range keptDead {
		fs.Var(&fixedFlag{only: only}, name, "only "+only+" is supported: one dead container of each name is kept, for podd logs --previous, as long as its pod")
		_ = fs.MarkHidden(name) // fails only for a flag that was not added
	}
}

// apply checks and takes over the flags.
func (f *imageFlags) apply(c *Config, fail func(flag, format string, args ...any)) {
	switch {
	case f.providerConfig == "" && f.providerDir == "":
		return
	case f.providerConfig == "":
		fail("image-credential-provider-bin-dir", "has no effect without --image-credential-provider-config: give both")
	case f.providerDir == "":
		fail("image-credential-provider-config", "has no effect without --image-credential-provider-bin-dir: give both")
	}
	var errs [2]error
	c.ImageCredentialProviderConfig, errs[0] = filepath.Abs(f.providerConfig)
	c.ImageCredentialProviderBinDir, errs[1] = filepath.Abs(f.providerDir)
	if err := errors.Join(errs[:]...); err != nil {
		fail("image-credential-provider-config", "%v", err)
	}
}

// keptDead are the kubelet's deprecated flags about dead containers, with their
// defaults, which are what podd does.
var keptDead = map[string]string{
	"maximum-dead-containers-per-container": "1",
	"maximum-dead-containers":               "-1",
	"minimum-container-ttl-duration":        "0s",
}

// fixedFlag takes one value, and others only if they are ignored.
type fixedFlag struct {
	only    string
	ignored *ignoredFlag
}

func (f *fixedFlag) String() string { return "" }
func (f *fixedFlag) Type() string   { return "string" }
func (f *fixedFlag) Set(s string) error {
	switch {
	case s == f.only || s+"s" == f.only:
		return nil
	case f.ignored != nil:
		return f.ignored.Set(s)
	}
	return fmt.Errorf("podd keeps one dead container of each name as long as its pod is there, which is %s: omit the flag", f.only)
}
