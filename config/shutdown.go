package config

import (
	"fmt"
	"time"

	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"

	"podd/internal/features"
	"podd/internal/pod"
)

// Shutdown says how long pods have to end when the machine goes down.
type Shutdown struct {
	// Graceful is the feature gate: without it, pods have no time.
	Graceful bool
	// Periods are those of ranges of priorities, in the order of the configuration; none if it
	// sets none.
	Periods []ShutdownPeriod
}

// ShutdownPeriod is what pods of this priority and higher ones have, up to the next Priority.
type ShutdownPeriod struct {
	Priority int32
	Length   time.Duration
}

// The fields that say how long pods have.
const (
	shutdownField = "shutdownGracePeriod"
	criticalField = "shutdownGracePeriodCriticalPods"
	priorityField = "shutdownGracePeriodByPodPriority"
)

// shutdown validates these fields, as upstream does (pkg/kubelet/apis/config/validation). A
// negative number of seconds, or a priority given twice, is wrong here, too.
func (c *checker) shutdown(kc *kubeletv1beta1.KubeletConfiguration) {
	all, critical := kc.ShutdownGracePeriod.Duration, kc.ShutdownGracePeriodCriticalPods.Duration
	for field, d := range map[string]time.Duration{shutdownField: all, criticalField: critical} {
		if d < 0 || d > 0 && d < time.Second {
			c.fail(field, "%s is too short: give 0, or at least 1s", d)
		}
	}
	if critical > all {
		c.fail(criticalField, "%s is more than shutdownGracePeriod (%s), which includes it: give less", critical, all)
	}
	set, _ := features.New(kc.FeatureGates) // c.gates reports what is wrong
	if !set.Enabled(features.GracefulNodeShutdown) && (all > 0 || critical > 0) {
		c.fail(shutdownField, "needs the feature gate GracefulNodeShutdown: switch it on, or leave this out")
	}
	byPriority := kc.ShutdownGracePeriodByPodPriority
	switch {
	case len(byPriority) == 0:
	case !set.Enabled(features.GracefulNodeShutdownBasedOnPodPriority):
		c.fail(priorityField, "needs the feature gate GracefulNodeShutdownBasedOnPodPriority: switch it on, or leave this out")
	case all > 0 || critical > 0:
		c.fail(priorityField, "contradicts shutdownGracePeriod: give one of the two")
	}
	seen := map[int32]bool{}
	for i, p := range byPriority {
		at := fmt.Sprintf("%s[%d]", priorityField, i)
		if seen[p.Priority] {
			c.fail(at, "priority %d is there twice: give each once", p.Priority)
		}
		seen[p.Priority] = true
		if p.ShutdownGracePeriodSeconds < 0 {
			c.fail(at, "%d s are negative", p.ShutdownGracePeriodSeconds)
		}
	}
}

// fillShutdown translates what shutdown has validated.
func (c *Config) fillShutdown(kc *kubeletv1beta1.KubeletConfiguration) {
	c.Shutdown.Graceful = c.Features.Enabled(features.GracefulNodeShutdown)
	for _, p := range kc.ShutdownGracePeriodByPodPriority {
		c.Shutdown.Periods = append(c.Shutdown.Periods, ShutdownPeriod{p.Priority, time.Duration(p.ShutdownGracePeriodSeconds) * time.Second})
	}
	if all, critical := kc.ShutdownGracePeriod.Duration, kc.ShutdownGracePeriodCriticalPods.Duration; all > 0 {
		c.Shutdown.Periods = []ShutdownPeriod{{0, all - critical}, {pod.SystemCriticalPriority, critical}}
	}
}
