package config

import (
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"

	"podd/internal/features"
)

// uselessThrottlingFactor may be set although MemoryQoS is off: it was the default until 1.36,
// and existing files have it.
const uselessThrottlingFactor = 0.9

// memoryQoS validates the fields that protect and throttle memory, as upstream does
// (pkg/kubelet/apis/config/validation).
func (c *checker) memoryQoS(kc *kubeletv1beta1.KubeletConfiguration) {
	set, _ := features.New(kc.FeatureGates) // c.gates reports what is wrong
	enabled := set.Enabled(features.MemoryQoS)
	if f := kc.MemoryThrottlingFactor; f != nil {
		switch {
		case *f <= 0 || *f > 1:
			c.fail("memoryThrottlingFactor", "%v is out of range: give a number greater than 0, at most 1.0, or leave it out", *f)
		case !enabled && *f != uselessThrottlingFactor:
			c.fail("memoryThrottlingFactor", "must not be set while the feature gate MemoryQoS is off: leave it out, or switch the gate on")
		}
	}
	switch policy := kc.MemoryReservationPolicy; {
	case policy != kubeletv1beta1.NoneMemoryReservationPolicy && policy != kubeletv1beta1.TieredReservationMemoryReservationPolicy:
		c.fail("memoryReservationPolicy", "%q is not known: give None or TieredReservation", policy)
	case policy == kubeletv1beta1.TieredReservationMemoryReservationPolicy && !enabled:
		c.fail("memoryReservationPolicy", "%q requires the feature gate MemoryQoS to be on: give None, or switch the gate on", policy)
	}
}

// fillMemoryQoS fills in the fields that memoryQoS has validated.
func (c *Config) fillMemoryQoS(kc *kubeletv1beta1.KubeletConfiguration) {
	c.MemoryTieredReservation = kc.MemoryReservationPolicy == kubeletv1beta1.TieredReservationMemoryReservationPolicy
	if f := kc.MemoryThrottlingFactor; f != nil {
		c.MemoryThrottlingFactor = *f
	}
}
