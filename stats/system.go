package stats

import (
	"fmt"
	"time"

	api "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"podd/stats/kernel"
)

// daemon is a process that is measured by itself.
type daemon struct {
	pid     int
	started time.Time
}

// system is one of the summary's system containers.
type system struct {
	name    string
	started time.Time
	measured
}

// measureSystem measures podd, the runtime, the system's processes and all pods. It measures
// a daemon by its cgroup if the daemon has one to itself, like a service of systemd. podd
// and a runtime that it started share theirs, which would say nothing about either, so then
// it measures the process.
func (c *Collector) measureSystem(snap *Snapshot) []system {
	c.followRuntime()
	own, theirs := c.cfg.Kernel.CgroupOf(c.own.pid), ""
	if c.runtime.pid != 0 {
		theirs = c.cfg.Kernel.CgroupOf(c.runtime.pid)
	}
	if own == theirs {
		own, theirs = "", ""
	}
	var all []system
	for _, d := range []struct {
		name   string
		pid    int
		cgroup string
	}{{api.SystemContainerKubelet, c.own.pid, own}, {api.SystemContainerRuntime, c.runtime.pid, theirs}} {
		if d.pid == 0 {
			continue
		}
		if s, ok := c.measureDaemon(d.name, d.pid, d.cgroup, snap.Time); ok {
			all = append(all, s)
		}
	}
	if s, ok := c.measureMisc(snap); ok {
		all = append(all, s)
	}
	for i := range snap.all {
		if m := &snap.all[i]; m.Path == c.cfg.RootCgroup {
			all = append(all, system{api.SystemContainerPods, m.Created, *m})
		}
	}
	return all
}

// followRuntime looks for the runtime's process if the known one has ended.
func (c *Collector) followRuntime() {
	if c.runtime.pid != 0 {
		if p, err := c.cfg.Kernel.Process(c.runtime.pid); err == nil && p.Started.Equal(c.runtime.started) {
			return
		}
	}
	c.runtime = daemon{}
	if c.cfg.RuntimePID == nil {
		return
	}
	if pid := c.cfg.RuntimePID(); pid != 0 {
		if p, err := c.cfg.Kernel.Process(pid); err == nil {
			c.runtime = daemon{pid, p.Started}
		}
	}
}

// measureDaemon measures a daemon by its cgroup, or by its process if that is empty. The rate
// belongs to what was measured: a restarted process has not used what the former one had, and a
// cgroup may go on with processes of a daemon that has ended.
func (c *Collector) measureDaemon(name string, pid int, cgroup string, begun time.Time) (system, bool) {
	p, err := c.cfg.Kernel.Process(pid)
	if err != nil {
		return system{}, false
	}
	s := system{name: name, started: p.Started}
	counter, since := fmt.Sprint(name, " ", pid, " ", p.Started), p.Started
	if cgroup != "" {
		if s.Sample, err = c.cfg.Kernel.Cgroup(cgroup, kernel.Usage); err != nil {
			return system{}, false
		}
		counter, since = name+" "+cgroup, countedSince(s.Sample, begun)
	} else {
		s.Time = time.Now()
		s.CPU = &kernel.CPU{Usage: p.CPU}
		s.Memory = &kernel.Memory{
			Usage: p.RSS, WorkingSet: p.RSS, RSS: p.RSS, Faults: p.Faults, MajorFaults: p.MajorFaults,
			Limit: kernel.Unlimited, SwapLimit: kernel.Unlimited,
		}
	}
	if s.CPU != nil {
		s.rate = c.rates.observe(counter, point{s.Time, s.CPU.Usage}, since)
	}
	return s, true
}

// measureMisc measures the cgroup of the system's processes, if there is one.
func (c *Collector) measureMisc(snap *Snapshot) (system, bool) {
	if c.cfg.SystemCgroup == "" {
		return system{}, false
	}
	sample, err := c.cfg.Kernel.Cgroup(c.cfg.SystemCgroup, kernel.Usage)
	if err != nil {
		return system{}, false
	}
	s := system{name: api.SystemContainerMisc, started: sample.Created, measured: measured{Sample: sample}}
	if s.CPU != nil {
		s.rate = c.rates.observe(s.name, point{s.Time, s.CPU.Usage}, countedSince(sample, snap.Time))
	}
	return s, true
}
